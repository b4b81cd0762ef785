"""Fit the figures from which the synthetic heart-disease survey is drawn, and write them into the package.

Run from the root of the repository, with the real file (heart_2020_cleaned.csv, or a zip that holds it):

    .venv/bin/python tools/fit_heart.py PATH [OUTPUT]

For each label the figures are the number of rows, how often each answer was given (of BMI, which is continuous, some
quantiles), and the correlations of the latent normals. A latent correlation is the one at which two columns, cut from
their normals as their margins say, have the covariance that the survey has. That covariance is a power series in the
latent correlation (Mehler's formula), with the Hermite coefficients of the two columns, so it is found by bisection.
"""

import argparse
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl

from guerdon.lab.problems.heart import CSV_SHA256, load_survey
from guerdon.lab.problems.heart_synthetic import LABEL, Margin, margins

OUTPUT = Path(__file__).parents[1] / "src" / "guerdon" / "lab" / "problems" / "heart_figures.json"
ABOUT = (
    "Figures fitted on the CDC heart-disease survey (2020) by tools/fit_heart.py, from which the synthetic survey is "
    "drawn. Margins count the rows at each of `levels` or, for BMI, give its quantile at each of `shares`. The rows of "
    "`correlation` follow `columns` without the label."
)
# Answers with an order are kept in it, so that one latent normal can run through them. Races are put by mean age, the
# column that they go together with most.
ORDERS = {
    "Diabetic": ["No", "No, borderline diabetes", "Yes (during pregnancy)", "Yes"],
    "GenHealth": ["Excellent", "Very good", "Good", "Fair", "Poor"],
    "Race": ["Hispanic", "Other", "Asian", "American Indian/Alaskan Native", "Black", "White"],
}
CONTINUOUS = "BMI"
SHARES = [0, 0.0005, 0.001, 0.002, 0.005, *[percent / 100 for percent in range(1, 100)], 0.995, 0.998, 0.999, 0.9995, 1]
TERMS = 40
GRID = np.linspace(-8, 8, 16_001)


def fit(frame: pl.DataFrame) -> dict[str, Any]:
    """Return the figures of a survey."""
    levels: dict[str, list[Any]] = {
        name: ORDERS.get(name) or frame[name].unique().sort().to_list()
        for name in frame.columns
        if name not in (LABEL, CONTINUOUS)
    }
    figures: dict[str, Any] = {
        "about": ABOUT,
        "sha256": CSV_SHA256,
        "columns": frame.columns,
        "levels": levels,
        "shares": SHARES,
        "labels": {},
    }
    for label in sorted(frame[LABEL].unique()):
        group = frame.filter(pl.col(LABEL) == label)
        fitted = {
            name: count(group[name], levels[name]) if name in levels else quantiles(group[name])
            for name in frame.columns
            if name != LABEL
        }
        figures["labels"][label] = {"rows": group.height, "margins": fitted}
        figures["labels"][label]["correlation"] = latent_correlations(group, levels, margins(figures, label))
    return figures


def count(column: pl.Series, levels: list[Any]) -> list[int]:
    """Return how many rows have each level."""
    counts = dict(column.value_counts().iter_rows())
    return [counts.get(level, 0) for level in levels]


def quantiles(column: pl.Series) -> list[float]:
    """Return the quantiles of a continuous column at `SHARES`."""
    return [round(float(value), 2) for value in np.quantile(column.to_numpy(), SHARES)]


def latent_correlations(
    group: pl.DataFrame, levels: dict[str, list[Any]], fitted: dict[str, Margin]
) -> list[list[float]]:
    """Return the latent correlation of every two columns, to three decimals."""
    covariances = np.cov([scores(group[name], levels.get(name)) for name in fitted])
    coefficients = [hermite_coefficients(margin, levels.get(name)) for name, margin in fitted.items()]
    matrix = np.eye(len(fitted))
    for i, j in zip(*np.tril_indices(len(fitted), -1), strict=True):
        found = round(solve(coefficients[i] * coefficients[j], covariances[i, j]), 3)
        matrix[i, j] = matrix[j, i] = found or 0.0  # never -0.0
    np.linalg.cholesky(matrix)  # raises unless the matrix is positive definite: pairs fitted one by one need not be
    return matrix.tolist()


def scores(column: pl.Series, levels: list[Any] | None) -> Any:
    """Return a column of the survey as numbers, a category by its place among the levels."""
    if column.dtype.is_numeric():
        return column.to_numpy()
    return column.replace_strict(levels, range(len(levels or [])), return_dtype=pl.Float64).to_numpy()


def hermite_coefficients(margin: Margin, levels: list[Any] | None) -> Any:
    """Return E[score·He_k(Z)]/√k! for k = 1…TERMS, with Z the column's latent normal."""
    values = margin.place(GRID)
    if levels is not None and not isinstance(levels[0], str):
        values = np.asarray(levels)[values]
    weighted = values * np.exp(-(GRID**2) / 2) / np.sqrt(2 * np.pi) * (GRID[1] - GRID[0])
    coefficients = np.empty(TERMS)
    before, polynomial = np.ones_like(GRID), GRID
    for k in range(1, TERMS + 1):
        coefficients[k - 1] = np.sum(weighted * polynomial)
        before, polynomial = polynomial, (GRID * polynomial - np.sqrt(k) * before) / np.sqrt(k + 1)
    return coefficients


def solve(series: Any, covariance: float) -> float:
    """Return the correlation at which the power series, increasing in it, has the value `covariance`."""
    low, high, powers = -0.99, 0.99, np.arange(1, TERMS + 1)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if np.sum(series * middle**powers) > covariance else (middle, high)
    return (low + high) / 2


def as_text(value: Any, indent: str = "") -> str:
    """Return JSON that a person can read: one line for each list of plain values, not for each number."""
    deeper = indent + "  "
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        entries = [f"{deeper}{json.dumps(key)}: {as_text(entry, deeper)}" for key, entry in mapping.items()]
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    if isinstance(value, list) and isinstance(value[0], list):
        rows = cast("list[list[float]]", value)
        return "[\n" + ",\n".join(deeper + json.dumps(row) for row in rows) + f"\n{indent}]"
    return json.dumps(value)


def main() -> None:
    """Fit the figures on the file named on the command line and write them."""
    parser = argparse.ArgumentParser(description="Fit the figures of the synthetic heart-disease survey.")
    parser.add_argument("path", type=Path, help="heart_2020_cleaned.csv, or a zip that holds it")
    parser.add_argument("output", type=Path, nargs="?", default=OUTPUT, help="where to write (default: in the package)")
    arguments = parser.parse_args()
    arguments.output.write_text(as_text(fit(load_survey(arguments.path).frame)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
