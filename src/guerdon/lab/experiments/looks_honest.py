"""Honest members under looks: each uses the rows that it is told, and every report is computed again by an auditor.

Nothing is taken for granted here: rows are named, coins are drawn, looks are judged and money is settled by
`guerdon.looks`, in whole micro-units. What an honest member is paid is then either exactly what was stated, or not.
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array
from guerdon.lab.experiments.exploit_settings import network
from guerdon.lab.experiments.federations import ages
from guerdon.lab.experiments.looks_strategies import REQUEST
from guerdon.lab.experiments.paper import COST
from guerdon.lab.problems import splits
from guerdon.lab.problems.heart import Survey, prepare
from guerdon.lab.problems.hospitals import FILES, Hospitals
from guerdon.looks.draw import ROLES, Candidates, Draw, begin, coins, commitment, kept, nonce
from guerdon.looks.naming import Deck, member_seeds
from guerdon.looks.outcomes import Outcome, settled
from guerdon.looks.recompute import Arrays, compare, repeat_error, rows_effect, tolerances
from guerdon.terms import Looks

MEMBERS, LENGTHS = (2, 3, 4, 10), (3, 10, 50, 200)  # fewest and most that federations of hospitals have
POOL = 600  # rows of a member whose data are like the others': each is named again after 37 rounds
STEP = 0.2
MINIBATCH = 2  # rows of each of the eight steps that FedAvg's members take in a round
FEDAVG = "survey, FedAvg"
TERMS = Looks(forfeit="all")
PAY = TERMS.pay(round(float(COST(REQUEST)) * 1_000_000))  # micro-units
SAMPLED = 4  # rows on which an auditor measures the effect of one row


class HonestCell(NamedTuple):
    """What became of honest members of one federation in a run of so many rounds.

    `looks`: how many reports were looked at, and `failed` of them. `exact`: whether each member was paid exactly the
    stated pay. `tolerance`: the smallest that an auditor set. `error`: the largest of *all* reports, also of those that
    were not looked at, where their rows are computed one at a time.
    """

    problem: str
    members: int
    rounds: int
    looks: int
    failed: int
    exact: bool
    tolerance: float
    error: float


class Members(NamedTuple):
    """A problem, and which of its rows each member has, by how many members there are."""

    name: str
    problem: Any
    rows: Mapping[int, Sequence[Any]]

    @property
    def steps(self) -> int:
        """How many steps a member takes in a round."""
        return REQUEST // MINIBATCH if self.name == FEDAVG else 1


def federations(survey: Survey, hospitals: Hospitals | None) -> list[Members]:
    """Return all federations, each with as many members as it can have.

    The survey as it is has 8.6 % of positives; divided by what members have, it has as many of both kinds.
    """
    whole, data = prepare(survey, positives=None), prepare(survey)
    problem, labels, old = data.regression(REQUEST), data.train_labels, ages(data)
    alike = {members: splits.pools(len(labels), members, POOL) for members in MEMBERS}
    aged = {members: splits.by_value(old, members) for members in MEMBERS}
    mixed = {members: splits.by_dirichlet(labels, members, 0.5) for members in MEMBERS}
    found = [
        Members("survey as it is", whole.regression(REQUEST), alike), Members("survey by age", problem, aged),
        Members("survey, Dirichlet(0.5)", problem, mixed), Members(FEDAVG, problem, alike),
        Members("network", network(data, REQUEST).problem, alike),
    ]  # fmt: skip
    if hospitals is not None:
        few = {members: hospitals.rows()[:members] for members in MEMBERS if members <= len(FILES)}
        found.append(Members("four hospitals", hospitals.regression(REQUEST), few))
    return found


def play(federation: Members, members: int, lengths: Sequence[int] = LENGTHS) -> Iterator[HonestCell]:
    """Train with so many members, all honest, and settle runs of these lengths: the shorter are its first rounds."""
    rows = _named(federation, members, max(lengths))
    models, reports = _train(federation.problem, jnp.asarray(rows), federation.steps)
    errors = np.asarray(_errors(federation.problem, models, jnp.asarray(rows), reports, federation.steps))
    models, reports = np.asarray(models), np.asarray(reports)

    @cache
    def look(number: int, member: int) -> tuple[Outcome, float]:
        opened = _opened(federation.problem, rows[number, member])
        return _judge(federation, models[number], opened, reports[number, member])

    for rounds in lengths:
        judged, exact = list[tuple[Outcome, float]](), True
        for member in range(members):
            paid = 0
            for state in _periods(federation.name, rounds):
                found = {number: look(number - 1, member) for number in state.due}
                paid += settled(TERMS, state, {number: outcome for number, (outcome, _) in found.items()}).released
                judged += found.values()
            exact = exact and paid == rounds * PAY
        yield HonestCell(
            federation.name, members, rounds, len(judged), sum(outcome.forfeits for outcome, _ in judged), exact,
            min(tolerance for _, tolerance in judged), float(errors[:rounds].max()),
        )  # fmt: skip


@cache
def _periods(run: str, rounds: int) -> list[Candidates]:
    """Return the candidates at the end of each period: all members have the same, for they are paid the same."""
    ends, state = list[Candidates](), begin(TERMS.looks)
    for number in range(1, rounds + 1):
        state = kept(state, PAY, number, _coins(run, number))
        if TERMS.ends_period(number) or number == rounds:
            ends, state = [*ends, state], begin(TERMS.looks)
    return ends


@cache
def _coins(run: str, number: int) -> tuple[int | None, ...]:
    """Return the coins of a round: of a server and an auditor that keep their promises, and of no real reports."""
    nonces = {role: nonce(role.encode() * 16, role, "lab", run, number) for role in ROLES}
    promised = {role: commitment(own, role, "lab", run, number) for role, own in nonces.items()}
    draw = Draw(
        "lab", run, number, promised["server"], promised["auditor"], bytes(32), nonces["server"], nonces["auditor"]
    )
    return coins(draw, TERMS.looks)


def _named(federation: Members, members: int, rounds: int) -> Any:
    """Return which rows of the problem each member is to use, (rounds, members, ν)."""
    found = np.empty((rounds, members, REQUEST), dtype=np.int32)
    for member, own in enumerate(federation.rows[members]):
        deck = Deck(len(own))
        for number in range(rounds):
            fresh = number.to_bytes(32, "big")
            seeds = member_seeds(fresh, ledger="lab", run=federation.name, round=number + 1, member=str(member))
            found[number, member] = np.asarray(own)[deck.deal(seeds.rows, REQUEST)]
    return found


@partial(jax.jit, static_argnums=2)
def _train(problem: Any, rows: Array, steps: int) -> tuple[Array, Array]:
    """Return the models that were sent, (rounds, d), and what members reported, (rounds, members, d)."""

    def play_round(model: Array, named: Array) -> tuple[Array, tuple[Array, Array]]:
        sent = jax.vmap(lambda own: _work(problem, model, own, steps, alone=False))(named)
        return model - STEP * sent.mean(axis=0), (model, sent)

    return jax.lax.scan(play_round, problem.init(jax.random.key(0)), rows)[1]


@partial(jax.jit, static_argnums=4)
def _errors(problem: Any, models: Array, rows: Array, reports: Array, steps: int) -> Array:
    """Return how far each report is from the work computed again, one row at a time, relative to its scale."""

    def one(model: Array, own: Array, sent: Array) -> Array:
        lengths = jnp.linalg.norm(jax.vmap(lambda row: problem.mean_gradient(model, row[None], 1))(own), axis=1)
        again = _work(problem, model, own, steps, alone=True)
        return jnp.linalg.norm(again - sent) / jnp.maximum(jnp.linalg.norm(again), lengths.mean())

    def of_round(now: tuple[Array, Array, Array]) -> Array:
        return jax.lax.map(lambda own: one(now[0], *own), now[1:])

    return jax.lax.map(of_round, (models, rows, reports))


def _work(problem: Any, model: Array, rows: Array, steps: int, *, alone: bool) -> Array:
    """Return the mean gradient on a member's way over its rows, in so many steps; `alone`: one row at a time."""

    def gradient(at: Array, some: Array) -> Array:
        if not alone:
            return problem.mean_gradient(at, some, len(some))
        return jax.lax.map(lambda row: problem.mean_gradient(at, row[None], 1), some).mean(axis=0)

    def step(trained: Array, some: Array) -> tuple[Array, None]:
        return trained - STEP / steps * gradient(trained, some), None

    if steps == 1 or len(rows) < steps:
        return gradient(model, rows)
    trained, _ = jax.lax.scan(step, model, rows.reshape(steps, -1))
    return (model - trained) / STEP


