"""Rows from files: tables whose columns have one type each, so that two readings give the same bytes."""

import csv
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from guerdon._lazy import missing
from guerdon.looks.encoding import DICT, LENGTH, encode_column, encode_key, encode_row

FORMS = ".npz, .csv or .parquet"
KINDS = "whole", "number", "text"
# A whole number has no leading zero: 007 is a code, and would be another one as 7.
WHOLE = re.compile(r"[+-]?(0|[1-9]\d*)")
STEP = 4096  # lines of a .csv file between two words on how far it is read
NUMBER = re.compile(r"[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?inf|nan|", re.IGNORECASE)


class Table:
    """Columns of one length, read as a sequence of rows: each a dict with a key for each column.

    A column is an array of numbers, whose first axis are the rows, or a list of str, bytes or None. Entries of an array
    are NumPy's numbers, or arrays where it has further axes.

    >>> table = Table({"age": np.array([63, 41]), "sex": ["f", "m"]})
    >>> len(table), table[1]
    (2, {'age': np.int64(41), 'sex': 'm'})
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = {name: columns[name] for name in sorted(columns)}
        sizes = {name: len(column) for name, column in self.columns.items()}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"`columns` must all have the same number of rows, and there must be one, got {sizes}")
        self._size = min(sizes.values())

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: column[index] for name, column in self.columns.items()}

    def encode_rows(self, start: int, stop: int) -> list[bytes]:
        """Return `encode_row` of the rows from `start` to `stop`, a column at a time."""
        head = DICT + LENGTH.pack(len(self.columns))
        cells = [_encoded(column[start:stop], encode_key(name)) for name, column in self.columns.items()]
        return [head + b"".join(row) for row in zip(*cells, strict=True)]


def read_rows(
    path: Path | str, types: Mapping[str, str] | None = None, tell: Callable[[float], object] | None = None
) -> Table:
    """Return the rows of a file as a `Table`. The end of its name says what it is. `tell`: hears the share read.

    - `.npz` (NumPy): each array is a column, its first axis are the rows. Arrays of text are columns of str.
    - `.csv` (UTF-8, commas, one line of names first): a column is *whole* (int64) if every cell is a whole number of 64
      bits, else *number* (float64; an empty cell is NaN) if every cell is a number or empty, else *text* (str, as it
      is). Numbers with a leading zero are text, and so are whole ones that the type would change, as long codes are.
      `types` fixes the type of columns by name, so that all members of a federation have the same: `{"postcode":
      "text", "age": "number"}`. A cell that does not fit is an error.
    - `.parquet`: needs polars. Numbers and booleans keep their type; where some are missing, whole numbers and booleans
      become float64 with NaN. Text keeps its missing cells as None. Dates, times and decimals become text.
    """
    path, types = Path(path), types or {}
    form = path.suffix.lower()
    if form not in (".npz", ".csv", ".parquet"):
        raise ValueError(f"`path` must be a file that ends in {FORMS}, got {path.name!r}")
    if form == ".csv":
        return Table(_from_csv(path, types, tell or _silent))
    if types:
        raise ValueError(f"`types` must be left out for {path.name!r}: its columns have types of their own")
    return Table(_from_npz(path) if form == ".npz" else _from_parquet(path))


def _encoded(column: Any, before: bytes) -> list[bytes]:
    if isinstance(column, np.ndarray):
        return encode_column(column, before)
    return [before + encode_row(cell) for cell in column]


def _from_npz(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            columns = {name: arrays[name] for name in arrays.files}
    except (ValueError, zipfile.BadZipFile, EOFError, TypeError) as error:
        raise ValueError(f"{path} must be an .npz file with arrays of numbers or text: {error}") from error
    for name, column in columns.items():
        if column.ndim == 0:
            raise ValueError(f"{path} must have arrays with an axis of rows, got a single value in {name!r}")
    return {name: column.tolist() if column.dtype.kind in "US" else column for name, column in columns.items()}


def stacked(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return rows with the same keys as arrays by name, whose first axis are the rows: what the work is given.

    `rows`: as a `Table` or `decode_row` has them, in the order in which they were named. Text and bytes become NumPy's.

    >>> stacked([{"age": np.int64(63), "sex": "f"}, {"age": np.int64(41), "sex": "m"}])
    {'age': array([63, 41]), 'sex': array(['f', 'm'], dtype='<U1')}
    """
    listed = list(rows)
    if not listed or not all(isinstance(row, Mapping) for row in listed):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("`rows` must be at least one dict, as the rows of a table are: commit to a table")
    names = listed[0].keys()
    if any(row.keys() != names for row in listed):
        raise ValueError(f"`rows` must all have the same keys, {sorted(names)}, but one has others")
    return {name: _stack(name, [row[name] for row in listed]) for name in names}


