"""Rounds that pay the cost first, and settle the rest later: also for agents that are absent then."""

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import AffineCost, ExpressionCost, FixedRequest, gather, registry, round_of
from guerdon.agreement import KnownVariance, OutputAgreement
from guerdon.dashboard.explanations import formula
from guerdon.dashboard.series import agent_series, participation
from guerdon.dashboard.source import LedgerSource
from guerdon.dashboard.statistics import pay_against_cost
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.pay.losses import Standing
from guerdon.ledger.pay.vesting import Played, begin, settle_round
from guerdon.ledger.read.statements import payments_of
from guerdon.registry import register
from guerdon.rule import Status, paid_work
from guerdon.statistical.servers import server_for
from guerdon.words import about
from tests.support.command_line import run as guerdon
from tests.support.late_rule import LateExtra
from tests.support.ledger_scenes import AT_ONCE, NAMES, check_agreement, check_totals, on

COST = AffineCost(1, 1)
RULE = LateExtra(COST)
TURNS = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 1], [1, 1, 1, 1]], dtype=bool)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))  # it does not stay
    register(LateExtra)


def reports(number: int) -> Any:
    """Return what agents send; the third sends garbage when the first two rounds are settled."""
    sent = 0.5 + np.random.default_rng(number).normal(size=(4, 6)) * 0.5
    if number == 3:
        sent[2] = np.nan
    return sent


def fill(ledger: Ledger, **terms: Any) -> list[Any]:
    """Record the rounds, and return what was paid in each."""
    ledger.start_run("run", NAMES, RULE, on(**terms))
    found: list[Any] = []
    for number, here in enumerate(TURNS, 1):
        recorded = ledger.record_round("run", number, round_of(gather(reports(number), here), here, 8))
        assert recorded.payments is not None
        found.append(recorded.payments)
    return found


def extras() -> Any:
    """Return what the first two rounds were worth beyond the cost, by the rule that does not wait."""
    rule, everybody = OutputAgreement(COST, KnownVariance(10.0)), np.ones(4, dtype=bool)
    paid = [rule.pay(rule.init(4), round_of(gather(reports(number), everybody), everybody, 8))[0] for number in (1, 2)]
    return sum(one.released - 9 for one in paid)


@pytest.mark.parametrize("terms", [{}, {"hold": 2}, {"losses": "floor"}, {"cost_factors": {"west": 1.5}}])
def test_what_is_settled_later_is_booked_and_verified(ledger: Ledger, terms: Any) -> None:
    paid = fill(ledger, **terms)
    factors = np.array([1, 1, 1, 1.5 if "cost_factors" in terms else 1])
    assert paid[0].released.tolist() == paid[1].released.tolist() == (9 * factors).tolist()
    assert [Status(int(status)).label for status in paid[2].status] == ["paid", "paid", "invalid", "declined"]
    np.testing.assert_allclose(paid[2].released[2:], (extras() * factors)[2:], atol=1e-6)
    assert ledger.verify().problem is None
    check_totals(ledger)
    assert ledger.rounds("run")[0].statuses == {"waiting": 4}
    earned = {row.agent: row.earned / 1e6 for row in ledger.balances()}
    if "losses" not in terms:
        np.testing.assert_allclose([earned[name] for name in NAMES], sum(one.released for one in paid), atol=1e-5)
    again = fill(ledger, **terms)
    for one, other in zip(paid, again, strict=True):
        np.testing.assert_array_equal(one.released, other.released)


def test_statements_say_why(ledger: Ledger) -> None:
    paid = fill(ledger)
    first, _, third, *_ = ledger.statement("west").lines
    assert first.why == "9 for the 8 samples asked for; the extra of this round follows when distances have a scale"
    reward = f"{paid[2].released[3]:.4g}"
    assert third.why.startswith(f"{reward}, the extra of earlier rounds: it did not take part in this one")
    assert third.reward == round(paid[2].released[3] * 1e6)
    garbage = ledger.statement("east").lines[2].why
    assert garbage.startswith(f"{paid[2].released[2]:.4g}, the extra of earlier rounds: what it sent cannot be used")
    assert "nothing: it did not take part" in ledger.statement("east").lines[3].why
    with ledger.reading() as connection:
        rows = list(payments_of(connection, 4, 0, 99).values())
    assert formula(rows[0]) == ("R = h(ν)", "h(8) = 9.00")
    assert formula(rows[2]) is None


def test_two_are_told_in_every_round_that_they_cannot_be_compared(ledger: Ledger) -> None:
    rule, rng = OutputAgreement(COST), np.random.default_rng(0)
    ledger.start_run("run", NAMES, rule, AT_ONCE)
    for number, present in enumerate([2, 4, 4, 4, 2, 3], 1):
        here = np.arange(4) < present
        ledger.record_round("run", number, round_of(gather(rng.normal(size=(4, 40)), here), here, 8))
    lines = ledger.statement(NAMES[0]).lines
    why = "only two took part, or all reports were the same: they cannot be compared, and are paid their cost"
    assert [number for number, line in enumerate(lines, 1) if "only two" in line.why] == [1, 5]
    assert lines[0].why == lines[4].why == f"9 for the 8 samples asked for; {why}"


