"""Ledgers that lie in tests/data/golden: they verify, so no rule pays other numbers than when they were made."""

import shutil
import sqlite3
from contextlib import closing
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, FlatPay, round_of
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.books.money import MICRO
from guerdon.ledger.pay.recorded_rules import restored
from guerdon.ledger.proof.replay import read_payments, replay_round
from guerdon.provenance import same_rule
from guerdon.registry import choices, choose, describe
from guerdon.words import about
from tests.data.golden import make
from tests.support.ledger_scenes import AT_ONCE

every_rule = pytest.mark.parametrize("name", make.RULES)


@pytest.fixture
def golden(name: str, tmp_path: Path) -> Path:
    """A copy: a reader of a file in WAL mode may write beside it."""
    return Path(shutil.copy(make.HERE / make.file_of(name), tmp_path))


def test_every_rule_that_can_be_paid_by_has_one() -> None:
    assert set(make.RULES) == set(choices())
    for name, rule in make.RULES.items():
        made = choose("known:8" if name == "known" else name, AffineCost(1, 1))
        assert type(made) is type(rule)
        assert (make.HERE / make.file_of(name)).stat().st_size < 120_000


@every_rule
def test_it_verifies_and_has_something_of_everything(golden: Path, name: str) -> None:
    with Ledger(golden, read_only=True) as ledger:
        found, rounds = ledger.verify(), ledger.rounds(name)
        assert found.problem is None
        assert (found.payments, len(rounds), ledger.roster(name)) == (57, 12, make.NAMES)
        (run,) = ledger.runs()
        assert same_rule(run.rule, describe(make.RULES[name])[0])
        assert all(row.paid for row in ledger.earnings()) or about(make.RULES[name]).holds
    seen = {status for one in rounds for status in one.statuses}
    late = {"waiting"} if name in ("agreement", "witnessed") else set[str]()  # V comes from earlier rounds
    assert seen == {"paid", "declined", "invalid"} | late
    assert [one.request for one in rounds] == [8] * 7 + [12] * 5


@every_rule
def test_a_version_pays_what_it_always_paid(golden: Path, name: str) -> None:
    """The numbers are pinned beside the ledger: making it anew does not make another number the old version's."""
    said = make.CHANGED.format(name=name, version=make.RULES[name].version)
    with Ledger(golden, read_only=True) as ledger:
        assert ledger.verify().problem is None, said
    assert make.read_pinned().get(f"{name}-{make.RULES[name].version}") == make.digest_of(golden), said


def test_every_ledger_here_is_pinned_also_of_older_versions() -> None:
    files = {path.stem: make.digest_of(path) for path in make.HERE.glob("*-*.db")}
    assert files == make.read_pinned()


