"""The JSON API: against its own schema, exact, read only, and unmoved by nonsense."""

import hashlib
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import checks

from guerdon.costs import ExpressionCost
from guerdon.dashboard.app import create_app
from guerdon.lab.game import MinibatchGame
from guerdon.ledger import Ledger
from tests.dashboard.conftest import Served, ask, serving
from tests.support.dashboard_scenes import NAMES

GETS = ["/api/status", "/api/runs", "/api/runs/1", "/api/runs/1/rounds", "/api/runs/1/agents", "/api/runs/1/distances", "/api/runs/1/audit", "/api/runs/1/participation", "/api/runs/1/looks", "/api/agents", "/api/agents/6", "/api/agents/6/statement", "/api/agents/6/looks", "/api/agents/6/runs/1", "/api/payouts", "/api/payouts/1", "/api/game"]  # noqa: E501  # fmt: skip
STREAMS = ["/api/events", "/api/game/simulation"]

UNIMPORTANT = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]

# The streams never end by themselves; they are tested on their own.
schema: Any = schemathesis.openapi.from_dict(create_app("nowhere.db").openapi()).exclude(path=STREAMS)


@pytest.fixture(scope="module")
def served(ledgers: Callable[[str], Path]) -> Iterator[Served]:
    with serving(ledgers("small")) as one:
        yield one


@schema.parametrize()
@settings(max_examples=25, suppress_health_check=UNIMPORTANT)
def test_the_api_keeps_to_its_schema(case: Any, served: Served) -> None:
    # Of the game, what fits each parameter may not fit together: a request above the largest batch is refused.
    together = [checks.positive_data_acceptance] if case.path.startswith("/api/game") else []
    case.call_and_validate(base_url=served.address, excluded_checks=together)


@schema.parametrize()
@settings(max_examples=5, suppress_health_check=UNIMPORTANT)
def test_the_api_keeps_to_its_schema_without_a_ledger(case: Any, bare: Served) -> None:
    # That the ledger is not available is an answer that the schema has; anything else of the kind is not.
    expected = [checks.not_a_server_error, checks.positive_data_acceptance]
    answer = case.call_and_validate(base_url=bare.address, excluded_checks=expected)
    assert answer.status_code < 500 or answer.status_code == 503


@pytest.fixture(scope="module")
def bare(ledgers: Callable[[str], Path]) -> Iterator[Served]:
    with serving(ledgers("missing")) as one:
        yield one


def test_every_endpoint_is_tested(served: Served) -> None:
    paths = json.loads(ask(served, "/api/openapi.json").text)["paths"]
    made = {"{run}": "1", "{agent}": "6", "{number}": "1"}
    for name, value in made.items():
        paths = {path.replace(name, value) for path in paths}
    assert paths == {*GETS, *STREAMS}


