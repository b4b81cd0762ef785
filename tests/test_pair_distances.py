"""Agreement by pairs, the default rule: against plain loops, and what it promises whatever is sent."""

import functools
import json
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import (
    AffineCost,
    EarlierRounds,
    FixedRequest,
    OutputAgreement,
    PowerCost,
    Server,
    Status,
    gather,
    round_of,
)
from guerdon.gram import multiply
from guerdon.registry import describe, restore
from guerdon.scale import MOST_OPEN, scale
from guerdon.settling import with_scale
from guerdon.statistical.servers import server_for
from guerdon.words import about
from tests.support.agreement_oracle import PairRule
from tests.support.libraries import Library, without_jax

COST = AffineCost(1, 1)
DIM = 3


def server(rule: Any = None, request: int = 8, *, alike: bool = True) -> Server:
    return server_for(rule or OutputAgreement(COST), FixedRequest(request, step=0.1), alike=alike)


class Federation:
    """A server and its state: `play` settles a round."""

    def __init__(self, agents: int, rule: Any = None, *, alike: bool = True) -> None:
        self.server, self.model = server(rule, alike=alike), np.zeros(DIM)
        self.state = self.server.init(self.model, agents)
        self.agents = agents

    def play(self, reports: Any, sent: Any = None, request: int = 8, *, is_last: bool = False) -> Any:
        sent = np.ones(self.agents, dtype=bool) if sent is None else np.asarray(sent)
        ask, state = self.server.ask(self.state, self.model)
        ask = ask._replace(request=request, is_last=is_last)
        done, self.state = self.server.settle(state, ask, reports, sent)
        return done


def reports(rng: Any, agents: int, *, wild: bool = False) -> Any:
    """Return reports; where they are `wild`, some are enormous, identical or zero."""
    found = 5 + rng.normal(size=(agents, DIM)) * np.exp(rng.normal())
    if wild:
        found *= 10.0 ** rng.integers(-2, 7, size=(agents, 1)) ** (rng.random((agents, 1)) < 0.2)
        found[rng.random(agents) < 0.1] = 5.0
    return found


@pytest.mark.parametrize("seed", range(12))
def test_it_agrees_with_plain_loops(seed: int) -> None:
    """Absences, garbage, identical reports and changing requests, over sixty rounds."""
    rng, cost = np.random.default_rng(seed), (COST, PowerCost(0.5, 2, 1))[seed % 2]
    agents = int(rng.integers(3, 7))
    fast, slow = Federation(agents, OutputAgreement(cost)), PairRule(cost, agents)
    for _ in range(60):
        given, sent = reports(rng, agents, wild=seed % 3 > 0), rng.random(agents) < 0.85
        nu = int(rng.integers(1, 20))
        expected = slow.pay(given, sent, nu)
        paid = fast.play(given, sent, nu).payments.released
        scale = 1e-9 * (np.max(np.abs(expected)) + about(fast.server.rule).worst_loss(fast.server.rule, nu))
        np.testing.assert_allclose(paid, expected, rtol=0, atol=scale)


@without_jax
def test_array_libraries_agree(library: Library) -> None:
    rng = np.random.default_rng(3)
    played = [(reports(rng, 5, wild=True), rng.random(5) < 0.9) for _ in range(20)]
    with library.precision():
        one, other = (server().init(library.array(np.zeros(DIM)), 5), server().init(np.zeros(DIM), 5))
        for given, sent in played:
            ask, one = server().ask(one, library.array(np.zeros(DIM)))
            done, one = server().settle(one, ask, library.array(given), library.mask(sent))
            plain, other = server().ask(other, np.zeros(DIM))
            expected, other = server().settle(other, plain, given, sent)
            slack = library.tolerance * 1600 * 10
            np.testing.assert_allclose(
                np.asarray(done.payments.released), expected.payments.released, rtol=library.tolerance * 100, atol=slack
            )
            np.testing.assert_allclose(
                np.asarray(done.mean), expected.mean, rtol=100 * library.tolerance, atol=library.tolerance * 1e4
            )


