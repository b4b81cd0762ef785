"""The playground in a real browser: sliders in, the numbers of game.py out; and a simulation over them."""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import registry
from guerdon.agreement import FlatPay
from guerdon.costs import ExpressionCost
from guerdon.dashboard import playground
from guerdon.evidence import gather
from guerdon.lab.arena.prices import ContractMenu, LocalAccuracy, StackelbergPrice
from guerdon.lab.game import MinibatchGame
from guerdon.lab.truth import Facts
from guerdon.registry import register
from guerdon.rule import round_of
from tests.dashboard.conftest import Served, Visitor, ask, serving

UTILITY = "document.querySelector('#curve .plot').data.find(t => t.name.startsWith('utility')).y"
NOT_SIMULATED = "document.querySelector('#curve .plot').data.every(t => t.name !== 'simulated utility')"


@pytest.fixture(scope="module")
def served(ledgers: Callable[[str], Path]) -> Iterator[Served]:
    with serving(ledgers("missing")) as one:
        yield one


def move(visitor: Visitor, **values: Any) -> None:
    """Move sliders and choose options, one by one, as a person does."""
    for name, value in values.items():
        field = visitor.page.locator(f"#{name}")
        if name in ("rule", "kind"):
            field.select_option(str(value))
        else:
            field.fill(str(value))
    visitor.until("document.querySelector('.playground').dataset.shown === location.search")
    visitor.until("location.search.length > 1")


def check_curve(visitor: Visitor, game: MinibatchGame, others: int) -> None:
    profile = [others] * game.num_agents
    expected = game.utilities(0, profile).tolist()
    visitor.until(f"Math.abs({UTILITY}[0] - {expected[1]}) < 1e-9 * Math.max(1, Math.abs({expected[1]})) && {UTILITY}.length === {game.max_batch}")  # noqa: E501  # fmt: skip
    assert visitor.page.evaluate(UTILITY) == pytest.approx(expected[1:])
    best = game.best_response(0, profile)
    told = visitor.page.locator("#best").inner_text()
    assert told == ("decline" if best == 0 else f"{best}, as asked" if best == game.request else str(best))
    equilibria = ["decline" if size == 0 else str(size) for size in game.symmetric_equilibria()]
    assert visitor.page.locator("#equilibria").inner_text() == ", ".join(equilibria)


def test_sliders_change_the_curve_and_match_game_py(served: Served, visitor: Visitor) -> None:
    page = visitor.visit(f"{served.address}/playground")
    visitor.drawn("curve")
    check_curve(visitor, MinibatchGame(10, 8, ExpressionCost("1 + s"), 32), 8)
    move(visitor, agents=25)
    check_curve(visitor, MinibatchGame(25, 8, ExpressionCost("1 + s"), 32), 8)
    move(visitor, request=16)
    check_curve(visitor, MinibatchGame(25, 16, ExpressionCost("1 + s"), 64), 8)
    move(visitor, others=4, rule="estimated")
    check_curve(visitor, MinibatchGame(25, 16, ExpressionCost("1 + s"), 64, rule="estimated"), 4)
    assert page.locator("#best").inner_text() == "8", "√(16 · 4), by the theory"
    move(visitor, rule="agreement", kind="power", fixed=2, slope=0.5, power=1.7)
    check_curve(visitor, MinibatchGame(25, 16, ExpressionCost("2 + 0.5*s**1.7"), 64, rule="agreement"), 4)
    move(visitor, kind="own", formula="3 + s*s")
    check_curve(visitor, MinibatchGame(25, 16, ExpressionCost("3 + s*s"), 64, rule="agreement"), 4)
    page.locator("#curve summary").click()
    page.locator("#curve tbody tr").nth(64).wait_for()  # the table is made when it is opened
    assert page.locator("#curve tbody tr").count() == 65
    visitor.leave(served.address)


def test_the_keyboard_moves_a_slider(served: Served, visitor: Visitor) -> None:
    page = visitor.visit(f"{served.address}/playground")
    visitor.drawn("curve")
    page.locator("#request").focus()
    page.keyboard.press("ArrowRight")
    check_curve(visitor, MinibatchGame(10, 9, ExpressionCost("1 + s"), 36), 8)
    visitor.leave(served.address)


