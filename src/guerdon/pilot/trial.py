"""What each rule would have paid in a round of a pilot: every agent by itself, and ghosts.

Agents that were asked for all of the work are paid as in a round of their own. Each agent that was asked for half is
compared with these alone, as the only one among them that does less. It is paid as if it had been asked for all. So
what the pilot asks of one agent never lowers another agent's pay.

A rule that holds what is earned pays for a whole past, not for a round. Under such a rule each agent has a second past:
the rounds in which it was asked for half. A round is then worth how much more the agent would have if the run ended
after it.

A *ghost* is one more agent that does nothing, round after round, and keeps its own past under each rule:

    prediction    sends what the server predicts in public
    nothing       sends zeros in place of a gradient, or the model that it was sent
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from guerdon.agreement import FlatPay, OutputAgreement
from guerdon.arrays import Array, zeros_like
from guerdon.costs import Cost
from guerdon.evidence import gather
from guerdon.noise_scale import estimate_noise
from guerdon.pilot.design import PilotDesign
from guerdon.reports import AgentRows
from guerdon.requests import FixedRequest
from guerdon.rule import Need, Payments, Rule, Status, notice_of, remembers
from guerdon.server import Ask, Sends, Server, ServerState
from guerdon.statistical.dithers import Dither
from guerdon.statistical.information import InformationPay
from guerdon.statistical.lenses import suspicion_of
from guerdon.statistical.predictions import Prediction, RunningMean
from guerdon.statistical.servers import server_for
from guerdon.statistical.steady import SteadyPay
from guerdon.witness import WitnessSample
from guerdon.words import about, settled

GHOSTS = ("prediction", "nothing")
# The round cannot say what the rule would have paid for it.
UNKNOWN = (Status.DECLINED, Status.ALONE, Status.TOO_FEW, Status.WAITING)

Rows = Sequence[Sequence[np.ndarray] | None]  # per agent its layers; None where nothing can be used


def default_rules(cost: Cost) -> dict[str, Rule]:
    """Return the rules that a pilot tries unless it is given others."""
    return {"steady": SteadyPay(cost), "agreement": OutputAgreement(cost), "information": InformationPay(cost)}


class RoundScores(NamedTuple):
    """What a round of a pilot shows; per rule, and per agent where there are several. NaN: not known."""

    pay: dict[str, Array]
    ghosts: dict[str, dict[str, float]]
    evidence: dict[str, Array]  # the logarithm of the evidence against each agent, of rules that keep bets
    variance: float  # σ² and ‖m‖², as the reports of full work have them
    signal: float
    apart: float = np.nan  # ‖m − m_w‖²·ν/σ²: how far the witness's gradient is from the agents', in a report's noise


class Trial:
    """The rules of a pilot, each with a server of its own, and the server that trains on flat pay (`trainer`).

    `rules` are by name. `prediction` (default: `RunningMean()`), `dither`, `sends` and `alike` are those of
    `guerdon.Server`. A model is a list of layers, the report of an agent too. `witness` says that `score` is given what
    the server's own data say, for rules that want it.
    """

    def __init__(
        self,
        rules: Mapping[str, Rule],
        design: PilotDesign,
        step: float,
        *,
        sends: Sends = "gradients",
        prediction: Prediction | None = None,
        dither: Dither | None = None,
        alike: bool = False,
        witness: bool = False,
    ) -> None:
        if not rules:
            raise ValueError("`rules` must hold at least one payment rule by name, got none")
        for name, rule in rules.items():
            if Need.TRUTH in rule.needs:
                raise ValueError(f"`rules` must do without the truth, but {name!r} needs it; leave it out")
            if Need.WITNESS in rule.needs and not witness:
                raise ValueError(
                    f"`witness` must be given for {name!r}, which pays by it; give it, or leave the rule out"
                )
        self.cost = next(iter(rules.values())).cost
        self.design = design
        options: dict[str, Any] = {"prediction": prediction or RunningMean(), "dither": dither, "sends": sends}
        requests = FixedRequest(design.request, step)
        self.trainer = server_for(FlatPay(self.cost), requests, **options, alike=alike)
        self.tried = {
            name: _TriedRule(server_for(rule, requests, **options, alike=alike)) for name, rule in rules.items()
        }

    def begin(self, model: Any) -> None:
        """Begin with nothing known."""
        for rule in self.tried.values():
            rule.begin(model)

    @property
    def holding(self) -> tuple[str, ...]:
        """The rules that hold what is earned."""
        return tuple(name for name, rule in self.tried.items() if about(rule.server.rule).holds)

    def score(
        self, ask: Ask, rows: Rows, asked: Array, sent: Array, witness: WitnessSample | None = None
    ) -> RoundScores:
        """Return what the round shows, and go on from it: what each agent was `asked` for, and who `sent` anything."""
        full, half = (sent & (asked == number) for number in (self.design.request, self.design.half))
        ask = ask._replace(request=self.design.request)
        ghosts = {"prediction": ask.centre, "nothing": self._nothing(ask)}
        pay, earned, evidence = {}, {}, {}
        for name, rule in self.tried.items():
            pay[name], earned[name], against = rule.score(_PilotRound(ask, rows, full, half, witness), ghosts)
            if against is not None:
                evidence[name] = against
        noise = self._noise(ask, rows, full)
        apart = np.nan if witness is None else _apart(AgentRows(rows), full, witness, self.design.request)
        return RoundScores(pay, earned, evidence, float(noise.variance), float(noise.signal), apart)

    def _nothing(self, ask: Ask) -> Any:
        return ask.model if self.trainer.sends == "models" else zeros_like(ask.model)

    def _noise(self, ask: Ask, rows: Rows, full: Array) -> Any:
        reports = AgentRows([row if mine else None for row, mine in zip(rows, full, strict=True)])
        return estimate_noise(gather(reports, full, self._nothing(ask)), self.design.request)


class _PilotRound(NamedTuple):
    """A round as it came: who sent all of the work, and who half of it."""

    ask: Ask
    rows: Rows
    full: Array
    half: Array
    witness: WitnessSample | None


class _TriedRule:
    """A rule's server with what it knows, and with what it would know were there a ghost, who has the first seat.

    Of a rule that holds, `_halves` has what it would know of agents that had always done half.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self._state: Any = None
        self._halves: Any = None
        self._haunted: dict[str, Any] = {}
        self._worth: dict[str, Any] = {}

    def begin(self, model: Any) -> None:
        self._state = self._halves = self.server.init(model, num_agents=1)
        self._haunted = dict.fromkeys(GHOSTS, self._state)
        self._worth = {name: _Worth(self.server.rule) for name in ("full", "half", *GHOSTS)}

    def score(self, played: _PilotRound, ghosts: Mapping[str, Any]) -> tuple[Array, dict[str, float], Array | None]:
        """Return what each agent would be paid, what ghosts would, and the evidence against each agent."""
        state, reports = self._seated(self._state, len(played.rows)), AgentRows(played.rows)
        self._halves = self._seated(self._halves, len(played.rows))
        payments, after = self._pay(state, played, reports, played.full)
        pay = self._worth["full"].of_round(payments, after, played)
        for seat in np.flatnonzero(played.half):
            alone = np.arange(len(played.rows)) == seat
            payments, state_after = self._pay(self._as_shirker(state, alone), played, reports, played.full | alone)
            pay[seat] = self._worth["half"].of_round(payments, state_after, played._replace(full=alone))[seat]
            self._halves = self.server.adopt(self._halves, state_after, alone)
        self._state = after
        earned = {name: self._haunt(name, played, report) for name, report in ghosts.items()}
        return pay, earned, suspicion_of(self.server.lens, after.lens)

    def _pay(self, state: ServerState, played: _PilotRound, reports: AgentRows, who: Array) -> tuple[Payments, Any]:
        notice = notice_of(self.server.rule, state.rule, played.ask.request)
        ask = played.ask._replace(notice=notice, enrolled=state.enrolled, witness=played.witness)
        payments, _, after = self.server.pay(state, ask, reports, who)
        return payments, after

    def _as_shirker(self, state: ServerState, who: Array) -> ServerState:
        return self.server.adopt(state, self._halves, who) if about(self.server.rule).holds else state

    def _haunt(self, name: str, played: _PilotRound, report: Any) -> float:
        rows, played = [report, *played.rows], played._replace(full=np.append(True, played.full))
        state = self._seated(self._haunted[name], len(rows))
        payments, self._haunted[name] = self._pay(state, played, AgentRows(rows), played.full)
        return float(self._worth[name].of_round(payments, self._haunted[name], played)[0])

    def _seated(self, state: Any, num_agents: int) -> Any:
        return state if int(state.enrolled) == num_agents else self.server.enlarge(state, num_agents)


