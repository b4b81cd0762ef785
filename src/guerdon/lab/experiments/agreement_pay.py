"""What five rules pay the first member for every size, in a training that `agreement_data` has played."""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from guerdon.agreement import EstimatedVariance, KnownVariance, OutputAgreement
from guerdon.costs import AffineCost
from guerdon.cuts import cut_distances
from guerdon.evidence import Evidence, mean_pair_distance
from guerdon.lab.arena.balanced import BalancedVariance
from guerdon.lab.experiments.agreement_data import Cell, Played, world_of
from guerdon.rule import round_of
from guerdon.scale import MOST_OPEN, scale
from guerdon.witness import WitnessedPay

BATCHES = 4  # minibatches that the server draws itself, for the witness
ROWS = 256  # trainings that are paid at once: one shape for all cells
UNIT = AffineCost(0, 1)  # under which an extra is that of a slope of 1
UNIT_REACH = OutputAgreement(UNIT).reach
RULES = ("known", "estimated", "balanced", "agreement", "witness")


class Paid(NamedTuple):
    """What one member gets beyond h(ν), in units of h'(ν): (repetitions, rounds).

    `beyond` is how much more another size is paid than the request, in the mean over all reports that it could send.
    """

    honest: Any
    beyond: dict[int, Any]
    scale: Any | None = None


def pay(rule: str, cell: Cell, played: Played) -> Paid:
    """Return what a rule pays the first member for every size."""
    if rule == "agreement":
        return _by_pairs(cell, played)
    if rule == "witness":
        return _by_witness(cell, played)
    variance: Any = {
        "known": KnownVariance(1.0), "estimated": EstimatedVariance(), "balanced": BalancedVariance(),
    }[rule]  # fmt: skip
    unit, most = (played.variance[..., None, None], len(played.variance)) if rule == "known" else (1.0, None)
    payer, nu = OutputAgreement(UNIT, variance), cell.request
    found: dict[int, Any] = {}
    for size, own in played.own.items():
        apart = _with(played.others[:most], own[:most, :, 0]) / unit
        everybody = np.ones(apart.shape[:-1], dtype=bool)
        deviation = apart.mean(axis=-1) - apart.mean(axis=(-2, -1))[..., None] / 2
        nothing = 0 * deviation
        evidence = Evidence(deviation, mean_pair_distance(deviation, everybody), nothing, nothing, everybody)
        payments, _ = payer.pay(payer.init(cell.members), round_of(evidence, everybody, nu))
        found[size] = payments.released[..., 0] - nu
    return Paid(found[nu], {size: found[size] - found[nu] for size in found if size != nu})


def _with(others: Any, own: Any) -> Any:
    """Return the distances of all pairs where the first member sent something else."""
    apart = np.array(others, dtype=np.float64)
    apart[..., 0, 1:] = own
    apart[..., 1:, 0] = own
    apart[..., range(apart.shape[-1]), range(apart.shape[-1])] = 0.0
    return apart


@cache
def _pairs_compiled(members: int) -> Any:
    """Return a compiled function of distances (repetitions, rounds, members, members) and ν: extras and scales."""
    rule, everybody = OutputAgreement(UNIT), np.ones(members, dtype=bool)

    def one_run(apart: Any, nu: Any) -> Any:
        def one_round(state: Any, near: Any, opens: bool) -> Any:
            before = scale(state.scale)
            cut = 2 * rule.reach * before / nu
            if opens:
                mean = cut_distances(near, everybody, cut, rule.reach).pair_distance
            else:  # the same, without the median that stands for a cut that is not known
                mean = jax.numpy.sum(jax.numpy.minimum(near, cut), axis=1) / (members - 1)
            evidence = Evidence(mean, mean, mean, mean, jax.numpy.asarray(everybody))
            payments, state = rule.pay(state, round_of(evidence, everybody, nu))
            return state, (payments.released[0], payments.variance[0], before)

        state = jax.tree.map(jax.numpy.asarray, rule.init(members))
        state, first = jax.lax.scan(partial(one_round, opens=True), state, apart[:MOST_OPEN])
        _, rest = jax.lax.scan(partial(one_round, opens=False), state, apart[MOST_OPEN:])
        return jax.tree.map(lambda *parts: jax.numpy.concatenate(parts), first, rest)

    return jax.jit(jax.vmap(one_run, in_axes=(0, None)))


