"""What to do about failures of vLLM that are known, whether a server died of them or a plan was refused."""

import re

_ADVICE = {
    r"unrecognized arguments|argument .*: (expected|invalid)": "see vLLM's own: vllm serve --help=all",
    r"No available memory for the cache blocks|larger than the available KV cache memory": (
        "give the KV cache more memory, or a shorter --max-model-len; what a block costs: dspark-tool inspect-cache"
    ),
    r"less than desired (CPU|GPU) memory utilization": (
        "say how much memory the KV cache may have (--kv-cache-memory-bytes N), or lower --gpu-memory-utilization"
    ),
    r"greater than the derived max_model_len": "give a --max-model-len that the model was made for",
    r"Address already in use": "give another port: -- --port N",
    r"torchvision::nms": "these do not fit this torch: pip uninstall torchvision torchaudio torchcodec",
    r"V1 does not support: dspark": "DSpark needs model runner V2, which needs Triton with a GPU; DFlash runs on both",
    r"Repo id must be in the form|is not a (local folder|valid model identifier)": "check the path of the model",
}


def next_step_for(cause: str) -> str | None:
    """What to do, or None where the cause is not a known one."""
    return next((advice for sign, advice in _ADVICE.items() if re.search(sign, cause)), None)