@functools.cache
def compiled_run() -> Any:
    def one_round(state: Any, played: Any) -> Any:
        ask, state = server().ask(state, jax.numpy.zeros(DIM))
        done, state = server().settle(state, ask, *played)
        return jax.tree.map(jax.numpy.asarray, state), (done.payments.released, done.mean)

    def run(gradients: Any, sent: Any) -> Any:
        first = jax.tree.map(jax.numpy.asarray, server().init(np.zeros(DIM), 5))
        return jax.lax.scan(one_round, first, (gradients, sent))[1]

    return jax.jit(jax.vmap(run))


def test_scanned_mapped_and_compiled_nothing_changes() -> None:
    rng = np.random.default_rng(4)
    given = np.stack([[reports(rng, 5, wild=True) for _ in range(20)] for _ in range(3)])
    sent = rng.random((3, 20, 5)) < 0.9
    with jax.enable_x64(True):
        rewards, means = map(np.asarray, compiled_run()(given, sent))
    for run in range(3):
        plain = Federation(5)
        for turn in range(20):
            done = plain.play(given[run, turn], sent[run, turn])
            np.testing.assert_allclose(rewards[run, turn], done.payments.released, rtol=1e-7, atol=1e-5)
            np.testing.assert_allclose(means[run, turn], done.mean, rtol=1e-7, atol=1e-7)


numbers = st.one_of(st.floats(-1e15, 1e15), st.sampled_from([0.0, 1.0, -1.0, 1e-30, 1e14, -1e14]), st.floats(-2, 2))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_extras_add_up_to_nothing_and_no_loss_exceeds_what_is_known_before(data: st.DataObject) -> None:
    """Whatever is sent: any numbers, absences, NaN; also in the round that settles the open ones together."""
    agents = data.draw(st.integers(3, 6))
    alike = data.draw(st.booleans())
    one = Federation(agents, alike=alike)
    for _ in range(data.draw(st.integers(1, 8))):
        nu = data.draw(st.integers(1, 16))
        given = np.array(data.draw(st.lists(numbers, min_size=agents * DIM, max_size=agents * DIM))).reshape(
            agents, DIM
        )
        sent = np.array(data.draw(st.lists(st.booleans(), min_size=agents, max_size=agents)))
        if data.draw(st.booleans()):
            given[0, 0] = np.nan
        payments = one.play(given, sent, nu).payments
        worked = (payments.status == Status.PAID) | (payments.status == Status.WAITING)
        extras = payments.released - worked * COST(nu)
        assert abs(extras.sum()) <= 1e-9 * (np.abs(extras).sum() + COST(nu))
        assert extras.min() >= -about(one.server.rule).worst_loss(one.server.rule, nu) * (1 + 1e-9)


def test_rounds_that_are_settled_together_cost_nobody_more_than_one() -> None:
    """In one dimension up to six are open: one report that is far out in each of them loses what a round can cost."""
    rule = OutputAgreement(COST)
    lost, most = 0.0, about(rule).worst_loss(rule, 8)
    for seed in range(50):
        one, rng = Federation(3), np.random.default_rng(seed)
        for _ in range(6):
            given = rng.normal(size=(3, 1)).repeat(DIM, axis=1)
            given[0] *= 1e6
            payments = one.play(given).payments
            lost = max(lost, COST(8) - float(payments.released.min()))
            assert payments.released.sum() == pytest.approx(3 * COST(8), abs=1e-9 * most)
    assert lost == pytest.approx(most, rel=1e-9)  # five rounds of it, and no more than one


def test_distances_that_nobody_cut_are_refused() -> None:
    """Evidence of `gather` alone: one garbage report would cost its sender a billion, and pay the others that."""
    rule, everybody = OutputAgreement(COST), np.ones(4, dtype=bool)
    given = reports(np.random.default_rng(0), 4)
    rule.pay(with_scale(rule.init(4), 4.0 * DIM), round_of(gather(given, everybody), everybody, 8))
    given[3] = 1e5
    with pytest.raises(ValueError, match=r"must have distances that are cut, .* agent 3 would lose .* allows 1600"):
        rule.pay(with_scale(rule.init(4), 4.0 * DIM), round_of(gather(given, everybody), everybody, 8))


