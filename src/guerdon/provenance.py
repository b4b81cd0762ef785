"""Where a recorded rule is from: its name, version and package; and what to install where it is missing.

A rule is its name, its version, its settings and its cost. Its module and its distribution only say where to get it:
they may change while the rule does not. So the version of Guerdon itself is not written down: it changes with each
release. The version of another package is, for those who must install it, but two texts that differ in it alone are of
one rule (`same_rule`).
"""

import functools
import importlib.metadata
import json
from collections.abc import Mapping
from typing import Any

PARTS = ("rule", "version", "settings")  # what a rule is, beside its cost
OWN = "guerdon"


class NotInstalledError(ValueError):
    """A recorded rule is not installed here, or in another version only: what it paid cannot be computed."""


@functools.cache
def distribution_of(module: str) -> str | None:
    """Return which distribution has a module, with its version unless it is Guerdon; None where none or several have.

    >>> distribution_of("guerdon.agreement")
    'guerdon'
    """
    top = module.partition(".")[0]
    if top == OWN:
        return OWN
    distributions = set(importlib.metadata.packages_distributions().get(top, ()))
    if len(distributions) != 1:
        return None
    (name,) = distributions
    return f"{name} {importlib.metadata.version(name)}"


def same_rule(one: str, other: str) -> bool:
    """Tell whether two texts of `describe` are of one rule: of the same name, version and settings."""
    return one == other or _parts(one) == _parts(other)


def version_of(rule: str) -> tuple[Any, Any]:
    """Return the name and version of a recorded rule; None where they cannot be read."""
    name, version, _ = _parts(rule)
    return name, version


def missing(recorded: Mapping[str, Any], installed: int | None) -> str:
    """Return that a recorded rule is not here, and what to do; `installed` is the version that is, if any."""
    here = "none is" if installed is None else f"version {installed} is"
    return (
        f"the rule {recorded['rule']!r} was recorded in version {recorded['version']}, and {here} installed here; to "
        f"compute what it paid, or to go on with its runs, {_remedy(recorded)}; or begin another run"
    )


def _remedy(recorded: Mapping[str, Any]) -> str:
    source = recorded.get("distribution")
    if source == OWN:
        return "install the release of guerdon that has this version (its changelog says which)"
    if source:
        return f"install {source}, which has it in {recorded.get('module')}"
    return (
        f"first run the module {recorded.get('module')} with this version of it, which belongs to no installed package "
        "and calls `guerdon.registry.register`"
    )


def _parts(rule: str) -> tuple[Any, ...]:
    try:
        recorded: Any = json.loads(rule)
        return tuple(recorded[part] for part in PARTS)
    except (ValueError, TypeError, KeyError):
        return None, None, rule
