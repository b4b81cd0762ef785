"""What is broadcast: the model, or under a dither two models beside it by turns.

A pair of rounds asks for gradients at θ + u and at θ − u, and ends with one step of θ along the mean of both. Only θ is
kept, evaluated and saved. A round in which nobody sends anything usable is no half of a pair: its half is asked for
again in the next round (at the same u, if it is the second), so that a step is always along both, and H·u cancels.

u is drawn afresh for every pair from the operating system's randomness. It is never logged, and leaves the server in
the broadcast only; the ledger's checkpoint holds it, once θ + u has been answered, to go on with θ − u.
"""

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from guerdon.broadcasts import Dither, Dithering
from guerdon.flower import recovery
from guerdon.flower.comparison import as_layers
from guerdon.flower.payload import read_arrays
from guerdon.information import InformationPay, noise_scale_bound
from guerdon.mechanisms import Mechanism
from guerdon.predictions import Prediction, Seen
from guerdon.requests import Requests

log = logging.getLogger("flwr.guerdon")

SECOND = "second"  # in a checkpoint: whether θ + u is answered already


def check_terms(
    mechanism: Mechanism, requests: Requests, prediction: Prediction | None, dither: Dither | None, *, steps: bool
) -> None:
    """Raise where the parts of paid rounds do not fit each other; `steps` tells that nodes send gradients."""
    if requests.recalls and not steps:
        raise ValueError(
            "`requests` that learn need gradients, and choose the step: wrap `FedSGD`, or ask for a fixed or "
            "scheduled number of samples"
        )
    if prediction is not None and not isinstance(mechanism, InformationPay):
        raise ValueError(
            f"`prediction` must be None with {type(mechanism).__name__}, which would not look at it; pay by "
            "`InformationPay`, or leave the prediction out"
        )
    if dither is not None and not steps:
        raise ValueError(
            "`dither` must be None unless nodes send gradients: only those at θ + u and θ − u cancel in a step of θ, "
            "while models trained from there would carry u into the mean; wrap `FedSGD`, or leave the dither out"
        )
    if dither is not None and requests.recalls:
        raise ValueError(
            "`requests` must be fixed or scheduled under a dither: those that learn expect a step in every round"
        )


class Broadcast:
    """Where the model is broadcast, and what there is to step along once the replies are in."""

    def __init__(self, dither: Dither | None) -> None:
        self.dither = dither
        self._names: list[str] = []
        self._state: Any = None  # a `Dithering`
        self._second = False
        self._seen: Dithering | None = None  # as the last round left it, ‖u‖ not adapted yet
        self._verdict = ""  # on the noise scale, as it was last logged

    def begin(self, names: Sequence[str], model: ArrayRecord, saved: Mapping[str, Any]) -> None:
        """Take up a pair where it stands, or begin with the first."""
        self._names, self._second, self._seen = list(names), False, None
        if self.dither is None:
            return
        empty = self.dither.init([0 * part for part in as_layers(model, names)])
        state = recovery.full_state(empty, {name: part for name, part in saved.items() if name != SECOND})
        self._state = empty if state is None else state
        self._second = state is not None and bool(saved[SECOND])

    def place(self, model: ArrayRecord) -> ArrayRecord:
        """Return what is broadcast in place of a model."""
        if self.dither is None:
            return model
        layers = as_layers(model, self._names)
        normals = self._state.offset if self._second else fresh_normals(layers)
        placed, self._state = self.dither.place(self._state, layers, np.asarray(int(self._second)), normals)
        kinds = read_arrays(model)
        moved = {name: part.astype(kinds[name].dtype) for name, part in zip(self._names, placed, strict=True)}
        return ArrayRecord({name: Array(moved[name]) if name in moved else old for name, old in model.items()})

    def observe(
        self, model: ArrayRecord, aggregate: list[np.ndarray], prediction: Any, noise: tuple[Any, int], request: int
    ) -> Seen | None:
        """Return what to step along from `model` and learn from, or None if the pair is not at its end.

        `aggregate` is the mean of what was sent, `prediction` what was expected of it (None: nothing), and `noise` the
        variance of a single sample's gradient, and how many samples there are in all.
        """
        layers = as_layers(model, self._names)
        if self.dither is None:
            return Seen(layers, aggregate)
        half, (variance, samples) = np.asarray(int(self._second)), noise
        expected = [0 * part for part in aggregate] if prediction is None else prediction
        seen, self._seen = self.dither.observe(
            self._state, half, layers, aggregate, expected, variance, np.asarray(float(samples))
        )
        ended, self._second = self._second, not self._second
        self._state = self.dither.adapt(self._seen, request) if ended else self._seen
        return seen if ended else None

    def metrics(self) -> dict[str, float]:
        """Return what Flower is to log of the last round's dither: ‖u‖, and the noise scale that it made."""
        if self._seen is None:
            return {}
        return {"guerdon-noise-scale": float(self._seen.noise_scale), "guerdon-offset": float(self._seen.length)}

    def tell(self, mechanism: Any, request: int) -> None:
        """Log whether the noise scale is below the bound of the cost, when that changes."""
        if self.dither is None or self._seen is None or self._seen.weight == 0:
            return
        if not isinstance(mechanism, InformationPay):
            return
        bound, found = noise_scale_bound(mechanism.cost, request), float(self._seen.noise_scale)
        longest = self.dither.cost is None or self._seen.length >= self.dither.largest
        verdict = "met" if found < bound else "not met" if longest else ""
        if verdict and verdict != self._verdict:
            self._verdict = verdict
            what = (
                "public knowledge alone earns nothing"
                if verdict == "met"
                else "a report made from public knowledge may earn up to the fixed part of the cost: allow a longer "
                "dither, ask for more samples, or hold the fixed part in escrow"
            )
            log.info("The noise scale is %.3g, its bound %.3g is %s: %s", found, bound, verdict, what)

    def saved(self) -> dict[str, Any]:
        """Return what a checkpoint must hold."""
        if self.dither is None:
            return {}
        return recovery.flat_state(self._state) | {SECOND: np.asarray(int(self._second))}


def fresh_normals(layers: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return normal numbers in the shape of some layers, that nothing drawn before helps to predict."""
    rng = np.random.default_rng(secrets.randbits(256))
    return [rng.standard_normal(part.shape) for part in layers]
