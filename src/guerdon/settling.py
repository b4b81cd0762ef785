"""Pay on a scale from earlier rounds: how open rounds wait, how they are settled, and what nobody can lose.

Shared by the rules whose V comes from `guerdon.scale`: agreement by pairs, and witnessed pay. Both bring what a
round shows (`Measured`), and are paid R = h(ν) + h'(ν)·ν²/V·(E − D).
"""

from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, check_number, check_positive_integer, is_traced, namespace
from guerdon.costs import Cost
from guerdon.rule import Payments, Status
from guerdon.scale import MOST_OPEN, Estimate, ScaleState, first_scale, known_scale, learn

# Relative. Evidence of reports in single precision is rounded at 1e-7, and a missing cut shows by far more than this:
# any number between would do.
ROUNDING = 1e-4


class ScaledState(NamedTuple):
    """What a rule remembers whose scale comes from earlier rounds."""

    extras: Array  # (open rounds, agents): h'(ν)·ν²·(E − D), to be divided by a V
    scale: ScaleState


def first_state(num_agents: int) -> ScaledState:
    """Return the state before the first round."""
    check_positive_integer("num_agents", num_agents)
    return ScaledState(np.zeros((MOST_OPEN, num_agents)), first_scale())


def with_scale(state: Any, value: float) -> ScaledState:
    """Return a rule's state as if earlier rounds had given exactly this V.

    - `state`: of a rule whose scale comes from earlier rounds; another one raises.
    - `value`: V, above 0, in the squared unit of a gradient.
    """
    if not isinstance(state, ScaledState):
        raise ValueError(f"`scale` must be left out for a rule that takes none from earlier rounds, got {value!r}")
    check_number("scale", value, minimum=0, inclusive=False)
    return state._replace(scale=known_scale(value))


class Measured(NamedTuple):
    """What a round shows: per agent D and E, squared, and the status; for all, what bounds a loss.

    - `distance`, `expected`: D_k and E_k (agents,).
    - `status`: (agents,), PAID for all whose distance counts.
    - `estimate`: what the round says of σ².
    - `least`: the V below which this round alone could cost an agent more than `most`.
    - `most`: the largest loss in a round that the rule allows, in units of money.
    """

    distance: Array
    expected: Array
    status: Array
    estimate: Estimate
    least: Array
    most: Array


def pay_on_scale(
    cost: Cost, state: ScaledState, measured: Measured, nu: Array, closes: Any
) -> tuple[Payments, ScaledState]:
    """Return R_k = h(ν) + h'(ν)·ν²/V·(E_k − D_k) with V from earlier rounds, and the next state.

    - `cost`: h and its slope, in units of money.
    - `state`: of the rounds before.
    - `measured`: what this round shows.
    - `nu`: ν, in samples.
    - `closes`: whether the run ends with this round.

    In an open round h(ν) is paid. When V is known, the extras of all open rounds are added, each by a V of its own,
    also for agents that take no part in the round that settles them. If they would cost an agent more than
    `measured.most` together, all of them are made smaller by one factor, so that they still add up to 0.
    """
    xp = namespace(measured.distance)
    counts = measured.status == Status.PAID.value
    extra = xp.where(counts, cost.slope(nu) * nu**2 * (measured.expected - measured.distance), 0.0)
    settling, following = learn(state.scale, measured.estimate, measured.least, closes)
    has_scale = state.scale.known > 0
    here = xp.arange(MOST_OPEN) == state.scale.open.count
    extras = xp.where(here[:, None] & ~has_scale & measured.estimate.usable, extra[None, :], state.extras)
    worst = -xp.min(xp.sum(extras / settling.scales[:, None], axis=0))
    scales = settling.scales * xp.where(worst > measured.most, worst / measured.most, 1.0)
    settled = xp.where(settling.now, xp.sum(extras / scales[:, None], axis=0), 0.0)
    value = xp.where(settling.now, xp.sum(xp.where(here, scales, 0.0)), settling.scale)

    waits = counts & ~has_scale & ~settling.now & measured.estimate.usable
    status = xp.where(waits, Status.WAITING.value, measured.status)
    paid = status == Status.PAID.value
    now = xp.where(has_scale, extra / xp.where(has_scale, value, 1.0), settled)
    _check_losses(now, measured.most)
    reward = xp.where(counts, cost(nu), 0.0) + now
    priced = paid & (has_scale | settling.now) & measured.estimate.usable
    shown = [xp.where(priced, x, xp.nan) for x in (measured.distance, measured.expected, value + 0 * measured.distance)]
    extras = xp.where(settling.now | has_scale, 0.0, extras)
    return Payments(reward, reward, *shown, status=status), ScaledState(extras, following)


def _check_losses(extras: Array, most: Array) -> None:
    """Raise where somebody would lose more than the rule allows: then distances came that nobody cut."""
    if is_traced(extras, most):
        return
    worst = int(namespace(extras).argmin(extras))
    if float(-extras[worst]) > float(most) * (1 + ROUNDING):
        raise ValueError(
            f"`evidence` must have distances that are cut, as `Server` cuts them: agent {worst} would lose "
            f"{float(-extras[worst]):.6g} in this round, and the rule allows {float(most):.6g}; pay through `Server`"
        )
