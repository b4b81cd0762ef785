"""Information pay against its transcription, in every odd case, and what it refuses. The theorems are tested apart."""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, InformationPay, PowerCost, Status, explain, gather, round_of
from guerdon.asking import prediction_error
from guerdon.costs import Cost
from guerdon.states import flatten_state
from guerdon.statistical.bets import BETS, TESTS
from guerdon.statistical.information import NOT_SOUND, noise_scale_bound
from guerdon.statistical.servers import server_for
from guerdon.statistical.signal import SignalState
from guerdon.statistical.trust import Trust, TrustState
from guerdon.words import about
from tests.support.information_oracle import InformationOracle, mean_length, mean_product
from tests.support.libraries import Library, without_jax

COST = AffineCost(1, 1)
AGENTS, DIM = 6, 5
INFINITY = float("inf")


class Known(NamedTuple):
    """What a server knows of its agents: the state of the rule, and whom it trusts."""

    rule: SignalState
    trust: TrustState


def known(rule: InformationPay, agents: int = AGENTS) -> Known:
    """Return what is known before the first round."""
    return Known(rule.init(agents), rule.trust.init(agents))


def settle(rule: InformationPay, state: Known, gradients: Any, mask: Any, prediction: Any, nu: Any) -> Any:
    """Shorten, compare and pay, as a server does."""
    server = server_for(rule, FixedRequest(8, 0.1), alike=True)
    begun = server.init(prediction, len(mask))
    begun = begun._replace(rule=state.rule, lens=begun.lens._replace(trust=state.trust))
    ask, begun = server.ask(begun, prediction)
    payments, _, after = server.pay(begun, ask._replace(prediction=prediction, request=nu), gradients, mask)
    return payments, Known(after.rule, after.lens.trust)


def told(state: Known, ratio: float) -> Known:
    """Return the state where a round before had this g²/σ²."""
    return state._replace(
        rule=state.rule._replace(signal=0 * state.rule.signal + ratio, weight=0 * state.rule.weight + 1)
    )


settle_compiled: Any = jax.jit(settle, static_argnums=0)


def rounds(seed: int = 0, number: int = 9) -> list[Any]:
    """Rounds with dropouts, changing requests and predictions, a report that is NaN now and then, and a long one."""
    rng, played = np.random.default_rng(seed), []
    for t in range(number):
        gradients, prediction = 1 + rng.normal(size=(AGENTS, DIM)), 0.5 * rng.normal(size=DIM)
        mask = rng.random(AGENTS) < 0.85
        mask[3] &= t > 2  # who comes late
        if t % 3 == 1:
            gradients[0] *= 300
        if t % 4 == 2:
            gradients[1, 0] = np.nan
        played.append((gradients, mask, prediction, (8, 4, 16)[t % 3]))
    played[4][1][:4] = False  # two are present: too few
    return played


def doubting(state: Known, *agents: int) -> Known:
    """Return the state with much evidence against some."""
    wealth = np.array(state.trust.wealth)
    wealth[..., list(agents)] = 5.0
    return state._replace(trust=state.trust._replace(wealth=wealth))


def play(rule: InformationPay, played: list[Any], doubted: tuple[int, ...] = (), step: Any = None) -> list[Any]:
    """Return payments and states."""
    state, results = doubting(known(rule), *doubted), []
    plain: Any = lambda *arguments: settle(rule, *arguments)  # noqa: E731
    pay = step(plain) if step else plain
    for gradients, mask, prediction, nu in played:
        payments, state = pay(state, gradients, mask, prediction, nu)
        results.append((payments, state))
    return results


# Against the transcription.


