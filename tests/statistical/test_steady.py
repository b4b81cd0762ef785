"""Steady pay: honest work is paid its cost, forged reports are released nothing, and no payment is taken back."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from guerdon import AffineCost, OutputAgreement, SteadyPay, explain, gather, round_of
from guerdon.lab.arena.balanced import BalancedVariance
from guerdon.states import chosen, flatten_state
from guerdon.statistical.information_share import shares
from guerdon.statistical.steady import FAINT, PREDICTABLE, SteadyState
from guerdon.statistical.trust import TrustState
from guerdon.words import about

COST, NU, DIM, AGENTS, PERIOD = AffineCost(1, 1), 16, 30, 8, 40
RULE = SteadyPay(COST, period=PERIOD)
EVERYBODY = np.ones(AGENTS, dtype=bool)
Report = Callable[[np.random.Generator, Any, Any, int], Any]  # of the first agent: rng, surprise, own gradient, round


def sample(rng: np.random.Generator, surprise: Any, size: float) -> Any:
    """Return the mean gradient of `size` samples, less the prediction: σ² = DIM, B = σ²/g² = 30."""
    return surprise + rng.normal(size=DIM) / size**0.5


class Known(NamedTuple):
    """What a server knows of its agents: the state of the rule, and whom it trusts."""

    rule: SteadyState
    trust: TrustState


def begun(agents: int = AGENTS, rule: SteadyPay = RULE) -> Known:
    """Return what is known before the first round."""
    return Known(rule.init(agents), rule.trust.init(agents))


def pay(state: Known, sent: Any, here: Any, rule: SteadyPay = RULE) -> tuple[Any, Known]:
    """Return what a round of reports around the prediction 0 is paid: each compared with those that are trusted."""
    trusted = rule.trust.reference(state.trust, here)
    evidence = gather(sent, here, np.zeros(DIM), trusted)
    payments, after = rule.pay(state.rule, round_of(evidence, here, NU, trusted))
    return payments, Known(after, rule.trust.learn(state.trust, evidence, trusted, NU))


def play(report: Report, rounds: int = PERIOD, runs: int = 12, rule: Any = RULE) -> Any:
    """Return what each agent is paid (runs, rounds, agents), where the first agent sends `report`."""
    found: list[Any] = []
    for seed in range(runs):
        rng, state, paid = np.random.default_rng(seed), begun(rule=rule), list[Any]()
        for number in range(rounds):
            direction = rng.normal(size=DIM)
            surprise = direction / np.linalg.norm(direction)
            sent = np.stack([sample(rng, surprise, NU) for _ in range(AGENTS)])
            sent[0] = report(rng, surprise, sent[0], number)
            payments, state = pay(state, sent, EVERYBODY, rule)
            paid.append(payments.released)
        found.append(paid)
    return np.array(found)


def honest(rng: Any, surprise: Any, own: Any, number: int) -> Any:
    del rng, surprise, number
    return own


@functools.cache
def honest_pay() -> Any:
    """Return what honest agents are paid; played once, and not by every process that collects the tests."""
    return play(honest)


def test_honest_agents_are_paid_their_cost_steadily() -> None:
    """On average to three standard errors; none ends below half of it; and a part is released early."""
    net = honest_pay().sum(axis=1) / PERIOD - COST(NU)
    assert abs(net.mean()) < 3 * net.mean(axis=1).std() / len(net) ** 0.5 + 0.15
    assert net.min() > -0.5 * COST(NU)
    assert net.std() < 0.15 * COST(NU)
    assert (honest_pay()[:, :24].sum(axis=1) > 0).mean() > 0.95


def test_what_is_paid_in_a_round_is_steady_too() -> None:
    """A round pays twice the cost at most, the last one of a period what is left: no more than a few rounds' cost.

    With a bound that does not rise, and without a limit, the standard deviation is 2.2 costs here. The second period of
    two: in the first nothing is released before the probation is over.
    """
    paid = play(honest, rounds=2 * PERIOD, runs=8)[:, PERIOD:]
    assert paid[:, :-1].max() < 2.001 * COST(NU)
    assert paid.std() < COST(NU)
    assert np.median(paid[:, -1]) < 5 * COST(NU)


def test_nothing_is_ever_taken_back() -> None:
    loud = play(lambda rng, _m, own, number: 1e3 * rng.normal(size=DIM) if number > 25 else own, runs=3)
    assert (loud >= 0).all()
    assert (honest_pay() >= 0).all()


FORGED: dict[str, Report] = {
    "the prediction": lambda _rng, _m, _own, _t: np.zeros(DIM),
    "the prediction and honest-sized noise": lambda rng, _m, _own, _t: rng.normal(size=DIM) / 4,
    "something else that is public": lambda _rng, _m, _own, _t: np.full(DIM, 0.1),
    "noise three times too long": lambda rng, _m, _own, _t: 3 * rng.normal(size=DIM) / 4,
    "the opposite": lambda _rng, _m, own, _t: -own,
}


@pytest.mark.parametrize("forged", FORGED)
def test_forged_reports_are_released_nothing(forged: str) -> None:
    """Under output agreement the first of them earns twice the cost."""
    assert play(FORGED[forged], runs=4)[:, :, 0].sum() < 1e-3 * COST(NU)


LESS: dict[str, tuple[Report, float]] = {
    "half": (lambda rng, m, _own, _t: sample(rng, m, NU / 2), COST(NU / 2)),
    "half, shrunk to honest length": (lambda rng, m, _own, _t: 0.71 * sample(rng, m, NU / 2), COST(NU / 2)),
    "a quarter, shrunk": (lambda rng, m, _own, _t: 0.5 * sample(rng, m, NU / 4), COST(NU / 4)),
    "every other round": (lambda _rng, _m, own, t: own if t % 2 else np.zeros(DIM), COST(NU) / 2),
    "every other round, else noise": (lambda rng, _m, own, t: own if t % 2 else rng.normal(size=DIM) / 4, COST(NU) / 2),
    "the first half of the period": (lambda _rng, _m, own, t: own if t < PERIOD / 2 else np.zeros(DIM), COST(NU) / 2),
    "half in most rounds, else the prediction": (
        lambda rng, m, _own, t: sample(rng, m, NU / 2) if t % 8 < 5 else np.zeros(DIM),
        COST(NU / 2) * 5 / 8,
    ),
}


@pytest.mark.parametrize("less", LESS)
def test_less_work_loses(less: str) -> None:
    report, spent = LESS[less]
    net = play(report, runs=6)[:, :, 0].sum(axis=1) / PERIOD - spent
    assert net.mean() + 3 * net.std() / len(net) ** 0.5 < 0


def test_work_in_rounds_that_tell_most_does_not_stand_for_the_rest() -> None:
    """The surprise falls to a tenth after ten rounds of work: two rounds more are released at most."""

    def early(rng: Any, surprise: Any, own: Any, number: int) -> Any:
        del rng, surprise
        return own if number < PERIOD / 4 else np.zeros(DIM)

    found: list[float] = []
    for seed in range(6):
        rng, state, paid = np.random.default_rng(seed), begun(), 0.0
        for number in range(PERIOD):
            direction = rng.normal(size=DIM)
            surprise = direction / np.linalg.norm(direction) * (10 if number < PERIOD / 4 else 1)
            sent = np.stack([sample(rng, surprise, NU) for _ in range(AGENTS)])
            sent[0] = early(rng, surprise, sent[0], number)
            payments, state = pay(state, sent, EVERYBODY)
            paid += payments.released[0]
        found.append(paid / PERIOD)
    assert max(found) * PERIOD < (PERIOD / 4 + 2) * COST(NU)


def test_knowing_more_than_honest_work_is_paid_no_more_than_its_cost() -> None:
    """The surprise itself, at any length: information pay would pay many times the cost for it."""
    for length in (1.0, 1.4, 3.0):
        paid = play(lambda _rng, m, _own, _t, by=length: by * m, runs=3)[:, :, 0].sum(axis=1) / PERIOD
        assert (paid < 1.05 * COST(NU)).all()


def test_a_name_that_knows_the_gradient_takes_nothing_before_its_probation_is_over() -> None:
    """The surprise itself, for no work: no rule tells it from honest work, but it has to stay for 20 rounds."""
    paid = play(lambda _rng, m, _own, _t: 1.4 * m, runs=3)[:, :, 0]
    assert (paid[:, :20] == 0).all()
    assert (paid.sum(axis=1) > 0.9 * PERIOD * COST(NU)).all()


def test_a_name_that_leaves_after_a_few_rounds_takes_less_than_its_work_cost() -> None:
    for rounds in (1, 5, 9):
        assert honest_pay()[:, :rounds].sum() == 0
    for rounds in (15, 20, 30):
        taken = honest_pay()[:, :rounds].sum(axis=1) / (rounds * COST(NU))
        assert taken.mean() < 0.95
        assert taken.max() < 1.1  # what a cut takes by chance is added to all


def test_garbage_hardly_changes_what_others_are_paid() -> None:
    """Here it is not even shortened. It makes the others look near, so that the cut at the cost takes nothing off."""
    others = play(lambda rng, _m, _own, _t: 100 * rng.normal(size=DIM))[:, :, 1:]
    assert 0.95 * COST(NU) < others.sum(axis=1).mean() / PERIOD < 1.1 * COST(NU)


def test_an_agent_that_sends_the_prediction_takes_nothing_from_the_others() -> None:
    """Its report is closest of all. Measured by it, the others' look long, and each loses a tenth of its pay."""

    def idle(rng: Any, surprise: Any, own: Any, number: int) -> Any:
        del rng, surprise, number
        return 0 * own

    net = play(idle)[:, :, 1:].sum(axis=1) / PERIOD - COST(NU)
    assert abs(net.mean()) < 3 * net.mean(axis=1).std() / len(net) ** 0.5 + 0.3


