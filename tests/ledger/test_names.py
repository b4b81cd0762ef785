"""Names of payees: written in one way, nothing invisible, and none that looks like another's."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.books.checks import check_name, normal_name, skeleton, tidy
from tests.support.ledger_scenes import AT_ONCE, RULE, play, record

INVISIBLE = ["Ba\u200bsel", "\u202eBasel", "Basel\u2066", "Ba\u00adsel", "\ufeffBasel", "Basel\u3164", "Ba\u2060sel",
             "Basel\ufe0f", "\u2800", "Ba\U000e0041sel", "Ba\ue000sel", "Ba\u034fsel", "Ba\nsel", "\0"]  # fmt: skip


@pytest.mark.parametrize("name", ["", " ", "\t ", "\u00a0", *INVISIBLE, "\ud800", "x" * 201, 7, None], ids=ascii)
def test_what_cannot_be_seen_is_no_name(ledger: Ledger, name: object) -> None:
    head = ledger.verify().head
    for attempt in (
        lambda: ledger.enrol({name: None}),  # pyright: ignore[reportArgumentType]
        lambda: ledger.start_run("run", ["first", name], RULE, AT_ONCE),  # pyright: ignore[reportArgumentType]
        lambda: ledger.start_run(name, ["first"], RULE, AT_ONCE),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(ValueError, match="name must be text of 1 to 200 printable characters, none invisible, got"):
            attempt()
    assert ledger.verify().head == head


@pytest.mark.parametrize("given", [" école", "école ", "e\u0301cole", "\u00a0e\u0301cole "])
def test_a_name_is_written_in_one_way(ledger: Ledger, given: str) -> None:
    people = ["école", "second", "third"]
    assert ledger.enrol({given: None}).new
    assert ledger.enrol({"école": None}).new is False
    assert ledger.enrol({given: None}).new is False
    ledger.start_run("run", [given, "second", "third"], RULE, AT_ONCE)
    assert not ledger.start_run("run", people, RULE, AT_ONCE).new
    (one,) = play(1, agents=3)
    assert ledger.record_round("run", *one.arguments(), agents=[given, "second", "third"]).new
    assert not ledger.record_round("run", *one.arguments(), agents=people).new
    ledger.move("deposit", given, 5)
    assert ledger.statement(given).agent == "école"
    assert [row.agent for row in ledger.balances() if row.deposit] == ["école"]
    assert ledger.roster("run") == people
    with pytest.raises(ValueError, match="none of them twice"):
        ledger.start_run("twice", ["école", given], RULE, AT_ONCE)


def test_a_run_must_be_named_as_it_is_written(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="a run's name must be written 'heart 2'"):
        ledger.start_run(" heart  2", ["first"], RULE, AT_ONCE)


@pytest.mark.parametrize(
    "other", ["Ваsel", "Bаѕеl", "Base1", "BaseI", "Ｂasel", "Base\u217c", "\U0001d401asel", "Baseӏ"], ids=ascii
)
def test_a_name_that_looks_like_another_is_refused(ledger: Ledger, other: str) -> None:
    ledger.enrol({"Basel": None, "Bern": None})
    for attempt in (
        lambda: ledger.enrol({other: None}),
        lambda: ledger.start_run("run", ["Bern", other], RULE, AT_ONCE),
        lambda: ledger.start_run("run", ["Genf", "Basel", other], RULE, AT_ONCE),
    ):
        with pytest.raises(RefusedError, match="looks like 'Basel': nobody could tell who is paid"):
            attempt()
    with pytest.raises(RefusedError, match="looks like"):
        ledger.enrol({"Rom": None, "Rorn": None})
    assert [row.agent for row in ledger.balances()] == ["Basel", "Bern"]


def test_a_newcomer_cannot_take_a_look_alike_name(ledger: Ledger) -> None:
    people = ["Basel", "Bern", "Genf"]
    ledger.start_run("run", people, RULE, AT_ONCE)
    record(ledger, "run", play(1, agents=3))
    with pytest.raises(RefusedError, match="looks like 'Basel'"):
        ledger.record_round("run", *play(2, agents=4)[1].arguments(), agents=[*people, "Ваsel"])


def test_names_that_people_can_tell_apart_are_not_refused(ledger: Ledger) -> None:
    people = [
        "Basel",
        "basel",
        "Basle",
        "Zürich",
        "Zurich",
        "北京",
        "東京",
        "Москва",
        "Αθήνα",
        "O'Neill",
        "北 🏥",
        "node-1",
        "node-2",
    ]
    ledger.enrol(dict.fromkeys(people))
    assert sorted(row.agent for row in ledger.balances()) == sorted(people)
    assert sorted(row.number for row in ledger.balances()) == list(range(1, len(people) + 1))


def test_old_ledgers_keep_their_names(tmp_path: Path) -> None:
    """Names that were accepted once are found, paid and told apart by their number; new ones like them are refused."""
    path, odd = tmp_path / "guerdon.db", ["Basel", "Basel ", "Ba\u200bsel"]
    with Ledger(path) as ledger:
        ledger.start_run("run", ["one", "two", "three"], RULE, AT_ONCE)
    with closing(sqlite3.connect(path)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.executemany("UPDATE agents SET name = ? WHERE id = ?", [(name, i) for i, name in enumerate(odd, 1)])
        connection.commit()
    with Ledger(path) as ledger:
        assert not ledger.start_run("run", odd, RULE, AT_ONCE).new
        ledger.record_round("run", *play(1, agents=3)[0].arguments(), agents=odd)
        for number, name in enumerate(odd, 1):
            ledger.move("deposit", name, number)
            assert ledger.statement(name).number == number
        assert {row.number: row.deposit for row in ledger.balances()} == {1: 1, 2: 2, 3: 3}
        with pytest.raises(RefusedError, match="looks like"):
            ledger.enrol({"Base1": None})


@given(st.text(max_size=30))
def test_tidying_twice_changes_nothing(name: str) -> None:
    assert tidy(tidy(name)) == tidy(name)
    try:
        written = normal_name("it", name)
    except ValueError:
        return
    check_name("it", written)
    assert skeleton(written) == skeleton(name)
    assert skeleton(written)
