"""KV cache layers derived from a model's configuration, for models whose code cannot be built here.

A derived layer is an object of vLLM's own layer class that has only what its KV cache spec is computed from. So the
spec itself is always vLLM's. What is derived is which layers a model has, what they are called, and their geometry.
"""
