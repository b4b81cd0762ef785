"""Whether the driver of a round computed the pay that the ledger computes: equal to the bit, or it is refused.

Both compute in NumPy's float64, by the same rule, from the same evidence and state. So there is nothing to tolerate: a
difference means that logs, metrics and members would be told another number than is recorded.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from guerdon.arrays import to_numpy
from guerdon.ledger.books.errors import RefusedError
from guerdon.rule import Payments, Status

WORDS = {
    "released": "a reward of", "earned": "earnings of", "status": "the status",
    "squared_distance": "the squared distance D =", "expected": "the expected distance E =",
    "variance": "the variance V =",
}  # fmt: skip
REMEDY = (
    "nothing was recorded. One of the two was computed otherwise: let `Server.settle` (or the run's rule, in NumPy's "
    "float64) pay from the very evidence that is recorded, mend what changed the numbers after that, and record the "
    "round again; or leave `payments` out and report `Recorded.payments`"
)


def check_same_payments(named: str, names: Sequence[str], told: Payments | None, own: Payments) -> None:
    """Raise unless the payments that a driver computed for these agents are the ledger's own, where it says any."""
    if told is None:
        return
    for part, words in WORDS.items():
        theirs, ours = (to_numpy(getattr(payments, part)) for payments in (told, own))
        if theirs.shape != ours.shape:
            raise RefusedError(
                f"{named}: `payments.{part}` must have one entry for each of the {len(names)} agents, got shape "
                f"{theirs.shape}; {REMEDY}"
            )
        same = (theirs == ours) | ((theirs != theirs) & (ours != ours))  # NaN is not itself
        if not same.all():
            seat = int(np.argmin(same))
            raise RefusedError(
                f"{named}: the driver computed {words} {_shown(part, theirs[seat])} for agent {names[seat]!r}, the "
                f"evidence gives {_shown(part, ours[seat])}; {REMEDY}"
            )


def _shown(part: str, value: Any) -> str:
    """Return a number with all its digits: two that differ look different."""
    known = part == "status" and value in list(Status)
    return repr(Status(int(value)).label) if known else repr(value.item())
