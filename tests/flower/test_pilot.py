"""A pilot on Flower: nodes are asked for different numbers, and what rules would have paid is written down."""

# Flower's records are typed as dictionaries of a union, which no plain dictionary is.
# pyright: reportArgumentType=false

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message
from flwr.serverapp.strategy import FedAvg

from guerdon import AffineCost, FlatPay, OutputAgreement, WitnessedPay
from guerdon.flower import FedSGD, Pilot, Request
from guerdon.pilot import PilotRecord, assess
from guerdon.pilot.wording import closing
from guerdon.statistical.dithers import Dither
from tests.flower.grids import MemoryGrid, Node, reply
from tests.flower.learners import DIM, NOISE, TARGET, Learner, arrays, vector
from tests.flower.test_recovery import CrashError

COST = AffineCost(1, 1)
START = arrays(np.zeros(DIM))


def grid_of(people: list[Any], *, wire: bool = False) -> MemoryGrid:
    return MemoryGrid([Node(100 + i, person) for i, person in enumerate(people)], wire=wire)


def make(tmp_path: Path, strategy: Any = None, **changes: Any) -> Pilot:
    options = {"cost": COST, "request": 16, "out": tmp_path / "pilot.json", "seed": 1} | changes
    return Pilot(strategy or FedSGD(step=0.2), **options)


def requests_of(grid: MemoryGrid) -> np.ndarray:
    """Return what each node was asked for, (rounds, nodes)."""
    found: dict[int, list[int]] = {}
    for message in sorted(grid.sent, key=lambda message: message.metadata.dst_node_id):
        request = Request.read(message.content)
        if request is not None:
            found.setdefault(request.round, []).append(request.request)
    return np.array([found[number] for number in sorted(found)])


@pytest.mark.parametrize("strategy", [FedSGD(step=0.2), FedAvg()])
def test_honest_nodes_are_asked_for_different_numbers_and_the_rule_pays_for_work(
    strategy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="flwr.guerdon")
    grid = grid_of([Learner(i, wanders=0.3) for i in range(8)])
    make(tmp_path, strategy).start(grid, START, num_rounds=24)
    record = PilotRecord.load(tmp_path / "pilot.json")
    assert np.array_equal(record.asked, requests_of(grid))
    assert (np.sort(record.asked, axis=1) == [8, 8, 16, 16, 16, 16, 16, 16]).all()
    assert record.sent.all()
    assert record.agents == tuple(f"anonymous-{100 + i}" for i in range(8))
    assert list(record.pay) == ["steady", "agreement", "information"]
    assert record.holding == ("steady",)
    steady, agreement, information = assess(record).rules
    assert steady.deposit == 0
    assert agreement.verdict == "pays for work"
    assert agreement.full_pay.value == pytest.approx(17)
    assert information.flagged is not None
    assert "Pilot: agreement pays for work here" in caplog.text


def test_the_model_is_that_of_the_strategy_alone(tmp_path: Path) -> None:
    people = [Learner(i) for i in range(5)]
    result = make(tmp_path, request=8).start(grid_of(people, wire=True), START, num_rounds=1)
    assert vector(result.arrays) == pytest.approx(-0.2 * np.mean([person.sent[0] for person in people], axis=0))
    assert "guerdon-paid" not in result.train_metrics_clientapp[1]


def test_a_pilot_that_is_killed_keeps_its_rounds(tmp_path: Path) -> None:
    people = [Learner(i) for i in range(5)]

    class Dying(FedSGD):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            if server_round == 4:
                raise CrashError
            return super().aggregate_train(server_round, replies)

    with pytest.raises(CrashError):
        make(tmp_path, Dying(step=0.2)).start(grid_of(people), START, num_rounds=9)
    assert PilotRecord.load(tmp_path / "pilot.json").rounds == 4
    with pytest.raises(ValueError, match="`out` must be a file that does not exist yet"):
        make(tmp_path)


def test_a_file_that_cannot_be_written_costs_no_round(tmp_path: Path) -> None:
    grid = grid_of([Learner(i) for i in range(5)])
    with pytest.raises(FileNotFoundError):
        make(tmp_path, out=tmp_path / "nowhere" / "pilot.json").start(grid, START, num_rounds=2)
    assert not grid.sent


