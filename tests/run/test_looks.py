"""A run under looks by a plain loop: rows are named, reports are kept, and what is looked at is found again."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import FixedRequest, FlatPay, Server
from guerdon.costs import AffineCost
from guerdon.ledger import Ledger, RefusedError
from guerdon.looks import draw
from guerdon.looks.coins import auditor_secret, commit_coins, open_coin
from guerdon.looks.commitment import Commitment
from guerdon.looks.isolation import code_hash
from guerdon.looks.naming import Used, member_seeds, named_rows
from guerdon.looks.recompute import arrays_hash
from guerdon.run import open_run
from guerdon.run.archive import Archive
from guerdon.run.driver import PaidRun
from guerdon.run.messages import Request, Work
from guerdon.run.reports import hash_of
from guerdon.run.work import with_code
from guerdon.terms import Looks, Terms
from tests.support.look_scenes import AUDITOR, LOOKS, NAMES, RUN, commitment_of, rows_of, verdict_on

SERVER = Server(FlatPay(AffineCost(1, 1)), FixedRequest(8, 0.1))
TERMS = Terms(replace(LOOKS, code="ab" * 32))
MODEL = {"w": np.zeros(3, np.float32)}


def work(model: Mapping[str, Any], rows: Any, seed: int) -> dict[str, Any]:
    """The application's function: the gradient of least squares to a noisy target."""
    noise = np.random.default_rng(seed).normal(size=len(rows)).astype(np.float32)
    return {"w": ((rows @ model["w"] - noise)[:, None] * rows).mean(0)}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "guerdon.db") as found:
        prepare(found)
        yield found


def prepare(ledger: Ledger, names: list[str] = NAMES) -> None:
    coins = commit_coins(AUDITOR, ledger.name, RUN, rounds=20)
    Archive(ledger.files, RUN).put_coins(coins, coins.to_json(AUDITOR))
    for name in names:
        ledger.looks.commit(commitment_of(ledger, name).committed())


def start(ledger: Ledger, terms: Terms = TERMS, rounds: int | None = None) -> PaidRun:
    return open_run(SERVER, ledger, RUN, MODEL, terms, rounds=rounds)


def told(run: PaidRun, name: str) -> Work:
    found = run.request_of(name).work
    assert found is not None
    return found


def play(
    run: PaidRun, cheat: Callable[[str, Any], Any] = lambda _, rows: rows, members: list[str] = NAMES
) -> list[Request]:
    """Play a round; return what each was asked for."""
    assert run.ask(members)
    asked = [run.request_of(name) for name in members]
    reports = []
    for name in members:
        one = told(run, name)
        reports.append(run.report(name, work(run.sent, cheat(name, rows_of(name)[list(one.rows)]), one.seed)))
    run.settle(reports)
    return asked


def draw_all(ledger: Ledger) -> None:
    """The operator's part of the coins: what the auditor opened, and its own."""
    archive, secret = Archive(ledger.files, RUN), auditor_secret(AUDITOR)
    for one in ledger.looks.work(RUN):
        own = draw.nonce(archive.secret(), "server", ledger.name, RUN, one.round)
        ledger.looks.draw(RUN, one.round, own, open_coin(secret, ledger.name, RUN, one.round))


def test_each_row_is_named_once_before_any_is_named_again_and_anybody_can_name_them(ledger: Ledger) -> None:
    run = start(ledger)
    asked = [play(run) for _ in range(5)]
    named = [one[0].work for one in asked]
    assert sorted(row for one in named if one for row in one.rows) == list(range(40))
    used: list[Used] = []
    for recorded, one in zip(ledger.looks.work(RUN), named, strict=True):
        fresh, number = recorded.named.number, recorded.round
        seeds = member_seeds(fresh, ledger=ledger.name, run=RUN, round=number, member=NAMES[0])
        assert one is not None
        assert (one.rows, one.seed) == (tuple(named_rows(seeds.rows, 40, used, 8)), seeds.work)
        assert bytes.fromhex(one.model) == recorded.named.model
        used.append(Used(seeds.rows, recorded.used[NAMES[0]]))
    assert named[0] != asked[0][1].work, "each member has rows and a seed of its own"


def test_a_run_that_is_taken_up_again_names_the_rows_that_are_left(ledger: Ledger) -> None:
    first = play(start(ledger))[0].work
    again = start(ledger)
    assert again.done == 1
    rest = [play(again)[0].work for _ in range(4)]
    rows = [row for one in [first, *rest] if one for row in one.rows]
    assert sorted(rows) == list(range(40))


