"""A round's reports beside each other: gathered around the prediction, over-long ones shortened, pairs watched."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord

from guerdon.audit import copying, first_pairs, watch_pairs
from guerdon.evidence import Evidence, gather, products, shortening
from guerdon.flower import recovery
from guerdon.flower.payload import TOO_LARGE, Arrays, Blocks, Columns, mean, read_arrays
from guerdon.flower.replies import Report
from guerdon.information import InformationPay
from guerdon.mechanisms import Mechanism
from guerdon.predictions import Prediction, Seen

COPY = "it is a copy of another's report, now or in earlier rounds"


class Comparison(NamedTuple):
    """How reports compare, one entry for each; zeros and nothing for those that cannot be used."""

    evidence: Evidence
    reference: Any  # whose reports the others are compared with, and the model is made from
    rows: list[Arrays]  # the reports as they are compared: over-long ones are shortened
    factors: Any  # by which they were shortened; 1 for most
    products: Any = None  # ⟨X_i − p, X_j − p⟩ of the reports as they came, for rules that look at pairs, …
    watched: Any = None  # … and whose reports these are: copies are among them

    def mean(self, names: Sequence[str]) -> list[np.ndarray]:
        """Return the mean of the reference, array by array, in double precision."""
        rows = [row for row, kept in zip(self.rows, self.reference.tolist(), strict=True) if kept]
        return [mean(rows, name) for name in names]

    def annotate(self, reports: Sequence[Report]) -> None:
        """Note on the reports that can be used what else was done with them than with others."""
        for report, factor, kept in zip(reports, self.factors.tolist(), self.reference.tolist(), strict=True):
            if report.usable:
                words = [f"shortened to {factor:.3g} of its length around the prediction"] * (factor < 1)
                words += ["others are not compared with it, and the model goes without it"] * (not kept)
                report.note = "; ".join(words)

    def watch(self, pairs: Any, where: Sequence[int | None]) -> Any:
        """Return the bets against pairs of accounts after the round; `where` are the accounts' reports."""
        if self.products is None:
            return pairs
        watched = np.array([index is not None and self.watched[index] for index in where], dtype=bool)
        before = first_pairs(0) if pairs is None else pairs
        return watch_pairs(before, _scattered_pairs(self.products, where), watched)

    def kept(self, reports: Sequence[Report]) -> list[Any]:
        """Return the replies that the model is made from, over-long ones shortened; all others as they came."""
        for report, row in zip(reports, self.rows, strict=True):
            if report.usable and row is not report.arrays:
                report.replace(row)
        chosen = zip(reports, self.reference.tolist(), strict=True)
        return [report.reply for report, kept in chosen if kept and report.reply is not None]


class Terms(NamedTuple):
    """What reports are compared by, beside themselves."""

    names: Sequence[str]  # of the arrays that are compared
    origin: Arrays | None  # the point they are compared around
    rule: Mechanism
    trust: Callable[[Sequence[Report]], Any]  # whose reports others are compared with, of those that can be used
    pairs: Any  # wealth of the bets against pairs of reports, before the round


