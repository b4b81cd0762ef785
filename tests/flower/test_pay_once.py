"""Pay is computed once: what Flower's strategy computes, logs and reports is what the ledger writes, or nothing is."""

import re
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord

from guerdon import (
    AffineCost,
    CalibratedAgreement,
    EstimatedVariance,
    FlatPay,
    InformationPay,
    KnownVariance,
    OutputAgreement,
    PowerCost,
    SteadyPay,
    WitnessedPay,
)
from guerdon.ledger import Ledger, RefusedError
from guerdon.rule import times
from guerdon.statistical.dithers import Dither
from tests.flower.conftest import Make
from tests.flower.grids import MemoryGrid, record
from tests.flower.test_one_server import paid_on_flower, scene

COST = PowerCost(0.3, 1.7, 0.1)  # none of its numbers is exact in binary
WITNESS = [record(a=np.full((2, 4), size), b=np.full(4, size)) for size in (1.0, 1.1)]
RULES: dict[str, tuple[Any, dict[str, Any]]] = {
    "agreement": (OutputAgreement(COST), {}),
    "known": (OutputAgreement(COST, KnownVariance(12.0)), {}),
    "estimated": (OutputAgreement(COST, EstimatedVariance()), {}),
    "flat": (FlatPay(COST), {}),
    "calibrated": (CalibratedAgreement(COST, calibration=8, vary=0.25), {}),
    "information": (InformationPay(COST), {"sends": "models"}),
    "dithered": (InformationPay(COST), {"dither": Dither(0.3, COST)}),
    "steady": (SteadyPay(COST, period=12), {"dither": Dither(0.3)}),
    "witnessed": (WitnessedPay(COST, samples=64), {"witness": lambda _: WITNESS}),
}  # fmt: skip
FACTORS = {"n1": 1.3, "n4": 0.7, "n7": 2.1}


# Those that keep nothing from round to round are slow ones: their rounds are part of the comparison with the simulator.
PLAIN = ("known", "estimated", "flat")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in PLAIN)) for name in RULES])
def test_every_rule_pays_the_same_bits_in_driver_and_ledger(name: str, rewarded: Make, ledger: Ledger) -> None:
    """Copies, garbage, dropouts, joins and three processes, each of which replays the state: else it is refused."""
    rule, options = RULES[name]
    rewards, _, _ = paid_on_flower(rewarded, ledger, rule, *scene(0), cost_factors=FACTORS, **options)
    for number, row in enumerate(rewards, start=1):
        recorded = [slip.reward / 1e6 for slip in sorted(ledger.payslips("run", number), key=lambda slip: slip.agent)]
        assert recorded == row[: len(recorded)].tolist()  # the metrics are the recorded numbers, not those before
    assert ledger.verify().holds


def test_a_server_that_computes_otherwise_stops_the_run(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five too much for each agent: nothing is recorded or reported, and the run goes on once that is mended."""
    told = list[dict[str, float]]()
    rule = OutputAgreement(AffineCost(1, 1), KnownVariance(2.0))
    rewarded(rule=rule, on_round=lambda found: told.append(found)).start(grid, model, num_rounds=2)
    paid, before = ledger.balances(), ledger.verify()

    def generous(payments: Any, factors: Any) -> Any:
        right = times(payments, factors)
        return right._replace(released=right.released + 5)

    with monkeypatch.context() as broken:
        broken.setattr("guerdon.server.times", generous)
        strategy = rewarded(rule=rule, on_round=lambda found: told.append(found))
        with pytest.raises(RefusedError, match="the driver computed a reward of") as refused:
            strategy.start(grid, model, num_rounds=4)
    said = r"round 3 of run 'run': .* a reward of (\S+) for agent 'n0', the evidence gives (\S+); nothing was recorded"
    both = re.match(said, str(refused.value))
    assert both is not None
    theirs, own = map(float, both.groups())
    assert theirs == own + 5
    assert (len(told), ledger.balances(), ledger.verify()) == (2, paid, before)

    result = rewarded(rule=rule, on_round=lambda found: told.append(found)).start(grid, model, num_rounds=4)
    assert len(ledger.rounds("run")) == len(told) == 4
    assert ledger.verify().holds
    mended = next(slip for slip in ledger.payslips("run", 3) if slip.agent == "n0")
    assert mended.reward / 1e6 == pytest.approx(own, abs=1e-6)
    slips = {slip.agent: slip.reward / 1e6 for slip in ledger.payslips("run")}
    assert [told[-1][f"guerdon/reward/{name}"] for name in sorted(slips)] == [slips[name] for name in sorted(slips)]
    last: Any = result.train_metrics_clientapp[4]
    assert last["guerdon-pay"] == [slips[name] for name in sorted(slips)]
    assert last["guerdon-paid"] == told[-1]["guerdon/paid"] == sum(last["guerdon-pay"])
