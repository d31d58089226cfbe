"""dspark-tool: vLLM speculative decoding with DFlash and DSpark drafters, inspected, explained and launched."""

__version__ = "0.1.0"
