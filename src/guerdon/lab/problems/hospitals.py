"""Four hospitals: a federation that nobody made up (UCI "Heart Disease", Janosi and others 1988, CC BY 4.0).

Cleveland, Budapest, Zurich with Basel, and Long Beach collected the same 13 facts of 920 people. They differ in
everything: 46, 36, 93 and 74 % have heart disease, and whole columns are missing at some. The data are no part of the
package. `load_hospitals` reads them where you have them, and checks their SHA-256.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from guerdon.lab.problems.federation import Federation, federation
from guerdon.lab.problems.logistic_regression import LogisticRegression, logistic_regression

VARIABLE = "GUERDON_HOSPITALS"
FILES = {
    "cleveland": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
    "hungarian": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
    "switzerland": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
    "va": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
}
WHERE = (
    'get processed.*.data of "Heart Disease" from https://archive.ics.uci.edu/dataset/45/heart+disease, name them '
    f"{', '.join(f'{name}.csv' for name in FILES)}, and let {VARIABLE} name their folder"
)
FACTS = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal")
NUMBERS = ("age", "trestbps", "chol", "thalach", "oldpeak", "ca")
# Answers that become columns. One answer to each question is left out, so that columns do not add up.
ANSWERS = {"sex": (1,), "cp": (1, 2, 3), "fbs": (1,), "restecg": (1, 2), "exang": (1,), "slope": (1, 3), "thal": (6, 7)}
# Cholesterol and blood pressure are 0 where they were not taken: in all of Switzerland, and for one person elsewhere.
ZERO_IS_MISSING = ("trestbps", "chol")


class Hospital(NamedTuple):
    """People of one hospital: features (rows, columns) with an intercept first, and labels, 1 for heart disease."""

    name: str
    features: Any
    labels: Any


@dataclass(frozen=True, eq=False)
class Hospitals:
    """The hospitals; `columns` names the features, which are the same for all."""

    all: tuple[Hospital, ...]
    columns: tuple[str, ...]

    def regression(self, max_batch: int) -> LogisticRegression:
        """Return logistic regression on everybody's rows; its accuracy is measured on the same rows."""
        features, labels = (np.concatenate([getattr(one, name) for one in self.all]) for name in Hospital._fields[1:])
        return logistic_regression(features, labels, features, labels, max_batch)

    def rows(self) -> list[Any]:
        """Return which rows of `regression` belong to each hospital."""
        ends = np.cumsum([len(one.labels) for one in self.all])
        return [np.arange(end - len(one.labels), end) for one, end in zip(self.all, ends, strict=True)]

    def federation(self, max_batch: int) -> Federation:
        """Return logistic regression in which each hospital draws from its own rows."""
        return federation(self.regression(max_batch), self.rows())


def load_hospitals(folder: Path | str | None = None) -> Hospitals | None:
    """Return the hospitals in a folder, else in that which GUERDON_HOSPITALS names; None where neither is given.

    Numbers are standardised over everybody's rows, as a federation agrees on scales before it begins. What is missing
    is 0 there: the mean. Each fact that is missing anywhere has a column that says where (1), and answers that are
    missing are none of the answers. So no row is left out: 920 in all.

    >>> load_hospitals("nowhere")
    Traceback (most recent call last):
    FileNotFoundError: `folder` must name a folder with cleveland.csv, got 'nowhere'; ...
    """
    name, chosen = ("folder", folder) if folder is not None else (VARIABLE, os.environ.get(VARIABLE) or None)
    if chosen is None:
        return None
    tables = [_read(name, Path(chosen).expanduser() / f"{one}.csv", digest) for one, digest in FILES.items()]
    features, columns = _encode(np.concatenate(tables)[:, :-1])
    parts = np.split(features, np.cumsum([len(table) for table in tables])[:-1])
    labelled = zip(FILES, parts, tables, strict=True)
    return Hospitals(tuple(Hospital(one, part, np.float32(table[:, -1] > 0)) for one, part, table in labelled), columns)


def _read(name: str, path: Path, digest: str) -> Any:
    """Return a file's numbers (rows, 14), NaN where it has none."""
    if not path.is_file():
        raise FileNotFoundError(f"`{name}` must name a folder with {path.name}, got '{path.parent}'; {WHERE}")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise ValueError(f"`{name}` must have {path.name} with SHA-256 {digest}, got {found}; {WHERE}")
    rows = [line.split(",") for line in content.decode("ascii").split()]
    return np.array([[np.nan if value == "?" else float(value) for value in row] for row in rows])


def _encode(table: Any) -> tuple[Any, tuple[str, ...]]:
    """Return features in float32 and their names: an intercept, numbers, answers, and what is missing where."""
    facts: dict[str, Any] = dict(zip(FACTS, table.T, strict=True))
    for name in ZERO_IS_MISSING:
        facts[name] = np.where(facts[name] == 0, np.nan, facts[name])
    columns: dict[str, Any] = {"intercept": np.ones(len(table))}
    for name in NUMBERS:
        columns[name] = _standardise(facts[name])
    for name, answers in ANSWERS.items():
        columns |= {f"{name}={answer}": facts[name] == answer for answer in answers}
    missing = {f"{name} missing": np.isnan(fact) for name, fact in facts.items()}
    columns |= {name: where for name, where in missing.items() if where.any()}
    return np.column_stack(list(columns.values())).astype(np.float32), tuple(columns)


def _standardise(fact: Any) -> Any:
    """Return numbers with mean 0 and deviation 1 where they are known, and 0 where they are not."""
    known = fact[~np.isnan(fact)]
    return np.where(np.isnan(fact), 0.0, (fact - known.mean()) / known.std())
