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

from guerdon import AffineCost
from guerdon.ledger import Ledger
from guerdon.ledger.money import MICRO
from guerdon.ledger.replay import read_payments, replay_round
from guerdon.rules import choices, choose, describe
from tests.data.golden import make

SIMULATED = {"genie"}  # needs what only a simulation knows
every_rule = pytest.mark.parametrize("name", make.RULES)


@pytest.fixture
def golden(name: str, tmp_path: Path) -> Path:
    """A copy: a reader of a file in WAL mode may write beside it."""
    return Path(shutil.copy(make.HERE / f"{name}.db", tmp_path))


def test_every_rule_that_can_be_paid_by_has_one() -> None:
    assert set(make.RULES) == set(choices()) - SIMULATED
    for name, rule in make.RULES.items():
        made = choose("known:8" if name == "known" else name, AffineCost(1, 1))
        assert type(made) is type(rule)
        assert (make.HERE / f"{name}.db").stat().st_size < 100_000


@every_rule
def test_it_verifies_and_has_something_of_everything(golden: Path, name: str) -> None:
    with Ledger(golden, read_only=True) as ledger:
        found, rounds = ledger.verify(), ledger.rounds(name)
        assert found.problem is None
        assert (found.payments, len(rounds), ledger.roster(name)) == (57, 12, make.NAMES)
        (run,) = ledger.runs()
        assert run.rule == describe(make.RULES[name])[0]
        assert all(row.paid for row in ledger.earnings()) or make.RULES[name].holds
    seen = {status for one in rounds for status in one.statuses}
    late = {"waiting"} if name in ("agreement", "witnessed") else set[str]()  # V comes from earlier rounds
    assert seen == {"paid", "declined", "invalid"} | late
    assert [one.request for one in rounds] == [8] * 7 + [12] * 5


@every_rule
def test_recomputed_payments_are_those_recorded(golden: Path, name: str) -> None:
    """By the rule as it is today, from the recorded evidence, round after round."""
    rule, state = make.RULES[name], None
    with Ledger(golden, read_only=True) as ledger, ledger.reading() as connection:
        for one in ledger.rounds(name):
            block = read_payments(connection, one.record, one.record)
            paid, state = replay_round(rule, state, block, slice(None), one.request)
            recorded = block.payments()
            np.testing.assert_allclose(paid.reward, recorded.reward, rtol=1e-9, atol=1 / MICRO)
            np.testing.assert_array_equal(paid.status, recorded.status)
            for part in ("distance", "expected_distance", "variance"):
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
    columns = "record, agent, status, deviation, pair_distance, length, alignment, distance, expected_distance, "
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.execute(f"SELECT {columns} variance, amount / 1e6 FROM payments ORDER BY 1, 2"))


CHANGES = {
    "agreement": ["agreement.at_least_one", "scale.at_least_one", "scale.FADE"],
    "known": ["agreement.at_least_one"],
    "estimated": ["agreement.variance_of_others"],
    "calibrated": ["calibrated.USUAL"],
    "information": ["information.at_least_one"],
    "witnessed": ["scale.at_least_one", "scale.FADE"],
    "steady": ["steady.FURTHEST", "steady.STEEP", "steady.CUT", "steady.MOST"],
}


@pytest.mark.parametrize(("name", "place"), [(name, place) for name, places in CHANGES.items() for place in places])
def test_a_number_that_changes_is_found(golden: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in a thousand, in a constant of the rule or in what a helper returns."""
    module, _, constant = place.partition(".")
    old: Any = vars(import_module(f"guerdon.rules.{module}"))[constant]
    changed: Any = (lambda *told: 1.001 * old(*told)) if isfunction(old) else 1.001 * old  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(f"guerdon.rules.{place}", changed)
    with Ledger(golden, read_only=True) as ledger:
        assert "is not what its evidence gives" in str(ledger.verify().problem)
