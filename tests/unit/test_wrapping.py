"""Ours around vLLM's: what a wrapped function still is, and what is taken back (see also test_put_on)."""

from types import ModuleType
from typing import Any

import pytest

from dspark_cli.draft_context.wrapping import all_or_nothing, wrap


def stock(left: int, *, right: int = 0) -> int:
    """Stock's own words."""
    return left - right


def doubled(stock: Any, *args: Any, **kwargs: Any) -> int:
    return 2 * int(stock(*args, **kwargs))


@pytest.fixture
def module() -> ModuleType:
    made = ModuleType("stands_for_one_of_vllms")
    made.prepare = stock  # type: ignore[attr-defined]
    return made


def test_a_modules_function_gets_its_arguments_as_they_were_given(module: ModuleType) -> None:
    wrap(module, "prepare", doubled)

    assert module.prepare(7, right=3) == 8


def test_a_wrapped_function_looks_like_the_stock_one(module: ModuleType) -> None:
    wrap(module, "prepare", doubled)

    assert (module.prepare.__name__, module.prepare.__doc__) == ("stock", "Stock's own words.")
    assert module.prepare.__wrapped__ is stock


def test_the_stock_function_itself_stays_what_it_was(module: ModuleType) -> None:
    wrap(module, "prepare", doubled)

    assert stock(7, right=3) == 4
    assert vars(stock) == {}


def test_another_copy_of_a_wrapper_is_the_same_wrapper(module: ModuleType) -> None:
    def copy(stock: Any, *args: Any, **kwargs: Any) -> int:
        return 100 * int(stock(*args, **kwargs))

    copy.__module__, copy.__qualname__ = doubled.__module__, doubled.__qualname__
    wrap(module, "prepare", doubled)

    wrap(module, "prepare", copy)

    assert module.prepare(7) == 14


@pytest.mark.parametrize("ending", [ValueError, KeyboardInterrupt, SystemExit])
def test_however_it_ends_halfway_nothing_stays_and_the_ending_is_passed_on(
    module: ModuleType, ending: type[BaseException]
) -> None:
    def install() -> None:
        with all_or_nothing():
            wrap(module, "prepare", doubled)
            raise ending

    with pytest.raises(ending):
        install()

    assert module.prepare is stock


def test_what_was_wrapped_before_stays_where_a_later_installation_fails(module: ModuleType) -> None:
    wrap(module, "prepare", doubled)

    def tripled(stock: Any, *args: Any, **kwargs: Any) -> int:
        return 3 * int(stock(*args, **kwargs))

    def install() -> None:
        with all_or_nothing():
            wrap(module, "prepare", tripled)
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        install()

    assert module.prepare(7) == 14
