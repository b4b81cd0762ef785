"""The server's half of a round, written once: for the simulator, for Flower, and for a loop of your own.

    server = Server(InformationPay(AffineCost(1, 1)), FixedRequest(16, step=0.1))
    state = server.init(model, num_agents=6)
    for _ in range(100):
        ask, state = server.ask(state, model)                      # ask.model is what to broadcast
        reports, sent = collect(ask)                               # yours: ask.request samples of each agent
        done, state = server.settle(state, ask, reports, sent)     # done.payments, done.notes, done.evidence, …
        model = model - done.step * done.mean

Everything is pure: what the server knows is in the state, a NamedTuple of arrays (`guerdon.states` saves and restores
it). It runs on NumPy, on PyTorch, and on JAX under jit, vmap and scan. A model is an array or a list of layers; reports
are (agents, dim), a list of layers (agents, …), or `guerdon.evidence.AgentRows`, which are never copied as a whole.

What `settle` does, in this order:

1. Compare the reports. Where the rule compares pairs (information pay), all follows from the products of the reports
   around the prediction, read in one pass: copies are left out, reports that are too long are shortened, and the rest
   is compared with the agents that the rule trusts. Other rules get the evidence of `gather`, also in one pass.
   Unless all agents are `alike`, what is stable in how each differs is taken off first (`guerdon.records`).
2. Pay by the rule.
3. Take the mean of the reports, let the policy choose the step, and let the prediction learn.
4. Bet on pairs of agents whose reports agree too well (`guerdon.audit`).

A round in which no trusted agent sends anything usable teaches nothing; under a dither its half is asked for again.
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from guerdon._checks import check_model, check_parts, check_reports, check_same_model
from guerdon._round import Ask, Comparison, ServerState, Settlement, as_step, dither_of
from guerdon.arrays import (
    Array,
    check_choice,
    check_positive_integer,
    is_array,
    is_traced,
    namespace,
    over_layers,
    zeros_like,
)
from guerdon.audit import (
    accused_pairs,
    add_credit,
    bounded,
    copying,
    doubtful_pairs,
    first_credit,
    first_pairs,
    identical,
    usual_product,
    watch_pairs,
    widened,
    without_credit,
)
from guerdon.broadcasts import Dither, MeanNoise, secret_normals
from guerdon.evidence import (
    AgentRows,
    Layers,
    as_matrices,
    combine,
    cut_pairs,
    evidence_around_prediction,
    evidence_around_zero,
    gather,
    lengths_around,
    lengths_of,
    multiply,
    row_of,
    shortened_products,
    shortening,
)
from guerdon.predictions import Prediction, RunningMean, StepObservation, ZeroPrediction
from guerdon.records import LARGEST_MODEL, OwnRecords, adopt, shortened, widen
from guerdon.requests import Outcome, Requests
from guerdon.rules import Mechanism, Payments, as_request
from guerdon.rules.information import prediction_error
from guerdon.rules.mechanism import is_common, padded, pay_as_recorded, times
from guerdon.rules.witnessed import WitnessSample, evidence_around_witness
from guerdon.states import NoState, choose_state, map_state

Sends = Literal["gradients", "models"]
LONGEST = 3.0  # times the median length of the others' reports: longer ones are shortened before the model is made

__all__ = ["Ask", "Comparison", "Sends", "Server", "ServerState", "Settlement"]


@dataclass(frozen=True)
class Server:
    """Asks, compares, pays and learns.

    `prediction` is the public one of each mean gradient (default: `RunningMean` where the rule wants any).
    `dither` takes gradients to either side of the model in turn (see `guerdon.broadcasts`). `sends` says what agents
    send: gradients, or models that they trained from the one broadcast. Then `mean` is the mean move, and a step is
    taken in every round, also under a dither.

    Honest agents may have different data. So the model is made from every report that can be used, only reports that
    are identical count as copies, and what is stable in how an agent differs is taken off before reports are compared
    (`records`; None compares them as they are). `alike` says that all agents draw fresh samples of the same kind, as
    the paper's do. Then nothing is taken off, the model goes without agents that are not trusted, and agents whose
    reports agree too well in earlier rounds are not paid.

    >>> import numpy as np
    >>> from guerdon import AffineCost, FixedRequest, InformationPay
    >>> server = Server(InformationPay(AffineCost(1, 1)), FixedRequest(8, step=0.5))
    >>> model = np.zeros(2)
    >>> ask, state = server.ask(server.init(model, num_agents=4), model)
    >>> reports = np.array([[2.0, 0.0], [3.0, 1.0], [2.5, -0.5], [0.0, 0.0]])
    >>> done, state = server.settle(state, ask, reports, sent=np.ones(4, dtype=bool))
    >>> done.payments.reward.round(1)
    array([ 31.8,  18.8,  27.8, -42.5])
    >>> model - done.step * done.mean
    array([-0.9375, -0.0625])
    """

    mechanism: Mechanism
    requests: Requests
    prediction: Prediction | None = None
    dither: Dither | None = None
    sends: Sends = "gradients"
    alike: bool = False
    records: OwnRecords | None = field(default_factory=OwnRecords)

    def __post_init__(self) -> None:
        check_choice("sends", self.sends, ("gradients", "models"))
        check_parts(self.mechanism, self.requests, self.dither, self.sends)

    @property
    def predictor(self) -> Prediction:
        """The prediction that is made: none where none was given and the rule wants none."""
        wanted = self.mechanism.wants_prediction and not self.mechanism.wants_truth
        return self.prediction or (RunningMean() if wanted else ZeroPrediction())

    def init(self, model: Any, num_agents: int) -> ServerState:
        """Return the state before the first round."""
        check_positive_integer("num_agents", num_agents)
        check_model(model)
        return ServerState(
            np.zeros((), dtype=np.int32),
            self.mechanism.init(num_agents),
            self.requests.init(model, num_agents),
            self.predictor.init(model),
            NoState() if self.dither is None else self.dither.init(model),
            first_pairs(num_agents if self.mechanism.compares_pairs else 0),
            np.asarray(num_agents, dtype=np.int32),
            self._first_records(model, num_agents),
            first_credit(0 if self.mechanism.credits_doubtful_pairs else num_agents),
        )

    @property
    def recorder(self) -> OwnRecords | None:
        """What remembers how agents differ; None where they are alike, or not compared with each other."""
        return None if self.alike or not self.mechanism.compares_agents else self.records

    def _first_records(self, model: Any, num_agents: int) -> Any:
        dithered = self.dither is not None and self.mechanism.takes_off_answers
        return NoState() if self.recorder is None else self.recorder.init(model, num_agents, dithered=dithered)

    def for_model(self, model: Any) -> "Server":
        """Return the server for a model: of how agents differ, nothing is remembered where it is very large."""
        large = sum(math.prod(part.shape) for part in ([model] if is_array(model) else model)) > LARGEST_MODEL
        return replace(self, records=None) if large and self.recorder is not None else self

    def enlarge(self, state: ServerState, num_agents: int) -> ServerState:
        """Return the state for more agents: newcomers come last, and nothing is known of them."""
        pairs = widened(state.pairs, num_agents) if self.mechanism.compares_pairs else state.pairs
        rule, enrolled = padded(self.mechanism.init(num_agents), state.rule), np.asarray(num_agents, dtype=np.int32)
        records = state.records if self.recorder is None else widen(state.records, num_agents)
        credit = state.credit if self.mechanism.credits_doubtful_pairs else widened(state.credit, num_agents)
        return state._replace(rule=rule, pairs=pairs, enrolled=enrolled, records=records, credit=credit)

    def adopt(self, state: ServerState, other: ServerState, who: Array) -> ServerState:
        """Return the state with what `other`, a state of as many agents, knows of some of them."""
        xp = namespace(who)

        def chosen(own: Any, theirs: Any) -> Any:
            return own if is_common(own) else xp.where(who, xp.asarray(theirs, dtype=own.dtype), own)

        rule = type(state.rule)(*map(chosen, state.rule, other.rule))
        records = state.records if self.recorder is None else adopt(state.records, other.records, who)
        return state._replace(rule=rule, records=records)

    def admit(self, state: ServerState, newcomers: Array) -> ServerState:
        """Return the state with some agents' places given to newcomers: nothing is known of them.

        What a rule would still have settled for the agents that had these places is dropped, as with a name that is
        thrown away: a simulation's, never a ledger's, where newcomers come last.
        """
        xp = namespace(newcomers)
        fresh = state._replace(
            rule=self.mechanism.init(newcomers.shape[0]), records=map_state(lambda x: 0 * x, state.records)
        )
        state = self.adopt(state, fresh, newcomers)
        state = state._replace(enrolled=state.enrolled + xp.sum(xp.astype(newcomers, xp.int32)))
        if not self.mechanism.compares_pairs:
            return state
        touched = newcomers[:, None] | newcomers[None, :]
        if not self.mechanism.credits_doubtful_pairs:
            state = state._replace(credit=xp.where(touched, 0.0, state.credit))
        return state._replace(pairs=xp.where(touched, 0.0, state.pairs))

    @property
    def needs_mean(self) -> bool:
        """Whether anything learns from the mean gradient."""
        learns = self.prediction is not None or self.mechanism.wants_prediction or self.recorder is not None
        return learns or self.dither is not None or self.requests.learns

    def for_agents(self, state: ServerState, num_agents: float) -> ServerState:
        """Return the state where so many agents (or cost factors, added up) will be asked: they share a budget."""
        return state._replace(requests=self.requests.for_agents(state.requests, num_agents))

    def request(self, state: ServerState) -> Array:
        """Return how many samples the next round asks for; 0 ends the training."""
        return self.requests.ask(state.requests, state.round)

    def ask(self, state: ServerState, model: Any, normals: Any = None) -> tuple[Ask, ServerState]:
        """Return what to ask for, and the state to settle the round with.

        Under a dither `normals` are fresh standard normal numbers in the model's shape. Where none are given they come
        from the operating system, but not in a compiled function, which would draw once and for all.
        """
        check_model(model)
        check_same_model(state, model)
        origin = model
        if self.dither is not None:
            if normals is None and is_traced(*([model] if is_array(model) else model)):
                raise ValueError(
                    "`normals` must be given under a dither in a compiled function: fresh normal numbers in the "
                    "model's shape, such as jax.random.normal(key, model.shape)"
                )
            normals = secret_normals(model) if normals is None else normals
            model, placed = self.dither.place(state.dither, origin, normals)
            state = state._replace(dither=placed)
        prediction = self.predictor.predict(state.prediction, model)
        request = self.request(state)
        return Ask(model, request, origin, prediction, self.mechanism.own_requests(state.rule, request)), state

    def compare(
        self, state: ServerState, ask: Ask, reports: Layers, sent: Array, witness: WitnessSample | None = None
    ) -> Comparison:
        """Return how the reports of those who `sent` anything compare."""
        if self.mechanism.wants_witness:
            return self._compare_with_witness(ask, reports, sent, witness)
        offsets = None if self.recorder is None else self.recorder.offsets(state.records, dither_of(ask))
        if self.mechanism.compares_pairs:
            return self._compare_pairs(state, ask, reports, sent, offsets)
        rule = self.mechanism
        start = ask.model if self.sends == "models" else None
        plain = gather(reports, sent, start)
        found = plain if offsets is None else gather(reports, sent, start, offsets=offsets)
        if rule.wants_prediction:
            found = gather(reports, sent, self.centre(ask), rule.reference(state.rule, plain.counted), offsets)
        xp, counted = namespace(found.length), found.counted
        trusted = rule.reference(state.rule, counted)
        nobody = xp.zeros_like(counted)
        used = trusted if self.alike else counted
        error = prediction_error(found, trusted, ask.request)
        whole, towards = xp.ones_like(found.length), self.centre(ask)
        parts = whole if self.alike else shortening(lengths_around(reports, sent, start), counted, LONGEST)
        if rule.reach:
            cut = (
                2 * rule.reach * xp.asarray(rule.scale(state.rule), dtype=whole.dtype) / as_request(found, ask.request)
            )
            pairs = cut_pairs(reports, found, offsets, cut, rule.reach)
            found = found._replace(pair_distance=pairs.pair_distance)
            if self.recorder is None and not (isinstance(reports, AgentRows) and not len(reports.seats)):
                parts, towards = pairs.parts, row_of(reports, pairs.middle)
        return Comparison(found, plain, trusted, used, nobody, whole, parts, None, offsets, nobody, error, towards)

    def pay(
        self, state: ServerState, ask: Ask, reports: Layers, sent: Array, witness: WitnessSample | None = None
    ) -> tuple[Payments, Comparison, ServerState]:
        """Return what each agent is paid, how the reports compare, and the state with its rule and pairs changed."""
        check_reports(ask.origin, reports, sent, state.enrolled)
        payments, found, _, state = self._pay(state, ask, reports, sent, witness, mean=False)
        return payments, found, state

    def _pay(
        self, state: ServerState, ask: Ask, reports: Layers, sent: Array, witness: WitnessSample | None, *, mean: bool
    ) -> tuple[Payments, Comparison, Any, ServerState]:
        """Return also the mean: zeros unless it is wanted, or records are kept."""
        found = self.compare(state, ask, reports, sent, witness)
        payments, rule = pay_as_recorded(self.mechanism, state.rule, found.evidence, sent, ask.request)
        average = self._mean(found, ask, reports) if mean or self.recorder else zeros_like(ask.origin)
        records = self._record(state, ask, reports, found, average)
        credit = state.credit if found.credit is None else found.credit
        state = state._replace(rule=rule, pairs=self._watch(state, found), records=records, credit=credit)
        return payments, found, average, state

    def settle(
        self,
        state: ServerState,
        ask: Ask,
        reports: Layers,
        sent: Array,
        *,
        witness: WitnessSample | None = None,
        mean: bool = True,
        factors: Any = 1.0,
    ) -> tuple[Settlement, ServerState]:
        """Return what the round came to, and the next state. Reports of agents who did not send are not looked at.

        `witness` is what the server's own data say at `ask.model`, for a rule that wants it (`WitnessedPay`).
        `mean=False` leaves the mean out (zeros) where nothing learns from it: for a model that is made elsewhere.
        `factors`, one for each agent, say whose work costs a multiple of the rule's cost: so much more it is paid.
        """
        check_reports(ask.origin, reports, sent, state.enrolled)
        payments, found, average, state = self._pay(state, ask, reports, sent, witness, mean=mean or self.needs_mean)
        xp, payments = namespace(payments.reward), times(payments, factors)
        outcome = Outcome(ask.request, found.plain, average, xp.sum(payments.reward))
        step, requests = self.requests.observe(state.requests, outcome)
        nothing = 0 * found.error.signal
        step = as_step(step, ask)
        done = Settlement(payments, found.evidence, average, step, found, found.error, xp.inf + nothing, nothing)
        return self._learn(state._replace(round=state.round + 1, requests=requests), ask, done)

    def centre(self, ask: Ask) -> Any:
        """Return the point that reports are compared around: the prediction, of gradients or of models."""
        if self.sends == "gradients":
            return ask.prediction
        return over_layers(lambda model, move: model + move, ask.model, ask.prediction)

    def _compare_with_witness(
        self, ask: Ask, reports: Layers, sent: Array, witness: WitnessSample | None
    ) -> Comparison:
        """Return how the reports compare with the gradient of the server's own data."""
        rule = self.mechanism
        if witness is None or witness.samples != rule.samples:
            raise ValueError(
                f"`witness` must be what {rule.samples} samples of the server's own say in this round, for "
                f"{type(rule).__name__} (see `guerdon.rules.witness_sample`), got {witness and witness.samples}"
            )
        found, plain = evidence_around_witness(reports, sent, witness, ask.request), gather(reports, sent)
        xp, counted = namespace(found.length), found.counted
        whole, nobody = xp.ones_like(found.length), xp.zeros_like(counted)
        error = prediction_error(gather(reports, sent, self.centre(ask)), counted, ask.request)
        parts = whole if self.alike else shortening(lengths_around(reports, sent, None), counted, LONGEST)
        towards = self.centre(ask)
        return Comparison(found, plain, counted, counted, nobody, whole, parts, None, None, nobody, error, towards)

    def _compare_pairs(self, state: ServerState, ask: Ask, reports: Layers, sent: Array, offsets: Any) -> Comparison:
        """Return how the reports compare, copies left out and long reports shortened: all from their products."""
        products = multiply(reports, sent, self.centre(ask), offsets)
        counted = products.counted
        plain = evidence_around_zero(products, counted)
        copies = identical(products.plain, plain.length, counted)
        watched, pairs = products.inner, namespace(products.inner).asarray(state.pairs, dtype=products.inner.dtype)
        if self.alike:
            copies = copying(copies, counted, pairs, state.enrolled)
        kept = counted & ~copies
        trusted = self.mechanism.reference(state.rule, kept)
        factors, parts = (shortening(square, kept, self.mechanism.limit) for square in lengths_of(products))
        evidence = evidence_around_prediction(products, factors, kept, trusted)
        alignment, credit = self._alignment(state, shortened_products(products, factors, kept), kept, trusted, pairs)
        evidence = evidence._replace(alignment=alignment)
        plain, used = evidence_around_zero(products, kept), trusted if self.alike else kept
        # Of the agents that the mean is made from: noise of those that are not trusted is in it too.
        error = prediction_error(evidence_around_prediction(products, factors, kept, used), used, ask.request)
        return Comparison(
            evidence, plain, trusted, used, copies, factors, parts, watched, offsets, counted, error, self.centre(ask),
            credit,
        )  # fmt: skip

    def _alignment(
        self, state: ServerState, products: Array, kept: Array, trusted: Array, pairs: Array
    ) -> tuple[Array, Array | None]:
        """Return how well each report agrees with the trusted ones, and what pairs agreed so far.

        What pairs share that are not relied on is no part of it.
        """
        xp, rule, credit = namespace(products), self.mechanism, None
        if rule.credits_doubtful_pairs:
            doubted = accused_pairs(pairs, state.enrolled) & (not self.alike)
        else:
            before, usual = xp.asarray(state.credit, dtype=products.dtype), usual_product(products, trusted)
            doubted, products = doubtful_pairs(before), bounded(products, usual)
            credit = add_credit(before, products, usual, kept)
        credited = without_credit(products, trusted, doubted, rule.knowledge(state.rule, trusted))
        return xp.sum(credited * xp.astype(trusted, products.dtype)[None, :], axis=1), credit

    def _mean(self, found: Comparison, ask: Ask, reports: Layers) -> Any:
        """Return the mean of the reports that are used, shortened where they are too long; zero if there are none."""
        xp = namespace(found.parts)
        count = xp.sum(xp.astype(found.used, found.parts.dtype))
        if not is_traced(count) and not bool(count):
            return zeros_like(ask.origin)
        weights = xp.where(found.used, found.parts, 0.0) / xp.where(count > 0, count, 1.0)
        mean = combine(reports, weights)
        if is_traced(weights) or bool(xp.any(found.used & (found.parts < 1))):
            rest = xp.where(count > 0, 1 - xp.sum(weights), 0.0)  # what shortening leaves to the prediction
            mean = over_layers(lambda part, centre: xp.where(count > 0, part + rest * centre, 0.0), mean, found.towards)
        if self.sends == "models":
            mean = over_layers(lambda part, start: xp.where(count > 0, part - start, 0.0), mean, ask.model)
        return over_layers(lambda part, model: namespace(part).astype(part, model.dtype), mean, ask.origin)

    def _record(self, state: ServerState, ask: Ask, reports: Layers, found: Comparison, mean: Any) -> Any:
        """Return what is known of how agents differ after the round: of their reports as the model has them."""
        recorder, xp = self.recorder, namespace(found.parts)
        if recorder is None or (isinstance(reports, AgentRows) and not len(reports.seats)):
            return state.records
        counted, centre = found.evidence.counted, self.centre(ask)
        rows = shortened(as_matrices(reports), centre, found.parts)
        if self.sends == "models":
            mean = over_layers(lambda move, start: move + start, mean, ask.model)
        heard = counted & (xp.sum(xp.astype(counted, xp.int32)) > 1)
        return recorder.learn(state.records, rows, found.offsets, mean, centre, dither_of(ask), heard)

    def _watch(self, state: ServerState, found: Comparison) -> Array:
        """Return the wealth of the bets against pairs after the round."""
        if found.products is None:
            return state.pairs
        before = namespace(found.products).asarray(state.pairs, dtype=found.products.dtype)
        return watch_pairs(before, found.products, found.watched, found.trusted, state.enrolled)

    def _learn(self, state: ServerState, ask: Ask, done: Settlement) -> tuple[Settlement, ServerState]:
        """Return the settlement with its step, and the state with what the round has shown."""
        if self.dither is not None:
            return self._learn_from_half(self.dither, state, ask, done)
        heard = namespace(done.error.signal).any(done.comparison.used)
        seen = StepObservation(ask.origin, done.mean)
        learned = choose_state(heard, lambda: self.predictor.learn(state.prediction, seen), state.prediction)
        return self._as_move(done), state._replace(prediction=learned)

    def _as_move(self, done: Settlement) -> Settlement:
        """Return the settlement with the step that models take: all of the mean move."""
        return done._replace(step=0 * done.step - 1) if self.sends == "models" else done

    def _learn_from_half(
        self, dither: Dither, state: ServerState, ask: Ask, done: Settlement
    ) -> tuple[Settlement, ServerState]:
        """Return both under a dither: a step is taken, and something learned, where a pair of rounds ends."""
        xp = namespace(done.error.signal)
        heard = xp.any(done.comparison.used)
        used = xp.sum(xp.astype(done.comparison.used, done.error.signal.dtype))
        noise = MeanNoise(done.error.variance, used * as_request(done.evidence, ask.request))
        seen, after = dither.observe(state.dither, ask.origin, done.mean, ask.prediction, noise)
        ends = heard & dither.ends(state.dither)
        adapted = choose_state(ends, lambda: dither.adapt(after, ask.request), after)
        settled = done._replace(noise_scale=after.noise_scale, offset=state.dither.length)
        if self.sends == "gradients":
            settled = settled._replace(
                step=choose_state(ends, lambda: done.step, 0 * done.step),
                mean=choose_state(ends, lambda: seen.mean, done.mean),
            )
        return self._as_move(settled), state._replace(
            prediction=choose_state(ends, lambda: self.predictor.learn(state.prediction, seen), state.prediction),
            dither=choose_state(heard, lambda: adapted, state.dither),
        )
