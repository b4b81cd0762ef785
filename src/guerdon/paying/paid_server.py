"""The server of `guerdon.server`, on arrays by name: a model becomes layers, reports become rows, and back.

Only arrays of floating-point numbers count, in the order of their names: no app can change that between runs.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from guerdon.paying.book import PaidRound, Seats
from guerdon.paying.messages import MODELS, Request
from guerdon.paying.reports import TOO_LARGE, Arrays, Report, Template, Witness
from guerdon.reports import AgentRows
from guerdon.rule import Need, Rule, notice_of
from guerdon.server import Ask, Server
from guerdon.states import flatten_state, restore_parts
from guerdon.statistical.dithers import dither_in, secret_normals
from guerdon.statistical.information import noise_scale_bound
from guerdon.statistical.lenses import prediction_of, warning_of
from guerdon.statistical.predictions import ZeroPrediction
from guerdon.witness import WitnessSample, stack_minibatches, witness_sample, witness_samples
from guerdon.words import about

TOO_FAR = "it lies so far from all others that nobody else could be paid"

PARTS = ("requests", "lens", "broadcast")  # of the server's state, in a checkpoint; the ledger replays the rule's
MEANING = {
    "met": "public knowledge alone earns nothing",
    "not met": "a report made from public knowledge may earn up to the fixed part of the cost: allow a longer dither, "
    "ask for more samples, or hold the fixed part in escrow",
}

STAKE = (
    "A member can lose at most %.6g in a round of %d samples, times its cost factor. Members that are known carry such "
    "a loss; a seat for others needs a deposit of as much"
)
NOTHING_TO_TELL = (
    "Without a dither there is little to tell once the model is nearly done, and this rule pays for what is told: also "
    "members that work are then paid less than their cost. Give one: a length of 3 is a beginning"
)


class PaidServer:
    """A server with its state, for models and reports as arrays by name."""

    def __init__(
        self, server: Server, witness: Witness | None = None, samples: int = 0, log: logging.Logger | None = None
    ) -> None:
        self.server, self._witness = server, witness
        self.log = logging.getLogger("guerdon") if log is None else log
        self._samples = samples or witness_samples(server.rule)  # that the witness's gradients are of
        self._names: list[str] = []  # of the arrays that are compared
        self._state: Any = None  # a `ServerState`
        self._ask: Any = None  # an `Ask`, with the model as it is sent
        self.seen: WitnessSample | None = None  # what the server's own data say of it
        self._after: Any = None  # the state that the last settlement leads to
        self._fresh = True  # nobody was asked yet
        self._verdict = ""  # on the noise scale, as it was last logged
        self._stake = math.inf  # what a member can lose in a round, as it was last logged
        self.is_last = False  # whether the round that is settled is the last one planned
        self._told = ""  # what the rule last warned of

    @property
    def shifts(self) -> bool:
        """Whether agents send models that they trained from beside the model: then these are moved back."""
        return self.server.broadcast.learns and self.server.sends == MODELS

    def begin(self, template: Template, model: Arrays) -> None:
        """Begin with nothing known."""
        self._names, self._fresh = sorted(template.compared), True
        given, layers = self.server, [model[name] for name in self._names]
        self._state = given.init(layers, num_agents=1)
        warning = warning_of(given.lens, layers)
        if warning:
            self.log.warning("%s", warning)
        if about(given.rule).holds and not given.broadcast.learns:
            self.log.warning(NOTHING_TO_TELL)
        self._state = given.init(self.layers(model), num_agents=1)

    def resume(self, done: int, members: int, rule: Any, saved: Mapping[str, Any]) -> None:
        """Take up the rule's state as the ledger has it, and what a checkpoint holds of the rest.

        What another policy, prediction or dither has saved is of no use: that part begins anew.
        """
        state = self.server.enlarge(self._state, members)._replace(round=np.asarray(done), rule=rule)
        parts = {part: restore_parts(getattr(state, part), saved.get(part, {})) for part in PARTS}
        self._state, self._fresh = state._replace(**parts), not saved.get("requests")

    def saved(self) -> dict[str, Any]:
        """Return what a checkpoint must hold; the ledger itself knows the state of the rule."""
        return {part: flatten_state(getattr(self._state, part)) for part in PARTS}

    @property
    def last_ask(self) -> Ask:
        """What was last asked for."""
        return self._ask

    @property
    def own_requests(self) -> list[int]:
        """What each agent of the run was last asked for; empty where all are asked for the same."""
        own = self._ask.notice.own
        return [] if own is None else [int(number) for number in own]

    def request_of(self, account: str, request: Request, roster: Sequence[str]) -> Request:
        """Return what one agent is asked for; a newcomer as all."""
        own = dict(zip(roster, self.own_requests, strict=False))
        return request.asking(own[account]) if account in own else request

    def draw(self, model: Arrays) -> list[np.ndarray]:
        """Return fresh secret numbers for a dither of a model."""
        return secret_normals(self.layers(model))

    def place(self, model: Arrays, normals: list[np.ndarray] | None = None) -> Arrays:
        """Return what is broadcast in place of a model: the model itself unless there is a dither.

        The same `normals` give the same dither; by default they are drawn secretly.
        """
        self._ask, self._state = self.server.ask(self._state, self.layers(model), normals)
        return model if not self.server.broadcast.learns else self.with_layers(model, self._ask.model)

    def with_layers(self, model: Arrays, layers: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return a model with other numbers in the arrays that are compared, in its own types."""
        moved = dict(zip(self._names, layers, strict=True))
        return {name: moved[name].astype(old.dtype) if name in moved else old for name, old in model.items()}

    def request(self, sent: Arrays, factors: Any) -> int:
        """Return how many samples to ask agents with these cost factors for, which are sent this model; 0: no more."""
        if self._fresh:
            self._state = self._state._replace(requests=self.server.requests.init(self._ask.origin, len(factors)))
        self._fresh, self._state = False, self.server.for_agents(self._state, float(np.sum(factors)))
        asked = int(self.server.request(self._state))
        # Agents see the model in its own precision, so that is where reports are compared from.
        model = self.layers(sent) if self.server.broadcast.learns else self._ask.model
        notice = notice_of(self.server.rule, self._state.rule, asked)
        start = None if self._ask.start is None else model
        self._ask = self._ask._replace(request=asked, model=model, start=start, notice=notice)
        self.seen = self._look(sent) if asked > 0 else None
        self._log_stake(asked)
        return asked

    def _log_stake(self, asked: int) -> None:
        """Say what a member can lose in a round of so many samples, where that is new."""
        most = about(self.server.rule).worst_loss(self.server.rule, max(asked, 1))
        if asked > 0 and math.isfinite(most) and most != self._stake:
            self._stake = most
            self.log.info(STAKE, most, asked)

    def settle(self, request: Request, seats: Seats, *, mean: bool = False) -> PaidRound:
        """Return what the round pays; a report that cannot be used, or keeps the others from being paid, is refused.

        `mean`: also the mean of the reports, where no strategy of the framework makes the model.
        """
        before, rows = self.server.enlarge(self._state, len(seats.accounts)), AgentRows(self.rows(seats))
        notice = notice_of(self.server.rule, before.rule, self._ask.request)  # also of those who came since
        ask = self._ask._replace(notice=notice, enrolled=before.enrolled, witness=self.seen, is_last=self.is_last)
        done, after = self.server.settle(before, ask, rows, seats.sent, mean=mean, factors=seats.factors)
        paid = PaidRound(request, seats, done)
        if not paid.is_payable:
            furthest = seats.reports[
                int(np.argmax(np.where(done.evidence.counted, done.evidence.squared_deviation, -1.0)))
            ]
            if furthest is not None:  # an agent that counts has one
                furthest.refuse(TOO_FAR)
            return self.settle(request, seats, mean=mean)
        self._after = after
        return paid

    def refuse(self, paid: PaidRound) -> None:
        """Note on the reports what was done with them, and refuse those that are not counted."""
        found, own = paid.done.reading, dict(enumerate(self.own_requests))
        for seat, (report, note) in enumerate(zip(paid.seats.reports, paid.done.notes, strict=True)):
            if report is not None and report.usable:
                if found.evidence.counted[seat]:
                    asked = f"asked for {own[seat]} samples" if seat in own else ""
                    report.note = "; ".join(filter(None, [asked, note]))
                else:
                    report.refuse(note if found.copies[seat] else TOO_LARGE)

    def accept(self) -> None:
        """Go on from what the last settlement has shown."""
        self._state = self._after

    def next_model(self, model: Arrays, paid: PaidRound) -> Arrays:
        """Return the model after a round that was settled with its mean: one step, or the mean of the models."""
        step, origin = float(paid.done.step), self.layers(model)
        moved = [old - step * part for old, part in zip(origin, paid.done.mean, strict=True)]
        if not all(np.isfinite(part).all() for part in moved):
            self.log.error("The new model would hold NaN or infinity; the one before it stays")
            return model
        return self.with_layers(model, moved)

    def kept(self, paid: PaidRound) -> list[tuple[Report, Arrays]]:
        """Return the reports that the model is made from, and their arrays: too long ones shortened, the dither off."""
        found = paid.done.reading
        kept = [(r, float(f)) for r, f, ok in zip(paid.seats.reports, found.parts, found.used, strict=True) if ok and r]
        if not self.shifts and all(factor >= 1 for _, factor in kept):
            return [(report, report.arrays) for report, _ in kept if report.usable]
        places = dict(zip(self._names, zip(found.towards, self._ask.model, self._ask.origin, strict=True), strict=True))
        return [
            (report, {**report.arrays, **self._as_used(report, factor, places)})
            for report, factor in kept
            if report.usable
        ]

    def along(self, paid: PaidRound) -> dict[str, np.ndarray] | None:
        """Return what a step is taken along under a dither: nothing in the first half of a pair; None: without one."""
        if not self.server.broadcast.learns:
            return None
        return dict(zip(self._names, paid.done.mean, strict=True)) if paid.done.step else {}

    def numbers(self, paid: PaidRound) -> dict[str, float]:
        """Return a round as flat numbers, for a log of experiments; what is not known, or infinite, is left out.

        `differs` counts the agents that others are not compared with, `copies` those that sent another's report.
        """
        found = paid.done.reading
        rewards = zip(paid.seats.accounts, paid.payments.released, strict=True)
        told: dict[str, Any] = {
            "round": paid.request.round,
            "request": paid.request.request,
            "participants": paid.participants,
            "paid": paid.total,
            "differs": np.sum(found.evidence.counted & ~np.asarray(found.trusted, dtype=bool)),
            "copies": np.sum(found.copies),
            "variance": paid.done.error.variance,
            "noise_scale": paid.done.noise_scale,
            **{f"reward/{name}": reward for name, reward in rewards},
        }
        return {f"guerdon/{name}": float(value) for name, value in told.items() if np.isfinite(value)}

    def metrics(self, paid: PaidRound) -> dict[str, float]:
        """Return what is to be logged of the dither: ‖u‖, and the noise scale that it made."""
        if not self.server.broadcast.learns:
            return {}
        return {"guerdon-noise-scale": float(paid.done.noise_scale), "guerdon-offset": float(paid.done.offset)}

    def log_noise_scale(self, paid: PaidRound) -> None:
        """Log whether the noise scale is below the bound of the cost, when that changes."""
        dither, rule = dither_in(self.server), self.server.rule
        if dither is None or Need.PREDICTION not in rule.needs or self._state.broadcast.weight == 0:
            return
        bound, found = noise_scale_bound(rule.cost, paid.request.request), float(paid.done.noise_scale)
        longest = dither.cost is None or paid.done.offset >= dither.largest
        verdict = "met" if found < bound else "not met" if longest else ""
        if verdict and verdict != self._verdict:
            self._verdict = verdict
            self.log.info("The noise scale is %.3g, its bound %.3g is %s: %s", found, bound, verdict, MEANING[verdict])

    def log_warning(self, paid: "PaidRound") -> None:
        """Log what the rule has to say of this federation, when that changes."""
        rule = self.server.rule
        told = about(rule).advice(rule, self._state.rule, paid.request.request)
        if told != self._told:
            self.log.warning("%s", told or "What was warned of no longer holds")
        self._told = told

    def _look(self, sent: Arrays) -> WitnessSample | None:
        """Return what the server's own data say of the model that was sent."""
        if self._witness is None:
            return None
        minibatches = [self.layers(found) for found in self._witness(sent)]
        if len(minibatches) < 2 or self._samples % len(minibatches):
            raise ValueError(
                "`witness` must return the gradients of at least two minibatches of equal size, "
                f"{self._samples} samples in all, got {len(minibatches)}"
            )
        return witness_sample(stack_minibatches(minibatches), self._samples // len(minibatches))

    def layers(self, model: Arrays) -> list[np.ndarray]:
        """Return the arrays that are compared, in double precision where anything is learned from them."""
        found = [model[name] for name in self._names]
        return [part.astype(np.float64) for part in found] if self.server.needs_mean(self._state) else found

    def rows(self, seats: Seats) -> list[list[np.ndarray] | None]:
        """Return the arrays of every agent that are compared; None where nothing can be used."""
        names = self._names
        return [[x.arrays[name] for name in names] if x is not None and x.usable else None for x in seats.reports]

    def _as_used(
        self, report: Report, factor: float, places: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
    ) -> Mapping[str, np.ndarray]:
        """Return p + factor·(X − p), less u where models are sent, in the types of X; X is shortened towards p."""
        used: dict[str, np.ndarray] = {}
        for name, (towards, model, origin) in places.items() if factor < 1 or self.shifts else ():
            sent = report.arrays[name]
            part = towards + factor * (sent - towards) if factor < 1 else sent
            used[name] = (part - (model - origin) if self.shifts else part).astype(sent.dtype)
        return used


def check_server(server: Server, *, one_step: bool) -> Server:
    """Return a server that pays for work and whose prediction is looked at, or raise."""
    rule = type(server.rule).__name__
    if not isinstance(prediction_of(server.lens), ZeroPrediction) and Need.PREDICTION not in server.rule.needs:
        raise ValueError(
            f"`prediction` must be None with {rule}, which would not look at it; pay by `InformationPay`, or leave the "
            "prediction out"
        )
    if server.sends == MODELS and Need.ONE_STEP in server.rule.needs and not (one_step or _varies(server.rule)):
        raise ValueError(
            f"`rule` must not be {rule} where nodes send models that they trained in several steps: fewer samples "
            "are fewer steps, a shorter move, and closer to the others', so a node that shirks is paid more than one "
            "that works. Wrap `FedSGD`, with nodes that send the gradient of all requested samples (the recommended "
            "way); or pay by `InformationPay` with a `dither`; or by `CalibratedAgreement` with `vary`, which finds "
            "out whether work is seen here; or, where every node takes exactly one step on all requested samples, say "
            "so with `one_step=True`"
        )
    return server


def _varies(rule: Rule) -> bool:
    """Tell whether a rule asks each member for a number of its own, and so sees what samples are worth."""
    return notice_of(rule, rule.init(1), 1).own is not None