def test_the_address_keeps_the_settings(served: Served, visitor: Visitor) -> None:
    visitor.visit(f"{served.address}/playground")
    visitor.drawn("curve")
    move(visitor, agents=5, request=12, others=3, rule="agreement", kind="power", fixed=4, slope=2, power=1.2)
    address = visitor.page.url
    page = visitor.visit(address)
    visitor.drawn("curve")
    check_curve(visitor, MinibatchGame(5, 12, ExpressionCost("4 + 2*s**1.2"), 48, rule="agreement"), 3)
    assert page.locator("#rule").input_value() == "agreement"
    visitor.visit(f"{served.address}/playground?agents=1e99&request=-3&rule=<script>&others=abc&kind=own&formula=1%2Bs")
    visitor.drawn("curve")
    assert page.locator("#agents").input_value() == "100", "what is out of range is brought back"
    visitor.leave(served.address)


def test_a_formula_that_is_none(served: Served, visitor: Visitor) -> None:
    page = visitor.visit(f"{served.address}/playground")
    visitor.drawn("curve")
    for wrong, words in (("alert(1)", "numbers, s, + - * / **"), ("10 - s", "`cost` must"), ("1 +", "cannot read")):
        move(visitor, kind="own", formula=wrong)
        page.wait_for_selector("#complaint:visible")
        assert words in page.locator("#complaint").inner_text()
        assert page.locator("#curve .empty").is_visible()
    move(visitor, formula="1 + s")
    page.wait_for_selector("#complaint", state="hidden")
    check_curve(visitor, MinibatchGame(10, 8, ExpressionCost("1 + s"), 32), 8)
    assert [trouble for trouble in visitor.troubles if "422" not in trouble] == []


def test_a_simulation_is_drawn_over_the_theory(served: Served, visitor: Visitor) -> None:
    page = visitor.visit(f"{served.address}/playground?agents=6&request=8&others=4&rule=known")
    visitor.drawn("curve")
    page.get_by_role("button", name="Simulate").click()
    page.wait_for_selector("#progress:visible")
    page.wait_for_selector(".playground[data-simulated=yes]", timeout=60_000)
    trace = page.evaluate("document.querySelector('#curve .plot').data.find(t => t.name === 'simulated utility')")
    theory = MinibatchGame(6, 8, ExpressionCost("1 + s"), 32, rule="known").utilities(0, [4] * 6)
    assert sorted(trace["x"]) == [1, 4, 6, 7, 8, 9, 12, 16]
    for size, utility, above, below in zip(trace["x"], trace["y"], trace["error_y"]["array"], trace["error_y"]["arrayminus"], strict=True):  # noqa: E501  # fmt: skip
        assert 0 < above < 4, "sharp enough to see a difference"
        assert utility - below < theory[size] < utility + above, size
    assert "7 other batch sizes are deterred" in page.locator("#curve .remark").inner_text()
    move(visitor, agents=7)
    visitor.until(NOT_SIMULATED)
    visitor.leave(served.address)


def simulation(served: Served, **query: Any) -> tuple[http.client.HTTPConnection, Any]:
    connection = http.client.HTTPConnection(served.address.removeprefix("http://"), timeout=60)
    connection.request("GET", "/api/game/simulation?" + "&".join(f"{k}={v}" for k, v in query.items()))
    return connection, connection.getresponse()


