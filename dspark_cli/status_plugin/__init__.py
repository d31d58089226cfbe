"""What runs inside a vLLM server that was started with `dspark-tool serve --status`, and in no other."""
