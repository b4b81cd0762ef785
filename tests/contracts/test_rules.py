"""What every payment rule promises, on every array library and in every way JAX can run it."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from guerdon import (
    AffineCost,
    CalibratedAgreement,
    EstimatedVariance,
    FlatPay,
    InformationPay,
    KnownVariance,
    OutputAgreement,
    PowerCost,
    Status,
    SteadyPay,
    WitnessedPay,
    gather,
    round_of,
)
from guerdon.evidence import Evidence
from guerdon.lab.arena.balanced import BalancedVariance
from guerdon.lab.truth import GenieAided
from guerdon.rule import Need, Round, Rule, remembers
from guerdon.statistical.trust import trust_of
from tests.support.libraries import Library, without_jax

COST = AffineCost(1, 1)
MECHANISMS: dict[str, Any] = {
    "flat": FlatPay(COST),
    "known": OutputAgreement(COST, KnownVariance(24.0)),
    "known-enrolled": OutputAgreement(COST, KnownVariance(24.0), crowd="enrolled"),
    "estimated": OutputAgreement(PowerCost(0.5, 2, 1), EstimatedVariance()),
    "estimated-enrolled": OutputAgreement(COST, EstimatedVariance(), crowd="enrolled"),
    "agreement": OutputAgreement(COST),
    "balanced": OutputAgreement(COST, BalancedVariance()),
    "balanced-enrolled": OutputAgreement(COST, BalancedVariance(), crowd="enrolled"),
    "calibrated": CalibratedAgreement(COST, calibration=2),
    "calibrated, varied requests": CalibratedAgreement(COST, calibration=2, vary=0.25),
    "witnessed": WitnessedPay(COST, 64),
    "genie": GenieAided(COST, KnownVariance(24.0)),
    "steady": SteadyPay(COST, period=2, doubt=1.1),
    "information": InformationPay(COST, decay=0.9, least=0.2, doubt=1.1),  # which doubts some from the second round on
}
every_mechanism = pytest.mark.parametrize("rule", MECHANISMS.values(), ids=MECHANISMS)
every_name = pytest.mark.parametrize("name", MECHANISMS)

AGENTS, DIM = 6, 7
REQUESTS = [8, 8, 3, 16]


def rounds(seed: int = 0) -> list[tuple[Any, Any, int]]:
    """Four rounds of gradients, masks and requests; somebody is absent in some."""
    rng = np.random.default_rng(seed)
    masks = rng.random((len(REQUESTS), AGENTS)) < 0.8
    masks[0] = True
    return [(3 + rng.normal(size=(AGENTS, DIM)), mask, nu) for mask, nu in zip(masks, REQUESTS, strict=True)]


def begun(rule: Rule, agents: int) -> tuple[Any, Any]:
    """Return the states of a rule, and of its trust, before the first round."""
    trust = trust_of(rule)
    return rule.init(agents), trust and trust.init(agents)


def compare(rule: Rule, trust: Any, gradients: Any, mask: Any, nu: Any) -> tuple[Round, Any]:
    """Return the round as a server tells it to a rule, and the next state of the rule's trust."""
    plain = gather(gradients, mask)
    keeper = trust_of(rule)
    if keeper is None:
        return round_of(plain, mask, nu), None
    trusted = keeper.reference(trust, plain.counted)
    evidence = gather(gradients, mask, None, trusted)
    return round_of(evidence, mask, nu, trusted), keeper.learn(trust, evidence, trusted, nu)


def play(rule: Rule, played: list[tuple[Any, Any, int]]) -> list[Any]:
    """Return the payments of each round, as NumPy arrays."""
    (state, trust), results = begun(rule, len(played[0][1])), []
    for gradients, mask, nu in played:
        told, trust = compare(rule, trust, gradients, mask, nu)
        payments, state = rule.pay(state, told)
        results.append([np.asarray(part) for part in payments])
    return results


def play_in_jax(rule: Rule, to_mask: Any) -> list[Any]:
    """Return the same from NumPy's evidence, paid by JAX. What `gather` does in JAX has its own tests."""
    (state, trust), results = begun(rule, AGENTS), []
    for gradients, mask, nu in rounds():
        told, trust = compare(rule, trust, gradients, mask, nu)
        *numbers, counted = told.evidence
        evidence = Evidence(*(jax.numpy.asarray(x) for x in numbers), counted=to_mask(counted))
        payments, state = rule.pay(state, round_of(evidence, to_mask(mask), nu, to_mask(told.trusted)))
        assert all(isinstance(part, jax.Array) for part in (*payments, *jax.tree.leaves(state)))
        results.append([np.asarray(part) for part in payments])
    return results


