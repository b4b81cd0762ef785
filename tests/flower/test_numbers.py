"""`on_round`: every round as flat numbers, on Flower and in the simulator, and in tools that log experiments."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, OutputAgreement
from guerdon.flower import FedSGD
from guerdon.lab.agents import Cooperative
from guerdon.lab.problems import linear_regression
from guerdon.lab.simulation import simulate
from guerdon.ledger import Ledger
from tests.flower.conftest import Make
from tests.flower.grids import MemoryGrid, Node, record
from tests.flower.test_one_server import Actor

RULE, REQUESTS = OutputAgreement(AffineCost(1, 1)), FixedRequest(8, 0.05)


def paid_rounds(make: Make, ledger: Ledger, rounds: int, on_round: Any) -> None:
    """Play rounds on Flower with three nodes."""
    sent = np.random.default_rng(0).normal(size=(rounds, 3, 12))
    nodes = [Node(100 + k, Actor(sent[:, k], np.ones(rounds, dtype=bool))) for k in range(3)]
    ledger.enrol({f"n{k}": node.der for k, node in enumerate(nodes)})
    strategy = make(FedSGD(fraction_evaluate=0.0), rule=RULE, requests=REQUESTS, on_round=on_round)
    strategy.start(MemoryGrid(nodes, wire=False), record(a=np.zeros((2, 4)), b=np.zeros(4)), num_rounds=rounds)


def test_flower_tells_each_round(rewarded: Make, ledger: Ledger) -> None:
    told: list[dict[str, float]] = []
    paid_rounds(rewarded, ledger, 2, told.append)
    assert [row["guerdon/round"] for row in told] == [1, 2]
    for row in told:
        slips = {slip.agent: slip.reward / 1e6 for slip in ledger.payslips("run", int(row["guerdon/round"]))}
        assert {name: row[f"guerdon/reward/{name}"] for name in slips} == pytest.approx(slips, abs=1e-6)
        assert row["guerdon/paid"] == pytest.approx(sum(slips.values()), abs=1e-5)
        assert (row["guerdon/request"], row["guerdon/participants"], row["guerdon/copies"]) == (8, 3, 0)
        assert all(np.isfinite(value) for value in row.values())


def test_the_simulator_tells_means_over_repetitions() -> None:
    told: list[dict[str, float]] = []
    problem = linear_regression(4, 1.0, 16)
    history = simulate(problem, [Cooperative()] * 3, RULE, REQUESTS, 2, 4, seed=0, on_round=told.append)
    assert [row["guerdon/round"] for row in told] == [1, 2]
    assert told[1]["guerdon/reward/2"] == pytest.approx(float(history.rewards["reward"][:, 1, 2].mean()))
    assert told[1]["guerdon/paid"] == pytest.approx(float(history.rewards["reward"][:, 1].sum(axis=1).mean()))
    assert told[1]["guerdon/metric/error"] == pytest.approx(float(history.metrics["error"][:, 2].mean()))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow_keeps_each_round(
    rewarded: Make, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow: Any = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    told: list[dict[str, float]] = []

    def log(row: dict[str, float]) -> None:
        told.append(row)
        mlflow.log_metrics(row, step=int(row["guerdon/round"]))

    with mlflow.start_run() as run:
        paid_rounds(rewarded, ledger, 3, log)
    kept = mlflow.MlflowClient().get_metric_history(run.info.run_id, "guerdon/reward/n1")
    assert [(point.step, point.value) for point in kept] == [
        (i, row["guerdon/reward/n1"]) for i, row in enumerate(told, 1)
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # TensorBoard's own
def test_tensorboard_shows_each_round(rewarded: Make, ledger: Ledger, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    writers: Any = pytest.importorskip("torch.utils.tensorboard")
    events: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    told: list[dict[str, float]] = []
    with writers.SummaryWriter(str(tmp_path)) as writer:

        def log(row: dict[str, float]) -> None:
            told.append(row)
            [writer.add_scalar(name, value, int(row["guerdon/round"])) for name, value in row.items()]

        paid_rounds(rewarded, ledger, 3, log)
    kept = events.EventAccumulator(str(tmp_path)).Reload().Scalars("guerdon/reward/n1")
    assert [event.step for event in kept] == [1, 2, 3]
    assert [event.value for event in kept] == pytest.approx([row["guerdon/reward/n1"] for row in told], rel=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # W&B's own
def test_weights_and_biases_keeps_each_round_offline(
    rewarded: Make, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb: Any = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    told: list[dict[str, float]] = []
    with wandb.init(project="heart-2026", dir=str(tmp_path)) as run:
        paid_rounds(rewarded, ledger, 3, lambda row: (told.append(row), run.log(row)))
        assert {name: run.summary[name] for name in told[-1]} == pytest.approx(told[-1])
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
