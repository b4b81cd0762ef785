"""The planner: what the adaptive request pays, against fixed requests chosen in hindsight and the optimum."""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.adaptive import NoiseScaleRequest
from guerdon.evidence import gather
from guerdon.lab.experiments.claims import Claim, Experiment, Tell, count_steps, mean_over_repetitions
from guerdon.lab.experiments.incentives import incentive_claims
from guerdon.lab.experiments.paper import AGENTS, COST, DIM, START, seed_of
from guerdon.lab.experiments.planner_figure import draw, table
from guerdon.lab.experiments.planner_policies import (
    ADAPTIVE,
    RULE,
    STEP,
    PlannerSetting,
    PolicySpending,
    best,
    policies,
    select,
    sweep,
    train,
)
from guerdon.lab.planning.forecasts import forecast
from guerdon.lab.planning.optimum import Optimum, optimal_requests, realised_totals
from guerdon.lab.planning.pilots import fit_pilot, pilot_from_frame
from guerdon.lab.problems import Problem, from_loss, linear_regression
from guerdon.lab.problems.heart import HeartData, load_survey, prepare
from guerdon.lab.simulation import History
from guerdon.noise_scale import estimate_noise

SIZES = (1, 2, 4, 8, 16, 32)
LARGEST = 64
LARGEST_ROWS = 32  # of the survey in a batch: far more than is ever asked for there
TARGETS = (1.0, 0.5, 0.1, 0.05)
UNEVEN_TARGETS = (10.0, 1.0, 0.5)
ACCURACY = 0.755
LINEAR_STEPS = (0.05, 0.07, 0.1, 0.12, 0.14, 0.17, 0.2, 0.28)
STEPS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
UNEVEN_STEPS = {100.0: (0.035, 0.05, 0.07, 0.1, 0.14), 1000.0: (0.02, 0.03, 0.04, 0.055, 0.075, 0.1)}  # by condition
NETWORK_STEPS = (0.5, 1.0, 2.0)
HIDDEN = 16
ROUNDS = 512
FEWER_ROUNDS = 256  # on the survey
DRAWS = 2000
RUNS = 4000  # with random errors, that the plan for these is played in
PILOTS = 12
FORECAST_DIM = 64  # one shape for all forecasts, so one compilation
HINDSIGHT = {"heart": "heart data", "network": "network", "uneven100": "linear, condition 100",
             "uneven1000": "linear, condition 1000"}  # fmt: skip


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Train every setting with every policy; the adaptive one is the same everywhere, with nothing to set."""
    data = prepare(load_survey())
    settings = {setting.name: setting for setting in _settings(data, repetitions, seed)}
    pilots = min(PILOTS, repetitions)
    step = count_steps(tell, sum(len(policies(setting)) + 1 for setting in settings.values()) + 3 + pilots)
    spent = {name: sweep(setting, step) for name, setting in settings.items()}
    step("linear: the optimum")
    optima = {target: optimal_requests(DIM, AGENTS, COST, START, target, LARGEST) for target in TARGETS}
    realised = [_realised(optimum, target, seed) for target, optimum in optima.items()]
    step("linear: what is asked")
    path = train(settings["linear"], NoiseScaleRequest(COST, LARGEST), 128, repetitions)
    step("estimates and incentives")
    claims = _claims(spent, optima)
    others = *_unbiased([settings["linear"], settings["heart"]]), *incentive_claims(repetitions, seed)
    return Experiment(
        "planner",
        f"The planner: what to request ({data.label})",
        "Total reward until a target is reached, all agents cooperating and paid their cost, h(s) = s + 1 (mean; bars "
        "and bands: 95 %). First: linear regression, relative to the optimum of the expected path, for each fixed "
        "request with the rule's own step, and for the adaptive rule, which knows nothing in advance. Second: the "
        "requests it makes as the error falls (median and 80 % of runs), and those of the optimum for the last target. "
        f"Third: heart data, fixed requests with the best of {len(STEPS)} fixed steps, and with the rule's step. "
        "Fourth: the adaptive rule relative to the best fixed choice in hindsight, on every problem.",
        partial(draw, spent, optima, path, claims),
        table(spent, optima, data),
        (*claims, *realised, *others, _covered(path, pilots, step)),
        notes=_notes(settings),
        survey=data.label,
    )


def _settings(data: HeartData, repetitions: int, seed: int) -> list[PlannerSetting]:
    few, fewer = (max(2, int(repetitions * share)) for share in (0.4, 0.2))  # for the problems that only confirm
    right = "accuracy", (ACCURACY,)
    paper, survey = linear_regression(DIM, START, LARGEST), data.regression(LARGEST_ROWS)
    settings = [
        PlannerSetting("linear", paper, "error", TARGETS, SIZES, LINEAR_STEPS, ROUNDS, repetitions, seed, ruled=True),
        PlannerSetting("heart", survey, *right, SIZES, STEPS, FEWER_ROUNDS, repetitions, seed, ruled=True),
        PlannerSetting("network", _network(data), *right, SIZES[1:5], NETWORK_STEPS, FEWER_ROUNDS, fewer, seed),
    ]
    for condition, steps in UNEVEN_STEPS.items():
        problem, name = linear_regression(DIM, START, LARGEST, condition=condition), f"uneven{condition:g}"
        arguments = name, problem, "error", UNEVEN_TARGETS, SIZES[:5], steps, 2 * ROUNDS, few, seed
        settings.append(PlannerSetting(*arguments))
    return settings


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


def _at_most(claim: str, spent: PolicySpending, rival: float, rival_error: float, bound: float) -> Claim:
    """Claim that what was paid is at most `bound` times what the rival pays."""
    mean, error = mean_over_repetitions(spent.totals)
    ratio, spread = mean / rival, float(np.hypot(error / mean, rival_error / rival))
    return Claim("planner", claim, f"at most {bound:g}", ratio, ratio * spread, ratio <= bound and spent.reached == 1.0)


def _claims(spent: Mapping[str, list[PolicySpending]], optima: Mapping[float, Optimum]) -> list[Claim]:
    claims: list[Claim] = []
    for target, optimum in optima.items():
        (adaptive,) = select(spent["linear"], ADAPTIVE, target)
        rival, words = best(spent["linear"], (RULE,), target), f"linear, x ≤ {target:g}"
        claim = f"{words}: adaptive ÷ optimum of the expected path"
        claims.append(_at_most(claim, adaptive, optimum.total, 0.0, 1.2))
        claim = f"{words}, same step rule: adaptive ÷ best fixed ν in hindsight (ν = {rival.request})"
        claims.append(_at_most(claim, adaptive, *mean_over_repetitions(rival.totals), 1.02))
        claims.append(_against_hindsight(words, spent["linear"], target))
    for name, words in HINDSIGHT.items():
        for target in dict.fromkeys(s.target for s in spent[name]):
            named = f"{words}, x ≤ {target:g}" if words.startswith("linear") else f"{words}, {target:.1%}"
            claims.append(_against_hindsight(named, spent[name], target))
    return claims


def _against_hindsight(words: str, spent: list[PolicySpending], target: float) -> Claim:
    (adaptive,), rival = select(spent, ADAPTIVE, target), best(spent, (STEP,), target)
    claim = f"{words}: adaptive ÷ best fixed ν and step in hindsight (ν = {rival.request}, step {rival.step:g})"
    return _at_most(claim, adaptive, *mean_over_repetitions(rival.totals), 1.15)


def _realised(optimum: Optimum, target: float, seed: int) -> Claim:
    """Claim that the optimum of the expected path is about what the best plan pays where errors are random."""
    totals = realised_totals(DIM, AGENTS, COST, START, target, LARGEST, runs=RUNS, seed=seed_of(seed))
    value, error = mean_over_repetitions(totals / optimum.total)
    claim = f"linear, x ≤ {target:g}: best plan for random errors ÷ optimum of the expected path"
    return Claim("planner", claim, "0.98 to 1.02", value, error, 0.98 <= value <= 1.02)


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


def _notes(settings: Mapping[str, PlannerSetting]) -> tuple[str, ...]:
    return (
        "A fixed choice counts only where all repetitions reached the target. Each is tried in ten repetitions; the "
        "three cheapest for each target are then played in full, with other random draws. Repetitions: "
        + ", ".join(f"{name} {setting.repetitions}" for name, setting in settings.items())
        + ".",
        "The optimum of the expected path replaces the error of each round by its mean. A plan that sees its error, "
        "which is random, pays about as much.",
        "The linear regression with condition number 100 was among the problems used to design the rule; the network "
        "and condition number 1000 were not.",
        "Where the loss is curved a hundred or a thousand times more in one direction than in another, the rule pays "
        "more than hindsight: what is left of the gradient lies in flat directions, noise in the steep ones hides it, "
        "and the rule requests more samples against that noise than a constant request does.",
    )
