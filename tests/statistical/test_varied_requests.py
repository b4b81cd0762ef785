"""Requests that differ by design: pay follows each agent's own, and the slope is what the others' reports show."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, CalibratedAgreement, FixedRequest, Status, gather, round_of
from guerdon.statistical.calibrated import LEAST_EFFECT, NO_EFFECT
from guerdon.statistical.servers import server_for
from guerdon.words import about

COST, NU, DIM, AGENTS = AffineCost(1, 1), 16, 40, 8
RULE = CalibratedAgreement(COST, calibration=60, vary=0.25)
DIFFERENT = np.array([0.6, 0.75, 0.9, 1.0, 1.0, 1.1, 1.25, 1.4])
EVERYBODY = np.ones(AGENTS, dtype=bool)


def honest(asked: Any) -> Any:
    """Return the samples that each agent uses."""
    return asked.astype(float)


def settle(state: Any, use: Callable[[Any], Any], effect: float, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Return a round's pay, what each used, and the next state."""
    asked = RULE.own_requests(state, NU)
    assert asked is not None
    used = use(asked)
    noise = rng.normal(size=(AGENTS, DIM)) * np.sqrt(DIFFERENT * (used / NU) ** -effect / NU)[:, None]
    payments, state = RULE.pay(state, round_of(gather(3.0 + noise, EVERYBODY), EVERYBODY, NU))
    return payments.released, used, state


@functools.cache
def calibrated(seed: int, effect: float) -> Any:
    """Return the state after the calibration, in which all do what they are asked and are paid for that."""
    rng, state = np.random.default_rng([seed, 0]), RULE.init(AGENTS)
    for _ in range(RULE.calibration):
        paid, used, state = settle(state, honest, effect, rng)
        assert (paid == COST(used)).all()
    return state


def play(use: Callable[[Any], Any], effect: float = 1.0, runs: int = 6, rounds: int = 80) -> tuple[Any, Any]:
    """Return pay less cost (runs × rounds, agents) after the calibration, and the last state."""
    found: list[Any] = []
    state = None
    for seed in range(runs):
        rng, state = np.random.default_rng([seed, 1]), calibrated(seed, effect)
        for _ in range(rounds):
            paid, used, state = settle(state, use, effect, rng)
            found.append(paid - COST(used))
    return np.array(found), state