@pytest.mark.parametrize("cost", [COST, PowerCost(0.5, 2, 1)], ids=["affine", "power"])
@pytest.mark.parametrize("doubted", [(), (2,), (1, 4), (0, 1, 2, 4)], ids=str)
@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {"decay": 0.0},
        {"decay": 1.0, "least": 0.5},
        {"doubt": 1.2},
        {"doubt": INFINITY},
        {"limit": 1.0},
        {"limit": INFINITY, "least": 1.0},
    ],
    ids=str,
)
def test_it_agrees_with_the_transcription(numbers: dict[str, Any], doubted: tuple[int, ...], cost: Cost) -> None:
    oracle = InformationOracle(cost, AGENTS, **numbers)
    for test in itertools.chain(*oracle.wealth):
        for k in doubted:
            test[k] = np.exp(5.0)
    paid = play(InformationPay(cost, **numbers), rounds(), doubted)
    for (gradients, mask, prediction, nu), (payments, state) in zip(rounds(), paid, strict=True):
        expected, _ = oracle.pay({k: gradients[k] for k in range(AGENTS) if mask[k]}, prediction, nu)
        np.testing.assert_allclose(payments.released, expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(np.exp(state.trust.wealth), oracle.wealth, rtol=1e-10)


def test_the_transcription_by_hand() -> None:
    """The docstring's round: a = 8/3 ÷ (8/3 + 3), so 1/a = 2.125 …, and R_k = 9 + 8²/σ²·(E_k − D_k)."""
    v = {0: np.array([2.0, 0.0]), 1: np.array([3.0, 1.0]), 2: np.array([0.0, 0.0])}
    length, product = (4 + 10 + 0) / 3, (6 + 0 + 0) / 3
    assert mean_length(v, [0, 1, 2]) == pytest.approx(length)
    assert mean_product(v, [0, 1, 2]) == pytest.approx(product)
    a = product / length
    scores = [2 * a * 3 - a**2 * 4, 2 * a * 3 - a**2 * 10, 0.0]  # w_0 = (1.5, 0.5), w_1 = (1, 0), w_2 = (2.5, 0.5)
    among = [-(a**2) * 5, -(a**2) * 2, 2 * a * 6 - a**2 * 7]
    expected = [9 + 64 / (a**2 * 8 * (length - product)) * (i - j) for i, j in zip(scores, among, strict=True)]
    rewards, aggregate = InformationOracle(COST, 3, limit=INFINITY).pay(v, np.zeros(2), 8)
    np.testing.assert_allclose(rewards, expected)
    np.testing.assert_allclose(rewards, [54, 27, -54])
    np.testing.assert_allclose(aggregate, [5 / 3, 1 / 3])


# In the terms of payments.


def test_payments_can_be_recomputed_from_what_they_show() -> None:
    for (_, _, _, nu), (payments, _) in zip(rounds(), play(InformationPay(COST), rounds()), strict=True):
        paid = payments.status == Status.PAID
        reward = COST(nu) + nu**2 / payments.variance * (payments.expected - payments.squared_distance)
        np.testing.assert_allclose(payments.released[paid], reward[paid])
        assert (payments.released[~paid] == 0).all()
        assert all(np.isnan(part[~paid]).all() for part in payments[2:5])
        assert np.isfinite(np.stack(payments[:5])[:, paid]).all()
        reasons = explain(InformationPay(COST), payments, nu)
        assert all(("its report told" in why) == here for why, here in zip(reasons, paid, strict=True))


def statuses(present: int, doubted: tuple[int, ...] = (), nan: int | None = None, doubt: float = 20.0) -> list[Status]:
    rng = np.random.default_rng(3)
    gradients, mask = rng.normal(size=(AGENTS, DIM)), np.arange(AGENTS) < present
    if nan is not None:
        gradients[nan, 2] = np.nan
    rule = InformationPay(COST, doubt=doubt)
    payments, state = settle(rule, doubting(known(rule), *doubted), gradients, mask, np.zeros(DIM), 8)
    assert np.isfinite(payments.released).all()
    assert all(np.isfinite(part).all() for part in flatten_state(state).values())
    return [Status(int(status)) for status in payments.status]


PAID, DECLINED, INVALID, FEW = Status.PAID, Status.DECLINED, Status.INVALID, Status.TOO_FEW


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"present": 0}, [DECLINED] * 6),
        ({"present": 1}, [Status.ALONE] + [DECLINED] * 5),
        ({"present": 2}, [FEW] * 2 + [DECLINED] * 4),
        ({"present": 3}, [PAID] * 3 + [DECLINED] * 3),
        ({"present": 3, "nan": 1}, [FEW, INVALID, FEW] + [DECLINED] * 3),
        ({"present": 4, "nan": 1}, [PAID, INVALID, PAID, PAID] + [DECLINED] * 2),
        ({"present": 6, "doubted": (0, 1, 2)}, [PAID] * 6),
        ({"present": 6, "doubted": (0, 1, 2, 3)}, [PAID] * 6),  # too few are left to trust: everybody is trusted
        ({"present": 6, "doubted": (0, 1), "nan": 5}, [PAID] * 5 + [INVALID]),
        # Three would be trusted, but one of them sent NaN: as if he were absent, and so everybody is trusted.
        ({"present": 6, "doubted": (0, 1, 2), "nan": 5}, [PAID] * 5 + [INVALID]),
        ({"present": 6, "doubt": 1.0}, [PAID] * 6),  # doubts everybody from the start, and so nobody
    ],
)
def test_why_somebody_is_not_paid(arguments: dict[str, Any], expected: list[Status]) -> None:
    assert statuses(**arguments) == expected