def test_nodes_that_come_late_decline_or_send_nonsense(tmp_path: Path) -> None:
    people: list[Any] = [Learner(i) for i in range(6)]
    people[0].absent = {2}
    people[1].forge = lambda *_: np.full(DIM, np.nan)
    nodes = grid_of(people)
    late = {105: nodes.nodes.pop(105)}

    class Growing(FedSGD):
        def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
            if server_round == 3:
                nodes.nodes |= late
            return super().configure_train(server_round, arrays, config, grid)

    make(tmp_path, Growing(step=0.2)).start(nodes, START, num_rounds=10)
    record = PilotRecord.load(tmp_path / "pilot.json")
    assert (record.asked[:2, 5] == 0).all()
    assert (record.asked[2:, 5] > 0).all()
    assert record.sent[:4, :2].tolist() == [[1, 0], [0, 0], [1, 0], [1, 0]]
    assert np.isnan(record.pay["agreement"][:, 1]).all()
    assert np.isnan(record.pay["agreement"][0]).all(), "nobody knows what the first round is worth"
    assert np.isfinite(record.pay["agreement"][7:, 2:]).all()


def test_rules_of_ones_own_and_a_dither(tmp_path: Path) -> None:
    strategy = make(tmp_path, rules={"flat": FlatPay(COST)}, dither=Dither(1.0), share=0.5)
    strategy.start(grid_of([Learner(i) for i in range(6)]), START, num_rounds=12)
    (flat,) = assess(strategy.record).rules
    assert flat.verdict == "pays shirkers"
    assert flat.gain.value == pytest.approx(8)
    assert {name: earned.value for name, earned in flat.ghosts.items()} == {"prediction": 17, "nothing": 17}


@pytest.mark.slow
def test_a_client_that_trains_for_fewer_steps_is_found_to_be_paid_more(tmp_path: Path) -> None:
    """An ordinary client loop: one step for each minibatch, so that half the samples are half the steps."""

    def loop(number: int) -> Any:
        def train(message: Message, context: Context) -> Message:
            del context
            request = Request.read(message.content)
            assert request is not None
            model, rng = vector(message.content.array_records["arrays"]), np.random.default_rng([number, request.round])
            for _ in range(request.request // 4):
                model = model - 0.1 * (model - 1 + rng.normal(size=DIM) * 3 / 2)
            return reply(message, arrays(model))

        return train

    make(tmp_path, FedAvg()).start(grid_of([loop(i) for i in range(8)]), START, num_rounds=30)
    report = assess(PilotRecord.load(tmp_path / "pilot.json"))
    assert report.rules[0].verdict == "pays shirkers"
    assert report.recommended is None


def test_a_pilot_tries_a_witness_and_says_whether_its_data_differ(tmp_path: Path) -> None:
    rng, away = np.random.default_rng(1), np.zeros(DIM)

    def witness(model: ArrayRecord) -> list[ArrayRecord]:
        exact = vector(model) - TARGET + away
        return [arrays(exact + NOISE * rng.normal(size=DIM) / 10**0.5) for _ in range(16)]

    rules = {"witnessed": WitnessedPay(COST, 160)}
    for name, shift in (("same", 0.0), ("other", 0.5 * NOISE)):
        away[:] = shift
        pilot = make(tmp_path, rules=rules, witness=witness, out=tmp_path / f"{name}.json")
        pilot.start(grid_of([Learner(i) for i in range(6)]), START, num_rounds=30)
    same, other = (assess(PilotRecord.load(tmp_path / f"{name}.json")) for name in ("same", "other"))
    assert same.rules[0].verdict == "pays for work"
    assert same.witness is not None
    assert same.witness.low < 0 < same.witness.high
    assert other.witness is not None
    assert other.witness.low > 16  # 16 · 16 · 0.25 is expected: more than the cost
    assert any("own data differ from the agents'" in line for line in closing(other))
    with pytest.raises(ValueError, match="`witness` must be given with `WitnessedPay` among the `rules`"):
        make(tmp_path, rules={"agreement": OutputAgreement(COST)}, witness=witness)
