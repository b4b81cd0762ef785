"""Client apps that are not made for pay: differential privacy on nodes, failures everywhere, requests ignored."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg

from guerdon.flower import Request, decline, paid_work
from guerdon.flower.messages import tell
from guerdon.ledger import Ledger
from tests.flower.conftest import MODEL, Make
from tests.flower.grids import MemoryGrid, Node, gradients_of, record, reply
from tests.flower.test_client import key_file

WRAPPERS: dict[str, Any] = {
    "fixed": lambda: flower.DifferentialPrivacyClientSideFixedClipping(FedAvg(fraction_evaluate=0.0), 0.01, 1.0, 5),
    "adaptive": lambda: flower.DifferentialPrivacyClientSideAdaptiveClipping(FedAvg(fraction_evaluate=0.0), 0.01, 5),
}
MODS: dict[str, Any] = {"fixed": fixedclipping_mod, "adaptive": adaptiveclipping_mod}


def working(number: int, mods: list[Any], *inner: Any) -> ClientApp:
    app = ClientApp(mods=mods)

    @app.train(mods=list(inner))
    def train(message: Message, context: Context) -> Message:
        del context
        return reply(message, gradients_of(message, number), loss=1.0)

    return app


@pytest.mark.parametrize("first", ["paid_work", "clipping", "the app's"])
@pytest.mark.parametrize("kind", list(WRAPPERS))
def test_clipping_on_the_nodes_is_paid(
    kind: str, first: str, nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    """Flower's clipping mods demand exactly one `ConfigRecord`; the request is in it, whichever mod comes first."""
    for i, node in enumerate(nodes):
        mods = [paid_work(), MODS[kind]]
        inner = [mods.pop()] if first == "the app's" else []
        node.app = working(i, mods[::-1] if first == "clipping" else mods, *inner)
    result = rewarded(WRAPPERS[kind]()).start(MemoryGrid(nodes), model, num_rounds=2)
    assert [found.statuses for found in ledger.rounds("run")] == [{"paid": 5}, {"paid": 5}]
    assert not np.array_equal(result.arrays["w"].numpy(), MODEL["w"])
    assert ledger.verify().holds


@pytest.mark.parametrize("first", ["paid_work", "privacy"])
def test_who_signs_before_noise_is_added_is_told_the_order(
    first: str, tmp_path: Path, nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    mods = [paid_work(), LocalDpMod(1.0, 0.1, 1.0, 1e-5)]
    nodes[0].app = working(0, mods if first == "paid_work" else mods[::-1])
    nodes[0].context.node_config = {"guerdon-key": key_file(tmp_path, nodes[0].key)}
    rewarded(FedAvg(fraction_evaluate=0.0)).start(MemoryGrid(nodes), model, num_rounds=1)
    slip = next(slip for slip in ledger.payslips("run") if slip.agent == "n0")
    assert slip.status == ("paid" if first == "paid_work" else "invalid")
    assert ("`paid_work()` first among the app's mods" in slip.why) == (first == "privacy")


def test_settings_go_to_the_only_record_or_to_one_of_our_own() -> None:
    for own in ({}, {"one": ConfigRecord({"lr": 0.5})}, {"one": ConfigRecord(), "two": ConfigRecord()}):
        MemoryGrid([])
        message = Message(RecordDict({"arrays": record(**MODEL), **own}), 5, "train")
        tell(message, Request("run", 1, 8, "models").settings())
        tell(message, {"guerdon-samples": 4})
        assert len(message.content.config_records) == max(1, len(own) + (len(own) > 1))
        assert Request.read(message.content) == Request("run", 1, 8, "models")
        assert all(dict(part) in ({}, {"lr": 0.5}) for part in own.values())  # other messages share them


def raising(message: Message, context: Context) -> Message:
    raise UnboundLocalError(f"cannot access local variable 'batch_size' on {context.node_id} {message.metadata}")


def test_a_run_in_which_every_node_fails_stops_and_its_round_is_not_paid(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    healthy = [node.app for node in nodes]
    for node in nodes:
        node.app = raising
    complaint = r"round 1 of run 'run': all 5 nodes failed.*n0 .*cannot access local variable 'batch_size'"
    with pytest.raises(RuntimeError, match=complaint):
        rewarded().start(MemoryGrid(nodes), model, num_rounds=2)
    assert ledger.runs() == []
    for node, app in zip(nodes, healthy, strict=True):
        node.app = app
    rewarded().start(MemoryGrid(nodes), model, num_rounds=2)  # mended
    assert [found.statuses for found in ledger.rounds("run")] == [{"paid": 5}, {"paid": 5}]


@pytest.mark.parametrize("bad", [np.nan, 1e30])
def test_replies_that_nobody_can_use_are_failures_too(
    bad: float, nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    rewarded().start(MemoryGrid(nodes), model, num_rounds=1)
    for node in nodes:
        node.app = lambda message, _: reply(message, record(**{n: np.full_like(a, bad) for n, a in MODEL.items()}))
    with pytest.raises(RuntimeError, match=r"round 2 of run 'run': all 5 nodes failed.*not finite, or beyond 1e\+15"):
        rewarded().start(MemoryGrid(nodes), model, num_rounds=3)
    assert len(ledger.rounds("run")) == 1


def test_one_that_declines_is_no_failure(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    for node in nodes:
        node.app = raising
    nodes[0].app = lambda message, _: decline(message, "busy")
    with caplog.at_level(logging.WARNING, "flwr.guerdon"):
        rewarded().start(MemoryGrid(nodes), model, num_rounds=1)
    assert [found.statuses for found in ledger.rounds("run")] == [{"declined": 5}]
    assert "Round 1: no agent sent anything that can be used" in caplog.text


def test_who_uses_other_than_the_requested_samples_is_named_once(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, caplog: pytest.LogCaptureFixture
) -> None:
    for i, node in enumerate(nodes):
        used = {0: 1200, 1: 4}.get(i, 8)
        node.app = lambda message, _, i=i, n=used: reply(message, gradients_of(message, i), **{"num-examples": n})
    with caplog.at_level(logging.WARNING, "flwr.guerdon"):
        rewarded().start(MemoryGrid(nodes), model, num_rounds=3)
    (line,) = [line.getMessage() for line in caplog.records if "asked for" in line.getMessage()]
    assert "num-examples" in line
    assert "n0: 1200 where 8 were asked for, n1: 4 where 8 were asked for" in line
