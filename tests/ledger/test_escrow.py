"""Escrow: held until cleared, released once, forfeited only when asked, and never lost."""

from typing import Any

import numpy as np
import pytest

from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.escrow import odds
from tests.support.audit_scenes import record_more, record_training, send_prediction

NAMES = ["Basel", "Lyon", "Porto", "Turin", 'Vi"go, rounds to 99: ']
RUN = 'heart "2", rounds to 7: '  # a name that looks like a remark


def escrow(ledger: Ledger) -> dict[str, int]:
    return {balance.agent: balance.escrow for balance in ledger.balances()}


def total(ledger: Ledger) -> int:
    own = sum(row.balance + row.escrow + row.carried + row.deposit for row in ledger.balances())
    return own + sum(ledger.common_balances().values())


def works_first(prediction: Any, true: Any, honest: Any, number: int, rng: Any) -> Any:
    del true, rng
    return honest if number <= 20 else prediction


def test_cleared_agents_get_what_was_held_for_the_rounds_they_are_cleared_for(ledger: Ledger) -> None:
    training = record_training(ledger, RUN, NAMES, 40, {4: send_prediction})
    before, balances = escrow(ledger), {row.agent: row.balance for row in ledger.balances()}
    moves = ledger.settle_escrow(RUN)
    assert {move.agent for move in moves} == set(NAMES[:4])
    assert {move.kind for move in moves} == {"release"}
    for move in moves:
        assert 13 <= move.round <= 40
        assert escrow(ledger)[move.agent] == before[move.agent] - move.amount
        (now,) = (row.balance for row in ledger.balances() if row.agent == move.agent)
        assert now == balances[move.agent] + move.amount
        assert "add information, evidence" in ledger.statement(move.agent).lines[-1].why
    assert escrow(ledger)[NAMES[4]] == before[NAMES[4]]
    assert ledger.settle_escrow(RUN) == []  # the same again: nothing
    assert ledger.verify().holds
    assert total(ledger) == 0
    record_more(ledger, RUN, NAMES, training, 40)
    later = ledger.settle_escrow(RUN)
    assert {move.agent for move in later} >= set(NAMES[:4])
    assert all(move.round > first.round for move, first in zip(later, moves, strict=False))
    assert ledger.verify().holds
    assert total(ledger) == 0


def test_nothing_is_forfeited_unless_asked(ledger: Ledger) -> None:
    record_training(ledger, RUN, NAMES, 50, {2: works_first})
    held = escrow(ledger)["Porto"]
    assert held > 10_000_000
    audit = ledger.audit(RUN)
    assert [finding.verdict for finding in audit.findings][2] == "accused"
    assert audit.held[2] == held
    assert "Porto" not in {move.agent for move in ledger.settle_escrow(RUN)}
    assert escrow(ledger)["Porto"] == held
    treasury = ledger.common_balances()["treasury"]
    (move,) = ledger.settle_escrow(RUN, forfeit_accused=True)
    assert (move.agent, move.kind, move.amount) == ("Porto", "forfeit", held)
    assert ledger.common_balances()["treasury"] == treasury + held
    assert "accused in round" in ledger.statement("Porto").lines[-1].why
    assert ledger.settle_escrow(RUN, forfeit_accused=True) == []
    assert ledger.verify().holds
    assert total(ledger) == 0


def test_what_the_operator_moved_by_hand_is_not_moved_again(ledger: Ledger) -> None:
    record_training(ledger, RUN, NAMES, 40)
    held = escrow(ledger)["Basel"]
    ledger.move("release", "Basel", held - 5, "by hand")
    (move,) = (move for move in ledger.settle_escrow(RUN) if move.agent == "Basel")
    assert move.amount == 5
    assert ledger.settle_escrow(RUN) == []


def test_runs_are_settled_apart(ledger: Ledger) -> None:
    record_training(ledger, RUN, NAMES, 30)
    first = escrow(ledger)
    record_training(ledger, "other", NAMES, 30, seed=1)
    moved = {move.agent: move.amount for move in ledger.settle_escrow(RUN)}
    assert all(moved[name] <= first[name] for name in NAMES)
    assert len(ledger.settle_escrow("other")) == 5
    assert ledger.verify().holds


def test_few_rounds_and_none(ledger: Ledger) -> None:
    record_training(ledger, RUN, NAMES, 0)
    assert ledger.audit(RUN).findings == []
    assert ledger.settle_escrow(RUN, forfeit_accused=True) == []
    record_training(ledger, "short", NAMES, 2)
    assert {finding.verdict for finding in ledger.audit("short").findings} == {"not enough evidence"}
    assert ledger.settle_escrow("short") == []
    with pytest.raises(RefusedError, match="there is no run 'nothing'"):
        ledger.settle_escrow("nothing")
    with pytest.raises(ValueError, match="`alpha`"):
        ledger.audit(RUN, alpha=2)


@pytest.mark.parametrize(
    ("evidence", "shown"),
    [(0.0, "1 to 1"), (np.log(1234), "1,234 to 1"), (-np.log(2.5), "1 to 2.5"), (50 * np.log(10), "10^50 to 1")],
)
def test_odds_are_readable(evidence: float, shown: str) -> None:
    assert odds(evidence) == shown
