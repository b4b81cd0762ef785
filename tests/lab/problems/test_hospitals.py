"""The four hospitals: made-up files of their form here, and the real ones where GUERDON_HOSPITALS names them."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from guerdon.lab.problems import hospitals
from guerdon.lab.problems.hospitals import FILES, VARIABLE, load_hospitals

MADE_UP = {
    "cleveland": "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0\n"
    "67.0,0.0,4.0,160.0,286.0,0.0,2.0,108.0,1.0,1.5,2.0,3.0,3.0,2\n",
    "hungarian": "28,1,2,130,132,0,2,185,0,0,?,?,?,0\n",
    "switzerland": "32,1,1,95,0,?,0,127,0,.7,1,?,?,1\n",
    "va": "63,1,4,0,260,0,1,112,1,3,2,?,?,2\n44,1,4,130,209,0,1,127,0,0,?,?,?,0\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small files, which are taken for the real ones."""
    for name, text in MADE_UP.items():
        (tmp_path / f"{name}.csv").write_text(text)
        monkeypatch.setitem(FILES, name, hashlib.sha256(text.encode()).hexdigest())
    return tmp_path


def test_missing_numbers_are_the_mean_and_have_a_column(folder: Path) -> None:
    found = load_hospitals(folder)
    assert found is not None
    assert [one.name for one in found.all] == ["cleveland", "hungarian", "switzerland", "va"]
    assert [one.labels.tolist() for one in found.all] == [[0, 1], [0], [1], [1, 0]]
    rows = dict(zip(found.columns, np.concatenate([one.features for one in found.all]).T, strict=True))
    # In Switzerland, and for the first of Long Beach, 0 means that nothing was measured.
    assert rows["chol missing"].tolist() == [0, 0, 0, 1, 0, 0]
    assert rows["trestbps missing"].tolist() == [0, 0, 0, 0, 1, 0]
    assert rows["chol"][3] == rows["trestbps"][4] == rows["ca"][2] == 0
    assert "age missing" not in found.columns
    for name in hospitals.NUMBERS:
        assert rows[name].mean() == pytest.approx(0, abs=1e-6)
    assert rows["age"].std() == pytest.approx(1)
    # A missing answer is none of the answers.
    assert rows["slope=1"].tolist() == [0, 0, 0, 1, 0, 0]
    assert rows["slope missing"].tolist() == [0, 0, 1, 0, 0, 1]


def test_every_hospital_draws_from_its_own_rows(folder: Path) -> None:
    found = load_hospitals(folder)
    assert found is not None
    problem = found.federation(4)
    assert problem.counts.tolist() == [2, 1, 1, 2]
    for own, hospital in zip(found.rows(), found.all, strict=True):
        np.testing.assert_array_equal(problem.problem.features[own], hospital.features)


def test_other_files_are_refused(folder: Path) -> None:
    (folder / "va.csv").write_text(MADE_UP["va"] * 2)
    with pytest.raises(ValueError, match=r"`folder` must have va.csv with SHA-256 .*archive.ics.uci.edu"):
        load_hospitals(folder)
    (folder / "va.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"`folder` must name a folder with va.csv"):
        load_hospitals(folder)


def test_without_a_folder_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert load_hospitals() is None


@pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} names no folder")
def test_the_real_hospitals_are_who_they_are() -> None:
    found = load_hospitals()
    assert found is not None
    assert [len(one.labels) for one in found.all] == [303, 294, 123, 200]
    assert [int(one.labels.sum()) for one in found.all] == [139, 106, 115, 149]
    swiss = found.all[2].features[:, found.columns.index("chol missing")]
    assert swiss.all()
    assert all(np.isfinite(one.features).all() for one in found.all)
