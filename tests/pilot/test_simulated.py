"""Simulated pilots: the verdict is what a deviation really gains."""

from functools import cache

import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, MinibatchGame, OutputAgreement
from guerdon.lab.agents import Cooperative, Portion, echo
from guerdon.lab.problems import linear_regression
from guerdon.lab.problems.federation import local_training
from guerdon.lab.simulation import run_pilot, simulate
from guerdon.pilot import PilotRecord, assess, default_rules
from guerdon.statistical.dithers import Dither

COST = AffineCost(1, 1)
AGREEMENT = {"agreement": OutputAgreement(COST)}
HONEST = [Cooperative()] * 8
GRADIENTS = linear_regression(16, 4.0, 16)


@cache
def gradients(seed: int = 1) -> PilotRecord:
    return run_pilot(GRADIENTS, HONEST, AGREEMENT, 8, 0.05, 90, seed)


def test_with_gradients_agreement_pays_for_work() -> None:
    (rule,) = assess(gradients()).rules
    assert rule.verdict == "pays for work"
    assert rule.full_pay.value == pytest.approx(9)


def test_with_local_steps_agreement_pays_shirkers() -> None:
    problem = local_training(linear_regression(16, 4.0, 4), 0.02, 16)
    report = assess(run_pilot(problem, HONEST, AGREEMENT, 16, 0.02, 40, 1))
    assert report.rules[0].verdict == "pays shirkers"
    assert report.recommended is None


@pytest.mark.slow
def test_the_same_seed_gives_the_same_pilot() -> None:
    again = run_pilot(GRADIENTS, HONEST, AGREEMENT, 8, 0.05, 90, 1)
    assert np.array_equal(again.pay["agreement"], gradients().pay["agreement"], equal_nan=True)
    assert not np.array_equal(gradients(2).asked, gradients().asked)


def test_agents_do_what_they_do_with_what_they_are_asked_for() -> None:
    agents = [*[Cooperative()] * 6, Portion(0.0), echo()]
    record = run_pilot(GRADIENTS, agents, default_rules(COST), 8, 0.05, 10, 1, dither=Dither(0.5))
    assert record.sent[:, :6].all()
    assert not record.sent[:, 6].any()
    assert record.sent[:, 7].all()
    assert np.isnan(record.pay["information"][:, 6]).all()
    assert record.evidence["information"].shape == (10, 8)


@pytest.mark.parametrize(("request_", "rounds"), [(17, 10), (1, 10), (8, 0)])
def test_what_cannot_be_piloted_is_refused(request_: int, rounds: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        run_pilot(GRADIENTS, HONEST, AGREEMENT, request_, 0.05, rounds)


@pytest.mark.slow
def test_the_gain_is_what_a_shirker_really_gains() -> None:
    """Of 8 agents 2 are asked for half, so that a shirker is one of 7.

    A pilot shows what one round of half the work gains on a scale of full work: −4. A lasting shirker is in the scale
    itself, which makes its fines smaller: it loses 2.8.
    """
    agents = [Portion(0.5), *[Cooperative()] * 6]
    history = simulate(GRADIENTS, agents, AGREEMENT["agreement"], FixedRequest(8, 0.05), 90, 400)
    lasting = float(history.utilities["reward"][:, :, 0].mean())
    truth = float(MinibatchGame(7, 8, COST, 16).utilities(0, [8] * 7)[4])
    assert truth < lasting < -2
    found = [assess(gradients(seed)).rules[0].gain for seed in range(100, 150)]
    assert np.mean([gain.value for gain in found]) == pytest.approx(truth, abs=0.4)
    assert sum(gain.low < truth < gain.high for gain in found) >= 43