def first(own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what all use where the first agent does something else than what it is asked."""
    return lambda asked: np.where(np.arange(AGENTS) == 0, own(asked), honest(asked))


def test_every_agent_is_asked_for_less_and_for_more_equally_often_and_not_in_step() -> None:
    """Of two rounds one asks for more; two agents are asked for the same in about half of the rounds."""
    state, asked = RULE.init(AGENTS), list[Any]()
    for number in range(65):
        asked.append(RULE.own_requests(state._replace(rounds=np.full(AGENTS, float(number))), NU))
    rows = np.array(asked)
    assert (rows[0] == NU).all()
    assert set(rows[1:].ravel().tolist()) == {12, 20}
    assert (rows[1::2] + rows[2::2] == 32).all()
    agree = (rows[1:, :, None] == rows[1:, None, :]).mean(axis=0)[~np.eye(AGENTS, dtype=bool)]
    np.testing.assert_allclose(agree, 0.5)


def test_the_server_says_what_each_is_asked_for() -> None:
    model = np.zeros(DIM)
    server = server_for(RULE, FixedRequest(NU, step=0.1))
    state = server.init(model, AGENTS)
    ask, state = server.ask(state, model)
    assert ask.notice.own is not None
    assert ask.notice.own.tolist() == [NU] * AGENTS
    done, state = server.settle(state, ask, np.random.default_rng(0).normal(size=(AGENTS, DIM)), EVERYBODY)
    assert (done.payments.released == COST(NU)).all()
    own = server.ask(state, model)[0].notice.own
    assert own is not None
    assert set(own.tolist()) == {12, 20}
    plain = server_for(CalibratedAgreement(COST), FixedRequest(NU, step=0.1))
    assert plain.ask(plain.init(model, AGENTS), model)[0].notice.own is None


@pytest.mark.parametrize("effect", [1.0, 0.6])
def test_honest_pay_follows_each_agents_own_requests(effect: float) -> None:
    """Within a tenth of the cost, also where noise falls more slowly with work than that of independent samples."""
    found, state = play(honest, effect=effect)
    assert np.abs(found.mean(axis=0)).max() < 0.1 * COST(NU)
    error = 3 * found.std() / found.size**0.5
    assert abs(found.mean()) < error
    assert np.abs(np.median(RULE.effects(state)) - effect) < 0.15


@pytest.mark.parametrize("effect", [1.0, 0.6])
@pytest.mark.parametrize("share", [0.5, 2.0])
def test_less_or_more_than_its_own_request_loses(effect: float, share: float) -> None:
    """At the slope that the others show: at γ = 0.6 a slope for independent samples would pay for double work."""
    found, _ = play(first(lambda asked: share * asked), effect=effect)
    own = found[:, 0]
    assert own.mean() + 3 * own.std() / len(own) ** 0.5 < 0


ANSWERS: dict[str, Callable[[Any], Any]] = {
    "the request of the round, whatever it is asked": lambda _: np.full(AGENTS, float(NU)),
    "less where more is asked, and more where less is": lambda asked: 2.0 * NU - asked,
    "always the smaller number": lambda _: np.full(AGENTS, 12.0),
    "always the larger number": lambda _: np.full(AGENTS, 20.0),
}


honest_play = functools.cache(lambda: play(honest))


@pytest.mark.parametrize("answer", ANSWERS)
def test_answering_its_requests_strategically_gains_nothing(answer: str) -> None:
    found, _ = play(first(ANSWERS[answer]))
    honestly, _ = honest_play()
    gain = found[:, 0] - honestly[:, 0]
    assert gain.mean() - 3 * gain.std() / len(gain) ** 0.5 < 0


def test_an_agents_own_answers_do_not_change_its_own_slope() -> None:
    _, state = play(honest, runs=1)
    for noise in (0.0, 1e-3, 1e3):
        moved = state._replace(noise=np.where(np.arange(AGENTS) == 0, noise, state.noise))
        assert RULE.effects(moved)[0] == RULE.effects(state)[0]


@pytest.mark.parametrize("effect", [0.0, -0.5])
def test_where_work_is_not_seen_pay_is_flat_and_the_rule_says_so(effect: float) -> None:
    """As with models that are trained in local steps: fewer samples are a shorter, less noisy move."""
    found, state = play(first(lambda asked: 0.5 * asked), effect=effect, runs=4)
    assert (RULE.effects(state) < LEAST_EFFECT).all()
    assert about(RULE).advice(RULE, state, NU) == NO_EFFECT
    np.testing.assert_allclose(found[:, 1:], 0.0, atol=1e-12)
    asked = RULE.own_requests(state, NU)
    assert asked is not None
    evidence = gather(np.random.default_rng(1).normal(size=(AGENTS, DIM)), EVERYBODY)
    payments, _ = RULE.pay(state, round_of(evidence, EVERYBODY, NU))
    assert (payments.status == Status.PAID).all()
    assert np.isnan(payments.squared_distance).all()
    np.testing.assert_allclose(payments.released, COST(asked))


def test_the_record_says_what_was_paid() -> None:
    """R = h(ν) + h'(ν)·ν²/V·(E − D) with ν of the round: statements, formulas and verification need nothing else."""
    _, state = play(honest, runs=1)
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(AGENTS, DIM)) * np.sqrt(DIFFERENT / NU)[:, None]
    paid, _ = RULE.pay(state, round_of(gather(3.0 + noise, EVERYBODY), EVERYBODY, NU))
    told = COST(NU) + NU**2 / paid.variance * (paid.expected - paid.squared_distance)
    np.testing.assert_allclose(told, paid.released)


@pytest.mark.parametrize("vary", [-0.1, 0.6, float("nan")])
def test_a_share_that_makes_no_sense_is_refused(vary: float) -> None:
    with pytest.raises(ValueError, match="`vary` must be"):
        CalibratedAgreement(COST, vary=vary)
