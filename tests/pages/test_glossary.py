"""The glossary: its words are spelled as the ledger spells its columns, accounts, moves and statuses."""

import re

from guerdon.ledger.books import tables
from guerdon.rule import Status
from tests.pages.test_pages import TEXT

PAGE = TEXT["docs/reference/glossary.md"]
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| word")
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}  # fmt: skip
# Of `payments`: which round and place a payment is of, and its hash and remark, are no words of the game.
NO_WORDS = {"record", "position", "hash", "note"}
COLUMNS = {f"{table.name}.{column.name}" for table in tables.metadata.tables.values() for column in table.columns}


def named(kind: str = "") -> set[str]:
    """Return what the third column names: `table.column`, or what stands behind a word such as "account"."""
    start = rf"{kind} " if kind else "(?<!account )(?<!table )(?<!move )"
    return {name for _, where, _ in ROWS.values() for name in re.findall(rf"{start}`([\w.]+)`", where)}


def test_every_word_has_one_sentence_and_a_page() -> None:
    assert 20 <= len(ROWS) <= 30
    for word, (meaning, _, page) in ROWS.items():
        assert meaning[0].islower(), word
        assert re.search(r"\]\([\w./#-]+\)", page), word


def test_the_ledger_has_what_the_glossary_names() -> None:
    assert named() <= COLUMNS
    assert named("table") <= set(tables.metadata.tables)
    assert named("account") <= {*tables.COMMON, *tables.PERSONAL}
    assert named("move") <= set(tables.MOVES)
    assert len(named()) >= 15


def test_a_word_is_spelled_as_its_column() -> None:
    """Where the ledger has a column, table, account or move of a word's name, the row names it."""
    columns = {column.partition(".")[2] for column in COLUMNS}
    for word, (_, where, _) in ROWS.items():
        if word.replace(" ", "_") in columns:
            assert re.search(rf"\b{word.replace(' ', '_')}`|table `{word}s`", where), word
        if f"{word}s" in tables.metadata.tables:
            assert f"table `{word}s`" in where, word
        if word in {*tables.COMMON, *tables.PERSONAL} - {"agent"}:
            assert f"account `{word}`" in where, word


def test_every_column_of_payments_is_of_a_word() -> None:
    of_payments = {f"payments.{column.name}" for column in tables.payments.columns if column.name not in NO_WORDS}
    assert of_payments <= named()


def test_the_row_of_status_has_every_status() -> None:
    assert sorted(re.findall(r"`([\w-]+)`", ROWS["status"][0])) == sorted(status.label for status in Status)