def assert_same(left: list[Any], right: list[Any], tolerance: float) -> None:
    for one, other in zip(left, right, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * 100)


@every_mechanism
@without_jax
def test_array_libraries_agree(rule: Rule, library: Library) -> None:
    converted = [(library.array(g), library.mask(m), nu) for g, m, nu in rounds()]
    assert_same(play(rule, converted), play(rule, rounds()), library.tolerance)


@every_mechanism
@pytest.mark.parametrize("to_mask", [jax.numpy.asarray, np.asarray], ids=["jax", "numpy"])
def test_jax_agrees_with_masks_of_any_library(rule: Rule, to_mask: Any) -> None:
    assert_same(play_in_jax(rule, to_mask), play(rule, rounds()), 3e-6)


@cache
def compiled() -> dict[str, Any]:
    """Return what every rule pays in two runs of four rounds: scanned, mapped over the runs and compiled as one."""

    def step(states: Any, played: Any) -> Any:
        after, paid = dict[str, Any](), dict[str, Any]()
        for name, rule in MECHANISMS.items():
            state, trust = states[name]
            told, trust = compare(rule, trust, *played)
            paid[name], state = rule.pay(state, told)
            after[name] = state, trust
        return after, paid

    def run(gradients: Any, masks: Any) -> Any:
        states = {name: begun(rule, AGENTS) for name, rule in MECHANISMS.items()}
        return jax.lax.scan(step, states, (gradients, masks, np.array(REQUESTS)))[1]

    with jax.enable_x64(True):
        runs = [np.stack([[played[part] for played in rounds(seed)] for seed in (0, 1)]) for part in (0, 1)]
        return jax.tree.map(np.asarray, jax.jit(jax.vmap(run))(*runs))


@pytest.mark.slow
@every_name
def test_scanned_mapped_and_compiled_nothing_changes(name: str) -> None:
    for seed in (0, 1):
        results = [[part[seed, turn] for part in compiled()[name]] for turn in range(len(REQUESTS))]
        assert_same(results, play(MECHANISMS[name], rounds(seed)), 1e-12)


def first_rewards(gradients: Any) -> list[Any]:
    """Return what every rule pays the first agent in a first round of four."""
    here = np.array([True, False, True, True, False, True])
    told = round_of(gather(gradients, here), here, 8)
    return [rule.pay(rule.init(AGENTS), told)[0].released[0] for rule in MECHANISMS.values()]


@cache
def slopes() -> Any:
    """Return the derivatives of these rewards, (rules, agents, dim)."""
    with jax.enable_x64(True):
        return np.stack(jax.jit(jax.jacrev(first_rewards))(rounds()[1][0]))


@pytest.mark.slow
@every_name
def test_rewards_can_be_differentiated(name: str) -> None:
    gradients, nudge = rounds()[1][0], np.zeros((AGENTS, DIM))
    nudge[0, 2] = 1e-6
    index = list(MECHANISMS).index(name)
    higher, lower = (first_rewards(gradients + sign * nudge)[index] for sign in (1, -1))
    slope = slopes()[index]
    assert np.isfinite(slope).all()
    assert float(slope[0, 2]) == pytest.approx((higher - lower) / 2e-6, rel=1e-5, abs=1e-5)


# Where requests vary, who is asked for more depends on the agent's number.
@pytest.mark.parametrize("rule", [one for one in MECHANISMS.values() if not getattr(one, "vary", 0)])
def test_agents_can_be_permuted(rule: Rule) -> None:
    order = np.random.default_rng(1).permutation(AGENTS)
    permuted = [(g[order], m[order], nu) for g, m, nu in rounds()]
    expected = [[part[order] for part in payments] for payments in play(rule, rounds())]
    assert_same(play(rule, permuted), expected, 1e-12)


