"""Packages whose names load when they are asked for: a node of a federation needs neither a database nor a strategy."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loader(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__` that finds each name in a module: its own, or one with dots."""

    def load(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = where[name]
        return getattr(import_module(module if "." in module else f"{package}.{module}"), name)

    return load
