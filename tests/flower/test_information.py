"""Information pay on Flower: the same money as in the simulator, whatever anybody sends, and no work no pay."""

# Flower's records are typed as dictionaries of a union, which no plain dictionary is.
# pyright: reportArgumentType=false, reportIncompatibleMethodOverride=false

from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian

from guerdon import AffineCost, FixedRequest, InformationPay, NoiseScaleRequest, OutputAgreement
from guerdon.flower import FedSGD
from guerdon.lab import agents
from guerdon.lab.agents import zero
from guerdon.ledger import Ledger
from guerdon.statistical.bets import against_agents, evidence_against
from guerdon.statistical.dithers import Dither
from guerdon.statistical.pairs import pair_limit
from guerdon.statistical.predictions import Extrapolation, RunningMean, ZeroPrediction
from tests.flower.conftest import Make
from tests.flower.grids import MemoryGrid, Node, worker
from tests.flower.learners import DIM, TARGET, Learner, arrays, by_hand, echo, enrolled, garbage, vector, zeros
from tests.flower.test_recovery import paid
from tests.flower.test_strategy import same_model

COST = AffineCost(1, 1)
RULE = InformationPay(COST)
NU, STEP = 8, 0.1


@pytest.fixture(autouse=True)
def _same_dither_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every u a function of the model: tests of pay need a seed, and a resumed run the same u."""

    def normals(layers: Any) -> Any:
        seed = [int(abs(part.sum()) * 2**40) % 2**32 for part in layers]
        return [np.random.default_rng([*seed, i]).normal(size=part.shape) for i, part in enumerate(layers)]

    monkeypatch.setattr("guerdon.statistical.dithers.secret_normals", normals)


def pay_of(result: Any) -> np.ndarray:
    """Return what each was paid in each round."""
    return np.array([found["guerdon-pay"] for found in result.train_metrics_clientapp.values()])


def start(make: Make, strategy: Any, nodes: list[Node], rounds: int, **options: Any) -> Any:
    options = {"rule": RULE, "requests": FixedRequest(NU, STEP)} | options
    return make(strategy, **options).start(MemoryGrid(nodes, wire=False), arrays(np.zeros(DIM)), num_rounds=rounds)


@pytest.mark.parametrize(
    ("prediction", "dither"),
    [(None, None), (None, Dither(1.5)), (RunningMean(0.5), Dither(0.3, COST)), (ZeroPrediction(), None)],
)
def test_rewards_are_those_of_the_simulator(prediction: Any, dither: Any, rewarded: Make, ledger: Ledger) -> None:
    """Also beside garbage, which is shortened, and after the round in which it is no longer trusted."""
    people = [Learner(i) for i in range(5)] + [Learner(5, garbage(10.0, 1e6))]
    options = {"prediction": prediction, "dither": dither, "alike": True}
    result = start(rewarded, FedSGD(), enrolled(ledger, people), 12, **options)
    models, reports = np.array(people[0].models), np.array([person.sent for person in people]).transpose(1, 0, 2)
    expected, along = by_hand(RULE, prediction or RunningMean(), models, reports, request=NU, dither=dither)
    assert pay_of(result) == pytest.approx(expected, rel=2e-4, abs=2e-3)
    assert vector(result.arrays) == pytest.approx(-STEP * along.sum(axis=0), abs=1e-5)
    wealth = ledger.resume("run").arrays["lens"]["trust.wealth"]  # type: ignore[union-attr]
    assert (against_agents(wealth) > np.log(RULE.doubt)).tolist() == [False] * 5 + [True]
    assert ledger.verify().holds


@pytest.mark.parametrize("dither", [None, Dither(1.5)])
def test_models_are_compared_around_the_predicted_move(dither: Any, rewarded: Make, ledger: Ledger) -> None:
    """Trained from beside the model or not, the model moves by their mean move."""
    people = [Learner(i) for i in range(5)] + [Learner(5, garbage(1e3))]
    options = {"alike": True, "dither": dither}
    result = start(rewarded, FedAvg(fraction_evaluate=0.0), enrolled(ledger, people), 12, **options)
    models, reports = np.array(people[0].models), np.array([person.sent for person in people]).transpose(1, 0, 2)
    expected, along = by_hand(RULE, RunningMean(), models, reports, request=NU, dither=dither, moves=True)
    assert pay_of(result) == pytest.approx(expected, rel=2e-3, abs=2e-2)
    assert vector(result.arrays) == pytest.approx(along.sum(axis=0), abs=1e-4)
    assert ledger.verify().holds


@pytest.mark.parametrize("inner", [FedAvg, pytest.param(FedAdam, marks=pytest.mark.slow), FedMedian])
def test_honest_pay_is_the_cost_whatever_the_strategy(inner: Any, rewarded: Make, ledger: Ledger) -> None:
    """The target wanders, so there is something to learn in every round."""
    people = [Learner(i, wanders=2.0) for i in range(6)]
    rewards = pay_of(start(rewarded, inner(fraction_evaluate=0.0), enrolled(ledger, people), 30))
    assert rewards.shape == (30, 6)
    error = rewards.mean(axis=1).std() / 30**0.5
    assert error < 0.05 * COST(NU)
    assert abs(rewards.mean() - COST(NU)) < 3 * error
    assert ledger.verify().holds


@pytest.mark.parametrize(("inner", "forge"), [(FedAvg, zeros), (FedSGD, echo)])
def test_free_riders_earn_much_less_than_the_cost(inner: Any, forge: Any, rewarded: Make, ledger: Ledger) -> None:
    people = [Learner(i, wanders=2.0) for i in range(5)] + [Learner(5, forge)]
    rewards = pay_of(start(rewarded, inner(fraction_evaluate=0.0), enrolled(ledger, people), 24))
    error = rewards[:, 5].std() / 24**0.5
    assert rewards[:, 5].mean() + 3 * error < 0.5 * COST(NU)
    assert rewards[:, :5].mean() > 0.9 * COST(NU)
    assert ledger.verify().holds


SIZES = [(1.0, 10.0, 1e3, 1e6, 1e14)] + [
    pytest.param((size,), marks=pytest.mark.slow) for size in (1.0, 10.0, 1e3, 1e6, 1e14)
]


@pytest.mark.parametrize("sizes", SIZES)
def test_garbage_harms_neither_the_pay_nor_the_model(sizes: Any, rewarded: Make, ledger: Ledger) -> None:
    """Until it is found out, after some eight rounds, the others gain a little by the comparison with it."""
    people = [Learner(i) for i in range(11)] + [Learner(11, garbage(*sizes))]
    options = {"dither": Dither(1.0, COST), "alike": True}
    result = start(rewarded, FedSGD(fraction_evaluate=0.0), enrolled(ledger, people), 60, **options)
    rewards = pay_of(result)
    assert rewards[:, :11].mean() == pytest.approx(COST(NU), rel=0.05)
    assert rewards[20:, :11].mean() == pytest.approx(COST(NU), rel=0.03)
    assert rewards[:, 11].mean() < 0
    assert np.linalg.norm(vector(result.arrays) - TARGET) < 0.2 * np.linalg.norm(TARGET)
    assert ledger.verify().holds


class Watching(FedAvg):
    """Keeps what it is given."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        given = list(replies)
        self.given = {reply.metadata.src_node_id: next(iter(reply.content.array_records.values())) for reply in given}
        return super().aggregate_train(server_round, given)


