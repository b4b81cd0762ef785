"""A rehearsal finds what looks would find: exact work, work of chance, work that depends on its machine."""

from typing import Any

import numpy as np
import pytest

from guerdon.looks.isolation import Limits
from guerdon.looks.plan import failure_bound
from guerdon.looks.recompute import compare, repeat_error, rows_effect, skippable_share, tolerances
from guerdon.looks.rehearsal import SEARCHED, SHARE, STEPS, TOO_SHORT, WIDE, Rehearsal, _named, advice, rehearse
from guerdon.looks.rows import Table
from tests.looks import network, rehearsed

ROWS = Table(network.rows(60, 3))
SHORT = Limits(wall=120, cpu=120, memory=2**32)


def rehearsal(name: str, module: str = "rehearsed", **changed: Any) -> Rehearsal:
    given: dict[str, Any] = {"looks": 4, "request": 8, "limits": SHORT, "model": network.untrained()} | changed
    return rehearse(f"tests.looks.{module}:{name}", ROWS, **given)


def test_exact_work_can_be_looked_at() -> None:
    found = rehearsal("gradient", "network")
    assert (found.unable, found.failed, found.reasons, advice(found)) == ("", 0, (), ())
    assert found.repeats
    assert found.is_strict
    assert found.in_double
    assert [way for way, _ in found.ways] == [
        "again, in the same way", "micro_batch=1", "micro_batch=4", "in double precision", "with changed last bits",
    ]  # fmt: skip
    assert set(found.ways[0][1].values()) == {0.0}
    assert 0 < found.ways[1][1]["w0"] < 1e-5
    assert found.epsilon == failure_bound(0, 4)
    assert set(found.types.values()) == {"float32"}
    assert all(found.tolerance[name] <= found.widest[name] < 1e-4 for name in network.untrained())


def test_it_is_what_the_functions_of_a_look_say() -> None:
    found = rehearsal("gradient", "network", looks=1)
    rows, seeds = _named(ROWS, 8, 1, 0)
    model, seed, ways = network.untrained(), seeds[0], [{}, {"micro_batch": 1}, {"micro_batch": 4}]
    effect = rows_effect(network.gradient, model, rows, seed)
    report = network.gradient(model, rows, seed)
    tolerance = tolerances(repeat_error(network.gradient, model, rows, seed, effect, ways), report)
    assert found.tolerance == found.widest == pytest.approx(tolerance, rel=0.3), "sums here may have another order"
    assert found.skippable == skippable_share(network.gradient, model, rows, seed, effect, tolerance).share
    assert compare(report, found.reports[0], effect, tolerance).passed


def test_a_trained_model_lets_rows_be_skipped() -> None:
    found = rehearsal("gradient", "network", model=network.trained(2000), request=16)
    assert found.repeats
    assert found.skippable > 0.1
    assert not found.is_strict
    assert "The model has learnt some rows" in advice(found)[0]
    assert rehearsal("gradient", "network", model=network.trained(2000), request=16, most=1.0).is_strict


def test_chance_that_is_not_the_seeds_is_found() -> None:
    found = rehearsal("draws_by_itself")
    assert max(found.ways[0][1].values()) > 0.1
    assert "draw all randomness from the seed, and use deterministic kernels" in advice(found)[0]


def test_work_that_depends_on_threads_fails_and_is_told() -> None:
    found = rehearsal("by_threads", threads=3)
    assert (found.failed, found.repeats, found.epsilon) == (4, False, 1.0)
    assert found.reasons[0].startswith("tensor 'b0' differs by ")
    assert "--way" in advice(found)[0]
    assert rehearsal("by_threads", threads=1).failed == 0


def test_threads_are_tried_where_the_function_has_them() -> None:
    found = rehearsal("takes_threads")
    assert [way for way, _ in found.ways][1] == "threads=2"
    assert 0.2 < found.ways[1][1]["w0"] <= 0.5, "relative to what single rows would report"


def test_ways_that_members_differ_in_widen_the_tolerance() -> None:
    narrow, wide = rehearsal("gradient", "network"), rehearsal("gradient", "network", ways=[{"other": True}])
    assert "other=True" in dict(wide.ways)
    assert dict(wide.ways)["other=True"]["b2"] > 0
    assert all(wide.widest[name] >= narrow.widest[name] for name in narrow.widest)


def test_double_precision_that_fails_is_said_and_not_fatal() -> None:
    found = rehearsal("only_in_float32")
    assert found.repeats
    assert not found.in_double
    assert "in double precision" not in dict(found.ways)
    assert "in float64 it must compute in float64" in advice(found)[0]


def test_models_are_compared_by_their_moves() -> None:
    found = rehearsal("local_training", "network", sends="models")
    assert found.is_strict
    as_they_are = rehearsal("local_training", "network")
    move = np.linalg.norm(found.reports[0]["w0"])
    assert move < 0.5 * np.linalg.norm(as_they_are.reports[0]["w0"])
    assert found.types["w0"] == "float32"
    assert found.in_double


def test_work_that_float32_is_too_short_for_is_told_to_use_float64() -> None:
    found = rehearsal("cancels")
    assert dict(found.ways)["in double precision"]["w0"] > 1e-5
    assert advice(found)[0] == TOO_SHORT


