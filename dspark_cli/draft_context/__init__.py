"""The patched runtime: inside vLLM, it hides from the drafter what of its context is stale."""