def test_pay_against_cost_has_all_that_was_paid(ledger: Ledger, where: str) -> None:
    paid = fill(ledger)
    source = LedgerSource(where)
    data, told = source.run(1), {row.agent: row for row in ledger.earnings()}
    source.close()
    for seat, row in enumerate(pay_against_cost(data)):
        own = told[NAMES[seat]]
        total = sum(one.released[seat] for one in paid)
        worked = sum(Status(int(one.status[seat])).is_paid for one in paid)
        assert (own.rounds, own.paid, own.cost) == pytest.approx((worked, total, 9.0 * worked), abs=1e-5)
        assert (row.rounds, row.paid, row.work) == pytest.approx((worked, own.pay, 9.0), abs=1e-5)
        assert row.low is not None
        assert own.margin == pytest.approx(row.difference - row.low, rel=1e-6)
        drawn = agent_series(data, seat + 1)
        assert (drawn.paid[-1], drawn.work[-1]) == pytest.approx((total, 9.0 * worked), abs=1e-5)
    assert participation(data).labels[6] == "waiting"


def test_what_an_absent_agent_gets_waits_with_its_newest_pay() -> None:
    """Pay is released after two rounds of its own: so is what is settled of them while it is away."""
    nothing, state = np.zeros(1, dtype=np.int64), begin(1, 2)
    released: list[int] = []
    for number, (amount, worked) in enumerate([(9, True), (9, True), (5, False), (0, False), (9, True), (9, True)]):
        played = Played(np.array([worked]), np.array([9]), number)
        flows, state = settle_round("carry", np.array([amount]), Standing(nothing, nothing, nothing), state, played)
        released.append(int(flows.released[0]))
    assert released == [0, 0, 0, 0, 9, 9]  # no more than the cost of these rounds
    assert state.held.tolist() == [23]
    assert state.waiting.tolist() == [[9, 9]]


def test_a_deposit_is_bound_while_the_run_waits(ledger: Ledger) -> None:
    """Work that has its cost and waits for the rest is work: the deposit of who joined stays."""
    ledger.enrol({"new": None})
    ledger.move("deposit", "new", 4_000_000)
    ledger.start_run("run", NAMES, RULE, on("deposit", 2, deposit=4))
    here = np.ones(5, dtype=bool)
    rng = np.random.default_rng(9)
    ledger.record_round("run", 1, round_of(gather(rng.normal(size=(5, 6)), here), here, 8), agents=[*NAMES, "new"])
    with pytest.raises(RefusedError, match="deposit"):
        ledger.move("withdraw", "new", 1_000_000)
    assert ledger.verify().problem is None


SETTLES = 2  # index of the round that settles those before it


def play_by_default(ledger: Ledger) -> list[dict[str, float]]:
    """Record twelve rounds of a server that pays by the default rule; west is away at first, and somebody joins."""
    rule = OutputAgreement(COST)
    server, rng, model = server_for(rule, FixedRequest(8, step=0.1)), np.random.default_rng(4), np.zeros(6)
    state, names, told = server.init(model, 4), NAMES, list[dict[str, float]]()
    ledger.start_run("run", names, rule, AT_ONCE)
    for number in range(1, 13):
        if number == 5:
            names = [*NAMES, "new"]
            state = server.enlarge(state, 5)
        here = np.array([(name, number) not in {("west", 2), ("west", 3), ("north", 8)} for name in names])
        reports = 0.5 + 0.5 * rng.normal(size=(len(names), 6))
        reports[1] *= 1e6 if number == 9 else 1  # the cut bounds what it loses
        ask, state = server.ask(state, model)
        done, state = server.settle(state, ask, reports, here)
        ledger.record_round("run", number, round_of(done.evidence, here, 8), agents=names)
        told.append(dict(zip(names, map(float, done.payments.released), strict=True)))
    return told


