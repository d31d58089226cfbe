"""Fixes that some vLLM releases lack: one module each, and a registry that says how each stands on a given source."""
