"""Figures hold what they say they hold, and the same data give the same file."""

from pathlib import Path

import pytest

from guerdon import AffineCost, MinibatchGame
from guerdon.figures import save_figure, utility_figure

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
    for name in ("a.svg", "b.svg"):
        save_figure(utility_figure(GAME, others=8, cost_text="1 + s"), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
