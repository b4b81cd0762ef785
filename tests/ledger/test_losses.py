"""What becomes of a reward: a gain, a loss that is met, carried, charged or cut; and what the ledger refuses to cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from guerdon import AffineCost, EstimatedVariance, OutputAgreement
from guerdon.ledger import Ledger
from guerdon.ledger.books.tables import PERSONAL
from guerdon.ledger.pay.losses import Standing, lines, settle
from guerdon.terms import LOSSES, Terms
from tests.support.ledger_scenes import AT_ONCE, on

COUNT = 6
AMOUNTS = arrays(np.int64, COUNT, elements=st.integers(-(10**9), 10**9))
POSITIVE = arrays(np.int64, COUNT, elements=st.integers(0, 10**9))
NAMES = ["north", "east", "south"]
RULE = OutputAgreement(AffineCost(1, 1))


def one(
    losses: str, amount: int, balance: int = 0, deposit: int = 0, carried: int = 0, held: int | None = None
) -> dict[str, int]:
    """Return what moves for a reward; `held`: what the run holds of the member, None where it holds no pay."""
    standing = Standing(*(np.array([value]) for value in (balance, deposit, carried)))
    standing = standing._replace(held=None if held is None else np.array([held]))
    flows = settle(losses, np.array([amount]), standing)
    return {name: int(value[0]) for name, value in flows._asdict().items() if value[0]}


@pytest.mark.parametrize("losses", LOSSES)
def test_a_gain_goes_to_the_agent_or_is_held_however_losses_are_covered(losses: str) -> None:
    assert one(losses, 7, deposit=5, balance=3) == {"to_agent": 7}
    assert one(losses, 7, deposit=5, balance=3, held=0) == {"to_held": 7}


def test_a_loss_is_met_from_what_the_run_holds_first() -> None:
    for losses in LOSSES:
        assert one(losses, -2, balance=9, deposit=9, held=3) == {"from_held": 2}
    assert one("floor", -5, balance=9, deposit=9, held=3) == {"from_held": 3, "cut": 2}
    assert one("carry", -5, balance=9, deposit=9, held=3) == {"from_held": 3, "from_carried": 2}


def test_carry_nets_a_loss_against_later_gains() -> None:
    assert one("carry", -7, balance=100, deposit=100) == {"from_carried": 7}
    assert one("carry", 3, carried=-7) == {"to_carried": 3}
    assert one("carry", 9, carried=-4) == {"to_carried": 4, "to_agent": 5}
    assert one("carry", 9, carried=-4, held=2) == {"to_carried": 4, "to_held": 5}


def test_deposit_charges_balance_then_deposit_then_nobody() -> None:
    assert one("deposit", -7, balance=10) == {"from_agent": 7}
    assert one("deposit", -7, balance=4, deposit=10) == {"from_agent": 4, "from_deposit": 3}
    assert one("deposit", -7, balance=4, deposit=1) == {"from_agent": 4, "from_deposit": 1, "cut": 2}


def test_where_pay_is_held_a_deposit_is_charged_without_the_balance_and_the_rest_is_carried() -> None:
    assert one("deposit", -7, balance=9, deposit=1, held=3) == {"from_held": 3, "from_deposit": 1, "from_carried": 3}
    assert one("deposit", 4, carried=-3, held=0) == {"to_carried": 3, "to_held": 1}


def test_floor_cuts_at_zero() -> None:
    assert one("floor", -7, balance=10, deposit=10) == {"cut": 7}


@given(st.sampled_from(LOSSES), AMOUNTS, POSITIVE, POSITIVE, POSITIVE, st.none() | POSITIVE)
def test_nothing_is_lost_and_nobody_owes_more_than_he_has(
    losses: str, amount: np.ndarray, balance: np.ndarray, deposit: np.ndarray, debt: np.ndarray, held: np.ndarray | None
) -> None:
    flows = settle(losses, amount, Standing(balance, deposit, -debt, held))
    assert all((part >= 0).all() for part in flows)
    gains = flows.to_agent + flows.to_held + flows.to_carried
    lost = flows.from_agent + flows.from_held + flows.from_deposit + flows.from_carried
    assert (gains - lost == amount + flows.cut).all()
    assert not flows.released.any()  # the run's terms say what is released
    assert (flows.from_agent <= balance).all()
    assert (flows.from_deposit <= deposit).all()
    assert (flows.to_carried <= debt).all()
    if held is None:
        assert not (flows.to_held + flows.from_held).any()
    else:
        assert (flows.from_held <= held).all()
        assert not (flows.to_agent + flows.from_agent).any()
        assert ((flows.from_deposit + flows.from_carried + flows.cut == 0) | (flows.from_held == held)).all()
    if losses == "carry" or (losses == "deposit" and held is not None):
        assert not flows.cut.any()
    if losses == "deposit" and held is None:  # cut only where nothing is left
        assert ((flows.cut == 0) | ((flows.from_agent == balance) & (flows.from_deposit == deposit))).all()


@given(AMOUNTS, st.none() | POSITIVE)
def test_entries_move_positive_amounts_between_different_accounts(amount: np.ndarray, held: np.ndarray | None) -> None:
    nothing = np.zeros(COUNT, dtype=np.int64)
    flows = settle("carry", amount, Standing(nothing, nothing, nothing, held))
    kinds = [kind for kind in PERSONAL if held is not None or kind != "held"]
    numbers = np.arange(2, 2 + len(kinds) * COUNT).reshape(len(kinds), COUNT)
    table = lines(flows, dict(zip(kinds, numbers, strict=True)))
    assert (table[:, 2] > 0).all()
    assert (table[:, 0] != table[:, 1]).all()
    moved = {
        account: table[table[:, 1] == account, 2].sum() - table[table[:, 0] == account, 2].sum() for account in (1,)
    }
    assert moved[1] == -(amount + flows.cut).sum()


@pytest.mark.parametrize("terms", [on("floor"), on("deposit"), on("floor", hold=5)], ids=["floor", "deposit", "held"])
def test_a_loss_that_others_gain_is_not_cut(ledger: Ledger, terms: Terms) -> None:
    with pytest.raises(ValueError, match="`losses` must be 'carry' under output agreement, or 'deposit' with `hold="):
        ledger.start_run("heart", NAMES, RULE, terms)
    assert not ledger.runs()
    ledger.start_run("heart", NAMES, RULE, on("deposit", hold=5))
    with pytest.raises(ValueError, match="`losses` must be 'carry' under output agreement"):
        ledger.start_run("heart", NAMES, RULE, terms)  # nor later


def test_losses_may_be_carried_or_charged_to_what_is_held(ledger: Ledger) -> None:
    assert ledger.start_run("carried", NAMES, RULE, AT_ONCE).new
    assert ledger.start_run("charged", NAMES, RULE, on("deposit", hold=5)).new
    estimated = OutputAgreement(AffineCost(1, 1), EstimatedVariance())
    assert ledger.start_run("cut", NAMES, estimated, on("floor")).new  # nobody gains what another loses
