"""The payment rules by name: how they are chosen, written down, and read again years later.

A rule of your own joins the ledger, the command line, the files of experiments and the playground with one line:

    register(MyRule)

The program `guerdon` finds the rules of installed packages: those that they name in the entry-point group
`guerdon.rules`.
"""

import functools
import importlib.metadata
import json
from collections.abc import Callable, Mapping
from typing import Any

from guerdon.agreement import FlatPay, OutputAgreement
from guerdon.costs import Cost, ExpressionCost, formula_of
from guerdon.provenance import PARTS, NotInstalledError, distribution_of, missing
from guerdon.rule import Rule
from guerdon.witness import WitnessedPay
from guerdon.words import about

__all__ = [
    "choices",
    "choose",
    "describe",
    "register",
    "restore",
]

_RULES: dict[str, type[Rule]] = {}


def register(kind: type[Rule]) -> type[Rule]:
    """Make a rule known by its `name`, and by the names that people choose it by (`About.choices`).

    - `kind`: the class of the rule. It is returned, so that this is a decorator, too.
    """
    taken = [name for name in about(kind).choices(kind) if name in _choices() and _RULES.get(kind.name) is not kind]
    if not kind.name or taken or _RULES.get(kind.name, kind) is not kind:
        name = next(iter(taken), kind.name)
        raise ValueError(f"`name` and choices of {kind.__name__} must be names of their own, got {name!r}")
    if type(kind.version) is not int or kind.version < 1:
        raise ValueError(f"`version` of {kind.__name__} must be a whole number of at least 1, got {kind.version!r}")
    _RULES[kind.name] = kind
    return kind


@functools.cache
def _find_installed() -> None:
    """Register the rules of installed packages, once."""
    for entry_point in importlib.metadata.entry_points(group="guerdon.rules"):
        register(entry_point.load())


def known_rules() -> dict[str, type[Rule]]:
    """Return the rules that are known here, by name."""
    _find_installed()
    return _RULES


def choices() -> dict[str, Callable[..., Rule]]:
    """Return functions that make a rule from a cost, by the names that people choose by."""
    _find_installed()
    return _choices()


def _choices() -> dict[str, Callable[..., Rule]]:
    return {name: make for kind in _RULES.values() for name, make in about(kind).choices(kind).items()}


def choose(text: str, cost: Cost, among: Mapping[str, Callable[..., Rule]] | None = None) -> Rule:
    """Return the rule that a text names.

    - `text`: a name, and a number after a colon where the rule takes one: agreement, flat, known:4.0.
    - `cost`: what a member's work costs.
    - `among`: the names to choose from, with what makes each rule. None: `choices()`.

    >>> from guerdon import AffineCost
    >>> choose("known:4", AffineCost(1, 1)).variance
    KnownVariance(variance=4.0)
    """
    name, colon, number = text.partition(":")
    makers = choices() if among is None else among
    if name not in makers:
        raise ValueError(f"the rule must be one of {', '.join(makers)}, got {text!r}")
    try:
        return makers[name](cost, *([float(number)] if colon else []))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the rule {text!r} cannot be made: {error}") from error


def describe(rule: Rule) -> tuple[str, str]:
    """Return a payment rule and its cost as text: all that decides pay, and where the rule is from.

    >>> from guerdon import AffineCost
    >>> rule, cost = describe(choose("estimated", AffineCost(1, 1)))
    >>> rule.partition(',"settings"')[0]
    '{"distribution":"guerdon","module":"guerdon.agreement","rule":"output-agreement"'
    >>> rule.partition('"settings":')[2], cost
    ('{"crowd":"present","variance":{"kind":"estimated"}},"version":1}', '1 + 1*s')
    """
    kind = type(rule)
    if known_rules().get(rule.name) is not kind:
        raise ValueError(
            f"`rule` must be a rule that can be recorded, got {rule!r}; rules of your own are made known by "
            "`guerdon.registry.register`, and rules of the laboratory are for simulations"
        )
    text = {
        "rule": kind.name, "version": kind.version, "module": kind.__module__,
        "distribution": distribution_of(kind.__module__), "settings": about(rule).settings(rule),
    }  # fmt: skip
    return json.dumps(text, sort_keys=True, separators=(",", ":"), ensure_ascii=False), formula_of(rule.cost)


def restore(rule: str, cost: str) -> Rule:
    """Return the payment rule that `describe` wrote down; raise `NotInstalledError` where another version is here."""
    try:
        recorded: dict[str, Any] = json.loads(rule)
        name, version, settings = (recorded[part] for part in PARTS)
        kind = known_rules().get(name)
        if kind is not None and kind.version == version:
            return about(kind).from_settings(kind, ExpressionCost(cost), settings)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"a recorded payment rule cannot be read: {rule[:200]} ({error})") from error
    raise NotInstalledError(missing(recorded, None if kind is None else kind.version))


def as_recorded(rule: Rule) -> Rule:
    """Return a rule as it is read again from what `describe` writes: what a run must pay by, to the last bit."""
    return restore(*describe(rule))


for _kind in (OutputAgreement, WitnessedPay, FlatPay):
    register(_kind)