@pytest.mark.parametrize("library", [Library("numpy", "float32"), Library("jax", "float32")], ids=str)
@pytest.mark.parametrize("ratio", [0.001, 1.0])
def test_identical_reports_are_paid_nothing(library: Library, ratio: float) -> None:
    """They have no scale; what is left of their differences is rounding, and must not be divided by."""
    row = np.random.default_rng(0).normal(size=100)
    rule, mask = InformationPay(COST), library.mask(np.ones(8))
    state = told(known(rule, 8), ratio)
    gradients, prediction = library.array(np.tile(row, (8, 1))), library.array(np.zeros(100))
    pay = settle_compiled if library.name == "jax" else settle
    payments, after = pay(rule, state, gradients, mask, prediction, 8)
    assert (np.asarray(payments.status) == Status.NO_VARIANCE).all()
    assert (np.asarray(payments.released) == 0).all()
    np.testing.assert_array_equal(after.rule.weight, state.rule.weight)  # nothing is learned from them either


def test_everybody_sends_the_prediction() -> None:
    rule, mask, prediction = InformationPay(COST), np.ones(4, bool), np.array([1.0, -2.0, 1e5])
    payments, state = settle(rule, known(rule, 4), np.tile(prediction, (4, 1)), mask, prediction, 8)
    assert (payments.status == Status.NO_VARIANCE).all()
    rest = flatten_state(state)
    assert all((rest.pop(name) == 1).all() for name in ("trust.tenure", "trust.founder"))
    assert not any(part.any() for part in rest.values())


# Who is compared with whom.


@pytest.mark.parametrize(
    ("tenure", "judges"),
    [
        ((0, 0, 0, 0, 0), (1, 1, 1, 1, 1)),  # a run begins
        ((10, 9, 3, 0, 0), (1, 1, 1, 1, 1)),  # and not all take part in every round
        ((30, 30, 30, 9, 10), (1, 1, 1, 0, 1)),
        ((500, 400, 300, 19, 20), (1, 1, 1, 0, 1)),
        ((500, 400, 0, 0, 0), (1, 1, 1, 1, 1)),  # two cannot judge alone
    ],
)
def test_newcomers_judge_nobody(tenure: tuple[int, ...], judges: tuple[int, ...]) -> None:
    everybody = np.ones(5, dtype=bool)
    trust = InformationPay(COST).trust
    state = trust.init(5)._replace(tenure=np.array(tenure, float), founder=np.ones(5))
    np.testing.assert_array_equal(trust.reference(state, everybody), judges)
    assert InformationPay(COST, probation=0).trust.reference(state, everybody).all()


