"""Starting again: from the last paid round, with everything that was remembered, and nobody paid twice."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAdam, FedAvg
from hypothesis import given
from hypothesis import strategies as st

from guerdon import AffineCost, FixedRequest, InformationPay, NoiseScaleRequest, round_of
from guerdon.evidence import Evidence
from guerdon.flower import FedSGD, recovery
from guerdon.ledger import Ledger, RefusedError, UnavailableError
from guerdon.requests import ScheduledRequest
from tests.flower.conftest import MODEL, RULE, Make
from tests.flower.grids import MemoryGrid, Node, record, worker
from tests.flower.test_strategy import same_model, strategies
from tests.support.ledger_scenes import AT_ONCE
from tests.support.paid import paid_strategy


class CrashError(Exception):
    """The process died."""


class Crashing(MemoryGrid):
    """A grid on which the server dies once so many messages were answered."""

    def __init__(self, nodes: Iterable[Node], after: int) -> None:
        super().__init__(nodes)
        self.left = after

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        replies = super().send_and_receive(messages, timeout=timeout)
        self.left -= len(replies)
        if self.left < 0:
            raise CrashError
        return replies


def paid(ledger: Ledger, run: str) -> list[tuple[int, int, dict[str, int]]]:
    return [(found.round, found.paid, found.statuses) for found in ledger.rounds(run)]


# 5 nodes train and 5 evaluate in a round: after 5, 15 and 29 it dies in the evaluation of rounds 1, 2 and 3.
INTERRUPTIONS = [(make, 2, (5,)) for make in strategies() if make is not FedAdam] + [(FedAdam, 3, (5, 15, 29))]


@pytest.mark.parametrize(("make", "rounds", "times"), INTERRUPTIONS)
def test_a_run_that_was_interrupted_ends_as_if_it_had_not_been(
    make: Any,
    rounds: int,
    times: tuple[int, ...],
    nodes: list[Node],
    model: ArrayRecord,
    rewarded: Make,
    ledger: Ledger,
) -> None:
    """The model to the last bit, the pay to the last millionth: the strategy's own memory is saved too."""
    whole = rewarded(make(), run="whole").start(MemoryGrid(nodes), model, num_rounds=rounds)
    for after in times:
        run = f"after {after}"
        with pytest.raises(CrashError):
            rewarded(make(), run=run).start(Crashing(nodes, after), model, num_rounds=rounds)
        paid_before = len(ledger.rounds(run))
        assert paid_before == (after + 5) // 10
        resumed = rewarded(make(), run=run).start(MemoryGrid(nodes), model, num_rounds=rounds)
        assert same_model(resumed.arrays, whole.arrays)
        assert paid(ledger, run) == paid(ledger, "whole")
        assert set(resumed.train_metrics_clientapp) == set(range(paid_before + 1, rounds + 1))
    assert ledger.verify().holds


def test_a_run_goes_on_on_either_database(where: str, model: ArrayRecord) -> None:
    nodes = [Node(100 + i, worker(i)) for i in range(5)]
    with Ledger(where) as ledger:
        ledger.enrol({f"n{i}": node.der for i, node in enumerate(nodes)})
    with pytest.raises(CrashError):
        paid_strategy(FedAdam(), ledger=where).start(Crashing(nodes, 15), model, num_rounds=3)
    paid_strategy(FedAdam(), ledger=where).start(MemoryGrid(nodes), model, num_rounds=3)
    with Ledger(where) as ledger:
        assert [(found.round, found.statuses) for found in ledger.rounds("run")] == [
            (i, {"paid": 5}) for i in (1, 2, 3)
        ]
        assert ledger.verify().holds


