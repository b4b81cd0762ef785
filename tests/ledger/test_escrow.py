"""Escrow: held until cleared, released once, forfeited only when asked, and never lost."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from guerdon import round_of
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.escrow import odds
from tests.support import command_line
from tests.support.audit_scenes import REQUEST, Training, record_more, record_training, send_prediction

NAMES = ["Basel", "Lyon", "Porto", "Turin", 'Vi"go, rounds to 99: x']
RUN = 'heart "2", rounds to 7: x'  # a name that looks like a remark


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
    assert ledger.audit(RUN).findings[2].verdict == "cleared"  # for the rounds in which it worked; that it differs is
    audit = ledger.audit(RUN, alike=True)  # an accusation only where all are alike
    assert [finding.verdict for finding in audit.findings][2] == "accused"
    assert audit.held[2] == held
    with pytest.raises(ValueError, match="`forfeit_accused` needs `alike`: an agent that differs may only have other"):
        ledger.settle_escrow(RUN, forfeit_accused=True)
    assert "Porto" not in {move.agent for move in ledger.settle_escrow(RUN, alike=True)}
    assert escrow(ledger)["Porto"] == held
    treasury = ledger.common_balances()["treasury"]
    (move,) = ledger.settle_escrow(RUN, alike=True, forfeit_accused=True)
    assert (move.agent, move.kind, move.amount) == ("Porto", "forfeit", held)
    assert ledger.common_balances()["treasury"] == treasury + held
    assert "accused in round" in ledger.statement("Porto").lines[-1].why
    assert ledger.settle_escrow(RUN, alike=True, forfeit_accused=True) == []
    assert ledger.verify().holds
    assert total(ledger) == 0


def held_in(ledger: Ledger, run: str, agent: str, last: int) -> int:
    """Return what the rounds of a run held of an agent, up to one of them."""
    query = text(
        "SELECT SUM(entries.amount) FROM entries JOIN rounds ON rounds.record = entries.record JOIN runs ON runs.id = "
        "rounds.run JOIN accounts ON accounts.id = target JOIN agents ON agents.id = owner "
        "WHERE accounts.kind = 'escrow' AND runs.name = :run AND agents.name = :agent AND number <= :last"
    )
    with ledger.reading() as connection:
        return int(connection.execute(query, {"run": run, "agent": agent, "last": last}).scalar_one())


def test_what_the_operator_moved_by_hand_is_not_moved_again(ledger: Ledger) -> None:
    """What was held first goes first: what is left is of rounds that are not cleared yet."""
    training = record_training(ledger, RUN, NAMES, 40)
    ledger.move("release", "Basel", 5, "by hand")
    everything = escrow(ledger)["Lyon"]
    ledger.move("release", "Lyon", everything, "by hand")
    moves = {move.agent: move for move in ledger.settle_escrow(RUN)}
    assert moves["Basel"].round == 33
    assert moves["Basel"].amount == held_in(ledger, RUN, "Basel", 33) - 5
    assert "Lyon" not in moves
    assert ledger.settle_escrow(RUN) == []
    record_more(ledger, RUN, NAMES, training, 1)  # which is not cleared
    assert escrow(ledger)["Lyon"] > 0
    assert ledger.settle_escrow(RUN) == []
    assert ledger.verify().holds


@pytest.mark.parametrize("kind", ["release", "forfeit"])
def test_a_remark_typed_by_hand_settles_nothing(ledger: Ledger, kind: str) -> None:
    record_training(ledger, RUN, NAMES, 40)
    ledger.move(kind, "Basel", 1, f"audit of run {json.dumps(RUN)}, rounds to 40: typed by hand")
    ledger.move(kind, "Lyon", 1, f"audit of run {RUN!r}, rounds to 40: typed by hand")
    moves = {move.agent: move.amount for move in ledger.settle_escrow(RUN)}
    assert moves["Basel"] == held_in(ledger, RUN, "Basel", 33) - 1
    assert moves["Lyon"] == held_in(ledger, RUN, "Lyon", 33) - 1
    assert ledger.verify().holds


@pytest.mark.parametrize("cheats", [{}, {4: works_first}], ids=["cleared", "accused"])
def test_a_settlement_takes_nothing_of_another_run(ledger: Ledger, cheats: Any) -> None:
    """Also where a hand has released what the settled run held, without saying of which run."""
    record_training(ledger, "A", NAMES, 40, cheats)
    first = escrow(ledger)
    record_training(ledger, "B", NAMES, 3, seed=1)
    second = {agent: amount - first[agent] for agent, amount in escrow(ledger).items()}
    assert any(second.values())
    for agent, amount in first.items():
        ledger.move("release", agent, amount, "by hand")
    assert ledger.settle_escrow("A", alike=True, forfeit_accused=True) == []
    assert ledger.settle_escrow("B", alike=True, forfeit_accused=True) == []
    assert escrow(ledger) == second
    assert ledger.audit("A").held == [0] * 5
    assert ledger.audit("B").held == [second[name] for name in NAMES]
    assert ledger.verify().holds


@pytest.mark.parametrize("settling", [["A"], ["A", "--alike", "--forfeit"]], ids=["release", "forfeit"])
def test_49_released_by_hand_are_not_taken_again_from_another_run(tmp_path: Path, settling: list[str]) -> None:
    """Run A holds 49 of an agent, run B holds 3 and has not enough evidence; the operator releases the 49 of A."""
    cheats = {0: works_first} if "--forfeit" in settling else {}
    with Ledger(tmp_path / "guerdon.db") as ledger:
        _hold_in_two_runs(ledger, cheats)
        assert escrow(ledger)["Basel"] == 52_000_000
        assert ledger.audit("B").findings[0].verdict == "not enough evidence"
        assert ledger.audit("A", alike=True).findings[0].verdict == ("accused" if cheats else "cleared")
    told = command_line.run("ledger", "move", "release", "Basel", "49", cwd=tmp_path)
    assert told.code == 0, told.output
    told = command_line.run("audit", *settling, "--settle", "--json", cwd=tmp_path)
    assert [move["agent"] for move in json.loads(told.stdout)["moves"] if move["agent"] == "Basel"] == []
    with Ledger(tmp_path / "guerdon.db") as ledger:
        assert escrow(ledger)["Basel"] == 3_000_000
        assert (ledger.audit("A").held[0], ledger.audit("B").held[0]) == (0, 3_000_000)
        with pytest.raises(RefusedError, match=r"0\.00 is held there, 3\.00 in all"):
            ledger.move("forfeit", "Basel", 3_000_000, run="A")
        assert ledger.verify().holds


def _hold_in_two_runs(ledger: Ledger, cheats: Any) -> None:
    """Hold of the first agent's rewards 49 in run A, then 3 in run B."""
    for run, rounds, seed, total in (("A", 80, 0, 49), ("B", 3, 1, 52)):
        training = Training(5, seed=seed)
        ledger.start_run(run, NAMES, training.rule, liability="floor")  # no loss is netted against what is held
        for _ in range(rounds):
            one, _, _ = training.play(cheats)
            held = [total - escrow(ledger)["Basel"] / 1e6, 0, 0, 0, 0]
            ledger.record_round(run, training.number, round_of(one.evidence, one.participating, REQUEST), held=held)


