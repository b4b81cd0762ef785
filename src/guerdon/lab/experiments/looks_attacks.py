"""Real agents on real problems: what each attack earns under other rules, and under flat pay with looks beside them.

The attacks are those of `guerdon reproduce exploits`. The simulator says which of their reports are the named work;
candidates are then drawn for each training many times.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from guerdon.agreement import FlatPay, OutputAgreement
from guerdon.lab.experiments.attacks import CREW, Attack, AttackerKnowledge, known_attacks
from guerdon.lab.experiments.claims import Mean, mean_over_repetitions
from guerdon.lab.experiments.exploit_settings import CHUNK, AttackSetting, heart, network, what_is_known
from guerdon.lab.experiments.looks_strategies import REQUEST
from guerdon.lab.experiments.paper import AGENTS, COST
from guerdon.lab.held import NamedWork, forfeited, kept, nothing_held
from guerdon.lab.problems.heart import HeartData
from guerdon.lab.problems.hospitals import FILES, Hospitals
from guerdon.lab.simulation import History, simulate
from guerdon.requests import FixedRequest
from guerdon.rule import Rule
from guerdon.statistical.steady import SteadyPay
from guerdon.terms import Looks

ROUNDS = 100  # two periods
FAIR = float(COST(REQUEST))
NETWORK_ROWS = 4000  # of the survey, that the network learns from: of all of them a round takes ten times as long
WORKED = "named work"
# Steady pay is the first: what agents learn of a round is what it says, as in the exploit table.
RULES: Mapping[str, Rule] = {
    "steady": SteadyPay(COST, period=ROUNDS), "flat": FlatPay(COST), "agreement": OutputAgreement(COST),
    WORKED: NamedWork(COST),
}  # fmt: skip
HONEST = "do as asked"
# Of the exploits, those that differ to a look, and those that pay best under other rules.
ATTACKS = (
    "use half", "add honest-sized noise", "zeros", "the server's prediction", "extrapolation",
    "extrapolation and noise", "surrogate", "surrogate, stretched", "mirror", "two share a batch",
    "three share a batch, with noise", "three share 5 % noise", "everybody uses half", "work and cheat in turn",
    "steer, then cheat",
)  # fmt: skip


class Earned(NamedTuple):
    """What each name of an attack earns a round under a rule, beyond its cost, and beyond what honest work earns."""

    problem: str
    attack: str
    rule: str
    profit: Mean
    gain: Mean


def settings(data: HeartData, hospitals: Hospitals | None) -> list[AttackSetting]:
    """Return the survey, a small network on it, and the four hospitals where there are any."""
    few = replace(
        data, train_features=data.train_features[:NETWORK_ROWS], train_labels=data.train_labels[:NETWORK_ROWS]
    )
    found = [replace(heart(data, REQUEST), name="survey"), replace(network(few, REQUEST), name="network")]
    if hospitals is not None:
        problem = hospitals.federation(found[0].problem.max_batch)
        # What Cleveland's own rows say of the gradient is what the surrogate of its attack knows.
        whole = hospitals.regression(found[0].problem.max_batch)
        mine = hospitals.rows()[0]
        old = replace(whole, features=whole.features[mine], labels=whole.labels[mine])
        found.append(replace(found[0], name="four hospitals", problem=problem, recall=_Recall(old)))
    return found


class _Recall:
    """The mean gradient of some rows. Equal to itself alone, as a compiled function needs it."""

    def __init__(self, problem: Any) -> None:
        self._problem = problem

    def __call__(self, model: Any) -> Any:
        return self._problem.population_gradient(model)


def members_of(setting: AttackSetting) -> int:
    """Return how many members a problem has."""
    return len(FILES) if setting.name == "four hospitals" else AGENTS


def play(setting: AttackSetting, attack: Attack, trainings: int, seed: int) -> History:
    """Train so often with a crew that attacks, and all other members working."""
    agents = attack.agents(max(members_of(setting), CREW))[: members_of(setting)]
    requests = FixedRequest(REQUEST, setting.step)
    return simulate(
        setting.problem, agents, RULES, requests, ROUNDS, trainings, seed, costs=COST, prediction=setting.prediction,
        dither=setting.dither, chunk=min(CHUNK, trainings),
    )  # fmt: skip


def earned(
    setting: AttackSetting, terms: Mapping[str, Looks], trainings: int, runs: int, seed: int
) -> Iterator[Earned]:
    """Yield what every attack earns on a problem under every rule, and under flat pay with each of these looks."""
    dim = jax.eval_shape(setting.problem.init, jax.random.key(0)).shape[0]
    first = known_attacks(AttackerKnowledge(dim, REQUEST, 1.0, 1.0, 0.0, setting.recall))[0]
    working = play(setting, first, trainings, seed)
    honest = {name: np.asarray(working.rewards[name], np.float64)[:, :, 0].mean(axis=1) - FAIR for name in RULES}
    for attack in known_attacks(what_is_known(setting, working)):
        if attack.name in ATTACKS:
            crew = min(len(attack.crew), members_of(setting))
            history = play(setting, attack, trainings, seed)
            spent = _spent(attack, history, crew)
            for name in RULES:
                if name != WORKED:
                    paid = np.asarray(history.rewards[name], np.float64)[:, :, :crew]
                    profit = (paid.mean(axis=2) - spent).mean(axis=1)
                    gain = mean_over_repetitions(profit - honest[name])
                    yield Earned(setting.name, attack.name, name, mean_over_repetitions(profit), gain)
            worked = np.asarray(history.rewards[WORKED])[:, :, :crew] > 0
            for name, one in terms.items():
                profit = released(worked, one, runs, seed) - spent.mean()
                found = mean_over_repetitions(profit)
                yield Earned(
                    setting.name, attack.name, name, found, found._replace(value=found.value - one.margin * FAIR)
                )


def released(worked: Any, terms: Looks, runs: int, seed: int) -> Any:
    """Return flat pay a round and name that looks release, of `runs` draws of candidates in all.

    `worked`: whether each report is the named work, (trainings, rounds, names). Each training is drawn equally often.
    Which rounds are worked is no matter of chance in any attack here, so that draws are independent.
    """
    chance = np.random.default_rng(seed)
    works = np.repeat(worked, -(-runs // len(worked)), axis=0)[:runs].transpose(1, 0, 2)
    total = np.zeros(works.shape[1:])
    pay, state = (1 + terms.margin) * FAIR + total, nothing_held(total, terms.looks)
    for number, now in enumerate(works, 1):
        state = kept(state, pay, now, number, chance.random((terms.looks, runs, 1)))
        if terms.ends_period(number) or number == len(works):
            total, state = total + state.weight - forfeited(state, terms), nothing_held(0 * total, terms.looks)
    return total.mean(axis=1) / len(works)


def _spent(attack: Attack, history: History, crew: int) -> Any:
    """Return what each name's work costs on average, (trainings, rounds); a shared batch costs its crew once."""
    costs = np.asarray(history.costs, np.float64)[:, :, :crew]
    return costs[:, :, 0] / crew if attack.shared else costs.mean(axis=2)