@pytest.mark.parametrize(
    ("inner", "requests"),
    [
        (FedSGD, NoiseScaleRequest(AffineCost(1, 1))),
        (FedAvg, ScheduledRequest([3, 8, 5, 2], [0.1] * 4)),
    ],
)
def test_what_requests_believe_survives(
    inner: Any, requests: Any, nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    rule = InformationPay(AffineCost(1, 1))  # it remembers as well
    options = {"requests": requests, "rule": rule}
    whole = rewarded(inner(), run="whole", **options).start(MemoryGrid(nodes), model, num_rounds=4)
    for rounds in (1, 2, 2, 4):
        resumed = rewarded(inner(), **options).start(MemoryGrid(nodes), model, num_rounds=rounds)
    assert same_model(resumed.arrays, whole.arrays)
    asked = [[found.request for found in ledger.rounds(run)] for run in ("run", "whole")]
    assert asked[0] == asked[1]
    assert len(set(asked[0])) > 1
    assert paid(ledger, "run") == paid(ledger, "whole")


def test_a_model_with_a_scalar_can_be_resumed_again_and_again(
    nodes: list[Node], rewarded: Make, ledger: Ledger
) -> None:
    """As the counter of batch normalisation is."""
    model = record(**MODEL, seen=np.asarray(0.5, np.float32))
    for rounds in (1, 2, 3):
        result = rewarded(FedAvg(fraction_evaluate=0.0)).start(MemoryGrid(nodes), model, num_rounds=rounds)
    assert result.arrays["seen"].shape == ()
    assert len(ledger.rounds("run")) == 3


class Odd(FedAvg):
    """Trains in odd rounds only, and remembers which it has seen."""

    seen: list[tuple[str, int]]

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        self.seen.append(("train", server_round))
        return super().configure_train(server_round, arrays, config, grid) if server_round % 2 else []

    def configure_evaluate(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        self.seen.append(("evaluate", server_round))
        return super().configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Any) -> Any:
        self.seen.append(("evaluated", server_round))
        return super().aggregate_evaluate(server_round, replies)


def test_rounds_keep_their_numbers_where_some_train_nobody(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    strategy, evaluated = Odd(), list[int]()
    strategy.seen = []
    with pytest.raises(CrashError):
        rewarded(strategy).start(Crashing(nodes, 24), model, num_rounds=5)
    assert len(ledger.rounds("run")) == 2  # Flower's rounds 1 and 3
    strategy.seen = []
    rewarded(strategy).start(
        MemoryGrid(nodes), model, num_rounds=5, evaluate_fn=lambda number, _: evaluated.append(number)
    )
    assert len(ledger.rounds("run")) == 3
    assert strategy.seen == [(what, number) for number in (4, 5) for what in ("train", "evaluate", "evaluated")]
    assert evaluated == [3, 4, 5]


def test_a_run_in_which_everybody_declined_goes_on_with_its_model(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    rewarded(FedAvg(fraction_evaluate=0.0)).start(MemoryGrid(nodes), model, num_rounds=1)
    working = [node.app for node in nodes]
    for node in nodes:
        node.app = lambda *_: None
    second = rewarded(FedAvg(fraction_evaluate=0.0)).start(MemoryGrid(nodes), model, num_rounds=2)
    for node, app in zip(nodes, working, strict=True):
        node.app = app
    rewarded(FedAvg(fraction_evaluate=0.0)).start(grid := MemoryGrid(nodes), model, num_rounds=3)
    assert same_model(grid.sent[0].content.array_records["arrays"], second.arrays)
    assert [found.statuses for found in ledger.rounds("run")] == [{"paid": 5}, {"declined": 5}, {"paid": 5}]


def test_the_log_of_a_continued_run_counts_as_the_ledger_does(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, caplog: pytest.LogCaptureFixture
) -> None:
    rewarded().start(grid, model, num_rounds=2)
    caplog.clear()
    with caplog.at_level(logging.INFO, "flwr.guerdon"):
        rewarded().start(grid, model, num_rounds=4)
    lines = [line.getMessage() for line in caplog.records]
    assert [line for line in lines if line.startswith("[ROUND")] == ["[ROUND 3/4]", "[ROUND 4/4]"]
    assert [line[:8] for line in lines if " asks " in line] == ["Round 3 ", "Round 4 "]
    assert not any(line.lstrip().startswith("{ 1:") for line in lines)


def test_metrics_belong_to_their_round(nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    """An evaluation is told once: a round after which nothing was evaluated has none."""

    def evaluate(number: int, _: ArrayRecord) -> MetricRecord | None:
        return MetricRecord({"quality": 1.0}) if number == 0 else None

    inner = FedAvg(fraction_evaluate=0.0)
    rewarded(inner).start(MemoryGrid(nodes), model, num_rounds=2, evaluate_fn=evaluate)
    assert ["central-quality" in found.metrics for found in ledger.rounds("run")] == [True, False]


def test_a_privacy_accountant_cannot_be_taken_up_again(grid: MemoryGrid, model: ArrayRecord, rewarded: Make) -> None:
    class Accounted(FedAvg):
        accountant = object()

    rewarded(Accounted()).start(grid, model, num_rounds=1)
    with pytest.raises(RefusedError, match="privacy accountant has forgotten"):
        rewarded(Accounted()).start(grid, model, num_rounds=2)


def test_arrays_changed_in_place_are_saved() -> None:
    strategy = Remembering(memory=np.zeros(3))
    before = recovery.snapshot(strategy)
    strategy.memory += 1
    assert set(recovery.changed(recovery.remembered(strategy), before)) == {"0.memory"}
    assert recovery.remembered(Remembering(names=np.array(["a"]), many=[np.array(["b"])])) == {}


def test_a_finished_run_started_again_does_nothing(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    first = rewarded().start(grid, model, num_rounds=2)
    sent = len(grid.sent)
    again = rewarded().start(grid, model, num_rounds=2)
    assert len(grid.sent) == sent
    assert same_model(first.arrays, again.arrays)
    assert len(ledger.rounds("run")) == 2


def test_two_servers_cannot_pay_the_same_round(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    """While one gathers round 1, another has recorded it: the first is refused, and nobody is paid twice."""
    other = [Node(node.number, worker(9 + i), key=node.key) for i, node in enumerate(nodes)]

    class Overtaken(MemoryGrid):
        def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
            rewarded().start(MemoryGrid(other), model, num_rounds=1)
            return super().send_and_receive(messages, timeout=timeout)

    with pytest.raises(RefusedError):
        rewarded().start(Overtaken(nodes), model, num_rounds=1)
    assert len(ledger.rounds("run")) == 1
    assert ledger.verify().holds


def test_a_run_goes_on_only_as_it_was_begun(grid: MemoryGrid, model: ArrayRecord, rewarded: Make) -> None:
    rewarded().start(grid, model, num_rounds=1)
    with pytest.raises(RefusedError, match="was started with another cost"):
        rewarded(rule=replace(RULE, cost=AffineCost(2, 1))).start(grid, model, num_rounds=2)
    with pytest.raises(RefusedError, match="was started with another `losses`"):
        rewarded(losses="floor").start(grid, model, num_rounds=2)
    with pytest.raises(RefusedError, match=r"the model saved with run 'run' has other arrays than the app's: b \[4\]"):
        rewarded().start(grid, record(w=np.zeros((3, 5), np.float32), b=np.zeros(4, np.float32)), num_rounds=2)


def test_a_begun_run_without_a_paid_round_begins_anew(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    """The server died between `start_run` and its first round."""
    ledger.start_run("run", ["n3", "n1"], rewarded().server.rule, AT_ONCE)
    rewarded().start(grid, model, num_rounds=1)
    assert ledger.roster("run") == ["n3", "n1", "n0", "n2", "n4"]
    assert ledger.rounds("run")[0].statuses == {"paid": 5}
    assert ledger.verify().holds


def test_a_round_recorded_elsewhere_without_a_model_cannot_be_continued(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    nothing = np.zeros(2)
    seen = Evidence(nothing, nothing, nothing, nothing, counted=nothing > 0)
    rule = rewarded().server.rule
    ledger.start_run("run", ["n0", "n1"], rule, AT_ONCE)
    ledger.record_round("run", 1, round_of(seen, nothing > 0, 8))
    with pytest.raises(RefusedError, match="recorded without a model to continue from"):
        rewarded().start(grid, model, num_rounds=2)


def test_other_requests_may_follow(grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    rewarded(FedSGD()).start(grid, model, num_rounds=1)
    rewarded(FedSGD(), requests=NoiseScaleRequest(AffineCost(1, 1), first=3)).start(grid, model, num_rounds=2)
    rewarded(FedSGD(), requests=FixedRequest(5, 0.1)).start(grid, model, num_rounds=3)
    assert [found.request for found in ledger.rounds("run")] == [8, 3, 5]


def test_a_database_that_is_away_for_a_moment_costs_nobody_his_pay(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("guerdon.run.book.time.sleep", waits.append)
    record_round, failures = Ledger.record_round, [UnavailableError("gone")] * 3

    def failing(self: Ledger, *args: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return record_round(self, *args, **named)

    monkeypatch.setattr(Ledger, "record_round", failing)
    rewarded().start(grid, model, num_rounds=1)
    assert waits == [1, 2, 5]
    assert ledger.rounds("run")[0].statuses == {"paid": 5}
    failures.extend([UnavailableError("gone for good")] * 99)
    with pytest.raises(UnavailableError, match="gone for good"):
        rewarded().start(grid, model, num_rounds=2)


def test_settings_of_the_app_stay_the_apps(grid: MemoryGrid, model: ArrayRecord, rewarded: Make) -> None:
    """A learning rate changed in the code between two starts is not undone by the checkpoint."""
    rewarded(FedAdam(eta=0.1)).start(grid, model, num_rounds=1)
    changed = FedAdam(eta=0.5)
    rewarded(changed).start(grid, model, num_rounds=2)
    assert changed.eta == 0.5
    assert changed.m_t is not None


class Remembering:
    """Something with attributes, and something inside."""

    strategy: Any
    memory: Any

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


arrays = st.builds(lambda size, fill: np.full(size, fill), st.integers(0, 3), st.floats(-1e9, 1e9))
values = st.one_of(
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False),
    st.booleans(),
    arrays,
    st.lists(arrays, min_size=1, max_size=12),
    st.dictionaries(st.text("ab.:#/", min_size=1, max_size=6), arrays, min_size=1, max_size=3),
)


names = st.text("abc_", min_size=1, max_size=4)


@given(st.dictionaries(names, values, max_size=4), st.dictionaries(names, values, max_size=2))
def test_whatever_a_strategy_remembers_comes_back(outer: dict[str, Any], inner: dict[str, Any]) -> None:
    saved = recovery.remembered(Remembering(**outer, strategy=Remembering(**inner)))
    packed = dict(sorted(saved.items()))  # as a checkpoint returns it
    fresh = Remembering(strategy=Remembering())
    recovery.remind(fresh, packed)
    assert same(vars(fresh.strategy), inner)
    assert same({name: value for name, value in vars(fresh).items() if name != "strategy"}, outer)


def same(left: Any, right: Any) -> bool:
    if isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in right)
    if isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and np.array_equal(left, right)


def test_what_cannot_be_saved_is_left_out() -> None:
    found = recovery.remembered(Remembering(f=print, s="text", n=None, e=[], d={}, m=["a"], current_arrays=MODEL))
    assert found == {}
