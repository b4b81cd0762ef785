"""Lenses: what turns the reports of a round into evidence, the few numbers by which a rule pays each agent.

    state = lens.init(model, num_agents)                       before the first round
    reading, state = lens.read(state, ask, reports, sent)      when the reports of a round are in
    state = lens.learn(state, ask, reports, reading, mean)     once their mean is known
    state = lens.step(state, seen)                             once a step is taken

`Plain` reads all reports in one pass. `Witnessed` compares them with a gradient of the server's own data. `Pairwise`
takes the products of all reports with each other: it finds copies, shortens reports that are too long, and compares
each with the agents that are trusted. What none of them knows is by which rule will be paid.

Agents may have different data. So unless they are `alike`, what is stable in how an agent differs is taken off before
reports are compared (`guerdon.statistical.offsets`), and the model is made from every report that can be used.
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from guerdon.arrays import Array, is_array, namespace, over_layers
from guerdon.asking import Ask, Reading, dither_of, prediction_error
from guerdon.cuts import cut_pairs, row_of
from guerdon.evidence import gather
from guerdon.gram import (
    evidence_around_prediction,
    evidence_around_zero,
    lengths_of,
    multiply,
    shortened_products,
    shortening,
)
from guerdon.reports import AgentRows, Layers, as_matrices, lengths_around
from guerdon.rule import Rule, as_recorded, as_request, round_of
from guerdon.states import NoState
from guerdon.statistical.credit import add_credit, bounded, doubtful_pairs, first_credit, usual_product, without_credit
from guerdon.statistical.offsets import LARGEST_MODEL, OwnRecords, shortened
from guerdon.statistical.pairs import accused_pairs, copying, first_pairs, identical, watch_pairs
from guerdon.statistical.predictions import Prediction, RunningMean, StepObservation, ZeroPrediction
from guerdon.statistical.trust import Trust
from guerdon.witness import evidence_around_witness

RECORDS = OwnRecords()
LONGEST = 3.0  # times the median length of the others' reports: longer ones are shortened before the model is made


TOO_LARGE = (
    "The model has {} numbers: too many to remember how each node differs from the others. Nodes whose data differ are "
    "paid less than their cost for it. Give `alike=True` if they do not differ"
)


class Lens(Protocol):
    """Turns reports into evidence. `guerdon.states` says which axis of a state is the agents'."""

    @property
    def prediction(self) -> Prediction:
        """The public prediction of each mean report."""
        ...

    def warning(self, model: Any) -> str:
        """Return what an operator must know of how the lens does with such a model; mostly nothing."""
        ...

    def learns(self, state: Any) -> bool:
        """Tell whether it learns from the mean of the reports."""
        ...

    def init(self, model: Any, num_agents: int) -> Any:
        """Return the state before the first round."""
        ...

    def suspicion(self, state: Any) -> Array | None:
        """Return the logarithm of the evidence against each agent; None where none is gathered."""
        ...

    def predict(self, state: Any, model: Any) -> Any:
        """Return the public prediction of the mean report at a model: zeros, if there is none."""
        ...

    def read(self, state: Any, ask: Ask, reports: Layers, sent: Array) -> tuple[Reading, Any]:
        """Return how the reports of those who `sent` anything compare, and the next state."""
        ...

    def learn(self, state: Any, ask: Ask, reports: Layers, reading: Reading, mean: Any) -> Any:
        """Return the state after a round with this mean."""
        ...

    def step(self, state: Any, seen: StepObservation) -> Any:
        """Return the state after a step."""
        ...


class LensState(NamedTuple):
    """What a lens remembers; `NoState` where it remembers nothing."""

    prediction: Any  # public
    records: Any  # how each agent differs from the others
    trust: Any  # whom others are compared with
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

    def step(self, state: LensState, seen: StepObservation) -> LensState:
        return state._replace(prediction=self.prediction.learn(state.prediction, seen))

    def suspicion(self, state: LensState) -> Array | None:
        del state

    def offsets(self, state: LensState, ask: Ask) -> Any:
        """Return what is taken off each report because its agent differs; None: nothing."""
        if self.recorder is None or isinstance(state.records, NoState):
            return None
        return self.recorder.offsets(state.records, dither_of(ask))

    def learn(self, state: LensState, ask: Ask, reports: Layers, reading: Reading, mean: Any) -> LensState:
        if reading.offsets is None or _is_seatless(reports):
            return state
        rows, xp = shortened(as_matrices(reports), ask.centre, reading.parts), namespace(reading.parts)
        if ask.start is not None:
            mean = over_layers(lambda move, start: move + start, mean, ask.start)
        counted = reading.evidence.counted
        heard = counted & (xp.sum(xp.astype(counted, xp.int32)) > 1)
        own = state.records, rows, reading.offsets, mean, ask.centre, dither_of(ask), heard
        return state._replace(records=self.recorder.learn(*own))  # pyright: ignore[reportOptionalMemberAccess]


