"""A user's experiment as TOML: the example works, and every mistake is answered with its key and what is allowed."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from guerdon.adaptive import BudgetRequest, NoiseScaleRequest
from guerdon.cli.config import EXAMPLE, KINDS, parse_config, read_config
from guerdon.costs import ExpressionCost
from guerdon.lab.agents import Cooperative, Fixed
from guerdon.lab.arena.verified import VerifiedWork
from guerdon.lab.simulation import Stop

SMALL: dict[str, Any] = {
    "problem": {"kind": "linear", "dim": 4, "max_batch": 16},
    "server": {"request": 8},
    "agents": [{"kind": "cooperative", "count": 3}],
}


def change(*path: Any, value: Any) -> dict[str, Any]:
    """Return the small experiment with one value set."""
    content: Any = {
        **{k: dict(v) for k, v in SMALL.items() if k != "agents"},
        "agents": [dict(a) for a in SMALL["agents"]],
    }
    place = content
    for step in path[:-1]:
        place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
    place[path[-1]] = value
    return content


def test_the_example_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "example.toml").write_text(EXAMPLE)
    config = read_config(tmp_path / "example.toml")
    assert config.names == ("cooperative",) * 9 + ("fixed",)
    assert config.agents[0] == Cooperative()
    assert config.agents[9] == Fixed(4)
    assert list(config.rules) == ["information", "agreement"]
    assert (config.rounds, config.repetitions, config.seed) == (60, 250, 0)


def test_the_example_shows_the_defaults() -> None:
    """Uncommenting what the example calls a default changes nothing."""
    uncommented = "\n".join(
        line[2:] if line.startswith("# ") and " = " in line else line for line in EXAMPLE.splitlines()
    )
    explicit, short = (parse_config(tomllib.loads(text)) for text in (uncommented, EXAMPLE))
    assert explicit.stop == Stop("error", at_most=1.0)  # the one setting whose default is to be absent
    for name in ("names", "costs", "rounds", "repetitions", "seed", "label", "rules", "requests"):
        assert getattr(explicit, name) == getattr(short, name)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_agent_can_be_named(kind: str) -> None:
    needs: dict[str, Any] = {"fixed": {"size": 4}, "portion": {"share": 0.5}, "declining": {"probability": 0.1}}
    needs["learning"] = {"sizes": [0, 4, 8]}
    config = parse_config(change("agents", 0, value={"kind": kind, "count": 3} | needs.get(kind, {})))
    assert config.names == (kind,) * 3


def test_schedules_and_stops() -> None:
    content = change("server", value={"request": [8, 4], "step": 0.1, "stop": {"metric": "error", "at_most": 2}})
    config = parse_config(content)
    assert config.stop == Stop("error", at_most=2.0)
    assert [config.requests.ask((), turn) for turn in (0, 1, 9)] == [8, 4, 4]


def test_pay_may_be_held_until_looks() -> None:
    config = parse_config(change("server", "rules", value=["looks", "looks:3", "flat"]))
    assert [rule.terms.looks for rule in config.rules.values() if isinstance(rule, VerifiedWork)] == [2, 3]
    with pytest.raises(ValueError, match=r"'looks:1.5' cannot be made: `looks` must be a positive integer"):
        parse_config(change("server", "rules", value=["looks:1.5"]))


def test_the_request_may_be_found_by_itself() -> None:
    adaptive = parse_config(change("server", "request", value="adaptive")).requests
    assert adaptive == NoiseScaleRequest(ExpressionCost("1 + s"), max_batch=16)
    limited = parse_config(change("server", "request", value={"budget": 500})).requests
    assert limited == BudgetRequest(ExpressionCost("1 + s"), 500.0, max_batch=16)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            change("sever", value={}),
            "`sever` is not a setting; the file may have: agents, problem, run, server",
        ),
        (change("problem", "dims", value=3), "`problem.dims` is not a setting; `problem` may have: dim"),
        (
            change("problem", "kind", value="quadratic"),
            "`problem.kind` must be one of 'linear', 'heart', got 'quadratic'",
        ),
        (change("problem", "dim", value="many"), "`problem.dim` must be a whole number, got 'many'"),
        (change("problem", "dim", value=0), "`dim` must be a positive integer, got 0"),
        (change("problem", "dim", value=True), "`problem.dim` must be a whole number, got True"),
        (
            change("server", "request", value=2.5),
            "`server.request` must be a whole number or list or text or dict, got 2.5",
        ),
        (change("server", "request", value=0), "`batch_size` must be a positive integer, got 0"),
        (change("server", "step", value="big"), '`server.step` must be a number, or "optimal"'),
        (change("server", "cost", value="9 - s"), "`cost` must increase strictly"),
        (change("server", "rules", value=["fair"]), "`server.rules` must be one of 'agreement', 'known', .*got 'fair'"),
        (change("server", "rules", value=[]), "`server.rules` must be one of"),
        (change("server", "crowd", value="all"), "`server.crowd` must be one of 'present', 'enrolled', got 'all'"),
        (change("server", "stop", value={"metric": "error"}), "`Stop` must have either `at_most` or `at_least`"),
        (change("server", "stop", value={"metric": "error", "below": 1.0}), "`Stop` must have either"),
        (change("agents", 0, "kind", value="lazy"), r"`agents\[0\].kind` must be one of 'cooperative', 'fixed'"),
        (change("agents", 0, "count", value=0), r"`agents\[0\].count` must be a positive integer, got 0"),
        (
            change("agents", 0, "size", value=3),
            r"`agents\[0\].size` is not a setting; `agents\[0\]` may have: cost, count, kind",
        ),
        (change("agents", 0, value={"kind": "fixed"}), r"`agents\[0\].size` is missing"),
        (
            change("agents", 0, value={"kind": "fixed", "size": 99}),
            r"`agents\[0\].size` must be from 0 to .*\(16\), got 99",
        ),
        (change("agents", 0, value={"kind": "declining", "probability": 2}), "must be from 0 to 1, got 2"),
        (change("agents", 0, value={"kind": "shrink", "factor": 3}), "`factor` must be at most 1, got 3.0"),
        (change("agents", 0, value={"kind": "learning", "sizes": [-1]}), "`sizes` must be whole numbers of at least 0"),
        (change("agents", 0, value="cooperative"), r"`agents\[0\]` must be a table, got 'cooperative'"),
        (change("run", "rounds", value="all"), "`run.rounds` must be a whole number, got 'all'"),
        (change("run", "speed", value=1), "`run.speed` is not a setting; `run` may have: repetitions, rounds, seed"),
        ({"problem": {"kind": "linear"}, "server": {"request": 8}}, "^`agents` is missing; `guerdon simulate --ex"),
        ({}, r"^the file must have tables, such as \[problem\], \[server\] and \[\[agents\]\], got none; `guerdon"),
        ({**SMALL, "problem": {}}, "`problem.kind` is missing; `guerdon simulate --example` shows a complete file"),
    ],
)
def test_mistakes_are_named(content: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        parse_config(content)


@pytest.mark.parametrize("text", [b"[problem\n", b"\xff\xfe", b"request = "])
def test_a_file_that_is_not_toml(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "bad.toml").write_bytes(text)
    with pytest.raises(ValueError, match=r"bad.toml` is not valid TOML"):
        read_config(tmp_path / "bad.toml")
