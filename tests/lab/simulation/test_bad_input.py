"""What `simulate` refuses, before it does any work."""

from typing import Any

import numpy as np
import pytest

from guerdon import OutputAgreement, gather
from guerdon.lab.agents import Cooperative, learning
from guerdon.lab.problems import linear_regression
from guerdon.lab.simulation import Stop, simulate
from guerdon.lab.truth import TrueVariance
from guerdon.requests import FixedRequest, ScheduledRequest
from guerdon.rule import round_of
from tests.lab.simulation.setting import COST, DIM, DISTANCE, LARGEST, NU, RULES, STEP, compilations


def refused(**change: Any) -> None:
    arguments: dict[str, Any] = {
        "problem": linear_regression(DIM, DISTANCE, LARGEST),
        "agents": [Cooperative()] * 3,
        "rule": RULES["known"],
        "requests": FixedRequest(NU, STEP),
        "rounds": 2,
        "repetitions": 2,
    }
    simulate(**(arguments | change))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rounds": 0}, ValueError, "`rounds` must be a positive integer, got 0"),
        ({"rounds": 2.0}, TypeError, "`rounds` must be a positive integer, got 2.0"),
        ({"repetitions": 0}, ValueError, "`repetitions` must be a positive integer, got 0"),
        ({"repetitions": -1}, ValueError, "`repetitions` must be a positive integer, got -1"),
        ({"agents": []}, ValueError, "`agents` and `rule` must not be empty"),
        ({"rule": {}}, ValueError, "`agents` and `rule` must not be empty"),
        ({"chunk": 0}, ValueError, "`chunk` must be a positive integer, got 0"),
        ({"chunk": 1.5}, TypeError, "`chunk` must be a positive integer, got 1.5"),
        ({"requests": FixedRequest(17, STEP)}, ValueError, r"at most the problem's `max_batch` \(16\), got 17"),
        (
            {"requests": ScheduledRequest([8, 64, 8], [0.1] * 3)},
            ValueError,
            r"`requests` must ask for at most the problem's `max_batch` \(16\), got 64",
        ),
        (
            {"stop": Stop("accuracy", at_least=0.5)},
            ValueError,
            "`stop.metric` must be one of error, got 'accuracy'",
        ),
        (
            {"agents": [learning((4, 99), COST)]},
            ValueError,
            r"`sizes` of a learning agent must be at most `max_batch` \(16\), got 99",
        ),
        ({"joins": [0, 1]}, ValueError, r"a round of at least 0, or several, for each of the 3 agents, got \[0, 1\]"),
        ({"joins": [0, 1, -1]}, ValueError, "`joins` must be a round of at least 0, or several, for each of the 3"),
        ({"joins": [0, 1, [4, -1]]}, ValueError, "`joins` must be a round of at least 0, or several, for each"),
        ({"joins": [0, 1, []]}, ValueError, "`joins` must be a round of at least 0, or several, for each"),
        ({"on_round": print, "keep": "summary"}, ValueError, '`keep` must be "all" where `on_round` is given'),
        ({"costs": [COST] * 2}, ValueError, "one for each of the 3 agents, got 2"),
        ({"costs": [COST] * 4}, ValueError, "`costs` must be one cost, or one for each of the 3 agents, got 4"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    before = compilations()
    with pytest.raises(error, match=message):
        refused(**change)
    assert compilations() == before  # before any work is done


@pytest.mark.parametrize("bounds", [{}, {"at_most": 1.0, "at_least": 0.0}])
def test_a_goal_has_one_bound(bounds: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="`Stop` must have either `at_most` or `at_least`, got Stop"):
        Stop("error", **bounds)


def test_a_later_request_that_is_never_made_may_be_larger() -> None:
    """Only the rounds that are played count, here two."""
    with pytest.raises(ValueError, match="got 64"):
        refused(requests=ScheduledRequest([8, 64], [0.1] * 2))
    with pytest.raises(ValueError, match="`chunk`"):  # got past the requests
        refused(requests=ScheduledRequest([8, 8, 64], [0.1] * 3), chunk=0)


def test_the_true_variance_is_known_only_in_a_simulation() -> None:
    rule, everybody = OutputAgreement(COST, TrueVariance()), np.ones(3, dtype=bool)
    evidence = gather(np.eye(3), everybody)
    with pytest.raises(TypeError, match="`TrueVariance` must be used in `simulate`"):
        rule.pay(rule.init(3), round_of(evidence, everybody, NU))
