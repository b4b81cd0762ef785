"""What each rule would have paid: the pay of a server that sees the same reports, one shirker at a time."""

from typing import Any

import numpy as np
import pytest

from guerdon import (
    AffineCost,
    CalibratedAgreement,
    FixedRequest,
    FlatPay,
    GenieAided,
    InformationPay,
    OutputAgreement,
    Server,
)
from guerdon.pilot import PilotDesign, RoundScores, Trial, default_rules
from guerdon.predictions import RunningMean
from guerdon.rules import TrueVariance, WitnessedPay

COST, DIM = AffineCost(1, 1), 12
RULES = {"balanced": OutputAgreement(COST), "information": InformationPay(COST)}


def play(trial: Trial, rounds: int, agents: int, seed: int = 0) -> list[tuple[Any, Any, Any, RoundScores]]:
    """Return what was asked, what came, and what was made of it, of agents whose data differ a little."""
    rng, model = np.random.default_rng(seed), [np.zeros(DIM)]
    server, own = trial.trainer, 0.3 * rng.normal(size=(agents, DIM))
    trial.begin(model)
    state, found = server.init(model, agents), list[Any]()
    for number in range(rounds):
        asked = trial.design.requests(number, agents)
        ask, state = server.ask(state, model)
        reports = 1 + own + 3 * rng.normal(size=(agents, DIM)) / np.sqrt(asked)[:, None]
        sent = rng.random(agents) > 0.05
        scores = trial.score(ask, [[row] for row in reports], asked, sent)
        _, state = server.settle(state, ask, [reports], sent)
        found.append((asked, reports, sent, scores))
    return found


@pytest.mark.parametrize("rule", list(RULES))
def test_agents_are_paid_as_in_a_round_of_full_work_with_one_shirker_at_most(rule: str) -> None:
    """The definition, with servers of their own and arrays in place of rows."""
    trial = Trial(RULES, PilotDesign(16, seed=1), 0.1)
    server = Server(RULES[rule], FixedRequest(16, 0.1), RunningMean())
    model = np.zeros(DIM)
    state, trainer = server.init(model, 6), Server(FlatPay(COST), FixedRequest(16, 0.1), RunningMean(), records=None)
    training = trainer.init(model, 6)
    for asked, reports, sent, scores in play(trial, 12, agents=6):
        ask, training = trainer.ask(training, model)
        full = sent & (asked == 16)
        expected = np.where(full, server.pay(state, ask, reports, full)[0].reward, np.nan)
        for shirker in np.flatnonzero(sent & (asked == 8)):
            among = full | (np.arange(6) == shirker)
            expected[shirker] = server.pay(state, ask, reports, among)[0].reward[shirker]
        if full.sum() >= 3:
            assert scores.pay[rule] == pytest.approx(expected, nan_ok=True)
        state = server.pay(state, ask, reports, full)[2]
        _, training = trainer.settle(training, ask, reports, sent)


def test_a_ghost_is_one_more_agent_that_sends_nothing_new() -> None:
    trial = Trial(RULES, PilotDesign(16, seed=1), 0.1, alike=True)
    for asked, reports, sent, scores in play(trial, 6, agents=6):
        full = sent & (asked == 16)
        with_ghost = np.vstack([np.zeros(DIM), reports])
        server = Server(RULES["balanced"], FixedRequest(16, 0.1), alike=True)
        ask, state = server.ask(server.init(np.zeros(DIM), 7), np.zeros(DIM))
        paid = server.pay(state, ask, with_ghost, np.append(True, full))[0].reward[0]
        assert scores.ghosts["balanced"]["nothing"] == pytest.approx(paid)


def test_rounds_of_too_few_say_nothing() -> None:
    trial = Trial(default_rules(COST), PilotDesign(16, seed=1), 0.1)
    for _, _, _, scores in play(trial, 3, agents=2):
        assert np.isnan(scores.pay["balanced"]).all()
        assert np.isnan(scores.pay["information"]).all()


def test_rounds_of_a_calibration_say_nothing() -> None:
    trial = Trial({"calibrated": CalibratedAgreement(COST, calibration=4)}, PilotDesign(16, seed=1), 0.1)
    known = np.array([np.isfinite(scores.pay["calibrated"]) for _, _, _, scores in play(trial, 20, agents=6)])
    assert not known[:4].any()
    assert known[14:].mean() > 0.8
    flat = Trial({"flat": FlatPay(COST)}, PilotDesign(16, seed=1), 0.1)
    assert all(np.isfinite(scores.pay["flat"]).sum() == sent.sum() for _, _, sent, scores in play(flat, 4, agents=6))


def test_of_very_large_models_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guerdon.server.LARGEST_MODEL", DIM - 1)
    trial = Trial(RULES, PilotDesign(16, seed=1), 0.1)
    play(trial, 3, agents=6)
    assert all(rule.server.recorder is None for rule in trial.tried.values())


def test_rules_that_cannot_be_tried_are_refused() -> None:
    with pytest.raises(ValueError, match="`rules` must hold at least one"):
        Trial({}, PilotDesign(16), 0.1)
    with pytest.raises(ValueError, match="`rules` must do without the truth, but 'genie' needs it"):
        Trial({"genie": GenieAided(COST, TrueVariance())}, PilotDesign(16), 0.1)
    with pytest.raises(ValueError, match="`rules` must do without a witness, but 'witnessed' needs it"):
        Trial({"witnessed": WitnessedPay(COST)}, PilotDesign(16), 0.1)
