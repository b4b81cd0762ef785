"""A user's own experiment, written as TOML: read, checked, and turned into the arguments of `simulate`."""

# What TOML holds has no type until it is checked, which is what this module does.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from guerdon.adaptive import BudgetRequest, NoiseScaleRequest
from guerdon.arrays import check_choice
from guerdon.costs import Cost, ExpressionCost, check_cost
from guerdon.lab import agents as players
from guerdon.lab.agents import Agent
from guerdon.lab.arena.verified import verified
from guerdon.lab.problems import Problem, linear_regression
from guerdon.lab.problems.linear_regression import optimal_step
from guerdon.lab.simulation import Stop
from guerdon.lab.truth import choices
from guerdon.registry import choose
from guerdon.requests import FixedRequest, Requests, ScheduledRequest
from guerdon.rule import Rule, remembers
from guerdon.statistical.dithers import Dither
from guerdon.statistical.predictions import Extrapolation, Prediction, RunningMean, ZeroPrediction
from guerdon.witness import witness_samples

EXAMPLE = files("guerdon.cli").joinpath("example.toml").read_text(encoding="utf-8")
COMPLETE = "`guerdon simulate --example` shows a complete file"


@dataclass(frozen=True)
class ExperimentConfig:
    """An experiment: the arguments of `simulate`, and a name for every agent."""

    problem: Problem
    names: tuple[str, ...]
    agents: tuple[Agent, ...]
    rules: dict[str, Rule]
    requests: Requests
    costs: tuple[Cost, ...]
    prediction: Prediction | None
    dither: Dither | None
    stop: Stop | None
    rounds: int
    repetitions: int
    seed: int
    label: str

    @property
    def witness(self) -> int:
        """How many minibatches the server draws itself, of the largest size: for rules that want a witness."""
        wanted = [witness_samples(rule) // self.problem.max_batch for rule in self.rules.values()]
        return max(wanted, default=0)


class SettingsTable:
    """A TOML table that knows its name, and complains about keys that nobody asked for."""

    def __init__(self, name: str, values: Any) -> None:
        if not isinstance(values, dict):
            raise ValueError(f"`{name}` must be a table, got {values!r}")
        self.name, self.values, self.known = name, values, set[str]()  # pyright: ignore[reportUnknownMemberType]

    def path(self, key: str) -> str:
        """Return the name of a key with that of its table; the file itself has none."""
        return f"{self.name}.{key}" if self.name else key

    def get(self, key: str, kinds: type | tuple[type, ...], default: Any = None) -> Any:
        """Return the value of a key, of one of the given types; an error where it is missing without a default."""
        self.known.add(key)
        if key not in self.values:
            if default is None:
                raise ValueError(f"`{self.path(key)}` is missing; {COMPLETE}")
            return default
        value = self.values[key]
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        if isinstance(value, bool) or not isinstance(value, (*kinds, int) if float in kinds else kinds):
            words = {int: "a whole number", float: "a number", str: "text"}
            names = " or ".join(words.get(kind, kind.__name__) for kind in kinds)
            raise ValueError(f"`{self.path(key)}` must be {names}, got {value!r}")
        return value

    def optional(self, key: str, kinds: type | tuple[type, ...]) -> Any:
        """Return the value of a key, or None where it is missing."""
        self.known.add(key)
        return self.get(key, kinds) if key in self.values else None

    def choice(self, key: str, choices: Mapping[str, Any] | tuple[str, ...], default: str | None = None) -> str:
        """Return the value of a key that must be one of `choices`."""
        value = self.get(key, str, default)
        check_choice(self.path(key), value, tuple(choices))
        return value

    def finish(self) -> None:
        """Raise if there is a key that was not asked for."""
        for key in self.values:
            if key not in self.known:
                allowed = ", ".join(sorted(self.known))
                whose = f"`{self.name}`" if self.name else "the file"
                raise ValueError(f"`{self.path(key)}` is not a setting; {whose} may have: {allowed}")


def read_config(path: Path) -> ExperimentConfig:
    """Return the experiment in a TOML file, or raise with the key that is wrong and what is allowed."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"`{path}` is not valid TOML: {error}") from error
    return parse_config(content)


def parse_config(content: dict[str, Any]) -> ExperimentConfig:
    """Return the experiment that the parsed TOML describes."""
    if not content:
        raise ValueError("the file must have tables, such as [problem], [server] and [[agents]], got none; " + COMPLETE)
    top = SettingsTable("", content)
    sections = {name: SettingsTable(name, top.get(name, dict, {})) for name in ("problem", "server", "run")}
    groups = [SettingsTable(f"agents[{i}]", values) for i, values in enumerate(top.get("agents", list))]
    top.finish()
    run = sections["run"]
    rounds, repetitions, seed = (run.get(k, int, d) for k, d in (("rounds", 60), ("repetitions", 250), ("seed", 0)))
    problem, label = _problem(sections["problem"])
    cost = _cost(sections["server"].get("cost", str, "1 + s"), problem.max_batch)
    names, agents, costs = _agents(groups, cost, problem.max_batch)
    rules, requests, stop = _server(sections["server"], cost, problem, len(agents))
    prediction, dither = _broadcast(sections["server"])
    for section in sections.values():
        section.finish()
    terms = prediction, dither, stop, rounds, repetitions, seed, label
    return ExperimentConfig(problem, names, agents, rules, requests, costs, *terms)


def _problem(table: SettingsTable) -> tuple[Problem, str]:
    kind = table.choice("kind", ("linear", "heart"))
    max_batch = table.get("max_batch", int, 64)
    if kind == "linear":
        problem = linear_regression(table.get("dim", int, 100), float(table.get("distance", float, 100.0)), max_batch)
        return problem, "linear regression"
    from guerdon.lab.problems.heart import load_survey, prepare

    data = prepare(load_survey())
    return data.regression(max_batch), f"logistic regression, {data.label}"


def _cost(text: str, max_batch: int) -> Cost:
    cost = ExpressionCost(text)
    check_cost(cost, max_batch)
    return cost


PREDICTIONS: dict[str, Callable[[], Prediction]] = {
    "running-mean": RunningMean,
    "extrapolation": Extrapolation,
    "zero": ZeroPrediction,
}


def _rules(table: SettingsTable, cost: Cost) -> dict[str, Rule]:
    names = table.get("rules", list, ["agreement"])
    crowd = table.choice("crowd", ("present", "enrolled"), "present")
    known = {**choices(), "looks": verified}
    for name in names or [None]:
        check_choice("server.rules", str(name).partition(":")[0], tuple(known))
    rules = {name: choose(name, cost, known) for name in names}
    takes = {
        name: hasattr(rule, "crowd") and not remembers(rule) for name, rule in rules.items()
    }  # pairs need no crowd
    return {name: replace(rule, crowd=crowd) if takes[name] else rule for name, rule in rules.items()}  # pyright: ignore[reportArgumentType]


def _server(
    table: SettingsTable, cost: Cost, problem: Problem, num_agents: int
) -> tuple[dict[str, Rule], Requests, Stop | None]:
    rules, stop, given = _rules(table, cost), None, table.optional("stop", dict)
    if given is not None:
        rule = SettingsTable("server.stop", given)
        stop = Stop(rule.get("metric", str), rule.optional("at_most", float), rule.optional("at_least", float))
        rule.finish()
    return rules, _requests(table, cost, problem, num_agents), stop


def _broadcast(table: SettingsTable) -> tuple[Prediction | None, Dither | None]:
    """Return what the server predicts, and how far from the model it asks for gradients."""
    named, length = table.optional("prediction", str), table.optional("dither", float)
    prediction = None if named is None else PREDICTIONS[table.choice("prediction", PREDICTIONS)]()
    return prediction, None if length is None else Dither(float(length))


def _requests(table: SettingsTable, cost: Cost, problem: Problem, num_agents: int) -> Requests:
    request = table.get("request", (int, list, str, dict))
    if isinstance(request, str):
        table.choice("request", ("adaptive",))
        return NoiseScaleRequest(cost, problem.max_batch)
    if isinstance(request, dict):
        limit = SettingsTable("server.request", request)
        policy = BudgetRequest(cost, float(limit.get("budget", float)), problem.max_batch)
        limit.finish()
        return policy
    step = table.get("step", (float, list, str), "optimal")
    if isinstance(step, str):
        target = getattr(problem, "target", None)
        if step != "optimal" or target is None or isinstance(request, list):
            raise ValueError(
                f'`server.step` must be a number, or "optimal" for linear regression with one request, got {step!r}'
            )
        step = optimal_step(target.shape[0], num_agents, request)
    if isinstance(request, list) or isinstance(step, list):
        length = max(len(x) for x in (request, step) if isinstance(x, list))
        schedule: list[Any] = [x if isinstance(x, list) else [x] * length for x in (request, step)]
        return ScheduledRequest(*schedule)
    return FixedRequest(request, float(step))


def _agents(
    groups: list[SettingsTable], usual_cost: Cost, max_batch: int
) -> tuple[tuple[str, ...], tuple[Agent, ...], tuple[Cost, ...]]:
    counts = [table.get("count", int, 1) for table in groups]
    names: list[str] = []
    agents: list[Agent] = []
    costs: list[Cost] = []
    for table, count in zip(groups, counts, strict=True):
        if count < 1:
            raise ValueError(f"`{table.name}.count` must be a positive integer, got {count}")
        kind = table.choice("kind", KINDS)
        own = table.optional("cost", str)
        cost = usual_cost if own is None else _cost(own, max_batch)
        agent = KINDS[kind](table, cost, sum(counts), max_batch)
        table.finish()
        names += [kind] * count
        agents += [agent] * count
        costs += [cost] * count
    return tuple(names), tuple(agents), tuple(costs)


def _fixed(table: SettingsTable, max_batch: int) -> Agent:
    size = table.get("size", int)
    if not 0 <= size <= max_batch:
        raise ValueError(f"`{table.name}.size` must be from 0 to `problem.max_batch` ({max_batch}), got {size}")
    return players.Fixed(size)


def _share(table: SettingsTable, key: str, largest: float) -> float:
    value = float(table.get(key, float))
    if not 0 <= value <= largest:
        raise ValueError(f"`{table.name}.{key}` must be from 0 to {largest:g}, got {value:g}")
    return value


KINDS: dict[str, Callable[[SettingsTable, Cost, int, int], Agent]] = {
    "cooperative": lambda *_: players.Cooperative(),
    "fixed": lambda table, _, __, max_batch: _fixed(table, max_batch),
    "portion": lambda table, *_: players.Portion(_share(table, "share", 1e6)),
    "declining": lambda table, *_: players.Declining(_share(table, "probability", 1.0)),
    "best-responding": lambda _, cost, count, max_batch: players.best_responding(cost, count, max_batch),
    "learning": lambda table, cost, *_: players.learning(tuple(table.get("sizes", list)), cost),
    "zero": lambda *_: players.zero(),
    "echo": lambda *_: players.echo(),
    "noisy-echo": lambda table, *_: players.noisy_echo(float(table.get("strength", float, 1.0))),
    "shrink": lambda table, *_: players.shrink(float(table.get("factor", float, 0.5))),
    "scale": lambda table, *_: players.scale(float(table.get("factor", float, 2.0))),
    "sign-flip": lambda *_: players.sign_flip(),
    "garbage": lambda table, *_: players.garbage(float(table.get("amount", float, 1e3))),
}
