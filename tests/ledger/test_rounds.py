"""Recording rounds: once, atomically, recomputed, and refused loudly where something does not fit."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from guerdon import (
    AffineCost,
    EstimatedVariance,
    FlatPay,
    FunctionCost,
    KnownVariance,
    OutputAgreement,
    PowerCost,
    gather,
    registry,
    round_of,
)
from guerdon.evidence import Evidence
from guerdon.lab.truth import GenieAided
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.books.money import to_micro
from guerdon.rule import Payments, Round
from tests.support.ledger_scenes import AT_ONCE, HARSH, NAMES, REMEMBERING, RULE, busy_ledger, on, play, record
from tests.support.libraries import Library, every_library


def totals(ledger: Ledger) -> dict[str, int]:
    return {row.agent: row.balance + row.carried for row in ledger.balances()}


def test_what_is_recorded_is_what_the_mechanism_pays(ledger: Ledger) -> None:
    ledger.start_run("heart", NAMES, RULE, AT_ONCE)
    played = play(5)
    record(ledger, "heart", played)
    expected = np.sum([to_micro(one.payments.released) for one in played], axis=0)
    assert list(totals(ledger).values()) == [expected[NAMES.index(name)] for name in sorted(NAMES)]
    assert ledger.common_balances()["treasury"] == -sum(expected)
    assert ledger.verify().holds


def test_the_same_round_again_changes_nothing(ledger: Ledger) -> None:
    ledger.start_run("heart", NAMES, RULE, AT_ONCE)
    record(ledger, "heart", play(3))
    before, head = ledger.balances(), ledger.verify().head
    record(ledger, "heart", play(3))
    assert ledger.start_run("heart", NAMES, RULE, AT_ONCE).new is False
    assert ledger.record_round("heart", *play(3)[2].arguments(), gradients=play(3)[2].gradients,
                               checkpoint={"model": {"weights": np.arange(4.0) * 3}}).new is False  # fmt: skip
    assert (ledger.balances(), ledger.verify().head) == (before, head)


def different() -> dict[str, dict[str, Any]]:
    """The third round with one thing changed, by what that is."""
    one = play(3)[2]
    seen = round_of(one.evidence, one.sent, one.request)
    call: dict[str, Any] = {
        "number": 3, "round": seen, "gradients": one.gradients,
        "checkpoint": {"model": {"weights": np.arange(4.0) * 3}},
    }  # fmt: skip
    other, five = play(3, seed=9)[2], play(3, agents=5)[2]
    changes: dict[str, dict[str, Any]] = {
        "request": {"round": seen._replace(request=9)},
        "squared_deviation of agent 'north'": {"round": round_of(other.evidence, other.sent, 8)},
        "counted of agent 'west'": {"round": seen._replace(evidence=one.evidence._replace(counted=one.sent))},
        "sent of agent 'west'": {"round": seen._replace(sent=one.evidence.counted)},
        "trusted of agent 'north'": {"round": seen._replace(trusted=np.arange(4) == 1)},
        "is_last": {"round": seen._replace(is_last=True)},
        "gradients of agent 'north'": {"gradients": [bytes(32), *one.gradients[1:]]},
        "checkpoint": {"checkpoint": {"model": {"weights": np.arange(4.0)}}},
        "metrics": {"metrics": {"loss": 1.0}},
        "notes of agent 'north'": {"notes": ["late", "", "", ""]},
        "rule": {"rule": OutputAgreement(AffineCost(1, 1), KnownVariance(2.0))},
        "cost": {"rule": replace(RULE, cost=AffineCost(2, 1))},
        "agents": {"agents": [*NAMES, "new"], "round": round_of(five.evidence, five.sent, 8),
                   "gradients": five.gradients},
    }  # fmt: skip
    return {what: call | change for what, change in changes.items()}


def test_another_round_in_the_place_of_a_recorded_one_is_refused(ledger: Ledger) -> None:
    ledger.start_run("heart", NAMES, RULE, AT_ONCE)
    record(ledger, "heart", play(3))
    before = ledger.verify()
    for what, call in different().items():
        with pytest.raises(RefusedError, match=f"round 3 of run 'heart' is recorded already, with another {what}"):
            ledger.record_round("heart", **call)
    assert ledger.verify() == before


def test_a_run_cannot_begin_again_otherwise(ledger: Ledger) -> None:
    ledger.start_run("heart", NAMES, RULE, AT_ONCE)
    for change in ({"rule": HARSH}, {"agents": NAMES[::-1]}, {"terms": on("floor")}):
        call: dict[str, Any] = {"name": "heart", "agents": NAMES, "rule": RULE, "terms": AT_ONCE} | change
        with pytest.raises(RefusedError, match="run 'heart' was started with another"):
            ledger.start_run(**call)


@pytest.mark.parametrize("rule", [RULE, HARSH, REMEMBERING, FlatPay(PowerCost(0.5, 2, 1))])
def test_the_ledger_says_what_it_paid_also_when_asked_again(ledger: Ledger, rule: Any) -> None:
    ledger.start_run("heart", NAMES, rule, AT_ONCE)
    for one in play(4, rule):
        new, again = (ledger.record_round("heart", *one.arguments()).payments for _ in range(2))
        assert new is not None
        assert again is not None
        np.testing.assert_array_equal(to_micro(new.released), to_micro(one.payments.released))
        for paid, found, own in zip(new, again, one.payments, strict=True):
            assert found.dtype == (np.int64 if paid is new.status else np.float64)
            np.testing.assert_array_equal(paid, found)
            np.testing.assert_allclose(paid, own, rtol=1e-12, atol=1e-6)


class Careless(FlatPay):
    """Says that it has paid everybody, whatever anybody sent."""

    name = "careless"

    def pay(self, state: Any, round: Round) -> tuple[Payments, Any]:
        payments, state = super().pay(state, round)
        return payments._replace(status=0 * payments.status), state


def test_a_rule_whose_statuses_cannot_be_replayed_is_refused(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._RULES, "careless", Careless)
    ledger.start_run("run", NAMES, Careless(AffineCost(1, 1)), AT_ONCE)
    three = play(3)[2]
    for played in (three, three._replace(sent=three.evidence.counted)):  # one unusable, one absent
        with pytest.raises(RefusedError, match="must give DECLINED to agents that sent nothing"):
            ledger.record_round("run", 1, round_of(played.evidence, played.sent, 8))


def test_rounds_follow_each_other(ledger: Ledger) -> None:
    ledger.start_run("heart", NAMES, RULE, AT_ONCE)
    played = play(4)
    with pytest.raises(RefusedError, match="round 2 of run 'heart' cannot be recorded: a run begins with round 0 or 1"):
        record(ledger, "heart", played[1:2])
    record(ledger, "heart", played[:2])
    with pytest.raises(RefusedError, match="round 4 of run 'heart' cannot be recorded: it cannot follow round 2"):
        record(ledger, "heart", played[3:])
    with pytest.raises(RefusedError, match="round 0 of run 'heart' comes before the first"):
        record(ledger, "heart", [played[0]._replace(number=0)])
    with pytest.raises(RefusedError, match="there is no run 'other'; there is 'heart'"):
        record(ledger, "other", played)


@every_library
def test_evidence_of_any_library_can_be_recorded(ledger: Ledger, library: Library) -> None:
    ledger.start_run("heart", NAMES, RULE, AT_ONCE)
    with library.precision():
        gradients = library.array(np.random.default_rng(0).normal(size=(4, 7)))
        everybody = library.mask([True] * 4)
        evidence = (jax.jit(gather) if library.name == "jax" else gather)(gradients, everybody)
        for new in (True, False):
            call = ledger.record_round(
                "heart", 1, round_of(evidence, everybody, 8), checkpoint={"model": {"w": gradients}}
            )
            assert call.new is new
    assert ledger.verify().holds


@pytest.mark.parametrize("rule", [FlatPay(PowerCost(0.5, 2, 1)), HARSH, REMEMBERING], ids=["flat", "known", "memory"])
@pytest.mark.parametrize("losses", ["carry", "deposit", "floor"])
def test_every_rule_and_way_to_cover_losses_verifies(ledger: Ledger, rule: Any, losses: Any) -> None:
    ledger.start_run("run", NAMES, rule, on(losses))
    record(ledger, "run", play(6, rule))
    assert ledger.verify().problem is None


def test_a_remembering_rule_goes_on_after_the_ledger_was_closed(where: str) -> None:
    played = play(6, REMEMBERING)
    with Ledger(where) as ledger:
        ledger.start_run("run", NAMES, REMEMBERING, AT_ONCE)
        record(ledger, "run", played[:3])
    with Ledger(where) as ledger:
        record(ledger, "run", played[3:])
        assert ledger.verify().holds


def test_agents_may_join_a_run(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES[:3], REMEMBERING, AT_ONCE)
    record(ledger, "run", play(2, REMEMBERING, agents=3))
    everybody = np.ones(4, dtype=bool)
    evidence = gather(np.random.default_rng(5).normal(size=(4, 6)), everybody)
    with pytest.raises(RefusedError, match="`agents` must begin with the 3 agents"):
        ledger.record_round("run", 3, round_of(evidence, everybody, 8), agents=NAMES[::-1])
    with pytest.raises(RefusedError, match="`round` must have one entry for each of the 3 agents of run"):
        ledger.record_round("run", 3, round_of(evidence, everybody, 8))
    ledger.record_round("run", 3, round_of(evidence, everybody, 8), agents=NAMES)
    assert ledger.runs()[0].agents == 4
    assert ledger.verify().problem is None


def test_a_failed_call_leaves_no_trace(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES[:3], RULE, AT_ONCE)
    one = play(1)[0]
    before = ledger.verify()
    with pytest.raises(RefusedError, match="has a signature"):  # the newcomer was to be enrolled in the same breath
        ledger.record_round("run", *one.arguments(), agents=NAMES, signatures=[b"x"] * 4)
    assert ledger.verify() == before
    assert [row.agent for row in ledger.balances()] == sorted(NAMES[:3])


def test_a_known_variance_may_change_from_round_to_round(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, HARSH, AT_ONCE)
    for one in play(3, HARSH):
        rule = OutputAgreement(AffineCost(1, 1), KnownVariance(1.0 + one.number))
        expected, _ = rule.pay(rule.init(4), round_of(one.evidence, one.sent, 8))
        recorded = ledger.record_round("run", *one.arguments(), rule=rule).payments
        assert recorded is not None
        np.testing.assert_allclose(recorded.released, expected.released, rtol=1e-9, atol=1e-6)
    assert ledger.verify().holds


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": -1}, "`number` must be an integer of at least 0, got -1"),
        ({"number": 1.0}, "`number` must be an integer"),
        (
            {"round": play(1)[0].evidence},
            "`round` must be a Round, as `Settlement.round` and `round_of` give, got Evid",
        ),
        ({"request": 0}, "`request` must be a positive integer, got 0"),
        ({"gradients": [b"short", None, None, None]}, "`gradients` must be hashes of 32 bytes"),
        ({"gradients": [None]}, "`gradients` must have one entry for each of the 4 agents, got 1"),
        ({"notes": ["x"]}, "`notes` must have one entry for each of the 4 agents"),
        ({"signatures": [b"x", None, None, None]}, "agent 'north' has a signature"),
        ({"checkpoint": {"a/b": {}}}, "`checkpoint` must map names without '/'"),
        ({"checkpoint": {"model": {"w": np.array(["text"])}}}, "`checkpoint` holds an array that cannot be saved"),
        (
            {"evidence": play(1, agents=3)[0].evidence},
            "`squared_deviation` must have one entry for each of the 4 agents",
        ),
        ({"sent": np.ones(4)}, "`sent` must be an array of booleans, got dtype float64"),
        ({"trusted": np.ones(4)}, "`trusted` must be an array of booleans, got dtype float64"),
        ({"trusted": np.arange(4) < 1, "sent": np.arange(4) > 1}, "got False for agent 0"),
        ({"sent": np.arange(4) > 1}, "got False for agent 0, which `evidence` counts"),
    ],
)
def test_bad_input_is_named(ledger: Ledger, change: dict[str, Any], message: str) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    number, seen = play(1)[0].arguments()
    told = {name: value for name, value in change.items() if name in Round._fields}
    call: dict[str, Any] = {"number": number, "round": seen._replace(**told)}
    rest = {name: value for name, value in change.items() if name not in told}
    with pytest.raises((ValueError, TypeError), match=message.replace("(", r"\(")):
        ledger.record_round("run", **(call | rest))
    assert ledger.rounds("run") == []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (OutputAgreement(FunctionCost(lambda s: s + 1)), "`cost` must be one that can be written down"),
        (
            GenieAided(AffineCost(1, 1), KnownVariance(1.0)),
            "`rule` must be a rule that can be recorded",
        ),
    ],
)
def test_what_cannot_be_recomputed_cannot_be_recorded(ledger: Ledger, rule: Any, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        ledger.start_run("run", NAMES, rule, AT_ONCE)


@pytest.mark.parametrize("names", [[], "north", ["a", "a"], [""], ["x" * 201], ["nul\0"], [3]])
def test_bad_names_are_refused(ledger: Ledger, names: Any) -> None:
    with pytest.raises(ValueError, match=r"agents|name"):
        ledger.start_run("run", names, RULE, AT_ONCE)


def test_metrics_that_are_no_numbers_do_not_stop_the_pay(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    ledger.record_round("run", *play(1)[0].arguments(), metrics={"loss": float("nan"), "accuracy": 0.5})
    assert ledger.rounds("run")[0].metrics == {"loss": None, "accuracy": 0.5}
    assert ledger.verify().holds


def test_everything_together_verifies(ledger: Ledger) -> None:
    busy_ledger(ledger)
    found = ledger.verify()
    assert found.problem is None
    assert found.payments == 4 * 10 + 5 * 5 + 4 * 4 + 2 * 5
    assert [run.rounds for run in ledger.runs()] == [6, 4, 5, 6]
    assert ledger.rounds("heart")[2].statuses["invalid"] == 1


@pytest.mark.parametrize("rule", [HARSH, RULE], ids=["known", "balanced"])
@pytest.mark.parametrize("losses", ["carry", "deposit", "floor"])
def test_nobody_can_keep_the_others_from_being_paid(ledger: Ledger, rule: Any, losses: Any) -> None:
    ledger.start_run("run", NAMES, rule, on(losses))
    rng, everybody = np.random.default_rng(0), np.ones(4, dtype=bool)
    for number, size in enumerate([1.0, 1e9, 1e14, 1.0], 1):
        gradients = rng.normal(size=(4, 6))
        gradients[3] *= size
        assert ledger.record_round("run", number, round_of(gather(gradients, everybody), everybody, 8)).new
    assert ledger.verify().problem is None


@pytest.mark.parametrize("rule", [OutputAgreement(AffineCost(1, 1), EstimatedVariance()), REMEMBERING, RULE])
@pytest.mark.parametrize("size", [100.0, 1000.0])
def test_rounds_in_single_precision_are_accepted(ledger: Ledger, rule: Any, size: float) -> None:
    """As JAX computes by default, with one agent far out."""
    rng, everybody, single = np.random.default_rng(0), np.ones(6, dtype=bool), np.float32
    names = [f"agent {index}" for index in range(6)]
    ledger.start_run("run", names, rule, AT_ONCE)
    for number in range(1, 12):
        gradients = rng.normal(size=(6, 20))
        gradients[number % 6] *= size if number < 3 else 1
        seen = gather(gradients, everybody)
        evidence = Evidence(*(part.astype(single) for part in seen[:-1]), counted=seen.counted)
        call: Any = ("run", number, round_of(evidence, everybody, 8))
        assert ledger.record_round(*call).new
        assert not ledger.record_round(*call).new
    assert ledger.verify().problem is None


def test_rounds_from_before_somebody_joined_can_be_replayed(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    record(ledger, "run", play(2))
    ledger.record_round("run", *play(3, agents=5)[2].arguments(), agents=[*NAMES, "new"])
    before = ledger.verify()
    record(ledger, "run", play(2))
    record(ledger, "run", play(1), agents=NAMES)
    assert not ledger.record_round("run", *play(3, agents=5)[2].arguments()).new
    assert not ledger.start_run("run", NAMES, RULE, AT_ONCE).new
    assert not ledger.start_run("run", [*NAMES, "new"], RULE, AT_ONCE).new
    assert ledger.verify() == before
    for agents in (NAMES[:2], [*NAMES, "other"], [*NAMES, "new", "other"]):
        with pytest.raises(RefusedError, match="was started with another agents"):
            ledger.start_run("run", agents, RULE, AT_ONCE)


def test_numbers_of_numpy_are_as_good(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    one = play(1)[0]
    assert ledger.record_round("run", *one.arguments()).new
    assert not ledger.record_round("run", np.int64(1), round_of(one.evidence, one.sent.tolist(), np.int64(8))).new  # pyright: ignore[reportArgumentType]


def test_nonsense_is_named_before_the_database_sees_it(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    one = play(1)[0]
    for evidence, message in [
        (
            one.evidence._replace(squared_length=-one.evidence.squared_length),
            "no deviation, pair distance or length is negative",
        ),
        (one.evidence._replace(pair_distance=-one.evidence.pair_distance), "no deviation, pair distance or length is"),
        (one.evidence._replace(squared_length=one.evidence.squared_length * np.nan), "must hold finite numbers only"),
    ]:
        with pytest.raises(RefusedError, match=message):
            ledger.record_round("run", 1, round_of(evidence, one.sent, 8))
    with pytest.raises(TypeError, match="`number` must be an integer"):
        ledger.record_round("run", 2**63, round_of(one.evidence, one.sent, 8))


def test_notes_are_kept_within_limits_and_zero_has_no_sign(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    one = play(1)[0]
    evidence = one.evidence._replace(alignment=np.where(one.evidence.counted, one.evidence.alignment, -0.0))
    ledger.record_round("run", 1, round_of(evidence, one.sent, 8), notes=["x" * 10_000, "nul\0", "\ud800", ""])
    assert ledger.statement("north").lines[0].why.endswith("note: " + "x" * 500)
    assert ledger.verify().problem is None


def test_the_state_comes_back_with_the_round(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, REMEMBERING, AT_ONCE)
    state = REMEMBERING.init(4)
    for one in play(4, REMEMBERING):
        ledger.record_round("run", *one.arguments())
        _, state = REMEMBERING.pay(state, round_of(one.evidence, one.sent, one.request))
    resumed = ledger.resume("run")
    assert resumed is not None
    for own, kept in zip(state, resumed.state, strict=True):
        np.testing.assert_allclose(own, kept, rtol=1e-12)