@pytest.mark.parametrize("path", GETS)
def test_everything_answers(served: Served, path: str) -> None:
    answer = ask(served, path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"


def test_amounts_are_exact(served: Served, ledgers: Callable[[str], Path]) -> None:
    def micro(text: str) -> int:
        return int(Decimal(text) * 10**6)

    with Ledger(ledgers("small"), read_only=True) as ledger:
        balances = {row.agent: row for row in ledger.balances()}
        paid = {row.name: (row.paid, row.rounds, row.agents) for row in ledger.runs()}
        batches = {row.number: row.total for row in ledger.payouts()}
        statement = ledger.statement("Vigo")
    agents = ask(served, "/api/agents").json()["agents"]
    assert len(agents) == len(balances)
    for row in agents:
        for kind in ("earned", "balance", "deposit", "held", "carried"):
            assert micro(row[kind]) == getattr(balances[row["name"]], kind)
    runs = ask(served, "/api/runs").json()["runs"]
    assert {row["name"]: (micro(row["paid"]), row["rounds"], row["agents"]) for row in runs} == paid
    assert {row["number"]: micro(row["total"]) for row in ask(served, "/api/payouts").json()["payouts"]} == batches
    one = ask(served, "/api/payouts/1").json()
    assert (one["outcome"], one["state"], one["reference"]) == (
        "mixed",
        "9 paid, 1 bounced",
        "SEPA 4711, AC04 closed account",
    )
    assert [line["account"] for line in one["items"] if line["outcome"] == "bounced"] == ["3000"]
    vigo = next(row for row in agents if row["name"] == "Vigo")
    assert micro(vigo["earned"]) == statement.earned
    lines = ask(served, f"/api/agents/{vigo['id']}/statement?count=1000").json()["lines"]
    assert [micro(line["balance"]) for line in lines[::-1]] == [line.balance for line in statement.lines]
    assert [line["why"] for line in lines[::-1]] == [line.why for line in statement.lines]


def test_every_formula_gives_the_reward(served: Served) -> None:
    lines = ask(served, "/api/agents/6/statement?count=1000").json()["lines"]
    filled = [line for line in lines if line["formula"]]
    assert len(filled) == len([line for line in lines if line["status"] in ("paid", "waiting")]) > 40
    assert [line["formula"] for line in filled if line["status"] == "waiting"] == ["h(8) = 9.00"]
    for line in filled:
        if line["status"] == "waiting":
            continue
        left, _, right = line["formula"].replace(",", "").partition(" = ")
        written = left.replace("·", "*").replace("÷", "/").replace("²", "**2").replace("−", "-")
        assert right == f"{Decimal(line['reward']):f}".rstrip("0").ljust(len(right), "0")
        value = ExpressionCost(written)(1.0)
        assert value == pytest.approx(float(line["reward"]), abs=2e-5), line


def test_the_run_adds_up(served: Served) -> None:
    rounds = ask(served, "/api/runs/1/rounds").json()
    total = float(ask(served, "/api/runs/1").json()["paid"])
    assert rounds["rounds_per_point"] == 1
    assert sum(rounds["paid"]) == pytest.approx(total) == pytest.approx(rounds["cumulative_paid"][-1])
    assert rounds["request"] == [8.0] * 29 + [12.0] * 31 + [8.0] * 2
    coarse = ask(served, "/api/runs/1/rounds?points=10").json()
    assert coarse["rounds_per_point"] == 7
    assert len(coarse["paid"]) == 9
    assert coarse["paid"][0] == pytest.approx(sum(rounds["paid"][:7]) / 7)
    assert coarse["cumulative_paid"][-1] == pytest.approx(total)
    statuses = ask(served, "/api/runs/1/participation").json()
    assert [agent["name"] for agent in statuses["agents"]] == NAMES
    assert statuses["labels"][statuses["statuses"][-1][8]] == "invalid", "round 9"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_written(served: Served, method: str) -> None:
    for path in (*GETS, *STREAMS):
        answer = ask(served, path, method)
        assert answer.status == 405, path
        assert answer.json()["detail"] == "the dashboard only reads: use GET"


def test_looking_changes_no_byte(small: Path) -> None:
    def digest() -> str:
        return hashlib.sha256(small.read_bytes()).hexdigest()

    before = digest()
    with serving(small) as one:
        for path in (*GETS, "/runs", "/runs/1", "/agents/6", "/agents/6/statement.csv", "/payouts/1"):
            assert ask(one, path).status == 200, path
    assert digest() == before


@pytest.mark.parametrize("path", ["/runs/{}", "/agents/{}", "/payouts/{}", "/agents/{}/statement.csv"])
@pytest.mark.parametrize("number", ["0", "999", "-1", "abc", "1e9", "9" * 30, "1;drop", "%00", "../1", "%F0%9F%92%A9"])
def test_unknown_ids_get_a_page(served: Served, path: str, number: str) -> None:
    answer = ask(served, path.format(number))
    assert answer.status == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "there is no" in answer.text
    assert "Traceback" not in answer.text


def test_a_statement_comes_in_three_forms_and_the_front_page_leads_to_the_runs(served: Served) -> None:
    answer = ask(served, "/agents/1/statement.pdf")
    assert answer.status == 404
    assert "a statement comes as" in answer.text
    assert (ask(served, "/").status, ask(served, "/").headers["location"]) == (303, "/runs")


@pytest.mark.parametrize("path", ["/api/runs/999", "/api/agents/999/statement", "/api/payouts/999", "/api/agents/1/runs/999", "/api/nothing"])  # noqa: E501  # fmt: skip
def test_unknown_ids_get_a_problem(served: Served, path: str) -> None:
    answer = ask(served, path)
    assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")
    assert answer.json()["status"] == 404


def test_an_agent_of_another_run(served: Served) -> None:
    answer = ask(served, "/api/agents/10/runs/2")
    assert (answer.status, answer.json()["detail"]) == (404, "agent 10 does not belong to run 2")


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "'; DROP TABLE runs; --", "%", "_", "\x00", "é" * 5000, "x" * 10_000])  # noqa: E501  # fmt: skip
def test_hostile_questions(served: Served, text: str) -> None:
    for path in ("/agents?search=", "/agents?page=", "/runs?page=", "/agents/6?size=", "/playground?formula=", "/login?next="):  # noqa: E501  # fmt: skip
        answer = ask(served, path + quote(text))
        assert answer.status in (200, 303), path
        assert "<script>alert" not in answer.text
    for path in ("/api/agents?search=", "/api/game?cost=", "/api/runs?start=", "/api/runs/1/rounds?points="):
        assert ask(served, path + quote(text)).status in (200, 422), path


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("cost=s**s**s**s**9", "`cost` must be"),
        ("cost=__import__('os')", "numbers, s, + - * / ** and parentheses only"),
        ("cost=10-s", "`cost` must"),
        ("cost=1e308*s", "`cost` must"),
        ("request=64&max_batch=8", "`request` must be at most `max_batch` (8), got 64"),
        ("others=64&max_batch=32", "`others` must be at most `max_batch` (32), got 64"),
        ("ratio=-1", "`ratio`: input should be greater than 0, got '-1'"),
        ("ratio=abc", "`ratio`: input should be a valid number"),
        ("ratio=nan", "`ratio`: "),
        ("ratio=2&rule=known", "`ratio` must be left out under the rule 'known', got 2: only agreement has a scale"),
        ("agents=100000", "`agents`: input should be less than or equal to 200, got '100000'"),
        (
            "rule=fair",
            "known, estimated, witnessed, flat, calibrated, information, steady, genie, got 'fair'",
        ),
    ],
)
def test_what_is_wrong_is_said(served: Served, query: str, complaint: str) -> None:
    for path in ("/api/game?", "/api/game/simulation?"):
        answer = ask(served, path + quote(query, safe="=&"))
        assert answer.status == 422, answer.text
        assert complaint in answer.json()["detail"]


