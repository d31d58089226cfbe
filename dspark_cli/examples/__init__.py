"""/metrics of real servers, recorded: what the tool sees where drafts do well, and where they collapse."""

from importlib.resources import files

NAMES = ("healthy", "collapsed")


def metrics_page(name: str) -> bytes:
    """The page called `name`, one of NAMES."""
    return (files(__package__) / f"{name}.txt").read_bytes()