def test_who_joined_later_judges_only_while_its_reports_tell_something() -> None:
    """A founder need not be cleared; a newcomer is, by three standard errors, and loses it when it stops working."""
    trust, everybody, nobody = InformationPay(COST).trust, np.ones(5, dtype=bool), np.zeros(5)
    state = trust.init(5)._replace(tenure=np.full(5, 40.0), founder=np.array([1.0, 1, 1, 0, 0]))
    assert (trust.reference(state, everybody) == [1, 1, 1, 0, 0]).all()
    agrees = state._replace(agreed=nobody + 3.1, agreed_squares=nobody + 1)
    assert trust.reference(agrees, everybody).all()
    assert (trust.reference(agrees._replace(agreed=nobody + 2.9), everybody) == [1, 1, 1, 0, 0]).all()
    few = np.array([False, False, True, True, True])
    assert (trust.reference(state, few) == few).all()  # one founder cannot judge alone
    most = state._replace(founder=np.array([1.0, 1, 0, 0, 0]))
    assert trust.reference(most, everybody).all()  # nor can two of five


def test_agreement_is_a_decayed_sum_of_cosines_with_the_others_mean() -> None:
    rule, rng, mask = InformationPay(COST, limit=INFINITY), np.random.default_rng(5), np.ones(AGENTS, bool)
    state, agreed, squares = known(rule), np.zeros(AGENTS), np.zeros(AGENTS)
    for _ in range(3):
        v = 1 + rng.normal(size=(AGENTS, DIM))
        means = (v.sum(axis=0) - v) / (AGENTS - 1)
        cosine = (v * means).sum(axis=1) / np.linalg.norm(v, axis=1) / np.linalg.norm(means, axis=1)
        agreed, squares = 0.9 * agreed + cosine, 0.81 * squares + cosine**2
        _, state = settle(rule, state, v, mask, np.zeros(DIM), 8)
    np.testing.assert_allclose([state.trust.agreed, state.trust.agreed_squares], [agreed, squares], rtol=1e-5)
    assert (state.trust.founder == 1).all()


def test_a_doubted_agent_does_not_move_the_others() -> None:
    """They are paid as if he were absent, whatever he sends; he himself is still paid by what he sends."""
    rule, rng = InformationPay(COST, limit=INFINITY), np.random.default_rng(4)
    gradients, prediction = 1 + rng.normal(size=(AGENTS, DIM)), rng.normal(size=DIM)
    mask, state = np.ones(AGENTS, bool), told(doubting(known(rule), 2), 0.3)
    absent = mask & (np.arange(AGENTS) != 2)
    without, forgotten = settle(rule, state, gradients, absent, prediction, 8)
    seen = set[float]()
    for factor in (0.0, 1.0, -5.0, 1e3):
        changed = gradients.copy()
        changed[2] = prediction + factor * (gradients[2] - prediction)
        payments, after = settle(rule, state, changed, mask, prediction, 8)
        np.testing.assert_allclose(payments.released[absent], without.released[absent], rtol=1e-9)
        np.testing.assert_allclose(after.rule.signal, forgotten.rule.signal, rtol=1e-9)
        assert payments.status[2] == Status.PAID
        seen.add(float(payments.released[2]))
    assert len(seen) == 4


def test_the_reference_follows_the_evidence() -> None:
    trust, everybody = InformationPay(COST, doubt=10.0).trust, np.ones(5, bool)
    state = trust.init(5)
    assert trust.reference(state, everybody).all()
    wealth = np.full((len(BETS), len(TESTS), 5), np.log(9.99))
    wealth[..., 1] = np.log(10.01)
    state = state._replace(wealth=wealth)
    assert trust.reference(state, everybody).tolist() == [True, False, True, True, True]
    present = np.array([True, True, True, False, False])
    assert trust.reference(state, present).tolist() == present.tolist()  # only two trusted are here
    assert Trust(doubt=INFINITY).reference(state, everybody).all()


