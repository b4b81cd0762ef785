"""`guerdon audit` as a person uses it, wrong input included; and its page in the documentation is true."""

import doctest
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import OutputAgreement
from guerdon.lab.figures import audit_figure
from guerdon.ledger import Ledger
from tests.support import command_line
from tests.support.audit_scenes import COST, RULE, record_training, send_noise, send_prediction
from tests.support.ledger_scenes import AT_ONCE

NAMES = ["Basel", "Lyon", "Porto", "Turin", "Vigo", "Zürich $1$"]
PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "audit.md"


def run(*arguments: str, cwd: Path, code: int = 0) -> str:
    done = command_line.run("audit", *arguments, cwd=cwd, COLUMNS="140")
    assert done.code == code, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ledgers: of a run with cheats, of several runs, and of none."""
    place = tmp_path_factory.mktemp("audit")
    with Ledger(place / "guerdon.db", unit="EUR") as ledger:
        record_training(ledger, "heart", NAMES, 45, {4: send_prediction, 5: send_noise}, copies=True)
    with Ledger(place / "many.db") as ledger:
        record_training(ledger, "good", NAMES[:4], 15)
        record_training(ledger, "plain", NAMES[:4], 8, rule=OutputAgreement(COST), seed=1)
        ledger.start_run("waiting", NAMES[:4], RULE, AT_ONCE)
    with Ledger(place / "none.db"):
        pass
    return place


def test_the_table(folder: Path) -> None:
    shown = run("--alike", cwd=folder, code=1)
    rows = {name: line for line in shown.splitlines() for name in NAMES if name in line and "│" in line}
    assert all("cleared" in rows[name] for name in NAMES[:4])
    assert all("accused" in rows[name] and "round" in rows[name] for name in NAMES[4:])
    assert "At most one in 1,000 honest agents is ever accused" in shown
    assert "Basel and Zürich $1$ agree more than independent samples of the same kind can" in shown


def test_without_a_word_on_their_data_nobody_is_accused(folder: Path) -> None:
    shown = run(cwd=folder)
    rows = {name: line for line in shown.splitlines() for name in NAMES if name in line and "│" in line}
    assert all("differs since round" in rows[name] for name in NAMES[4:])
    assert f"{NAMES[4]} differs from the others in a stable way; that may be its data" in shown
    assert "Nobody is accused: agents may have different data." in shown
    assert "accused in" not in shown
    assert "that may be their data" in shown


def test_in_a_process_of_its_own(folder: Path) -> None:
    result = command_line.start("audit", "--alike", "--db", str(folder / "guerdon.db"), COLUMNS="80")
    assert (result.code, result.stderr) == (1, "")
    assert "Audit of run heart" in result.stdout
    assert "│ Basel" in result.stdout  # in 80 columns, too, who is who can be read


def test_nobody_is_accused(folder: Path) -> None:
    shown = run("good", "--db", "many.db", cwd=folder)
    assert "accused in" not in shown
    assert "No pair of agents stands out" in shown
    plain = run("plain", "--db", "many.db", "--alpha", "0.01", "--alike", cwd=folder)
    assert "not enough evidence" in plain
    assert "Nobody can be cleared" in plain
    assert "At most one in 100 honest agents" in plain


def test_json(folder: Path) -> None:
    told = json.loads(run("--json", cwd=folder))
    assert told["agents"][4]["verdict"] == "differs"
    assert told["group"] is None  # similar data make a group, too
    report: Any = json.loads(run("--json", "--alike", cwd=folder, code=1))
    assert [row["verdict"] for row in report["agents"]] == ["cleared"] * 4 + ["accused"] * 2
    assert report["agents"][4]["differs_in"] <= 40
    assert report["agents"][4]["cleared_to"] is None
    assert report["pairs"][0]["agents"] == ["Basel", "Zürich $1$"]
    assert set(report["group"]["agents"]) >= {"Basel", "Zürich $1$"}
    assert json.loads(run("waiting", "--db", "many.db", "--json", cwd=folder))["agents"] == []


def test_looking_changes_nothing(folder: Path) -> None:
    before = (folder / "guerdon.db").read_bytes()
    run(cwd=folder)
    run("--alike", cwd=folder, code=1)
    assert (folder / "guerdon.db").read_bytes() == before


@pytest.mark.parametrize(
    "name",
    ["audit.png", "audit.pdf"],  # .svg: below, with the page
)
def test_a_figure_is_drawn(folder: Path, name: str) -> None:
    run("--out", name, cwd=folder)
    assert (folder / name).stat().st_size > 5000


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--db", "missing.db"], "there is no ledger at"),
        (["--db", "none.db"], "no run has begun"),
        (["--db", "many.db"], "RUN must name a run of the ledger ('good', 'plain', 'waiting'), got none"),
        (["typo", "--db", "many.db"], "got 'typo'"),
        (["--alpha", "0"], "`alpha` must be a number above 0 and below 1"),
        (["--alpha", "1.5"], "`alpha` must be a number above 0 and below 1"),
        (["--out", "audit.docx"], "`--out` must end in .svg, .png, .pdf"),
        (["--out", "nowhere/audit.svg"], "nowhere"),
        (["--settle"], "no such option '--settle'; `guerdon audit --help` shows how it is called"),
    ],
)
def test_wrong_input_is_told_plainly(folder: Path, arguments: list[str], complaint: str) -> None:
    assert complaint in run(*arguments, cwd=folder, code=2)


def test_a_run_without_rounds(folder: Path) -> None:
    assert "has no round yet" in run("waiting", "--db", "many.db", "--out", "a.svg", cwd=folder)


def test_help_says_what_the_exit_status_means(folder: Path) -> None:
    shown = run("--help", cwd=folder)
    assert "Exit status 1" in shown
    assert "no money moves on statistics" in " ".join(shown.split())


def test_the_figure_names_those_that_differ() -> None:
    evidence = np.linspace(0, 1, 30)[:, None] * np.array([-1.0, 20.0, 20.5])
    figure = audit_figure(np.arange(1, 31), evidence, ["a", "b", "c$x$"], [None, 10, 10], 0.001, "Audit")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["b, round 11", r"c\$x\$, round 11"]
    heights = [text.xy[1] for text in figure.axes[0].texts]  # pyright: ignore[reportAttributeAccessIssue]
    assert heights[1] - heights[0] > 0.4, "apart, though the curves are not"


def test_the_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted >= 12
    assert result.failed == 0
    commands = re.findall(r"^    guerdon audit(.*?)(?:#.*)?$", PAGE.read_text(), flags=re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        run(*shlex.split(command), cwd=tmp_path, code=int("--alike" in command))  # Vigo is accused only then
    assert (tmp_path / "audit.svg").stat().st_size > 5000
