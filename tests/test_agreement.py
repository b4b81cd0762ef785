"""The payment rules against the paper's formulas, and every edge case by its definition."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import (
    AffineCost,
    EstimatedVariance,
    FixedRequest,
    FlatPay,
    InformationPay,
    KnownVariance,
    OutputAgreement,
    Payments,
    PowerCost,
    Status,
    WitnessedPay,
    explain,
    gather,
    round_of,
)
from guerdon.agreement import Crowd, VarianceRule
from guerdon.lab.arena.balanced import BalancedVariance
from guerdon.lab.truth import GenieAided
from guerdon.rule import Rule
from guerdon.settling import with_scale
from guerdon.states import NoState
from guerdon.statistical.servers import server_for
from tests.support import paper_oracle as oracle
from tests.support.libraries import Library, without_jax

COST = AffineCost(1, 1)


def pay(rule: Rule, gradients: Any, mask: Any, request: int = 8, state: Any = None) -> tuple[Payments, Any]:
    state = rule.init(len(mask)) if state is None else state
    return rule.pay(state, round_of(gather(gradients, mask), mask, request))


def statuses(payments: Payments) -> list[str]:
    return [Status(int(code)).label for code in payments.status]


def normal(agents: int, dim: int = 4, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(agents, dim))


VARIANCES: dict[str, tuple[VarianceRule, Any]] = {
    "known": (KnownVariance(3.0), 3.0),
    "estimated": (EstimatedVariance(), "estimated"),
    "balanced": (BalancedVariance(), "shared"),
}


@without_jax
@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("crowd", ["present", "enrolled"])
@settings(max_examples=25)
@given(data=st.data())
def test_agrees_with_the_paper(library: Library, variance: str, crowd: Crowd, data: st.DataObject) -> None:
    """Any agents, dimensions, masks and requests, over several rounds; whole numbers make ties and zeros common."""
    kind, name = VARIANCES[variance]
    cost = data.draw(st.sampled_from([COST, PowerCost(0.5, 2, 1)]))
    agents, dim = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 4))
    rule = OutputAgreement(cost, kind, crowd)
    slow = oracle.PaperRule(cost, name, crowd, decay=0.6)
    state = rule.init(agents)
    numbers = st.lists(st.integers(-5, 5), min_size=agents * dim, max_size=agents * dim)
    for _ in range(data.draw(st.integers(1, 4))):
        gradients = np.array(data.draw(numbers), dtype=float).reshape(agents, dim)
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=agents, max_size=agents)))
        request = data.draw(st.integers(1, 20))
        expected = slow.pay(gradients, mask, request)
        with library.precision():
            payments, state = pay(rule, library.array(gradients), library.mask(mask), request, state)
        # The others' squares are a difference: rounding grows as they shrink beside everybody's.
        worst = np.max(np.abs(expected)) + cost(request) + request * cost.slope(request)
        np.testing.assert_allclose(
            np.asarray(payments.released), expected, rtol=0, atol=200 * library.tolerance * worst
        )


def test_the_paper_s_numbers_by_hand() -> None:
    gradients = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]])
    payments, _ = pay(OutputAgreement(COST, KnownVariance(16.0)), gradients, [True] * 3)
    # m₋₁ = (1.5, 1.5), D₁ = 4.5; R₁ = 9 + (8·3/2 − 64/16·4.5) = 3
    assert payments.squared_distance.tolist() == [4.5, 4.5, 9.0]
    assert payments.expected.tolist() == [3.0, 3.0, 3.0]
    assert payments.released.tolist() == [3.0, 3.0, -15.0]
    estimated, _ = pay(OutputAgreement(COST, EstimatedVariance()), gradients, [True] * 3)
    # σ̂²₋₃ = 8/1·2 = 16, so the third is paid as if 16 were known
    assert estimated.variance[2] == 16.0
    assert estimated.released[2] == -15.0


def test_every_reward_follows_from_what_is_recorded_with_it() -> None:
    for kind, _ in VARIANCES.values():
        rule = OutputAgreement(PowerCost(0.5, 2, 1), kind)
        _, state = pay(rule, normal(6), [True] * 6, 5)
        payments, _ = pay(rule, normal(6, seed=1), [True, True, False, True, True, True], 7, state)
        h, slope = rule.cost(7), rule.cost.slope(7)
        again = h + slope * 49 / payments.variance * (payments.expected - payments.squared_distance)
        paid = payments.status == Status.PAID
        np.testing.assert_allclose(payments.released[paid], again[paid], rtol=1e-12)


def test_nobody_takes_part() -> None:
    for rule in (FlatPay(COST), *(OutputAgreement(COST, kind) for kind, _ in VARIANCES.values())):
        payments, _ = pay(rule, normal(3), [False] * 3)
        assert statuses(payments) == ["declined"] * 3
        assert payments.released.tolist() == [0.0] * 3
        assert np.isnan(payments.squared_distance).all()


def test_one_participant_is_alone_and_paid_nothing() -> None:
    for rule, _ in VARIANCES.values():
        payments, _ = pay(OutputAgreement(COST, rule), normal(3), [False, True, False])
        assert statuses(payments) == ["declined", "alone", "declined"]
        assert payments.released.tolist() == [0.0] * 3
    flat, _ = pay(FlatPay(COST), normal(3), [False, True, False])
    assert flat.released.tolist() == [0.0, 9.0, 0.0]


def test_two_participants_can_be_paid_only_where_the_variance_is_known() -> None:
    mask = [True, False, True]
    known, _ = pay(OutputAgreement(COST, KnownVariance(4.0)), normal(3), mask)
    assert statuses(known) == ["paid", "declined", "paid"]
    for rule in (EstimatedVariance(), BalancedVariance()):
        payments, _ = pay(OutputAgreement(COST, rule), normal(3), mask)
        assert statuses(payments) == ["too-few", "declined", "too-few"]
        assert payments.released.tolist() == [0.0] * 3


def test_identical_gradients() -> None:
    same = np.tile(normal(1), (4, 1))
    everybody = [True] * 4
    known, _ = pay(OutputAgreement(COST, KnownVariance(4.0)), same, everybody)
    np.testing.assert_allclose(known.released, 9 + 8 * 4 / 3)  # distance 0: the most that this rule ever pays
    for rule in (EstimatedVariance(), BalancedVariance()):
        payments, _ = pay(OutputAgreement(COST, rule), same, everybody)
        assert statuses(payments) == ["no-variance"] * 4
        assert payments.released.tolist() == [0.0] * 4


def test_an_agent_far_out_among_identical_others_gets_a_finite_number() -> None:
    gradients = np.tile(normal(1), (4, 1))
    gradients[2] += 1
    payments, _ = pay(OutputAgreement(COST, EstimatedVariance()), gradients, [True] * 4)
    assert statuses(payments) == ["paid"] * 4
    assert -1e9 < payments.released[2] < -1e5


def test_the_balanced_rule_shares_a_fixed_sum() -> None:
    for agents in (3, 5, 10):
        gradients = normal(agents)
        payments, _ = pay(OutputAgreement(COST, BalancedVariance()), gradients, [True] * agents)
        dev = gather(gradients, [True] * agents).squared_deviation
        closed = 9 + 8 * agents / (agents - 2) * (1 - agents * dev / dev.sum())
        np.testing.assert_allclose(payments.released, closed, rtol=1e-12)
        np.testing.assert_allclose(payments.released.sum(), 9 * agents, rtol=1e-12)


def test_garbage_cannot_drag_the_others_down_under_the_balanced_rule() -> None:
    gradients = normal(6)
    gradients[5] *= 1e9
    payments, _ = pay(OutputAgreement(COST, BalancedVariance()), gradients, [True] * 6)
    np.testing.assert_allclose(payments.released[:5], 9 + 8 * 6 / 5, rtol=1e-3)
    np.testing.assert_allclose(payments.released[5], 9 - 8 * 6, rtol=1e-3)


def test_absence_costs_the_present_under_the_literal_rule_only() -> None:
    """With 5 of 10 present, K/(K−1) underpays by ν·(5/4 − 10/9) ≈ 1.1 a round at ν = 8."""
    mask = np.arange(10) < 5
    told = round_of(gather(normal(10), mask), mask, 8)
    rewards = [
        OutputAgreement(COST, KnownVariance(4.0), crowd).pay(NoState(), told)[0].released
        for crowd in ("present", "enrolled")
    ]
    np.testing.assert_allclose((rewards[0] - rewards[1])[mask], 8 * (5 / 4 - 10 / 9), rtol=1e-12)


def test_flat_pay_pays_for_anything() -> None:
    gradients = normal(4)
    gradients[1], gradients[2, 0] = 1e6, np.nan
    payments, _ = pay(FlatPay(COST), gradients, [True, True, True, False])
    assert payments.released.tolist() == [9.0, 9.0, 0.0, 0.0]
    assert statuses(payments) == ["paid", "paid", "invalid", "declined"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: KnownVariance(0.0), "`variance` must be a finite number above 0, got 0.0"),
        (lambda: KnownVariance(np.inf), "`variance` must be a finite number above 0, got inf"),
        (lambda: OutputAgreement(COST, crowd="all"), "`crowd` must be one of 'present', 'enrolled', got 'all'"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_parameters_are_checked(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: OutputAgreement(COST, 16.0), r"such as EarlierRounds\(\), .* got 16.0: give KnownVariance\(16.0\)"),  # pyright: ignore[reportArgumentType]
        (lambda: OutputAgreement(COST, "known"), r"such as EarlierRounds\(\), .* got 'known'$"),  # pyright: ignore[reportArgumentType]
        (lambda: OutputAgreement(COST, KnownVariance), "`variance` must say where σ² comes from"),  # pyright: ignore[reportArgumentType]
        (lambda: GenieAided(COST, 16.0), r"such as KnownVariance\(16.0\), got 16.0: give KnownVariance\(16.0\)"),
    ],
)
def test_a_variance_is_no_number(build: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        build()


def test_evidence_must_come_from_gather() -> None:
    rule = OutputAgreement(COST)
    evidence: Any = gather(normal(3), [True] * 3)._replace(squared_deviation=[1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match="`evidence` must come from `gather`, got list"):
        rule.pay(rule.init(3), round_of(evidence, np.ones(3, dtype=bool), 8))


def test_explanations_are_in_plain_words() -> None:
    gradients = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 1.5], [0, 0], [np.nan, 0]])
    mask = np.array([True, True, True, False, True])
    payments, _ = pay(OutputAgreement(COST, KnownVariance(16.0)), gradients, mask)
    assert explain(OutputAgreement(COST, KnownVariance(16.0)), payments, 8) == [
        "9 for the 8 samples asked for, plus 0.75: at distance 2.812, closer to the others than the 3 of honest work",
        "9 for the 8 samples asked for, plus 0.75: at distance 2.812, closer to the others than the 3 of honest work",
        "9 for the 8 samples asked for, plus 3: at distance 2.25, closer to the others than the 3 of honest work",
        "nothing: it did not take part",
        "nothing: what it sent cannot be used (NaN, infinity, too large, malformed or a copy); it counts as absent",
    ]
    flat, _ = pay(FlatPay(COST), gradients, mask)
    assert explain(FlatPay(COST), flat, 8)[0] == "9 for the 8 samples asked for, whatever was sent"


def test_every_status_has_a_label_and_a_reason() -> None:
    assert [status.label for status in Status] == [
        "paid", "declined", "alone", "too-few", "no-variance", "invalid", "waiting",
    ]  # fmt: skip
    assert [status.label for status in Status if status.is_paid] == ["paid", "waiting"]
    nothing = np.full(len(Status), np.nan)
    payments = Payments(np.zeros(len(Status)), np.zeros(len(Status)), nothing, nothing, nothing, np.arange(len(Status)))
    for rule in (OutputAgreement(COST), InformationPay(COST), FlatPay(COST)):
        assert all(explain(rule, payments, 8))


def test_what_is_settled_of_earlier_rounds_is_said() -> None:
    nothing, status = np.full(5, np.nan), np.array([6, 6, 1, 5, 6])
    reward = np.array([9.0, 12.5, -3.2, 4.0, 13.5])
    payments = Payments(reward, reward, nothing, nothing, nothing, status)
    assert explain(OutputAgreement(COST), payments, 8, [1, 1, 1, 1, 1.5]) == [
        "9 for the 8 samples asked for; the extra of this round follows when distances have a scale",
        "9 for the 8 samples asked for, plus 3.5 of earlier rounds; the extra of this round follows when distances "
        "have a scale",
        "-3.2, the extra of earlier rounds: it did not take part in this one",
        "4, the extra of earlier rounds: what it sent cannot be used (NaN, infinity, too large, malformed or a copy); "
        "it counts as absent",
        "13.5 for the 8 samples asked for (1.5 times the usual 9); the extra of this round follows when distances have "
        "a scale",
    ]


def waiting(agents: int, reward: float = 9.0) -> Payments:
    """Return payments of a round that waits for a scale."""
    nothing = np.full(agents, np.nan)
    return Payments(
        np.full(agents, reward),
        np.full(agents, reward),
        nothing,
        nothing,
        nothing,
        np.full(agents, Status.WAITING.value),
    )


def test_two_members_are_told_that_they_cannot_be_compared() -> None:
    """Before a scale is known and after; also where the round settles earlier ones."""
    rule, gradients, everybody = OutputAgreement(COST), normal(2), np.ones(2, dtype=bool)
    two = "only two took part, or all reports were the same: they cannot be compared, and are paid their cost"
    states = rule.init(2), with_scale(rule.init(2), 20.0)
    told = round_of(gather(gradients, everybody), everybody, 8)
    first, later = (rule.pay(state, told)[0] for state in states)
    for paid in (first, later):
        assert statuses(paid) == ["paid", "paid"]
        assert explain(rule, paid, 8) == [f"9 for the 8 samples asked for; {two}"] * 2
    settling = later._replace(released=np.array([11.5, 6.5]))
    assert explain(rule, settling, 8)[0] == f"9 for the 8 samples asked for, plus 2.5 of earlier rounds; {two}"
    witnessed = explain(WitnessedPay(COST), waiting(2), 8)[0]  # which compares nobody with another member
    assert witnessed.endswith("the extra of this round follows when distances have a scale")


@pytest.mark.parametrize("rule", [OutputAgreement(COST), WitnessedPay(COST)])
def test_nothing_follows_the_last_round(rule: Rule) -> None:
    assert "follows when distances have a scale" in explain(rule, waiting(3), 8)[0]
    assert explain(rule, waiting(3), 8, is_last=True)[0] == (
        "9 for the 8 samples asked for; no extra follows: this was the last round, and there is no scale for distances"
    )


def test_a_distance_that_was_cut_is_said_to_be() -> None:
    """1e6 lies 500 from the others: that is what it counts for, at 2V/(ν·rarest)."""
    rule, gradients = OutputAgreement(COST), normal(4)
    gradients[3] *= 1e6
    server = server_for(rule, FixedRequest(8, 0.1), alike=True)
    state = server.init(np.zeros(gradients.shape[1]), 4)
    ask, state = server.ask(state._replace(rule=with_scale(state.rule, 20.0)), np.zeros(gradients.shape[1]))
    done, _ = server.settle(state, ask, gradients, np.ones(4, dtype=bool))
    words = explain(rule, done.payments, 8)
    assert ": 500 from the others, more than the " in words[3]
    assert all(why.endswith(" between them (no distance counts for more than 500)") for why in words)
    done, _ = server.settle(state, ask, gradients[[0, 1, 2, 0]], np.ones(4, dtype=bool))
    assert not any("counts for more" in why for why in explain(rule, done.payments, 8))


def test_equal_distances_are_called_equal() -> None:
    rule, everybody = OutputAgreement(COST), np.ones(3, dtype=bool)
    paid, _ = rule.pay(with_scale(rule.init(3), 20.0), round_of(gather(np.eye(3), everybody), everybody, 8))
    assert explain(rule, paid, 8)[0].endswith(": 2 from the others, as far as these lie from each other")
