"""The CDC heart-disease survey of the paper's second experiment, and the synthetic one that replaces it.

The real file is not part of the package. `load_survey` reads it if you have it, and checks its SHA-256; otherwise it
draws a synthetic survey. `prepare` makes either ready for logistic regression. Both carry a `label` that says which of
the two they are: put it into every table and figure.
"""

import hashlib
import os
import zlib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from zipfile import BadZipFile, ZipFile

import numpy as np
import polars as pl

from guerdon.lab.problems.heart_synthetic import LABEL, draw_frame
from guerdon.lab.problems.logistic_regression import LogisticRegression, logistic_regression

VARIABLE = "GUERDON_HEART_DATA"
CSV_NAME = "heart_2020_cleaned.csv"
CSV_SHA256 = "90a1e2e8bdcb4aba54314a41d35d2ac3be4763e459df33951e08e415f527f5a8"
CSV_SIZE = 25_189_554
WHERE = (
    f'get {CSV_NAME} of "Personal Key Indicators of Heart Disease" by Kamil Pytlak, 2020 version, from '
    "https://www.kaggle.com/datasets/kamilpytlak/personal-key-indicators-of-heart-disease, "
    f"or give no path and leave {VARIABLE} unset to use the synthetic survey"
)
SOURCE_LABELS = {"real": "CDC survey 2020", "synthetic": "synthetic survey (not the CDC data)"}
TRAINING_SHARE = 0.8
# The most common answer to each question is left out when answers become columns; where none is named, it is "No".
COMMON_ANSWERS = {
    "Sex": "Female",
    "AgeCategory": "65-69",
    "Race": "White",
    "PhysicalActivity": "Yes",
    "GenHealth": "Very good",
}

Source = Literal["real", "synthetic"]


@dataclass(frozen=True, eq=False)
class Survey:
    """The answers, one row per person and 18 columns, and where they come from."""

    frame: pl.DataFrame
    source: Source

    @property
    def label(self) -> str:
        return SOURCE_LABELS[self.source]


@dataclass(frozen=True, eq=False)
class HeartData:
    """Features (rows, 38) and labels (rows,), 1 for heart disease, in float32; `columns` names the features."""

    train_features: Any
    train_labels: Any
    validation_features: Any
    validation_labels: Any
    columns: tuple[str, ...]
    source: Source

    @property
    def label(self) -> str:
        """Return in words where the data come from, for tables and figures."""
        return SOURCE_LABELS[self.source]

    def regression(self, max_batch: int, rows: int | None = None) -> LogisticRegression:
        """Return logistic regression on the survey; `rows` validation rows measure accuracy (default: all)."""
        validation = self.validation_features[:rows], self.validation_labels[:rows]
        return logistic_regression(self.train_features, self.train_labels, *validation, max_batch=max_batch)


def load_survey(path: Path | str | None = None) -> Survey:
    """Return the real survey from `path`, else from the file that GUERDON_HEART_DATA names, else a synthetic one.

    The file may be the CSV or a zip that holds it. Any other content is refused: results from another version of the
    survey would not be comparable. The synthetic survey is the same every time.
    """
    name, chosen = ("path", path) if path is not None else (VARIABLE, os.environ.get(VARIABLE) or None)
    if chosen is None:
        return Survey(draw_frame(), "synthetic")
    content = _read_csv(name, Path(chosen).expanduser())
    _check_content(name, content)
    return Survey(pl.read_csv(content), "real")


