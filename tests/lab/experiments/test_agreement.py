"""The certificate of agreement: its cells, its data, and that it can find what it looks for."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from guerdon.lab.experiments import agreement
from guerdon.lab.experiments.agreement import MEMBERS, REQUESTS, RULES, Cell, Finding, cells, sizes_of
from guerdon.lab.experiments.agreement_data import LinearWorld, SurveyWorld, play, world_of
from guerdon.lab.experiments.claims import Mean


def test_every_value_is_in_many_cells() -> None:
    found = cells()
    assert len(found) == len(set(found)) == 80
    for place in range(len(Cell._fields)):
        assert min(Counter(cell[place] for cell in found).values()) >= 3
    assert {cell.members for cell in found} == set(MEMBERS)
    assert {cell.request for cell in found} == set(REQUESTS)


def test_sizes_are_around_the_request() -> None:
    assert sizes_of(8) == (1, 4, 6, 10, 16, 8)
    assert sizes_of(2) == (1, 4, 2)


@pytest.mark.parametrize(
    "world",
    [
        LinearWorld(5, "normal", "early", 24), LinearWorld(1, "χ²", "late", 24), LinearWorld(3, "t₅", "middle", 24),
        LinearWorld(4, "normal", "early", 24, rows=160), SurveyWorld(0.5, "middle"), SurveyWorld(None, "early"),
    ],
    ids=str,
)  # fmt: skip
def test_gradients_have_the_variance_that_is_said(world: Any) -> None:
    """σ² is that of one sample: the mean of s of them has σ²/s."""
    rng = np.random.default_rng(0)
    model = np.tile(world.start(1, rng), (20_000, 1))
    drawn = [world.draw(model, member, 0, size, rng) for member, size in ((0, 1), (1, 4))]
    for reports, size in zip(drawn, (1, 4), strict=True):
        squares = np.sum((reports - reports.mean(axis=0)) ** 2, axis=1)
        error = squares.std() / len(squares) ** 0.5
        # On the survey σ² itself is known from some rows only.
        assert abs(squares.mean() - world.variance(model)[0] / size) < 4.5 * error + 0.08 * squares.mean()


def test_rows_are_used_again() -> None:
    world, models, rng = LinearWorld(3, "normal", "late", 24, rows=16), np.zeros((5, 3)), np.random.default_rng(0)
    first, second, again = (world.draw(models, 1, turn, 8, rng) for turn in (0, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != second).all()


def findings(cell: Cell, repetitions: int) -> dict[str, Finding]:
    world = world_of(cell.data, cell.dim, cell.stage, cell.members, cell.request)
    played = play(world, cell.members, cell.request, sizes_of(cell.request), (repetitions, agreement.ROUNDS), 4, seed=1)
    return {one.rule: one for one in agreement._judged(cell, played)}  # pyright: ignore[reportPrivateUsage]


def test_it_finds_that_one_sample_pays_under_balanced_variance_alone() -> None:
    found = findings(Cell("survey", 3, 16, "affine", "late", 38), 60)
    assert set(found) == set(RULES)
    assert found["balanced"].gain.value > agreement.SURE * found["balanced"].gain.error
    assert found["balanced"].size < 16
    for rule in ("agreement", "witness", "known"):
        assert found[rule].gain.value <= agreement.SURE * found[rule].gain.error
        assert abs(found[rule].honest.value - 1) < agreement.SURE * found[rule].honest.error
    assert found["estimated"].honest.value < 0.9


def test_claims_can_fail() -> None:
    """A gain, an honest member that is not paid its cost, and one that knows too much: each is found."""
    cell = Cell("survey, equal", 10, 8, "affine", "early", 38)
    fine = Finding(cell, "agreement", Mean(1.0, 0.01), 1.0, Mean(-0.1, 0.01), 4, 1, (0.0, 0.0))
    others = [fine._replace(rule=rule) for rule in RULES if rule != "agreement"]
    survey = [one._replace(cell=cell._replace(data="survey")) for one in (fine, *others)]

    def holding(changed: Finding) -> int:
        told = list(agreement._claims([changed, *others, *survey]))  # pyright: ignore[reportPrivateUsage]
        return sum(claim.holds for claim in told)

    before = holding(fine)
    for change in (
        {"honest": Mean(0.9, 0.01)}, {"gain": Mean(0.1, 0.01)}, {"informed": (0.06, 0.0)}, {"informed": (0.0, 0.03)},
        {"spread": 1.5},
    ):  # fmt: skip
        assert holding(fine._replace(**change)) == before - 1
