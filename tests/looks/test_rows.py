"""Rows from files: the types that are stated, the same bytes however they are read, and files that are refused."""

import math
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from guerdon.looks.encoding import decode_row, encode_row, encode_rows
from guerdon.looks.rows import Table, read_rows, stacked

COLUMNS: dict[str, Any] = {
    "y": np.arange(5, dtype=np.int8),
    "image": np.arange(20, dtype=np.float32).reshape(5, 2, 2),
    "name": ["a", "é", None, "", "b"],
    "blob": [b"", b"\0", b"a", b"b", b"c"],
}


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_is_written_as_its_rows_are() -> None:
    table = Table(COLUMNS)
    assert len(table) == 5
    assert list(table[1]) == ["blob", "image", "name", "y"]
    assert encode_rows(table, 1, 4) == [encode_row(table[i]) for i in range(1, 4)]
    assert encode_row(table[2]) == encode_row({name: column[2] for name, column in COLUMNS.items()})


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=COLUMNS["image"], y=COLUMNS["y"], who=np.array(["a", "bb", "c", "d", "e"]))
    table = read_rows(tmp_path / "rows.npz")
    assert len(table) == 5
    row = table[1]
    np.testing.assert_array_equal(row["x"], COLUMNS["image"][1])
    assert (row["who"], row["y"], row["y"].dtype) == ("bb", 1, np.int8)


def test_csv_columns_have_the_stated_types(tmp_path: Path) -> None:
    text = "id,code,age,weight,note,big\n1,007,63,1.5,a,9223372036854775808\n-2,1,,2e3,,1\n"
    table = read_rows(written(tmp_path / "rows.csv", text))
    first, second = table[0], table[1]
    assert {name: type(cell) for name, cell in first.items()} == {
        "age": np.float64, "big": str, "code": str, "id": np.int64, "note": str, "weight": np.float64,
    }  # fmt: skip
    assert [first["id"], first["code"], first["weight"], second["note"]] == [1, "007", 1.5, ""]
    assert math.isnan(second["age"])


def test_csv_types_can_be_fixed_for_all_members(tmp_path: Path) -> None:
    """One member has whole years, the other half ones: with the same types their rows have one form."""
    types = {"age": "number", "zip": "text"}
    first = read_rows(written(tmp_path / "a.csv", "age,zip\n63,8001\n"), types)
    other = read_rows(written(tmp_path / "b.csv", "zip,age\n8001,63\n8002,63.5\n"), types)
    assert encode_row(first[0]) == encode_row(other[0])
    untyped = read_rows(tmp_path / "a.csv"), read_rows(tmp_path / "b.csv")
    assert encode_row(untyped[0][0]) != encode_row(untyped[1][0])


def test_csv_as_spreadsheets_write_it(tmp_path: Path) -> None:
    """A mark of the byte order, lines that end as on Windows, quoted commas and newlines, an empty line at the end."""
    text = '\ufeffname,n\r\n"Doe, ""J""\nJr",1\r\n\r\n'
    table = read_rows(written(tmp_path / "rows.CSV", text))
    assert [table[i] for i in range(len(table))] == [{"n": 1, "name": 'Doe, "J"\nJr'}]


def test_parquet(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "n": [1, 2],
            "gap": [1, None],
            "flag": [True, False],
            "x": pl.Series([1.5, None], dtype=pl.Float32),
            "day": [date(2026, 1, 2), None],
            "text": ["a", None],
            "pixels": pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int16, 2)),
            "blob": [b"a", b"b"],
            "price": pl.Series(["1.10", "2.00"]).cast(pl.Decimal(10, 2)),
        }
    )
    frame.write_parquet(tmp_path / "rows.parquet")
    first, second = (table := read_rows(tmp_path / "rows.parquet"))[0], table[1]
    assert {name: cell.dtype.name for name, cell in first.items() if hasattr(cell, "dtype")} == {
        "flag": "bool", "gap": "float64", "n": "int64", "pixels": "int16", "x": "float32",
    }  # fmt: skip
    assert [first[name] for name in ("day", "text", "blob", "price")] == ["2026-01-02", "a", b"a", "1.10"]
    assert [second["text"], second["day"]] == [None, None]
    assert math.isnan(second["gap"])
    assert math.isnan(second["x"])
    assert encode_rows(table, 0, 2) == [encode_row(first), encode_row(second)]