def test_a_round_of_one_other_is_not_remembered() -> None:
    rule = InformationPay(COST)
    gradients, mask = np.random.default_rng(5).normal(size=(4, 3)), np.array([True, True, True, False])
    _, state = settle(rule, known(rule, 4), gradients, mask, np.zeros(3), 8)
    assert (state.rule.weight == 1).all()  # of two others each; of three for who was absent
    _, later = settle(rule, state, gradients, np.array([True, True, False, False]), np.zeros(3), 8)
    np.testing.assert_array_equal(later.rule.weight, [1, 1, 1.7, 1.7])
    np.testing.assert_array_equal(later.rule.signal[:2], state.rule.signal[:2])


# The same on every library, and however JAX runs it.


@without_jax
def test_array_libraries_agree(library: Library) -> None:
    expected = play(InformationPay(COST), rounds(), (2,))
    with library.precision():
        converted = [
            (library.array(gradients), library.mask(mask), library.array(prediction), nu)
            for gradients, mask, prediction, nu in rounds()
        ]
        for one, other in zip(play(InformationPay(COST), converted, (2,)), expected, strict=True):
            for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
                loose = 1e-10 if library.dtype == "float64" else 3e-4
                np.testing.assert_allclose(np.asarray(a), b, rtol=loose, atol=loose * 10)


def test_jit_and_vmap_change_nothing() -> None:
    def mapped(function: Any) -> Any:
        lift: Any = lambda tree: jax.tree.map(lambda x: jnp.asarray(x)[None], tree)  # noqa: E731
        compiled = jax.jit(jax.vmap(function))
        return lambda *arguments: jax.tree.map(lambda x: x[0], compiled(*map(lift, arguments)))

    with jax.enable_x64(True):
        expected = play(InformationPay(COST), rounds(), (2,))
        for one, other in zip(play(InformationPay(COST), rounds(), (2,), mapped), expected, strict=True):
            for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
                np.testing.assert_allclose(np.asarray(a), b, rtol=1e-9, atol=1e-9)


# The bound, and what a round says of ‖m − p‖² and σ².


@pytest.mark.parametrize(
    ("cost", "request_", "expected"),
    [
        (COST, 16, 256.0),
        (AffineCost(2, 3), 8, 96.0),
        (AffineCost(0, 1), 8, INFINITY),
        (AffineCost(1, 2), 1, 2.0),
        (PowerCost(1, 2, 0), 4, INFINITY),  # h − νh' = −16: public knowledge loses at any noise scale
        (PowerCost(1, 2, 20), 4, 32.0),
    ],
)
def test_the_bound_is_where_public_knowledge_earns_nothing(cost: Cost, request_: int, expected: float) -> None:
    bound = noise_scale_bound(cost, request_)
    assert bound == pytest.approx(expected)
    assert isinstance(bound, float)
    if expected < INFINITY:
        loss = request_ * cost.slope(request_) * (1 + request_ / bound)
        assert cost(request_) - loss == pytest.approx(0.0, abs=1e-9)
    many = noise_scale_bound(cost, jnp.asarray([request_, request_]))
    np.testing.assert_allclose(many, [expected] * 2, rtol=1e-6)


def test_the_prediction_error_agrees_with_the_definition() -> None:
    gradients, _, prediction, _ = rounds()[3]
    mask, reference = np.array([True] * 5 + [False]), np.array([True, True, False, True, True, True])
    evidence = gather(gradients, mask, prediction, reference)
    signal, variance, said = prediction_error(evidence, reference, 8)
    v = {k: gradients[k] - prediction for k in (0, 1, 3, 4)}
    assert said
    assert float(signal) == pytest.approx(mean_product(v, list(v)))
    assert float(variance) == pytest.approx(8 * (mean_length(v, list(v)) - mean_product(v, list(v))))
    lonely = np.arange(6) == 0
    signal, variance, said = prediction_error(gather(gradients, lonely, prediction), lonely, 8)
    assert (float(signal), float(variance), bool(said)) == (0.0, 0.0, False)


