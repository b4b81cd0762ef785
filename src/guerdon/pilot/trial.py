"""What each rule would have paid in a round of a pilot: every agent by itself, and ghosts.

Those who were asked for all of the work are paid as they would be in a round of their own. Each one that was asked for
half is compared with these alone, as the only one among them that does less, and is paid as if it had been asked for
all. So no agent's pay suffers from what the pilot asks of the others.

A *ghost* is one more agent that does nothing, round after round, and keeps its own past under each rule:

    prediction    sends what the server predicts in public
    nothing       sends zeros in place of a gradient, or the model that it was sent
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, zeros_like
from guerdon.broadcasts import Dither
from guerdon.costs import Cost
from guerdon.evidence import AgentRows, gather
from guerdon.noise_scale import estimate_noise
from guerdon.pilot.design import PilotDesign
from guerdon.predictions import Prediction, RunningMean
from guerdon.requests import FixedRequest
from guerdon.rules import FlatPay, InformationPay, Mechanism, OutputAgreement, Payments, Status
from guerdon.server import Ask, Sends, Server

GHOSTS = ("prediction", "nothing")
UNKNOWN = (Status.DECLINED, Status.ALONE, Status.TOO_FEW)  # the round cannot say what the rule would have paid

Rows = Sequence[Sequence[np.ndarray] | None]  # per agent its layers; None where nothing can be used


def default_rules(cost: Cost) -> dict[str, Mechanism]:
    """Return the rules that a pilot tries unless it is given others."""
    return {"balanced": OutputAgreement(cost), "information": InformationPay(cost)}


class RoundScores(NamedTuple):
    """What a round of a pilot shows; per rule, and per agent where there are several. NaN: not known."""

    pay: dict[str, Array]
    ghosts: dict[str, dict[str, float]]
    evidence: dict[str, Array]  # the logarithm of the evidence against each agent, of rules that keep bets
    variance: float  # σ² and ‖m‖², as the reports of full work have them
    signal: float


class Trial:
    """The rules of a pilot, each with a server of its own, and the server that trains on flat pay (`trainer`).

    `rules` are by name. `prediction` (default: `RunningMean()`), `dither`, `sends` and `alike` are those of
    `guerdon.Server`. A model is a list of layers, the report of an agent too.
    """

    def __init__(
        self,
        rules: Mapping[str, Mechanism],
        design: PilotDesign,
        step: float,
        *,
        sends: Sends = "gradients",
        prediction: Prediction | None = None,
        dither: Dither | None = None,
        alike: bool = False,
    ) -> None:
        if not rules:
            raise ValueError("`rules` must hold at least one payment rule by name, got none")
        for name, rule in rules.items():
            if rule.needs_truth or rule.wants_witness:
                what = "the truth" if rule.needs_truth else "a witness"
                raise ValueError(f"`rules` must do without {what}, but {name!r} needs it; leave it out")
        self.cost = next(iter(rules.values())).cost
        self.design = design
        options: dict[str, Any] = {"prediction": prediction or RunningMean(), "dither": dither, "sends": sends}
        requests = FixedRequest(design.request, step)
        self.trainer = Server(FlatPay(self.cost), requests, **options, alike=alike)
        self.tried = {name: _TriedRule(Server(rule, requests, **options, alike=alike)) for name, rule in rules.items()}

    def begin(self, model: Any) -> None:
        """Begin with nothing known."""
        for rule in self.tried.values():
            rule.begin(model)

    def score(self, ask: Ask, rows: Rows, asked: Array, sent: Array) -> RoundScores:
        """Return what the round shows, and go on from it: what each agent was `asked` for, and who `sent` anything."""
        full, half = (sent & (asked == number) for number in (self.design.request, self.design.half))
        ask = ask._replace(request=self.design.request)
        ghosts = {"prediction": self.trainer.centre(ask), "nothing": self._nothing(ask)}
        pay, earned, evidence = {}, {}, {}
        for name, rule in self.tried.items():
            pay[name], earned[name], against = rule.score(ask, rows, full, half, ghosts)
            if against is not None:
                evidence[name] = against
        noise = self._noise(ask, rows, full)
        return RoundScores(pay, earned, evidence, float(noise.variance), float(noise.signal))

    def _nothing(self, ask: Ask) -> Any:
        return ask.model if self.trainer.sends == "models" else zeros_like(ask.model)

    def _noise(self, ask: Ask, rows: Rows, full: Array) -> Any:
        reports = AgentRows([row if mine else None for row, mine in zip(rows, full, strict=True)])
        return estimate_noise(gather(reports, full, self._nothing(ask)), self.design.request)


class _TriedRule:
    """A rule's server with what it knows, and with what it would know were there a ghost, who has the first seat."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._state: Any = None
        self._haunted: dict[str, Any] = {}

    def begin(self, model: Any) -> None:
        self.server = self.server.for_model(model)
        self._state = self.server.init(model, num_agents=1)
        self._haunted = dict.fromkeys(GHOSTS, self._state)

    def score(
        self, ask: Ask, rows: Rows, full: Array, half: Array, ghosts: Mapping[str, Any]
    ) -> tuple[Array, dict[str, float], Array | None]:
        """Return what each agent would be paid, what ghosts would, and the evidence against each agent."""
        state, reports = self._seated(self._state, len(rows)), AgentRows(rows)
        payments, _, after = self.server.pay(state, ask, reports, full)
        rule = self.server.mechanism
        pay = _known(payments, rule)
        for seat in np.flatnonzero(half):
            among = full.copy()
            among[seat] = True
            pay[seat] = _known(self.server.pay(state, ask, reports, among)[0], rule)[seat]
        self._state = after
        earned = {name: self._haunt(name, ask, [report, *rows], full) for name, report in ghosts.items()}
        return pay, earned, rule.suspicion(after.rule)

    def _haunt(self, name: str, ask: Ask, rows: Rows, full: Array) -> float:
        state = self._seated(self._haunted[name], len(rows))
        payments, _, self._haunted[name] = self.server.pay(state, ask, AgentRows(rows), np.append(True, full))
        return float(_known(payments, self.server.mechanism)[0])

    def _seated(self, state: Any, num_agents: int) -> Any:
        return state if int(state.enrolled) == num_agents else self.server.enlarge(state, num_agents)


def _known(payments: Payments, rule: Mechanism) -> Any:
    """Return what is paid; NaN where the round cannot say, as where a rule that learns first is still on flat pay."""
    flat = (payments.status == Status.PAID.value) & np.isnan(payments.distance) & rule.remembers
    return np.where(np.isin(payments.status, UNKNOWN) | flat, np.nan, payments.reward)
