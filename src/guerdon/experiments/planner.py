"""The planner: what the adaptive request pays, against fixed requests chosen in hindsight and the exact optimum."""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from guerdon.agents import Cooperative
from guerdon.evidence import gather
from guerdon.experiments.claims import Claim, Experiment, Tell, count_steps, mean_over_repetitions
from guerdon.experiments.incentives import incentive_claims
from guerdon.experiments.paper import AGENTS, BALANCED, COST, DIM, START
from guerdon.figures import BLUE, GREEN, GREY, NORMAL_95, ORANGE, RED, draw_points, legend, panels
from guerdon.noise_scale import estimate_noise
from guerdon.planning.forecasts import forecast
from guerdon.planning.optimum import Optimum, optimal_requests
from guerdon.planning.pilots import fit_pilot, pilot_from_frame
from guerdon.problems import Problem, from_loss, linear_regression
from guerdon.problems.heart import HeartData, load_survey, prepare
from guerdon.problems.linear_regression import optimal_step
from guerdon.requests import FixedRequest, NoiseScaleRequest, Requests
from guerdon.simulation import History, Stop, simulate

SIZES = (1, 2, 4, 8, 16, 32)
LARGEST = 64
LARGEST_ROWS = 32  # of the survey in a batch: far more than is ever asked for there
TARGETS = (1.0, 0.5, 0.1, 0.05)
UNEVEN_TARGETS = (10.0, 1.0, 0.5)
ACCURACY = 0.755
STEPS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
UNEVEN_STEPS = (0.035, 0.05, 0.07, 0.1, 0.14)
NETWORK_STEPS = (0.2, 0.5, 1.0, 2.0)
HIDDEN = 16
ROUNDS = 512
FEWER_ROUNDS = 256  # on the survey
DRAWS = 2000
PILOTS = 20
FORECAST_DIM = 64  # one shape for all forecasts, so one compilation
ADAPTIVE, RULE, STEP = "adaptive", "fixed ν, step by rule", "fixed ν and step"


class PlannerSetting(NamedTuple):
    """What is learned, how far, and the fixed choices that the rule is compared with."""

    name: str
    problem: Problem
    metric: str
    targets: tuple[float, ...]
    sizes: tuple[int, ...]
    steps: tuple[float, ...]
    rounds: int
    repetitions: int
    seed: int

    @property
    def falling(self) -> bool:
        """Whether the metric is to fall: an error, rather than an accuracy."""
        return self.metric == "error"


