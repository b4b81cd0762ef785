"""What the charts say is true: coverage of intervals and bands, averages, and reading a run bit by bit."""

import math
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import (
    AffineCost,
    EarlierRounds,
    EstimatedVariance,
    FixedRequest,
    KnownVariance,
    OutputAgreement,
    gather,
    round_of,
)
from guerdon.dashboard import audits, explanations, series, statistics
from guerdon.dashboard.queries import RunData, RunMember, read_run
from guerdon.dashboard.source import KeptAudit, LedgerSource
from guerdon.ledger import Ledger
from guerdon.rule import Rule, Status
from guerdon.statistical.servers import server_for
from guerdon.words import about
from tests.dashboard.conftest import ask, serving
from tests.ledger.test_waiting import play_by_default
from tests.support.dashboard_scenes import NAMES, SHIRKER, Training
from tests.support.ledger_scenes import check_agreement

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def played(
    rule: Rule, rounds: int, used: Any, scales: Any, seed: int = 0, request: int = 8, constant: float = 0.0
) -> RunData:
    """Return a run of agents that use `used` samples, with noise of unequal `scales` in each direction.

    With `constant` one of them sends nothing but this number.
    """
    rng, crowd, present = np.random.default_rng(seed), len(used), np.ones(len(used), dtype=bool)
    model, rows = np.zeros(len(scales)), list[Any]()
    server = server_for(rule, FixedRequest(request, step=0.1), alike=True)
    state = server.init(model, crowd)
    for _ in range(rounds):
        gradients = 1 + rng.normal(size=(crowd, len(scales))) * scales / np.sqrt(used)[:, None]
        if constant:
            gradients[SHIRKER] = constant
        payments, _, state = server.pay(state, server.ask(state, model)[0], gradients, present)
        rows.append(payments)
    names = ("released", "squared_distance", "expected", "status")
    joined = [np.concatenate([getattr(row, name) for row in rows]) for name in names]
    agents = [RunMember(index + 1, f"agent {index}") for index in range(crowd)]
    whole = np.arange(rounds)
    return RunData(
        1, "run", "EUR", rule, agents, np.ones(crowd), whole, whole + 1, np.full(rounds, request),
        np.full(rounds, float(AffineCost(1, 1)(request))), [{} for _ in whole], np.repeat(whole, crowd),
        np.tile(np.arange(crowd), rounds), joined[3].astype(np.int64),
        np.rint(joined[0] * 1e6).astype(int),
        joined[1] / joined[2], b"",
    )  # fmt: skip


HONEST = np.full(10, 8)
RULES = [KnownVariance(40.0), EstimatedVariance(), EarlierRounds()]
EQUAL = np.ones(40)


@pytest.mark.parametrize("variance", RULES, ids=lambda rule: type(rule).__name__)
def test_the_band_holds_95_percent_of_honest_distances(variance: Any) -> None:
    data = played(OutputAgreement(AffineCost(1, 1), variance), 400, HONEST, EQUAL)
    band = statistics.honest_band(data)
    assert band is not None
    assert band.inside == pytest.approx(0.95, abs=0.012)  # 4,000 distances: one standard error is 0.0034
    assert band.freedom == pytest.approx(40, rel=0.12)
    assert band.participants == 10


def test_the_band_knows_that_what_was_expected_was_estimated() -> None:
    # From so few others the estimate is noisy itself: taken for exact, 27 dimensions would be found in place of 40.
    data = played(OutputAgreement(AffineCost(1, 1)), 1000, np.full(4, 8), EQUAL)
    band = statistics.honest_band(data)
    assert band is not None
    assert band.freedom == pytest.approx(40, rel=0.12)
    assert band.inside == pytest.approx(0.95, abs=0.015)


def test_the_band_with_unequal_directions() -> None:
    scales = np.geomspace(1, 0.1, 200)
    data = played(OutputAgreement(AffineCost(1, 1)), 400, HONEST, scales)
    band = statistics.honest_band(data)
    assert band is not None
    effective = np.sum(scales**2) ** 2 / np.sum(scales**4)
    assert band.freedom == pytest.approx(effective, rel=0.15)
    assert band.inside == pytest.approx(0.95, abs=0.015)


