"""Honest work passes on another machine, every cheat that matters does not, and what could be skipped is said."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from guerdon.looks.recompute import (
    Comparison,
    Repeat,
    arrays_hash,
    compare,
    compare_segment,
    moves,
    repeat_error,
    rows_effect,
    segment_hashes,
    skippable_share,
    tolerances,
)
from tests.looks.network import Arrays, gradient, local_training, rows, trained, untrained

WAYS: list[Mapping[str, Any]] = [{"micro_batch": 4}, {"micro_batch": 1}]
STAGES = 0, 200, 2000  # steps of training
NONE: dict[str, float] = {}


class Look:
    """What an auditor knows of one round: the work computed again, and how exactly."""

    def __init__(self, stage: int, round: int, work: Any = gradient, count: int = 16, **options: Any) -> None:
        self.model, self.rows, self.seed = trained(stage), rows(count, round), round
        self.again = work(self.model, self.rows, self.seed)
        self.effect = rows_effect(work, self.model, self.rows, self.seed)
        ways = WAYS if work is gradient else []
        repeat = repeat_error(work, self.model, self.rows, self.seed, self.effect, ways, **options)
        self.in_double, self.tolerance = repeat.in_double, tolerances(repeat, self.again)

    def passes(self, sent: Arrays) -> bool:
        return compare(self.again, sent, self.effect, self.tolerance).passed


def picked(given: Arrays, places: Any) -> dict[str, np.ndarray]:
    return {name: array[places] for name, array in given.items()}


# Honest work.


@pytest.mark.parametrize("stage", STAGES)
def test_honest_work_passes_on_another_machine(stage: int) -> None:
    for round in range(20):
        look = Look(stage, round)
        assert look.in_double
        assert look.passes(look.again)
        assert look.passes(gradient(look.model, look.rows, round, other=True))
        assert look.passes(gradient(look.model, look.rows, round, micro_batch=2))


def test_threads_and_micro_batches_alone_do_not_tell_what_another_machine_does() -> None:
    """On a trained model half of the honest reports would fail: this is what double precision is for."""
    failed = 0
    for round in range(20):
        look = Look(2000, round, double=False, shakes=0)
        failed += not look.passes(gradient(look.model, look.rows, round, other=True))
    assert failed >= 5


def test_work_that_does_not_follow_double_precision_is_told() -> None:
    def single(model: Arrays, rows: Arrays, seed: int, /, **way: Any) -> dict[str, Any]:
        return gradient({name: array.astype(np.float32) for name, array in model.items()}, rows, seed, **way)

    assert not Look(0, 1, single).in_double
    assert not Look(0, 1, double=False).in_double


def test_work_that_cannot_be_done_in_double_precision_is_not_asked_to() -> None:
    def only_short(model: Arrays, given: Arrays, seed: int) -> Arrays:
        assert model["w0"].dtype == np.float32
        return gradient(model, given, seed)

    effect = dict.fromkeys(untrained(), 1.0)
    assert not repeat_error(only_short, untrained(), rows(4, 0), 0, effect, double=False).in_double


def test_a_unit_at_the_edge_is_found_by_changing_last_bits() -> None:
    """Its gradient jumps; threads and double precision may fall on the same side."""

    def edge(model: Arrays, rows: Arrays, seed: int, /) -> dict[str, np.ndarray]:
        del seed
        return {"w": np.where(rows["x"] @ model["w"] > 0, rows["x"].T, 0).mean(axis=1)}

    model, on_edge = {"w": np.array([1.0, -1.0])}, {"x": np.array([[3.0, 3.0], [5.0, 1.0]])}
    effect = rows_effect(edge, model, on_edge, 0)
    errors = repeat_error(edge, model, on_edge, 0, effect)
    assert errors.ways == {"w": 0}
    assert errors.last_bits["w"] > 0.1


def test_rows_that_cancel_pass_by_their_own_effect() -> None:
    """The report is a thousandth of what its rows tell, and so its rounding errors are a thousand times as large."""

    def mean(model: Arrays, rows: Arrays, seed: int, /, backward: bool = False) -> dict[str, np.ndarray]:
        del model, seed
        total = rows["x"][:1] * 0
        for row in rows["x"][::-1] if backward else rows["x"]:
            total = total + row
        return {"w": total[0] / len(rows["x"])}

    chance = np.random.default_rng(3)
    half = chance.standard_normal((8, 100)).astype(np.float32)
    cancelling = {"x": np.concatenate([half, -half + np.float32(1e-6)])}
    again, backward = mean({}, cancelling, 0), mean({}, cancelling, 0, backward=True)
    effect = rows_effect(mean, {}, cancelling, 0)
    tolerance = {"w": 1e-5}
    assert compare(again, backward, effect, tolerance).passed
    assert not compare(again, backward, NONE, tolerance).passed


@pytest.mark.parametrize("stage", STAGES)
def test_a_member_that_sends_a_shorter_type_passes(stage: int) -> None:
    """The work is rounded to that type; one row replaced is still found."""
    look = Look(stage, 5)
    shorter = {name: array.astype(np.float16) for name, array in look.again.items()}
    tolerance = tolerances(Repeat(dict.fromkeys(shorter, 0.0), dict.fromkeys(shorter, 0.0), True), shorter)
    other = gradient(look.model, look.rows, 5, other=True)
    assert compare(
        look.again, {name: array.astype(np.float16) for name, array in other.items()}, look.effect, tolerance
    ).passed
    cheat = gradient(look.model, picked(look.rows, [1, *range(1, 16)]), 5)
    assert not compare(
        look.again, {name: array.astype(np.float16) for name, array in cheat.items()}, look.effect, tolerance
    ).passed


# Cheats.

CHEATS: dict[str, Callable[[Look], Arrays]] = {
    "half of the rows": lambda look: gradient(look.model, picked(look.rows, slice(8)), look.seed),
    "half of the rows twice": lambda look: gradient(look.model, picked(look.rows, [*range(8)] * 2), look.seed),
    "one row left out": lambda look: gradient(look.model, picked(look.rows, slice(1, 16)), look.seed),
    "old rows": lambda look: gradient(look.model, rows(16, look.seed + 1), look.seed),
    "another seed": lambda look: gradient(look.model, look.rows, look.seed + 1),
    "an old model": lambda look: gradient(trained(100), look.rows, look.seed),
    "labels of another row": lambda look: gradient(
        look.model, look.rows | {"y": np.roll(look.rows["y"], 1)}, look.seed
    ),
    "a shorter report": lambda look: {name: array * np.float32(0.97) for name, array in look.again.items()},
    "noise": lambda look: {
        name: array + np.float32(0.03 * np.abs(array).mean()) * np.random.default_rng(1).standard_normal(array.shape)
        for name, array in look.again.items()
    },
    "nothing": lambda look: {name: 0 * array for name, array in look.again.items()},
}  # fmt: skip


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_found_every_time(name: str, stage: int) -> None:
    for round in range(5):
        look = Look(stage, round)
        assert not look.passes(CHEATS[name](look))


@pytest.mark.parametrize("count", [16, 64])
def test_one_row_replaced_is_found_on_an_untrained_model_every_time(count: int) -> None:
    for place in range(0, count, 3):
        look = Look(0, 1, count=count)
        assert not look.passes(
            gradient(look.model, picked(look.rows, [place - 1 if at == place else at for at in range(count)]), 1)
        )


def test_a_change_in_one_small_tensor_is_found() -> None:
    """Which the length of the whole report would hide."""
    look = Look(0, 1)
    sent = dict(look.again) | {"b0": look.again["b0"] * np.float32(1.001)}
    (reason,) = compare(look.again, sent, look.effect, look.tolerance).reasons
    assert reason.startswith("tensor 'b0' differs by")


# What could be skipped.


def test_hardly_a_row_can_be_skipped_inside_the_tolerance_and_many_inside_a_wide_one() -> None:
    wide, narrow = {}, {}
    for stage in (0, 2000):
        looks = [Look(stage, round) for round in range(6)]
        narrow[stage] = np.mean([share(look, look.tolerance) for look in looks])
        wide[stage] = np.mean([share(look, dict.fromkeys(look.again, 1e-2)) for look in looks])
    assert narrow[0] == wide[0] == 0
    assert narrow[2000] < 0.15
    assert wide[2000] > 0.2


def share(look: Look, tolerance: Mapping[str, float]) -> float:
    return skippable_share(gradient, look.model, look.rows, look.seed, look.effect, tolerance).share


def test_the_skippable_rows_can_be_skipped() -> None:
    look = Look(2000, 3)
    tolerance = dict.fromkeys(look.again, 1e-2)
    found = skippable_share(gradient, look.model, look.rows, 3, look.effect, tolerance)
    assert len(found.rows) == round(16 * found.share) > 2
    assert found.by not in found.rows

    def skipping(places: tuple[int, ...]) -> bool:
        used = [found.by if place in places else place for place in range(16)]
        return compare(look.again, gradient(look.model, picked(look.rows, used), 3), look.effect, tolerance).passed

    assert skipping(found.rows)
    assert not skipping(tuple(range(16)))


def test_copies_of_one_row_can_all_be_skipped_but_one() -> None:
    def plain(model: Arrays, rows: Arrays, seed: int, /) -> dict[str, np.ndarray]:
        del model, seed
        return {"w": rows["x"].mean(axis=0)}

    copies = {"x": np.tile(np.array([1.0, 2.0]), (8, 1))}
    assert skippable_share(plain, {}, copies, 0, {"w": 1.0}, {"w": 1e-6}).share == 7 / 8
    different = {"x": np.arange(16.0).reshape(8, 2)}
    assert skippable_share(plain, {}, different, 0, {"w": 1.0}, {"w": 1e-6}) == ((), 0.0, 0)


# The comparison.


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        ({"n": np.array([3])}, "tensor 'w' is missing"),
        ({"w": np.ones(2)}, "tensor 'n' is missing"),
        ({"w": np.ones(2), "n": np.array([3]), "v": np.ones(2)}, "tensor 'v' is not of the work"),
        ({"w": np.ones((2, 1)), "n": np.array([3])}, "tensor 'w' has the shape [2, 1], the work gives [2]"),
        ({"w": np.ones(2, int), "n": np.array([3])}, "tensor 'w' is of type int64, the work gives float64"),
        ({"w": np.ones(2), "n": np.array([3.0])}, "tensor 'n' is of type float64, the work gives int64"),
        ({"w": np.array([1, np.nan]), "n": np.array([3])}, "tensor 'w' as sent holds a number that is not finite"),
        ({"w": np.array([1, -np.inf]), "n": np.array([3])}, "tensor 'w' as sent holds a number that is not finite"),
        ({"w": np.ones(2), "n": np.array([4])}, "tensor 'n' holds other whole numbers than the work gives"),
        (
            {"w": 2 * np.ones(2), "n": np.array([3])},
            "tensor 'w' differs by 1.0e+00 of its scale, the tolerance is 1.0e-01",
        ),
    ],
)  # fmt: skip
def test_a_difference_is_said_in_a_sentence(sent: Arrays, complaint: str) -> None:
    again = {"w": np.ones(2), "n": np.array([3])}
    compared = compare(again, sent, {"w": 1.0}, {"w": 0.1})
    assert compared.reasons == (complaint,)
    assert not compared.passed
    assert compared.tolerance == {"w": 0.1}
    assert compare(again, dict(again), {"w": 1.0}, {"w": 0.1}) == Comparison({"n": 0.0, "w": 0.0}, {"w": 0.1}, ())


def test_work_that_is_not_finite_is_no_match_for_anything() -> None:
    broken = {"w": np.array([np.nan, 1.0])}
    (reason,) = compare(broken, broken, {"w": 1.0}, {"w": 1.0}).reasons
    assert reason == "tensor 'w' as sent holds a number that is not finite"
    (reason,) = compare(broken, {"w": np.ones(2)}, {"w": 1.0}, {"w": 1.0}).reasons
    assert reason == "tensor 'w' as computed again holds a number that is not finite"
    (reason,) = compare({"w": np.array([1e9])}, {"w": np.array([1.0], np.float16)}, {"w": 1.0}, {"w": 1.0}).reasons
    assert reason == "tensor 'w' as computed again holds a number that is not finite"


def test_errors_are_relative_to_the_larger_of_report_and_effect_in_double_precision() -> None:
    again, sent = {"w": np.array([3e38, 0], np.float32)}, {"w": np.array([3e38, 3e35], np.float32)}
    assert compare(again, sent, NONE, {"w": 1.0}).errors["w"] == pytest.approx(1e-3, rel=1e-6)
    assert compare(again, sent, {"w": 3e39}, {"w": 1.0}).errors["w"] == pytest.approx(1e-4, rel=1e-6)
    huge = {"w": np.array([1e300, 1e300])}
    assert compare(huge, {"w": np.array([1e300, 2e300])}, NONE, {"w": 1.0}).errors["w"] == pytest.approx(0.5**0.5)


def test_a_tensor_of_zeros_must_be_zeros() -> None:
    """A layer that is not trained."""
    zeros = {"w": np.zeros(2)}
    assert compare(zeros, {"w": np.zeros(2)}, NONE, {"w": 0.1}).passed
    found = compare(zeros, {"w": np.array([0, 1e-300])}, {"w": 0.0}, {"w": 0.1})
    assert found.errors == {"w": None}
    assert found.reasons == ("tensor 'w' differs by inf of its scale, the tolerance is 1.0e-01",)


def test_work_that_differs_between_ways_cannot_be_verified() -> None:
    def work(model: Arrays, rows: Arrays, seed: int, /, threads: int = 1) -> dict[str, np.ndarray]:
        del model, rows, seed
        return {"w": np.full(threads, np.nan if threads == 3 else 1.0)}

    given = untrained(), rows(4, 1), 0
    with pytest.raises(
        ValueError, match=r"`work` must give the same finite tensors in every way, but with \{'threads': 2\} te"
    ):
        repeat_error(work, *given, NONE, [{"threads": 2}])
    with pytest.raises(ValueError, match=r"the work gives|not finite"):
        repeat_error(work, *given, NONE, [{"threads": 3}])


@pytest.mark.parametrize("wrong", [{"x": np.ones((0, 2))}, {"x": np.ones((2, 2)), "y": np.ones(3)}, {}])
def test_rows_must_be_rows(wrong: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="`rows` must be arrays of the same number of rows, at least one, got"):
        rows_effect(gradient, untrained(), wrong, 0)


def test_the_factor_is_at_least_one() -> None:
    with pytest.raises(ValueError, match=r"`factor` must be a finite number of at least 1, got 0\.5"):
        tolerances(Repeat(NONE, NONE, True), {}, factor=0.5)


# Local training.


def test_models_as_reports_are_compared_by_what_they_moved() -> None:
    look = Look(200, 1, local_training, count=64)
    other = local_training(look.model, look.rows, 1, other=True)
    cheat = local_training(look.model, picked(look.rows, [1, *range(1, 64)]), 1)
    again, honest, found = (moves(model, look.model) for model in (look.again, other, cheat))
    single = rows_effect(moved, look.model, look.rows, 1)
    tolerance = tolerances(repeat_error(moved, look.model, look.rows, 1, single), again)
    assert compare(again, honest, single, tolerance).passed
    assert not compare(again, found, single, tolerance).passed
    assert not compare(again, moves({"w0": other["w0"]}, look.model), single, tolerance).passed


def moved(model: Arrays, rows: Arrays, seed: int, /) -> dict[str, np.ndarray]:
    return moves(local_training(model, rows, seed), model)


def segments() -> list[Arrays]:
    """Return the models of a member at the ends of four segments, after the one that it was sent."""
    models: list[Arrays] = [trained(200)]
    for part in range(4):
        models.append(local_training(models[-1], picked(rows(64, 9), slice(16 * part, 16 * part + 16)), part))
    return models


@pytest.mark.parametrize("drawn", [0, 3])
def test_one_segment_is_looked_at(drawn: int) -> None:
    models = segments()
    signed = arrays_hash(models[0]), *segment_hashes(models[1:])
    used = picked(rows(64, 9), slice(16 * drawn, 16 * drawn + 16))
    single = rows_effect(moved, models[drawn], used, drawn)
    tolerance = tolerances(repeat_error(moved, models[drawn], used, drawn, single), models[0])

    def look(shown: int, start: Arrays, end: Arrays) -> tuple[str, ...]:
        again = local_training(models[drawn], used, drawn, other=True)
        return compare_segment(again, start, end, (signed[shown], signed[shown + 1]), single, tolerance).reasons

    assert look(drawn, models[drawn], models[drawn + 1]) == ()
    elsewhere = (drawn + 1) % 4
    assert look(drawn, models[elsewhere], models[drawn + 1]) == (
        "the model at the start of the segment is not the signed one",
    )
    assert look(drawn, models[drawn], models[drawn]) == ("the model at the end of the segment is not the signed one",)
    assert len(look(elsewhere, models[elsewhere], models[elsewhere + 1])) == 6, "signed, but other work"


def test_the_hash_of_arrays_is_of_names_types_shapes_and_numbers() -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.arange(3)}
    hashed = arrays_hash(arrays)
    swapped = {"b": arrays["b"].astype(">i8"), "a": np.asfortranarray(arrays["a"]).astype(">f8")}
    assert arrays_hash(swapped) == hashed, "neither order nor machine matters"
    others = [
        {"a": arrays["a"], "c": arrays["b"]},
        {"a": arrays["a"].reshape(3, 2), "b": arrays["b"]},
        {"a": arrays["a"].astype(np.float32), "b": arrays["b"]},
        {"a": arrays["a"], "b": arrays["b"] + 1},
        {"a": arrays["a"]},
    ]
    assert len({hashed, *map(arrays_hash, others)}) == 6
