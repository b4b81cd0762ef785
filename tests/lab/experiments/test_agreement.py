"""The certificate of agreement: its cells, its data, and that it can find what it looks for."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from guerdon.lab.experiments.agreement import MEMBERS, REQUESTS, cells, sizes_of
from guerdon.lab.experiments.agreement_claims import (
    MOST_COARSE,
    MOST_GAINING,
    MOST_WIDE,
    ROUNDS,
    SHARP,
    SMALL,
    SURE,
    Finding,
    Gain,
    claims,
    judge,
    notes,
)
from guerdon.lab.experiments.agreement_data import PASS, Cell, LinearWorld, SurveyWorld, apart, play, world_of
from guerdon.lab.experiments.agreement_pay import RULES, pay
from guerdon.lab.experiments.claims import Claim, Mean


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
    model = np.tile(world.start(1, rng), (5_000, 1))
    drawn = [world.draw(model, member, 0, size, rng) for member, size in ((0, 1), (1, 4))]
    for reports, size in zip(drawn, (1, 4), strict=True):
        squares = np.sum((reports - reports.mean(axis=0)) ** 2, axis=1)
        error = squares.std() / len(squares) ** 0.5
        # On the survey σ² itself is known from some rows only.
        assert abs(squares.mean() - world.variance(model)[0] / size) < 4.5 * error + 0.08 * squares.mean()


def test_rows_are_used_again() -> None:
    world, models, rng = LinearWorld(3, "normal", "late", 24, rows=16), np.zeros((5, 3)), np.random.default_rng(0)
    first, second, again = (world.draw(models, 1, turn, 8, rng) for turn in (0, 1, PASS))
    np.testing.assert_array_equal(first, again)
    assert (first != second).all()
    with pytest.raises(ValueError, match="`size` must be at most the rows of a round, 16, got 17"):
        world.draw(models, 1, 0, 17, rng)


def test_a_larger_size_has_the_rows_of_a_smaller_one() -> None:
    """Twice the mean of two rows less the first is the second: the same in every size."""
    world, models, rng = LinearWorld(3, "normal", "late", 24, rows=16), np.zeros((5, 3)), np.random.default_rng(0)
    one, two, three = (size * world.draw(models, 1, 0, size, rng) for size in (1, 2, 3))
    other = LinearWorld(3, "normal", "late", 24, rows=3)
    np.testing.assert_allclose(three, 3 * other.draw(models, 1, 0, 3, rng), rtol=1e-5)
    assert (two != one).all()


def test_distances_of_pairs() -> None:
    rng = np.random.default_rng(0)
    some, others = rng.normal(size=(4, 3, 7)), rng.normal(size=(4, 2, 7))
    expected = np.sum((some[:, :, None] - others[:, None]) ** 2, axis=-1)
    np.testing.assert_allclose(apart(some, others), expected)


@pytest.mark.parametrize("data", ["survey, 1 %", "normal"])
def test_a_mean_over_reports_is_what_the_rule_pays_in_the_mean(data: str) -> None:
    """What `beyond` has from all reports is what the rule itself pays the first one, with less noise."""
    cell = Cell(data, 4, 4, "affine", "late", 38 if data != "normal" else 3)
    played = play(world_of(cell), 4, 4, (1, 8, 4), (150, 30), 4, seed=1)
    assert {size: own.shape[2] for size, own in played.own.items()} == {1: 8, 8: 8, 4: 8}
    paid = pay("agreement", cell, played)
    first = replace(played, own={size: own[:, :, :1] for size, own in played.own.items()})
    direct = pay("agreement", cell, first)
    for size in (1, 8):
        means = [one.beyond[size][:, 10:].mean(axis=1) for one in (paid, direct)]
        apart_by = means[0] - means[1]
        assert abs(apart_by.mean()) < 4.5 * apart_by.std() / 150**0.5
        assert means[0].std() < means[1].std()


def findings(cell: Cell, repetitions: int) -> dict[str, Finding]:
    shape = (repetitions, ROUNDS)
    played = play(world_of(cell), cell.members, cell.request, sizes_of(cell.request), shape, 4, seed=1)
    return {one.rule: one for one in judge(cell, played)}


def test_it_finds_that_one_sample_pays_under_balanced_variance_alone() -> None:
    found = findings(Cell("survey", 3, 16, "affine", "late", 38), 30)
    assert set(found) == set(RULES)
    assert found["balanced"].surest.least > 0
    assert found["balanced"].surest.size < 16
    for rule in ("agreement", "witness", "known"):
        assert found[rule].surest.least <= 0
        assert abs(found[rule].honest.value - 1) < SURE * found[rule].honest.error
    assert found["estimated"].honest.value < 0.9
    # The claim has power: with so few repetitions a gain of a twentieth of the cost would have been seen.
    assert found["agreement"].widest.most <= SMALL


def test_it_finds_what_pays_where_one_report_in_fifty_holds_a_positive() -> None:
    found = findings(Cell("survey, 1 %", 5, 2, "affine", "late", 38), 200)["agreement"]
    assert found.surest.size == 1
    assert found.surest.least > 0


FINE = Finding(
    Cell("survey, equal", 10, 8, "affine", "late", 38), "agreement", Mean(1.0, 0.01), 1.0,
    Gain(-0.1, 0.01, 4, 1), Gain(-0.1, 0.01, 4, 1), Gain(-0.1, 0.01, 4, 0), (0.0, 0.0),
)  # fmt: skip
HARD = FINE._replace(cell=FINE.cell._replace(data="survey, 1 %"))


def told(*changed: Finding) -> list[Claim]:
    others = [FINE._replace(rule=rule) for rule in RULES if rule != "agreement"]
    rest = [one._replace(cell=one.cell._replace(data=data)) for data in ("survey", "survey, 1 %") for one in others]
    survey = [FINE._replace(cell=FINE.cell._replace(data="survey"))]
    return list(claims([*changed, *others, *survey, *rest]))


@pytest.mark.parametrize(
    "change",
    [
        {"honest": Mean(0.9, 0.01)}, {"surest": Gain(0.1, 0.01, 4, 1)}, {"start": Gain(0.1, 0.01, 4, 0)},
{"informed": (0.06, 0.0)}, {"informed": (0.0, 0.03)}, {"spread": 1.5},
    ],
    ids=str,
)  # fmt: skip
def test_claims_can_fail(change: dict[str, Any]) -> None:
    """A gain, too little played to see one, honest pay that is not the cost, a member that knows too much."""
    before = sum(claim.holds for claim in told(FINE, HARD))
    assert sum(claim.holds for claim in told(FINE._replace(**change), HARD)) == before - 1


def test_claims_fail_where_too_much_is_not_known() -> None:
    """Honest pay that is measured too coarsely, and hard cells that gain: so many and no more."""
    before = sum(claim.holds for claim in told(FINE, HARD))
    coarse, gaining = FINE._replace(honest=Mean(1.0, 2 * SHARP)), HARD._replace(surest=Gain(0.5, 0.01, 1, 1))
    assert sum(claim.holds for claim in told(*[coarse] * MOST_COARSE, HARD)) == before
    assert sum(claim.holds for claim in told(*[coarse] * (MOST_COARSE + 1), HARD)) == before - 1
    wide = FINE._replace(widest=Gain(-0.1, 0.04, 4, 1))
    assert sum(claim.holds for claim in told(*[wide] * MOST_WIDE, HARD)) == before
    assert sum(claim.holds for claim in told(*[wide] * (MOST_WIDE + 1), HARD)) == before - 1
    assert sum(claim.holds for claim in told(FINE, *[gaining] * MOST_GAINING)) == before
    assert sum(claim.holds for claim in told(FINE, *[gaining] * (MOST_GAINING + 1))) == before - 1
    assert sum(claim.holds for claim in told(FINE, HARD._replace(widest=Gain(0.9, 0.1, 1, 1)))) == before - 1
    assert sum(claim.holds for claim in told(FINE, HARD._replace(spread=4.0))) == before - 1


def test_notes_say_where_sizes_gain() -> None:
    again = FINE._replace(rule="witness", cell=FINE.cell._replace(data="rows again"))
    gaining = HARD._replace(surest=Gain(0.5, 0.01, 1, 1), start=Gain(0.7, 0.01, 2, 0), informed=(0.1, 0.2))
    words = " ".join(notes([FINE._replace(cell=FINE.cell._replace(cost="convex")), gaining, again,
                            *[one._replace(rule="balanced") for one in (FINE, gaining)],
                            FINE._replace(rule="balanced", cell=FINE.cell._replace(cost="convex"))]))  # fmt: skip
    assert "size 1 +0.50 (0.01) in survey, 1 %, K = 10, ν = 8, affine, late" in words
    assert "size 2 +0.70 (0.01)" in words
