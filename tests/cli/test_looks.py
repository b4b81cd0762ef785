"""`guerdon looks`: what terms come to, and whether work can be looked at, as a person asks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon.costs import ExpressionCost
from guerdon.looks.plan import choose
from guerdon.looks.plan import plan as planned
from guerdon.terms import Looks
from tests.looks import network
from tests.pages.test_pages import ROOT
from tests.support.command_line import run, run_json

PLAN = ["looks", "plan", "--cost", "1 + s", "--request", "16", "--rounds", "200"]


def cells(printed: str) -> dict[str, list[str]]:
    """Return the rows of all tables by their first cell."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if "│" in line]
    return {row[0]: row[1:] for row in rows}


# The plan.


def test_a_plan_says_what_terms_come_to() -> None:
    done = run(*PLAN)
    assert (done.code, done.stderr) == (0, "")
    said = cells(done.stdout)
    assert said["cost of a round"] == ["17.00"]
    assert said["pay for a round"] == ["17.85"]
    assert said["looks in the run"] == ["8"]
    assert said["rows that the auditor sees, at most"] == ["128"]
    assert said["most money held at a time"] == ["892.50"]
    assert said["margins of the run"] == ["170.00"]
    assert said["never works"] == ["200", "3,400.00", "100.0%", "170.00", "170.00"]
    assert said["every second round"][-2:] == ["85.00", "977.50"]
    assert "Honest work is best: that needs a margin of 0.0%, and the margin is 5.0%." in done.stdout
    assert "ε is taken as 0: measure it by `guerdon looks try`" in done.stdout


def test_a_plan_as_json_is_what_the_functions_say() -> None:
    options = ["--epsilon", "0.001", "--delta", "0.01", "--looks", "3", "--period", "40", "--forfeit", "all"]
    report = run_json(*PLAN, *options, "--margin", "0.08")
    terms = Looks(period=40, looks=3, margin=0.08, forfeit="all")
    found = planned(ExpressionCost("1 + s"), 16, 200, terms, epsilon=0.001, delta=0.01)
    assert report["terms"] == {"period": 40, "looks": 3, "margin": 0.08, "forfeit": "all"}
    for name in ("pay", "looks", "held", "margins", "rows_shown", "rows_at_most", "share_shown", "least_margins"):
        assert report[name] == getattr(found, name), name
    assert report["cost_of_a_round"] == found.cost
    assert report["cost"] == "1 + s"
    assert [one["profit"] for one in report["behaviours"]] == [one.profit for one in found.behaviours]
    advised = choose(0.001, delta=0.01, members=10, rounds=200, period=40)
    assert report["recommended"]["reasons"] == list(advised.reasons)
    assert report["recommended"]["terms"]["margin"] == advised.terms.margin


def test_terms_under_which_a_cheat_gains_are_named() -> None:
    done = run(*PLAN, "--delta", "0.1", "--epsilon", "0.03")
    assert "Honest work is not best: the margin must be at least 14.94%, got 5.0%." in done.stdout
    assert "ε is taken as 0" not in done.stdout
    assert "Recommended for 10 members" in done.stdout
    assert "forfeits its share" in " ".join(done.stdout.split())


def test_no_margin_is_no_better_than_declining() -> None:
    assert "with a margin of 0 honest work is no better than declining" in run(*PLAN, "--margin", "0").stdout


def test_looks_that_no_margin_can_save() -> None:
    options = ["--delta", "0.3", "--epsilon", "0.19", "--looks", "5", "--forfeit", "all"]
    assert run_json(*PLAN, *options)["least_margins"]["share"] == pytest.approx(1 / 0.51 - 1)
    hopeless = ["--delta", "0.05", "--epsilon", "0.44", "--looks", "100", "--forfeit", "all"]
    assert run_json(*PLAN, *hopeless)["least_margins"]["all"] > 10
    assert "no margin that anybody would pay is enough" in " ".join(run(*PLAN, *hopeless).stdout.split())
    assert "must leave looks some meaning" in run(*PLAN, "--delta", "0.3", "--epsilon", "0.3").stderr


@pytest.mark.parametrize("kind", [".svg", ".png"])
def test_a_plan_is_drawn(tmp_path: Path, kind: str) -> None:
    picture = tmp_path / f"plan{kind}"
    done = run(*PLAN, "--out", str(picture))
    assert done.code == 0
    assert f"Picture: {picture}" in done.stdout
    assert picture.stat().st_size > 10_000
    again = tmp_path / f"again{kind}"
    run(*PLAN, "--out", str(again))
    assert picture.read_bytes() == again.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--request", "0"], "`--request` must be from 1 to 1,000,000, got 0"),
        (["--rounds", "10000000"], "`--rounds` must be from 1 to 1,000,000, got 10000000"),
        (["--looks", "101"], "`--looks` must be from 1 to 100, got 101"),
        (["--members", "0"], "`--members` must be from 1"),
        (["--period", "0"], "`period` must be a positive integer, got 0"),
        (["--margin", "-0.1"], "`margin` must be a finite number of at least 0, got -0.1"),
        (["--epsilon", "1"], "`epsilon` must be a chance below 1, got 1.0"),
        (["--out", "plan.txt"], "`--out` must end in .svg, .png, .pdf, got plan.txt"),
        (["--cost", "1 +"], "cannot read the expression '1 +'"),
    ],
)
def test_a_plan_of_nonsense_is_refused(arguments: list[str], message: str) -> None:
    done = run(*PLAN, *arguments)
    assert done.code == 2
    assert message in done.stderr
    assert done.stdout == ""


