"""The ledger: every payment once, explained, and provable, in SQLite or PostgreSQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guerdon.ledger.errors import RefusedError, UnavailableError
    from guerdon.ledger.ledger import Ledger, Recorded, Resume
    from guerdon.ledger.signing import Receipt
    from guerdon.ledger.submissions import gradient_hash, sign_submission, submission
    from guerdon.ledger.verify import Verification

__all__ = [
    "Ledger",
    "Receipt",
    "Recorded",
    "RefusedError",
    "Resume",
    "UnavailableError",
    "Verification",
    "gradient_hash",
    "sign_submission",
    "submission",
]

_WHERE = {
    "Ledger": "ledger",
    "Receipt": "signing",
    "Recorded": "ledger",
    "RefusedError": "errors",
    "Resume": "ledger",
    "UnavailableError": "errors",
    "Verification": "verify",
    "gradient_hash": "submissions",
    "sign_submission": "submissions",
    "submission": "submissions",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is asked for: a node needs neither a database nor a strategy."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
