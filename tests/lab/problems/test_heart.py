"""The survey of the paper, real and synthetic: recognised or refused, prepared without leaks, and alike.

Tests of the real file need it: they look where GUERDON_HEART_DATA says, and skip otherwise.
Everything here has a fixed seed, and what is random is held to a stated number of standard errors.
"""

import functools
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from guerdon.lab.problems import heart
from guerdon.lab.problems.heart import HeartData, Survey, load_survey, prepare
from guerdon.lab.problems.heart_synthetic import curve, draw_frame, load_figures, margins, steps

ROOT = Path(__file__).parents[3]
REAL_PATH = Path(os.environ.get(heart.VARIABLE) or "heart_2020_cleaned.csv")
needs_real = pytest.mark.skipif(
    not REAL_PATH.is_file(), reason=f"the CDC survey is absent: set {heart.VARIABLE} to heart_2020_cleaned.csv or .zip"
)
SOURCES = [pytest.param("real", marks=needs_real), "synthetic"]
NUMERIC = ["BMI", "PhysicalHealth", "MentalHealth", "SleepTime"]
# About 500 shares and means are compared: a false alarm at 5 standard errors has a chance below 1 in 2000.
SURE = 5.0


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(heart.VARIABLE, raising=False)


@functools.cache
def survey(source: str) -> Survey:
    return load_survey(REAL_PATH) if source == "real" else Survey(draw_frame(), "synthetic")


@functools.cache
def data(source: str, seed: int = 0) -> HeartData:
    return prepare(survey(source), seed)


def small_survey(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `content` the one that the loader knows."""
    monkeypatch.setattr(heart, "CSV_SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(heart, "CSV_SIZE", len(content))


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def people(sick: list[bool], **answers: Any) -> Survey:
    return Survey(pl.DataFrame({"HeartDisease": ["Yes" if one else "No" for one in sick], **answers}), "synthetic")


CONTENT = b"HeartDisease,BMI,Smoking\r\nNo,16.6,Yes\r\nYes,20.34,No\r\n"


# Reading


@needs_real
def test_the_real_file_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken out of its zip too; half of it is refused."""
    real = survey("real")
    assert (real.source, real.label) == ("real", "CDC survey 2020")
    assert real.frame.shape == (319_795, 18)
    assert dict(real.frame["HeartDisease"].value_counts().iter_rows()) == {"No": 292_422, "Yes": 27_373}
    assert [name for name in real.frame.columns if real.frame.schema[name].is_numeric()] == NUMERIC
    assert sum(real.frame.null_count().row(0)) == 0
    content = REAL_PATH.read_bytes()
    if REAL_PATH.suffix == ".zip":
        with zipfile.ZipFile(REAL_PATH) as archive:
            content = archive.read("heart_2020_cleaned.csv")
    (tmp_path / "any name.CSV").write_bytes(content)
    assert load_survey(str(tmp_path / "any name.CSV")).frame.equals(real.frame)
    (tmp_path / "cut.csv").write_bytes(content[: len(content) // 2])
    monkeypatch.setenv(heart.VARIABLE, str(tmp_path / "cut.csv"))
    with pytest.raises(ValueError, match=r"`GUERDON_HEART_DATA` must hold .* got 12,594,777 bytes .* \(cut short\?\)"):
        load_survey()


def test_csv_and_zip_and_variable_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_survey(CONTENT, monkeypatch)
    (tmp_path / "h.csv").write_bytes(CONTENT)
    # Kaggle's archive holds later versions too, each in its folder.
    members = {"2022/heart_2022_no_nans.csv": b"other", "2020/heart_2020_cleaned.csv": CONTENT}
    expected = pl.DataFrame({"HeartDisease": ["No", "Yes"], "BMI": [16.6, 20.34], "Smoking": ["Yes", "No"]})
    for path in (tmp_path / "h.csv", str(write_zip(tmp_path / "h.zip", members))):
        assert load_survey(path).frame.equals(expected)
        monkeypatch.setenv(heart.VARIABLE, str(path))
        assert load_survey().frame.equals(expected)
        assert load_survey().source == "real"


def test_a_given_path_goes_before_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(heart.VARIABLE, str(tmp_path / "variable.csv"))
    with pytest.raises(FileNotFoundError, match=r"`path` must name a file that exists, got '.*given\.csv'"):
        load_survey(tmp_path / "given.csv")
    with pytest.raises(FileNotFoundError, match=r"`GUERDON_HEART_DATA` must name a file that exists.*variable\.csv'"):
        load_survey()


@pytest.mark.parametrize("content", [b"", b"HeartDisease,BMI\nNo,1\n", CONTENT[:-1], CONTENT + b"\n"])
def test_a_wrong_csv_is_refused_with_what_was_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    small_survey(CONTENT, monkeypatch)
    (tmp_path / "h.csv").write_bytes(content)
    write_zip(tmp_path / "h.zip", {"heart_2020_cleaned.csv": content})
    for path in (tmp_path / "h.csv", tmp_path / "h.zip"):
        with pytest.raises(ValueError, match=r"`path` must hold heart_2020_cleaned\.csv of 53 bytes") as caught:
            load_survey(path)
        message = str(caught.value)
        assert f"SHA-256 {hashlib.sha256(CONTENT).hexdigest()}, got {len(content)} bytes" in message
        assert f"SHA-256 {hashlib.sha256(content).hexdigest()}" in message
        assert ("(cut short?)" in message) == (content == CONTENT[:-1])


KIND = r"`path` must name a \.csv or \.zip file, got "
HOLDS = r"must name a zip file that holds heart_2020_cleaned\.csv, got one with "


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("survey.txt", CONTENT, KIND),
        ("survey.csv.gz", CONTENT, KIND),
        ("survey", CONTENT, KIND),
        ("gone.txt", None, KIND),
        ("gone.csv", None, "must name a file that exists"),
        ("folder.csv", "folder", "must name a file that exists"),
        ("wrong.csv", b"x", "`path` must hold"),
        ("wrong.zip", b"x", "`path` must name a whole zip file"),
        ("without.zip", {"a.csv": b"1", "b.csv": b"2"}, HOLDS + r"a\.csv, b\.csv;"),
        ("empty.zip", {}, HOLDS + "nothing;"),
    ],
)
def test_every_refusal_says_where_to_get_the_file(tmp_path: Path, name: str, content: Any, message: str) -> None:
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif isinstance(content, dict):
        write_zip(tmp_path / name, content)
    elif content == "folder":
        (tmp_path / name).mkdir()
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        load_survey(tmp_path / name)
    for part in ("Kamil Pytlak", "Personal Key Indicators of Heart Disease", "2020 version", "kaggle.com", "unset"):
        assert part in str(caught.value)


def test_a_damaged_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = np.random.default_rng(0).bytes(2000)
    small_survey(content, monkeypatch)
    whole = write_zip(tmp_path / "h.zip", {"heart_2020_cleaned.csv": content}).read_bytes()
    flipped = whole[:900] + bytes([whole[900] ^ 255]) + whole[901:]
    for damaged in (b"", b"PK\x03\x04", whole[:1000], whole[:-10], whole[100:], flipped):
        (tmp_path / "d.zip").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"`path` must name a whole zip file, got '.*d\.zip' \("):
            load_survey(tmp_path / "d.zip")


