"""The simulator and the service are one server: the same reports get the same pay, trust and evidence."""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon.ledger import Ledger
from guerdon.run.driver import open_run
from guerdon.serve.access import Members
from guerdon.serve.service import Service
from guerdon.serve.spool import SpooledAnswer
from guerdon.statistical.bets import against_agents, evidence_against
from guerdon.statistical.dithers import Dither
from guerdon.statistical.servers import server_for
from guerdon.terms import Terms
from tests.flower.test_one_server import by_name, same_dither_once, settled_by_default, simulated, simulated_plainly
from tests.serve.conftest import save_draft
from tests.support.ledger_scenes import check_agreement
from tests.support.one_server_scene import AGENTS, COST, JOINS, PLAIN, REQUESTS, ROUNDS, RULE, STEP, scene

__all__ = ["same_dither_once"]  # a fixture
slow = pytest.mark.slow  # compiles what Flower's half of this test compiles

MODEL = {"a": np.zeros((2, 4)), "b": np.zeros(4)}
NAMES = [f"n{k}" for k in range(AGENTS)]


def served(folder: Path, ledger: Ledger, rule: Any, sent: Any, present: Any, **options: Any) -> tuple[Any, Any, Any]:
    """Return the rewards (rounds, agents), the last model and checkpoint; in a new process every few rounds."""
    rewards = np.zeros((ROUNDS, AGENTS))
    restarts = {*JOINS.tolist(), 3, 17, 18}  # before these rounds, 17 between the halves of a dithered pair
    service: Any = None
    for number in range(1, ROUNDS + 1):
        if number - 1 in restarts:
            if service is not None:
                service.spool.close()
            tokens = {
                name: f"token-of-{name}-is-long" for name, join in zip(NAMES, JOINS, strict=True) if join < number
            }
            server = server_for(rule, REQUESTS, **options)
            paid = open_run(server, ledger, "run", MODEL, Terms(deadline=60), rounds=ROUNDS)
            service = Service(paid, folder, Members("run", paid.book.keys, tokens, ledger=ledger.name))
        answer_all(service, number, sent[number - 1], present[number - 1])
        assert service.settle_if_due()
        for slip in ledger.payslips("run", number):
            rewards[number - 1, NAMES.index(slip.agent)] = slip.reward / 1e6
    service.spool.close()
    return rewards, service.run.model, ledger.resume("run")


def answer_all(service: Service, number: int, lines: Any, present: Any) -> None:
    for k, name in enumerate(service.members.names()):
        if not present[k]:
            service.decline(name, number, "absent")
            continue
        parts = {"a": lines[k][:8].reshape(2, 4), "b": lines[k][8:]}
        if service.run.server.sends == "models":
            parts = {key: service.run.sent[key] - STEP * part for key, part in parts.items()}
        assert isinstance(service.accept(name, number, save_draft(service, parts), b""), SpooledAnswer)


def test_the_default_rule_adds_up(tmp_path: Path, ledger: Ledger) -> None:
    rewards, _, _ = served(tmp_path, ledger, PLAIN["agreement"], *scene(0))
    check_agreement(ledger, "run", by_name(rewards))
    check_agreement(ledger, "run", settled_by_default())


@slow
@pytest.mark.parametrize("name", ["agreement", "flat"])
def test_every_rule_pays_the_same_in_the_simulator_and_when_served(name: str, tmp_path: Path, ledger: Ledger) -> None:
    rewards, _, _ = served(tmp_path, ledger, PLAIN[name], *scene(0))
    assert rewards == pytest.approx(simulated_plainly().rewards[name][0], rel=1e-9, abs=1e-6)
    assert ledger.verify().holds


@slow
@pytest.mark.parametrize(
    "options",
    [
        {"dither": Dither(0.3, COST), "alike": False},
        {"alike": True},
        {"sends": "models", "dither": Dither(0.3, COST), "alike": False},
    ],
)
@pytest.mark.usefixtures("same_dither_once")
def test_both_pay_trust_and_accuse_alike(options: dict[str, Any], tmp_path: Path, ledger: Ledger) -> None:
    """Copies, near-copies, garbage of every size, NaN, long and short reports, dropouts and joins; 30 rounds."""
    history = simulated(RULE, *scene(0), **options)
    rewards, model, kept = served(tmp_path, ledger, RULE, *scene(0), **options)
    assert rewards == pytest.approx(history.rewards["reward"][0], rel=1e-9, abs=1e-6)  # the ledger has millionths
    length = sum(float(np.sum(part * part)) for part in model.values())
    assert length == pytest.approx(history.metrics["length"][0, -1], rel=1e-9)
    assert ledger.verify().holds
    assert against_agents(kept.arrays["lens"]["trust.wealth"]) == pytest.approx(
        history.accusation[0, -1], rel=1e-9, abs=1e-9
    )
    pairs = evidence_against(kept.arrays["lens"]["pairs.wealth"])
    assert pairs.max(axis=0) == pytest.approx(history.collusion[0, -1], rel=1e-9, abs=1e-9)