# The rehearsal.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("rehearsal")
    files: dict[str, Any] = {"rows": network.rows(60, 3), "model": network.untrained(), "old": network.trained(2000)}
    for name, arrays in files.items():
        np.savez(place / f"{name}.npz", **arrays)
    return place


def trial(folder: Path, function: str, *options: str, model: str = "model") -> list[str]:
    files = ["--rows", str(folder / "rows.npz"), "--model", str(folder / f"{model}.npz")]
    short = ["--looks", "2", "--request", "8", "--path", str(ROOT)]
    return ["looks", "try", f"tests.looks.{function}", *files, *short, *options]


def test_work_that_repeats_can_be_looked_at(folder: Path) -> None:
    done = run(*trial(folder, "network:gradient"))
    assert (done.code, done.stderr) == (0, "")
    said = cells(done.stdout)
    assert said["again, in the same way"][0] == "0"
    assert float(said["micro_batch=1"][0]) < 1e-5
    assert float(said["with changed last bits"][0]) < 1e-4
    assert said["w0"][0] == "float32"
    assert "2 of 2 honest reports with 4 threads in another process pass their look." in done.stdout
    assert "ε, the chance that honest work fails a look, is at most 77.64%" in done.stdout
    assert "Of 8 named rows a member could skip" in done.stdout
    assert "This work can be looked at. Code: " in done.stdout


def test_work_that_does_not_repeat_says_what_to_change(folder: Path) -> None:
    done = run(*trial(folder, "rehearsed:by_threads"))
    assert done.code == 1
    assert "0 of 2 honest reports with 4 threads" in done.stdout
    assert "The first that fails: tensor 'b0' differs by " in done.stdout
    assert "→ Name the way in which the other machine differs (--way)" in done.stdout
    assert "This work cannot be looked at as it is." in done.stdout


def test_a_trained_model_lets_rows_be_skipped_and_the_share_is_an_option(folder: Path) -> None:
    done = run(*trial(folder, "network:gradient", model="old"))
    assert done.code == 1
    assert "on this model a look does not see enough" in done.stdout
    assert run(*trial(folder, "network:gradient", "--share", "1", model="old")).code == 0


def test_work_that_cannot_be_done_says_why(folder: Path) -> None:
    done = run(*trial(folder, "rehearsed:crashes_with_one_row"))
    assert done.code == 1
    assert "The work cannot be looked at: with 1 row it raises ValueError in rehearsed.py, line " in done.stdout
    assert "secret" not in done.output


def test_a_rehearsal_as_json(folder: Path) -> None:
    report = run_json(*trial(folder, "network:local_training", "--sends", "models", "--way", "other=true"))
    assert report["repeats"]
    assert [one["way"] for one in report["ways"]][:2] == ["again, in the same way", "other=True"]
    assert set(report["tolerance"]) == set(network.untrained())
    assert report["looks"] == 2
    assert report["network"] in ("network namespace", "blocked sockets")
    assert len(report["code"]) == 64
    assert report["advice"] == []


def test_another_machines_reports_are_looked_at(folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "theirs.npz"
    assert run(*trial(folder, "network:gradient", "--save", str(saved))).code == 0
    done = run(*trial(folder, "network:gradient", "--against", str(saved)))
    assert f"2 of 2 honest reports of {saved} pass their look." in done.stdout
    with np.load(saved) as file:
        arrays = dict(file)
    arrays["1/w2"] = arrays["1/w2"] * np.float32(1.01)
    np.savez(saved, **arrays)  # pyright: ignore[reportArgumentType]
    done = run(*trial(folder, "network:gradient", "--against", str(saved)))
    assert done.code == 1
    assert f"1 of 2 honest reports of {saved} pass their look." in done.stdout
    assert run(*trial(folder, "network:gradient", "--against", str(saved), "--seed", "1")).code == 2
    done = run(*trial(folder, "network:gradient", "--against", str(folder / "rows.npz")))
    assert "`--against` must be a file that `guerdon looks try --save` wrote" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--request", "61"], "`rows` must be at least the 61 of `request`, got 60"),
        (["--way", "other"], "`--way` must be a name and a value, such as age=number, got 'other'"),
        (["--save", "theirs.txt"], "`--save` must end in .npz"),
        (["--minutes", "0"], "`--minutes` must be a positive integer, got 0"),
    ],
)
def test_a_rehearsal_of_nonsense_is_refused(folder: Path, options: list[str], message: str) -> None:
    done = run(*trial(folder, "network:gradient", *options))
    assert done.code == 2
    assert message in done.stderr


def test_a_function_that_is_not_there(folder: Path) -> None:
    words = trial(folder, "network:gradient")
    words[2] = "nowhere.app:work"
    assert "must be in a module with source that can be found, got 'nowhere.app:work'" in run(*words).stderr
    assert "cannot be imported: AttributeError" in run(*trial(folder, "network:nothing")).stdout


def test_help_shows_an_example() -> None:
    for command in (["looks", "plan"], ["looks", "try"], ["commit"]):
        assert "Example" in run(*command, "--help").stdout, command