def rehearsed_as(**numbers: Any) -> Rehearsal:
    ways = ("again, in the same way", {"w": 0.0}), ("micro_batch=1", {"w": 2e-4}), ("in double precision", {"w": 1e-4})
    found = Rehearsal("task:work", "", "", 16, "", ways, {"w": 1e-6}, {"w": 1e-6}, {"w": "float32"}, True, 20)
    return found._replace(epsilon=0.1, skippable=0.0)._replace(**numbers)


def test_one_quiet_row_of_sixteen_is_allowed_and_two_are_not() -> None:
    assert (SHARE, WIDE) == (0.1, 2e-3)
    assert rehearsed_as(skippable=1 / 16).is_strict
    assert not rehearsed_as(skippable=2 / 16).is_strict
    assert advice(rehearsed_as(skippable=1 / 16)) == ()


def test_a_wide_tolerance_has_one_cause() -> None:
    assert advice(rehearsed_as(tolerance={"w": 2e-3})) == ()
    assert advice(rehearsed_as(tolerance={"w": 2.1e-3})) == (STEPS,)
    double = ("again, in the same way", {"w": 0.0}), ("in double precision", {"w": 1e-3})
    assert advice(rehearsed_as(tolerance={"w": 1e-2}, ways=double)) == (TOO_SHORT,)
    assert len(advice(rehearsed_as(tolerance={"w": 1e-2}, in_double=False, skippable=0.5))) == 1


def test_float16_is_named() -> None:
    found = rehearsal("in_float16", model={"w0": network.untrained()["w0"].astype(np.float16)})
    assert "Compute and report in float32" in " ".join(advice(found))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("crashes_with_one_row", "with 1 row it raises ValueError in rehearsed.py, line"),
        ("returns_a_list", "with 8 rows it must return arrays of numbers by name"),
        ("returns_text", "it must report arrays of real numbers (float16, float32, float64), got str"),
        ("returns_whole_numbers", "(float16, float32, float64), got none"),
        ("overflows", "it must report finite numbers"),
        ("is_not_there", "AttributeError: module 'tests.looks.rehearsed' has no attribute 'is_not_there'"),
        (
            "gives_other_tensors",
            "must give the same finite tensors in every way, but in double precision tensor 'b0' is missing",
        ),
    ],
)
def test_what_cannot_be_looked_at_says_why_and_quotes_no_row(name: str, reason: str) -> None:
    found = rehearsal(name)
    assert reason in found.unable
    assert "secret" not in found.unable
    assert (found.repeats, found.is_strict, found.reports) == (False, False, ())
    assert "any number of rows, one too" in advice(found)[0]


def test_time_and_memory_are_limited() -> None:
    assert "more than 1 seconds" in rehearsal("waits", limits=Limits(wall=1, cpu=60, memory=2**32)).unable


def test_the_other_machines_reports_are_looked_at() -> None:
    mine = rehearsal("gradient", "network")
    assert rehearsal("gradient", "network", others=(mine.about, mine.reports)).failed == 0
    forged = [dict(report) for report in mine.reports]
    forged[2]["w1"] = forged[2]["w1"] * np.float32(1.01)
    found = rehearsal("gradient", "network", others=(mine.about, forged))
    assert (found.failed, len(found.reasons)) == (1, 1)
    assert found.reasons[0].startswith("tensor 'w1' differs by 6.0e-03")
    assert found.epsilon == failure_bound(1, 4)


@pytest.mark.parametrize("changed", [{"seed": 1}, {"request": 7}, {"model": network.trained(1)}, {"sends": "models"}])
def test_reports_of_other_work_are_refused(changed: dict[str, Any]) -> None:
    mine = rehearsal("gradient", "network", looks=2)
    with pytest.raises(ValueError, match="`others` must be reports by the same function on the same model, rows"):
        rehearsal("gradient", "network", looks=2, others=(mine.about, mine.reports), **changed)


def test_reports_of_fewer_looks_are_refused() -> None:
    mine = rehearsal("gradient", "network", looks=2)
    with pytest.raises(ValueError, match="`others` must be reports by the same"):
        rehearsal("gradient", "network", looks=2, others=(mine.about, mine.reports[:1]))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"request": 61}, "`rows` must be at least the 61 of `request`, got 60"),
        ({"looks": 0}, "`looks` must be a positive integer, got 0"),
        ({"most": -0.1}, "`most` must be a finite number of at least 0"),
        ({"sends": "both"}, "`sends` must be one of"),
        ({"threads": 0}, "`threads` must be a positive integer"),
    ],
)
def test_what_makes_no_sense_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rehearsal("gradient", "network", **changed)


def test_rows_are_named_as_in_a_round_each_once() -> None:
    rows, seeds = _named(Table({"n": np.arange(12)}), 4, 3, 0)
    assert sorted(rows["n"].tolist()) == list(range(12))
    assert len(set(seeds)) == 3
    other, _ = _named(Table({"n": np.arange(12)}), 4, 3, 1)
    assert other["n"].tolist() != rows["n"].tolist()


def test_the_largest_share_of_the_searched_looks_counts() -> None:
    assert SEARCHED == 3
    shares = [rehearsal("gradient", "network", model=network.trained(2000), looks=looks).skippable for looks in (1, 3)]
    assert shares[1] >= shares[0]


def test_functions_here_do_what_their_names_say() -> None:
    rows = {name: array[:8] for name, array in network.rows(60, 3).items()}
    one = rehearsed.draws_by_itself(network.untrained(), rows, 0)["w0"]
    assert (one != rehearsed.draws_by_itself(network.untrained(), rows, 0)["w0"]).any()
