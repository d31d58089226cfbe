"""Programs that run in a process of their own, with the installed vLLM imported.

They read a JSON request on stdin and answer with one JSON document on stdout; `sources.vllm_child` starts them. Nothing
else of this project imports vLLM.
"""