@dataclass(frozen=True)
class Plain(_Comparing):
    """Reads all reports in one pass.

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
        parts = whole if self.alike else shortening(lengths_around(reports, sent, ask.start), counted, LONGEST)
        if ask.notice.reach:
            cut = ask.notice.cut_at(as_request(evidence, ask.request))
            pairs = cut_pairs(reports, evidence, offsets, cut, ask.notice.reach)
            evidence = evidence._replace(pair_distance=pairs.pair_distance)
            if offsets is None and not _is_seatless(reports):
                parts, towards = pairs.parts, row_of(reports, pairs.middle)
        return Reading(evidence, plain, counted, counted, nobody, whole, parts, offsets, error, towards), state


@dataclass(frozen=True)
class Witnessed(_Comparing):
    """Compares all reports with the gradient of `samples` samples of the server's own (`Ask.witness`)."""

    records: OwnRecords | None = None
    samples: int = 256

    def read(self, state: LensState, ask: Ask, reports: Layers, sent: Array) -> tuple[Reading, LensState]:
        witness = ask.witness
        if witness is None or witness.samples != self.samples:
            raise ValueError(
                f"`witness` must be what {self.samples} samples of the server's own say in this round (see "
                f"`guerdon.witness.witness_sample`), got {witness and witness.samples}"
            )
        evidence = evidence_around_witness(reports, sent, witness, ask.request)
        xp, counted = namespace(evidence.squared_length), evidence.counted
        whole, nobody = xp.ones_like(evidence.squared_length), xp.zeros_like(counted)
        error = prediction_error(gather(reports, sent, ask.centre), counted, ask.request)
        parts = whole if self.alike else shortening(lengths_around(reports, sent, None), counted, LONGEST)
        plain = gather(reports, sent)
        return Reading(evidence, plain, counted, counted, nobody, whole, parts, None, error, ask.centre), state


@dataclass(frozen=True)
class Pairwise(_Comparing):
    """Compares each report with those of the trusted agents, from the products of all reports with each other.

    Copies are left out, and reports longer than `limit` times the median of the others are shortened. `relies` says on
    which pairs: all that are not `accused` of sharing something, or none that is `doubtful`: that agreed more than
    chance explains (`guerdon.statistical.credit`). Where agents are alike the model goes without those that are not
    trusted, and agents whose reports agreed too well in earlier rounds count as copies.
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
        factors, parts = (shortening(square, kept, self.limit) for square in lengths_of(products))
        evidence = evidence_around_prediction(products, factors, kept, trusted)
        near = shortened_products(products, factors, kept)
        alignment, credit = self._alignment(state.pairs, ask, near, kept, trusted)
        evidence = evidence._replace(alignment=alignment)
        plain, used = evidence_around_zero(products, kept), trusted if self.alike else kept
        # Of the agents that the mean is made from: noise of those that are not trusted is in it too.
        error = prediction_error(evidence_around_prediction(products, factors, kept, used), used, ask.request)
        pairs = PairState(watch_pairs(wealth, products.inner, counted, trusted, enrolled), credit)
        seen = as_recorded(round_of(evidence, sent, ask.request, trusted))
        trust = self.trust.learn(state.trust, seen.evidence, seen.trusted, ask.request)
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
            before, usual = xp.asarray(credit, dtype=products.dtype), usual_product(products, trusted)
            doubted, products = doubtful_pairs(before), bounded(products, usual)
            credit = add_credit(before, products, usual, kept)
        told = 1.0 if ask.notice.knowledge is None else xp.asarray(ask.notice.knowledge, dtype=products.dtype)
        credited = without_credit(products, trusted, doubted, told + xp.zeros_like(products[0]))
        return xp.sum(credited * xp.astype(trusted, products.dtype)[None, :], axis=1), credit


def lens_of(
    rule: Rule,
    prediction: Prediction | None = None,
    *,
    alike: bool = False,
    records: OwnRecords | None = RECORDS,
    dithered: bool = False,
) -> Lens:
    """Return the lens that goes with a rule.

    `prediction` is the public one of each mean gradient (default: `RunningMean` where the rule wants any). `alike` says
    that all agents draw fresh samples of the same kind, as the paper's do. `records`: what remembers how agents differ;
    None compares them as they are. `dithered`: gradients are taken beside the model, so how each agent answers to that
    is taken off, unless the rule pays for it.
    """
    wanted = rule.wants_prediction and not rule.wants_truth
    given: dict[str, Any] = {
        "alike": alike,
        "records": records if rule.compares_agents else None,
        "prediction": prediction or (RunningMean() if wanted else ZeroPrediction()),
        "answers": dithered and rule.takes_off_answers,
    }
    if rule.wants_witness:
        return Witnessed(**given, samples=rule.samples)
    if rule.compares_pairs:
        relies: Any = "accused" if rule.credits_doubtful_pairs else "doubtful"
        return Pairwise(**given, limit=rule.limit, trust=rule.trust, relies=relies)
    return Plain(**given, around=rule.wants_prediction)


def _size(model: Any) -> int:
    return sum(math.prod(part.shape) for part in ([model] if is_array(model) else model))


def _is_seatless(reports: Layers) -> bool:
    """Tell whether nobody sent anything, of reports that are kept agent by agent."""
    return isinstance(reports, AgentRows) and not len(reports.seats)
