"""What every payment rule promises, on every array library and in every way JAX can run it."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from guerdon import (
    AffineCost,
    BalancedVariance,
    EstimatedVariance,
    FlatPay,
    GenieAided,
    InformationPay,
    KnownVariance,
    OutputAgreement,
    PowerCost,
    Status,
    gather,
)
from guerdon.arrays import namespace
from guerdon.evidence import Evidence, lengths
from guerdon.mechanisms import Mechanism
from tests.libraries import Library, every_library

COST = AffineCost(1, 1)
MECHANISMS: dict[str, Any] = {
    "flat": FlatPay(COST),
    "known": OutputAgreement(COST, KnownVariance(24.0)),
    "known-enrolled": OutputAgreement(COST, KnownVariance(24.0), crowd="enrolled"),
    "estimated": OutputAgreement(PowerCost(0.5, 2, 1), EstimatedVariance()),
    "estimated-enrolled": OutputAgreement(COST, EstimatedVariance(), crowd="enrolled"),
    "balanced": OutputAgreement(COST),
    "balanced-enrolled": OutputAgreement(COST, BalancedVariance(), crowd="enrolled"),
    "balanced-history": OutputAgreement(COST, BalancedVariance(0.7)),
    "genie": GenieAided(COST, KnownVariance(24.0)),
    "information": InformationPay(COST, decay=0.9, least=0.2, doubt=1.1),  # which doubts some from the second round on
}
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)

AGENTS, DIM = 6, 7
REQUESTS = [8, 8, 3, 16]


def rounds(seed: int = 0) -> list[tuple[Any, Any, int]]:
    """Four rounds of gradients, masks and requests; somebody is absent in some."""
    rng = np.random.default_rng(seed)
    masks = rng.random((len(REQUESTS), AGENTS)) < 0.8
    masks[0] = True
    return [(3 + rng.normal(size=(AGENTS, DIM)), mask, nu) for mask, nu in zip(masks, REQUESTS, strict=True)]


def compare(mechanism: Mechanism, state: Any, gradients: Any, mask: Any) -> Evidence:
    """Return the evidence that a rule wants: information pay says whom to compare with."""
    if not isinstance(mechanism, InformationPay):
        return gather(gradients, mask)
    _, counted = lengths(gradients, mask)
    return gather(gradients, mask, None, mechanism.reference(state, counted))


def play(mechanism: Mechanism, played: list[tuple[Any, Any, int]], step: Any = None) -> list[Any]:
    """Return the payments of each round, as NumPy arrays."""

    def plain(state: Any, gradients: Any, mask: Any, nu: Any) -> Any:
        return mechanism.pay(state, compare(mechanism, state, gradients, mask), mask, nu)

    state, results = mechanism.init(len(played[0][1])), []
    for gradients, mask, nu in played:
        payments, state = (step or (lambda f: f))(plain)(state, gradients, mask, nu)
        results.append([np.asarray(part) for part in payments])
    return results


def assert_same(left: list[Any], right: list[Any], tolerance: float) -> None:
    for one, other in zip(left, right, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * 100)


@every_mechanism
@every_library
def test_array_libraries_agree(mechanism: Mechanism, library: Library) -> None:
    expected = play(mechanism, rounds())
    with library.precision():
        converted = [(library.array(g), library.mask(m), nu) for g, m, nu in rounds()]
        assert_same(play(mechanism, converted), expected, library.tolerance)


@every_mechanism
def test_numpy_masks_go_with_any_library(mechanism: Mechanism) -> None:
    mixed = [(jax.numpy.asarray(g), m, nu) for g, m, nu in rounds()]
    assert_same(play(mechanism, mixed), play(mechanism, rounds()), 3e-6)


@every_mechanism
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_jit_and_vmap_change_nothing(mechanism: Mechanism, dtype: str) -> None:
    library = Library("jax", dtype)
    with library.precision():
        converted = [(library.array(g), library.mask(m), nu) for g, m, nu in rounds()]
        eager = play(mechanism, converted)
        assert_same(play(mechanism, converted, jax.jit), eager, library.tolerance)

        def mapped(function: Any) -> Any:
            lift: Any = lambda tree: jax.tree.map(lambda x: jax.numpy.asarray(x)[None], tree)  # noqa: E731
            return lambda *arguments: jax.tree.map(lambda x: x[0], jax.vmap(function)(*map(lift, arguments)))

        assert_same(play(mechanism, converted, mapped), eager, library.tolerance)


@every_mechanism
def test_scans_over_rounds(mechanism: Mechanism) -> None:
    gradients, masks, requests = (jax.numpy.asarray(x) for x in map(np.stack, zip(*rounds(), strict=True)))

    def step(state: Any, played: Any) -> Any:
        payments, state = mechanism.pay(state, compare(mechanism, state, *played[:2]), played[1], played[2])
        return state, payments.reward

    _, rewards = jax.lax.scan(step, mechanism.init(AGENTS), (gradients, masks, requests))
    np.testing.assert_allclose(rewards, [p[0] for p in play(mechanism, rounds())], rtol=1e-4, atol=1e-4)


@every_mechanism
def test_rewards_can_be_differentiated(mechanism: Mechanism) -> None:
    gradients, mask, nu = rounds()[1]
    absent = np.array([True, False, True, True, False, True])

    def reward(x: Any) -> Any:
        return mechanism.pay(mechanism.init(AGENTS), gather(x, absent), absent, nu)[0].reward[0]

    with jax.enable_x64(True):
        slope = jax.grad(reward)(jax.numpy.asarray(gradients))
        nudge = np.zeros_like(gradients)
        nudge[0, 2] = 1e-6
        difference = (reward(gradients + nudge) - reward(gradients - nudge)) / 2e-6
    assert np.isfinite(slope).all()
    assert float(slope[0, 2]) == pytest.approx(difference, rel=1e-5, abs=1e-5)
    del mask


@every_mechanism
def test_agents_can_be_permuted(mechanism: Mechanism) -> None:
    order = np.random.default_rng(1).permutation(AGENTS)
    permuted = [(g[order], m[order], nu) for g, m, nu in rounds()]
    expected = [[part[order] for part in payments] for payments in play(mechanism, rounds())]
    assert_same(play(mechanism, permuted), expected, 1e-12)


# The others measure from a point that does not move along.
@pytest.mark.parametrize(
    "name", [name for name, rule in MECHANISMS.items() if isinstance(rule, FlatPay | OutputAgreement)]
)
def test_a_common_vector_changes_nothing(name: str) -> None:
    shift = 1e3 * np.random.default_rng(2).normal(size=DIM)
    shifted = [(g + shift, m, nu) for g, m, nu in rounds()]
    assert_same(play(MECHANISMS[name], shifted), play(MECHANISMS[name], rounds()), 1e-11)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_unit_of_gradients_does_not_matter(name: str) -> None:
    mechanism: Any = MECHANISMS[name]
    known = isinstance(getattr(mechanism, "variance", None), KnownVariance)
    scaled_mechanism = replace(mechanism, variance=KnownVariance(24.0 * 1e-3**2)) if known else mechanism
    scaled = play(scaled_mechanism, [(1e-3 * g, m, nu) for g, m, nu in rounds()])
    for one, other in zip(scaled, play(mechanism, rounds()), strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-9, atol=1e-9)


@every_mechanism
def test_an_invalid_gradient_counts_as_absence(mechanism: Mechanism) -> None:
    for poison in (np.nan, np.inf, -np.inf, 1e30, -1e200):
        spoiled, without = rounds(), rounds()
        for (gradients, mask, _), (_, absent, _) in zip(spoiled, without, strict=True):
            gradients[2, 3] = poison
            mask[2], absent[2] = True, False
        for one, other in zip(play(mechanism, spoiled), play(mechanism, without), strict=True):
            assert one[4][2] == Status.INVALID
            assert other[4][2] == Status.DECLINED
            for a, b in zip(one[:4], other[:4], strict=True):
                np.testing.assert_array_equal(a, b)  # exactly, not nearly


@every_mechanism
def test_what_the_absent_would_have_sent_does_not_matter(mechanism: Mechanism) -> None:
    filled = rounds()
    for gradients, mask, _ in filled:
        gradients[~mask] = np.nan
    for one, other in zip(play(mechanism, filled), play(mechanism, rounds()), strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


@every_mechanism
def test_nothing_is_changed_in_place(mechanism: Mechanism) -> None:
    gradients, mask, nu = rounds()[1]
    state = mechanism.init(AGENTS)
    before = [part.copy() for part in (gradients, mask, *state)]
    evidence = gather(gradients, mask)
    kept = [part.copy() for part in evidence]
    mechanism.pay(state, evidence, mask, nu)
    for a, b in zip([gradients, mask, *state, *evidence], before + kept, strict=True):
        np.testing.assert_array_equal(a, b)


@every_mechanism
@pytest.mark.parametrize("present", [0, 1, 2])
def test_almost_nobody_takes_part(mechanism: Mechanism, present: int) -> None:
    gradients, mask, nu = rounds()[0]
    mask = np.arange(AGENTS) < present
    payments, state = mechanism.pay(mechanism.init(AGENTS), gather(gradients, mask), mask, nu)
    assert (payments.reward[~mask] == 0).all()
    assert (payments.status[~mask] == Status.DECLINED).all()
    assert np.isfinite(payments.reward).all()
    assert all(np.isfinite(part).all() for part in state)
    again, _ = mechanism.pay(state, gather(gradients, ~mask), ~mask, nu)
    assert np.isfinite(again.reward).all()


@every_mechanism
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"request": -3}, ValueError, "`request` must be a positive integer, got -3"),
        ({"request": 0}, ValueError, "`request` must be a positive integer, got 0"),
        ({"request": 2.5}, TypeError, "`request` must be a positive integer, got 2.5"),
        ({"request": True}, TypeError, "`request` must be a positive integer, got True"),
        ({"request": "8"}, TypeError, "`request` must be a positive integer, got '8'"),
        ({"request": np.array([8, 8])}, TypeError, "`request` must be a positive integer"),
        ({"agents": 5}, ValueError, "`state` must be of the 6 agents of this round, got one of 5"),
        ({"mask": np.ones(AGENTS)}, TypeError, "`participating` must be an array of booleans, got dtype float64"),
        ({"mask": np.ones(4, bool)}, ValueError, r"`participating` must have shape \(6,\).*got \(4,\)"),
        ({"mask": np.zeros(AGENTS, bool)}, ValueError, "must be the mask that `evidence` was gathered with"),
    ],
)
def test_bad_input_never_gives_a_number(
    mechanism: Mechanism, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    gradients, mask, nu = rounds()[0]
    state = mechanism.init(change.get("agents", AGENTS))
    with pytest.raises(error, match=message):
        mechanism.pay(state, gather(gradients, mask), change.get("mask", mask), change.get("request", nu))


@every_mechanism
@pytest.mark.parametrize("num_agents", [0, -1, 2.0, None, "3"])
def test_the_number_of_agents_is_checked(mechanism: Mechanism, num_agents: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="`num_agents` must be a positive integer"):
        mechanism.init(num_agents)


@every_mechanism
def test_a_traced_request_must_be_whole_too(mechanism: Mechanism) -> None:
    gradients, mask, _ = rounds()[0]
    evidence = gather(jax.numpy.asarray(gradients), mask)
    with pytest.raises(TypeError, match="`request` must be a positive integer"):
        jax.jit(lambda nu: mechanism.pay(mechanism.init(AGENTS), evidence, mask, nu))(8.0)


# Those that remember nothing.
@pytest.mark.parametrize("name", [n for n in MECHANISMS if n not in ("balanced-history", "information")])
@every_library
def test_many_rounds_at_once_are_paid_as_one_by_one(name: str, library: Library) -> None:
    mechanism, played = MECHANISMS[name], rounds()
    with library.precision():
        evidence = [gather(library.array(gradients), library.mask(mask)) for gradients, mask, _ in played]
        xp = namespace(evidence[0].deviation)
        together = Evidence(*(xp.stack(list(parts)) for parts in zip(*evidence, strict=True)))
        masks, requests = library.mask(np.stack([mask for _, mask, _ in played])), xp.asarray(REQUESTS)[:, None]
        payments, _ = mechanism.pay(mechanism.init(AGENTS), together, masks, requests)
        expected = [np.stack(parts) for parts in zip(*play(mechanism, played), strict=True)]
        assert_same([[np.asarray(part) for part in payments]], [expected], library.tolerance)
