"""A round's reports beside each other: gathered around the prediction, over-long ones shortened, pairs watched."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord

from guerdon.audit import BETS, bet, pair_scores
from guerdon.evidence import Evidence, gather, products, shortening
from guerdon.flower import recovery
from guerdon.flower.payload import TOO_LARGE, Arrays, Blocks, Columns, mean, read_arrays
from guerdon.flower.replies import Report
from guerdon.information import InformationPay
from guerdon.mechanisms import Mechanism
from guerdon.predictions import Prediction, Seen


class Comparison(NamedTuple):
    """How reports compare, one entry for each; zeros and nothing for those that cannot be used."""

    evidence: Evidence
    reference: Any  # whose reports the others are compared with, and the model is made from
    rows: list[Arrays]  # the reports as they are compared: over-long ones are shortened
    factors: Any  # by which they were shortened; 1 for most
    products: Any = None  # ⟨X_i − p, X_j − p⟩ of them, for rules that look at pairs

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

    def kept(self, reports: Sequence[Report]) -> list[Any]:
        """Return the replies that the model is made from, over-long ones shortened; all others as they came."""
        for report, row in zip(reports, self.rows, strict=True):
            if report.usable and row is not report.arrays:
                report.replace(row)
        chosen = zip(reports, self.reference.tolist(), strict=True)
        return [report.reply for report, kept in chosen if kept and report.reply is not None]


def compare(
    reports: Sequence[Report], names: Sequence[str], origin: Arrays | None, rule: Mechanism, trusted: Any
) -> Comparison:
    """Return how reports compare around `origin`; who sent numbers that cannot be computed with is refused.

    Under information pay, reports longer than its limit are shortened first, and alignment is with the `trusted` alone.
    The others' digits are those of a round without whoever is refused.
    """
    where = np.array([report.usable for report in reports], dtype=bool)
    rows = [report for report in reports if report.usable]
    if not rows:
        nothing = np.zeros(len(reports))
        return Comparison(Evidence(nothing, nothing, nothing, where), where, [{} for _ in reports], nothing)
    everybody = np.ones(len(rows), dtype=bool)
    guess = None if origin is None else Blocks(origin, names)
    compared: list[Arrays] = [row.arrays for row in rows]
    reference = trusted[where] if isinstance(rule, InformationPay) else None
    found, alike, factors = gather(Columns(compared, names), everybody, guess, reference), None, np.ones(len(rows))
    if found.counted.all() and isinstance(rule, InformationPay) and origin is not None:
        # Not the evidence's own lengths: beside garbage, rounding eats those of the others.
        alike = products(Columns(compared, names), everybody, guess)
        factors = shortening(np.diagonal(alike), everybody, rule.limit)
        if (factors < 1).any():
            compared = [_shortened(row, names, origin, f) for row, f in zip(compared, factors.tolist(), strict=True)]
            found = gather(Columns(compared, names), everybody, guess, reference)
            alike = alike * factors[:, None] * factors
    if not found.counted.all():
        for row, counted in zip(rows, found.counted.tolist(), strict=True):
            if not counted:
                row.refuse(TOO_LARGE)
        return compare(reports, names, origin, rule, trusted)
    parts = [_spread(part, where) for part in found[:3]]
    again = iter(compared)
    listed: list[Arrays] = [next(again) if usable else {} for usable in where.tolist()]
    pairs = None if alike is None else _spread(_spread(alike, where).T, where)
    kept = where if reference is None else where & trusted
    return Comparison(Evidence(*parts, counted=where), kept, listed, _spread(factors, where), pairs)


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


def as_layers(record: ArrayRecord, names: Sequence[str]) -> list[np.ndarray]:
    """Return some arrays of a model, in double precision."""
    arrays = read_arrays(record)
    return [arrays[name].astype(np.float64) for name in names]


def first_pairs(num_agents: int) -> np.ndarray:
    """Return the logarithms of what the bets against pairs have become before the first round."""
    return np.zeros((len(BETS), num_agents, num_agents))


def watch_pairs(pairs: np.ndarray | None, alike: Any, counted: Any) -> np.ndarray:
    """Return the pairs' log-wealth after a round of these inner products; newcomers come after those there were."""
    grown = first_pairs(len(counted))
    if pairs is not None:
        before = pairs.shape[-1]
        grown[:, :before, :before] = pairs
    return bet(grown, pair_scores(alike, counted))
