"""The tutorials are notebooks as text: their cells run in a new folder, and what the page says of the results holds."""

import re
from pathlib import Path
from typing import Any

import pytest

from guerdon import registry
from tests.pages.test_pages import ROOT


def play(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the cells of a tutorial as a newcomer would, and return all names that they made."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    page = (ROOT / f"docs/tutorials/{name}.md").read_text()
    cells: list[str] = re.findall(r"^```\{code-cell\} python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    assert len(cells) >= 3
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in cells:
        exec(compile(cell, name, "exec"), names)  # noqa: S102 - our own page
    return names


def test_first_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = play("first-round", tmp_path, monkeypatch)
    paid = names["paid"]
    assert all(13 < paid[name] < 21 for name in ("Basel", "Berlin", "Lyon", "Porto"))  # honest work costs 17
    assert paid["Turin"] < 9  # what half of it costs
    assert paid["Vigo"] == 0
    model, best = names["accuracy"]
    assert model > best - 0.01
    assert (tmp_path / "first.db").exists()


@pytest.mark.slow
def test_simulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profit = play("simulate", tmp_path, monkeypatch)["profit"]
    assert profit["steady"]["zeros"] == 0
    assert -5 < profit["steady"]["works"] < 0
    assert profit["steady"]["half the work"] < -8  # it loses nearly all that it cost, 9
    assert profit["agreement"]["zeros"] > 5


@pytest.mark.slow
def test_own_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = play("own-rule", tmp_path, monkeypatch)["left"]
    assert left["share"].round(1).tolist() == [0.0] * 8 + [4.0, 9.0]
    assert left["agreement"][8] < 0 < left["agreement"][9]
