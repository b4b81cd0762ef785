"""`guerdon commit`: a member commits with real files, and what it committed to can be opened and checked."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from guerdon.cli.commit import _Heard
from guerdon.looks import Commitment, Committed, Table, check, check_growth, read_rows, read_secret
from tests.support.command_line import run, run_json

WHO = ["--ledger", "heart", "--run", "run 1", "--member", "Bern"]
AGES = np.array([63, 41, 55, 41])
RATES = np.array([150.5, 172.0, 132.0, 172.0], dtype=np.float32)


def write(path: Path, count: int = 4) -> Path:
    if path.suffix == ".npz":
        np.savez(path, age=AGES[:count], rate=RATES[:count])
    elif path.suffix == ".parquet":
        pl.DataFrame({"age": AGES[:count], "rate": RATES[:count]}).write_parquet(path)
    else:
        lines = [f"{age},{rate}" for age, rate in zip(AGES[:count], RATES[:count], strict=True)]
        path.write_text("\n".join(["age,rate", *lines]) + "\n")
    return path


def record(path: Path) -> Committed:
    return Committed.from_json(path.read_text())


@pytest.mark.parametrize("name", ["rows.npz", "rows.parquet", "rows.csv"])
def test_what_was_committed_can_be_opened_and_checked(tmp_path: Path, name: str) -> None:
    rows = write(tmp_path / name)
    done = run("commit", str(rows), *WHO)
    assert (done.code, done.stderr) == (0, "")
    committed = record(tmp_path / "rows.commitment.json")
    assert tuple(committed[:3]) == ("heart", "run 1", "Bern")
    assert (committed.size, committed.distinct, committed.stream) == (4, 3, False)
    secret = read_secret(tmp_path / "guerdon.secret")
    mine = Commitment.load(tmp_path / "rows.commitment.npz", read_rows(rows), secret)
    opened = check(committed, mine.open([2]), named=[2])
    assert opened[2] == {"age": 55, "rate": 132}


def test_it_says_what_to_send_and_what_to_keep(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.csv")
    printed = run("commit", str(rows), *WHO).stdout
    committed = record(tmp_path / "rows.commitment.json")
    assert "Bern committed to 4 rows, for run 'run 1' of ledger 'heart'." in printed
    assert "Columns: age (int64), rate (float64)." in printed
    assert "3 rows differ. 1 repeat another; the record says so." in printed
    assert f"Root: {committed.root.hex()}" in printed
    assert f"Send to the operator: {tmp_path}/rows.commitment.json. It shows no row." in printed
    assert f"Keep, and show nobody: {tmp_path}/rows.commitment.npz" in printed
    assert f"{tmp_path}/guerdon.secret, your secret. It is new: back it up." in printed


def test_only_the_member_can_read_what_it_keeps_and_the_record_shows_no_row(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.npz")
    run("commit", str(rows), *WHO)
    for name in ("guerdon.secret", "rows.commitment.npz"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    content = json.loads((tmp_path / "rows.commitment.json").read_text())
    names = ["format", "version", "ledger", "run", "member", "root", "size", "distinct", "stream"]
    assert list(content) == names


def test_one_secret_serves_all_runs(tmp_path: Path) -> None:
    rows, secret = write(tmp_path / "rows.npz"), tmp_path / "mine"
    first = run_json("commit", str(rows), *WHO, "--secret", str(secret))
    kept = secret.read_bytes()
    other = ["--ledger", "heart", "--run", "run 2", "--member", "Bern", "--out", str(tmp_path / "second.npz")]
    second = run_json("commit", str(rows), *other, "--secret", str(secret))
    assert secret.read_bytes() == kept
    assert (first["secret_is_new"], second["secret_is_new"]) == (True, False)
    assert first["root"] != second["root"], "leaves hold the run"
    assert second["files"]["record"] == str(tmp_path / "second.json")


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.npz")
    run("commit", str(rows), *WHO)
    (tmp_path / "guerdon.secret").chmod(0o644)
    done = run("commit", str(rows), *WHO, "--out", str(tmp_path / "again.npz"))
    assert done.code == 2
    assert "must be readable by its owner only, got mode 0644: run `chmod 600" in done.stderr
    assert not (tmp_path / "again.npz").exists()


def test_a_commitment_is_never_written_over(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.npz")
    run("commit", str(rows), *WHO)
    before = (tmp_path / "rows.commitment.npz").read_bytes()
    done = run("commit", str(rows), *WHO)
    assert done.code == 2
    assert "rows.commitment.npz, which may still have to answer looks: give another name, or --append" in done.stderr
    assert (tmp_path / "rows.commitment.npz").read_bytes() == before


def test_a_stream_grows_and_the_growth_is_proved(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.csv", count=2)
    run("commit", str(rows), *WHO, "--stream")
    old = record(tmp_path / "rows.commitment.json")
    write(rows)
    done = run("commit", str(rows), *WHO, "--append")
    assert (done.code, done.stderr) == (0, "")
    assert "4 rows, 2 of them new" in done.stdout
    assert "rows.commitment.growth.json. It proves that the old rows are unchanged." in done.stdout
    new = record(tmp_path / "rows.commitment.json")
    assert (old.size, new.size, new.stream) == (2, 4, True)
    growth = json.loads((tmp_path / "rows.commitment.growth.json").read_text())
    assert (growth["format"], growth["version"], growth["old"], growth["new"]) == ("guerdon-growth", 1, 2, 4)
    check_growth(old, new, [bytes.fromhex(part) for part in growth["proof"]])


def test_a_stream_may_begin_without_rows(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.npz", count=0)
    assert run("commit", str(rows), *WHO).code == 2
    assert run("commit", str(rows), *WHO, "--stream").code == 0
    old = record(tmp_path / "rows.commitment.json")
    write(rows)
    assert run("commit", str(rows), *WHO, "--append").code == 0
    growth = json.loads((tmp_path / "rows.commitment.growth.json").read_text())
    check_growth(old, record(tmp_path / "rows.commitment.json"), [bytes.fromhex(part) for part in growth["proof"]])


@pytest.mark.parametrize("change", ["a row", "a type", "the secret"])
def test_a_stream_whose_old_rows_changed_is_refused(tmp_path: Path, change: str) -> None:
    rows = write(tmp_path / "rows.csv", count=2)
    run("commit", str(rows), *WHO, "--stream")
    before = (tmp_path / "rows.commitment.json").read_text()
    write(rows)
    if change == "a row":
        rows.write_text(rows.read_text().replace("63,", "64,"))
    elif change == "a type":
        rows.write_text(rows.read_text() + "50.5,120\n")
    else:
        (tmp_path / "guerdon.secret").unlink()
    done = run("commit", str(rows), *WHO, "--append")
    assert done.code == 2
    assert "must begin with the 2 rows that were committed, with the same secret" in done.stderr
    assert (tmp_path / "rows.commitment.json").read_text() == before


def test_a_type_keeps_a_column_as_it_was(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.csv", count=2)
    typed = ["--type", "age=number", "--type", "rate=text"]
    run("commit", str(rows), *WHO, "--stream", *typed)
    rows.write_text(rows.read_text() + "50.5,unknown\n")
    done = run("commit", str(rows), *WHO, "--append", *typed)
    assert done.code == 0
    assert "Columns: age (float64), rate (text)." in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--append"], "`--append` needs the stream's record"),
        (["--out", "mine.json"], "`--out` must end in .npz and be another file than the rows"),
        (["--out", "rows.npz"], "`--out` must end in .npz and be another file than the rows"),
        (["--type", "age=date"], "such as postcode=text, got 'age=date'"),
        (["--type", "age=text"], "`types` must be left out for 'rows.npz'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    write(tmp_path / "rows.npz")
    done = run("commit", "rows.npz", *WHO, *arguments, cwd=tmp_path)
    assert done.code == 2
    assert message in done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {"rows.npz"}


@pytest.mark.parametrize("changed", [{"--member": "Basel"}, {"--run": "run 2"}, {"--ledger": "lung"}])
def test_only_its_own_stream_grows(tmp_path: Path, changed: dict[str, str]) -> None:
    rows = write(tmp_path / "rows.npz", count=2)
    run("commit", str(rows), *WHO, "--stream")
    names = dict(zip(WHO[::2], WHO[1::2], strict=True)) | changed
    done = run("commit", str(rows), *[part for pair in names.items() for part in pair], "--append")
    assert done.code == 2
    assert "got a stream of 'Bern' in run 'run 1' of ledger 'heart'" in done.stderr


def test_what_is_no_stream_does_not_grow(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.npz", count=2)
    run("commit", str(rows), *WHO)
    done = run("commit", str(rows), *WHO, "--append")
    assert "must add to a stream of the same ledger, run and member, got no stream" in done.stderr


def test_a_terminal_hears_how_far_it_is() -> None:
    heard: list[float] = []
    rows: Any = _Heard(Table({"x": np.arange(1000.0)}), heard.append)
    Commitment.of(rows, ledger="heart", run="run 1", member="Bern", secret=bytes(32))
    assert heard == sorted(heard)
    assert len(heard) == 4
    assert heard[-1] == 1


def test_reading_a_csv_tells_how_far_it_is(tmp_path: Path) -> None:
    path, heard = tmp_path / "rows.csv", list[float]()
    path.write_text("x\n" + "1\n" * 20_000)
    read_rows(path, tell=heard.append)
    assert heard == sorted(heard)
    assert heard[0] < 0.3
    assert heard[-1] > 0.8
