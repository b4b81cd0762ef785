"""Money: signed integers of a millionth of a unit. Here, and only here, a number becomes money.

The one rounding rule: a reward is multiplied by a million in double precision and rounded half to even.
"""

from decimal import Decimal
from typing import Any

import numpy as np

from guerdon.ledger.errors import RefusedError

MICRO = 1_000_000
LARGEST = 2**53  # micro-units: beyond this a double does not hold every integer


def to_micro(values: Any) -> Any:
    """Return rewards as micro-units (int64), rounded half to even.

    >>> to_micro([9.0, -0.0000005, 1.0000015])
    array([9000000,       0, 1000002])
    """
    scaled = np.rint(np.asarray(values, dtype=np.float64) * MICRO)
    if not np.all(np.abs(scaled) <= LARGEST):
        raise RefusedError(
            f"a reward must be a finite number of at most {LARGEST // MICRO:,} units either way, got "
            f"{np.asarray(values)[~(np.abs(scaled) <= LARGEST)][0]:g}"
        )
    return scaled.astype(np.int64)


def parse_amount(text: str) -> int:
    """Return a person's positive amount, such as "12.50", as micro-units; nothing is rounded away.

    >>> parse_amount("12.50")
    12500000
    """
    try:
        micro = Decimal(text) * MICRO
        whole = int(micro)
    except (ArithmeticError, ValueError):
        raise ValueError(f"an amount must be a number such as 12.50, got {text!r}") from None
    if whole != micro:
        raise ValueError(f"an amount must have at most 6 decimals, got {text}")
    if not 0 < whole <= LARGEST:
        raise ValueError(f"an amount must be above 0 and at most {LARGEST // MICRO:,} units, got {text}")
    return whole


def format_amount(micro: int) -> str:
    """Return micro-units as a decimal number, exact, with at least two decimals and thousands apart.

    >>> format_amount(-1234500001), format_amount(9000000)
    ('-1,234.500001', '9.00')
    """
    units, rest = divmod(abs(int(micro)), MICRO)
    decimals = f"{rest:06d}"
    return f"{'-' if micro < 0 else ''}{units:,}.{decimals[:2]}{decimals[2:].rstrip('0')}"


def plain_amount(micro: int) -> str:
    """Return micro-units as programs read them: all six decimals, no separators.

    >>> plain_amount(-1234500001)
    '-1234.500001'
    """
    units, rest = divmod(abs(int(micro)), MICRO)
    return f"{'-' if micro < 0 else ''}{units}.{rest:06d}"