# Preparing


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_prepared(source: str) -> None:
    """Shapes and columns; training rows are standardised and validation rows nearly; labels are balanced."""
    prepared = data(source)
    assert prepared.train_features.shape == (43_796, 38)
    assert prepared.validation_features.shape == (10_950, 38)
    assert (prepared.train_labels.shape, prepared.validation_labels.shape) == ((43_796,), (10_950,))
    assert len(set(prepared.columns)) == 38
    assert prepared.columns[:3] == ("intercept", "BMI", "Smoking=Yes")
    assert prepared.columns == data("synthetic").columns
    assert (prepared.source, prepared.label) == (source, survey(source).label)
    for array in (prepared.train_features, prepared.validation_features, prepared.train_labels):
        assert array.dtype == np.float32
        assert np.isfinite(array).all()
    assert (prepared.train_features[:, 0] == 1).all()
    assert (prepared.validation_features[:, 0] == 1).all()
    train = prepared.train_features[:, 1:].astype(np.float64)
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(train.std(axis=0), 1, atol=1e-5)
    # Of 37 means, each with standard error √(1/10950 + 1/43796), and not exactly 0: then they would be a leak.
    means = prepared.validation_features[:, 1:].mean(axis=0) / np.sqrt(1 / 10_950 + 1 / 43_796)
    assert 0.3 < np.std(means) < 2
    assert np.abs(means).max() < SURE
    labels = np.concatenate([prepared.train_labels, prepared.validation_labels])
    assert set(labels) == {0.0, 1.0}
    assert labels.sum() == len(labels) / 2 == 27_373