@pytest.mark.parametrize("alike", [False, True])
def test_the_strategy_sees_short_replies_as_they_came_and_long_ones_shortened(
    alike: bool, rewarded: Make, ledger: Ledger
) -> None:
    """A node that is not trusted stays in the model, unless all nodes' data are said to be alike."""
    people = [Learner(i) for i in range(5)] + [Learner(5, garbage(1e6))]
    nodes, inner = enrolled(ledger, people), Watching(fraction_evaluate=0.0)
    start(rewarded, inner, nodes, 1, alike=alike)
    assert len(inner.given) == 6
    for person in people[:5]:
        assert same_model(inner.given[100 + person.number], arrays(person.sent[0]))
    long, sent = vector(inner.given[105]), people[5].sent[0]
    assert long @ sent == pytest.approx(np.linalg.norm(long) * np.linalg.norm(sent), rel=1e-5)  # it points as it did
    median = sorted(float(np.linalg.norm(person.sent[0])) for person in people[:5])[2]
    assert np.linalg.norm(long) == pytest.approx(RULE.limit * median, rel=1e-5)
    assert {array.dtype for array in inner.given[105].values()} == {"float32"}
    start(rewarded, inner, nodes, 12, alike=alike)
    assert sorted(inner.given) == [100, 101, 102, 103, 104] + [105] * (not alike)
    lines = [line for line in ledger.statement("n05").lines if line.round]
    assert {line.status for line in lines} == {"paid"}  # but still compared with the others
    assert "note: shortened to " in lines[0].why
    assert "of its length around the prediction" in lines[0].why
    assert "others are not compared with it" not in lines[0].why
    assert "others are not compared with it" in lines[-1].why
    assert ("and the model goes without it" in lines[-1].why) == alike
    assert not any("note" in line.why for line in ledger.statement("n00").lines)