@pytest.mark.parametrize("size", [1e2, 1e6, 1e14])
def test_one_garbage_report_harms_nobody_but_its_sender(size: float) -> None:
    rng, one = np.random.default_rng(0), Federation(4)
    for _ in range(20):
        one.play(reports(rng, 4))
    given = reports(rng, 4)
    given[3] = size
    done = one.play(given)
    worst = about(one.server.rule).worst_loss(one.server.rule, 8)
    assert worst == 2 * 100 * 8
    assert (done.payments.released[:3] > COST(8)).all()
    assert COST(8) - worst <= done.payments.released[3] < -0.1 * worst
    # The model moves by a quarter of the cut at the most.
    cut = 2 * 100 * float(done.payments.variance[0]) / 8
    assert np.linalg.norm(done.mean - given[:3].mean(axis=0)) < np.sqrt(cut) / 4 + np.linalg.norm(given[:3].std(axis=0))


def test_two_garbage_reports_of_any_size_do_not_carry_the_model_away() -> None:
    rng, one = np.random.default_rng(1), Federation(5)
    for _ in range(10):
        one.play(reports(rng, 5))
    given = reports(rng, 5)
    given[3], given[4] = 1e12, 2e12
    done = one.play(given)
    cut = 2 * 100 * float(done.payments.variance[0]) / 8
    assert np.linalg.norm(done.mean - given[:3].mean(axis=0)) < np.sqrt(cut)


def test_garbage_in_the_first_round_is_cut_too() -> None:
    rng, one = np.random.default_rng(2), Federation(4)
    given = reports(rng, 4)
    given[2] = 1e13
    first = one.play(given)
    assert first.payments.released.tolist() == [9.0] * 4
    assert np.linalg.norm(first.mean) < 1e4
    rewards = [one.play(reports(rng, 4)).payments.released for _ in range(6)]
    extras = np.array(rewards).sum(axis=0) - 6 * COST(8)
    assert extras[2] == min(extras)
    assert extras[2] > -2 * about(one.server.rule).worst_loss(one.server.rule, 8)


def statuses(payments: Any) -> list[str]:
    return [Status(int(code)).label for code in payments.status]


def test_the_first_rounds_wait_and_are_settled_together() -> None:
    rng, one, payments = np.random.default_rng(5), Federation(3), None
    told: list[list[str]] = []
    payments: Any = None
    for _ in range(MOST_OPEN):
        payments = one.play(reports(rng, 3)).payments
        told.append(statuses(payments))
        if told[-1][0] == "paid":
            break
        assert payments.released.tolist() == [9.0] * 3
        assert np.isnan(payments.squared_distance).all()
    assert told[0] == ["waiting"] * 3
    assert told[-1] == ["paid"] * 3
    assert payments is not None
    assert payments.released.sum() == pytest.approx(27)
    assert np.isfinite(payments.variance).all()


def test_who_is_absent_when_rounds_are_settled_gets_its_extra_all_the_same() -> None:
    rng, one = np.random.default_rng(6), Federation(4)
    one.play(reports(rng, 4))
    while True:
        payments = one.play(reports(rng, 4), [True, True, True, False]).payments
        if payments.status[0] == Status.PAID:
            break
    assert statuses(payments) == ["paid"] * 3 + ["declined"]
    assert payments.released[3] != 0
    assert payments.released.sum() == pytest.approx(27)


def test_the_last_round_settles_what_is_open() -> None:
    rng, one = np.random.default_rng(7), Federation(3)
    one.play(reports(rng, 3))
    payments = one.play(reports(rng, 3), is_last=True).payments
    assert statuses(payments) == ["paid"] * 3
    assert payments.released.sum() == pytest.approx(27)
    assert (payments.released != 9).all()


def test_a_newcomer_changes_nothing_of_what_is_known() -> None:
    rng, one = np.random.default_rng(8), Federation(3)
    for _ in range(10):
        one.play(reports(rng, 3))
    before = float(scale(one.state.rule.scale))
    grown = Federation(4)
    grown.state = one.server.enlarge(one.state, 4)
    assert float(scale(grown.state.rule.scale)) == before
    payments = grown.play(reports(rng, 4)).payments
    assert statuses(payments) == ["paid"] * 4
    assert payments.variance.tolist() == [before] * 4


