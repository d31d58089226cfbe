"""The refusal to derive what is not known."""


class UnknownLayerKind(Exception):
    """A layer's kind or geometry cannot be told from the configuration. The message names it and the architecture."""
