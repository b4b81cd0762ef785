"""What a pilot means: does a rule pay for work here, what do honest agents earn, how noisy is it, which rule to use."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from guerdon.costs import Cost, ExpressionCost
from guerdon.pilot.estimates import (
    LEAST_ROUNDS,
    Interval,
    effect_of,
    mean_over_rounds,
    noise_and_spread,
    rounds_to_tell,
)
from guerdon.pilot.record import PilotRecord
from guerdon.statistical.bets import limit

WORK, SHIRKING, EVEN, NOISY = "pays for work", "pays shirkers", "pays both alike", "too noisy"
TOLERANCE = 0.1  # share of the cost by which honest pay may be off
AUDIT = 0.001  # rate of false accusations at which an audit is taken to flag agents
HORIZON, RUIN = 50, 0.01  # a deposit covers 50 rounds with probability 0.99
SHOWN = 5  # the most agents that a sentence names


class AgentPay(NamedTuple):
    """What an agent would have been paid a round for full work; all agents' intervals hold together."""

    agent: str
    rounds: int
    pay: Interval
    off: bool  # by more than `TOLERANCE` of the cost, for sure


@dataclass(frozen=True)
class RuleReport:
    """What a pilot says of one rule. Amounts are per round, in units of the cost.

    `gain` is what half work earns more than full work: (R_half − h(ν/2)) − (R_full − h(ν)). `slope` is the pay for one
    more sample. `deposit` is what a member may be behind after 50 rounds with probability 0.01:
    z₀.₉₉·√(50·noise² + 50²·spread²) + 50·(h(ν) − honest pay), at least 0. A rule that holds what is earned needs none.
    """

    rule: str
    verdict: str
    words: str
    notes: tuple[str, ...]
    gain: Interval
    half_pay: Interval
    full_pay: Interval
    slope: Interval
    agents: tuple[AgentPay, ...]
    spread: float  # standard deviation of honest pay over agents, noise taken out
    noise: float  # and over rounds
    deposit: float
    flagged: float | None  # share of agents that an audit would flag; None: the rule keeps no bets
    ghosts: dict[str, Interval]
    rounds_to_tell: int | None

    @property
    def ghosts_earn(self) -> bool:
        """Whether an agent that does nothing earns more than nothing, for sure."""
        return any(earned.low > 0 for earned in self.ghosts.values())

    @property
    def is_fit(self) -> bool:
        """Whether nothing speaks against it."""
        return self.verdict == WORK and not self.ghosts_earn and not any(agent.off for agent in self.agents)


@dataclass(frozen=True)
class PilotReport:
    """What a pilot says: of each rule, and which one to use (None: none of them), and why."""

    request: int
    half: int
    cost: str
    sends: str
    rounds: int
    num_agents: int
    alpha: float
    full_cost: float
    half_cost: float
    noise_scale: float  # σ²/‖m‖²; infinite where no signal is seen
    witness: Interval | None  # what it takes off pay that the server's own data differ from the agents'; None: no data
    rules: tuple[RuleReport, ...]
    recommended: str | None
    why: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return _as_json(vars(self) | {"rules": [vars(rule) for rule in self.rules]})


def assess(record: PilotRecord, cost: Cost | None = None, alpha: float = 0.05) -> PilotReport:
    """Return what a pilot says, with intervals at level 1 − alpha; `cost` is what work really costs.

    The gain of half work comes from least squares with a level for each agent and each round, its standard error from
    rounds as the unit (`guerdon.pilot.estimates`). Means over rounds take stretches of rounds for independent.
    """
    limit(alpha)
    cost = ExpressionCost(record.cost) if cost is None else cost
    costs = float(cost(record.request)), float(cost(record.half))
    rules = tuple(_assess_rule(record, name, cost, alpha) for name in record.pay)
    recommended, why = _recommend(rules)
    signal, variance = (math.fsum(values) for values in (record.signal, record.variance))
    noise_scale = variance / signal if signal > 0 else math.inf
    return PilotReport(
        record.request, record.half, record.cost, record.sends, record.rounds, len(record.agents), alpha, *costs,
        noise_scale, _witness(record, cost, alpha), rules, recommended, why,
    )  # fmt: skip


def _witness(record: PilotRecord, cost: Cost, alpha: float) -> Interval | None:
    """Return what witnessed pay loses because m_w is not m: h'(ν)·ν²/σ²·‖m − m_w‖², with an interval."""
    if not np.isfinite(record.apart).any():
        return None
    return mean_over_rounds(record.apart, alpha).times(record.request * float(cost.slope(record.request)))


def _assess_rule(record: PilotRecord, rule: str, cost: Cost, alpha: float) -> RuleReport:
    pay, half = record.pay[rule], record.asked == record.half
    full_cost, half_cost = float(cost(record.request)), float(cost(record.half))
    full = np.where(record.asked == record.request, pay, np.nan)
    effect = effect_of(half, pay, alpha)
    gain = effect + (full_cost - half_cost)
    honest = mean_over_rounds(_mean_over_agents(full), alpha)
    noise, spread = noise_and_spread(full)
    agents = _agents(record, full, full_cost, alpha)
    ghosts = {name: mean_over_rounds(earned, alpha) for name, earned in record.ghosts.get(rule, {}).items()}
    loss = _loss(record, cost)
    wanted = _rounds_to_tell(gain, record.rounds, loss, alpha)
    verdict, words = _verdict(gain, wanted, loss)
    flagged = _flagged(record, rule)
    deposit = 0.0 if rule in record.holding else _deposit(honest.value, full_cost, noise, spread)
    return RuleReport(
        rule, verdict, words, tuple(_notes(agents, ghosts, flagged, full_cost)), gain,
        _half_pay(effect, honest), honest, effect.times(-1 / (record.request - record.half)),
        agents, spread, noise, deposit, flagged, ghosts, wanted,
    )  # fmt: skip