def test_a_cheat_lies_outside_the_band_and_hardly_moves_it() -> None:
    used = HONEST.copy()
    used[SHIRKER] = 3
    data = played(OutputAgreement(AffineCost(1, 1), KnownVariance(40.0)), 300, used, EQUAL)
    band = statistics.honest_band(data)
    assert band is not None
    rows = statistics.pay_against_cost(data)
    median = [row.median_distance or math.nan for row in rows]
    assert median[SHIRKER] > band.high > max(median[:SHIRKER] + median[SHIRKER + 1 :])
    assert 20 < band.freedom < 45


@pytest.mark.parametrize("variance", RULES[1:], ids=lambda rule: type(rule).__name__)
def test_one_constant_cheat_does_not_move_the_honest_out_of_the_band(variance: Any) -> None:
    """It raises the distance that is expected of everybody: D/E of honest work is then a thousandth, not 1."""
    used = np.full(27, 8)
    data = played(OutputAgreement(AffineCost(1, 1), variance), 60, used, EQUAL, constant=50.0)
    band = statistics.honest_band(data)
    assert band is not None
    # Under agreement its distance is cut at first: how far it raises what is expected changes until V has followed.
    honest = statistics.distance_ratios(data)[(data.position != SHIRKER) & (data.round >= 10)]
    assert ((honest > band.low) & (honest < band.high)).mean() == pytest.approx(0.95, abs=0.03)
    assert np.nanmin(statistics.distance_ratios(data)[data.position == SHIRKER]) > band.high
    assert band.middle < 0.05
    drawn = statistics.histogram(data, band)
    assert drawn is not None
    paid = np.isfinite(data.ratio[data.position == SHIRKER]).sum()
    assert paid <= drawn.above < 1.5 * paid, "the cheat is counted, and does not squeeze the others into one bin"
    assert sum(band.low < edge < band.high for edge in drawn.edges) >= 5


def test_what_is_known_stays_where_it_is() -> None:
    """Where the variance is known, all doing less together shows."""
    data = played(OutputAgreement(AffineCost(1, 1), KnownVariance(40.0)), 60, np.full(10, 4), EQUAL)
    band = statistics.honest_band(data)
    assert band is not None
    assert (band.middle, band.inside < 0.3) == (1.0, True)


def test_too_few_distances_make_no_band() -> None:
    assert statistics.honest_band(played(OutputAgreement(AffineCost(1, 1)), 1, HONEST, EQUAL)) is None


def test_intervals_cover_and_verdicts_hold_together() -> None:
    covered, accused, runs = 0, 0, 60
    rule = OutputAgreement(AffineCost(1, 1))
    for seed in range(runs):
        rows = statistics.pay_against_cost(played(rule, 15, HONEST, EQUAL, seed=seed))
        covered += sum((row.low or 0) <= 0 <= (row.high or 0) for row in rows)
        accused += any(row.verdict != "fits" for row in rows)
    assert covered / (10 * runs) == pytest.approx(0.95, abs=0.036)  # 600: four standard errors
    assert accused / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs), "all together at 95 %"


def test_a_cheat_stands_out() -> None:
    used = HONEST.copy()
    used[SHIRKER] = 4
    rows = statistics.pay_against_cost(played(OutputAgreement(AffineCost(1, 1)), 40, used, EQUAL))
    assert rows[SHIRKER].verdict == "less"
    assert rows[SHIRKER].difference < -3
    assert rows[SHIRKER].statuses == {"waiting": 1, "paid": 39}
    assert all(row.work == 9 for row in rows)
    assert (
        statistics.pay_against_cost(played(OutputAgreement(AffineCost(1, 1)), 2, used, EQUAL))[0].verdict == "too early"
    )


def test_the_band_of_an_agents_series() -> None:
    inside, runs = 0, 40
    for seed in range(runs):
        data = played(OutputAgreement(AffineCost(1, 1)), 30, HONEST, EQUAL, seed=seed)
        for agent in range(1, 11):
            own = series.agent_series(data, agent)
            inside += (own.low[-1] or 0) <= own.paid[-1] <= (own.high[-1] or 0)
    assert inside / (10 * runs) == pytest.approx(0.95, abs=0.04)  # 400: four standard errors