@pytest.mark.parametrize(("positives", "kept", "ill"), [(0.5, 224, 112), (0.01, 897, 9), (None, 1000, 112)])
def test_no_row_is_in_both_parts_or_twice(positives: float | None, kept: int, ill: int) -> None:
    """Half of the rows are positive, one in a hundred, or as many as there are: 112 of 1,000."""
    sick = np.arange(1000) % 9 == 0
    rows, training = heart._choose_rows(sick, seed=3, positives=positives)
    assert len(set(rows)) == len(rows) == kept
    assert sick[rows].sum() == ill
    assert not set(rows[:training]) & set(rows[training:])
    assert training == int(0.8 * len(rows))
    # Random order: both labels are in both parts, and nothing is sorted.
    assert 0 < sick[rows[training:]].sum() < len(rows) - training
    assert (np.diff(rows) < 0).any()


def test_rows_keep_their_own_labels_and_answers() -> None:
    """Rows that can be told apart come out whole: undo the standardisation and look each one up."""
    count = range(200)
    races = [("White", "Asian", "Black")[k % 3] for k in count]
    prepared = prepare(people([k % 4 == 0 for k in count], BMI=[k + 10.0 for k in count], Race=races))
    assert prepared.columns == ("intercept", "BMI", "Race=Asian", "Race=Black")
    features = np.concatenate([prepared.train_features, prepared.validation_features])
    labels = np.concatenate([prepared.train_labels, prepared.validation_labels])
    sick = features[labels == 1, 1]  # all of them are kept: rows 0, 4, …, 196
    number = np.rint((features[:, 1] - sick.min()) / (sick.max() - sick.min()) * 196).astype(int)
    np.testing.assert_array_equal(labels, number % 4 == 0)
    np.testing.assert_array_equal(features[:, 2] > 0, number % 3 == 1)
    np.testing.assert_array_equal(features[:, 3] > 0, number % 3 == 2)


def test_a_constant_column_gives_no_nan() -> None:
    assert (prepare(people([True, False] * 10, BMI=[20.0] * 20)).train_features == [1, 0]).all()


def test_what_cannot_be_prepared() -> None:
    for seed in (-1, 1.5, True, None):
        with pytest.raises(ValueError, match="`seed` must be an integer of at least 0, got "):
            prepare(survey("synthetic"), seed)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`survey` must hold people with and without heart disease, got 20 rows"):
        prepare(people([False] * 20, BMI=[20.0] * 20))


# The synthetic survey


