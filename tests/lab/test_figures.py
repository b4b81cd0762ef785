"""Figures hold what they say they hold, and the same data give the same file."""

from pathlib import Path

import numpy as np
import pytest

from guerdon import AffineCost, MinibatchGame
from guerdon.lab.figures import audit_figure, pilot_figure, plan_figure, save_figure, utility_figure
from guerdon.pilot import assess
from tests.pilot.records import made_up
from tests.support.print import check_print

GAME = MinibatchGame(num_agents=10, request=8, cost=AffineCost(1, 1), max_batch=32)


def test_curves_are_those_of_the_game() -> None:
    axes = utility_figure(GAME, others=8, cost_text="1 + s").axes[0]
    curves = {str(line.get_label()): line.get_ydata() for line in axes.get_lines()}
    utility, reward = list(curves["utility = reward − cost"]), list(curves["expected reward"])  # pyright: ignore[reportArgumentType]
    assert utility[1] == pytest.approx(-18)
    assert reward[15] == pytest.approx(13)
    assert any("best response: 8" in text.get_text() for text in axes.texts)


def test_declining_can_be_the_best_response() -> None:
    axes = utility_figure(GAME, others=0, cost_text="1 + s").axes[0]
    assert any("best response: decline" in text.get_text() for text in axes.texts)


def test_files_are_reproducible(tmp_path: Path) -> None:
    for kind in ("svg", "pdf"):
        for name in "ab":
            save_figure(utility_figure(GAME, others=8, cost_text="1 + s"), tmp_path / f"{name}.{kind}")
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_figures_are_fit_for_print() -> None:
    check_print(utility_figure(GAME, others=8, cost_text="1 + s"))
    check_print(audit_figure([1, 2], np.array([[0.0, 1.0], [1.0, 9.0]]), ["a", "b"], [None, 1], 0.001, "an audit"))
    ends = {"median": 2.0, "low": 1.0, "high": 3.0}
    policies = [
        {"policy": name, "request": n, "rounds": ends, "total_reward": ends} for n, name in ((None, "a"), (2, "b"))
    ]
    check_print(plan_figure({"recommended": "a", "policies": policies}, "a plan"))
    check_print(pilot_figure(assess(made_up(-8.0, 1.0, rounds=4))))


def test_every_kind_of_file_has_the_same_layout(tmp_path: Path) -> None:
    figure = utility_figure(GAME, others=8, cost_text="1 + s")
    save_figure(figure, tmp_path / "a.svg")
    place = figure.axes[0].get_position().bounds
    save_figure(figure, tmp_path / "a.png")
    assert figure.axes[0].get_position().bounds == place