_report = jax.jit(_work, static_argnames=("steps", "alone"))


def _opened(problem: Any, rows: Any) -> dict[str, Any]:
    """Return what a member shows the auditor: its named rows."""
    features, labels = problem.data if hasattr(problem, "data") else (problem.features, problem.labels)
    return {"features": np.asarray(features[rows]), "labels": np.asarray(labels[rows])}


def _judge(federation: Members, model: Any, rows: Arrays, sent: Any) -> tuple[Outcome, float]:
    """Return the outcome of a look, and the auditor's tolerance, from the rows that the member opened."""
    problem = federation.problem

    def work(model: Arrays, rows: Arrays, seed: int, *, alone: bool = False) -> Arrays:
        del seed  # no other randomness is in this work
        both = jnp.asarray(rows["features"]), jnp.asarray(rows["labels"])
        own = (
            replace(problem, data=both)
            if hasattr(problem, "data")
            else replace(problem, features=both[0], labels=both[1])
        )
        indices = jnp.arange(len(both[1]))
        report = _report(own, jnp.asarray(model["model"]), indices, steps=federation.steps, alone=alone)
        return {"report": np.asarray(report)}

    start = {"model": model}
    effect = rows_effect(work, start, rows, 0, SAMPLED)
    # JAX computes in single precision here, so that double is no way of its own.
    repeat = repeat_error(work, start, rows, 0, effect, [{"alone": True}], double=False)
    tolerance = tolerances(repeat, {"report": sent})
    found = compare(work(start, rows, 0), {"report": sent}, effect, tolerance)
    return Outcome.PASSED if found.passed else Outcome.FAILED, tolerance["report"]