@pytest.mark.parametrize("name", ["flat"])
def test_a_ledger_of_a_version_with_other_numbers_is_not_made(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(make.RULES, name, FlatPay(AffineCost(1, 1.001)))
    with pytest.raises(ValueError, match=r"a number of rule 'flat' changed: raise its version \(now 1\)"):
        make.main(tmp_path)
    assert not (tmp_path / make.file_of(name)).exists()


@every_rule
def test_a_version_that_is_not_installed_is_not_called_forged(
    golden: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is wrong with it: all but the pay is checked, and what to install is said. A forgery still shows."""
    with Ledger(golden, read_only=True) as ledger:
        before = ledger.verify()
    monkeypatch.setattr(type(make.RULES[name]), "version", 2)
    restored.cache_clear()
    with Ledger(golden) as ledger:
        found = ledger.verify()
        assert (found.problem, found.holds, found[:4]) == (None, False, before[:4])
        kind = type(make.RULES[name]).name
        said = f"the rule {kind!r} was recorded in version 1, and version 2 is installed here"
        assert f"from round 1 of run {name!r} on: {said}" in str(found.unverifiable)
        assert ledger.earnings(name)
        with pytest.raises(RefusedError, match=said):
            ledger.resume(name)
        with pytest.raises(RefusedError, match=f"was started with version 1 of the rule {kind!r}, and version 2 is"):
            ledger.start_run(name, make.NAMES, make.RULES[name], AT_ONCE)
        rounds, (*_, last) = len(ledger.rounds(name)), make.play(make.RULES[name])
        with pytest.raises(RefusedError, match=said):
            ledger.record_round(name, rounds + 1, round_of(last.evidence, last.sent, 12, last.trusted))
        assert len(ledger.rounds(name)) == rounds
    with closing(sqlite3.connect(golden)) as connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute("UPDATE payments SET released = released + 1 WHERE record = 5")
        connection.commit()
    with Ledger(golden, read_only=True) as ledger:
        assert ledger.verify().problem is not None
    restored.cache_clear()


@every_rule
def test_recomputed_payments_are_those_recorded(golden: Path, name: str) -> None:
    """By the rule as it is today, from the recorded evidence, round after round."""
    rule, state = make.RULES[name], None
    with Ledger(golden, read_only=True) as ledger, ledger.reading() as connection:
        for one in ledger.rounds(name):
            block = read_payments(connection, one.record, one.record)
            paid, state = replay_round(rule, state, block.round(one.request))
            recorded = block.payments()
            np.testing.assert_allclose(paid.released, recorded.released, rtol=1e-9, atol=1 / MICRO)
            np.testing.assert_array_equal(paid.status, recorded.status)
            for part in ("squared_distance", "expected", "variance"):
                np.testing.assert_allclose(getattr(paid, part), getattr(recorded, part), rtol=1e-9, atol=1e-9)


@every_rule
def test_the_script_makes_the_same_again(golden: Path, name: str, tmp_path: Path) -> None:
    """To the last digits of another machine: evidence that is gathered otherwise shows here."""
    make.write(tmp_path / "again.db", name)
    kept, again = (_payments(path) for path in (golden, tmp_path / "again.db"))
    assert [row[:3] for row in kept] == [row[:3] for row in again]
    numbers = [np.array([row[3:] for row in rows], dtype=np.float64) for rows in (kept, again)]
    np.testing.assert_allclose(numbers[1], numbers[0], rtol=1e-8, atol=1e-8)


def _payments(path: Path) -> list[Any]:
    columns = "record, agent, status, squared_deviation, pair_distance, squared_length, alignment, squared_distance, "
    with closing(sqlite3.connect(path)) as connection:
        return list(
            connection.execute(f"SELECT {columns} expected, variance, released / 1e6 FROM payments ORDER BY 1, 2")
        )


CHANGES = {
    "agreement": ["agreement.at_least_one", "scale.at_least_one", "scale.FADE"],
    "known": ["agreement.at_least_one"],
    "estimated": ["agreement.variance_of_others"],
    "calibrated": ["statistical.calibrated.FROM_MEDIAN"],
    "information": ["statistical.signal.at_least_one"],
    "witnessed": ["scale.at_least_one", "scale.FADE"],
    "steady": [f"statistical.steady.{constant}" for constant in ("FURTHEST", "STEEP", "CUT", "MOST")],
}


@pytest.mark.parametrize(("name", "place"), [(name, place) for name, places in CHANGES.items() for place in places])
def test_a_number_that_changes_is_found(golden: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in a thousand, in a constant of the rule or in what a helper returns."""
    module, _, constant = place.rpartition(".")
    old: Any = vars(import_module(f"guerdon.{module}"))[constant]
    changed: Any = (lambda *told: 1.001 * old(*told)) if isfunction(old) else 1.001 * old  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(f"guerdon.{place}", changed)
    with Ledger(golden, read_only=True) as ledger:
        assert "is not what its evidence gives" in str(ledger.verify().problem)


def test_coins_and_looks_are_what_they_always_were(tmp_path: Path) -> None:
    """Rounds, coins, verdicts and settlements of then are computed again: a change of any of them shows here."""
    settled = [("Basel", [2, 3], 37_800_000, 0), ("Porto", [2, 3], 37_800_000, 0), ("Lyon", [2, 3], 0, 37_800_000)]
    with Ledger(shutil.copy(make.HERE / make.LOOKS, tmp_path), read_only=True) as ledger:
        assert ledger.verify().problem is None
        periods = ledger.looks.settled("knee")
        assert [(one.member, sorted(one.looks), one.released, one.forfeited) for one in periods] == settled
        assert [(look.member, look.round) for look in ledger.looks.open("knee")] == [("Basel", 5), ("Basel", 6)]
        assert ledger.common_balances()["reserve"] == 37_800_000
