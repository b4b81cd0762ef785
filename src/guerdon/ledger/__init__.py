"""The ledger: every payment once, explained, and provable, in SQLite or PostgreSQL."""

from typing import TYPE_CHECKING

from guerdon._lazy import loader

if TYPE_CHECKING:
    from guerdon.ledger.books.errors import RefusedError, UnavailableError
    from guerdon.ledger.ledger import Ledger, Resume
    from guerdon.ledger.pay.recording import Recorded
    from guerdon.ledger.proof.signing import Receipt
    from guerdon.ledger.proof.submissions import gradient_hash, sign_submission, submission
    from guerdon.ledger.proof.verify import Verification

__all__ = [
    "Ledger", "Receipt", "Recorded", "RefusedError", "Resume", "UnavailableError", "Verification", "gradient_hash",
    "sign_submission", "submission",
]  # fmt: skip

_NAMES = {
    "guerdon.ledger.books.errors": ("RefusedError", "UnavailableError"),
    "ledger": ("Ledger", "Resume"),
    "guerdon.ledger.pay.recording": ("Recorded",),
    "guerdon.ledger.proof.signing": ("Receipt",),
    "guerdon.ledger.proof.submissions": ("gradient_hash", "sign_submission", "submission"),
    "guerdon.ledger.proof.verify": ("Verification",),
}

__getattr__ = loader(__name__, {name: module for module, names in _NAMES.items() for name in names})