def test_points_are_means_and_totals_are_exact() -> None:
    data = played(OutputAgreement(AffineCost(1, 1)), 23, HONEST, EQUAL)
    whole, coarse = series.round_series(data), series.round_series(data, 5)
    assert coarse.rounds_per_point == 5
    assert coarse.round == [5, 10, 15, 20, 23]
    assert coarse.paid == pytest.approx([float(np.mean(whole.paid[i : i + 5])) for i in range(0, 23, 5)])
    assert (
        coarse.cumulative_paid[-1] == pytest.approx(whole.cumulative_paid[-1]) == pytest.approx(data.paid.sum() / 1e6)
    )
    assert whole.work == [90.0] * 23
    own = series.agent_series(data, 3, 4)
    assert own.round == [6, 12, 18, 23]
    assert own.paid[-1] == pytest.approx(data.paid[data.position == 2].sum() / 1e6)
    empty = series.round_series(data._replace(record=data.record[:0], number=data.number[:0], request=data.request[:0], work=data.work[:0], metrics=[], round=data.round[:0], position=data.position[:0], status=data.status[:0], paid=data.paid[:0]))  # noqa: E501  # fmt: skip
    assert empty.round == []


def test_the_matrix_shows_who_missed_most() -> None:
    agents, rounds = series.MOST_ROWS + 5, series.MOST_COLUMNS + 10
    data = played(OutputAgreement(AffineCost(1, 1)), rounds, np.full(agents, 8), np.ones(2))
    status = data.status.copy()
    status[(data.position == agents - 1) & (data.round > 3)] = Status.DECLINED.value
    matrix = series.participation(data._replace(status=status))
    assert (matrix.first, matrix.last, matrix.newest, matrix.hidden) == (11, rounds, rounds, 5)
    assert matrix.agents[-1] == RunMember(agents, f"agent {agents - 1}")
    assert matrix.statuses[-1] == [Status.DECLINED.value] * series.MOST_COLUMNS
    earlier = series.participation(data._replace(status=status), last=10)
    assert (earlier.first, earlier.last, earlier.newest) == (1, 10, rounds)
    assert earlier.statuses[-1][:4] == [Status.WAITING.value] + [Status.PAID.value] * 3


def test_a_run_read_bit_by_bit_is_the_run_read_at_once(tmp_path: Path) -> None:
    source = LedgerSource(str(tmp_path / "run.db"))
    with Ledger(tmp_path / "run.db") as ledger:
        training = Training(ledger, "run", NAMES)
        for rounds in (0, 1, 3, 2):
            training.play(rounds)
            with source.reading() as connection:
                grown, fresh = source.run(1), read_run(connection, 1)
            for name in RunData._fields:
                np.testing.assert_array_equal(getattr(grown, name), getattr(fresh, name), name)
        assert len(grown.record) == 6
    source.close()


@pytest.mark.parametrize("variance", RULES[1:], ids=lambda rule: type(rule).__name__)
def test_a_run_is_what_its_rows_say(tmp_path: Path, variance: Any) -> None:
    """Against every row of the ledger, read one by one: D/E to the last digit, and none where there is none."""
    path = tmp_path / "run.db"
    with Ledger(path) as ledger:
        training = Training(ledger, "run", NAMES, OutputAgreement(AffineCost(1, 1), variance))
        training.play(10)
        present, gradients = np.ones(10, dtype=bool), training.rng.normal(size=(10, 60))
        ledger.record_round("run", 11, round_of(gather(gradients, present), present, 8))
        gradients[3] = 10.0
        ledger.record_round("run", 12, round_of(gather(gradients, present), present, 8))
        ledger.record_round("run", 13, round_of(gather(gradients * 0, present), present, 8))
    source = LedgerSource(str(path))
    data = source.run(1)
    columns = "number, position, status, released + cut, squared_distance, expected"
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            f"SELECT {columns} FROM payments JOIN rounds USING (record) ORDER BY record, position"
        ).fetchall()
    assert len(rows) == len(data.paid) == 130
    for index, (number, position, status, paid, distance, expected) in enumerate(rows):
        assert (data.number[data.round[index]], data.position[index]) == (number, position)
        assert (Status(int(data.status[index])).label, data.paid[index]) == (status, paid)
        ratio = distance / expected if expected else math.nan
        assert data.ratio[index] == ratio or (math.isnan(ratio) and math.isnan(data.ratio[index]))
    assert (np.isnan(data.ratio).any(), np.nanmax(data.ratio) > 5) == (True, True)
    source.close()


