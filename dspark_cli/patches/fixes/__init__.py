"""One module a fix that runs inside vLLM: `apply() -> None`, and applying twice is applying once.

It reads everything that it needs of vLLM before it changes anything, or changes it through `wrap`: where it fails,
nothing of it is left.
"""
