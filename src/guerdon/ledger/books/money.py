"""Money: signed integers of a millionth of a unit. Here, and only here, a number becomes money.

The one rounding rule: a reward is multiplied by a million in double precision and rounded half to even. A reward above
a billion units is refused. A greater loss is recorded as a billion: it must not stop the others from being paid.
"""

from decimal import Decimal
from typing import Any

import numpy as np

from guerdon.ledger.books.errors import RefusedError

MICRO = 1_000_000
MOST_PLACES = 6  # decimals of a micro-unit
PLACES = {"JPY": 0, "KRW": 0, "CLP": 0, "ISK": 0, "VND": 0, "BHD": 3, "JOD": 3, "KWD": 3, "OMR": 3, "TND": 3}
LARGEST = 10**15  # micro-units of one amount: thousands of them still add up within 64 bits


def places_of(unit: str) -> int:
    """Return how many decimals the smallest coin of a unit has: two, unless it is a currency with others.

    >>> places_of("EUR"), places_of("JPY")
    (2, 0)
    """
    return PLACES.get(unit, 2)


def to_micro(values: Any) -> Any:
    """Return rewards as micro-units (int64), rounded half to even; a loss is at most a billion units.

    >>> to_micro([9.0, -0.0000005, 1.0000015, -1e300])
    array([         9000000,                0,          1000002, -1000000000000000])
    """
    with np.errstate(over="ignore"):
        scaled = np.maximum(np.rint(np.asarray(values, dtype=np.float64) * MICRO), -float(LARGEST))
    if not np.all(scaled <= LARGEST):  # NaN is not
        raise RefusedError(
            f"an amount must be a number of at most {LARGEST // MICRO:,} units, got "
            f"{np.asarray(values)[~(scaled <= LARGEST)][0]:g}; check the cost, or gather again without the agent that "
            "sent something enormous"
        )
    return scaled.astype(np.int64)


def parse_amount(text: str) -> int:
    """Return a positive amount that a person typed, such as "12.50", as micro-units, without rounding.

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
    """Return micro-units as an exact decimal number, with at least two decimals and commas between thousands.

    >>> format_amount(-1234500001), format_amount(9000000)
    ('-1,234.500001', '9.00')
    """
    units, decimals = f"{Decimal(int(micro)).scaleb(-6):,.6f}".split(".")
    return f"{units}.{decimals[:2]}{decimals[2:].rstrip('0')}"


def plain_amount(micro: int) -> str:
    """Return micro-units for programs: all six decimals, no separators.

    >>> plain_amount(-1234500001)
    '-1234.500001'
    """
    return f"{Decimal(int(micro)).scaleb(-6):.6f}"
