"""Prices and contracts, against what their sources say of them."""

from typing import Any

import numpy as np
import pytest

from guerdon import PowerCost
from guerdon.evidence import gather
from guerdon.lab.arena.prices import (
    ContractMenu,
    LocalAccuracy,
    MarketPrice,
    PublicGoods,
    SampleShare,
    StackelbergPrice,
)
from guerdon.rule import round_of
from tests.lab.arena.rounds import COST, facts, pay, reports, rewards

SQUARE = PowerCost(0.25, 2)
FINE = np.linspace(0.5, 40, 4000)  # amounts an agent may announce


def best_answer(rule: Any, cost: Any, others: float = 8.0) -> float:
    """Return the amount that leaves one agent most, if it does what it says."""
    profits = [rewards(rule, facts(reports(), [amount, others, others, others, others]))[0] for amount in FINE[::8]]
    return FINE[::8][np.argmax(np.array(profits) - cost(FINE[::8]))]


def test_fedavg_weights_share_the_budget():
    told = facts(reports(), [8, 8, 16, 4, 4])
    assert rewards(SampleShare(COST), told) == pytest.approx(5 * 9 * np.array([8, 8, 16, 4, 4]) / 40)


def test_an_agent_that_declines_gets_nothing_and_its_announcement_does_not_count():
    told = facts(reports(), [8, 8, 8, 8, 800])
    found = rewards(SampleShare(COST), told, sent=[True, True, True, True, False])
    assert found == pytest.approx([9, 9, 9, 9, 0])


def test_the_answer_to_a_stackelberg_price_is_where_the_slope_of_the_cost_equals_it():
    rule = StackelbergPrice(SQUARE)
    assert rule.price(8.0) == pytest.approx(SQUARE.slope(8.0)) == pytest.approx(4.0)
    assert best_answer(rule, SQUARE) == pytest.approx(8, abs=0.1)


def test_a_stackelberg_price_covers_a_fixed_cost():
    assert StackelbergPrice(COST).price(8.0) == pytest.approx(9 / 8)
    assert rewards(StackelbergPrice(COST), facts(reports())) == pytest.approx(np.full(5, 9.0))


def test_a_contract_follows_its_recursion():
    menu = ContractMenu(COST).menu(8.0)
    assert [size for size, _ in menu] == pytest.approx([4, 8, 16])
    # R_1 = 2h(4), R_2 = R_1 + h(8) − h(4), R_3 = R_2 + (h(16) − h(8))/2
    assert [reward for _, reward in menu] == pytest.approx([10, 14, 18])


def test_every_type_takes_its_own_item_and_the_dearest_gets_its_cost():
    rule = ContractMenu(SQUARE, types=(3.0, 1.5, 1.0, 0.4))
    menu = rule.menu(8.0)
    for own, factor in enumerate(rule.types):
        profits = [reward - factor * SQUARE(size) for size, reward in menu]
        assert profits[own] == pytest.approx(max(profits))
        assert profits[own] >= -1e-9
    assert menu[0][1] == pytest.approx(3.0 * SQUARE(menu[0][0]))


def test_an_announcement_below_the_smallest_item_is_paid_nothing():
    assert rewards(ContractMenu(COST), facts(reports(), [3, 4, 7.9, 8, 99])) == pytest.approx([0, 10, 10, 14, 18])


def test_types_must_come_from_the_dearest_down():
    with pytest.raises(ValueError, match="dearest"):
        ContractMenu(COST, types=(1.0, 2.0))


def test_the_transfers_of_a_public_good_balance_and_make_the_request_the_best_answer():
    told = facts(reports(), [2, 8, 8, 11, 30])
    assert rewards(PublicGoods(COST), told).sum() == pytest.approx(5 * 9)
    assert best_answer(PublicGoods(SQUARE), SQUARE) == pytest.approx(8, abs=0.1)


def test_the_rate_for_local_accuracy_makes_the_request_the_best_answer():
    rule = LocalAccuracy(SQUARE)
    assert best_answer(rule, SQUARE) == pytest.approx(8, abs=0.1)
    expected = np.e * 8 * 4 * (1 - np.exp(-np.array([4, 8, 8, 8, 16]) / 8))
    assert rewards(rule, facts(reports(), [4, 8, 8, 8, 16])) == pytest.approx(expected)


def test_a_market_raises_its_price_until_as_much_is_offered_as_wanted():
    rule, state, price, paid = MarketPrice(COST), None, 0.0, None
    for _ in range(200):  # agents that offer 4 samples for each unit of the price
        price = 9 / 8 * np.exp(0.0 if state is None else state.price[0])
        paid, state = pay(rule, facts(reports(), np.full(5, 4 * price)), state)
    assert price * 4 == pytest.approx(8, rel=1e-3)
    assert paid is not None
    assert np.asarray(paid.released) == pytest.approx(price * 8, rel=1e-3)


def test_a_rule_that_was_not_told_says_what_it_needs():
    rule, told, everybody = SampleShare(COST), facts(reports()), np.ones(5, bool)
    with pytest.raises(ValueError, match=r"'samples' must be told of the round by `informed`.*agents say"):
        rule.pay(rule.init(5), round_of(gather(told.reports, everybody), everybody, 8))
