"""Models and reports as arrays by name, for a server that knows lists of layers.

Only arrays of floating-point numbers count, in the order of their names: no app can change that between runs.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from guerdon.asking import Ask
from guerdon.run.reports import Arrays, Report
from guerdon.run.rounds import PaidRound, Seats


class Layers(NamedTuple):
    """The arrays of a model that are compared. `wide`: in double precision, because something is learned from them."""

    names: list[str]
    wide: bool

    def of(self, model: Arrays) -> list[np.ndarray]:
        """Return a model's arrays that are compared."""
        found = [model[name] for name in self.names]
        return [part.astype(np.float64) for part in found] if self.wide else found

    def put(self, model: Arrays, layers: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return a model with other numbers in the arrays that are compared, in its own types."""
        moved = dict(zip(self.names, layers, strict=True))
        return {name: moved[name].astype(old.dtype) if name in moved else old for name, old in model.items()}

    def rows(self, seats: Seats) -> list[list[np.ndarray] | None]:
        """Return what each agent sent; None where nothing can be used."""
        names = self.names
        return [[x.arrays[name] for name in names] if x is not None and x.usable else None for x in seats.reports]

    def named(self, layers: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return layers by name."""
        return dict(zip(self.names, layers, strict=True))

    def kept(self, paid: PaidRound, ask: Ask, *, shifts: bool) -> list[tuple[Report, Arrays]]:
        """Return the reports that the model is made from, and their arrays: too long ones shortened.

        `shifts`: agents trained from beside the model, and what they sent is moved back by as much.
        """
        found = paid.done.reading
        seats = zip(paid.seats.reports, found.parts, found.used, strict=True)
        kept = [(report, float(part)) for report, part, used in seats if used and report is not None and report.usable]
        places = dict(zip(self.names, zip(found.towards, ask.model, ask.origin, strict=True), strict=True))
        return [(report, _as_used(report.arrays, part, places, shifts=shifts)) for report, part in kept]


def _as_used(
    sent: Arrays, factor: float, places: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]], *, shifts: bool
) -> Arrays:
    """Return p + factor·(X − p), less u where models are sent, in the types of X; X is shortened towards p."""
    if factor >= 1 and not shifts:
        return sent
    used = dict(sent)
    for name, (towards, model, origin) in places.items():
        part = towards + factor * (sent[name] - towards) if factor < 1 else sent[name]
        used[name] = (part - (model - origin) if shifts else part).astype(sent[name].dtype)
    return used
