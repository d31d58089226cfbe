"""Put a function of ours around one of vLLM's, once."""

import functools
from collections.abc import Callable
from typing import Any

MARK = "_dspark_wrapped"


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace `owner.name` (a class's method or a module's function) by around(stock, *its arguments).

    Does nothing where it has been wrapped before, also by another copy of this module.
    """
    stock = getattr(owner, name)
    if getattr(stock, MARK, None):
        return

    @functools.wraps(stock)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(stock, *args, **kwargs)

    setattr(wrapped, MARK, True)
    setattr(owner, name, wrapped)
