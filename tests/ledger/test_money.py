"""Money: one rounding rule, and exact text."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.ledger.books.money import LARGEST, format_amount, parse_amount, plain_amount, to_micro

MICROS = st.integers(-LARGEST, LARGEST)


def test_half_goes_to_even() -> None:
    assert to_micro([0.5e-6, 1.5e-6, 2.5e-6, -0.5e-6, -1.5e-6]).tolist() == [0, 2, 2, 0, -2]


def test_a_loss_is_limited_and_blocks_nobody() -> None:
    assert to_micro([-1e300, -float("inf"), 9.0]).tolist() == [-LARGEST, -LARGEST, 9_000_000]


@given(MICROS)
def test_money_survives_being_a_float(micro: int) -> None:
    assert to_micro([micro / 1_000_000])[0] == micro


@given(st.floats(-1e9, 1e9))
def test_rounding_is_within_half_a_micro_unit(value: float) -> None:
    error = abs(Decimal(int(to_micro([value])[0])) - Decimal(value) * 1_000_000)
    assert error <= Decimal("0.5") + abs(Decimal(value)) * Decimal("2e-10")  # a double's last digit


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e10, 1e300])
def test_what_is_no_money_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="an amount must be a number of at most"):
        to_micro([1.0, value])


@given(MICROS)
def test_text_is_exact(micro: int) -> None:
    assert Decimal(format_amount(micro).replace(",", "")) * 1_000_000 == micro
    assert Decimal(plain_amount(micro)) * 1_000_000 == micro


@given(st.integers(1, LARGEST))
def test_amounts_are_read_as_they_are_written(micro: int) -> None:
    assert parse_amount(plain_amount(micro)) == micro


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1.0000001", "nan", "inf", "1e999999", "1000000001", "1,5"])
def test_bad_amounts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="an amount must"):
        parse_amount(text)
