"""The simulator and Flower's strategy are one server: the same reports get the same pay, trust and evidence."""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportArgumentType=false

import functools
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.serverapp.strategy import FedAvg, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guerdon import CalibratedAgreement, SteadyPay
from guerdon.arrays import Array
from guerdon.flower import FedSGD, Request, decline
from guerdon.lab._trees import register
from guerdon.lab.agents import Agent, View
from guerdon.lab.simulation import simulate
from guerdon.lab.simulation.training import repetition_key
from guerdon.ledger import Ledger
from guerdon.ledger.books.money import LARGEST, MICRO
from guerdon.rule import PAID_LABELS
from guerdon.statistical.bets import against_agents, evidence_against
from guerdon.statistical.dithers import Dither
from guerdon.statistical.pairs import pair_limit
from guerdon.statistical.predictions import Extrapolation, RunningMean, ZeroPrediction
from guerdon.statistical.servers import server_for
from guerdon.statistical.trust import trust_of
from guerdon.words import about
from tests.flower.conftest import Make
from tests.flower.grids import MemoryGrid, Node, record, reply
from tests.support.ledger_scenes import check_agreement, exported_rows
from tests.support.one_server_scene import (
    AGENTS,
    ALIKE,
    COST,
    DIM,
    JOINS,
    NU,
    PLAIN,
    REQUESTS,
    ROUNDS,
    RULE,
    STEP,
    TRUSTING,
    scene,
)
from tests.support.paid import paid_strategy

SEED = 3  # of the simulator


@register
@dataclass(frozen=True)
class Scripted(Agent):
    """Sends what is written."""

    lines: Array  # (rounds, dim)
    present: Array  # (rounds,)

    def choose(self, view: View, key: Array) -> Array:
        del key
        return jnp.where(self.present[view.round], view.request, 0)

    def report(self, view: View, gradient: Array, key: Array) -> Array:
        del gradient, key
        return self.lines[view.round]


@register
@dataclass(frozen=True)
class Blank:
    """A problem without a gradient: everything is scripted."""

    dim: int = field(metadata={"static": True})
    max_batch: int = field(default=2 * NU, metadata={"static": True})

    def init(self, key: Array) -> Array:
        del key
        return jnp.zeros(self.dim, jnp.float64)

    def gradient(self, model: Array, batch_size: Array, key: Array) -> Array:
        del batch_size, key
        return 0 * model

    def population_gradient(self, model: Array) -> Array:
        return 0 * model

    def variance(self, model: Array) -> Array:
        return 1.0 + 0 * jnp.sum(model)

    def metrics(self, model: Array) -> dict[str, Array]:
        return {"length": jnp.sum(model * model)}


@dataclass
class Actor:
    """A node that sends what is written."""

    lines: np.ndarray
    present: np.ndarray

    def __call__(self, message: Message, context: Context) -> Message:
        del context
        request = Request.read(message.content)
        assert request is not None
        if not self.present[request.round - 1]:
            return decline(message, "absent")
        line = self.lines[request.round - 1]
        parts = {"a": line[:8].reshape(2, 4), "b": line[8:]}
        if request.sends == "models":
            model = message.content.array_records["arrays"]
            parts = {name: model[name].numpy() - STEP * part for name, part in parts.items()}
        return reply(message, record(**parts))


class KilledError(Exception):
    """The server of a federation was killed."""


class MortalGrid(MemoryGrid):
    """Its server is killed when it sends what it asks for after so many rounds."""

    def __init__(self, nodes: list[Node], rounds: int) -> None:
        super().__init__(nodes, wire=False)
        self.rounds = rounds

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        asked = list(messages)
        if any(request and request.round > self.rounds for request in (Request.read(one.content) for one in asked)):
            raise KilledError
        return super().send_and_receive(asked, timeout=timeout)


def simulated(rule: Any, sent: np.ndarray, present: np.ndarray, **options: Any) -> Any:
    with jax.enable_x64(True):
        agents = [Scripted(jnp.asarray(sent[:, k]), jnp.asarray(present[:, k])) for k in range(AGENTS)]
        return simulate(Blank(DIM), agents, rule, REQUESTS, ROUNDS, 1, SEED, joins=JOINS.tolist(), **options)


