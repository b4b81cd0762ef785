"""Information pay in the ledger: recorded, recomputed, resumed, explained and exported like any other rule."""

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from guerdon import AffineCost, ExpressionCost, FlatPay, InformationPay, Payments, Status, explain, registry, round_of
from guerdon.dashboard import statistics
from guerdon.dashboard.explanations import formula
from guerdon.dashboard.queries import read_run
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.pay.recorded_rules import restored
from guerdon.ledger.proof.replay import largest_term
from guerdon.ledger.read.statements import payments_of
from guerdon.rule import padded, remembers
from guerdon.states import NoState
from guerdon.statistical.signal import SignalState
from guerdon.words import about
from tests.support.audit_scenes import COST, REQUEST, RULE, Training, record_more, record_training, send_prediction
from tests.support.ledger_scenes import AT_ONCE, REMEMBERING, play

if TYPE_CHECKING:
    from guerdon.rule import Rule

NAMES = ["Basel", "Lyon", "Porto", "Turin", "Vigo"]


@pytest.mark.parametrize(
    "rule", [RULE, InformationPay(AffineCost(2, 0.5), decay=0.9, least=0.1, doubt=math.inf, limit=math.inf)]
)
def test_a_rule_can_be_written_down_and_read_again(rule: InformationPay) -> None:
    text, cost = registry.describe(rule)
    again = registry.restore(text, cost)
    assert isinstance(again, InformationPay)
    assert (again.decay, again.least, again.doubt, again.limit) == (rule.decay, rule.least, rule.doubt, rule.limit)
    assert again.cost(7) == rule.cost(7)
    assert registry.describe(again)[0] == text
    assert remembers(again)


def test_infinity_is_text() -> None:
    text, _ = registry.describe(InformationPay(COST, doubt=math.inf))
    assert '{"decay":0.7,"doubt":"infinity","least":0.005,"limit":3.0,"pooled":false,"probation":20}' in text


@pytest.mark.parametrize(
    "settings",
    ['{}', '{"decay":2,"least":0.1,"doubt":9,"limit":2,"pooled":false}',
     '{"decay":2,"least":0.1,"doubt":9,"limit":2,"pooled":false,"probation":0}',
     '{"decay":0.5,"least":0.1,"doubt":"many","limit":2,"pooled":false,"probation":0}'],
)  # fmt: skip
def test_nonsense_is_refused(settings: str) -> None:
    with pytest.raises(RefusedError, match="cannot be read"):
        restored(f'{{"rule":"information","settings":{settings},"version":1}}', "1 + s")


def test_rounds_are_recorded_resumed_and_verified(ledger: Ledger) -> None:
    training = record_training(ledger, "heart", NAMES, 25, {4: send_prediction}, present=0.8)
    assert ledger.verify().holds
    resumed = ledger.resume("heart")
    assert resumed is not None
    assert isinstance(resumed.state, SignalState)
    for kept, own in zip(resumed.state, training.state or (), strict=True):
        np.testing.assert_allclose(kept, own, rtol=1e-12, atol=1e-12)


def test_another_process_goes_on_and_newcomers_join(where: str) -> None:
    with Ledger(where) as ledger:
        training = record_training(ledger, "heart", NAMES, 10)
    with Ledger(where) as ledger:  # remembers nothing: replays
        record_more(ledger, "heart", [*NAMES, "Oslo", "Ghent"], training, 10)
        resumed = ledger.resume("heart")
        assert resumed is not None
        assert resumed.state.signal.shape == (7,)
        assert resumed.arrays["lens"]["pairs.wealth"].shape[1:] == (7, 7)
        assert ledger.verify().holds
        assert ledger.audit("heart").trail.against.shape == (20, 7)


def test_the_recorded_rewards_are_those_of_the_server(ledger: Ledger) -> None:
    """The server goes from round to round with a state of its own; the ledger has replayed it."""
    training = Training(5, present=0.8)
    ledger.start_run("heart", NAMES, RULE, AT_ONCE)
    for number in range(1, 13):
        one, payments, _ = training.play({4: send_prediction})
        call = ("heart", number, round_of(one.evidence, one.participating, REQUEST, one.trusted))
        new, again = (ledger.record_round(*call) for _ in range(2))
        assert (new.record, new.new, again.new) == (again.record, True, False)
        assert new.payments is not None
        assert again.payments is not None
        np.testing.assert_allclose(new.payments.released, payments.released, rtol=1e-9, atol=1e-6)
        for kept, found in zip(new.payments, again.payments, strict=True):
            np.testing.assert_array_equal(kept, found)
    assert ledger.verify().holds


