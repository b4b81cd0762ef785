"""The planner's experiment: its parts, small; at full size, on the real survey, in the slow test."""

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, NoiseScaleRequest
from guerdon.lab.experiments import incentives, planner, planner_policies
from guerdon.lab.experiments.claims import Claim
from guerdon.lab.experiments.planner_policies import (
    ADAPTIVE,
    RULE,
    STEP,
    PlannerSetting,
    Policy,
    PolicySpending,
    best,
    finalists,
    play,
    policies,
    select,
    sweep,
)
from guerdon.lab.experiments.reproduce import reproduce
from guerdon.lab.problems import linear_regression
from guerdon.lab.problems.heart import VARIABLE
from guerdon.requests import FixedRequest
from tests.support.print import check_print

SMALL = PlannerSetting(
    "small", linear_regression(10, 10.0, 16), "error", (1.0, 0.2), (2, 8), (0.05, 5.0), 60, 20, 0, ruled=True
)


@functools.cache
def swept() -> list[PolicySpending]:
    return sweep(SMALL)


@pytest.mark.slow
def test_a_sweep_tries_every_policy_up_to_every_target() -> None:
    spent = swept()
    assert len(spent) == 2 * (1 + 2 * (1 + 2))
    for target in (1.0, 0.2):
        assert len(select(spent, ADAPTIVE, target)) == 1
        assert [s.request for s in select(spent, RULE, target)] == [2, 8]
        assert [s.step for s in select(spent, STEP, target)] == [0.05, 5.0] * 2
    (near,), (far,) = (select(spent, ADAPTIVE, target) for target in (1.0, 0.2))
    assert (near.rounds <= far.rounds).all()
    assert (near.totals < far.totals).any()
    assert near.reached == far.reached == 1.0
    assert all(s.reached == 0.0 for s in select(spent, STEP, 0.2) if s.step == 5.0)  # it diverges
    assert best(spent, (STEP,), 0.2).step == 0.05  # what does not arrive is no rival


@pytest.mark.slow
def test_only_what_was_cheap_when_tried_is_played_in_full() -> None:
    played = {(s.policy, s.request, s.step): len(s.totals) for s in swept() if s.step == s.step}
    assert {number for (*_, step), number in played.items() if step == 5.0} == {planner_policies.TRIED}
    assert played[STEP, 2, 0.05] == 20


def test_finalists_are_the_cheapest_that_arrive() -> None:
    def tried(nu: int, total: float, reached: float = 1.0) -> tuple[Policy, list[PolicySpending]]:
        policy = Policy(STEP, nu, 0.1, FixedRequest(nu, 0.1))
        return policy, [PolicySpending(STEP, nu, 0.1, 1.0, np.full(10, total), np.ones(10), reached)] * 2

    found = dict([tried(1, 50.0, 0.8), tried(2, 90.0), tried(4, 60.0, 0.9), tried(8, 70.0), tried(16, 80.0)])
    assert [policy.request for policy in finalists(SMALL, found)] == [4, 8, 16]


def test_those_played_in_full_come_before_those_that_were_tried() -> None:
    """Ten repetitions may be lucky."""
    lucky = PolicySpending(STEP, 1, 0.1, 1.0, np.full(10, 50.0), np.ones(10), 1.0)
    known = PolicySpending(STEP, 2, 0.1, 1.0, np.full(100, 60.0), np.ones(100), 1.0)
    assert best([lucky, known], (STEP,), 1.0) is known
    assert best([lucky, known._replace(reached=0.99)], (STEP,), 1.0) is lucky


@pytest.mark.slow
@pytest.mark.parametrize("nu", [2, 8])
def test_totals_are_those_up_to_the_target(nu: int) -> None:
    """Everybody is paid its cost, so a round pays n·h(ν)."""
    requests = NoiseScaleRequest(AffineCost(1, 1), nu, min_batch=nu)
    near, far = play(SMALL, Policy(RULE, nu, float("nan"), requests))
    for s in (near, far):
        assert s.reached == 1.0
        np.testing.assert_allclose(s.totals, s.rounds * 10 * (1 + nu), rtol=1e-5)
    assert (near.rounds <= far.rounds).all()
    assert near.rounds.mean() < far.rounds.mean()


def spent(policy: str, total: float, request: int = 4, reached: float = 1.0) -> PolicySpending:
    return PolicySpending(policy, request, 0.1, 1.0, np.array([total - 1, total, total + 1]), np.ones(3), reached)


@pytest.mark.parametrize(("paid", "reached", "holds"), [(115.0, 1.0, True), (116.0, 1.0, False), (100.0, 0.9, False)])
def test_a_claim_of_cheapness_can_fail(paid: float, reached: float, holds: bool) -> None:
    claim = planner._at_most("c", spent(ADAPTIVE, paid, reached=reached), 100.0, 0.0, 1.15)
    assert claim.holds == holds
    assert claim.measured == pytest.approx(paid / 100)
    assert claim.standard_error == pytest.approx(1 / np.sqrt(3) / 100)


def test_a_bound_is_clearly_missed_by_3_standard_errors() -> None:
    for expected, measured, missed in (("at most 1.15", 1.3, True), ("at most 1.15", 1.2, False),
                                       ("at least 0.85", 0.6, True), ("0.98 to 1.02", 1.03, True)):  # fmt: skip
        assert clearly_missed(Claim("planner", "c", expected, measured, 0.04, False)) == missed
    assert not clearly_missed(Claim("planner", "c", "at most 1.15", 1.1, 0.0, True))


@pytest.mark.slow
def test_in_the_round_itself_the_request_is_the_best_size() -> None:
    assert all(claim.holds for claim in incentives.incentive_claims(250, seed=1))


@pytest.mark.slow
def test_the_planner_is_cheap_wherever_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the linear and heart problems and the network; uneven regressions may miss, by what the page says.

    Fewer repetitions than `guerdon reproduce planner` plays, so a bound is missed only where it is by 3 standard
    errors. The work in one round needs more and has the test above; of the network's rivals those play that are near
    the best of all (ν = 4, step 1).
    """
    if not os.environ.get(VARIABLE):
        pytest.skip(f"the CDC survey is absent: set {VARIABLE}")

    def near_the_best(setting: PlannerSetting) -> Any:
        return [policy for policy in policies(setting) if setting.name != "network" or policy.request in (0, 4, 8)]

    monkeypatch.setattr(planner_policies, "policies", near_the_best)
    monkeypatch.setattr(planner, "incentive_claims", lambda _repetitions, _seed: [])
    (experiment,) = reproduce(["planner"], 100, tmp_path)
    check_print(experiment.drawing)
    for condition, bound in ((100, 1.3), (1000, 1.9)):
        uneven = [claim for claim in experiment.claims if f"condition {condition}," in claim.claim]
        assert len(uneven) == 3
        assert all(claim.measured < bound for claim in uneven)
    assert [c for c in experiment.claims if clearly_missed(c) and "condition" not in c.claim] == []
    assert max(c.standard_error for c in experiment.claims if c.claim.startswith("linear, x") and "÷" in c.claim) < 0.03
    assert any("network" in claim.claim for claim in experiment.claims)


def clearly_missed(claim: Claim) -> bool:
    """Tell whether a claim fails by more than 3 standard errors, where it is about a bound."""
    beyond = np.inf
    for words, sign in (("at most ", 1), ("at least ", -1)):
        if claim.expected.startswith(words):
            beyond = sign * (claim.measured - float(claim.expected.removeprefix(words)))
    return not claim.holds and beyond > 3 * claim.standard_error
