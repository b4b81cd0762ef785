"""The ledger: every payment once, explained, and provable, in SQLite or PostgreSQL."""

from typing import TYPE_CHECKING

from guerdon._lazy import loader

if TYPE_CHECKING:
    from guerdon.ledger.errors import RefusedError, UnavailableError
    from guerdon.ledger.ledger import Ledger, Resume
    from guerdon.ledger.recording import Recorded
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
    "Recorded": "recording",
    "RefusedError": "errors",
    "Resume": "ledger",
    "UnavailableError": "errors",
    "Verification": "verify",
    "gradient_hash": "submissions",
    "sign_submission": "submissions",
    "submission": "submissions",
}

__getattr__ = loader(__name__, _WHERE)
