"""The model and the data: as in Flower's scikit-learn quickstart, but with digits that are made here."""

import numpy as np
from sklearn.linear_model import LogisticRegression

CLASSES, FEATURES, ROWS, NOISE = 10, 64, 400, 3.0


def create_model(local_epochs: int) -> LogisticRegression:
    """Return a logistic regression that starts from its parameters, which are zero."""
    model = LogisticRegression(max_iter=local_epochs, warm_start=True)
    model.classes_ = np.arange(CLASSES)
    model.coef_ = np.zeros((CLASSES, FEATURES))
    model.intercept_ = np.zeros(CLASSES)
    return model


def get_model_params(model: LogisticRegression) -> list[np.ndarray]:
    """Return the parameters of a model."""
    return [model.coef_, model.intercept_]


def set_model_params(model: LogisticRegression, params: list[np.ndarray]) -> None:
    """Set the parameters of a model."""
    model.coef_, model.intercept_ = params


def make_digits(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points of ten classes: a pattern for each, and noise."""
    patterns = np.random.default_rng(1).normal(size=(CLASSES, FEATURES))
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=rows)
    return patterns[labels] + NOISE * rng.normal(size=(rows, FEATURES)), labels


def load_data(partition_id: int, num_partitions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return a node's own rows: four fifths to train on, one fifth to test with."""
    del num_partitions
    points, labels = make_digits(ROWS, seed=100 + partition_id)
    cut = int(0.8 * ROWS)
    return points[:cut], points[cut:], labels[:cut], labels[cut:]
