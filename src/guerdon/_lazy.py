"""Packages whose names load when they are asked for: a node of a federation needs neither a database nor a strategy."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loader(package: str, where: Mapping[str, str], extra: str | None = None) -> Callable[[str], Any]:
    """Return a package's `__getattr__` that finds each name in a module: its own, or one with dots.

    `extra` is what to install where something is missing (default: the one named like the package).
    """

    def load(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = where[name]
        try:
            return getattr(import_module(module if "." in module else f"{package}.{module}"), name)
        except ModuleNotFoundError as error:
            raise missing(package, error.name or "", extra or package.rpartition(".")[2]) from error

    return load


def missing(package: str, needed: str, extra: str) -> ModuleNotFoundError:
    """Return the error of a package that needs an extra which is not installed."""
    command = f"pip install 'guerdon[{extra}]' (in a checkout: pip install '.[{extra}]')"
    return ModuleNotFoundError(f"`{package}` needs {needed}; install it with: {command}", name=needed)
