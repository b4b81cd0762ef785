"""The ledger: every payment once, explained, and provable, in SQLite or PostgreSQL."""

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
