"""What each rule would have paid: the pay of a server that sees the same reports, one shirker at a time."""

from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, CalibratedAgreement, FixedRequest, FlatPay, InformationPay, OutputAgreement, SteadyPay
from guerdon.lab.truth import GenieAided, TrueVariance
from guerdon.pilot import PilotDesign, RoundScores, Trial, default_rules
from guerdon.rule import Payments
from guerdon.states import NoState
from guerdon.statistical.predictions import RunningMean, ZeroPrediction
from guerdon.statistical.servers import server_for
from guerdon.witness import WitnessedPay, witness_sample
from guerdon.words import about

COST, DIM = AffineCost(1, 1), 12
RULES = {"agreement": OutputAgreement(COST), "information": InformationPay(COST)}


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


def own_pay(rule: str, payments: Payments) -> Any:
    """Return what the work of the round is paid: under agreement nobody knows in the first, and no later extras."""
    if rule != "agreement":
        return payments.released
    return COST(16) + 16**2 / payments.variance * (payments.expected - payments.squared_distance)


@pytest.mark.parametrize("rule", list(RULES))
def test_agents_are_paid_as_in_a_round_of_full_work_with_one_shirker_at_most(rule: str) -> None:
    """The definition, with servers of their own and arrays in place of rows."""
    trial = Trial(RULES, PilotDesign(16, seed=1), 0.1)
    server = server_for(RULES[rule], FixedRequest(16, 0.1), RunningMean())
    model = np.zeros(DIM)
    state, trainer = (
        server.init(model, 6),
        server_for(FlatPay(COST), FixedRequest(16, 0.1), RunningMean(), records=None),
    )
    training = trainer.init(model, 6)
    for asked, reports, sent, scores in play(trial, 12, agents=6):
        ask, training = trainer.ask(training, model)
        full = sent & (asked == 16)
        expected = np.where(full, own_pay(rule, server.pay(state, ask, reports, full)[0]), np.nan)
        for shirker in np.flatnonzero(sent & (asked == 8)):
            among = full | (np.arange(6) == shirker)
            expected[shirker] = own_pay(rule, server.pay(state, ask, reports, among)[0])[shirker]
        if full.sum() >= 3:
            assert scores.pay[rule] == pytest.approx(expected, nan_ok=True)
        state = server.pay(state, ask, reports, full)[2]
        _, training = trainer.settle(training, ask, reports, sent)


def test_a_ghost_is_one_more_agent_that_sends_nothing_new() -> None:
    trial = Trial(RULES, PilotDesign(16, seed=1), 0.1, alike=True)
    server, model = server_for(RULES["agreement"], FixedRequest(16, 0.1), alike=True), np.zeros(DIM)
    state, found = server.init(model, 7), list[float]()
    for asked, reports, sent, scores in play(trial, 6, agents=6):
        full = sent & (asked == 16)
        ask, state = server.ask(state, model)
        payments, _, state = server.pay(state, ask, np.vstack([model, reports]), np.append(True, full))
        found.append(float(own_pay("agreement", payments)[0]))
        assert scores.ghosts["agreement"]["nothing"] == pytest.approx(found[-1], nan_ok=True)
    assert np.isnan(found[0])
    assert np.isfinite(found[-1])


def test_rounds_of_too_few_say_nothing() -> None:
    trial = Trial(default_rules(COST), PilotDesign(16, seed=1), 0.1)
    for _, _, _, scores in play(trial, 3, agents=2):
        assert np.isnan(scores.pay["agreement"]).all()
        assert np.isnan(scores.pay["information"]).all()


def test_rounds_of_a_calibration_say_nothing() -> None:
    trial = Trial({"calibrated": CalibratedAgreement(COST, calibration=4)}, PilotDesign(16, seed=1), 0.1)
    known = np.array([np.isfinite(scores.pay["calibrated"]) for _, _, _, scores in play(trial, 20, agents=6)])
    assert not known[:4].any()
    assert known[14:].mean() > 0.8
    flat = Trial({"flat": FlatPay(COST)}, PilotDesign(16, seed=1), 0.1)
    assert all(np.isfinite(scores.pay["flat"]).sum() == sent.sum() for _, _, sent, scores in play(flat, 4, agents=6))


def test_of_very_large_models_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guerdon.statistical.lenses.LARGEST_MODEL", DIM - 1)
    trial = Trial(RULES, PilotDesign(16, seed=1), 0.1)
    play(trial, 3, agents=6)
    assert all(isinstance(rule._state.lens.records, NoState) for rule in trial.tried.values())


def test_rules_that_cannot_be_tried_are_refused() -> None:
    with pytest.raises(ValueError, match="`rules` must hold at least one"):
        Trial({}, PilotDesign(16), 0.1)
    with pytest.raises(ValueError, match="`rules` must do without the truth, but 'genie' needs it"):
        Trial({"genie": GenieAided(COST, TrueVariance())}, PilotDesign(16), 0.1)
    with pytest.raises(ValueError, match="`witness` must be given for 'witnessed'"):
        Trial({"witnessed": WitnessedPay(COST)}, PilotDesign(16), 0.1)


