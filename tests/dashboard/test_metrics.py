"""`/metrics` in Prometheus' text format: true, of no single agent, and behind the token."""

import re
from collections.abc import Callable
from pathlib import Path

from guerdon.dashboard.metrics import HELP
from guerdon.dashboard.security import Access
from guerdon.ledger import Ledger
from tests.dashboard.conftest import ask, serving
from tests.support.dashboard_scenes import NAMES

LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{({LABEL}(?:,{LABEL})*)?\}})? (-?[0-9.]+(?:e[+-]?\d+)?)")
COMMENT = re.compile(r"# (?:HELP [a-zA-Z_:][a-zA-Z0-9_:]* .*|TYPE [a-zA-Z_:][a-zA-Z0-9_:]* (?:counter|gauge))")


def parse(text: str) -> dict[tuple[str, str], float]:
    """Return the samples by name and labels; by the grammar of the format, or fail."""
    assert text.endswith("\n")
    found: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert COMMENT.fullmatch(line), line
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        key = sample[1], sample[2] or ""
        assert key not in found
        found[key] = float(sample[3])
    return found


def test_what_is_told_is_what_the_ledger_has(ledgers: Callable[[str], Path]) -> None:
    where = ledgers("small")
    with serving(where) as served:
        answer = ask(served, "/metrics")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    text, found = answer.text, parse(answer.text)
    assert {name for name, _ in found} <= set(HELP)
    with Ledger(where, read_only=True) as ledger:
        runs = {run.name: run for run in ledger.runs()}
        for name, run in runs.items():
            assert found["guerdon_rounds_paid_total", f'run="{name}"'] == run.rounds
            assert found["guerdon_agents", f'run="{name}"'] == len(ledger.roster(name))
            paid = sum(slip.reward for row in ledger.rounds(name) for slip in ledger.payslips(name, row.round))
            assert found["guerdon_pay", f'run="{name}",unit="{ledger.unit}"'] == paid / 1e6
    assert found["guerdon_ledger_available", ""] == 1
    assert not any(agent in text for agent in NAMES)


def test_a_token_is_needed(ledgers: Callable[[str], Path]) -> None:
    with serving(ledgers("small"), access=Access("a-token-that-is-long")) as served:
        refused = ask(served, "/metrics")
        assert refused.status == 401
        assert "a token is needed" in refused.text
        assert ask(served, "/metrics", authorization="Bearer a-token-that-is-long").status == 200


def test_without_a_ledger_it_says_so(tmp_path: Path) -> None:
    with serving(tmp_path / "nowhere.db") as served:
        answer = ask(served, "/metrics")
    assert (answer.status, parse(answer.text)) == (200, {("guerdon_ledger_available", ""): 0.0})