@pytest.mark.parametrize(
    ("name", "text", "types", "message"),
    [
        ("rows.txt", "", {}, r"`path` must be a file that ends in .npz, .csv or .parquet, got 'rows.txt'"),
        ("rows.csv", "", {}, "must begin with a line of different column names, got None"),
        ("rows.csv", "a,a\n1,2\n", {}, r"different column names, got \['a', 'a'\]"),
        ("rows.csv", "a,b\n1,2\n3\n", {}, "row 2: it must have 2 cells, as the first line, got 1"),
        ("rows.csv", "a\n1\nx\n", {"a": "number"}, "row 2: column 'a' must be of type 'number', got 'x'"),
        ("rows.csv", "a\n1\n", {"b": "text"}, "`types` must map columns of .* got 'b': 'text'"),
        ("rows.csv", "a\n1\n", {"a": "int"}, "one of whole, number, text, got 'a': 'int'"),
        ("rows.csv", 'a\n"1', {}, "must be a .csv file in UTF-8 with commas"),
        ("rows.npz", "no archive", {}, "must be an .npz file with arrays of numbers or text"),
        ("rows.npz", "", {"a": "text"}, "`types` must be left out for 'rows.npz'"),
        ("rows.parquet", "no parquet", {}, "must be a .parquet file"),
    ],
)
def test_files_that_are_none_are_refused(
    name: str, text: str, types: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        read_rows(written(tmp_path / name, text), types)


def test_arrays_that_hide_code_or_have_no_rows_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "pickled.npz", x=np.array([{}, {}], dtype=object))
    np.savez(tmp_path / "single.npz", x=np.float64(1))
    np.savez(tmp_path / "uneven.npz", x=np.zeros(2), y=np.zeros(3))
    for name, message in (
        ("pickled", "must be an .npz file with arrays of numbers or text"),
        ("single", "must have arrays with an axis of rows, got a single value in 'x'"),
        ("uneven", r"the same number of rows, and there must be one, got \{'x': 2, 'y': 3\}"),
    ):
        with pytest.raises(ValueError, match=message):
            read_rows(tmp_path / f"{name}.npz")
    with pytest.raises(ValueError, match=r"there must be one, got \{\}"):
        Table({})
    pl.DataFrame({"a": [[1], [1, 2]]}).write_parquet(tmp_path / "lists.parquet")
    with pytest.raises(ValueError, match="must have columns of numbers, text, times or arrays of one size, got 'a'"):
        read_rows(tmp_path / "lists.parquet")


def test_without_polars_it_says_what_to_install(tmp_path: Path) -> None:
    script = "import sys; sys.modules['polars'] = None\nfrom guerdon.looks.rows import read_rows\n"
    script += f"read_rows({str(tmp_path / 'a.parquet')!r})"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "`reading a.parquet` needs polars; install it with: pip install 'guerdon[sim]'" in result.stderr


def test_rows_of_a_look_are_stacked_as_the_work_gets_them() -> None:
    table = Table({"x": np.arange(6, dtype=np.float32).reshape(3, 2), "n": np.array([1, 2, 3]), "sex": ["f", "m", "f"]})
    opened = [decode_row(encode_row(table[index])) for index in (2, 0)]
    arrays = stacked(opened)
    np.testing.assert_array_equal(arrays["x"], table.columns["x"][[2, 0]])
    assert arrays["x"].dtype == np.float32
    assert arrays["n"].tolist() == [3, 1]
    assert arrays["n"].dtype == np.int64
    assert arrays["sex"].tolist() == ["f", "f"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least one dict"),
        ([1.0, 2.0], "at least one dict"),
        ([{"x": 1}, {"y": 1}], "the same keys"),
        ([{"x": 1}, {"x": 1.5}], "one type and shape under 'x'"),
        ([{"x": np.float32(1)}, {"x": 1.0}], "one type and shape under 'x'"),
        ([{"x": np.ones(2)}, {"x": np.ones(3)}], "one type and shape under 'x'"),
        ([{"x": "a"}, {"x": None}], "one type and shape under 'x'"),
    ],
)
def test_rows_that_cannot_be_stacked(rows: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stacked(rows)