class PolicySpending(NamedTuple):
    """What one policy paid up to one target, and in how many rounds, in each repetition."""

    policy: str
    request: int  # 0: adaptive
    step: float  # NaN: by the rule
    target: float
    totals: Any
    rounds: Any
    reached: float  # the share of repetitions that got there; the others' totals go up to where they were cut off


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Train every setting with every policy; the adaptive one is the same everywhere, with nothing to set."""
    data = prepare(load_survey())
    few = max(2, repetitions * 2 // 5)  # repetitions of the problems that only confirm
    paper, uneven = (linear_regression(DIM, START, LARGEST, condition=ratio) for ratio in (1.0, 100.0))
    survey, network, right = data.regression(LARGEST_ROWS), _network(data), ("accuracy", (ACCURACY,))
    settings = [
        PlannerSetting("linear", paper, "error", TARGETS, SIZES, (), ROUNDS, repetitions, seed),
        PlannerSetting("heart", survey, *right, SIZES, STEPS, FEWER_ROUNDS, repetitions, seed),
        PlannerSetting("uneven", uneven, "error", UNEVEN_TARGETS, SIZES[:5], UNEVEN_STEPS, ROUNDS, few, seed),
        PlannerSetting("network", network, *right, SIZES[1:5], NETWORK_STEPS, FEWER_ROUNDS, few, seed),
    ]
    pilots = min(PILOTS, repetitions)
    step = count_steps(tell, sum(len(_policies(setting)) for setting in settings) + 4 + pilots)
    spent = {setting.name: _sweep(setting, step) for setting in settings}
    step("linear: the exact optimum")
    optima = {target: optimal_requests(DIM, AGENTS, COST, START, target, LARGEST) for target in TARGETS}
    step("linear: what is asked")
    path = simulate(settings[0].problem, [Cooperative()] * AGENTS, BALANCED, NoiseScaleRequest(COST, LARGEST), 100,
                    repetitions, seed, stop=Stop("error", at_most=TARGETS[-1]))  # fmt: skip
    step("estimates and incentives")
    claims = *_claims(spent, optima), *_unbiased(settings[:2]), *incentive_claims(repetitions, seed)
    return Experiment(
        "planner",
        f"The planner: what to request ({data.label})",
        "Total reward until a target is reached, all agents cooperating, h(s) = s + 1 (mean; bars and bands: 95 %). "
        "First: linear regression, relative to the exact optimum, for each fixed request with the rule's own step, and "
        "for the adaptive rule, which knows nothing in advance. Second: the requests it makes as the error falls "
        "(median and 80 % of runs), and those of the optimum for the last target. Third: heart data, fixed requests "
        f"with the best of {len(STEPS)} fixed steps, and with the rule's step. Fourth: the adaptive rule relative to "
        "the best fixed choice in hindsight, on every problem.",
        partial(_draw, spent, optima, path),
        _table(spent, optima, data),
        (*claims, _covered(path, pilots, step)),
        notes=_notes(settings),
        survey=data.label,
    )


def _network(data: HeartData) -> Problem:
    """Return a network with one hidden layer on the same survey, as any user would bring it: a loss and its data."""
    features, labels = jnp.asarray(data.validation_features), jnp.asarray(data.validation_labels)

    def logit(p: Any, x: Any) -> Any:
        return jnp.tanh(x @ p["inner"] + p["shift"]) @ p["outer"]

    def loss(p: Any, example: Any) -> Any:
        x, y = example
        return jnp.logaddexp(0.0, logit(p, x)) - y * logit(p, x)

    def start(key: Any) -> Any:
        one, two = jax.random.split(key)
        columns = features.shape[1]
        inner = jax.random.normal(one, (columns, HIDDEN)) / columns**0.5
        outer = jax.random.normal(two, (HIDDEN,)) / HIDDEN**0.5
        return {"inner": inner, "shift": jnp.zeros(HIDDEN), "outer": outer}

    def score(p: Any) -> dict[str, Any]:
        return {"accuracy": jnp.mean((logit(p, features) > 0) == (labels > 0.5))}

    return from_loss(loss, (data.train_features, data.train_labels), start, score, max_batch=LARGEST_ROWS)


def _policies(setting: PlannerSetting) -> list[tuple[str, int, float, Requests]]:
    """Return every policy with its kind, request and step."""
    listed: list[tuple[str, int, float, Requests]] = [
        (ADAPTIVE, 0, float("nan"), NoiseScaleRequest(COST, setting.problem.max_batch))
    ]
    for nu in setting.sizes:
        listed.append((RULE, nu, float("nan"), NoiseScaleRequest(COST, nu, min_batch=nu)))
        steps = setting.steps or (optimal_step(DIM, AGENTS, nu),)
        listed += [(STEP, nu, step, FixedRequest(nu, step)) for step in steps]
    return listed


def _sweep(setting: PlannerSetting, step: Callable[[str], None]) -> list[PolicySpending]:
    found: list[PolicySpending] = []
    for policy, nu, length, requests in _policies(setting):
        step(
            f"{setting.name}: {policy}"
            + (f", ν = {nu}" if nu else "")
            + ("" if np.isnan(length) else f", {length:.2g}")
        )
        found += _play(setting, policy, nu, length, requests)
    return found


def _play(setting: PlannerSetting, policy: str, nu: int, step: float, requests: Requests) -> list[PolicySpending]:
    """Return what one policy paid up to each target, from one run up to the last of them."""
    last = setting.targets[-1]
    stop = Stop(setting.metric, at_most=last) if setting.falling else Stop(setting.metric, at_least=last)
    agents = [Cooperative()] * AGENTS
    arguments = setting.problem, agents, BALANCED, requests, setting.rounds, setting.repetitions, setting.seed
    history = simulate(*arguments, stop=stop)
    return [PolicySpending(policy, nu, step, target, *_up_to(setting, history, target)) for target in setting.targets]


def _up_to(setting: PlannerSetting, history: History, target: float) -> tuple[Any, Any, float]:
    """Return the reward paid and the rounds played until each run was at the target, and the share that got there."""
    values = history.metrics[setting.metric][:, 1:]
    there = (values <= target) if setting.falling else (values >= target)
    rounds = np.where(there.any(axis=1), 1 + np.argmax(there, axis=1), history.rounds_played)
    paid = np.cumsum(history.rewards["reward"].sum(axis=2, dtype=np.float64), axis=1)
    return paid[np.arange(len(rounds)), np.maximum(rounds, 1) - 1], rounds, float(np.mean(there.any(axis=1)))


def select(spent: list[PolicySpending], policy: str, target: float) -> list[PolicySpending]:
    """Return what one kind of policy paid up to a target."""
    return [s for s in spent if s.policy == policy and s.target == target]


def best(spent: list[PolicySpending], policies: tuple[str, ...], target: float) -> PolicySpending:
    """Return the cheapest in hindsight of those that reached the target in every repetition."""
    candidates = [s for policy in policies for s in select(spent, policy, target) if s.reached == 1.0]
    return min(candidates, key=lambda s: float(np.mean(s.totals)))


def _at_most(claim: str, spent: PolicySpending, rival: float, rival_error: float, bound: float) -> Claim:
    """Claim that what was paid is at most `bound` times what the rival pays."""
    mean, error = mean_over_repetitions(spent.totals)
    ratio, spread = mean / rival, float(np.hypot(error / mean, rival_error / rival))
    return Claim("planner", claim, f"at most {bound:g}", ratio, ratio * spread, ratio <= bound and spent.reached == 1.0)


def _claims(spent: Mapping[str, list[PolicySpending]], optima: Mapping[float, Optimum]) -> list[Claim]:
    claims: list[Claim] = []
    for target, optimum in optima.items():
        (adaptive,) = select(spent["linear"], ADAPTIVE, target)
        rival = best(spent["linear"], (RULE,), target)
        claims.append(_at_most(f"linear, x ≤ {target:g}: adaptive ÷ exact optimum", adaptive, optimum.total, 0.0, 1.2))
        claim = f"linear, x ≤ {target:g}: adaptive ÷ best fixed ν in hindsight (ν = {rival.request}), same step rule"
        claims.append(_at_most(claim, adaptive, *mean_over_repetitions(rival.totals), 1.02))
    for name, words in (("heart", "heart data"), ("network", "network"), ("uneven", "linear, condition 100")):
        for target in dict.fromkeys(s.target for s in spent[name]):
            (adaptive,) = select(spent[name], ADAPTIVE, target)
            rival = best(spent[name], (STEP,), target)
            chosen = f"(ν = {rival.request}, step {rival.step:g})"
            claim = f"{words}, {target:g}: adaptive ÷ best fixed ν and step in hindsight {chosen}"
            claims.append(_at_most(claim, adaptive, *mean_over_repetitions(rival.totals), 1.15))
    return claims


def _unbiased(settings: list[PlannerSetting]) -> list[Claim]:
    """Claim that σ² and ‖m‖² are estimated without bias before the first round, by z-tests."""
    claims: list[Claim] = []
    for setting in settings:
        problem, nu = setting.problem, 8
        model = problem.init(jax.random.key(0))

        def one(key: Any, problem: Problem = problem, model: Any = model, nu: int = nu) -> Any:
            drawn = jax.vmap(lambda k: problem.gradient(model, jnp.asarray(nu), k))(jax.random.split(key, AGENTS))
            return estimate_noise(gather(drawn, jnp.ones(AGENTS, bool)), nu)[:2]

        keys = jax.random.split(jax.random.key(setting.seed + 1), DRAWS)
        found = jax.lax.map(one, keys, batch_size=250)
        true = problem.variance(model), jnp.sum(problem.population_gradient(model) ** 2)
        for words, sample, value in zip(("σ²", "‖m‖²"), found, true, strict=True):
            mean, error = mean_over_repetitions(sample)
            score = (mean - float(value)) / error
            claim = f"{setting.name}: the estimate of {words} is unbiased (z over {DRAWS} rounds)"
            claims.append(Claim("planner", claim, "within ±3", score, 1.0, abs(score) < 3))
    return claims


def _covered(path: History, pilots: int, step: Callable[[str], None]) -> Claim:
    """Claim that the forecast's interval covers the realised total, pilots being single trainings of the same kind."""
    frame, totals, shares = path.to_frame(), path.total_reward(), list[float]()
    for number in range(pilots):
        step(f"forecast from pilot {number + 1} of {pilots}")
        pilot = pilot_from_frame(frame.filter(frame["repetition"] == number), "error", at_most=TARGETS[-1])
        fit = fit_pilot(pilot, number)._replace(dim=FORECAST_DIM)
        low, high = forecast(COST, AGENTS, fit, sizes=(), repetitions=100).forecasts[0].total[1:]
        others = np.delete(totals, number)
        shares.append(float(np.mean((others >= low) & (others <= high))))
    covered, error = mean_over_repetitions(shares)
    share = f"share of totals in the forecast's 90 % interval, {len(shares)} pilots of one run"
    claim = f"linear, x ≤ {TARGETS[-1]:g}: {share}"
    return Claim("planner", claim, "at least 0.85", covered, error, covered >= 0.85)