def paid_on_flower(make: Make, ledger: Ledger, rule: Any, sent: np.ndarray, present: np.ndarray, **options: Any) -> Any:
    """Return the rewards (rounds, agents), 0 before an agent joins, and the last checkpoint; in three processes.

    The first two are killed where somebody joins, so that no round but the last one is the last that was planned.
    """
    nodes = [Node(100 + k, Actor(sent[:, k], present[:, k])) for k in range(AGENTS)]
    ledger.enrol({f"n{k}": node.der for k, node in enumerate(nodes)})
    rewards, result = np.zeros((ROUNDS, AGENTS)), Result()
    kind = FedAvg if options.pop("sends", "gradients") == "models" else FedSGD
    for rounds in sorted({*JOINS[JOINS > 0].tolist(), ROUNDS}):
        inner = kind(min_train_nodes=1, fraction_evaluate=0.0)
        strategy = make(inner, rule=rule, requests=REQUESTS, **options)
        grid = MortalGrid([node for node, join in zip(nodes, JOINS, strict=True) if join < rounds], rounds)
        with suppress(KilledError):
            result = strategy.start(grid, record(a=np.zeros((2, 4)), b=np.zeros(4)), num_rounds=ROUNDS)
    for row in exported_rows(ledger, "payments"):
        rewards[int(row["round"]) - 1, int(row["agent"][1:])] = float(row["released"])
    for number, metrics in result.train_metrics_clientapp.items():  # of the last process
        pay: Any = metrics["guerdon-pay"]
        assert rewards[number - 1, : len(pay)] == pytest.approx(pay, rel=1e-9, abs=1e-6)
    return rewards, result.arrays, ledger.resume("run")


