"""`guerdon arena` as a person uses it, wrong input included; with a rule of one's own among the slow tests."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import run, start

# The ten lines of docs/explanation/arena.md.
OWN_RULE = """
from dataclasses import dataclass
from guerdon import Cost
from guerdon.lab.arena import ToldRule, announced_by, begin, enter, plain_payments
from guerdon.rule import Need
@dataclass(frozen=True)
class HalfFlat(ToldRule):
    cost: Cost
    facts: object = None
    name, needs = "half-flat", frozenset({Need.COSTS, Need.ANNOUNCEMENTS})
    def pay(self, state, round):
        state, status, nu = begin(state, round)
        return plain_payments(self.cost(nu) / 2 + announced_by(self, status) / 2, status), state
@enter("half-flat", "Half of the cost to everybody, and half a unit for each announced sample.")
def make(setting):
    return HalfFlat(setting.cost)
"""


def test_a_file_that_does_not_run_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("one = 1\ntwo = one / 0\n")
    result = run("arena", "--load", "mine.py", cwd=tmp_path)
    assert result.code == 2
    assert "mine.py, line 2: ZeroDivisionError: division by zero" in result.stderr


def test_a_folder_that_cannot_be_made_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    result = run("arena", "--rules", "flat", "--out", "taken", cwd=tmp_path)
    assert result.code == 2
    assert "taken" in result.stderr


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("--rules", "flatt"), "must be one of flat, samples"),
        (("--rules", ","), "`--rules` must name rules with commas between them"),
        (("--rules", "known:0"), "`variance` must be a finite number above 0"),
        (("--problem", "lungs"), "`problem` must be one of 'linear', 'heart'"),
        (("--agents", "2"), "`agents` must be at least 4"),
        (("--different",), "choose heart or network"),
        (("--repetitions", "1"), "must be at least 2"),
        (("--seed", "-1"), "`--seed` must be 0 or more, got -1"),
        (("--load", "none.py"), "none.py cannot be opened"),
    ],
)
def test_wrong_input_is_told_before_the_work(tmp_path: Path, given: tuple[str, ...], error: str) -> None:
    result = run("arena", *given, cwd=tmp_path)
    assert result.code == 2
    assert error in result.stderr


@pytest.mark.slow
def test_a_rule_of_your_own_joins_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_RULE)
    given = ("--load", "mine.py", "--rules", "half-flat,flat", "--problem", "still", "--agents", "4", "--quick")
    result = start("arena", *given, "--json", cwd=tmp_path)  # in a process of its own: its rule does not stay
    assert result.code == 0, result.stderr
    told = json.loads(result.stdout)["rules"]["half-flat"]
    assert told["needs"] == ["what work costs", "how many samples agents say they used"]
    assert told["gains"]["false claim"] == {"value": pytest.approx(8.0), "error": pytest.approx(0, abs=1e-6)}
    assert "Half of the cost to everybody" in (tmp_path / "arena" / "rules" / "half-flat.html").read_text()