def _notes(settings: list[PlannerSetting]) -> tuple[str, ...]:
    few = settings[-1].repetitions
    return (
        f"A fixed choice counts only where all repetitions reached the target within {ROUNDS} rounds ({FEWER_ROUNDS} "
        f"on the survey); the confirming problems have {few} repetitions.",
        "The linear regression with condition number 100 was among the problems used to design the rule; the network "
        "was not.",
        "Where the loss is curved a hundred times more in one direction than in another, the rule may pay a fifth more "
        "than hindsight: what is left of the gradient lies in flat directions, noise in the steep ones hides it, and "
        "the rule requests more samples against that noise than a constant request does.",
    )


def _draw(spent: Mapping[str, list[PolicySpending]], optima: Mapping[float, Optimum], path: History) -> Any:
    titles = ["linear: total ÷ optimum", "linear: what is asked", "heart: total reward", "adaptive ÷ best in hindsight"]
    figure, axes = panels(titles, height=5.8, columns=2)
    _draw_linear(axes[0], spent["linear"], optima)
    _draw_path(axes[1], path, optima[TARGETS[-1]])
    _draw_heart(axes[2], spent["heart"])
    _draw_ratios(axes[3], spent, optima)
    return figure


def _draw_linear(axes: Any, spent: list[PolicySpending], optima: Mapping[float, Optimum]) -> None:
    for place, (target, color) in enumerate(zip(TARGETS, (BLUE, GREEN, ORANGE, RED), strict=True)):
        optimum = optima[target].total
        means = [mean_over_repetitions(s.totals) for s in select(spent, RULE, target)]
        (adaptive,) = select(spent, ADAPTIVE, target)
        means.append(mean_over_repetitions(adaptive.totals))
        values, errors = ([m[i] / optimum for m in means] for i in (0, 1))
        places = range(len(SIZES))
        axes.plot(places, values[:-1], color=color, linewidth=1.2, marker="o", markersize=3, label=f"x ≤ {target:g}")
        beside = len(SIZES) + 0.15 * (place - 1.5)
        axes.errorbar([beside], values[-1:], [NORMAL_95 * errors[-1]], fmt="D", color=color, capsize=3, markersize=4)
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.set_xticks(range(len(SIZES) + 1), [*map(str, SIZES), "\nadaptive"])
    axes.set(xlabel="request ν", ylim=(0.9, 2.4))
    legend(axes, "upper center")