# What is refused.


@pytest.mark.parametrize(
    ("numbers", "error", "message"),
    [
        ({"decay": -0.1}, ValueError, "`decay` must be a finite number of at least 0, got -0.1"),
        ({"decay": 1.1}, ValueError, "`decay` must be at most 1, got 1.1"),
        ({"decay": float("nan")}, ValueError, "`decay` must be a finite number of at least 0, got nan"),
        ({"decay": "0.5"}, TypeError, "`decay` must be a finite number of at least 0, got '0.5'"),
        ({"decay": None}, TypeError, "`decay` must be a finite number of at least 0, got None"),
        ({"least": 0.0}, ValueError, "`least` must be a finite number above 0, got 0.0"),
        ({"least": 1.5}, ValueError, "`least` must be at most 1, got 1.5"),
        ({"least": True}, TypeError, "`least` must be a finite number above 0, got True"),
        ({"doubt": 0.5}, ValueError, "`doubt` must be a finite number of at least 1, got 0.5"),
        ({"doubt": -INFINITY}, ValueError, "`doubt` must be a finite number of at least 1, got -inf"),
        ({"doubt": float("nan")}, ValueError, "`doubt` must be a finite number of at least 1, got nan"),
        ({"doubt": "many"}, TypeError, "`doubt` must be a finite number of at least 1, got 'many'"),
        ({"limit": 0.9}, ValueError, "`limit` must be a finite number of at least 1, got 0.9"),
        ({"limit": None}, TypeError, "`limit` must be a finite number of at least 1, got None"),
    ],
)
def test_bad_numbers_are_refused(numbers: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        InformationPay(COST, **numbers)


def test_pooled_knowledge_is_the_same_for_all_and_for_newcomers() -> None:
    """A newcomer's a is not taken from its own first round: with it, sending the prediction paid at once."""
    rule = InformationPay(COST, decay=0.9, pooled=True)
    everybody, state = np.ones(6, dtype=bool), rule.init(6)
    rng = np.random.default_rng(0)
    for _ in range(10):
        evidence = gather(1 + rng.normal(size=(6, 20)), everybody, np.zeros(20))
        _, state = rule.pay(state, round_of(evidence, everybody, 8))
    one = round_of(gather(1 + rng.normal(size=(6, 20)), everybody, np.zeros(20)), everybody, 8)
    expected = rule.pay(state, one)[0].released
    fresh = rule.init(6)
    joined = type(state)(*(np.where(np.arange(6) == 5, new, old) for old, new in zip(state, fresh, strict=True)))
    found = rule.pay(joined, one)[0].released
    np.testing.assert_allclose(found, expected, rtol=0.1)
    alone = InformationPay(COST, decay=0.9)
    assert abs(alone.pay(joined, one)[0].released[5] / expected[5] - 1) > 0.1
    assert about(InformationPay).from_settings(InformationPay, COST, about(rule).settings(rule)) == rule
    assert (about(rule).settings(rule)["pooled"], about(alone).settings(alone)["pooled"]) == (True, False)
    assert about(InformationPay).from_settings(InformationPay, COST, about(alone).settings(alone)) == alone


def test_it_warns_where_the_noise_scale_is_far_above_the_request() -> None:
    """As a price the score is sound where B is about ν; here ν = 8 and B = 4, 400, and nothing is said too early."""
    for surprise, told in ((2.5, ""), (0.25, NOT_SOUND)):
        rule, rng = InformationPay(COST), np.random.default_rng(0)
        everybody, state = np.ones(8, dtype=bool), rule.init(8)
        for number in range(14):
            direction = rng.normal(size=25)
            reports = surprise * direction / np.linalg.norm(direction) + rng.normal(size=(8, 25)) / 8**0.5
            assert number > 8 or about(rule).advice(rule, state, 8) == ""
            _, state = rule.pay(state, round_of(gather(reports, everybody, np.zeros(25)), everybody, 8))
        assert about(rule).advice(rule, state, 8) == told