def test_a_hand_names_a_run_or_takes_what_was_held_first(ledger: Ledger) -> None:
    for run in ("A", "B"):
        record_training(ledger, run, NAMES, 3, seed=1)
    held = ledger.audit("A").held[0], ledger.audit("B").held[0]
    assert min(held) > 1_000_000
    ledger.move("hold", "Basel", 500_000)
    ledger.move("release", "Basel", 100, run="B")
    ledger.move("forfeit", "Basel", 500_000 + 200)  # what a hand held, then A's
    assert (ledger.audit("A").held[0], ledger.audit("B").held[0]) == (held[0] - 200, held[1] - 100)
    before = escrow(ledger)
    with pytest.raises(RefusedError, match=r"cannot release .* for 'Basel' in run 'B': .* is held there, .* in all"):
        ledger.move("release", "Basel", held[1], run="B")
    with pytest.raises(RefusedError, match=r"cannot release .* for 'Basel': its escrow account holds"):
        ledger.move("release", "Basel", before["Basel"] + 1)
    with pytest.raises(RefusedError, match="there is no run 'C'"):
        ledger.move("release", "Basel", 1, run="C")
    with pytest.raises(ValueError, match="`run` must be left out of a hold, got 'A'"):
        ledger.move("hold", "Basel", 1, run="A")
    assert escrow(ledger) == before
    ledger.move("release", "Basel", before["Basel"])  # the rest of both
    assert (ledger.audit("A").held[0], ledger.audit("B").held[0]) == (0, 0)
    assert ledger.verify().holds


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
    assert ledger.settle_escrow(RUN, alike=True, forfeit_accused=True) == []
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