def test_the_size_of_the_parts_is_known_where_they_cancel() -> None:
    # D = 5 − 5 and E = −3: the reward's rounding is relative to the fives.
    parts = ([9.0], [9.0], [0.0], [-3.0], [1.0], [0])
    own = Payments(*(np.array(part) for part in parts))
    assert about(RULE).largest_distance(own, np.array([5.0])) >= 13
    assert largest_term(RULE, own, 8, np.array([5.0])) >= 13 * 64


def test_a_rule_goes_on_with_what_it_remembers_after_another(ledger: Ledger, where: str) -> None:
    """Information pay has the same memory with other settings; a rule without memory changes nothing in it."""
    ledger.start_run("mixed", NAMES[:4], REMEMBERING, AT_ONCE)
    state: Any = REMEMBERING.init(4)
    used: list[Rule] = [REMEMBERING, RULE, FlatPay(COST), REMEMBERING, REMEMBERING]
    for one, rule in zip(play(5, REMEMBERING), used, strict=True):
        paid, after = rule.pay(
            state if remembers(rule) else rule.init(4), round_of(one.evidence, one.sent, one.request)
        )
        state = after if remembers(rule) else state
        with Ledger(where) as another:  # remembers nothing: replays
            writer = another if one.number == 5 else ledger
            recorded = writer.record_round("mixed", *one.arguments(), rule=rule).payments
        assert recorded is not None
        np.testing.assert_allclose(recorded.released, paid.released, rtol=1e-9, atol=1e-6)
    assert ledger.verify().holds
    assert padded(RULE.init(3), NoState()).signal.shape == RULE.init(3).signal.shape


def test_reasons_are_in_plain_words(ledger: Ledger) -> None:
    record_training(ledger, "heart", NAMES, 12, {4: send_prediction}, present=0.8)
    for name in NAMES:
        for line in ledger.statement(name).lines:
            assert "distance" not in line.why
            assert line.status != "paid" or "about the gradient than the others' did" in line.why
    slip = ledger.payslips("heart")[4]
    assert "less about the gradient" in slip.why


def test_reasons_for_no_pay() -> None:
    columns = [np.zeros(6), np.zeros(6), *[np.full(6, np.nan)] * 3]
    payments = Payments(*columns, status=np.arange(6))
    reasons = explain(RULE, payments._replace(squared_distance=np.full(6, -3.0), expected=np.full(6, -1.0)), 8)
    assert reasons[0] == "9 for the 8 samples asked for, less 9: its report told 2 more about the gradient than the others' did"  # noqa: E501  # fmt: skip
    assert "fewer than two others" in reasons[Status.TOO_FEW]
    assert all("distance" not in reason for reason in reasons)


def test_exports_hold_negative_distances(ledger: Ledger, tmp_path: Path) -> None:
    import polars as pl

    record_training(ledger, "heart", NAMES, 8, {4: send_prediction})
    ledger.export("parquet", tmp_path / "p.parquet", "payments")
    table = pl.read_parquet(tmp_path / "p.parquet")
    assert table["squared_distance"].min() < 0  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
    out = io.StringIO()
    ledger.export("csv", out, "payments")
    assert out.getvalue().count("\n") == 41


def test_the_dashboard_shows_scores_and_no_band_of_distances(ledger: Ledger) -> None:
    record_training(ledger, "heart", NAMES, 20, present=0.8)
    with ledger.reading() as connection:
        data = read_run(connection, 1)
        rows = payments_of(connection, 2, int(data.record[0]), int(data.record[-1]))
    assert np.nanmin(data.ratio) < 0
    assert np.isnan(data.ratio).any(), "who was absent has none"
    assert statistics.honest_band(data) is None
    assert statistics.histogram(data, None) is None
    assert all(row.median_distance is None for row in statistics.pay_against_cost(data))
    assert about(data.rule).words(data.rule) == "information pay, decay 0.7"
    filled: Any = [formula(row) for row in rows.values() if row.status == "paid"]
    assert all(one.rule.endswith("(I − J)") for one in filled)
    for one, row in zip(filled, (row for row in rows.values() if row.status == "paid"), strict=True):
        cost, nu = ExpressionCost(row.cost), row.request
        value = cost(nu) + cost.slope(nu) * nu**2 / row.variance * (row.expected - row.squared_distance)
        assert value == pytest.approx(row.released / 1e6, abs=1e-6)
        assert "− (-" in one.filled or row.expected <= 0
