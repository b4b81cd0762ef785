"""Models where gradients are expected are found, and no honest gradient is taken for one."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from guerdon.run.mistaken import FEWEST, NEAR, check_gradients, is_model
from guerdon.run.reports import Report

Layers = dict[str, np.ndarray]
Loss = Callable[[Layers, np.random.Generator], Layers]  # the gradient of fresh samples

SAMPLES, FEATURES, CLASSES, HIDDEN = 16, 20, 4, 12


def squares(at: Layers, rng: np.random.Generator) -> Layers:
    """Linear regression, with the target far from zero or near it."""
    x = rng.normal(size=(SAMPLES, FEATURES))
    y = x @ np.linspace(-1, 1, FEATURES)[:, None] + rng.normal(size=(SAMPLES, CLASSES))
    return {"w": x.T @ (x @ at["w"] - y) / SAMPLES}


def network(at: Layers, rng: np.random.Generator) -> Layers:
    """Two layers and a softmax."""
    x, y = rng.normal(size=(SAMPLES, FEATURES)), rng.integers(CLASSES, size=SAMPLES)
    hidden = np.maximum(x @ at["w"], 0)
    scores = hidden @ at["v"]
    wrong = np.exp(scores - scores.max(axis=1, keepdims=True))
    wrong /= wrong.sum(axis=1, keepdims=True)
    wrong[np.arange(SAMPLES), y] -= 1
    back = (wrong @ at["v"].T) * (hidden > 0)
    return {"w": x.T @ back / SAMPLES, "v": hidden.T @ wrong / SAMPLES}


def starts(rng: np.random.Generator, **shapes: tuple[int, int]) -> Iterator[Layers]:
    """Models as they are begun with, small and large."""
    for scale in (0.01, 0.3, 1.0, 10.0):
        yield {name: scale * rng.normal(size=shape) for name, shape in shapes.items()}


def apart(report: Layers, sent: Layers) -> float:
    """Return ‖X − θ‖/‖X‖."""
    ends = [np.sqrt(sum(float(np.sum(part**2)) for part in parts)) for parts in (
        [report[name] - sent[name] for name in sent], [report[name] for name in sent],
    )]  # fmt: skip
    return float(ends[0] / ends[1])


@pytest.mark.parametrize(
    ("gradient", "shapes"),
    [
        (squares, {"w": (FEATURES, CLASSES)}),
        (network, {"w": (FEATURES, HIDDEN), "v": (HIDDEN, CLASSES)}),
    ],
)
@pytest.mark.parametrize("decay", [0.0, 0.1, 0.5])
def test_no_honest_gradient_is_taken_for_a_model(
    gradient: Loss, shapes: dict[str, tuple[int, int]], decay: float
) -> None:
    """Nor one of a loss with a penalty; what training makes of the same models is found."""
    rng = np.random.default_rng(1)
    nearest = np.inf
    for _ in range(50):
        for sent in starts(rng, **shapes):
            found = {name: part + decay * sent[name] for name, part in gradient(sent, rng).items()}
            nearest = min(nearest, apart(found, sent))
            assert not is_model(found, sent)
            step = 0.05 * sum(np.linalg.norm(p) for p in sent.values()) / sum(np.linalg.norm(p) for p in found.values())
            assert is_model({name: sent[name] - step * found[name] for name in sent}, sent)
    assert nearest > 3 * NEAR, "there is room between the two"


def test_chance_alone_is_far_from_a_model() -> None:
    """Of the fewest numbers that are judged, in any direction, and even of the model's own length."""
    rng = np.random.default_rng(2)
    sent = rng.normal(size=FEWEST)
    reports = rng.normal(size=(20_000, FEWEST))
    reports *= np.linalg.norm(sent) / np.linalg.norm(reports, axis=1, keepdims=True)
    nearest = min(apart({"w": row}, {"w": sent}) for row in reports)
    assert nearest > 4 * NEAR
    # P(‖X − θ‖ < ‖X‖/10) < 0.1³¹: the part of a sphere within that angle is smaller than its shadow in 31 dimensions.
    assert NEAR ** (FEWEST - 1) < 1e-30


@pytest.mark.parametrize(("share", "expected"), [(0.099, True), (0.101, False)])
def test_the_bound_is_a_tenth_of_the_reports_length(share: float, expected: bool) -> None:
    sent = {"w": np.zeros(64)}
    sent["w"][0] = 1.0
    report = {"w": np.zeros(64)}
    report["w"][1] = share  # ‖X − θ‖ = share · ‖X‖, with X = θ + something at right angles
    report["w"][0] = np.sqrt(1 - share**2)
    report["w"] /= report["w"][0]
    ratio = apart(report, sent)
    assert is_model(report, sent) == (ratio < NEAR) == expected


def test_what_cannot_be_judged_is_no_model() -> None:
    few, none = {"w": np.ones(FEWEST - 1)}, {"w": np.zeros(FEWEST)}
    assert not is_model(few, few)
    assert is_model({"w": np.ones(FEWEST)}, {"w": np.ones(FEWEST)})
    assert not is_model(none, none), "a model of zeros is as near to zero as to itself"
    for value in (np.nan, np.inf, 1e300):
        assert not is_model({"w": np.full(FEWEST, value)}, {"w": np.ones(FEWEST)})
    counts = {"w": np.ones(FEWEST - 1, dtype=np.float32), "seen": np.ones(100, dtype=np.int64)}
    assert not is_model(counts, counts), "only floating-point numbers count"


def test_most_must_be_wrong_for_a_round_to_stop() -> None:
    sent = {"w": np.linspace(-1, 1, FEWEST)}
    reports = [Report(name, sent=True, reply=0, arrays=dict(sent)) for name in ("a", "b")]
    reports.append(Report("c", sent=True, reply=0, arrays={"w": sent["w"][::-1]}))
    other = Report("d", sent=True, reply=0, arrays={"w": sent["w"] * 5})
    check_gradients([*reports, other], sent, "remedy")
    check_gradients([], sent, "remedy")
    with pytest.raises(
        ValueError, match=r"reports must be gradients, got models from a, b: they lie ten times.*remedy"
    ):
        check_gradients([*reports, Report("e", "no answer")], sent, "remedy")
    assert np.array_equal(reports[0].arrays["w"], sent["w"]), "nothing is changed"