def test_the_ratio_of_the_variance_to_the_scale_moves_the_best_size(served: Served) -> None:
    told = ask(served, "/api/game?ratio=1.3").json()
    game = MinibatchGame(10, 8, ExpressionCost("1 + s"), 32, ratio=1.3)
    assert (told["ratio"], told["best_response"]) == (1.3, game.best_response(0, [8] * 10)) == (1.3, 9)
    assert [row["utility"] for row in told["table"]] == pytest.approx(game.utilities(0, [8] * 10).tolist())
    answer = ask(served, "/api/game/simulation?ratio=1.3")
    assert answer.status == 422
    assert answer.json()["detail"].startswith("`ratio` must be left out here, got 1.3: a simulation has the scale it")


def test_a_rule_without_a_closed_form_is_to_be_simulated(served: Served) -> None:
    answer = ask(served, "/api/game?rule=steady")
    assert answer.status == 422
    assert answer.json()["detail"] == "the rule 'steady' has no closed form; press Simulate to see what it pays"


@pytest.mark.parametrize("rule", ["agreement", "known", "estimated", "information"])
@pytest.mark.parametrize(("request_", "others", "cost"), [(8, 8, "1 + s"), (16, 4, "2 + 0.5*s**1.5"), (5, 0, "s")])
def test_the_game_is_that_of_game_py(served: Served, rule: str, request_: int, others: int, cost: str) -> None:
    query = f"agents=7&request={request_}&others={others}&max_batch=40&rule={rule}&cost={quote(cost)}"
    told = ask(served, f"/api/game?{query}").json()
    game = MinibatchGame(7, request_, ExpressionCost(cost), 40, rule=rule)  # pyright: ignore[reportArgumentType]
    assert [row["utility"] for row in told["table"]] == pytest.approx(game.utilities(0, [others] * 7).tolist())
    assert told["best_response"] == game.best_response(0, [others] * 7)
    assert told["symmetric_equilibria"] == game.symmetric_equilibria()
    assert told["path"][-1] == game.best_response_path([others] * 7)[-1][0]
