"""Modules, classes and calls that do nothing, in place of what is not installed and never computes here."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class _AnyAttribute(type):
    def __getattr__(cls, name: str) -> Any:
        _refuse_dunder(name)
        return Inert


class Inert(metaclass=_AnyAttribute):
    """Takes any call and has any attribute; as a decorator it gives the function back."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return args[0] if _decorates(args, kwargs) else super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if _decorates(args, kwargs) else None

    def __getattr__(self, name: str) -> Any:
        _refuse_dunder(name)
        return Inert()

    def __class_getitem__(cls, _: Any) -> type["Inert"]:
        return cls


class InertModule(ModuleType):
    """Has every attribute: a class, for annotations and base classes as well as for calls."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        _refuse_dunder(name)
        return Inert


class InertModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives an inert module for each name that `wanted` holds of and that no finder before it knows."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self.wanted = wanted

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if self.wanted(fullname) else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return InertModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def give_inert_modules(wanted: Callable[[str], bool]) -> None:
    sys.meta_path.append(InertModules(wanted))


def _decorates(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return len(args) == 1 and not kwargs and callable(args[0])


def _refuse_dunder(name: str) -> None:
    """Python asks for these to learn what an object is; an answer would be believed."""
    if name.startswith("__"):
        raise AttributeError(name)