def test_garbage_beside_it_does_not_make_less_work_look_honest() -> None:
    """Three of ten do 3/8 of the work and a fourth sends garbage: that helps them little."""
    found, everybody = list[float](), np.ones(10, dtype=bool)
    for seed in range(8):
        rng, state, paid = np.random.default_rng(seed), begun(10), np.zeros(10)
        for _ in range(PERIOD):
            direction = rng.normal(size=DIM)
            surprise = direction / np.linalg.norm(direction)
            sizes = np.array([6.0, 6.0, 6.0, NU / 9, *[NU] * 6])
            sent = np.stack([sample(rng, surprise, size) for size in sizes])
            sent[3] -= surprise
            payments, state = pay(state, sent, everybody)
            paid += payments.released / PERIOD
        found.append((paid[:3].sum() - 3 * COST(6)) / 4)
    assert np.mean(found) < 3.0  # 6.6 where garbage counts as far out as it is


def test_agents_that_leave_early_do_not_lower_the_others_pay() -> None:
    """In their rounds there was much to tell, later there is little: what they knew must not stay the usual."""
    found: list[float] = []
    for seed in range(4):
        rng, state, paid = np.random.default_rng(seed), begun(), np.zeros(AGENTS)
        for number in range(PERIOD):
            direction = rng.normal(size=DIM)
            surprise = direction / np.linalg.norm(direction) * (4 if number < 5 else 1)
            sent = np.stack([sample(rng, surprise, NU) for _ in range(AGENTS)])
            here = EVERYBODY if number < 5 else np.arange(AGENTS) > 1
            payments, state = pay(state, sent, here)
            paid += payments.released / PERIOD
        found.append(paid[2:].mean())
    assert np.mean(found) > 0.9 * COST(NU)


