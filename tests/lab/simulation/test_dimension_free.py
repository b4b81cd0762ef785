"""Trainings whose cost does not depend on the dimension: where they are used, and that they have the same law."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from guerdon import InformationPay, OutputAgreement
from guerdon.adaptive import NoiseScaleRequest
from guerdon.lab._trees import register
from guerdon.lab.agents import Cooperative, Declining, Fixed, Portion, Reporting, echo
from guerdon.lab.arena.balanced import BalancedVariance
from guerdon.lab.problems import linear_regression
from guerdon.lab.problems.linear_regression import FramedRegression
from guerdon.lab.simulation import History, simulate
from guerdon.lab.simulation.facts import without_dimension
from guerdon.requests import FixedRequest
from guerdon.statistical.servers import server_for
from tests.lab.simulation.setting import AGENTS, CHANGING, COST, DIM, LARGEST, MIXED, RULES, STEPS, train

SURE = 4.5  # standard errors, of some 80 means
PAIRED = {name: RULES[name] for name in ("known", "balanced")}


@functools.cache
def both() -> tuple[History, History]:
    """Return the same training drawn whole and in its frame: independent draws."""
    whole = train(MIXED, CHANGING, STEPS, rules=PAIRED, dimension_free=False)
    return whole, train(MIXED, CHANGING, STEPS, rules=PAIRED, dimension_free=True, seed=1)


def score(one: Any, other: Any) -> Any:
    """Return how many standard errors apart the means over repetitions are; 0 where both are always the same."""
    a, b = (np.asarray(x, dtype=np.float64) for x in (one, other))
    error = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
    return np.abs(a.mean(axis=0) - b.mean(axis=0)) / (error + 1e-6 * np.abs(a).mean(axis=0) + 1e-30)


@pytest.mark.parametrize("power", [1, 2])
def test_rewards_and_errors_have_the_same_law(power: int) -> None:
    whole, framed = both()
    assert score(whole.metrics["error"] ** power, framed.metrics["error"] ** power).max() < SURE
    for rule in PAIRED:
        assert score(whole.rewards[rule] ** power, framed.rewards[rule] ** power).max() < SURE
    for name in ("variance", "signal"):
        assert score(getattr(whole, name) ** power, getattr(framed, name) ** power).max() < SURE


@pytest.mark.slow
def test_the_comparison_would_find_another_dimension() -> None:
    """With three dimensions more the noise is not the same."""
    whole, _ = both()
    other = simulate(
        linear_regression(DIM + 3, 10.0, LARGEST), [Fixed(size) for size in MIXED], PAIRED, FixedRequest(8, 0.15), 1,
        len(whole.request), seed=2,
    )  # fmt: skip
    assert score(whole.variance[:, 0], other.variance[:, 0]) > SURE


@pytest.mark.slow
def test_the_chunk_size_changes_nothing() -> None:
    """The same draws; XLA may round sums differently by the size of the chunk."""
    _, whole = both()
    options: Any = {"rules": PAIRED, "dimension_free": True, "seed": 1}
    divided = train(MIXED, CHANGING, STEPS, repetitions=300, chunk=200, **options)
    np.testing.assert_allclose(divided.metrics["error"], whole.metrics["error"][:300], rtol=1e-4)
    for rule in PAIRED:
        np.testing.assert_allclose(divided.rewards[rule], whole.rewards[rule][:300], rtol=1e-3, atol=1e-3)


def test_one_program_serves_every_dimension() -> None:
    """The dimension is a number like any other: 100 and 100,000 take the same arithmetic."""
    small, large = (linear_regression(dim).in_frame(5) for dim in (100, 100_000))
    assert small is not None
    assert large is not None
    assert small.start.shape == large.start.shape == (6,)
    assert (float(small.dim), float(large.dim)) == (100, 100_000)


@register
@dataclass(frozen=True)
class Peeking(Cooperative):
    """Inherits from an agent that looks at no vector, but looks at one."""

    def choose(self, view: Any, key: Any) -> Any:
        del key
        return view.request + (view.model[0] > 0)


BALANCED, PLAIN = OutputAgreement(COST, BalancedVariance()), FixedRequest(8, 0.1)


@pytest.mark.parametrize(
    ("agent", "rule", "requests", "framed"),
    [
        (Cooperative(), BALANCED, PLAIN, True),
        (Declining(0.5), RULES["known"], PLAIN, True),
        (Portion(0.5), RULES["flat"], PLAIN, True),
        (Reporting(Portion(1.0)), BALANCED, PLAIN, False),
        (echo(), BALANCED, PLAIN, False),
        (Peeking(), BALANCED, PLAIN, False),
        (Cooperative(), InformationPay(COST), PLAIN, False),
        (Cooperative(), BALANCED, NoiseScaleRequest(COST, LARGEST), False),
    ],
)
def test_where_it_is_used(agent: Any, rule: Any, requests: Any, framed: bool) -> None:
    problem = linear_regression(DIM, max_batch=LARGEST)
    given: tuple[Any, Any, Any, int] = problem, [agent] * AGENTS, [server_for(rule, requests, alike=True)], 0
    assert isinstance(without_dimension(*given, None), FramedRegression) == framed
    assert without_dimension(*given, False) is problem
    if not framed:
        with pytest.raises(ValueError, match="`dimension_free` must be False or None here"):
            without_dimension(*given, True)


def test_members_that_differ_are_compared_whole() -> None:
    problem = linear_regression(DIM, max_batch=LARGEST)
    assert without_dimension(problem, [Cooperative()] * AGENTS, [server_for(BALANCED, PLAIN)], 0, None) is problem
