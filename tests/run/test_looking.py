"""What an open look waits for, what its task is made of, and which reports may be dropped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from guerdon import FixedRequest
from guerdon import Server as PayServer
from guerdon.ledger import Ledger, RefusedError
from guerdon.looks import Commitment, Table, draw, read_rows, stacked
from guerdon.looks.auditors import auditor_of
from guerdon.looks.coins import auditor_secret, commit_coins, open_coin
from guerdon.looks.exchange import answer_to
from guerdon.looks.look import Auditing, judge
from guerdon.looks.naming import member_seeds, named_rows
from guerdon.looks.outcomes import Asked, Decision, Outcome
from guerdon.run import open_run
from guerdon.run.archive import Archive
from guerdon.run.driver import PaidRun
from guerdon.run.looking import Awaited, awaited, can_appeal, check_draws, due, named_work, records, task_of, unneeded
from guerdon.terms import Looks
from tests.support.look_scenes import Clock
from tests.support.look_story import NAMES, REQUEST, RULE, RUN, Server, terms, work, write_rows

AUDITOR, SECOND = (Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32) for seed in (1, 2))
TEN = Looks(answer=10, verdict=10, appeal=10)
FAILED, PASSED = Decision(Outcome.FAILED, 9), Decision(Outcome.PASSED, 9)


@pytest.mark.parametrize(
    ("asked", "now", "expected"),
    [
        (Asked(0), 10, Awaited("the rows of the member", 10)),
        (Asked(0), 11, Awaited("an appeal of the member: unanswered", 20)),
        (Asked(0), 21, Awaited("nothing: unanswered, settle it", None)),
        (Asked(0, 5), 15, Awaited("the verdict of the auditor", 15)),
        (Asked(0, 5), 16, Awaited("nothing: auditor silent, settle it", None)),
        (Asked(0, 11), 12, Awaited("an appeal of the member: unanswered", 20)),  # an answer that came too late
        (Asked(0, 5, PASSED), 9, Awaited("nothing: passed, settle it", None)),
        (Asked(0, 5, FAILED), 9, Awaited("an appeal of the member: failed", 19)),
        (Asked(0, 5, FAILED), 20, Awaited("nothing: failed, settle it", None)),
        (Asked(0, 5, FAILED, 12), 13, Awaited("the verdict of the second auditor on the appeal", 22)),
        (Asked(0, 5, FAILED, 12, PASSED), 13, Awaited("nothing: passed, settle it", None)),
    ],
)
def test_a_look_says_what_it_waits_for_and_until_when(asked: Asked, now: int, expected: Awaited) -> None:
    assert awaited(asked, TEN, now) == expected


def test_a_look_can_be_appealed_once_it_failed_or_went_unanswered() -> None:
    assert not can_appeal(Asked(0), TEN, 10)
    assert can_appeal(Asked(0), TEN, 11)
    assert not can_appeal(Asked(0, 5, PASSED), TEN, 9)
    assert can_appeal(Asked(0, 5, FAILED), TEN, 9)


class Scene:
    """A run of three rounds and what it is made of; coins are drawn when a test says."""

    def __init__(self, folder: Path) -> None:
        write_rows(folder)
        self.ledger = Ledger(str(folder / "guerdon.db"))
        for name in NAMES:
            rows = read_rows(folder / f"{name}.npz")
            self.ledger.looks.commit(
                Commitment.of(rows, ledger=self.ledger.name, run=RUN, member=name, secret=b"m" * 32).committed()
            )
        keys = [auditor_of(key).signing for key in (AUDITOR, SECOND)]
        self.ledger.start_run(RUN, list(NAMES), RULE, terms(folder, *keys, period=3))
        self.server = Server(folder, self.ledger, commit_coins(AUDITOR, self.ledger.name, RUN, 8))
        for number in (1, 2, 3):
            self.server.play(number)

    @property
    def archive(self) -> Archive:
        return self.server.archive

    def draw(self, *numbers: int) -> None:
        name = self.ledger.name
        for number in numbers:
            own = draw.nonce(self.archive.secret(), "server", name, RUN, number)
            self.ledger.looks.draw(RUN, number, own, open_coin(auditor_secret(AUDITOR), name, RUN, number))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    Clock(monkeypatch)
    found = Scene(tmp_path)
    yield found
    found.ledger.close()


def test_named_rows_are_those_that_the_server_named(scene: Scene) -> None:
    told = records(scene.ledger, RUN)
    for (number, name), rows in scene.server.named.items():
        assert list(named_work(told, number, name)[0]) == rows
    with pytest.raises(RefusedError, match="must name rows that 'Basel' used"):
        named_work(told, 4, "Basel")


def test_a_new_root_begins_a_new_pass(scene: Scene) -> None:
    rows = read_rows(scene.server.folder / "Basel.npz")
    less = {name: column[:40] for name, column in rows.columns.items()}
    other = Commitment.of(Table(less), ledger=scene.ledger.name, run=RUN, member="Basel", secret=b"m" * 32)
    scene.ledger.looks.commit(other.committed())
    for number in (4, 5, 6, 7):  # round 4 may have been open: the root counts from the period after it
        scene.server.play(number)
    told = records(scene.ledger, RUN)
    seeds = member_seeds(bytes([7]) * 32, ledger=told.ledger, run=RUN, round=7, member="Basel")
    assert list(named_work(told, 6, "Basel")[0]) == scene.server.named[6, "Basel"]
    assert list(named_work(told, 7, "Basel")[0]) == list(named_rows(seeds.rows, 40, [], REQUEST))
    assert list(named_work(told, 7, "Lyon")[0]) == scene.server.named[7, "Lyon"]
    assert list(named_work(told, 3, "Basel")[0]) == scene.server.named[3, "Basel"], "earlier rounds stay as they were"


def test_tasks_are_made_of_the_ledger_and_the_archive(scene: Scene) -> None:
    scene.draw(1, 2, 3)
    told, looks = records(scene.ledger, RUN), scene.ledger.looks.open(RUN)
    made = [
        task_of(told, look, scene.archive, [auditor_of(SECOND), auditor_of(AUDITOR)], sends="gradients", appeal=appeal)
        for look, appeal in due(told, looks)
    ]
    assert [(one.subject.look, one.subject.round) for one in made] == [(one.number, one.round) for one in looks]
    assert all(one.auditor == auditor_of(AUDITOR) and not one.appeal for one in made)
    assert check_draws(told)[1] == []


def test_reports_are_dropped_only_where_no_look_can_be_at_them(scene: Scene) -> None:
    kept = [1, 2, 3, 4, 5]  # round 4 is kept by a server that has not recorded it yet
    assert unneeded(records(scene.ledger, RUN), kept) == [], "all wait for coins"
    scene.draw(1, 2, 3)
    looked = {look.round for look in scene.ledger.looks.open(RUN)}
    assert unneeded(records(scene.ledger, RUN), kept) == sorted({1, 2, 3} - looked)


def test_dropping_rounds_leaves_what_a_server_is_just_writing(tmp_path: Path) -> None:
    archive = Archive(tmp_path, RUN)
    for number in (1, 2):
        archive.keep(number, {}, {})
    part = tmp_path / f"run {RUN}" / ".00000003-abcd"
    part.mkdir()
    archive.drop([1, 7])
    assert archive.rounds() == {2}
    assert part.exists()


def test_a_run_whose_terms_name_no_function_has_no_tasks(scene: Scene) -> None:
    scene.draw(1, 2, 3)
    told, look = records(scene.ledger, RUN), scene.ledger.looks.open(RUN)[0]
    bare = told._replace(own=told.own._replace(hold=Looks(auditor=told.own.hold.auditor)))
    with pytest.raises(RefusedError, match="`work` and `code` of the terms of run 'knee' must name the function"):
        task_of(bare, look, scene.archive, [auditor_of(AUDITOR)], sends="gradients", appeal=False)


def test_what_a_paid_run_named_passes_its_looks_and_a_replaced_row_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's rows, reports and archive; the task is made from what it wrote."""
    Clock(monkeypatch)
    write_rows(tmp_path)
    tables = {name: read_rows(tmp_path / f"{name}.npz") for name in NAMES}
    with Ledger(str(tmp_path / "guerdon.db")) as ledger:
        coins = commit_coins(AUDITOR, ledger.name, RUN, 3)
        Archive(ledger.files, RUN).put_coins(coins, coins.to_json(AUDITOR))
        names: dict[str, Any] = {"ledger": ledger.name, "run": RUN, "secret": b"m" * 32}
        mine = {name: Commitment.of(tables[name], **names, member=name) for name in NAMES}
        for one in mine.values():
            ledger.looks.commit(one.committed())
        keys = [auditor_of(key).signing for key in (AUDITOR, SECOND)]
        run = open_run(
            PayServer(RULE, FixedRequest(REQUEST, 0.1)), ledger, RUN, {"w": np.zeros(5, np.float32)},
            terms(tmp_path, *keys, period=3),
        )  # fmt: skip
        for _ in range(3):
            assert run.ask(list(NAMES))
            run.settle([run.report(name, worked(run, name, tables[name])) for name in NAMES])
        for number in (1, 2, 3):
            own = draw.nonce(Archive(ledger.files, RUN).secret(), "server", ledger.name, RUN, number)
            ledger.looks.draw(RUN, number, own, open_coin(auditor_secret(AUDITOR), ledger.name, RUN, number))
        told, archive = records(ledger, RUN), Archive(ledger.files, RUN)
        for look, appeal in due(told, ledger.looks.open(RUN)):
            task = task_of(told, look, archive, [auditor_of(AUDITOR)], sends="gradients", appeal=appeal)
            answer = answer_to(task, mine[look.member].open(task.subject.rows))
            signed = judge(task, answer, AUDITOR, Auditing([tmp_path]))
            expected = Outcome.FAILED if look.member == "Lyon" else Outcome.PASSED
            assert signed.verdict.outcome is expected, signed.verdict.reasons
            ledger.looks.answer(RUN, look.number, answer.hash)
            ledger.looks.verdict(signed.to_json())
        ledger.looks.settle(RUN)
        assert {one.member for one in ledger.looks.settled(RUN)} == {"Basel", "Porto"}
        assert check_draws(records(ledger, RUN))[1] == []
        assert ledger.verify().holds


def worked(run: PaidRun, name: str, table: Table) -> dict[str, np.ndarray]:
    """Return a member's report on what it was asked for; Lyon replaces one of its rows."""
    asked = run.request_of(name).work
    assert asked is not None
    rows = [*asked.rows[:-1], asked.rows[0]] if name == "Lyon" else asked.rows
    return work(run.sent, stacked(table[row] for row in rows), asked.seed)