@pytest.fixture
def same_dither(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Flower's server draw what the simulator draws in each round; rounds in which it is killed are asked twice."""
    draw_as_simulated(monkeypatch, sorted([*range(ROUNDS), *{int(join) for join in JOINS if join > 0}]))


@pytest.fixture
def same_dither_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server draw what the simulator draws in each round, once: it keeps what it drew, or is never killed."""
    draw_as_simulated(monkeypatch, list(range(ROUNDS)))


def draw_as_simulated(monkeypatch: pytest.MonkeyPatch, turns: list[int]) -> None:
    asked = iter(turns)

    def normals(layers: Any) -> Any:
        del layers
        with jax.enable_x64(True):
            key = jax.random.fold_in(jax.random.fold_in(repetition_key(SEED, jnp.asarray(0)), 2**31 - 2), next(asked))
            drawn = np.asarray(jax.random.normal(key, (DIM,), jnp.float64))
        return [drawn[:8].reshape(2, 4), drawn[8:]]

    monkeypatch.setattr("guerdon.statistical.dithers.secret_normals", normals)
    monkeypatch.setattr("guerdon.run.driver.secret_normals", normals)


slow = pytest.mark.slow
CASES: list[Any] = [
    pytest.param(RULE, {"alike": True}, marks=slow),
    pytest.param(RULE, {"alike": False}, marks=slow),
    pytest.param(RULE, {"dither": Dither(0.3, COST), "prediction": Extrapolation(), "alike": True}, marks=slow),
    pytest.param(RULE, {"dither": Dither(0.3, COST), "prediction": Extrapolation(), "alike": False}, marks=slow),
    pytest.param(RULE, {"dither": Dither(0.3), "prediction": RunningMean(), "alike": False}, marks=slow),
    pytest.param(RULE, {"prediction": ZeroPrediction(), "alike": True}, marks=slow),
    pytest.param(TRUSTING, {"alike": True}, marks=slow),
    pytest.param(RULE, {"sends": "models", "alike": True}, marks=slow),
    pytest.param(RULE, {"sends": "models", "dither": Dither(0.3, COST), "alike": False}, marks=slow),
    (CalibratedAgreement(COST, calibration=8, vary=0.25), {"alike": False}),
    (SteadyPay(COST, period=12), {"dither": Dither(0.3), "alike": False}),
    (PLAIN["agreement"], {"alike": True}),
    pytest.param(PLAIN["agreement"], {"dither": Dither(0.3, COST), "alike": False}, marks=slow),
]


def by_name(rewards: Any) -> list[dict[str, float]]:
    """Return what was paid in each round to those who had joined."""
    return [{f"n{k}": paid[k] for k in np.flatnonzero(turn >= JOINS)} for turn, paid in enumerate(rewards)]


def settled_by_default() -> list[dict[str, float]]:
    """Return what a bare server pays by the default rule in each round, to those who had joined."""
    server, model, rewards = server_for(PLAIN["agreement"], REQUESTS), np.zeros(DIM), np.zeros((ROUNDS, AGENTS))
    state = server.init(model, int(np.sum(JOINS == 0)))
    for turn, (sent, present) in enumerate(zip(*scene(0), strict=True)):
        joined = int(np.sum(turn >= JOINS))
        state = server.enlarge(state, joined)
        ask, state = server.ask(state, model)
        done, state = server.settle(state, ask, sent[:joined], present[:joined])
        model = model - done.step * done.mean
        rewards[turn, :joined] = done.payments.released
    return by_name(rewards)


@functools.cache
def simulated_plainly() -> Any:
    """Return the history of all rules that look at no prediction, in one simulation."""
    return simulated(PLAIN, *scene(0), alike=False)


@pytest.mark.parametrize("name", PLAIN)
def test_every_rule_pays_the_same_in_the_simulator_and_on_flower(name: str, rewarded: Make, ledger: Ledger) -> None:
    rewards, _, _ = paid_on_flower(rewarded, ledger, PLAIN[name], *scene(0))
    recorded = np.maximum(simulated_plainly().rewards[name][0], -LARGEST / MICRO)  # in millionths; no greater loss
    assert rewards == pytest.approx(recorded, rel=1e-9, abs=1e-6)
    assert ledger.verify().holds
    if name == "agreement":
        check_agreement(ledger, "run", by_name(rewards))
        check_agreement(ledger, "run", settled_by_default())


@pytest.mark.parametrize(("rule", "options"), CASES)
@pytest.mark.usefixtures("same_dither")
def test_both_pay_trust_and_accuse_alike(rule: Any, options: dict[str, Any], rewarded: Make, ledger: Ledger) -> None:
    """Copies, near-copies, garbage of every size, NaN, long and short reports, dropouts and joins; 30 rounds."""
    history = simulated(rule, *scene(0), **options)
    rewards, arrays, kept = paid_on_flower(rewarded, ledger, rule, *scene(0), **options)
    assert rewards == pytest.approx(history.rewards["reward"][0], rel=1e-9, abs=1e-6)  # in millionths
    model = np.concatenate([arrays["a"].numpy().reshape(-1), arrays["b"].numpy()])
    assert model @ model == pytest.approx(history.metrics["length"][0, -1], rel=1e-9)
    assert ledger.verify().holds
    pairs: Any = None
    if trust_of(rule) is not None:
        assert against_agents(kept.arrays["lens"]["trust.wealth"]) == pytest.approx(
            history.accusation[0, -1], rel=1e-9, abs=1e-9
        )
        pairs = evidence_against(kept.arrays["lens"]["pairs.wealth"])
        assert pairs.max(axis=0) == pytest.approx(history.collusion[0, -1], rel=1e-9, abs=1e-9)
    if rule is RULE:
        assert pairs[ALIKE, 8] > pair_limit(0.001, AGENTS)
        assert (against_agents(kept.arrays["lens"]["trust.wealth"]) > np.log(rule.doubt)).any()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_extras_add_up_to_nothing_on_flower_whatever_is_sent(
    data: st.DataObject, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In every round, also the last; and nobody loses more than was logged before it."""
    caplog.clear()
    agents, rounds, rule = data.draw(st.integers(3, 4)), data.draw(st.integers(2, 5)), PLAIN["agreement"]
    numbers = st.one_of(st.floats(-1e6, 1e6), st.floats(-2, 2), st.sampled_from([0.0, 1e14]))
    shape = rounds, agents, DIM
    drawn = np.array(data.draw(st.lists(numbers, min_size=rounds * agents, max_size=rounds * agents)))
    sent = np.broadcast_to(drawn.reshape(rounds, agents, 1), shape) + np.random.default_rng(rounds).normal(size=shape)
    here = data.draw(st.lists(st.booleans(), min_size=rounds * agents, max_size=rounds * agents))
    present = np.array(here).reshape(rounds, agents)
    with Ledger(tmp_path / f"{uuid4().hex}.db") as ledger, caplog.at_level("INFO", "flwr.guerdon"):
        nodes = [Node(100 + k, Actor(sent[:, k], present[:, k])) for k in range(agents)]
        ledger.enrol({f"n{k}": node.der for k, node in enumerate(nodes)})
        inner = FedSGD(min_train_nodes=1, fraction_evaluate=0.0)
        strategy = paid_strategy(inner, rule=rule, requests=REQUESTS, ledger=ledger, alike=True)
        strategy.start(MemoryGrid(nodes, wire=False), record(a=np.zeros((2, 4)), b=np.zeros(4)), num_rounds=rounds)
        (most,) = {float(found) for found in re.findall(r"can lose at most ([\d.]+) in a round", caplog.text)}
        assert most == about(rule).worst_loss(rule, NU)
        paid = exported_rows(ledger, "payments")
    for number in {row["round"] for row in paid}:
        rewards = [float(row["released"]) for row in paid if row["round"] == number]
        work = sum(row["status"] in PAID_LABELS for row in paid if row["round"] == number)
        assert sum(rewards) == pytest.approx(COST(NU) * work, abs=1e-5)
        assert min(rewards) >= -most - 1e-6
