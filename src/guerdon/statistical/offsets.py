"""How each agent differs from the others, by its own past: a stable difference may be its data, and is no fault.

Agents have data of their own. So honest reports differ by more than their samples' noise: X_k = m + b_k + noise, and
under a dither by how strongly each one's gradient answers to it. Both are estimated from an agent's past reports, and
taken off before reports are compared:

    X_k − s_k·b_k − r_k·δ_k∘u         b_k   decayed mean of X_k − X̄ over its past rounds
                                      δ_k   decayed regression, number by number, of X_k − p − b_k on the dither u
                                      s, r  1 − (what noise alone would make of ‖b‖², ‖δ∘u‖²)/‖·‖², at least 0

An agent chooses its report freely. So it chooses freely what is left of it, whatever is taken off: a cheat gains
nothing. For this δ_k must come from the agent's own reports. With a regression of X_k − X̄ instead, an agent that sends
zeros would be credited with the others' answer to the dither, which is what it is to be paid for. A report is
remembered as the model has it, shortened where it is too long, and the noise is a median: so a loud agent moves the
records of others by little. The model is made from reports as they came. Only past rounds count,
so honest pay keeps its mean. Noisier data are not cured: they look like less work.
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, is_array, is_numpy, is_traced, namespace, over_layers, row_dots
from guerdon.gram import median_of
from guerdon.reports import column_blocks

PRIOR = 4.0  # rounds without a difference, that an agent's answer to a dither starts from
LARGEST_MODEL = 10**6  # numbers; of a larger one nothing is remembered by default: every agent's record is as long
LARGE_MODEL = 10**5  # numbers; of a larger one records are in single precision: they are estimates, and many


class RecordState(NamedTuple):
    """What is remembered: matrices are (agents, numbers of a layer), one per layer where the model is a list."""

    total: Any  # decayed sum of X_k − X̄
    weight: Array  # (agents,) and of rounds
    squares: Array  # (agents,) and of the rounds' weights squared
    answer: Any  # decayed sum of what b_k leaves, times u
    answer_weight: Array  # (agents,) and of rounds
    answer_squares: Array  # (agents,) and of the rounds' weights squared
    dither: Any  # decayed sum of u², per number of the model
    dither_weight: Array
    noise: Array  # decayed sum of n/(n − 1) times the median ‖X_k − X̄‖², of what was compared
    rounds: Array  # and of rounds

    agents = {"total": (0,), "answer": (0,), "dither": (), "dither_weight": (), "noise": (), "rounds": ()}  # noqa: RUF012


@dataclass(frozen=True)
class OwnRecords:
    """Remembers how each agent's reports differ: over about 1/(1 − decay) rounds, its answer to a dither for longer.

    At most `reach` times the usual length of a deviation is taken off.
    """

    decay: float = 0.95
    answer_decay: float = 0.99
    reach: float = 10.0

    def init(self, model: Any, num_agents: int, *, dithered: bool) -> RecordState:
        """Return the state before the first round."""
        layers = [model] if is_array(model) else model
        xp, dtype = namespace(layers[0]), layers[0].dtype
        large = sum(math.prod(part.shape) for part in layers) > LARGE_MODEL

        def rows_of_zeros(part: Array) -> Array:
            size = math.prod(part.shape)
            return xp.zeros((num_agents, size), dtype=xp.float32 if large else part.dtype)

        nothing = over_layers(rows_of_zeros, model)
        answers = nothing if dithered else over_layers(lambda part: part[:, :0], nothing)
        flat = over_layers(lambda part: part[0], answers)
        agents, zero = xp.zeros(num_agents, dtype=dtype), xp.zeros((), dtype=dtype)
        return RecordState(nothing, agents, agents, answers, agents, agents, flat, zero, zero, zero)

    def offsets(self, state: RecordState, dither: Any) -> Any:
        """Return what to take off each report, (agents, numbers) per layer; `dither` is how far off they were taken."""
        noise = state.noise / _positive(state.rounds)
        weight = _positive(state.weight)
        base = _by_columns(lambda part: part / _column(weight, part), state.total)
        base = self._shrunk(base, noise * state.squares / weight**2, noise)
        if not _first(state.answer).shape[1]:
            return base
        parts = state.answer, state.dither, dither
        typical = _mean_of_all(state.dither) / _positive(state.dither_weight)
        answer = over_layers(lambda answers, every, u: self._answer(state, typical, answers, every, u), *parts)
        answer = self._shrunk(answer, noise * state.answer_squares / _positive(state.answer_weight) ** 2, noise)
        return over_layers(lambda a, b: a + b, base, answer)

    def learn(
        self, state: RecordState, reports: Any, offsets: Any, mean: Any, centre: Any, dither: Any, heard: Array
    ) -> RecordState:
        """Return the state after a round: `reports` are matrices, `mean` what they differ from, of those `heard`.

        `offsets` were taken off the reports. `centre` is what was predicted of them: an agent's answer to the dither is
        what it adds to that.
        """
        xp = namespace(state.weight)
        rows, present = heard[:, None], xp.astype(heard, state.weight.dtype)

        def beside(row: Array, middle: Array) -> Array:
            return xp.where(rows, row - middle, 0.0)

        noise = _usual_deviation(reports, offsets, heard)
        fade, any_heard = 1 - (1 - self.decay) * present, xp.any(heard)

        def added(old: Array, row: Array, middle: Array) -> Array:
            return xp.astype(fade[:, None] * old + beside(row, middle), old.dtype)

        after = state._replace(
            total=_by_columns(added, state.total, reports, model=mean),
            weight=fade * state.weight + present,
            squares=fade**2 * state.squares + present,
            noise=xp.where(any_heard, self.decay * state.noise + noise, state.noise),
            rounds=xp.where(any_heard, self.decay * state.rounds + 1, state.rounds),
        )
        if not _first(state.answer).shape[1]:
            return after
        return self._learn_answers(state, after, _by_columns(beside, reports, model=centre), dither, present)

    def _learn_answers(
        self, before: RecordState, after: RecordState, added: Any, dither: Any, present: Array
    ) -> RecordState:
        xp = namespace(present)
        slow, weight = 1 - (1 - self.answer_decay) * present, _positive(before.weight)
        any_heard = xp.astype(xp.any(present > 0), present.dtype)
        fade = 1 - (1 - self.answer_decay) * any_heard

        def answer(old: Array, new: Array, total: Array, u: Array) -> Array:
            left = present[:, None] * (new - total / weight[:, None])
            return xp.astype(slow[:, None] * old + left * xp.reshape(u, (1, -1)), old.dtype)

        return after._replace(
            answer=over_layers(answer, before.answer, added, before.total, dither),
            answer_weight=slow * before.answer_weight + present,
            answer_squares=slow**2 * before.answer_squares + present,
            dither=over_layers(
                lambda old, u: fade * old + any_heard * xp.reshape(u, (-1,)) ** 2, before.dither, dither
            ),
            dither_weight=fade * before.dither_weight + any_heard,
        )

    def _answer(self, state: RecordState, typical: Array, answers: Array, every: Array, dither: Array) -> Array:
        """Return δ_k∘u; an agent that missed rounds has seen less of u².

        Where u was short so far, a number says little: δ is as if some rounds of the usual u² had found no difference.
        """
        share = state.answer_weight / _positive(state.dither_weight)
        squares = share[:, None] * every[None, :] + PRIOR * typical
        return answers / _positive(squares) * namespace(answers).reshape(dither, (1, -1))

    def _shrunk(self, base: Any, by_noise: Array, noise: Array) -> Any:
        """Return rows shrunk by what noise alone would make of their squares, and cut to their reach."""
        xp = namespace(by_noise)
        square = sum(row_dots(xp, part, part) for part in ([base] if is_array(base) else base))
        factor = xp.clip(xp.where(square > 0, 1 - by_noise / _positive(square), 0.0), 0.0, None)
        length, most = factor * xp.sqrt(square), self.reach * xp.sqrt(noise)
        factor = xp.where(length > most, factor * most / _positive(length), factor)
        return _by_columns(lambda part: _column(factor, part) * part, base)


def shortened(rows: Any, centre: Any, parts: Array) -> Any:
    """Return matrices of reports as the model has them: of each, this part of the way from the centre."""
    part = parts[:, None]
    if not is_traced(part) and bool(namespace(part).all(part >= 1)):
        return rows

    def shorter(row: Array, middle: Array) -> Array:
        return namespace(row).where(part < 1, middle + part * (row - middle), row)

    return _by_columns(shorter, rows, model=centre)


def _column(values: Array, beside: Array) -> Array:
    """Return one number for each agent as a column, as precise as the matrix that it goes with."""
    return namespace(values).astype(values, beside.dtype)[:, None]


def _by_columns(function: Callable[..., Array], *matrices: Any, model: Any = None) -> Any:
    """Return a function of matrices, and of what the model has in their columns; NumPy's are never whole twice."""

    def apply(first: Array, *others: Array) -> Array:
        given = [first, *others]
        if model is not None:
            given[-1] = namespace(given[-1]).reshape(given[-1], (-1,))
        if not is_numpy(first):
            return function(*given)
        done = np.empty(first.shape, dtype=function(*(part[..., :0] for part in given)).dtype)
        for cut in column_blocks(first):
            done[:, cut] = function(*(part[..., cut] for part in given))
        return done

    return over_layers(apply, *matrices, *([] if model is None else [model]))


def _positive(weight: Array) -> Array:
    return namespace(weight).where(weight > 0, weight, 1.0)


def _usual_deviation(reports: Any, offsets: Any, heard: Array) -> Array:
    """Return n/(n − 1) times the median squared distance to the mean, of what is compared: no loud agent moves it."""
    xp = namespace(heard)
    layers = [(reports, offsets)] if is_array(reports) else list(zip(reports, offsets, strict=True))
    present = xp.astype(heard, layers[0][1].dtype)
    count, square = xp.sum(present), 0 * present
    for rows, off in layers:
        for cut in column_blocks(rows):
            left = xp.where(heard[:, None], rows[:, cut] - off[:, cut], 0.0)
            middle = xp.sum(left, axis=0) / _positive(count)
            square = square + xp.sum((left - middle[None, :]) ** 2, axis=1)
    return median_of(square, heard) * count / xp.where(count > 1, count - 1, 1.0)


def _mean_of_all(value: Any) -> Array:
    layers = [value] if is_array(value) else value
    return sum(namespace(part).sum(part) for part in layers) / sum(part.shape[0] for part in layers)


def _first(value: Any) -> Array:
    return value if is_array(value) else value[0]
