"""`guerdon pilot` as a person uses it."""

from pathlib import Path

import pytest

from tests.pilot.records import made_up
from tests.support.command_line import run, run_json


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made_up(-16, 5, seed=1, evidence=9.0).save(tmp_path / "pilot.json")
    return tmp_path / "pilot.json"


def test_the_report_is_printed(file: Path) -> None:
    result = run("pilot", str(file))
    assert (result.code, result.stderr) == (0, "")
    assert "pilot.json: 10 agents, 60 rounds, asked for 16 or 8 samples" in result.stdout
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines()]
    assert ["verdict", "pays for work here"] in rows
    assert any(row[:1] == ["a3"] for row in rows)
    assert "rule: An audit would flag 30% of the agents" in result.stdout
    assert "Use rule. It pays for work here." in result.stdout


def test_json_and_another_cost(file: Path) -> None:
    report = run_json("pilot", str(file), "--cost", "1 + 3 * s", "--alpha", "0.01")
    assert (report["full_cost"], report["alpha"]) == (49, 0.01)
    assert report["rules"][0]["verdict"] == "pays shirkers"
    assert report["recommended"] is None


def test_the_page_needs_nothing_else(file: Path, tmp_path: Path) -> None:
    result = run("pilot", str(file), "--html", str(tmp_path / "pilot.html"))
    assert result.code == 0
    page = (tmp_path / "pilot.html").read_text(encoding="utf-8")
    assert page.count("<svg") == page.count("</html>") == 1
    assert "pays for work here" in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )
    assert "<script" not in page


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_pilot_that_has_hardly_begun_has_a_page_too(rounds: int, tmp_path: Path) -> None:
    made_up(-16, 5, rounds=rounds).save(tmp_path / "pilot.json")
    result = run("pilot", str(tmp_path / "pilot.json"), "--html", str(tmp_path / "pilot.html"))
    assert (result.code, result.stderr) == (0, "")
    assert "Use none of these rules here." in result.stdout


def test_names_in_a_file_cannot_mark_up_the_page(tmp_path: Path) -> None:
    file = tmp_path / "pilot.json"
    made_up(-16, 5, rounds=8).save(file)
    file.write_text(file.read_text().replace('"a3"', '"<script>[bold]"'))
    result = run("pilot", str(file), "--html", str(tmp_path / "pilot.html"))
    assert "<script>[bold]" in result.stdout
    assert "&lt;script&gt;[bold]" in (tmp_path / "pilot.html").read_text(encoding="utf-8")
    assert "<script" not in (tmp_path / "pilot.html").read_text(encoding="utf-8")


def test_a_pilot_is_simulated_from_an_experiment(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[problem]\nkind = "linear"\ndim = 12\nmax_batch = 16\n[server]\nrequest = 8\nstep = 0.05\n'
        'rules = ["agreement", "flat"]\n[[agents]]\nkind = "cooperative"\ncount = 6\n[run]\nrounds = 20\n'
    )
    report = run_json("pilot", str(file), "--save", str(tmp_path / "pilot.json"))
    assert [rule["rule"] for rule in report["rules"]] == ["agreement", "flat"]
    assert report["rules"][1]["verdict"] == "pays shirkers"
    assert run_json("pilot", str(tmp_path / "pilot.json")) == report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.json"], "none.json cannot be opened: no such file or directory"),
        (["--alpha", "2", "pilot.json"], "`alpha` must be"),
        (["--cost", "s ** 0.5", "pilot.json"], "`cost` must be convex"),
        (["adaptive.toml"], "`server.request` must be one number for a pilot"),
        (["nonsense.json"], "cannot be read as a pilot"),
    ],
)
def test_wrong_input_is_one_clear_message(arguments: list[str], message: str, file: Path) -> None:
    (file.parent / "nonsense.json").write_text("{}")
    (file.parent / "adaptive.toml").write_text(
        '[problem]\nkind = "linear"\ndim = 4\n[server]\nrequest = "adaptive"\n'
        '[[agents]]\nkind = "cooperative"\ncount = 6\n'
    )
    result = run("pilot", *arguments, cwd=file.parent)
    assert result.code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
