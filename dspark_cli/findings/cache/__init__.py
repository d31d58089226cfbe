"""Findings over a KV cache plan, one a module; each has `check`, and `check.check_cache` runs them all."""