def _stack(name: str, entries: list[Any]) -> Any:
    arrays = [np.asarray(entry) for entry in entries]
    kinds = {(array.dtype.kind if array.dtype.kind in "SU" else array.dtype.str, array.shape) for array in arrays}
    if len(kinds) != 1 or arrays[0].dtype.kind not in "biufSU":
        raise ValueError(f"`rows` must have numbers or text of one type and shape under {name!r}, got missing or mixed")
    return np.stack(arrays)


def _silent(share: float) -> None:
    """Tell nobody."""


def _from_csv(path: Path, types: Mapping[str, str], tell: Callable[[float], object]) -> dict[str, Any]:
    """Read the file twice, first for the types: so the numbers of a column never stand in memory as text."""
    names = next(_lines(path), None)
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{path} must begin with a line of different column names, got {names}")
    for name, kind in types.items():
        if name not in names or kind not in KINDS:
            raise ValueError(f"`types` must map columns of {path} to one of {', '.join(KINDS)}, got {name!r}: {kind!r}")
    kinds, count = _kinds(path, names, types, lambda share: tell(share / 2))
    columns: list[Any] = [
        [] if kind == "text" else np.empty(count, dtype="i8" if kind == "whole" else "f8") for kind in kinds
    ]
    for place, cells in enumerate(_cells(path, len(names), lambda share: tell((1 + share) / 2))):
        for column, kind, cell in zip(columns, kinds, cells, strict=True):
            if kind == "text":
                column.append(cell)
            else:
                column[place] = int(cell) if kind == "whole" else float(cell or "nan")
    return dict(zip(names, columns, strict=True))


def _kinds(
    path: Path, names: Sequence[str], types: Mapping[str, str], tell: Callable[[float], object]
) -> tuple[list[str], int]:
    """Return the type of each column, and the number of rows."""
    kinds, count = [KINDS.index(types.get(name, "whole")) for name in names], 0
    for count, cells in enumerate(_cells(path, len(names), tell), start=1):
        for place, cell in enumerate(cells):
            while not _fits(cell, kinds[place]):
                if names[place] in types:
                    what = f"{names[place]!r} must be of type {types[names[place]]!r}, got {cell!r}"
                    raise ValueError(f"{path}, row {count}: column {what}")
                kinds[place] += 1
    return [KINDS[kind] for kind in kinds], count


def _fits(cell: str, kind: int) -> bool:
    """Tell whether a cell can be of a type, by its place among KINDS."""
    whole = int(cell) if WHOLE.fullmatch(cell) else None
    if kind == 0:
        return whole is not None and -(2**63) <= whole < 2**63
    is_number = abs(whole) <= 2**53 if whole is not None else NUMBER.fullmatch(cell) is not None
    return kind == 2 or is_number


def _cells(path: Path, width: int, tell: Callable[[float], object]) -> Iterator[list[str]]:
    lines = _lines(path, tell)
    next(lines)
    for row, cells in enumerate(lines, start=1):
        if len(cells) != width:
            raise ValueError(f"{path}, row {row}: it must have {width} cells, as the first line, got {len(cells)}")
        yield cells


def _lines(path: Path, tell: Callable[[float], object] = _silent) -> Iterator[list[str]]:
    """Yield the cells of each line; empty lines are no rows."""
    total = max(path.stat().st_size, 1)
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            yield from filter(None, csv.reader(_heard(file, total, tell), strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path} must be a .csv file in UTF-8 with commas: {error}") from error


def _heard(lines: Iterable[str], total: int, tell: Callable[[float], object]) -> Iterator[str]:
    """Yield lines, and tell the share of characters from time to time (of bytes: letters beyond ASCII have more)."""
    read = 0
    for place, line in enumerate(lines):
        read += len(line)
        if place % STEP == 0:
            tell(min(read / total, 1.0))
        yield line


def _from_parquet(path: Path) -> dict[str, Any]:
    try:
        import polars as pl
    except ModuleNotFoundError as error:
        raise missing(f"reading {path.name}", "polars", "sim") from error
    try:
        frame = pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{path} must be a .parquet file: {error}") from error
    return {series.name: _from_series(series, path) for series in frame}


def _from_series(series: Any, path: Path) -> Any:
    """Return a column of polars as an array, or as a list of str, bytes or None."""
    import polars as pl

    kind = series.dtype
    if kind.is_float():
        return series.fill_null(float("nan")).to_numpy()
    if kind.is_integer() or kind == pl.Boolean:
        return series.cast(pl.Float64).fill_null(float("nan")).to_numpy() if series.null_count() else series.to_numpy()
    if isinstance(kind, pl.Array) and not series.null_count() and series.to_numpy().dtype.kind in "biuf":
        return series.to_numpy()
    if kind.is_nested() or kind in (pl.Object, pl.Null):
        raise ValueError(
            f"{path} must have columns of numbers, text, times or arrays of one size, got {series.name!r}: {kind}"
        )
    return series.to_list() if kind == pl.Binary else series.cast(pl.String).to_list()