def _by_pairs(cell: Cell, played: Played) -> Paid:
    nu, found = cell.request, dict[int, list[Any]]()
    with jax.enable_x64(True):
        for size, own in played.own.items():
            apart = _with(played.others, own[:, :, 0])
            found[size] = _in_rows(_pairs_compiled(cell.members), np.asarray(nu), apart)
    honest, scale, usual = found[nu]
    alike, beyond = world_of(cell).alike, dict[int, Any]()
    for size, (reward, _, before) in found.items():
        if size != nu:
            first, mean = _of_distances(nu, before, played.own[size])
            rest = _of_distances(nu, before if alike else usual, played.own[nu])
            known = np.isfinite(mean + rest[1])
            more = reward - honest
            beyond[size] = np.where(known, mean - rest[1], more) if alike else more + np.where(
                known, mean - first - rest[1] + rest[0], 0.0
            )  # fmt: skip
    return Paid(honest - nu, beyond, scale)


def _of_distances(nu: int, scale: Any, own: Any) -> tuple[Any, Any]:
    """Return −ν²/V times the first report's mean distance to the others, cut, and the mean of that over all reports.

    NaN where V is not known. It is the part of the pay that depends on the own report. Where members are alike the
    request is paid h(ν) in the mean whatever V is (theorem (b)). So the difference between two sizes on one V has the
    mean of what a training under a size gains, with less noise: both are paid on the same scale beside the same others.
    Where noise levels differ each size has the V of its own training; the mean over reports replaces the first one.
    """
    cut = (2 * UNIT_REACH * scale / nu).astype(np.float32)[..., None, None]
    near = np.minimum(own, cut).mean(axis=3, dtype=np.float64)
    return -(nu**2) / scale * near[..., 0], -(nu**2) / scale * near.mean(axis=2)


def _in_rows(function: Any, nu: Any, *arrays: Any) -> list[Any]:
    """Return what a compiled function gives for many trainings, `ROWS` at a time; the last are padded."""
    count, parts = len(arrays[0]), list[Any]()
    for start in range(0, count, ROWS):
        some = [np.asarray(array[start : start + ROWS], dtype=np.float64) for array in arrays]
        padded = [np.concatenate([one, np.repeat(one[:1], ROWS - len(one), axis=0)]) for one in some]
        parts.append([np.asarray(part)[: len(some[0])] for part in function(*padded, nu)])
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


@cache
def _witness_compiled(samples: int) -> Any:
    rule, alone = WitnessedPay(UNIT, samples), np.ones(1, dtype=bool)

    def one_run(distance: Any, expected: Any, nu: Any) -> Any:
        def one_round(state: Any, told: Any) -> Any:
            far, level = (jax.numpy.reshape(part, (1,)) for part in told)
            evidence = Evidence(far, level, far, far, jax.numpy.asarray(alone))
            payments, state = rule.pay(state, round_of(evidence, alone, nu))
            return state, (payments.released[0], payments.variance[0])

        first = jax.tree.map(jax.numpy.asarray, rule.init(1))
        return jax.lax.scan(one_round, first, (distance, expected))[1]

    return jax.jit(jax.vmap(one_run, in_axes=(0, 0, None)))


def _by_witness(cell: Cell, played: Played) -> Paid:
    """A distance is not cut and V is the server's, so a mean over reports is paid what they are paid in the mean."""
    nu, samples = cell.request, BATCHES * cell.request
    expected = played.witness_variance * (1 / nu + 1 / samples)

    def paid(own: Any) -> list[Any]:
        return _in_rows(_witness_compiled(samples), np.asarray(nu), own, expected)

    with jax.enable_x64(True):
        honest, scale = paid(played.own_witness[nu][..., 0])
        mean = {size: paid(own.mean(axis=2, dtype=np.float64))[0] for size, own in played.own_witness.items()}
    return Paid(honest - nu, {size: mean[size] - mean[nu] for size in mean if size != nu}, scale)
