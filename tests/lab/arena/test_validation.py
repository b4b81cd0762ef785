"""Rules that look at a validation set, against their definitions in plain loops."""

from itertools import permutations
from math import factorial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from guerdon.lab.arena.validation import (
    GuidedShapley,
    LeaveOneOut,
    LossScore,
    QualityAuction,
    ShapleyShare,
    auction,
    exact_shapley,
    guided_orders,
    truncated_shapley,
)
from tests.lab.arena.rounds import COST, facts, half_square, pay, reports, rewards

STEP = 0.3
SENT = reports(11)
MODEL = np.ones(6)


def worth(coalition: Any) -> float:
    if not coalition:
        return 0.0
    return half_square(MODEL) - half_square(MODEL - STEP * SENT[list(coalition)].mean(axis=0))


def by_permutations():
    """Return Shapley values as the mean over every order, from the definition."""
    values = np.zeros(5)
    for order in permutations(range(5)):
        for place, agent in enumerate(order):
            values[agent] += worth(order[: place + 1]) - worth(order[:place])
    return values / factorial(5)


def gain(members: Any) -> Any:
    return jnp.asarray([worth(tuple(np.flatnonzero(np.asarray(row)))) for row in members])


def test_exact_values_are_the_mean_over_every_order():
    assert exact_shapley(gain, 5) == pytest.approx(by_permutations(), abs=1e-5)


def test_pay_is_the_share_of_the_values():
    values = by_permutations()
    assert values.min() > 0
    assert rewards(ShapleyShare(COST, STEP), facts(SENT)) == pytest.approx(45 * values / values.sum(), rel=1e-4)


def test_guided_orders_begin_with_every_agent_equally_often():
    orders = np.asarray(guided_orders(5, 3, 7))
    assert sorted(orders[:, 0].tolist()) == sorted([0, 1, 2, 3, 4] * 3)
    assert all(sorted(order) == [0, 1, 2, 3, 4] for order in orders.tolist())


@pytest.mark.slow
def test_orders_without_truncation_add_up_to_the_whole_and_approach_the_values():
    found = np.asarray(truncated_shapley(gain, guided_orders(5, 8, 0), -1.0, -1.0))
    assert found.sum() == pytest.approx(worth((0, 1, 2, 3, 4)), rel=1e-5)
    assert found == pytest.approx(by_permutations(), abs=0.15 * by_permutations().max())


def test_an_order_ends_where_little_is_left_to_gain_and_a_poor_round_is_left_out():
    order, whole = jnp.asarray([[3, 1, 0, 4, 2]]), worth((0, 1, 2, 3, 4))
    worths = [worth((3, 1, 0, 4, 2)[:place]) for place in range(6)]
    left = [abs(whole - value) for value in worths]
    limit = (left[1] + left[0]) / 2  # after the first agent less than this is left, before it more
    found = np.asarray(truncated_shapley(gain, order, limit, -1.0))
    assert found == pytest.approx([0, 0, 0, worths[1], 0], rel=1e-4)
    assert np.asarray(truncated_shapley(gain, order, -1.0, 2 * whole)).tolist() == [0] * 5


@pytest.mark.slow
def test_guided_shapley_pays_the_whole_budget():
    found = rewards(GuidedShapley(COST, STEP, orders=4, within=0.0, between=0.0), facts(SENT))
    values = by_permutations()
    assert found.sum() == pytest.approx(45)
    assert found == pytest.approx(45 * values / values.sum(), abs=3)


def test_leave_one_out_is_what_the_model_loses():
    everybody = worth(range(5))
    values = np.array([everybody - worth([j for j in range(5) if j != k]) for k in range(5)])
    positive = np.maximum(values, 0)
    assert rewards(LeaveOneOut(COST, STEP), facts(SENT)) == pytest.approx(45 * positive / positive.sum(), rel=1e-3)


def test_the_loss_score_pays_by_rank():
    alone = np.array([worth((k,)) for k in range(5)])
    weights = (np.argsort(np.argsort(alone)) + 1.0) ** 2
    assert rewards(LossScore(COST, STEP), facts(SENT)) == pytest.approx(45 * weights / weights.sum(), rel=1e-4)


def test_equal_scores_share_their_ranks():
    twins = SENT.copy()
    twins[1] = twins[0]
    found = rewards(LossScore(COST, STEP), facts(twins))
    assert found[0] == pytest.approx(found[1])
    assert found.sum() == pytest.approx(45)


def slow_auction(quality: Any, bids: Any, budget: float) -> Any:
    """The proportional-share auction as its source has it, in a loop."""
    order = sorted(range(len(bids)), key=lambda k: -quality[k] / bids[k])
    winners: list[int] = []
    for k in order:
        if bids[k] > budget * quality[k] / (sum(quality[i] for i in winners) + quality[k]):
            break
        winners.append(k)
    paid = [0.0] * len(bids)
    rest = [k for k in order if k not in winners]
    for i in winners:
        limit = quality[i] * bids[rest[0]] / quality[rest[0]] if rest else np.inf
        paid[i] = min(budget * quality[i] / sum(quality[j] for j in winners), limit)
    return paid


@pytest.mark.parametrize("seed", range(5))
def test_the_auction_is_that_of_its_source_keeps_the_budget_and_pays_no_winner_less_than_its_bid(seed: int):
    rng = np.random.default_rng(seed)
    quality, bids = rng.uniform(0.5, 2, 8), rng.uniform(0.5, 2, 8)
    found = np.asarray(auction(jnp.asarray(quality), jnp.asarray(bids), jnp.asarray(6.0), jnp.ones(8, bool)))
    assert found == pytest.approx(slow_auction(quality, bids, 6.0), rel=1e-4)
    assert found.sum() <= 6.0 * (1 + 1e-5)
    assert np.all((found == 0) | (found >= bids * (1 - 1e-5)))


@pytest.mark.parametrize("seed", range(3))
def test_a_false_bid_gains_nothing_in_the_auction(seed: int):
    rng = np.random.default_rng(100 + seed)
    quality, bids = rng.uniform(0.5, 2, 8), rng.uniform(0.5, 2, 8)

    def profit(bid: Any) -> float:
        told = bids.copy()
        told[0] = bid
        won = slow_auction(quality, told, 6.0)[0]
        return won - bids[0] * (won > 0)

    assert max(profit(bid) for bid in np.linspace(0.3, 3, 60)) <= profit(bids[0]) + 1e-9


def test_the_auction_learns_quality_from_earlier_rounds():
    rule = QualityAuction(COST, STEP)
    bad = SENT.copy()
    bad[0] = -bad[0]
    first, state = pay(rule, facts(bad))
    assert np.asarray(first.released) == pytest.approx(np.full(5, 13.5))  # 1.5 times the cost, while nothing is known
    second, _ = pay(rule, facts(bad), state)
    assert float(second.released[0]) == 0
