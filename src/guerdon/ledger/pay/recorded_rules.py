"""Rules as the ledger writes and reads them: text in, text out, and every error is one of the ledger's."""

from functools import lru_cache
from typing import Any

from guerdon import registry
from guerdon.costs import Cost, ExpressionCost
from guerdon.ledger.books.errors import RefusedError, RuleMissingError
from guerdon.ledger.books.money import to_micro
from guerdon.provenance import NotInstalledError, same_rule, version_of
from guerdon.rule import Rule, remembers


def described(rule: Rule) -> tuple[str, str]:
    """Return a rule and its cost as text, or raise."""
    try:
        return registry.describe(rule)
    except ValueError as error:
        raise RefusedError(str(error)) from error


@lru_cache(maxsize=256)
def restored(rule: str, cost: str) -> Rule:
    """Return the payment rule that was written down, or raise `RuleMissingError` where its version is not here."""
    try:
        return registry.restore(rule, cost)
    except NotInstalledError as error:
        raise RuleMissingError(str(error)) from error
    except ValueError as error:
        raise RefusedError(str(error)) from error


@lru_cache(maxsize=256)
def restored_cost(cost: str) -> Cost:
    """Return the cost that was written down: it needs no rule to be installed."""
    return ExpressionCost(cost)


def costs_of(cost: str, request: int, factors: Any) -> Any:
    """Return what the work that a round asked for costs agents with these cost factors, in micro-units."""
    return to_micro(float(restored_cost(cost)(request)) * factors)


def check_same_rule(run: str, told: str, kept: str) -> None:
    """Raise unless a run that was begun by the rule `kept` goes on by the same one, in the same version."""
    if same_rule(told, kept):
        return
    (name, new), (before, old) = version_of(told), version_of(kept)
    if name == before and new != old:
        raise RuleMissingError(
            f"run {run!r} was started with version {old} of the rule {name!r}, and version {new} is installed here, "
            f"which pays other numbers: install what has version {old} (recorded: {kept}), or begin another run"
        )
    raise RefusedError(f"run {run!r} was started with another rule: {kept}, now {told}")


def is_replayed(rule: str, cost: str) -> bool:
    """Tell whether the pay of a round by a rule follows from earlier rounds, or is not known here at all."""
    try:
        return remembers(restored(rule, cost))
    except RuleMissingError:
        return True