def test_a_round_that_a_member_missed_uses_none_of_its_rows(ledger: Ledger) -> None:
    run = start(ledger)
    assert run.ask(NAMES)
    missed = told(run, "Lyon")
    run.settle([run.report(name, MODEL if name != "Lyon" else None) for name in NAMES])
    rows = [row for _ in range(5) for row in play(run)[1].work.rows]  # type: ignore[union-attr]
    assert sorted(rows) == list(range(40))
    assert len(missed.rows) == 8


def test_reports_are_kept_until_no_look_can_be_at_them(ledger: Ledger) -> None:
    run, archive = start(ledger), Archive(ledger.files, RUN)
    for number in (1, 2, 3, 4):
        play(run)
        assert archive.rounds() == set(range(1, number + 1)), "no coin is drawn yet"
    draw_all(ledger)
    play(run)
    candidates = {look.round for look in ledger.looks.open(RUN)}
    assert archive.rounds() == candidates | {5}
    for look in ledger.looks.open(RUN):
        model, report = archive.model(look.round), archive.report(look.round, look.member)
        recorded = next(one for one in ledger.looks.work(RUN) if one.round == look.round)
        assert arrays_hash(model) == recorded.named.model
        with ledger.reading() as connection:
            query = (
                "SELECT gradient FROM payments JOIN rounds ON rounds.record = payments.record "
                f"JOIN agents ON agents.id = agent WHERE rounds.number = {look.round} AND agents.name = '{look.member}'"
            )
            assert connection.exec_driver_sql(query).scalar_one() == hash_of(report)


def test_what_is_kept_can_be_computed_again_and_a_row_that_was_replaced_shows(ledger: Ledger) -> None:
    def cheat(name: str, rows: Any) -> Any:
        if name == "Porto":
            rows[0] = rows[1]
        return rows

    run, archive = start(ledger), Archive(ledger.files, RUN)
    asked = [play(run, cheat) for _ in range(4)]
    draw_all(ledger)
    for look in ledger.looks.open(RUN):
        one = asked[look.round - 1][NAMES.index(look.member)].work
        assert one is not None
        again = work(archive.model(look.round), rows_of(look.member)[list(one.rows)], one.seed)
        same = np.allclose(again["w"], archive.report(look.round, look.member)["w"], rtol=1e-5, atol=1e-7)
        assert same == (look.member != "Porto")


def test_pay_has_its_margin_and_a_budget_counts_it(ledger: Ledger) -> None:
    run = start(ledger, replace(TERMS, budget=3 * 9.45 * 2))
    play(run)
    assert run.book.pay_of("Lyon").reward == 9_450_000  # type: ignore[union-attr]
    play(run)
    assert run.ask(NAMES) is None, "two rounds of 9 and 5 % are covered, and no third"
    draw_all(ledger)
    for look in ledger.looks.open(RUN):
        report = hash_of(Archive(ledger.files, RUN).report(look.round, look.member)).hex()
        ledger.looks.answer(RUN, look.number, bytes(32))
        ledger.looks.verdict(verdict_on(ledger, look, report=report).to_json())
    assert {one.released for one in ledger.looks.settle(RUN)} == {2 * 9_450_000}, "the run's end ends the period"
    assert ledger.verify().holds