def events(answer: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in answer:
        if line.startswith(b"event: "):
            name = line[7:].decode().strip()
        elif line.startswith(b"data: "):
            yield name, json.loads(line[6:])


def test_one_simulation_at_a_time_and_it_ends_with_its_reader(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    def slow(settings: playground.GameSettings, announce: Callable[[str], None]) -> dict[str, Any]:
        for step in range(100):
            announce(f"step {step}")
            heard.append(f"{settings.agents}")
            time.sleep(0.05)
        return {"agents": settings.agents}

    monkeypatch.setattr(playground, "simulate", slow)
    first, stream = simulation(served, agents=3)
    assert next(events(stream))[0] == "progress"
    second, waiting = simulation(served, agents=4)
    assert next(events(waiting))[0] == "queued"
    assert set(heard) == {"3"}
    stream.close()
    first.close()  # the reader goes away
    assert next(name for name, _ in events(waiting) if name != "queued") == "progress"
    assert len([one for one in heard if one == "3"]) < 100, "the first was cancelled"
    waiting.close()
    second.close()


@pytest.mark.parametrize(("rule", "best"), [("stackelberg", 32), ("contract", 8), ("accuracy", 8)])
def test_prices_of_the_arena_are_drawn_as_they_pay(rule: str, best: int) -> None:
    found = playground.play(settings_of(rule, max_batch=32))
    assert found.best_response == best
    cost = ExpressionCost("1 + s")
    made = {"stackelberg": StackelbergPrice, "contract": ContractMenu, "accuracy": LocalAccuracy}[rule](cost)
    drawn = [row.expected_reward for row in found.table if row.batch_size > 0]
    announced = [row.batch_size for row in found.table if row.batch_size > 0]
    assert drawn == pytest.approx(paid_for(made, announced))


def settings_of(rule: str, max_batch: int = 8) -> playground.GameSettings:
    return playground.GameSettings(rule=rule, agents=4, request=8, cost="1 + s", others=8, max_batch=max_batch, ratio=1)


def paid_for(rule: Any, announced: list[int]) -> list[float]:
    """Return what the rule pays agents that announce so many samples."""
    facts = Facts(
        np.zeros((len(announced), 1)), np.zeros(1), np.array(announced, dtype=float), np.zeros(1), lambda _: 0.0
    )
    everybody = np.ones(len(announced), dtype=bool)
    evidence = gather(np.arange(len(announced), dtype=float)[:, None], everybody)
    return rule.informed(facts).pay(rule.init(len(announced)), round_of(evidence, everybody, 8))[0].released.tolist()


def test_a_rule_of_your_own_with_a_curve_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class HalfPrice(FlatPay):
        name = "half-price"

        def curve(self, size: Any, request: Any) -> Any:
            return self.cost(request) * size / (2 * request)

    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    register(HalfPrice)
    assert playground.offered_rules()["half-price"] == "half-price pay"
    found = playground.play(settings_of("half-price"))
    assert [row.expected_reward for row in found.table][-1] == pytest.approx(4.5)
    with pytest.raises(ValueError, match="'steady' has no closed form; press Simulate"):
        playground.play(settings_of("steady"))


def test_prices_of_the_arena_come_with_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(playground.PRICES) <= set(playground.offered_rules())
    monkeypatch.setattr(playground, "can_simulate", lambda: False)
    assert not set(playground.PRICES) & set(playground.offered_rules())
    with pytest.raises(ValueError, match="got 'stackelberg'"):
        settings_of("stackelberg").chosen()


def test_a_simulation_that_fails_says_why(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(settings: playground.GameSettings, announce: Callable[[str], None]) -> dict[str, Any]:
        announce("begin")
        raise ValueError(f"{settings.agents} agents are one too many")

    monkeypatch.setattr(playground, "simulate", failing)
    connection, stream = simulation(served, agents=5)
    assert list(events(stream))[-1] == ("failed", {"detail": "5 agents are one too many"})
    connection.close()


def test_without_the_simulator(ledgers: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playground, "NEEDED", ("no_such_package",))
    with serving(ledgers("missing")) as one:
        assert ".[sim]" in ask(one, "/playground").text
        answer = ask(one, "/api/game/simulation")
    assert (answer.status, answer.json()["detail"]) == (
        503,
        "the simulator is not installed; pip install '.[sim]'",
    )


def test_the_largest_game_is_quick(served: Served) -> None:
    begun = time.monotonic()
    assert ask(served, "/api/game?agents=200&request=256&others=256&max_batch=256&rule=agreement").status == 200
    assert time.monotonic() - begun < 10
