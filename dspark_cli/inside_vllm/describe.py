"""What the installed vLLM takes this machine for."""

from typing import Any

from vllm.config import VllmConfig
from vllm.platforms import current_platform

from dspark_cli.inside_vllm.answer import answer


def describe(request: dict[str, Any]) -> dict[str, Any]:
    """`platform` (cuda, cpu, ...) and `model_runner` (V1 or V2), the runner for a model that asks for neither."""
    runner = "V2" if VllmConfig().use_v2_model_runner else "V1"
    return {"platform": str(current_platform.device_type), "model_runner": runner}


if __name__ == "__main__":
    answer(describe)