def prepare(survey: Survey, seed: int = 0, positives: float | None = 0.5) -> HeartData:
    """Return the survey ready for logistic regression, split 80/20 into training and validation rows at random.

    `positives` is the share of people with heart disease: as many of both kinds are kept as it allows, at random. By
    default both are equally many; None keeps all rows as they are (8.6 % in the real survey). Categories are one-hot
    with the most common answer left out. These 37 columns are standardised with the mean and standard deviation of the
    training rows, and an intercept comes first: 38 in all.

    The paper does not say how it prepared the survey. With its 10 agents and step 0.1, and ν = 1…16, 75.5 % is reached
    in 126…46 rounds [measured]. If only the four numbers were standardised, every ν would take 600 to 700; if the
    alphabetically first answers were left out, which are rare ones for age, race and health, 226…78.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"`seed` must be an integer of at least 0, got {seed!r}")
    sick = (survey.frame[LABEL] == "Yes").to_numpy()
    if positives is not None and not 0 < positives < 1:
        raise ValueError(f"`positives` must be a share above 0 and below 1, or None for all rows, got {positives!r}")
    rows, training = _choose_rows(sick, seed, positives)
    encoded = _encode(survey.frame[rows])
    features = _standardise(encoded.to_numpy(), training)
    labels = sick[rows].astype(np.float32)
    return HeartData(
        train_features=features[:training],
        train_labels=labels[:training],
        validation_features=features[training:],
        validation_labels=labels[training:],
        columns=("intercept", *encoded.columns),
        source=survey.source,
    )


def _read_csv(name: str, path: Path) -> bytes:
    """Return the content of the CSV, taken out of a zip if it is in one."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".zip"):
        raise ValueError(f"`{name}` must name a .csv or .zip file, got '{path}'; {WHERE}")
    if not path.is_file():
        raise FileNotFoundError(f"`{name}` must name a file that exists, got '{path}'; {WHERE}")
    content = path.read_bytes()
    return content if kind == ".csv" else _unzip(name, path, content)


def _unzip(name: str, path: Path, content: bytes) -> bytes:
    try:
        with ZipFile(BytesIO(content)) as archive:
            members = archive.namelist()
            files = [archive.read(member) for member in members if PurePosixPath(member).name == CSV_NAME]
    # What zipfile raises depends on where the file is damaged; RuntimeError means a password.
    except (BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"`{name}` must name a whole zip file, got '{path}' ({error}); {WHERE}") from error
    if not files:
        listed = ", ".join(members[:5]) or "nothing"
        raise ValueError(f"`{name}` must name a zip file that holds {CSV_NAME}, got one with {listed}; {WHERE}")
    return files[0]


def _check_content(name: str, content: bytes) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest == CSV_SHA256:
        return
    short = content.startswith(f"{LABEL},BMI,".encode()) and len(content) < CSV_SIZE
    raise ValueError(
        f"`{name}` must hold {CSV_NAME} of {CSV_SIZE:,} bytes with SHA-256 {CSV_SHA256}, "
        f"got {len(content):,} bytes with SHA-256 {digest}{' (cut short?)' if short else ''}; {WHERE}"
    )


def _choose_rows(sick: Any, seed: int, positives: float | None) -> tuple[Any, int]:
    """Return rows of both labels in random order, none twice, and how many of them are for training."""
    rng = np.random.default_rng(seed)
    groups = [np.flatnonzero(sick), np.flatnonzero(~sick)]
    if min(len(group) for group in groups) == 0:
        raise ValueError(f"`survey` must hold people with and without heart disease, got {len(sick)} rows of one kind")
    shares = (positives, 1 - positives) if positives is not None else [len(group) / len(sick) for group in groups]
    most = min(len(group) / share for group, share in zip(groups, shares, strict=True))
    counts = [round(most * share) for share in shares]
    chosen = [rng.choice(group, count, replace=False) for group, count in zip(groups, counts, strict=True)]
    rows = rng.permutation(np.concatenate(chosen))
    return rows, int(TRAINING_SHARE * len(rows))


def _encode(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the answers as numbers: numeric columns as they are, categories one-hot without the common answer."""
    columns: list[pl.Expr] = []
    for name in frame.drop(LABEL).columns:
        if frame.schema[name].is_numeric():
            columns.append(pl.col(name).cast(pl.Float64))
        else:
            levels: list[str] = sorted(set(frame[name].unique()) - {COMMON_ANSWERS.get(name, "No")})
            columns += [(pl.col(name) == level).cast(pl.Float64).alias(f"{name}={level}") for level in levels]
    return frame.select(columns)


def _standardise(encoded: Any, training: int) -> Any:
    """Return an intercept and the columns with mean 0 and deviation 1 over the first `training` rows, in float32.

    Only training rows set the scale, so that nothing is learned from the validation rows.
    """
    centre, scale = encoded[:training].mean(axis=0), encoded[:training].std(axis=0)
    standard = (encoded - centre) / np.where(scale > 0, scale, 1.0)
    return np.hstack([np.ones((len(encoded), 1)), standard]).astype(np.float32)
