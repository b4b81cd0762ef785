"""Verified work over HTTP: agents are told their rows, what they sent is computed again, and a replaced row shows."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, FlatPay
from guerdon.client import ServiceClient, ServiceError, ServiceTask
from guerdon.ledger import Ledger
from guerdon.looks.coins import auditor_secret, commit_coins, open_coin
from guerdon.looks.commitment import Commitment
from guerdon.looks.draw import nonce
from guerdon.run.archive import Archive
from guerdon.serve.service import Service
from tests.serve.conftest import make_service, serving, together, work, write_key
from tests.support.look_scenes import AUDITOR, LOOKS, NAMES, rows_of

RUN, MODEL, CHEAT = "run", {"w": np.zeros(3)}, "Porto"
RULE = FlatPay(AffineCost(1, 1))


def gradient(task: ServiceTask, rows: Any, seed: int) -> dict[str, Any]:
    """The application's function: the gradient of least squares to a noisy target."""
    noise = np.random.default_rng(seed).normal(size=len(rows))
    return {"w": ((rows @ task.model["w"] - noise)[:, None] * rows).mean(0)}


def answer(name: str) -> Any:
    def send(task: ServiceTask) -> dict[str, Any]:
        assert task.work is not None
        rows = rows_of(name)[task.work.rows].astype(np.float64)
        if name == CHEAT:
            rows[0] = rows[1]
        return gradient(task, rows, task.work.seed)

    return send


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "guerdon.db") as opened:
        coins = commit_coins(AUDITOR, opened.name, RUN, rounds=10)
        Archive(opened.files, RUN).put_coins(coins, coins.to_json(AUDITOR))
        for name in NAMES:
            own = Commitment.of(rows_of(name), ledger=opened.name, run=RUN, member=name, secret=b"m" * 32)
            opened.looks.commit(own.committed())
        opened.enrol({name: write_key(tmp_path / f"{name}.pem") for name in NAMES})
        yield opened


def service_of(folder: Path, ledger: Ledger, rounds: int) -> Service:
    terms = {"hold": replace(LOOKS, code="ab" * 32), "signatures": True}
    return make_service(
        folder, ledger, rule=RULE, requests=FixedRequest(8, 0.1), tokens={}, named=NAMES, model=MODEL, alike=True,
        run={"rounds": rounds}, terms=terms,
    )  # fmt: skip


def test_what_agents_sent_is_computed_again_and_a_replaced_row_shows(tmp_path: Path, ledger: Ledger) -> None:
    with serving(service_of(tmp_path, ledger, 4)) as served:
        clients = {name: ServiceClient(served.address, run=RUN, key=tmp_path / f"{name}.pem") for name in NAMES}
        together(*(lambda name=name: work(clients[name], answer(name)) for name in NAMES))
    archive, auditor = Archive(ledger.files, RUN), auditor_secret(AUDITOR)
    for one in ledger.looks.work(RUN):
        assert set(one.used) == set(NAMES)
        own = nonce(archive.secret(), "server", ledger.name, RUN, one.round)
        ledger.looks.draw(RUN, one.round, own, open_coin(auditor, ledger.name, RUN, one.round))
    looks = ledger.looks.open(RUN)
    assert {look.member for look in looks} == set(NAMES)
    for look in looks:
        task = ServiceTask(RUN, look.round, 8, 8, "gradients", archive.model(look.round), None)
        told = service_of_work(ledger, look.member, look.round)
        again = gradient(task, rows_of(look.member)[list(told.rows)].astype(np.float64), told.seed)
        same = np.allclose(again["w"], archive.report(look.round, look.member)["w"], rtol=1e-9)
        assert same == (look.member != CHEAT)
    assert ledger.verify().holds


def service_of_work(ledger: Ledger, member: str, number: int) -> Any:
    """Return the work that a recorded round named for a member, from the ledger alone."""
    from guerdon.run.work import NamedWork

    hold = ledger.terms(RUN).hold
    named = NamedWork(ledger, RUN, hold)  # type: ignore[arg-type]
    named.open()
    return named.of(member, next(one.named for one in ledger.looks.work(RUN) if one.round == number), number, 8)


def test_a_service_that_starts_again_names_the_same_rows(tmp_path: Path, ledger: Ledger) -> None:
    asked = []
    for _ in range(2):
        service = service_of(tmp_path, ledger, 3)
        service.start()
        try:
            found = service.request_of("Basel")
            assert found is not None
            asked.append(found.work)
        finally:
            service.stop()
    assert asked[0] is not None
    assert asked[0] == asked[1], "agents have begun to work on these"


def test_a_client_does_no_work_at_another_model(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(service_of(tmp_path, ledger, 1)) as served:
        client = ServiceClient(served.address, run=RUN, key=tmp_path / "Basel.pem")
        monkeypatch.setattr("guerdon.client.load", lambda _: {"w": np.ones(3)})
        with pytest.raises(ServiceError, match="another was sent"):
            next(client.tasks())