def beside_new_names(report: Any, fresh: int, rounds: int = 2 * PERIOD, runs: int = 3) -> Any:
    """Return what each agent is paid a round where the last seats send `report`, and change names every few rounds."""
    found: list[Any] = []
    for seed in range(runs):
        rng, state, paid = np.random.default_rng(seed), begun(), np.zeros(AGENTS)
        for number in range(rounds):
            direction = rng.normal(size=DIM)
            surprise = direction / np.linalg.norm(direction)
            sent = np.stack([sample(rng, surprise, NU) for _ in range(AGENTS)])
            own = report(rng, surprise)
            sent[AGENTS - len(own) :] = own
            if number % fresh == 0:
                new = np.arange(AGENTS) >= AGENTS - len(own)
                new[AGENTS - len(own)] &= len(own) != 2  # the partner of a helper stays
                state = chosen(new, None, state)
            payments, state = pay(state, sent, EVERYBODY)
            paid += payments.released / rounds
        found.append(paid)
    return np.mean(found, axis=0)


def test_a_name_that_is_thrown_away_does_not_make_its_partner_look_informed() -> None:
    """The partner sends noise, and new names three times that. Compared with all, it was paid eight times as much."""

    def helped(rng: Any, surprise: Any) -> Any:
        del surprise
        noise = rng.normal(size=DIM) / 4
        return np.stack([noise, 3 * noise])

    paid = beside_new_names(helped, fresh=4)
    assert paid[-2] < 0.02 * COST(NU)
    assert (paid[:-2] > 0.85 * COST(NU)).all()


