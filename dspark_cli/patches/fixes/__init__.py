"""One module a fix that runs inside vLLM: `apply() -> None`, and applying twice is applying once."""