def test_the_default_rule_adds_up(ledger: Ledger) -> None:
    told = play_by_default(ledger)
    check_agreement(ledger, "run", told)
    check_totals(ledger)
    assert -1600 <= told[8]["south"] < -50
    north, west = (ledger.statement(name).lines for name in ("north", "west"))
    assert [line.status for line in north[: SETTLES + 1]] == ["waiting"] * SETTLES + ["paid"]
    assert west[SETTLES].status == "declined"
    assert west[SETTLES].reward == round(told[SETTLES]["west"] * 1e6) != 0
    assert ", the extra of earlier rounds: it did not take part in this one" in west[SETTLES].why
    assert ", the extra of earlier rounds" in north[SETTLES].why
    assert "earlier rounds" not in north[-1].why


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_extras_add_up_to_nothing_in_the_books_whatever_is_sent(data: st.DataObject) -> None:
    """To a micro-unit an agent, in every round: any numbers, absences, and a last round that settles what is open."""
    agents, dim, rounds = data.draw(st.integers(3, 5)), data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    rule = OutputAgreement(COST)
    server, model = server_for(rule, FixedRequest(8, 0.1), alike=True), np.zeros(dim)
    state, names = server.init(model, agents), [f"m{i}" for i in range(agents)]
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "guerdon.db") as ledger:
        ledger.start_run("run", names, rule, AT_ONCE)
        for number in range(1, rounds + 1):
            sent = np.array(data.draw(st.lists(st.booleans(), min_size=agents, max_size=agents)))
            numbers = st.one_of(st.floats(-1e6, 1e6), st.floats(-2, 2), st.sampled_from([0.0, 1.0, 1e14]))
            drawn = data.draw(st.lists(numbers, min_size=agents * dim, max_size=agents * dim))
            ask, state = server.ask(state, model)
            ask = ask._replace(is_last=number == rounds)
            done, state = server.settle(state, ask, np.array(drawn).reshape(agents, dim), sent)
            recorded = ledger.record_round("run", number, done.round, payments=done.payments).payments
            assert recorded is not None
            assert recorded.released.sum() == pytest.approx(9.0 * paid_work(recorded.status).sum(), abs=1e-6 * agents)
            assert (recorded.released >= -about(rule).worst_loss(rule, 8) * (1 + 1e-9)).all()
        assert ledger.verify().problem is None


def test_the_formula_of_a_round_that_settles_others_says_so(ledger: Ledger) -> None:
    told = play_by_default(ledger)
    with ledger.reading() as connection:
        rows = list(payments_of(connection, 1, 0, 99).values())
    found = formula(rows[SETTLES])
    assert found is not None
    assert found.rule == "R = h(ν) + h′(ν) · ν² ÷ V · (E − D) + extra of earlier rounds"
    filled = found.filled.split(" = ")[0].replace("·", "*").replace("÷", "/").replace("²", "**2").replace("−", "-")
    assert ExpressionCost(filled)(1.0) == pytest.approx(told[SETTLES]["north"], abs=2e-5)
    with ledger.reading() as connection:
        garbage = formula(list(payments_of(connection, 2, 0, 99).values())[8])
    assert garbage is not None
    assert re.search(r"\(E − D\) \(no distance counts for more than \d", garbage.rule)
    assert "no distance counts for more than" in ledger.statement("south").lines[8].why
    plain = formula(rows[11])
    assert plain is not None
    assert "earlier" not in plain.rule


def play_short(ledger: Ledger, numbers: range, present: int = 3, *, closing: bool = False, **terms: Any) -> None:
    """Record rounds of the default rule; the last one may be said to be the last."""
    rule, here = OutputAgreement(COST), np.arange(4) < present
    ledger.start_run("run", NAMES, rule, on(**terms))
    for number in numbers:
        last = closing and number == numbers[-1]
        reports = np.random.default_rng(number).normal(size=(4, 6))
        ledger.record_round("run", number, round_of(gather(reports, here), here, 8, is_last=last))


@pytest.mark.parametrize("terms", [{}, {"hold": 2}])
def test_closing_a_run_warns_of_rounds_that_are_still_open(
    ledger: Ledger, where: str, terms: Any, caplog: pytest.LogCaptureFixture
) -> None:
    play_short(ledger, range(1, 3), **terms)
    assert ledger.rounds("run")[1].statuses == {"waiting": 3, "declined": 1}
    assert ledger.close_run("run").open == 2
    assert "run 'run': 2 of its rounds paid the cost alone, and their extras still wait. Play one more" in caplog.text
    assert "2 of its rounds still wait for their extras" in guerdon("ledger", "close", "run", "--db", where).stdout
    caplog.clear()
    play_short(ledger, range(3, 4), closing=True, **terms)  # as it says
    assert ledger.rounds("run")[2].statuses == {"paid": 3, "declined": 1}
    assert ledger.close_run("run").open == 0
    assert caplog.text == ""
    assert "still wait" not in guerdon("ledger", "close", "run", "--db", where).stdout


@pytest.mark.parametrize(
    ("last", "present", "closing"),
    [(1, 3, True), (2, 3, True), (8, 3, False), (4, 2, False)],
    ids=["one round", "closed in time", "settled long since", "two that cannot be compared"],
)
def test_a_run_in_which_nothing_follows_closes_in_silence(
    ledger: Ledger, caplog: pytest.LogCaptureFixture, last: int, present: int, closing: bool
) -> None:
    play_short(ledger, range(1, last + 1), present, closing=closing)
    assert ledger.close_run("run").open == 0
    assert caplog.text == ""
