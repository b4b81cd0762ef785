"""Who helped: closed forms against coalitions tried one by one, and the report from a ledger."""

import json
from itertools import permutations
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import gather
from guerdon.ledger import Ledger
from guerdon.ledger.read.contributions import contributions
from guerdon.statistical.contributions import as_shares, values_from_evidence, values_from_validation
from tests.support.command_line import run
from tests.support.ledger_scenes import AT_ONCE, NAMES, RULE, play, record

REPORTS = 1 + np.random.default_rng(3).normal(size=(5, 8))


def common(reports: Any) -> Any:
    """Return what each report has in common with the others' mean."""
    others = (reports.sum(axis=0) - reports) / (len(reports) - 1)
    return (reports * others).sum(axis=1)


def by_orders(worth: Any, number: int) -> Any:
    values = np.zeros(number)
    for order in permutations(range(number)):
        for place, agent in enumerate(order):
            values[agent] += worth(order[: place + 1]) - worth(order[:place])
    return values / factorial(number)


def test_the_closed_forms_are_those_of_coalitions_tried_one_by_one() -> None:
    alone = common(REPORTS)

    def worth(members: Any) -> float:
        return float(np.mean(alone[list(members)])) if len(members) else 0.0

    found = values_from_evidence(gather(REPORTS, np.ones(5, bool)))
    assert found.shapley == pytest.approx(by_orders(worth, 5))
    everybody = list(range(5))
    assert found.leave_one_out == pytest.approx(
        [worth(everybody) - worth([j for j in everybody if j != k]) for k in everybody]
    )
    tried = values_from_validation(worth, 5)
    assert tried.shapley == pytest.approx(found.shapley)
    assert tried.leave_one_out == pytest.approx(found.leave_one_out)


def test_values_are_around_the_prediction_and_of_those_who_are_counted() -> None:
    centre, here = np.full(8, 0.7), np.array([True, True, False, True, True])
    found = values_from_evidence(gather(REPORTS, here, centre))
    few = values_from_evidence(gather(REPORTS[here] - centre, np.ones(4, bool)))
    for values, expected in zip(found, few, strict=True):
        assert values[here] == pytest.approx(expected)
        assert values[2] == 0


def test_alignment_with_trusted_agents_alone_is_understood() -> None:
    trusted = np.array([True, True, True, True, False])
    found = values_from_evidence(gather(REPORTS, np.ones(5, bool), None, trusted), trusted)
    means = [REPORTS[[j for j in range(4) if j != k]].mean(axis=0) for k in range(5)]
    alone = np.array([REPORTS[k] @ means[k] for k in range(5)])
    assert found.leave_one_out == pytest.approx((alone - (alone.sum() - alone) / 4) / 5)
    lengths = [np.linalg.norm(REPORTS[k]) * np.linalg.norm(means[k]) for k in range(5)]
    assert found.cosine == pytest.approx(alone / lengths)


def test_beyond_twelve_agents_random_orders_add_up_to_the_whole() -> None:
    sizes = np.arange(1.0, 15.0)

    def worth(members: Any) -> float:
        return float(np.sqrt(sizes[list(members)].sum()))

    found = values_from_validation(worth, 14, orders=4)
    assert found.shapley.sum() == pytest.approx(worth(range(14)))
    assert found.shapley[-1] > found.shapley[0]


def test_shares_leave_out_what_is_negative() -> None:
    assert as_shares([3.0, -5.0, 1.0]).tolist() == [0.75, 0.0, 0.25]
    assert as_shares([-1.0, 0.0]).tolist() == [0.0, 0.0]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    file = tmp_path / "guerdon.db"
    with Ledger(str(file)) as ledger:
        ledger.start_run("heart", NAMES, RULE, AT_ONCE)
        record(ledger, "heart", play(6))
    return file


def test_a_run_is_read_from_the_ledger(book: Path) -> None:
    played = play(6)
    values = [values_from_evidence(one.evidence) for one in played]
    with Ledger(str(book), read_only=True) as ledger, ledger.reading() as connection:
        found = {one.agent: one for one in contributions(connection, "heart")}
    assert set(found) == set(NAMES)
    parts = {"shapley": 1, "leave_one_out": 0, "cosine": 2}
    for name, part in parts.items():
        expected = as_shares(np.sum([round_values[part] for round_values in values], axis=0))
        assert [getattr(found[agent], name) for agent in NAMES] == pytest.approx(expected)
    paid = np.sum([np.asarray(one.payments.released) for one in played], axis=0)
    assert [found[agent].paid for agent in NAMES] == pytest.approx(paid, abs=1e-4)
    assert sum(one.rounds for one in found.values()) == sum(int(one.evidence.counted.sum()) for one in played)


def test_the_command_labels_what_it_shows(book: Path, tmp_path: Path) -> None:
    shown = run("contributions", "--db", str(book), cwd=tmp_path, COLUMNS="100")
    assert shown.code == 0
    assert "says who helped, not who worked" in shown.stdout
    told = json.loads(run("contributions", "heart", "--db", str(book), "--json", cwd=tmp_path).stdout)
    assert [one["agent"] for one in told["agents"]] == sorted(NAMES)
    wrong = run("contributions", "lungs", "--db", str(book), cwd=tmp_path)
    assert wrong.code == 2
    assert "heart" in wrong.stderr