def compare(reports: Sequence[Report], terms: Terms) -> Comparison:
    """Return how reports compare; who sent a copy, or numbers that cannot be computed with, is refused.

    Under information pay, reports longer than its limit are shortened first, and alignment is with the trusted alone.
    The others' digits are those of a round without whoever is refused.
    """
    names, origin, rule = terms.names, terms.origin, terms.rule
    where = np.array([report.usable for report in reports], dtype=bool)
    rows = [report for report in reports if report.usable]
    if not rows:
        nothing = np.zeros(len(reports))
        return Comparison(Evidence(nothing, nothing, nothing, where), where, [{} for _ in reports], nothing)
    everybody = np.ones(len(rows), dtype=bool)
    guess = None if origin is None else Blocks(origin, names)
    compared: list[Arrays] = [row.arrays for row in rows]
    trusted = terms.trust(reports)
    reference = trusted[where] if isinstance(rule, InformationPay) else None
    found, alike, factors = gather(Columns(compared, names), everybody, guess, reference), None, np.ones(len(rows))
    if found.counted.all() and isinstance(rule, InformationPay) and origin is not None:
        # Not the evidence's own lengths: beside garbage, rounding eats those of the others.
        alike = products(Columns(compared, names), everybody, guess)
        copies = copying(alike, everybody, terms.pairs[:, where][..., where])
        if copies.any():
            for row in np.array(rows, dtype=object)[copies]:
                row.refuse(COPY)
            pairs = _spread(_spread(alike, where).T, where)
            return compare(reports, terms)._replace(products=pairs, watched=where)
        factors = shortening(np.diagonal(alike), everybody, rule.limit)
        if (factors < 1).any():
            compared = [_shortened(row, names, origin, f) for row, f in zip(compared, factors.tolist(), strict=True)]
            found = gather(Columns(compared, names), everybody, guess, reference)
    if not found.counted.all():
        for row, counted in zip(rows, found.counted.tolist(), strict=True):
            if not counted:
                row.refuse(TOO_LARGE)
        return compare(reports, terms)
    parts = [_spread(part, where) for part in found[:3]]
    again = iter(compared)
    listed: list[Arrays] = [next(again) if usable else {} for usable in where.tolist()]
    pairs = None if alike is None else _spread(_spread(alike, where).T, where)
    kept = where if reference is None else where & trusted
    return Comparison(Evidence(*parts, counted=where), kept, listed, _spread(factors, where), pairs, where)


def _shortened(row: Arrays, names: Sequence[str], origin: Arrays, factor: float) -> Arrays:
    """Return p + factor·(X − p) in the types of X; X itself where it is short enough."""
    if factor >= 1:
        return row
    return {
        **row,
        **{name: (origin[name] + factor * (row[name] - origin[name])).astype(row[name].dtype) for name in names},
    }


def _spread(values: Any, where: Any) -> Any:
    """Return rows for all, zero for those of whom there is none."""
    spread = np.zeros((len(where), *values.shape[1:]))
    spread[where] = values
    return spread


class Outlook:
    """The server's public prediction of what nodes send, learned from step to step."""

    def __init__(self, prediction: Prediction) -> None:
        self.prediction = prediction
        self._names: list[str] = []
        self._state: Any = None

    def begin(self, names: Sequence[str], model: ArrayRecord, saved: Mapping[str, Any]) -> None:
        """Take up what is saved, or begin with nothing known; another prediction begins anew."""
        self._names = list(names)
        empty = self.prediction.init([0 * part for part in as_layers(model, names)])
        found = recovery.full_state(empty, saved)
        self._state = empty if found is None else found

    def expected(self, sent: ArrayRecord, *, moves: bool) -> Arrays:
        """Return what is expected from nodes that were sent this model: gradients, or the model moved as predicted."""
        layers = as_layers(sent, self._names)
        predicted = self.prediction.predict(self._state, layers)
        if moves:
            predicted = [part + move for part, move in zip(layers, predicted, strict=True)]
        return dict(zip(self._names, predicted, strict=True))

    def learn(self, seen: Seen) -> None:
        """Learn from a step."""
        self._state = self.prediction.learn(self._state, seen)

    def saved(self) -> dict[str, Any]:
        """Return what a checkpoint must hold."""
        return recovery.flat_state(self._state)


def among(pairs: Any, places: Sequence[int | None]) -> Any:
    """Return the bets against pairs of a run's accounts as those against pairs of reports, given their places."""
    found = first_pairs(len(places))
    if pairs is None:
        return found
    known = [i for i, place in enumerate(places) if place is not None and place < pairs.shape[-1]]
    theirs = [place for place in places if place is not None and place < pairs.shape[-1]]
    every = range(len(found))
    found[np.ix_(every, known, known)] = pairs[np.ix_(every, theirs, theirs)]
    return found


def as_layers(record: ArrayRecord, names: Sequence[str]) -> list[np.ndarray]:
    """Return some arrays of a model, in double precision."""
    arrays = read_arrays(record)
    return [arrays[name].astype(np.float64) for name in names]


def _scattered_pairs(values: Any, where: Sequence[int | None]) -> Any:
    """Return numbers of pairs of reports as those of pairs of accounts: zero where there is no report."""
    spread = np.zeros((len(where), len(where)))
    known = np.array([index is not None for index in where])
    chosen = [index for index in where if index is not None]
    spread[np.ix_(known, known)] = values[np.ix_(chosen, chosen)]
    return spread