# The others measure from a point that does not move along.
@pytest.mark.parametrize(
    "name", [name for name, one in MECHANISMS.items() if isinstance(one, FlatPay | OutputAgreement)]
)
def test_a_common_vector_changes_nothing(name: str) -> None:
    shift = 1e3 * np.random.default_rng(2).normal(size=DIM)
    shifted = [(g + shift, m, nu) for g, m, nu in rounds()]
    assert_same(play(MECHANISMS[name], shifted), play(MECHANISMS[name], rounds()), 1e-11)


# Not where the evidence is without a unit already.
@pytest.mark.parametrize("name", [name for name, one in MECHANISMS.items() if Need.WITNESS not in one.needs])
def test_the_unit_of_gradients_does_not_matter(name: str) -> None:
    rule: Any = MECHANISMS[name]
    known = isinstance(getattr(rule, "variance", None), KnownVariance)
    scaled_mechanism = replace(rule, variance=KnownVariance(24.0 * 1e-3**2)) if known else rule
    scaled = play(scaled_mechanism, [(1e-3 * g, m, nu) for g, m, nu in rounds()])
    for one, other in zip(scaled, play(rule, rounds()), strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-9, atol=1e-9)


@every_mechanism
def test_an_invalid_gradient_counts_as_absence(rule: Rule) -> None:
    for poison in (np.nan, np.inf, -np.inf, 1e30, -1e200):
        spoiled, without = rounds(), rounds()
        for (gradients, mask, _), (_, absent, _) in zip(spoiled, without, strict=True):
            gradients[2, 3] = poison
            mask[2], absent[2] = True, False
        for one, other in zip(play(rule, spoiled), play(rule, without), strict=True):
            assert one[5][2] == Status.INVALID
            assert other[5][2] == Status.DECLINED
            for a, b in zip(one[:5], other[:5], strict=True):
                np.testing.assert_array_equal(a, b)  # exactly, not nearly


