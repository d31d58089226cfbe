"""Put a function of ours around one of vLLM's, once; all of a patch's functions, or none."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MARK = "_dspark_wrapped"
"""The attribute of a wrapped function with the names of what is around it."""

_undo: list[tuple[Any, str, Any]] | None = None
"""What `all_or_nothing` would put back, while it is under way."""


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace `owner.name` (a class's method or a module's function) by around(stock, *its arguments).

    Does nothing where `around`, or its like of another copy of its module, is there already.
    """

    def make(stock: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return around(stock, *args, **kwargs)

        return wrapped

    _replace(owner, name, make, around)


def replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """The same by make(stock). It spares a call, which is felt in what runs in every step: caches are cold there."""
    _replace(owner, name, make, make)


def _replace(owner: Any, name: str, make: Callable[..., Any], named: Callable[..., Any]) -> None:
    stock = getattr(owner, name)
    own_name = f"{named.__module__}.{named.__qualname__}"
    there: tuple[str, ...] = getattr(stock, MARK, ())
    if own_name in there:
        return
    wrapped = functools.wraps(stock)(make(stock))
    setattr(wrapped, MARK, (*there, own_name))
    if _undo is not None:
        _undo.append((owner, name, vars(owner).get(name)))
    setattr(owner, name, wrapped)


@contextmanager
def all_or_nothing() -> Iterator[None]:
    """Where what happens within ends in an exception, take back what it has wrapped, and pass the exception on."""
    global _undo
    outer, _undo = _undo, []
    try:
        yield
    except BaseException:
        for owner, name, before in reversed(_undo):
            delattr(owner, name) if before is None else setattr(owner, name, before)
        raise
    finally:
        _undo = outer