def test_what_a_rule_holds_is_worth_what_an_agent_would_leave_with() -> None:
    """All that a rule that holds paid and held at the end is the sum of its rounds: of full work, and of ghosts."""
    rule = SteadyPay(COST, period=14)
    trial = Trial({"steady": rule}, PilotDesign(16, seed=1), 0.1, prediction=ZeroPrediction())
    trainer = server_for(FlatPay(COST), FixedRequest(16, 0.1), ZeroPrediction(), records=None)
    server, model = server_for(rule, FixedRequest(16, 0.1), ZeroPrediction()), np.zeros(DIM)
    state, haunted, training = server.init(model, 6), server.init(model, 7), trainer.init(model, 6)
    paid, worth, ghost = np.zeros(6), np.zeros(6), 0.0
    found = play(trial, 40, agents=6)
    for asked, reports, sent, _ in found:
        ask, training = trainer.ask(training, model)
        full = sent & (asked == 16)
        payments, _, state = server.pay(state, ask, reports, full)
        paid = paid + payments.released
        worth = np.where(full, paid + about(rule).held(rule, state.rule), worth)
        payments, _, haunted = server.pay(haunted, ask, np.vstack([np.zeros(DIM), reports]), np.append(True, full))
        ghost += payments.released[0]
        _, training = trainer.settle(training, ask, reports, sent)
    full_work = [np.where(asked == 16, scores.pay["steady"], np.nan) for asked, _, _, scores in found]
    assert np.nansum(full_work, axis=0) == pytest.approx(worth)
    assert worth.min() > 0
    earned = sum(scores.ghosts["steady"]["nothing"] for *_, scores in found)
    assert earned == pytest.approx(ghost + rule.held(haunted.rule)[0])


def test_half_work_has_a_past_of_its_own_under_a_rule_that_holds() -> None:
    """A twin that was paid for the rounds of half work only, among others that always did all."""
    rule, seat = SteadyPay(COST, period=1000), 2
    trial = Trial({"steady": rule}, PilotDesign(16, seed=3), 0.1, prediction=ZeroPrediction(), alike=True)
    trainer = server_for(FlatPay(COST), FixedRequest(16, 0.1), ZeroPrediction(), alike=True)
    server, model = server_for(rule, FixedRequest(16, 0.1), ZeroPrediction(), alike=True), np.zeros(DIM)
    state, twin, training = server.init(model, 6), server.init(model, 6), trainer.init(model, 6)
    own, paid, worth = np.arange(6) == seat, 0.0, 0.0
    found = play(trial, 100, agents=6)
    for asked, reports, sent, _ in found:
        ask, training = trainer.ask(training, model)
        full = sent & (asked == 16)
        if sent[seat] and asked[seat] == 8:
            known = server.adopt(state, twin, own)
            payments, _, twin = server.pay(known, ask, reports, full | own)
            paid += payments.released[seat]
            worth = paid + rule.held(twin.rule)[seat]
        state = server.pay(state, ask, reports, full)[2]
        _, training = trainer.settle(training, ask, reports, sent)
    half_work = [scores.pay["steady"][seat] for asked, _, _, scores in found if asked[seat] == 8]
    assert np.nansum(half_work) == pytest.approx(worth)
    assert worth > 0


def test_a_witness_pays_and_shows_how_far_its_data_are_from_the_agents() -> None:
    rng, rule, model = np.random.default_rng(0), WitnessedPay(COST, 256), [np.zeros(DIM)]
    trial = Trial({"witnessed": rule}, PilotDesign(16, seed=1), 0.1, witness=True)
    trial.begin(model)
    ask, _ = trial.trainer.ask(trial.trainer.init(model, 6), model)
    for shift in (0.0, 0.5):
        apart, paid = list[float](), list[Any]()
        for number in range(60):
            asked = trial.design.requests(number, 6)
            reports = 1 + 3 * rng.normal(size=(6, DIM)) / np.sqrt(asked)[:, None]
            own = witness_sample([1 + shift + 3 * rng.normal(size=(16, DIM)) / 4], 16)
            scores = trial.score(ask, [[row] for row in reports], asked, np.ones(6, dtype=bool), own)
            apart.append(scores.apart)
            paid.append(scores.pay["witnessed"])
        variance, error = 9 * DIM, np.std(apart) / np.sqrt(60)
        assert np.mean(apart) == pytest.approx(16 * DIM * shift**2 / variance, abs=4 * error + 0.02)
        asked_all = np.array([trial.design.requests(number, 6) == 16 for number in range(60)])
        expected = 17 - 16 * 16 * DIM * shift**2 / variance
        assert np.nanmean(np.array(paid)[asked_all]) == pytest.approx(expected, abs=2)
        waits: Any = np.isnan(paid).all(axis=1)
        assert (waits.sum() == 1 and waits[0]) if shift == 0 else not waits.any()