def test_a_prediction_needs_information_pay(rewarded: Make) -> None:
    with pytest.raises(ValueError, match="`prediction` must be None with OutputAgreement, which would not look at it"):
        rewarded(FedSGD(), rule=OutputAgreement(COST), prediction=RunningMean())


def test_requests_that_learn_go_with_information_pay(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    options = {"rule": RULE, "requests": NoiseScaleRequest(COST)}
    whole = rewarded(FedSGD(), run="whole", **options).start(MemoryGrid(nodes), model, num_rounds=5)
    for rounds in (1, 2, 4, 5):
        resumed = rewarded(FedSGD(), **options).start(MemoryGrid(nodes), model, num_rounds=rounds)
    assert same_model(resumed.arrays, whole.arrays)
    assert paid(ledger, "run") == paid(ledger, "whole")
    assert len({found.request for found in ledger.rounds("run")}) > 1
    assert ledger.verify().holds


def test_pairs_that_send_the_same_are_seen_and_not_paid(rewarded: Make, ledger: Ledger) -> None:
    """Honest pairs are not, and an agent that joins later starts from nothing."""
    people = [Learner(i, wanders=1.0) for i in range(6)]
    people[5].number = 4  # the same samples as its neighbour
    nodes = enrolled(ledger, [*people[:5], Learner(5)])
    nodes[5].app = people[5]
    start(rewarded, FedSGD(), nodes[:5], 3)
    before = ledger.resume("run").arrays["lens"]["pairs.wealth"]  # type: ignore[union-attr]
    assert before.shape == (6, 5, 5)
    start(rewarded, FedSGD(), nodes, 20)
    pairs = ledger.resume("run").arrays["lens"]["pairs.wealth"]  # type: ignore[union-attr]
    assert pairs.shape == (6, 6, 6)
    against = evidence_against(pairs)
    assert against[4, 5] == against.max() > pair_limit(0.01, 6)
    against[4, 5] = against[5, 4] = 0
    assert against.max() < pair_limit(0.01, 6)
    statuses = [slip.status for slip in ledger.payslips("run")]
    assert statuses == ["paid"] * 4 + ["invalid"] * 2
    assert ledger.verify().holds


def test_nothing_is_remembered_of_a_prediction_that_another_app_does_not_make(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    for rounds, prediction in enumerate((None, Extrapolation(), ZeroPrediction()), start=1):
        made = rewarded(FedSGD(), rule=RULE, prediction=prediction)
        made.start(MemoryGrid(nodes), model, num_rounds=rounds)
        saved = ledger.resume("run").arrays["lens"]  # type: ignore[union-attr]
        kept = any(name.startswith("prediction") for name in saved)
        assert kept == (not isinstance(prediction, ZeroPrediction))
    assert ledger.verify().holds


def test_arrays_may_come_in_another_order_when_a_run_goes_on(rewarded: Make, ledger: Ledger) -> None:
    people = [Learner(i, wanders=1.0) for i in range(4)]
    nodes, options = enrolled(ledger, people), {"rule": RULE, "requests": FixedRequest(NU, STEP)}
    model = arrays(np.zeros(DIM))
    whole = rewarded(FedSGD(), run="whole", **options).start(MemoryGrid(nodes), model, num_rounds=4)
    rewarded(FedSGD(), **options).start(MemoryGrid(nodes), model, num_rounds=3)
    other = ArrayRecord({name: model[name] for name in reversed(model.keys())})
    resumed = rewarded(FedSGD(), **options).start(MemoryGrid(nodes), other, num_rounds=4)
    assert list(resumed.arrays) == list(reversed(model.keys()))
    assert same_model(resumed.arrays, whole.arrays)
    assert [slip.reward for slip in ledger.payslips("run")] == pytest.approx(
        [slip.reward for slip in ledger.payslips("whole")], abs=2
    )
    assert ledger.verify().holds


@pytest.mark.parametrize(("agent", "dither"), [(zero(), None), (agents.echo(), Dither(1.0, COST))])
def test_agents_of_experiments_play_as_nodes(
    agent: Any, dither: Any, nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    nodes[4].app = worker(4, agent)
    made = rewarded(FedSGD(fraction_evaluate=0.0), rule=RULE, dither=dither)
    rewards = pay_of(made.start(MemoryGrid(nodes), model, num_rounds=4))
    assert rewards.shape == (4, 5)
    assert [found.statuses for found in ledger.rounds("run")] == [{"paid": 5}] * 4
    assert ledger.verify().holds


@pytest.mark.parametrize(
    ("number", "status", "dither"), [(1, "alone", None), (2, "too-few", Dither(1.0)), (3, "paid", None)]
)
def test_a_few_are_not_paid_but_train(number: int, status: str, dither: Any, rewarded: Make, ledger: Ledger) -> None:
    nodes = enrolled(ledger, [Learner(i) for i in range(number)])
    inner = FedSGD(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    result = start(rewarded, inner, nodes, 4, dither=dither)
    assert [found.statuses for found in ledger.rounds("run")] == [{status: number}] * 4
    assert vector(result.arrays).any()
    assert ledger.verify().holds


@pytest.mark.parametrize("dither", [None, Dither(1.0)])
def test_what_cannot_be_used_changes_nothing_for_the_others(dither: Any, rewarded: Make, ledger: Ledger) -> None:
    """NaN and numbers too large to square: a round without them."""
    people = [Learner(i) for i in range(5)] + [Learner(5, garbage(np.nan, 1e30))]
    nodes = enrolled(ledger, people)
    with_him = start(rewarded, FedSGD(fraction_evaluate=0.0), nodes, 4, dither=dither)
    without = start(rewarded, FedSGD(fraction_evaluate=0.0), nodes[:5], 4, dither=dither, run="without")
    assert pay_of(with_him)[:, :5].tolist() == pay_of(without).tolist()
    assert same_model(with_him.arrays, without.arrays)
    assert not pay_of(with_him)[:, 5].any()
    assert ledger.verify().holds


def test_a_rule_that_shortens_and_doubts_nothing_still_pays(rewarded: Make, ledger: Ledger) -> None:
    """Whoever would keep the others from being paid is refused, as under any rule with memory."""
    people = [Learner(i) for i in range(5)] + [Learner(5, garbage(1e14))]
    rule = InformationPay(COST, limit=float("inf"), doubt=float("inf"))
    result = start(rewarded, FedSGD(fraction_evaluate=0.0), enrolled(ledger, people), 3, rule=rule)
    assert np.isfinite(pay_of(result)).all()
    assert ledger.verify().holds