class _Worth:
    """What a round is worth to each agent: its pay; under a rule that holds, how much more it would now leave with."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._paid = self._before = np.zeros(0)

    def of_round(self, payments: Payments, after: ServerState, played: _PilotRound) -> Any:
        """Return it for the agents that did all of the work; NaN where the round cannot say."""
        pay = _known(payments, self._rule, int(played.ask.request))
        held = about(self._rule).held(self._rule, after.rule)
        if held is None:
            return pay
        can_say = np.isfinite(pay) & played.full
        paid, before = (np.pad(x, (0, len(pay) - len(x))) for x in (self._paid, self._before))
        self._paid = np.where(can_say, paid + payments.released, paid)
        worth = self._paid + held
        self._before = np.where(can_say, worth, before)
        return np.where(can_say, worth - before, np.nan)


def _apart(reports: AgentRows, full: Array, witness: WitnessSample, request: int) -> float:
    """Return ‖m − m_w‖²·ν/σ², of the agents' mean gradient and the witness's own: without bias, so it may be negative.

    The products of two agents' reports around m_w have the mean ‖m − m_w‖² + σ²/W.
    """
    evidence = gather(reports, full, witness.gradient)
    count = int(np.sum(evidence.counted))
    if count < 2:
        return float("nan")
    products = np.sum(np.where(evidence.counted, evidence.alignment - evidence.squared_length, 0.0)) / (
        count * (count - 1)
    )
    return float(request * (products / witness.variance - 1 / witness.samples))


def _known(payments: Payments, rule: Rule, request: int) -> Any:
    """Return what the work of the round is paid; NaN where it cannot say, as where a rule that learns is on flat pay.

    What a rule settles of earlier rounds is left out: some did half of the work in those, and all of it in this one.
    """
    paid = payments.status == Status.PAID.value
    flat = paid & np.isnan(payments.squared_distance) & remembers(rule)
    pay = payments.released.copy()
    for seat in np.flatnonzero(paid) if not about(rule).holds else ():
        pay[seat] -= settled(rule, request, 1.0, *(float(part[seat]) for part in payments[1:5]))
    return np.where(np.isin(payments.status, UNKNOWN) | flat, np.nan, pay)