def _draw_path(axes: Any, path: History, optimum: Optimum) -> None:
    errors, asked = path.metrics["error"][:, :-1].ravel(), path.request.ravel()
    edges = np.geomspace(TARGETS[-1], START, 16)
    middle, bands = list[float](), list[Any]()
    for low, high in pairwise(edges):
        inside = asked[(errors > low) & (errors <= high) & (asked > 0)]
        if len(inside):
            middle.append(float(np.sqrt(low * high)))
            bands.append(np.percentile(inside, [10, 50, 90]))
    low, median, high = np.array(bands).T
    axes.fill_between(middle, low, high, color=BLUE, alpha=0.22, linewidth=0)
    axes.plot(middle, median, color=BLUE, label="adaptive")
    axes.plot(optimum.errors[:-1], optimum.requests, color=GREY, linestyle="--", marker=".", label="exact optimum")
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.invert_xaxis()
    axes.set_yticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
    axes.set(xlabel="squared error (logarithmic)\ntraining goes to the right", ylabel="request ν (logarithmic)")
    legend(axes, "upper left")


def _draw_heart(axes: Any, spent: list[PolicySpending]) -> None:
    fixed = [s for s in select(spent, STEP, ACCURACY) if s.reached == 1.0]
    groups = [[s for s in fixed if s.request == nu] for nu in SIZES]
    cheapest = [best(group, (STEP,), ACCURACY) for group in groups if group]
    ruled = [s for s in select(spent, RULE, ACCURACY) if s.reached == 1.0]
    for chosen, color, words in ((cheapest, ORANGE, "best fixed step in hindsight"), (ruled, GREEN, "the rule's step")):
        places, means = [SIZES.index(s.request) for s in chosen], [mean_over_repetitions(s.totals) for s in chosen]
        draw_points(axes, places, means, color=color, marker="o", markersize=4, label=words)
    (adaptive,) = select(spent, ADAPTIVE, ACCURACY)
    mean, error = mean_over_repetitions(adaptive.totals)
    axes.axhspan(mean - NORMAL_95 * error, mean + NORMAL_95 * error, color=BLUE, alpha=0.22, linewidth=0)
    axes.axhline(mean, color=BLUE, label="adaptive")
    axes.set_xticks(range(len(SIZES)), [str(nu) for nu in SIZES])
    axes.set(xlabel="request ν", ylim=(0, None))
    legend(axes, "lower left")