def test_who_has_not_committed_is_not_asked(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    run = start(ledger)
    assert run.ask([*NAMES, "Vigo"])
    assert "Vigo is left out: it has not committed to its rows" in caplog.text
    with pytest.raises(RefusedError, match=r"Vigo.*not committed"):
        run.request_of("Vigo")
    rows = np.random.default_rng(5).normal(size=(40, 3)).astype(np.float32)
    vigo = Commitment.of(rows, ledger=ledger.name, run=RUN, member="Vigo", secret=b"v" * 32)
    ledger.looks.commit(vigo.committed())
    with pytest.raises(RefusedError, match="not committed"):
        run.request_of("Vigo")  # the round's number is known: it could have chosen its rows by it
    run.settle([run.report(name, MODEL) for name in NAMES])
    assert run.ask([*NAMES, "Vigo"])
    assert len(told(run, "Vigo").rows) == 8


def test_a_run_needs_the_coins_of_its_auditor(tmp_path: Path) -> None:
    with Ledger(tmp_path / "other.db") as ledger:
        with pytest.raises(RefusedError, match="looks need the auditor's coins"):
            start(ledger)
        coins = commit_coins(AUDITOR, ledger.name, "another run", rounds=5)
        Archive(ledger.files, RUN).put_coins(coins, coins.to_json(AUDITOR))
        with pytest.raises(RefusedError, match="got some for run 'another run'"):
            start(ledger)
        longer = commit_coins(AUDITOR, ledger.name, "another run", rounds=9)
        Archive(ledger.files, RUN).put_coins(longer, longer.to_json(AUDITOR))
        assert Archive(ledger.files, RUN).coins() == longer
        for wrong in (coins, commit_coins(AUDITOR, ledger.name, "another run", rounds=9, first=2)):
            with pytest.raises(RefusedError, match="has other coins"):
                Archive(ledger.files, RUN).put_coins(wrong, "")
        with pytest.raises(RefusedError, match="`work` and `code` of the terms' looks must name"):
            start(ledger, Terms(replace(LOOKS, work="")))


def test_terms_that_name_the_function_take_its_code_and_keep_what_was_said() -> None:
    named = Terms(replace(LOOKS, work="guerdon.looks.draw:kept", code=""))
    code = with_code(named).hold.code  # type: ignore[union-attr]
    assert code == code_hash("guerdon.looks.draw:kept")[0]
    for terms in (Terms(), Terms(LOOKS), Terms(replace(LOOKS, work="nowhere:work", code="ab" * 32))):
        assert with_code(terms) is terms
    with pytest.raises(ValueError, match="`function` must be in a module with source that can be found"):
        with_code(Terms(replace(LOOKS, work="nowhere:work", code="")))


def test_a_run_records_the_code_of_its_function(ledger: Ledger) -> None:
    play(start(ledger, Terms(replace(LOOKS, work="guerdon.looks.draw:kept", code=""))))
    recorded = ledger.terms(RUN).hold
    assert isinstance(recorded, Looks)
    assert recorded.code == code_hash("guerdon.looks.draw:kept")[0]


def test_an_empty_stream_keeps_only_its_own_member_out(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    where: dict[str, Any] = {"ledger": ledger.name, "run": RUN, "member": "Aarau", "secret": b"a" * 32}
    ledger.looks.commit(Commitment.of([], stream=True, **where).committed())
    run = start(ledger)
    assert run.ask(["Aarau", *NAMES])
    assert "Aarau is left out: it has not committed to its rows" in caplog.text
    run.settle([run.report(name, MODEL) for name in ["Aarau", *NAMES]])
    (work_,) = ledger.looks.work(RUN)
    assert set(work_.used) == set(NAMES)


@pytest.mark.parametrize("name", ["..", ".", "coin.secret", "coins of knee.json", "a/b", "\u533b" * 120])
def test_a_run_s_files_lie_in_a_folder_of_its_own_whatever_its_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "files"
    archive, other = Archive(folder, name), Archive(folder, "knee")
    archive.secret()
    for one in (archive, other):
        one.keep(1, MODEL, {"Basel": MODEL})
    archive.prune([])
    assert (archive.rounds(), other.rounds()) == (set(), {1})
    assert (folder / "coin.secret").exists()
    assert [found.name for found in tmp_path.iterdir()] == ["files"]


def test_files_that_were_changed_or_lost_are_named(ledger: Ledger) -> None:
    archive = Archive(ledger.files, RUN)
    secret = archive.secret()
    assert archive.secret() == secret
    assert (ledger.files / "coin.secret").stat().st_mode & 0o077 == 0
    archive.keep(3, MODEL, {"../Basel": MODEL, "\u533b" * 120: MODEL})
    assert archive.report(3, "\u533b" * 120).keys() == {"w"}
    assert archive.report(3, "../Basel")["w"].dtype == np.float32
    file = next(ledger.files.rglob("of *Basel.npz"))
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(Exception, match="must hold the arrays of a round"):
        archive.report(3, "../Basel")
    (ledger.files / "coin.secret").write_bytes(b"short")
    with pytest.raises(Exception, match="must hold 32 bytes, got 5: restore it"):
        archive.secret()


def test_what_is_said_of_a_round_names_the_looks_that_its_pay_waits_for(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="guerdon")
    run = start(ledger)
    play(run)
    assert "Round 1 earns 3 members 28.350000" in caplog.text
    assert "held until the looks of round 4" in caplog.text
    assert "Basel: 9.450000 (held until the looks of round 4)" in caplog.text
    assert "(paid" not in caplog.text
    pay = run.book.pay_of("Basel")
    assert pay is not None
    assert (pay.status, pay.balance) == ("held until looks", 0)
    assert pay.why.endswith("9.45 of it held until the looks of round 4")