@every_mechanism
def test_what_the_absent_would_have_sent_does_not_matter(rule: Rule) -> None:
    filled = rounds()
    for gradients, mask, _ in filled:
        gradients[~mask] = np.nan
    for one, other in zip(play(rule, filled), play(rule, rounds()), strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


@every_mechanism
def test_nothing_is_changed_in_place(rule: Rule) -> None:
    gradients, mask, nu = rounds()[1]
    state = rule.init(AGENTS)
    before = [part.copy() for part in (gradients, mask, *jax.tree.leaves(state))]
    evidence = gather(gradients, mask)
    kept = [part.copy() for part in evidence]
    rule.pay(state, round_of(evidence, mask, nu))
    for a, b in zip([gradients, mask, *jax.tree.leaves(state), *evidence], before + kept, strict=True):
        np.testing.assert_array_equal(a, b)


@every_mechanism
@pytest.mark.parametrize("present", [0, 1, 2])
def test_almost_nobody_takes_part(rule: Rule, present: int) -> None:
    gradients, mask, nu = rounds()[0]
    mask = np.arange(AGENTS) < present
    payments, state = rule.pay(rule.init(AGENTS), round_of(gather(gradients, mask), mask, nu))
    assert (payments.released[~mask] == 0).all()
    assert (payments.status[~mask] == Status.DECLINED).all()
    assert np.isfinite(payments.released).all()
    assert all(np.isfinite(part).all() for part in jax.tree.leaves(state))
    again, _ = rule.pay(state, round_of(gather(gradients, ~mask), ~mask, nu))
    assert np.isfinite(again.released).all()


@every_mechanism
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"request": -3}, ValueError, "`request` must be a positive integer, got -3"),
        ({"request": 0}, ValueError, "`request` must be a positive integer, got 0"),
        ({"request": 2.5}, TypeError, "`request` must be a positive integer, got 2.5"),
        ({"request": True}, TypeError, "`request` must be a positive integer, got True"),
        ({"request": "8"}, TypeError, "`request` must be a positive integer, got '8'"),
        ({"request": np.array([8, 8])}, TypeError, "`request` must be a positive integer, one for all members of a"),
        ({"agents": 5}, ValueError, "`state` must be of the 6 agents of this round, got one of 5"),
        ({"mask": np.ones(AGENTS)}, TypeError, "`sent` must be an array of booleans, got dtype float64"),
        ({"mask": np.ones(4, bool)}, ValueError, r"`sent` must have shape \(6,\).*got \(4,\)"),
        ({"mask": np.zeros(AGENTS, bool)}, ValueError, "must be the mask that `evidence` was gathered with"),
        ({"trusted": np.ones(4, bool)}, ValueError, r"`trusted` must have shape \(6,\).*got \(4,\)"),
        ({"nobody": True, "trusted": np.arange(AGENTS) < 1}, ValueError, "`trusted` must be agents that `evidence`"),
    ],
)
def test_bad_input_never_gives_a_number(
    rule: Rule, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    gradients, mask, nu = rounds()[0]
    if "agents" in change and not remembers(rule):
        return  # it has no state that could be of others
    state, mask = rule.init(change.get("agents", AGENTS)), mask & ("nobody" not in change)
    told = round_of(gather(gradients, mask), mask, nu)._replace(
        sent=change.get("mask", mask), request=change.get("request", nu), trusted=change.get("trusted", mask)
    )
    with pytest.raises(error, match=message):
        rule.pay(state, told)


@every_mechanism
@pytest.mark.parametrize("num_agents", [0, -1, 2.0, None, "3"])
def test_the_number_of_agents_is_checked(rule: Rule, num_agents: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="`num_agents` must be a positive integer"):
        rule.init(num_agents)


@every_mechanism
@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ("1 + s", r"`cost` must be a cost, such as AffineCost\(1, 1\), got '1 \+ s': give ExpressionCost\('1 \+ s'\)"),
        (17.0, r"`cost` must be a cost, .* got 17.0: give ExpressionCost\(\"1 \+ s\"\) for any formula"),
        (AffineCost, "`cost` must be a cost"),
        (lambda s: s, "`cost` must be a cost"),
    ],
)
def test_what_is_no_cost_is_refused_at_once(rule: Any, cost: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        replace(rule, cost=cost)


@every_mechanism
@pytest.mark.parametrize("state", [None, np.zeros(AGENTS), {}], ids=["none", "array", "dict"])
def test_a_state_that_is_none_is_refused(rule: Rule, state: Any) -> None:
    sent, mask, request = rounds()[0]
    with pytest.raises(TypeError, match=r"`state` must be .*, got .*: begin with the rule's `init\(num_agents\)`"):
        rule.pay(state, round_of(gather(sent, mask), mask, request))


@every_mechanism
def test_a_rule_that_remembers_refuses_the_state_of_another(rule: Rule) -> None:
    sent, mask, request = rounds()[0]
    if remembers(rule):
        with pytest.raises(TypeError, match=r"`state` must be of type .*State, got NoState: begin with"):
            rule.pay(FlatPay(COST).init(AGENTS), round_of(gather(sent, mask), mask, request))


@every_mechanism
def test_a_traced_request_must_be_whole_too(rule: Rule) -> None:
    gradients, mask, _ = rounds()[0]
    evidence = Evidence(*map(jax.numpy.asarray, gather(gradients, mask)))
    with pytest.raises(TypeError, match="`request` must be a positive integer"):
        jax.jit(lambda nu: rule.pay(rule.init(AGENTS), round_of(evidence, mask, nu)))(8.0)


# Those that remember nothing.
@pytest.mark.parametrize("name", [name for name, rule in MECHANISMS.items() if not remembers(rule)])
@without_jax
def test_many_rounds_at_once_are_paid_as_one_by_one(name: str, library: Library) -> None:
    pay_together(name, library)


def test_jax_pays_many_rounds_at_once_too() -> None:
    pay_together("balanced", Library("jax", "float32"))


def pay_together(name: str, library: Library) -> None:
    rule, played = MECHANISMS[name], rounds()
    with library.precision():
        *numbers, counted = map(np.stack, zip(*(gather(*given) for *given, _ in played), strict=True))
        together = Evidence(*map(library.array, numbers), counted=library.mask(counted))
        masks = library.mask(np.stack([mask for _, mask, _ in played]))
        requests = library.module.asarray(np.array(REQUESTS)[:, None])
        pay = jax.jit(rule.pay) if library.name == "jax" else rule.pay
        payments, _ = pay(rule.init(AGENTS), round_of(together, masks, requests))
        expected = [np.stack(parts) for parts in zip(*play(rule, played), strict=True)]
        assert_same([[np.asarray(part) for part in payments]], [expected], library.tolerance)