def test_the_default_rule_adds_up(tmp_path: Path) -> None:
    """With an absence and a join: in every round the work is paid its cost, and nobody's extra is lost."""
    path = tmp_path / "run.db"
    with Ledger(path) as ledger:
        told = play_by_default(ledger)
        check_agreement(ledger, "run", told)
    source = LedgerSource(str(path))
    data = source.run(1)
    source.close()
    rounds = series.round_series(data)
    assert rounds.paid == pytest.approx(rounds.work, abs=1e-5)
    for row in statistics.pay_against_cost(data):
        total = sum(paid.get(row.name, 0.0) for paid in told)
        assert row.paid * row.rounds == pytest.approx(total, abs=1e-5)
        drawn = series.agent_series(data, row.agent)
        assert (drawn.paid[-1], drawn.work[-1]) == pytest.approx((total, 9.0 * row.rounds), abs=1e-5)


def test_a_run_is_read_while_its_page_is_on_its_way(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        Training(ledger, "run", NAMES).play(2)
    with serving(path) as served:
        source = served.app.state.source
        for page in ("/runs/1", "/agents/1", "/runs"):
            source.forget()
            assert ask(served, page).status == 200
            for _ in range(500):
                if source._runs:
                    break
                time.sleep(0.02)
            assert list(source._runs) == [1]


def test_an_audit_is_kept_for_a_while_but_not_of_another_ledger(tmp_path: Path) -> None:
    path, other = tmp_path / "ledger.db", tmp_path / "other.db"
    for place, rounds in ((path, 3), (other, 4)):
        with Ledger(place) as ledger:
            Training(ledger, "run", NAMES).play(rounds)
    source = LedgerSource(str(path))
    first = source.audit(source.run(1))
    assert source.audit(source.run(1)) is first
    kept = source._audits[1]
    source._audits[1] = kept._replace(until=math.inf)  # as after an audit that took long
    with Ledger(path) as ledger:
        Training(ledger, "later", NAMES).play(1)
        evidence = gather(np.random.default_rng(1).normal(size=(10, 60)), np.ones(10, dtype=bool))
        ledger.record_round("run", 4, round_of(evidence, np.ones(10, dtype=bool), 8))
    data = source.run(1)
    behind = audits.verdicts(source.audit(data), data)
    assert (behind.last, behind.newest, len(behind.agents)) == (3, False, 10)
    source._audits[1] = source._audits[1]._replace(until=0.0)
    assert audits.verdicts(source.audit(data), data).newest
    source.close()
    source._audits[1] = KeptAudit(source._audits[1].audit._replace(agents=["nobody"]), data, math.inf)
    source._where = str(other)
    assert source.audit(source.run(1)).agents == NAMES
    source.close()


@pytest.mark.parametrize(("silence", "gap", "state"), [(10, 1, "active"), (119, 1, "active"), (121, 1, "quiet"), (500, 200, "active"), (700, 200, "quiet")])  # noqa: E501  # fmt: skip
def test_when_a_run_is_quiet(silence: float, gap: float, state: str) -> None:
    now, left = NOW + timedelta(seconds=silence), max(120, 3 * gap) - silence
    assert explanations.run_state(5, NOW, gap, now) == (state, left if state == "active" else None)
    assert explanations.run_state(0, NOW, 0.0, now) == ("waiting", None)


def test_rules_in_words() -> None:
    cost = AffineCost(1, 1)
    words = [about(rule).words(rule) for rule in (OutputAgreement(cost, variance) for variance in RULES)]
    assert words[0] == "output agreement, known variance"
