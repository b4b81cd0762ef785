"""Runs that version 0.1.0 began on Flower go on from their checkpoints, with the pay they would have had."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.serverapp.strategy import FedAvg

from guerdon import AffineCost, FixedRequest, InformationPay, NoiseScaleRequest, OutputAgreement
from guerdon.broadcasts import Dither
from guerdon.flower import FedSGD, Rewarded
from guerdon.ledger import Ledger
from guerdon.ledger.upgrading import upgrade_ledger
from guerdon.predictions import RunningMean
from tests.flower.grids import MemoryGrid, Node
from tests.flower.learners import DIM, Learner, arrays
from tests.flower.test_broadcast import same_each_time

RELEASED = Path(__file__).parents[1] / "data" / "released"
EXPECTED: dict[str, Any] = json.loads((RELEASED / "expected.json").read_text(encoding="utf-8"))
COST = AffineCost(1, 1)
FIXED = FixedRequest(8, 0.1)
RUNS: dict[str, tuple[Any, Any]] = {
    "flower averages": (FedAvg, {"mechanism": OutputAgreement(COST), "requests": FIXED}),
    "flower dithers": (
        FedSGD,
        {"mechanism": InformationPay(COST, probation=0), "requests": FIXED, "prediction": RunningMean(),
         "dither": Dither(1.5), "escrow": True},
    ),
    "flower adapts": (FedSGD, {"mechanism": OutputAgreement(COST), "requests": NoiseScaleRequest(COST)}),
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_a_run_of_version_0_1_goes_on(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair of dithered rounds was half done; what a policy believes, and its trail, were kept apart."""
    monkeypatch.setattr("guerdon.server.secret_normals", same_each_time)
    path = Path(shutil.copy(RELEASED / "guerdon.db", tmp_path))
    upgrade_ledger(str(path))
    people = [Learner(i, wanders=1.0) for i in range(5)]
    nodes = [Node(100 + i, person, ec.derive_private_key(1000 + i, ec.SECP384R1())) for i, person in enumerate(people)]
    make, options = RUNS[run]
    expected = EXPECTED["continued"][run]
    with Ledger(path) as ledger:
        strategy = Rewarded(make(fraction_evaluate=0.0), run=run, ledger=ledger, one_step=True, alike=True, **options)
        result = strategy.start(MemoryGrid(nodes), arrays(np.zeros(DIM)), num_rounds=max(map(int, expected)))
        paid: Any = {str(number): found["guerdon-pay"] for number, found in result.train_metrics_clientapp.items()}
        assert paid.keys() == expected.keys()
        for number, pay in expected.items():
            assert paid[number] == pytest.approx(pay, rel=1e-4, abs=1e-4)
        assert [found.request for found in ledger.rounds(run)] == EXPECTED["requests"][run]
        assert ledger.verify().holds
