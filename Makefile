# `make demo` and `make test` set everything up on the first call. PYTHON=python3.12 chooses another interpreter.
.PHONY: setup test test-matrix check demo public-plans lock clean
export PYTHON

setup:
	@requirements/setup.sh

# Real engines want both cores for themselves; the rest shares them.
test: setup check
	.venv/bin/python -m pytest -n 2 --dist loadfile tests/unit tests/kernels tests/planning
	.venv/bin/python -m pytest tests/end_to_end

# Fetches every published vLLM release that the patches know, once: 3 GB through the network, 400 MB kept.
test-matrix: setup
	.venv/bin/python -m pytest tests/matrix

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

demo: setup
	@.venv/bin/python -m tests.demo

public-plans: setup
	.venv/bin/python -m benchmarks.public_plans

lock:
	python3 requirements/lock.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache *.egg-info
