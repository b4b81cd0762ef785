"""An auditor of a run in a ledger: draws coins, has members open rows, computes work again, and signs verdicts."""

import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from guerdon.ledger import Ledger
from guerdon.ledger.pay.looking import OpenLook
from guerdon.looks.coins import auditor_secret, commit_coins, open_coin, sealing_key
from guerdon.looks.commitment import Commitment
from guerdon.looks.draw import nonce
from guerdon.looks.isolation import Limits, code_hash, run_isolated
from guerdon.looks.opening import Opening, check, committed_in
from guerdon.looks.recompute import compare, moves, repeat_error, rows_effect, tolerances
from guerdon.looks.rows import Table, stacked
from guerdon.looks.sealing import LookOf, seal, sealed_hash, unseal
from guerdon.looks.verdict import Verdict, judged, sign
from guerdon.run.archive import Archive
from guerdon.run.messages import Work
from guerdon.run.reports import hash_of
from guerdon.run.work import NamedWork
from guerdon.terms import Looks

KEY = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32)
PUBLIC = KEY.public_key().public_bytes_raw().hex()
SEALING = sealing_key(KEY)

Arrays = Mapping[str, Any]


class Auditor(NamedTuple):
    """The auditor of one run. `where`: the folder of the app; `function`: what is at `work`, imported here.

    `models`: members send models, so what they moved by is compared.
    """

    ledger: Ledger
    run: str
    request: int
    work: str
    where: Path
    function: Callable[[Arrays, Arrays, int], Arrays]
    models: bool = False

    def commit(self, rows: Mapping[str, Arrays], rounds: int) -> dict[str, Commitment]:
        """Record the auditor's coins, and what members commit to; return the commitments."""
        coins = commit_coins(KEY, self.ledger.name, self.run, rounds)
        Archive(self.ledger.files, self.run).put_coins(coins, coins.to_json(KEY))
        ledger, run, found = self.ledger.name, self.run, dict[str, Commitment]()
        for name, own in rows.items():
            secret = name.encode().ljust(32)
            found[name] = Commitment.of(Table(own), ledger=ledger, run=run, member=name, secret=secret)
            self.ledger.looks.commit(found[name].committed())
        return found

    def draw(self) -> None:
        """Open what operator and auditor had committed to, round by round."""
        secret, own = Archive(self.ledger.files, self.run).secret(), auditor_secret(KEY)
        for one in self.ledger.looks.work(self.run):
            server = nonce(secret, "server", self.ledger.name, self.run, one.round)
            self.ledger.looks.draw(self.run, one.round, server, open_coin(own, self.ledger.name, self.run, one.round))

    def look(self, look: OpenLook, member: Commitment) -> bool:
        """Have a member open the named rows, and compute the work again; sign the verdict, tell whether it passed."""
        named, of = self._named(look), LookOf(self.ledger.name, self.run, look.round, look.member)
        sealed = seal(member.open(named.rows).to_bytes(), SEALING.public_key().public_bytes_raw(), of)
        self.ledger.looks.answer(self.run, look.number, sealed_hash(sealed))
        committed = committed_in(self.ledger.looks.changes(self.run)[look.member], look.round)
        opened = check(committed, Opening.from_bytes(unseal(sealed, SEALING, of)), named.rows)
        rows = stacked(opened[row] for row in named.rows)
        archive = Archive(self.ledger.files, self.run)
        model, report = archive.model(look.round), archive.report(look.round, look.member)
        path = [str(self.where), *sys.path]
        ran = run_isolated(self.work, rows, model, [named.seed], Limits(wall=120), path=path)
        assert (ran.ending, ran.code) == ("done", named.code), ran.reason or "the terms have another code"
        again, sent = (self._reported(one, model) for one in (ran.reports[0], report))
        effect = rows_effect(self._again, model, rows, named.seed)
        tolerance = tolerances(repeat_error(self._again, model, rows, named.seed, effect), report)
        comparison = compare(again, sent, effect, tolerance)
        outcome, reasons = judged(ran, comparison)
        verdict = Verdict(
            self.ledger.name, self.run, look.round, look.number, look.member, committed.root.hex(),
            hash_of(report).hex(), outcome, comparison.errors, comparison.tolerance, reasons, ran.code, ran.network,
        )  # fmt: skip
        self.ledger.looks.verdict(sign(verdict, KEY).to_json())
        return comparison.passed

    def _named(self, look: OpenLook) -> Work:
        """Return the rows and the seed that a round named for a member, from the ledger alone."""
        code = code_hash(self.work, [str(self.where)])[0]
        names = NamedWork(self.ledger, self.run, Looks(auditor=PUBLIC, work=self.work, code=code))
        names.open()
        (one,) = [found for found in self.ledger.looks.work(self.run) if found.round == look.round]
        return names.of(look.member, one.named, look.round, self.request)

    def _again(self, model: Arrays, rows: Arrays, seed: int) -> Arrays:
        found = self.function(model, rows, seed)
        return self._reported({name: np.asarray(part) for name, part in found.items()}, model)

    def _reported(self, report: Arrays, model: Arrays) -> Arrays:
        """Return what is compared, in the types of the report."""
        if not self.models:
            return report
        return {name: move.astype(report[name].dtype) for name, move in moves(report, model).items()}


def pass_appeals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ledger's clock be so much later from now on that nobody can appeal."""
    wait = timedelta(seconds=Looks().appeal + 1)
    later = SimpleNamespace(now=lambda zone: datetime.now(zone) + wait)
    monkeypatch.setattr("guerdon.ledger.books.journal.datetime", later)