def test_identical_reports_are_paid_their_cost() -> None:
    """They tell nothing of the scale, and nobody lies further out than another."""
    one = Federation(4)
    for _ in range(8):
        payments = one.play(np.ones((4, DIM))).payments
        assert statuses(payments) == ["paid"] * 4
        assert payments.released.tolist() == [9.0] * 4
        assert np.isnan(payments.variance).all()
    rng = np.random.default_rng(9)
    for _ in range(8):
        one.play(reports(rng, 4))
    payments = one.play(np.ones((4, DIM))).payments
    assert statuses(payments) == ["paid"] * 4
    assert payments.released.tolist() == [9.0] * 4


def test_two_participants_are_paid_their_cost() -> None:
    """They cannot be compared, and one that stays away, or sends nonsense, must not cost the others their pay."""
    payments = Federation(3).play(np.ones((3, DIM)), [True, False, True]).payments
    assert statuses(payments) == ["paid", "declined", "paid"]  # nothing will follow
    assert payments.released.tolist() == [9.0, 0.0, 9.0]
    rng, one = np.random.default_rng(12), Federation(3)
    for _ in range(10):
        one.play(reports(rng, 3))
    given = reports(rng, 3)
    given[2] = np.nan
    payments = one.play(given).payments
    assert statuses(payments) == ["paid", "paid", "invalid"]
    assert payments.released.tolist() == [9.0, 9.0, 0.0]


def test_who_leaves_two_others_alone_is_settled_with_by_the_last_round() -> None:
    """Or a member of three could work little for as long as rounds are open, leave, and keep what it was paid."""
    lost = 0.0
    for seed in range(200):
        rng, one = np.random.default_rng(seed), Federation(3)
        for turn in range(5):
            given = rng.normal(size=(3, DIM))
            given[0] *= 8**0.5  # one sample of eight
            one.play(given, [turn < 2, True, True])
        payments = one.play(rng.normal(size=(3, DIM)), [False, True, True], is_last=True).payments
        assert payments.released.sum() == pytest.approx(2 * COST(8), abs=1e-9)
        lost -= payments.released[0] / 200
        after = one.play(rng.normal(size=(3, DIM))).payments  # a run that goes on knows the scale
        assert statuses(after) == ["paid"] * 3
        assert np.isfinite(after.variance).all()
    assert lost > 2 * (COST(8) - COST(1))  # more than the two rounds saved


def test_the_common_part_of_reports_costs_no_digits() -> None:
    """Also where a cut binds, and all pairs are computed."""
    rng, near, far = np.random.default_rng(10), Federation(4), Federation(4)
    for turn in range(12):
        given = reports(rng, 4)
        given[3] *= 1e6 if turn == 11 else 1
        one, other = near.play(given).payments.released, far.play(given + 1e5).payments.released
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


def test_pairs_are_computed_only_where_the_cut_can_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, one, calls = np.random.default_rng(11), Federation(5), list[int]()
    for _ in range(5):
        one.play(reports(rng, 5))
    monkeypatch.setattr("guerdon.cuts.multiply", lambda *given: (calls.append(1), multiply(*given))[1])
    one.play(reports(rng, 5))
    assert not calls
    one.play(reports(rng, 5) * np.array([[1.0]] * 4 + [[1e9]]))
    assert calls


def test_it_can_be_written_down_and_read() -> None:
    rule = OutputAgreement(PowerCost(0.5, 2, 1), EarlierRounds(0.05))
    text, cost = describe(rule)
    assert json.loads(text)["settings"]["variance"] == {"kind": "earlier-rounds", "rarest": 0.05}
    found: Any = restore(text, cost)
    assert found.variance == rule.variance
    assert about(rule).worst_loss(rule, 8) == 2 / 0.05 * float(rule.cost.slope(8)) * 8


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: EarlierRounds(0.0), "`rarest` must be a finite number above 0, got 0.0"),
        (lambda: EarlierRounds(1.5), "`rarest` must be a share of at most 1, got 1.5"),
        (
            lambda: OutputAgreement(COST, crowd="enrolled"),
            '`crowd` must be "present" where agents are compared in pairs',
        ),
    ],
)
def test_parameters_are_checked(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