def _draw_ratios(axes: Any, spent: Mapping[str, list[PolicySpending]], optima: Mapping[float, Optimum]) -> None:
    rows = [c for c in _claims(spent, optima) if "hindsight" in c.claim]
    for place, claim in enumerate(rows):
        bound, bar = float(claim.expected.split()[-1]), [NORMAL_95 * claim.standard_error]
        color = GREEN if claim.holds else RED
        axes.errorbar([claim.measured], [-place], xerr=bar, fmt="o", color=color, capsize=3)
        axes.plot([bound, bound], [-place - 0.35, -place + 0.35], color=GREY, linewidth=1.5)
    axes.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_yticks([-place for place in range(len(rows))], [c.claim.split(": adaptive")[0] for c in rows])
    axes.set_xlabel("ratio (grey bar: at most)")


def _table(spent: Mapping[str, list[PolicySpending]], optima: Mapping[float, Optimum], data: HeartData) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for name, found in spent.items():
        for s in found:
            total, rounds = mean_over_repetitions(s.totals), mean_over_repetitions(s.rounds)
            rows.append(
                {"problem": name, "data": data.label if name in ("heart", "network") else "", "policy": s.policy,
                 "request": s.request or None, "step": None if np.isnan(s.step) else s.step, "target": s.target,
                 "mean_total_reward": total.value, "standard_error": total.error, "mean_rounds": rounds.value,
                 "rounds_standard_error": rounds.error, "reached": s.reached,
                 "optimum": optima[s.target].total if name == "linear" else None}
            )  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)
