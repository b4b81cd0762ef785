"""Held pay of many at once, against the slow readable one: `guerdon.looks`, member by member and round by round."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, gather, round_of
from guerdon.lab.agents import Agent, Cooperative, Fixed, Portion, Reporting, echo, shrink
from guerdon.lab.held import NamedWork, forfeited, kept, nothing_held
from guerdon.lab.problems import linear_regression
from guerdon.lab.simulation import simulate
from guerdon.looks import draw
from guerdon.looks.outcomes import Outcome, settled
from guerdon.terms import FORFEITS, Looks

ROUNDS, RUNS, MEMBERS = 12, 40, 3
FINE = 2**40  # so many different coins: whole numbers that a float holds


def drawn(looks: int) -> tuple[Any, Any, Any]:
    """Return weights, who worked, and coins as whole numbers below `FINE`, over (rounds, runs, members)."""
    rng = np.random.default_rng(1)
    weights = rng.choice([0, 5, 17, 40], (ROUNDS, RUNS, MEMBERS))
    return weights, rng.random(weights.shape) < 0.7, rng.integers(FINE, size=(ROUNDS, looks, RUNS, 1))


@pytest.mark.parametrize("looks", [1, 2, 3])
@pytest.mark.parametrize("library", [np, jnp])
def test_the_fast_draw_is_the_slow_one(library: Any, looks: int) -> None:
    weights, worked, coins = drawn(looks)
    state = nothing_held(library.zeros((RUNS, MEMBERS)), looks)
    for number in range(ROUNDS):
        weight, works, coin = (library.asarray(x[number]) for x in (weights, worked, coins / FINE))
        state = kept(state, weight, works, number + 1, coin)
    lost = {forfeit: np.asarray(forfeited(state, Looks(looks=looks, forfeit=forfeit))) for forfeit in FORFEITS}
    for run, member in np.ndindex(RUNS, MEMBERS):
        slow = draw.begin(looks)
        for number in range(ROUNDS):
            own = [int(coin) << (draw.BITS - 40) for coin in coins[number, :, run, 0]]
            slow = draw.kept(slow, int(weights[number, run, member]), number + 1, own)
        found = [int(number) for number in np.asarray(state.rounds)[:, run, member]]
        assert found == [look[0] if look else 0 for look in slow.rounds]
        outcomes = {due: Outcome.PASSED if worked[due - 1, run, member] else Outcome.FAILED for due in slow.due}
        for forfeit in FORFEITS:
            exact = settled(Looks(forfeit=forfeit), slow._replace(weight=slow.weight * 6), outcomes)  # no rounding
            assert lost[forfeit][run, member] * 6 == pytest.approx(exact.forfeited)


def test_a_round_without_pay_changes_nothing() -> None:
    state = kept(nothing_held(np.zeros(1), 2), np.array([17.0]), np.array([False]), 1, np.zeros((2, 1)))
    after = kept(state, np.array([0.0]), np.array([True]), 2, np.zeros((2, 1)))
    assert all((old == new).all() for old, new in zip(state, after, strict=True))


@pytest.mark.parametrize(
    ("agent", "works"),
    [
        (Cooperative(), True),
        (Reporting(Portion(1.0)), True),
        (Fixed(4), False),  # half of the rows
        (Fixed(9), False),  # others than were named
        (Fixed(0), False),
        (echo(), False),
        (shrink(0.9), False),
        (Reporting(Portion(1.0), honest_noise=0.05), False),
        (Reporting(Portion(1.0), leader=1), False),  # the rows of another member
    ],
)
def test_what_a_look_would_find(agent: Agent, works: bool) -> None:
    agents: list[Agent] = [agent, *[Reporting(Portion(1.0))] * 3]
    problem = linear_regression(6, 6.0, max_batch=10)
    played = simulate(problem, agents, NamedWork(AffineCost(1, 1)), FixedRequest(8, 0.1), 5, 3)
    assert (played.rewards["reward"][:, :, 0] == works).all()
    assert (played.rewards["reward"][:, :, 1:] == 1).all()


def test_who_was_not_told_says_so() -> None:
    rule, everybody = NamedWork(AffineCost(1, 1)), np.ones(3, dtype=bool)
    with pytest.raises(ValueError, match="'named-work' must be told of the round"):
        rule.pay(rule.init(3), round_of(gather(np.ones((3, 2)), everybody), everybody, 8))