def _mean_over_agents(values: Any) -> Any:
    finite = np.isfinite(values)
    count = finite.sum(axis=1)
    return np.where(count > 0, np.where(finite, values, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)


def _half_pay(effect: Interval, honest: Interval) -> Interval:
    """Return the pay of half work, with the interval of its difference to the pay of full work."""
    return effect + honest.value


def _loss(record: PilotRecord, cost: Cost) -> float:
    """Return what half work should lose: the pay h'(ν)·ν²·(1/s − 1/ν) of the exact rule, less the cost saved."""
    nu, half = record.request, record.half
    return float(cost.slope(nu)) * nu**2 * (1 / half - 1 / nu) - float(cost(nu)) + float(cost(half))


def _agents(record: PilotRecord, full: Any, cost: float, alpha: float) -> tuple[AgentPay, ...]:
    pays: list[AgentPay] = []
    for seat, name in enumerate(record.agents):
        pay = mean_over_rounds(full[:, seat], alpha / len(record.agents))
        off = pay.low > (1 + TOLERANCE) * cost or pay.high < (1 - TOLERANCE) * cost
        pays.append(AgentPay(name, int(np.isfinite(full[:, seat]).sum()), pay, off))
    return tuple(pays)


def _deposit(pay: float, cost: float, noise: float, spread: float) -> float:
    reach = NormalDist().inv_cdf(1 - RUIN) * math.sqrt(HORIZON * noise**2 + HORIZON**2 * spread**2)
    return max(0.0, reach + HORIZON * (cost - pay))


def _flagged(record: PilotRecord, rule: str) -> float | None:
    if rule not in record.evidence or not record.agents:
        return None
    highest: Any = np.nan_to_num(record.evidence[rule]).max(axis=0, initial=0.0)
    return float((highest > limit(AUDIT)).mean())


def _rounds_to_tell(gain: Interval, rounds: int, loss: float, alpha: float) -> int | None:
    """Return about how many rounds tell half work from full by the loss that half work should cause.

    Where that many were played and did not tell, the loss is smaller: then by the one that was seen.
    """
    wanted = rounds_to_tell(gain.error, rounds, loss, alpha)
    if wanted is None or wanted > rounds or not gain.low < 0 < gain.high:
        return wanted
    return rounds_to_tell(gain.error, rounds, abs(gain.value), alpha)


def _verdict(gain: Interval, wanted: int | None, loss: float) -> tuple[str, str]:
    if gain.high < 0:
        return WORK, "pays for work here"
    if gain.low > 0:
        return SHIRKING, "pays shirkers here"
    if max(gain.high, -gain.low) < loss / 2:
        return EVEN, "pays half work about as much as full work here"
    if wanted is None:
        return NOISY, f"nothing to say yet: fewer than {LEAST_ROUNDS} rounds in which four agents or more took part"
    return NOISY, f"too noisy here: about {wanted:,} rounds to tell half work from full"


def _notes(agents: tuple[AgentPay, ...], ghosts: dict[str, Interval], flagged: float | None, cost: float) -> list[str]:
    words = {"prediction": "sends only the public prediction", "nothing": "sends nothing new"}
    notes = [
        f"An agent that does no work and {words.get(name, name)} would earn {earned.value:.3g} a round."
        for name, earned in ghosts.items()
        if earned.low > 0
    ]
    off = sorted((agent for agent in agents if agent.off), key=lambda agent: agent.pay.value)
    if off:
        named = ", ".join(f"{agent.agent} ({agent.pay.value:.3g})" for agent in off[:SHOWN])
        more = f" and {len(off) - SHOWN} more" if len(off) > SHOWN else ""
        notes.append(f"Honest pay is off by more than {TOLERANCE:.0%} of the cost {cost:g} for: {named}{more}.")
    if flagged:
        notes.append(f"An audit would flag {flagged:.0%} of the agents, who may just have other data.")
    return notes


def _recommend(rules: tuple[RuleReport, ...]) -> tuple[str | None, str]:
    fit = sorted((rule for rule in rules if rule.is_fit), key=lambda rule: rule.deposit)
    if fit:
        best = f" Of {len(fit)} such rules it needs the smallest deposit." if len(fit) > 1 else ""
        return fit[0].rule, (
            f"It {fit[0].words}. No ghost is shown to earn anything, and no honest pay to be off.{best}"
        )
    return None, " ".join(f"{rule.rule}: {_against(rule)}." for rule in rules) or "No rule was tried."


def _against(rule: RuleReport) -> str:
    """Return what speaks against a rule."""
    if rule.verdict != WORK:
        return rule.words
    reasons = ["doing nothing pays more than work"] * rule.ghosts_earn
    reasons += ["some honest agents are paid far from their cost"] * any(agent.off for agent in rule.agents)
    return f"{rule.words}, but {' and '.join(reasons)}"


def _as_json(value: Any) -> Any:
    """Return intervals, tuples and infinities as JSON can hold them."""
    if isinstance(value, Interval):
        return value.as_json()
    if isinstance(value, AgentPay):
        return _as_json(value._asdict())
    if isinstance(value, dict):
        return {str(name): _as_json(part) for name, part in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, (list, tuple)):
        return [_as_json(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    return None if isinstance(value, float) and not math.isfinite(value) else value
