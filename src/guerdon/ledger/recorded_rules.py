"""Rules as the ledger writes and reads them: text in, text out, and every error is one of the ledger's."""

from functools import lru_cache

from guerdon import rules
from guerdon.ledger.errors import RefusedError
from guerdon.rules import Mechanism


def described(mechanism: Mechanism) -> tuple[str, str]:
    """Return a rule and its cost as text, or raise."""
    try:
        return rules.describe(mechanism)
    except ValueError as error:
        raise RefusedError(str(error)) from error


@lru_cache(maxsize=256)
def restored(rule: str, cost: str) -> Mechanism:
    """Return the payment rule that was written down, or raise."""
    try:
        return rules.restore(rule, cost)
    except ValueError as error:
        raise RefusedError(str(error)) from error
