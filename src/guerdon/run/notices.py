"""What an operator is told while a run goes on: once, and again when it changes."""

import logging
import math
from typing import Any

import numpy as np

from guerdon.rule import Need, Rule
from guerdon.run.rounds import PaidRound
from guerdon.server import Server
from guerdon.statistical.dithers import dither_in
from guerdon.statistical.information import noise_scale_bound
from guerdon.statistical.lenses import warning_of
from guerdon.terms import Looks, Terms, Vesting
from guerdon.words import about, can_take_back

SHOWN = 20  # agents whose pay is logged one by one
MEANING = {
    "met": "public knowledge alone earns nothing",
    "not met": "a report made from public knowledge may earn up to the fixed part of the cost: allow a longer dither, "
    "or ask for more samples",
}
STAKE = (
    "A member can lose at most %.6g in a round of %d samples, times its cost factor. Members that are known carry such "
    "a loss; a seat for others needs a deposit of as much"
)
NOTHING_TO_TELL = (
    "Without a dither there is little to tell once the model is nearly done, and this rule pays for what is told: also "
    "members that work are then paid less than their cost. Give one: a length of 3 is a beginning"
)
UNSEEN = (
    "flat pay at once is paid for whatever is sent, work or not: for members that need an incentive, hold it until an "
    "auditor has looked at some of the work (`hold = Looks(...)`)"
)
HIT_AND_RUN = (
    "a new name can take what chance gives it and leave its losses behind; `guerdon ledger stakes` says how much, and "
    "what stops it"
)


def warning_of_terms(terms: Terms, rule: Rule) -> str:
    """Return what an operator must know before money is paid on these terms; mostly nothing."""
    if not can_take_back(rule):
        return "" if isinstance(terms.hold, Looks) or about(rule).worst_loss(rule, 1) > 0 else UNSEEN
    if terms.losses == "floor":
        return f"losses='floor' cuts losses at zero: it pays more than the rule makes it, and {HIT_AND_RUN}"
    return "" if isinstance(terms.hold, Vesting) else f"hold=AtOnce() pays at once: {HIT_AND_RUN}"


class Notices:
    """What was said last of the noise scale, of what a member can lose, and of the rule's advice."""

    def __init__(self, server: Server, log: logging.Logger) -> None:
        self.server, self.log = server, log
        self._verdict, self._advice, self._stake = "", "", math.inf

    def on_model(self, layers: list[np.ndarray]) -> None:
        """Say what is to be known of a model before the first round."""
        warning = warning_of(self.server.lens, layers)
        if warning:
            self.log.warning("%s", warning)
        if about(self.server.rule).holds and not self.server.broadcast.learns:
            self.log.warning(NOTHING_TO_TELL)

    def on_request(self, samples: int) -> None:
        """Say what a member can lose in a round of so many samples, where that is new."""
        most = about(self.server.rule).worst_loss(self.server.rule, max(samples, 1))
        if samples > 0 and 0 < most < math.inf and most != self._stake:
            self._stake = most
            self.log.info(STAKE, most, samples)

    def on_round(self, paid: PaidRound, state: Any) -> None:
        """Say what the noise scale and the rule have to say of the federation after a round, where that is new."""
        self._on_noise_scale(paid, state)
        rule = self.server.rule
        advice = about(rule).advice(rule, state.rule, paid.request.request)
        if advice != self._advice:
            self.log.warning("%s", advice or "What was warned of no longer holds")
        self._advice = advice

    def _on_noise_scale(self, paid: PaidRound, state: Any) -> None:
        """Say whether the noise scale is below the bound of the cost."""
        dither, rule = dither_in(self.server), self.server.rule
        if dither is None or Need.PREDICTION not in rule.needs or state.broadcast.weight == 0:
            return
        bound, found = noise_scale_bound(rule.cost, paid.request.request), float(paid.done.noise_scale)
        longest = dither.cost is None or paid.done.offset >= dither.largest
        verdict = "met" if found < bound else "not met" if longest else ""
        if verdict and verdict != self._verdict:
            self._verdict = verdict
            self.log.info("The noise scale is %.3g, its bound %.3g is %s: %s", found, bound, verdict, MEANING[verdict])
