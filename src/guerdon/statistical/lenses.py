"""Lenses for members that may differ, and for reports that may be made up: see `guerdon.lens` for what a lens is.

`Offset` takes off what is stable in how each agent differs, or reads reports around a public prediction. `Pairwise`
takes the products of all reports with each other: it finds copies, shortens reports that are too long, and compares
each with the agents that are trusted. None of them knows which rule will pay.

Agents may have different data. So unless they are `alike`, what is stable in how an agent differs is taken off before
reports are compared (`guerdon.statistical.offsets`), and the model is made from every report that can be used.
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from guerdon.arrays import Array, is_array, namespace, over_layers
from guerdon.asking import Ask, Reading, dither_of, prediction_error
from guerdon.broadcast import Shown
from guerdon.cuts import cut_pairs, row_of
from guerdon.evidence import gather
from guerdon.gram import (
    evidence_around_prediction,
    evidence_around_zero,
    multiply,
    shortened_products,
    shortening,
    squared_lengths_of,
)
from guerdon.lens import LONGEST, is_seatless
from guerdon.reports import Layers, as_matrices, squared_lengths_around
from guerdon.rule import Need, as_recorded, as_request, round_of
from guerdon.states import NoState, choose_state
from guerdon.statistical.credit import add_credit, bounded, doubtful_pairs, first_credit, median_product, without_credit
from guerdon.statistical.offsets import LARGEST_MODEL, OwnRecords, shortened
from guerdon.statistical.pairs import accused_pairs, copying, first_pairs, identical, watch_pairs
from guerdon.statistical.predictions import Prediction, ZeroPrediction
from guerdon.statistical.trust import Trust

TOO_LARGE = (
    "The model has {} numbers: too many to remember how each node differs from the others. Nodes whose data differ are "
    "paid less than their cost for it. Give `alike=True` if they do not differ"
)


class LensState(NamedTuple):
    """What a lens remembers; `NoState` where it remembers nothing."""

    prediction: Any  # public
    records: Any  # how each agent differs from the others
    trust: Any  # the agents that others are compared with
    pairs: Any  # what pairs of agents share

    agents = {"prediction": ()}  # noqa: RUF012 - no field of the tuple; see `guerdon.states`


class PairState(NamedTuple):
    """What is remembered of pairs of agents."""

    wealth: Array  # (bets, agents, agents), of the bets that they share something
    credit: Any  # (2, agents, agents), what they agreed so far, in how many rounds; `NoState` where it is not used

    agents = {"wealth": (-2, -1), "credit": (-2, -1)}  # noqa: RUF012


@dataclass(frozen=True)
class _Comparing:
    """What all lenses share: the public prediction, and the records of how agents differ.

    `records`: None compares reports as they are. `answers`: how each agent answers to a dither is taken off too.
    """

    gives: ClassVar[frozenset[Need]] = frozenset({Need.PREDICTION})

    alike: bool = False
    records: OwnRecords | None = field(default_factory=OwnRecords)
    prediction: Prediction = field(default_factory=ZeroPrediction)
    answers: bool = False

    @property
    def recorder(self) -> OwnRecords | None:
        """What remembers how agents differ; None where they are alike."""
        return None if self.alike else self.records

    def warning(self, model: Any) -> str:
        size = _size(model)
        return TOO_LARGE.format(size) if self.recorder is not None and size > LARGEST_MODEL else ""

    def learns(self, state: LensState) -> bool:
        return not isinstance(state.records, NoState) or not isinstance(self.prediction, ZeroPrediction)

    def init(self, model: Any, num_agents: int) -> LensState:
        recorder = None if self.warning(model) else self.recorder
        records = NoState() if recorder is None else recorder.init(model, num_agents, dithered=self.answers)
        return LensState(self.prediction.init(model), records, NoState(), NoState())

    def predict(self, state: LensState, model: Any) -> Any:
        return self.prediction.predict(state.prediction, model)

    def suspicion(self, state: LensState) -> Array | None:
        del state

    def offsets(self, state: LensState, ask: Ask) -> Any:
        """Return what is taken off each report because its agent differs; None: nothing."""
        if self.recorder is None or isinstance(state.records, NoState):
            return None
        return self.recorder.offsets(state.records, dither_of(ask))

    def learn(
        self, state: LensState, ask: Ask, reports: Layers, reading: Reading, mean: Any, shown: Shown | None
    ) -> LensState:
        if shown is not None:
            learned = choose_state(
                shown.heard, lambda: self.prediction.learn(state.prediction, shown.observation), state.prediction
            )
            state = state._replace(prediction=learned)
        if reading.offsets is None or is_seatless(reports):
            return state
        rows, xp = shortened(as_matrices(reports), ask.centre, reading.parts), namespace(reading.parts)
        if ask.start is not None:
            mean = over_layers(lambda move, start: move + start, mean, ask.start)
        counted = reading.evidence.counted
        heard = counted & (xp.sum(xp.astype(counted, xp.int32)) > 1)
        arguments = state.records, rows, reading.offsets, mean, ask.centre, dither_of(ask), heard
        return state._replace(records=self.recorder.learn(*arguments))  # pyright: ignore[reportOptionalMemberAccess]


@dataclass(frozen=True)
class Offset(_Comparing):
    """Takes off what is stable in how each agent differs, and reads all reports in one pass.

    `around`: evidence is gathered around the prediction, not around zero. Where the rule says how far apart two reports
    may count (`Notice.reach`), the distances of pairs are cut there.
    """

    around: bool = False

    def read(self, state: LensState, ask: Ask, reports: Layers, sent: Array) -> tuple[Reading, LensState]:
        offsets = self.offsets(state, ask)
        plain = gather(reports, sent, ask.start)
        evidence = plain if offsets is None else gather(reports, sent, ask.start, offsets=offsets)
        if self.around:
            evidence = gather(reports, sent, ask.centre, plain.counted, offsets)
        xp, counted = namespace(evidence.squared_length), evidence.counted
        whole, towards, nobody = xp.ones_like(evidence.squared_length), ask.centre, xp.zeros_like(counted)
        error = prediction_error(evidence, counted, ask.request)
        parts = whole if self.alike else shortening(squared_lengths_around(reports, sent, ask.start), counted, LONGEST)
        if ask.notice.reach:
            cut = ask.notice.cut_at(as_request(evidence, ask.request))
            pairs = cut_pairs(reports, evidence, offsets, cut, ask.notice.reach)
            evidence = evidence._replace(pair_distance=pairs.pair_distance)
            if offsets is None and not is_seatless(reports):
                parts, towards = pairs.parts, row_of(reports, pairs.middle)
        return Reading(evidence, plain, counted, counted, nobody, whole, parts, offsets, error, towards), state


@dataclass(frozen=True)
class Pairwise(_Comparing):
    """Compares each report with those of the trusted agents, from the products of all reports with each other.

    Copies are left out, and reports longer than `limit` times the median of the others are shortened. `relies` says
    which pairs are relied on: all but those `accused` of sharing something, or all but the `doubtful` ones, which
    agreed more than chance explains (`guerdon.statistical.credit`). Where agents are alike the model goes without those
    that are not trusted, and agents whose reports agreed too well in earlier rounds count as copies.
    """

    limit: float = 3.0
    trust: Trust = field(default_factory=Trust)
    relies: Literal["accused", "doubtful"] = "accused"

    def init(self, model: Any, num_agents: int) -> LensState:
        credit = first_credit(num_agents) if self.relies == "doubtful" else NoState()
        pairs = PairState(first_pairs(num_agents), credit)
        return super().init(model, num_agents)._replace(trust=self.trust.init(num_agents), pairs=pairs)

    def read(self, state: LensState, ask: Ask, reports: Layers, sent: Array) -> tuple[Reading, LensState]:
        offsets = self.offsets(state, ask)
        products = multiply(reports, sent, ask.centre, offsets)
        counted, enrolled = products.counted, ask.enrolled
        wealth = namespace(products.inner).asarray(state.pairs.wealth, dtype=products.inner.dtype)
        copies = identical(products.plain, evidence_around_zero(products, counted).squared_length, counted)
        if self.alike:
            copies = copying(copies, counted, wealth, enrolled)
        kept = counted & ~copies
        trusted = self.trust.reference(state.trust, kept)
        factors, parts = (shortening(square, kept, self.limit) for square in squared_lengths_of(products))
        evidence = evidence_around_prediction(products, factors, kept, trusted)
        near = shortened_products(products, factors, kept)
        alignment, credit = self._alignment(state.pairs, ask, near, kept, trusted)
        evidence = evidence._replace(alignment=alignment)
        plain, used = evidence_around_zero(products, kept), trusted if self.alike else kept
        # Of the agents that the mean is made from: noise of those that are not trusted is in it too.
        error = prediction_error(evidence_around_prediction(products, factors, kept, used), used, ask.request)
        pairs = PairState(watch_pairs(wealth, products.inner, counted, trusted, enrolled), credit)
        played = as_recorded(round_of(evidence, sent, ask.request, trusted))
        trust = self.trust.learn(state.trust, played.evidence, played.trusted, ask.request)
        state = state._replace(pairs=pairs, trust=trust)
        return Reading(evidence, plain, trusted, used, copies, factors, parts, offsets, error, ask.centre), state

    def suspicion(self, state: LensState) -> Array:
        return self.trust.suspicion(state.trust)

    def _alignment(
        self, pairs: PairState, ask: Ask, products: Array, kept: Array, trusted: Array
    ) -> tuple[Array, Array]:
        """Return how well each report agrees with the trusted ones, and what pairs agreed so far.

        What pairs share that are not relied on is no part of it.
        """
        xp, credit = namespace(products), pairs.credit
        if self.relies == "accused":
            wealth = xp.asarray(pairs.wealth, dtype=products.dtype)
            doubted = accused_pairs(wealth, ask.enrolled) & (not self.alike)
        else:
            before, typical = xp.asarray(credit, dtype=products.dtype), median_product(products, trusted)
            doubted, products = doubtful_pairs(before), bounded(products, typical)
            credit = add_credit(before, products, typical, kept)
        knowledge = 1.0 if ask.notice.knowledge is None else xp.asarray(ask.notice.knowledge, dtype=products.dtype)
        credited = without_credit(products, trusted, doubted, knowledge + xp.zeros_like(products[0]))
        return xp.sum(credited * xp.astype(trusted, products.dtype)[None, :], axis=1), credit


def _size(model: Any) -> int:
    return sum(math.prod(part.shape) for part in ([model] if is_array(model) else model))


def warning_of(lens: Any, model: Any) -> str:
    """Return what an operator must know of how a lens does with such a model; mostly nothing."""
    return lens.warning(model) if isinstance(lens, _Comparing) else ""


def suspicion_of(lens: Any, state: Any) -> Array | None:
    """Return the logarithm of the evidence against each agent; None where a lens gathers none."""
    return lens.suspicion(state) if isinstance(lens, _Comparing) else None


def prediction_of(lens: Any) -> Prediction:
    """Return the public prediction that a lens makes of each mean report: zeros, unless it makes one."""
    return lens.prediction if isinstance(lens, _Comparing) else ZeroPrediction()