def test_new_names_do_not_take_the_others_pay() -> None:
    """Three send less than nothing of the surprise, and noise. Compared with all, honest agents lose half their pay."""
    paid = beside_new_names(lambda rng, m: -m + 1.4 * rng.normal(size=(3, DIM)) / 4, fresh=8)
    assert (paid[-3:] == 0).all()
    assert (paid[:-3] > 0.7 * COST(NU)).all()
    assert paid[:-3].mean() > 0.85 * COST(NU)


def beside_helpers(staggered: int, works: bool, rounds: int, runs: int) -> Any:
    """Return what each agent is paid a round, where B = 190. The last seats help the idle agent 0, from round 20 on.

    A helper waits 20 rounds, with noise or with work. Then it sends three times the noise of agent 0 for eight, and a
    new name takes its seat; `staggered` of them, one after the other.
    """
    found: list[Any] = []
    for seed in range(runs):
        rng, state, paid = np.random.default_rng(seed), begun(), np.zeros(AGENTS)
        for number in range(rounds):
            direction = rng.normal(size=DIM)
            surprise = 0.4 * direction / np.linalg.norm(direction)
            sent = np.stack([sample(rng, surprise, NU) for _ in range(AGENTS)])
            sent[0] = rng.normal(size=DIM) / 4
            here, new = EVERYBODY.copy(), ~EVERYBODY
            for helper in range(staggered):
                seat, age = AGENTS - 1 - helper, (number - 20 + 9 * helper) % 28
                here[seat], new[seat] = number >= 20, number == 20 or age == 0
                waits = sent[seat] if works else rng.normal(size=DIM) / 4
                sent[seat] = waits if age < 20 else 3 * sent[0]
            state = chosen(new, None, state)
            payments, state = pay(state, sent, here)
            paid += payments.released / rounds
        found.append(paid)
    return np.array(found)


def test_helpers_that_wait_out_their_probation_do_not_make_a_partner_look_informed() -> None:
    """Without clearing the partner of three is paid its cost, and the others a third of theirs."""
    paid = beside_helpers(3, works=False, rounds=5 * PERIOD, runs=2).mean(axis=0)
    assert paid[0] < 0.03 * COST(NU)
    assert paid[1:5].mean() > 0.85 * COST(NU)


def test_a_few_rounds_do_not_tell_for_a_whole_period() -> None:
    """As where founders help for a few rounds: much is told in a few rounds, and nothing in the rest of the period."""
    rng, state = np.random.default_rng(0), begun()
    for number in range(PERIOD - 1):
        direction = rng.normal(size=DIM)
        surprise = direction / np.linalg.norm(direction)
        sent = np.stack([sample(rng, surprise, NU) for _ in range(AGENTS)])
        sent[0] = (6 if number < 12 else 0) * surprise
        _, state = pay(state, sent, EVERYBODY)
    told = shares(state.rule.share)
    assert told.in_full[0] > 1.5
    assert told.share[0] < 0.8
    assert (abs(told.share[1:] - 1) < 5 * told.error[1:]).all()


