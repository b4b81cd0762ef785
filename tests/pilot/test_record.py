"""A pilot's file: what is written is what is read, and what cannot be a pilot is refused with the reason."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon.pilot import PilotRecord, RoundScores
from tests.pilot.records import made_up


def same(first: PilotRecord, second: PilotRecord) -> None:
    for name, value in vars(first).items():
        np.testing.assert_equal(getattr(second, name), value, err_msg=name)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    record = made_up(-16, 5, rounds=7)
    record.save(tmp_path / "pilot.json")
    same(record, PilotRecord.load(tmp_path / "pilot.json"))
    assert [file.name for file in tmp_path.iterdir()] == ["pilot.json"]
    assert np.isnan(record.pay["rule"]).any()


def test_a_pilot_without_rounds_is_one(tmp_path: Path) -> None:
    record = PilotRecord(16, "1 + s", "models")
    record.save(tmp_path / "pilot.json")
    assert PilotRecord.load(tmp_path / "pilot.json").rounds == 0


def test_agents_join_later() -> None:
    record = made_up(-16, 5, rounds=3, agents=4)
    five = np.arange(5.0)
    scores = RoundScores({"rule": five}, {"rule": {"nothing": 1.0}}, {"rule": five}, 1.0, 1.0)
    record = record.with_round([*record.agents, "late"], np.full(5, 16), np.ones(5, dtype=bool), scores)
    assert record.asked[:, 4].tolist() == [0, 0, 0, 16]
    assert record.sent[:, 4].tolist() == [0, 0, 0, 1]
    assert np.isnan(record.pay["rule"][:3, 4]).all()
    assert record.pay["rule"][3].tolist() == five.tolist()
    assert record.ghosts["rule"]["nothing"].shape == (4,)
    with pytest.raises(ValueError, match="`agents` must begin with those of the earlier rounds"):
        record.with_round(["other"] * 5, np.full(5, 16), np.ones(5, dtype=bool), scores)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "`format` must be 'guerdon-pilot'"),
        ({"version": 2}, "`version` must be 1, got 2"),
        ({"request": 0}, "`request` must be a positive integer"),
        ({"request": "16"}, "`request` must be a positive integer"),
        ({"sends": "trees"}, "`sends` must be one of"),
        ({"cost": "__import__('os')"}, "cannot be read as a pilot"),
        ({"agents": ["a", "a", "b", "c"]}, "`agents` must be a list of different names"),
        ({"agents": ["\x1b[2J", "a", "b", "c"]}, "names that can be printed"),
        ({"asked": [[16, 16, 16], [8, 16, 16]]}, "`asked` must have shape (2, 4), got (2, 3)"),
        ({"asked": [[16, 16, 16, 5], [16, 16, 16, 8]]}, "`asked` must be one of (0, 16, 8)"),
        ({"asked": 5}, "cannot be read as a pilot"),
        ({"sent": [[True, True, True, True], [True, True, True, 0.5]]}, "`sent` must be true or false"),
        ({"pay": {"rule": [[1, 2, 3, 4]]}}, "`pay.rule` must have shape (2, 4), got (1, 4)"),
        ({"pay": {"rule": [[1, 2, 3, 4], [1, 2, 3]]}}, "`pay.rule` must hold numbers or null"),
        ({"pay": {"rule": [["x", 2, 3, 4], [1, 2, 3, 4]]}}, "`pay.rule` must hold numbers or null"),
        ({"pay": [1]}, "`pay` must be a table"),
        ({"ghosts": {"rule": {"nothing": [1, float("inf")]}}}, "`ghosts.rule.nothing` must hold finite numbers"),
        ({"signal": [1]}, "`signal` must have shape (2,), got (1,)"),
        ({"signal": None}, "`signal` must have shape"),
    ],
)
def test_what_is_no_pilot_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "pilot.json"
    made_up(-16, 5, rounds=2, agents=4).save(file)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ValueError, match="cannot be read as a pilot") as caught:
        PilotRecord.load(file)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"format": "guerdon-pilot"}', "[" * 100_000])
def test_nonsense_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "pilot.json").write_text(text)
    with pytest.raises(ValueError, match="cannot be read as a pilot"):
        PilotRecord.load(tmp_path / "pilot.json")