def test_the_synthetic_survey_says_so_and_is_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable counts as none; what is prepared depends on the seed alone."""
    monkeypatch.setenv(heart.VARIABLE, "")
    drawn = load_survey()
    assert drawn.source == "synthetic"
    assert drawn.frame.equals(survey("synthetic").frame)
    assert not draw_frame(seed=1).equals(drawn.frame)
    first, again, other = prepare(drawn), data("synthetic"), data("synthetic", 1)
    assert drawn.label == first.label == "synthetic survey (not the CDC data)"
    np.testing.assert_array_equal(first.train_features, again.train_features)
    np.testing.assert_array_equal(first.validation_labels, again.validation_labels)
    assert not np.array_equal(first.train_labels, other.train_labels)


def test_the_synthetic_survey_has_the_columns_and_levels_of_the_figures() -> None:
    figures, frame = load_figures(), survey("synthetic").frame
    assert frame.columns == figures["columns"]
    assert dict(frame["HeartDisease"].value_counts().iter_rows()) == {"No": 292_422, "Yes": 27_373}
    for name, levels in figures["levels"].items():
        assert set(frame[name].unique()) <= set(levels)
        if isinstance(levels[0], str):
            assert set(frame[name].unique()) == set(levels)
            counts = np.sum([group["margins"][name] for group in figures["labels"].values()], axis=0)
            assert heart.COMMON_ANSWERS.get(name, "No") == levels[np.argmax(counts)]  # the answer left out
    assert not frame.head(1000)["HeartDisease"].is_sorted()


@pytest.mark.parametrize("label", ["Yes", "No"])
def test_margins_are_those_of_the_figures(label: str) -> None:
    """Every share within 5 standard errors, for each label; its quantiles for BMI."""
    figures = load_figures()
    group = survey("synthetic").frame.filter(pl.col("HeartDisease") == label)
    fitted = figures["labels"][label]["margins"]
    for name, levels in figures["levels"].items():
        counts = dict(group[name].value_counts().iter_rows())
        shares = np.array([counts.get(level, 0) for level in levels]) / group.height
        expected = np.array(fitted[name]) / group.height
        errors = np.sqrt(expected * (1 - expected) / group.height)
        assert (np.abs(shares - expected) <= SURE * errors + 1 / group.height).all(), name
    for share, quantile in zip(figures["shares"], fitted["BMI"], strict=True):
        below = (group["BMI"].to_numpy() <= quantile).mean()
        # Between quantiles BMI is drawn evenly and then rounded, which moves the share a little.
        assert abs(below - share) <= SURE * np.sqrt(share * (1 - share) / group.height) + 0.003


def test_figures_make_sense() -> None:
    figures = load_figures()
    assert (ROOT / "src/guerdon/lab/problems/heart_figures.json").stat().st_size < 100_000
    assert figures["sha256"] == heart.CSV_SHA256
    for label, group in figures["labels"].items():
        matrix = np.array(group["correlation"])
        assert matrix.shape == (17, 17)
        np.testing.assert_array_equal(matrix, matrix.T)
        assert np.linalg.eigvalsh(matrix).min() > 0.1
        assert list(margins(figures, label)) == figures["columns"][1:]
        assert all(sum(group["margins"][name]) == group["rows"] for name in figures["levels"])


def test_margins_by_hand() -> None:
    latent = np.array([-3.0, -0.1, 0.1, 3.0])
    np.testing.assert_array_equal(steps([5, 5]).place(latent), [0, 0, 1, 1])
    np.testing.assert_array_equal(steps([0, 5, 0, 5, 0]).place(latent), [1, 1, 3, 3])
    np.testing.assert_allclose(curve([0, 0.5, 1], [10, 20, 60]).place(np.array([-9.0, 0.0, 9.0])), [10, 20, 60])


@needs_real
def test_the_figures_can_be_fitted_again(tmp_path: Path) -> None:
    """The script that made them gives them again; correlations to one unit of their last decimal."""
    output = tmp_path / "figures.json"
    subprocess.run([sys.executable, str(ROOT / "tools/fit_heart.py"), str(REAL_PATH), str(output)], check=True)
    again, kept = json.loads(output.read_text(encoding="utf-8")), load_figures()
    for label in ("Yes", "No"):
        correlations = [figures["labels"][label].pop("correlation") for figures in (again, kept)]
        np.testing.assert_allclose(*correlations, atol=0.0011)
    assert again == kept


@needs_real
def test_the_synthetic_survey_is_like_the_real_one() -> None:
    """The same columns and levels; correlations of all encoded columns differ by less than 0.015 on average."""
    frames = [survey(source).frame for source in ("real", "synthetic")]
    assert frames[0].schema == frames[1].schema
    for name in set(frames[0].columns) - set(NUMERIC):
        assert set(frames[0][name].unique()) == set(frames[1][name].unique())
    real, drawn = (np.corrcoef(data(source).train_features[:, 1:].T) for source in ("real", "synthetic"))
    assert np.abs(real - drawn).mean() < 0.015
    # With the columns made independent the same difference would be four times as large.
    assert np.abs(real - np.eye(37)).mean() > 4 * np.abs(real - drawn).mean()


# What the paper's Fig. 5 needs of both


def fit_logistic(features: Any, labels: Any) -> Any:
    """Return the maximum-likelihood coefficients, by Newton's method."""
    model = np.zeros(features.shape[1])
    for _ in range(8):
        chance = 1 / (1 + np.exp(-features @ model))
        curvature = (features * (chance * (1 - chance))[:, None]).T @ features
        model += np.linalg.solve(curvature, features.T @ (labels - chance))
    return model


def accuracy(features: Any, labels: Any, models: Any) -> Any:
    """Return the share of rows that each of the models (models, columns) tells right."""
    return np.mean((features @ models.T > 0) == (labels[:, None] > 0.5), axis=0)


# That ν = 2 is the cheapest, on both, is a claim of Fig. 5, which tests/lab/experiments/test_reproduce.py checks.
@pytest.mark.parametrize("source", SOURCES)
def test_the_best_accuracy_is_that_of_the_paper(source: str) -> None:
    """The best fit reaches 0.764 on validation rows. One standard error is √(0.764·0.236/10950) = 0.004."""
    prepared = data(source)
    model = fit_logistic(prepared.train_features.astype(np.float64), prepared.train_labels)[None]
    assert abs(accuracy(prepared.validation_features, prepared.validation_labels, model)[0] - 0.764) < 0.004
    assert abs(accuracy(prepared.train_features, prepared.train_labels, model)[0] - 0.764) < 0.004