@pytest.mark.slow
@pytest.mark.parametrize("staggered", [1, 2, 3])
def test_helpers_gain_nothing(staggered: int) -> None:
    """Who waits with noise gains nothing, to three standard errors; who works meanwhile loses more than is gained."""
    crew = [0, *range(AGENTS - staggered, AGENTS)]
    waited, worked = (beside_helpers(staggered, works, 5 * PERIOD, 12)[:, crew].sum(axis=1) for works in (False, True))
    assert waited.mean() < 3 * waited.std() / len(waited) ** 0.5 + 0.005 * COST(NU)
    gained = worked - staggered * (1 - 20 / (5 * PERIOD)) * 20 / 28 * COST(NU)
    assert gained.mean() + 3 * gained.std() / len(gained) ** 0.5 < 0


def test_a_new_period_begins_from_nothing() -> None:
    paid = play(lambda _rng, _m, own, t: own if t < PERIOD else np.zeros(DIM), rounds=2 * PERIOD, runs=3)
    assert (paid[:, :PERIOD, 0].sum(axis=1) > 0.5 * PERIOD * COST(NU)).all()
    assert paid[:, PERIOD:, 0].sum() == 0
    assert (paid[:, PERIOD:, 1:].sum(axis=1) > 0.5 * PERIOD * COST(NU)).all()


def test_what_is_held_is_what_an_early_end_would_release() -> None:
    rng, state = np.random.default_rng(3), RULE.init(AGENTS)
    for _ in range(PERIOD // 2):
        sent = np.stack([sample(rng, np.eye(DIM)[0], NU) for _ in range(AGENTS)])
        evidence = gather(sent, EVERYBODY, np.zeros(DIM), EVERYBODY)
        _, state = RULE.pay(state, round_of(evidence, EVERYBODY, NU))
    assert (RULE.held(state) > 0).all()
    np.testing.assert_allclose(RULE.held(state) + state.released, RULE.final(state))


def test_where_nothing_can_be_told_it_says_so() -> None:
    rng, state = np.random.default_rng(4), RULE.init(AGENTS)
    for _ in range(25):
        evidence = gather(rng.normal(size=(AGENTS, DIM)) / 4, EVERYBODY, np.zeros(DIM), EVERYBODY)
        payments, state = RULE.pay(state, round_of(evidence, EVERYBODY, NU))
        assert not payments.released.any()
    assert about(RULE).advice(RULE, state, NU) == PREDICTABLE
    assert about(RULE).advice(RULE, RULE.init(AGENTS), NU) == ""


@pytest.mark.parametrize(("told", "warns"), [(1.0, False), (0.2, True)])
def test_where_too_little_is_told_for_a_wage_it_says_so(told: float, warns: bool) -> None:
    """With a signal of 0.2 honest agents are paid less than their cost: its own error is what it is divided by."""
    rng, rule = np.random.default_rng(4), SteadyPay(COST)
    state = begun(rule=rule)
    for number in range(90):
        direction = rng.normal(size=DIM)
        surprise = told * direction / np.linalg.norm(direction)
        sent = np.stack([sample(rng, surprise, NU) for _ in range(AGENTS)])
        _, state = pay(state, sent, EVERYBODY, rule)
        assert number > 48 or about(rule).advice(rule, state.rule, NU) != FAINT
    assert about(rule).advice(rule, state.rule, NU) == (FAINT if warns else "")


def test_a_payment_is_explained_by_what_was_earned_and_what_is_released() -> None:
    evidence = gather(np.random.default_rng(5).normal(size=(AGENTS, DIM)), EVERYBODY, np.zeros(DIM), EVERYBODY)
    told = round_of(evidence, EVERYBODY, NU)
    payments, _ = RULE.pay(RULE.init(AGENTS), told)
    rule = OutputAgreement(COST, BalancedVariance())
    price = rule.pay(rule.init(AGENTS), told)[0].released[0]
    assert explain(RULE, payments, NU)[0].startswith(f"0 released; earned in this round: {price:.4g} (17 for the 16")


def test_sums_are_per_agent() -> None:
    assert set(SteadyState._fields) >= {"due", "earned", "share", "released"}
    arrays = flatten_state(begun(5))
    assert {"rule.share.rounds", "rule.due", "trust.wealth"} <= set(arrays)
    assert {part.shape[-1] for part in arrays.values()} == {5}
