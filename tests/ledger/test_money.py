"""Money: one rounding rule, exact text, and what becomes of losses."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from guerdon.ledger.liability import Standing, lines, settle
from guerdon.ledger.money import LARGEST, format_amount, parse_amount, plain_amount, to_micro
from guerdon.ledger.tables import PERSONAL

MICROS = st.integers(-LARGEST, LARGEST)
COUNT = 6
AMOUNTS = arrays(np.int64, COUNT, elements=st.integers(-(10**9), 10**9))
POSITIVE = arrays(np.int64, COUNT, elements=st.integers(0, 10**9))


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


def one(
    liability: str, amount: int, held: int = 0, balance: int = 0, deposit: int = 0, carried: int = 0
) -> dict[str, int]:
    standing = Standing(*(np.array([value]) for value in (balance, deposit, carried)))
    flows = settle(liability, np.array([amount]), np.array([held]), standing)
    return {name: int(value[0]) for name, value in flows._asdict().items() if value[0]}


def test_a_gain_goes_to_the_agent_under_every_liability() -> None:
    for liability in ("carry", "deposit", "floor"):
        assert one(liability, 7, deposit=5, balance=3) == {"to_agent": 7}


def test_part_of_a_gain_can_be_held() -> None:
    assert one("floor", 7, held=3) == {"to_agent": 4, "to_escrow": 3}
    assert one("floor", 2, held=3) == {"to_escrow": 2}
    assert one("floor", -2, held=3) == {"cut": 2}


def test_carry_nets_a_loss_against_later_gains() -> None:
    assert one("carry", -7, balance=100, deposit=100) == {"from_carried": 7}
    assert one("carry", 3, carried=-7) == {"to_carried": 3}
    assert one("carry", 9, carried=-4, held=2) == {"to_carried": 4, "to_escrow": 2, "to_agent": 3}


def test_deposit_charges_balance_then_deposit_then_nobody() -> None:
    assert one("deposit", -7, balance=10) == {"from_agent": 7}
    assert one("deposit", -7, balance=4, deposit=10) == {"from_agent": 4, "from_deposit": 3}
    assert one("deposit", -7, balance=4, deposit=1) == {"from_agent": 4, "from_deposit": 1, "cut": 2}


def test_floor_cuts_at_zero() -> None:
    assert one("floor", -7, balance=10, deposit=10) == {"cut": 7}


@given(st.sampled_from(["carry", "deposit", "floor"]), AMOUNTS, POSITIVE, POSITIVE, POSITIVE, POSITIVE)
def test_nothing_is_lost_and_nobody_owes_more_than_he_has(
    liability: str, amount: np.ndarray, held: np.ndarray, balance: np.ndarray, deposit: np.ndarray, debt: np.ndarray
) -> None:
    flows = settle(liability, amount, held, Standing(balance, deposit, -debt))
    assert all((part >= 0).all() for part in flows)
    gains = flows.to_agent + flows.to_escrow + flows.to_carried
    losses = flows.from_agent + flows.from_deposit + flows.from_carried
    assert (gains - losses == amount + flows.cut).all()
    assert (flows.from_agent <= balance).all()
    assert (flows.from_deposit <= deposit).all()
    assert (flows.to_carried <= debt).all()
    if liability == "carry":
        assert not flows.cut.any()
    if liability == "deposit":  # cut only where nothing is left
        assert ((flows.cut == 0) | ((flows.from_agent == balance) & (flows.from_deposit == deposit))).all()


@given(AMOUNTS, POSITIVE)
def test_entries_move_positive_amounts_between_different_accounts(amount: np.ndarray, held: np.ndarray) -> None:
    nothing = np.zeros(COUNT, dtype=np.int64)
    flows = settle("carry", amount, held, Standing(nothing, nothing, nothing))
    numbers = np.arange(2, 2 + 4 * COUNT).reshape(4, COUNT)
    table = lines(flows, dict(zip(PERSONAL, numbers, strict=True)))
    assert (table[:, 2] > 0).all()
    assert (table[:, 0] != table[:, 1]).all()
    moved = {
        account: table[table[:, 1] == account, 2].sum() - table[table[:, 0] == account, 2].sum() for account in (1,)
    }
    assert moved[1] == -(amount + flows.cut).sum()
