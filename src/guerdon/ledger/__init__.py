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
    "Ledger", "Receipt", "Recorded", "RefusedError", "Resume", "UnavailableError", "Verification", "gradient_hash",
    "sign_submission", "submission",
]  # fmt: skip

_NAMES = {
    "errors": ("RefusedError", "UnavailableError"),
    "ledger": ("Ledger", "Resume"),
    "recording": ("Recorded",),
    "signing": ("Receipt",),
    "submissions": ("gradient_hash", "sign_submission", "submission"),
    "verify": ("Verification",),
}

__getattr__ = loader(__name__, {name: module for module, names in _NAMES.items() for name in names})
