"""Own records: what is stable in an agent's reports is taken off, by the formulas of the page, and nothing else."""

from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, InformationPay, OutputAgreement
from guerdon.statistical.dithers import Dither
from guerdon.statistical.offsets import LARGE_MODEL, OwnRecords
from guerdon.statistical.predictions import ZeroPrediction
from guerdon.statistical.servers import server_for

COST, AGENTS, DIM = AffineCost(1, 1), 8, 30
EVERYBODY = np.ones(AGENTS, dtype=bool)


def slow_offsets(rounds: list[tuple[Any, Any]], decay: float = 0.95) -> Any:
    """Return what to take off after some rounds of reports (agents, dim) and of who sent, in plain loops."""
    taken = np.zeros((AGENTS, DIM))
    noise = weights = 0.0
    totals, sums, squares = np.zeros((AGENTS, DIM)), np.zeros(AGENTS), np.zeros(AGENTS)
    for reports, sent in rounds:
        apart = reports - reports[sent].mean(axis=0)
        left = (reports - taken)[sent]
        distances = np.sort(((left - left.mean(axis=0)) ** 2).sum(axis=1))
        spread = distances[(len(distances) - 1) // 2] * len(distances) / (len(distances) - 1)
        noise, weights = decay * noise + spread, decay * weights + 1
        for k in np.flatnonzero(sent):
            totals[k] = decay * totals[k] + apart[k]
            sums[k], squares[k] = decay * sums[k] + 1, decay**2 * squares[k] + 1
        for k in np.flatnonzero(sums):
            mean = totals[k] / sums[k]
            taken[k] = max(0.0, 1 - noise / weights * squares[k] / sums[k] ** 2 / (mean @ mean)) * mean
    return taken


def test_offsets_are_those_of_the_formula() -> None:
    rng = np.random.default_rng(0)
    server, model = server_for(OutputAgreement(COST), FixedRequest(8, 0.1)), np.zeros(DIM)
    state, rounds = server.init(model, AGENTS), list[tuple[Any, Any]]()
    away = rng.normal(size=(AGENTS, DIM)) * np.linspace(0, 1, AGENTS)[:, None]
    for _ in range(12):
        ask, state = server.ask(state, model)
        reports, sent = 2 + away + rng.normal(size=(AGENTS, DIM)), rng.random(AGENTS) < 0.8
        done, state = server.settle(state, ask, reports, sent)
        np.testing.assert_allclose(done.reading.offsets, slow_offsets(rounds), atol=1e-12)
        rounds.append((reports, sent))
        model = model - done.step * done.mean


def mean_pay(rule: Any, away: Any, rounds: int, **options: Any) -> Any:
    """Return honest agents' mean pay a round, after 60 rounds, where each differs by a constant."""
    rng, model, paid = np.random.default_rng(1), np.zeros(DIM), list[Any]()
    server = server_for(rule, FixedRequest(8, 0.1), **options)
    state = server.init(model, AGENTS)
    for _ in range(rounds):
        ask, state = server.ask(state, model)
        truth = 0.5 * rng.normal(size=DIM)
        reports = truth + away + rng.normal(size=(AGENTS, DIM)) / 8**0.5
        done, state = server.settle(state, ask, reports, EVERYBODY)
        paid.append(done.payments.released)
    return np.mean(paid[60:], axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [OutputAgreement(COST), InformationPay(COST)])
def test_an_agent_far_out_is_paid_its_cost(rule: Any) -> None:
    """One agent's data differ by three times the noise. Without its record it pays for that."""
    away = np.zeros((AGENTS, DIM))
    away[0] = 3 * np.random.default_rng(2).normal(size=DIM) / 8**0.5
    ours, plain = (mean_pay(rule, away, 260, alike=alike) for alike in (False, True))
    assert abs(ours[0] - COST(8)) < 0.15 * COST(8)
    assert plain[0] < 0


def test_constant_differences_leave_no_trace_under_a_dither() -> None:
    """Answers to a dither that differ, number by number, are taken off too."""
    rng, model, lengths = np.random.default_rng(3), np.zeros(DIM), list[Any]()
    server = server_for(InformationPay(COST), FixedRequest(8, 0.0), ZeroPrediction(), Dither(2.0))
    state = server.init(model, AGENTS)
    curvature = 1 + np.where(np.arange(AGENTS)[:, None] == 0, 3.0, 0.0) * rng.normal(size=(1, DIM))
    for _ in range(300):
        ask, state = server.ask(state, model, rng.normal(size=DIM))
        reports = curvature * (ask.model - ask.origin) + rng.normal(size=(AGENTS, DIM)) / 8**0.5
        done, state = server.settle(state, ask, reports, EVERYBODY)
        lengths.append(done.evidence.squared_deviation)
    first, last = np.mean(lengths[:20], axis=0), np.mean(lengths[200:], axis=0)
    assert first[0] > 3 * first[1:].mean()
    assert last[0] < 1.3 * last[1:].mean()


def test_no_more_than_its_reach_is_taken_off() -> None:
    """A report that is a thousand times too far out in every round is not forgiven."""
    recorder, rng = OwnRecords(reach=2.0), np.random.default_rng(4)
    server, model = server_for(OutputAgreement(COST), FixedRequest(8, 0.1), records=recorder), np.zeros(DIM)
    state = server.init(model, AGENTS)
    for _ in range(20):
        ask, state = server.ask(state, model)
        reports = rng.normal(size=(AGENTS, DIM))
        reports[0] += 1000.0
        _, state = server.settle(state, ask, reports, EVERYBODY)
    noise = float(state.lens.records.noise / state.lens.records.rounds)
    offsets = np.linalg.norm(recorder.offsets(state.lens.records, np.zeros(DIM)), axis=1)
    assert offsets[0] == pytest.approx(2 * noise**0.5, rel=0.2)


def test_garbage_cannot_walk_away_from_the_others() -> None:
    """What is remembered is the report as the model has it: cut to three times the usual length."""
    rng, server, model = np.random.default_rng(5), server_for(InformationPay(COST), FixedRequest(8, 0.0)), np.zeros(DIM)
    state = server.init(model, AGENTS)
    for _ in range(150):
        ask, state = server.ask(state, model)
        reports = rng.normal(size=(AGENTS, DIM))
        reports[0] *= 1e6
        done, state = server.settle(state, ask, reports, EVERYBODY)
        assert np.linalg.norm(done.mean) < 3.0 * DIM**0.5 / AGENTS + 3.0
        assert np.linalg.norm(done.reading.offsets[0]) < 3.5 * DIM**0.5


def test_an_agent_that_sends_zeros_is_not_credited_with_the_answer_of_the_others() -> None:
    """Its record is made from its own reports; one whose gradient answers more strongly is forgiven that."""
    rng, model, curvature = np.random.default_rng(6), np.zeros(DIM), np.linspace(0.5, 2.0, DIM)
    recorder = OwnRecords()
    server = server_for(InformationPay(COST), FixedRequest(8, 0.0), ZeroPrediction(), Dither(5.0), records=recorder)
    state = server.init(model, AGENTS)
    for _ in range(200):
        ask, state = server.ask(state, model, rng.normal(size=DIM))
        reports = curvature * ask.model + 0.3 * rng.normal(size=(AGENTS, DIM))
        reports[0], reports[1] = 0.0, 2 * reports[1]
        _, state = server.settle(state, ask, reports, EVERYBODY)
    dither = rng.normal(size=DIM)
    plus, minus = (recorder.offsets(state.lens.records, sign * dither) for sign in (1, -1))
    answers = (plus - minus) / (2 * curvature * dither)
    assert np.abs(answers[0]).max() < 0.03
    assert answers[1].mean() == pytest.approx(2.0, abs=0.2)
    assert answers[2].mean() == pytest.approx(1.0, abs=0.1)


def test_records_of_a_large_model_are_in_single_precision_and_stay_so() -> None:
    """Half the memory and half the checkpoint; what is taken off is the same to rounding."""
    rng, heard, recorder = np.random.default_rng(0), np.ones(3, dtype=bool), OwnRecords()
    model = np.zeros(LARGE_MODEL + 1)
    large, exact = (recorder.init(part, 3, dithered=True) for part in (model, model[:-1]))
    shift, u = rng.normal(size=(3, len(model))), rng.normal(size=len(model))
    for _ in range(3):
        reports = shift + 0.1 * rng.normal(size=shift.shape)
        mean, off = reports.mean(axis=0), recorder.offsets(large, u)
        large = recorder.learn(large, reports, off, mean, model, u, heard)
        exact = recorder.learn(exact, reports[:, :-1], off[:, :-1], mean[:-1], model[:-1], u[:-1], heard)
    assert {large.total.dtype, large.answer.dtype} == {np.dtype(np.float32)}
    assert {exact.total.dtype, exact.answer.dtype, large.weight.dtype} == {np.dtype(np.float64)}
    np.testing.assert_allclose(recorder.offsets(large, u)[:, :-1], recorder.offsets(exact, u[:-1]), atol=1e-4)
