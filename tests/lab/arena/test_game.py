"""The game: tiny here, and with every rule among the slow tests."""

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from guerdon.costs import Cost
from guerdon.lab.arena import ToldRule, contest, game
from guerdon.lab.arena.contest import count_steps_of, run_arena, spread_of
from guerdon.lab.arena.entrants import ENTRANTS, Entrant, enter, entrants, knowledge
from guerdon.lab.arena.game import Game, as_agent, in_words
from guerdon.lab.arena.learning import POPULATIONS, price_of
from guerdon.lab.arena.report import as_report, write_arena
from guerdon.lab.arena.settings import PROBLEMS, setting_of
from guerdon.lab.arena.shares import begin, plain_payments
from guerdon.lab.arena.strategies import STRATEGIES
from guerdon.lab.arena.verdicts import first_paragraph, verdicts
from guerdon.lab.experiments.claims import Mean
from guerdon.lab.truth import Facts
from guerdon.rule import Need

NOTHING = {"share": 0.0, "gradient": 1.0, "prediction": 0.0, "echo": 0.0, "noise": 0.0, "claim": 3.0}


@dataclass(frozen=True)
class HalfFlat(ToldRule):
    """Pays half of the cost to everybody, and half a unit for each announced sample."""

    cost: Cost
    facts: Facts | None = None
    name, needs = "half-flat", frozenset({Need.ANNOUNCEMENTS})

    def pay(self, state: Any, round: Any) -> Any:
        state, status, nu = begin(state, round)
        assert self.facts is not None
        return plain_payments(self.cost(nu) / 2 + self.facts.announced / 2, status), state


@pytest.fixture(scope="module")
def own_rule() -> Any:
    """The rule of this file, in the arena for as long as its tests run."""

    @enter("half-flat", "Pays half of the cost to everybody, and half a unit for each announced sample.")
    def make(setting: Any) -> Any:
        return HalfFlat(setting.cost)

    yield make
    del ENTRANTS["half-flat"]


@pytest.fixture(scope="module")
def small(own_rule: Any) -> Any:
    """Four rounds of four agents under two rules, played through."""
    del own_rule
    setting = replace(setting_of("still", 4), rounds=4)
    entered = entrants(["half-flat", "balanced"])
    steps: list[str] = []
    patch = pytest.MonkeyPatch()
    patch.setattr(game, "CHUNK", 1)  # as where agents learn: one compilation serves both
    for module in (game, contest):
        patch.setattr(module, "RANDOM", 3)
    results = run_arena(setting, entered, 4, 2, 0, steps.append)
    total = count_steps_of(entered)
    patch.undo()
    assert len(steps) == total
    return setting, entered, results


def test_a_rule_of_your_own_joins_and_is_paid_what_it_says(small: Any) -> None:
    _, _, results = small
    found = results["half-flat"]
    # 4.5 + 8/2 for honest work, at a cost of 9; claims of three times the request bring 8 more.
    assert found.rent.value == pytest.approx(-0.5)
    assert found.gains["false claim"].value == pytest.approx(8.0)
    assert found.gains["declines"].value == pytest.approx(0.5)
    assert found.gains["zero"].value == pytest.approx(9.0)
    assert found.gains["half"].value == pytest.approx(4 - 2)
    assert found.best.gain.value >= 8.0
    assert found.best.words.endswith("× the request")


def test_copies_work_once_and_are_paid_twice(small: Any) -> None:
    assert small[2]["half-flat"].gains["copy"].value == pytest.approx(4.5)


def test_the_report_has_a_page_for_each_rule_and_says_first_who_beats_ours(small: Any, tmp_path: Any) -> None:
    setting, _, results = small
    write_arena(setting, results, tmp_path, repetitions=4, generations=2, seed=0, different=False)
    page = (tmp_path / "arena.html").read_text()
    assert page.index("Other rules beat ours at") < page.index("<figure>")
    for name in results:
        assert f"<h1>{name}</h1>" in (tmp_path / "rules" / f"{name}.html").read_text()
    assert {"heat.svg", "money.png", "arena.csv", "arena.parquet"} <= {file.name for file in tmp_path.iterdir()}
    assert not re.search(r"(src|href)=.?https?:", page)
    told = as_report(setting, results)
    assert set(told["rules"]) == {"half-flat", "balanced"}


def test_a_rule_that_does_better_is_named_first(small: Any) -> None:
    setting, _, results = small
    quiet = results["half-flat"]
    assert quiet.spread.value < results["balanced"].spread.value
    beaten = [verdict for verdict in verdicts(results) if verdict.beaten]
    assert any(verdict.winner == "half-flat" and "differs least" in verdict.what for verdict in beaten)
    ours_alone = {"balanced": results["balanced"]}
    assert first_paragraph(setting, ours_alone).startswith("No other rule beats ours")


def test_chance_beats_nobody(small: Any) -> None:
    """A rule that is better by two standard errors is not said to beat ours; one that is by four is."""
    _, _, results = small
    ours, other = results["balanced"], results["half-flat"]

    def reached(found: Any, value: float) -> Any:
        return found._replace(settled=found.settled._replace(accuracy=Mean(value, 0.01)))

    def beaten(value: float) -> bool:
        made = verdicts({"balanced": reached(ours, 0.8), "half-flat": reached(other, value)})
        return next(verdict.beaten for verdict in made if verdict.what.startswith("Most accuracy"))

    assert not beaten(0.8 + 2 * 0.01 * 2**0.5)
    assert beaten(0.8 + 4 * 0.01 * 2**0.5)


def test_what_agents_settle_at_has_standard_errors(small: Any) -> None:
    setting, _, results = small
    settled = results["half-flat"].settled
    assert 0 < settled.share <= 1
    assert settled.effort.error > 0  # populations learn apart
    assert settled.paid.value <= (4.5 + 3 * 8 / 2) * setting.agents  # at most what claims of three times as much bring
    told = as_report(setting, results)["rules"]["half-flat"]["settled"]
    assert told["effort"] == {"value": settled.effort.value, "error": settled.effort.error}
    assert told["price"] == {"value": None, "error": None}  # a still model learns nothing


def test_money_for_a_point_is_a_ratio_of_means_with_its_error() -> None:
    rng = np.random.default_rng(0)
    draws = np.array([price_of(100 + rng.normal(size=40), 50 + 5 * rng.normal(size=40)) for _ in range(800)])
    assert draws[:, 0].mean() == pytest.approx(2, abs=0.01)
    assert draws[:, 1].mean() == pytest.approx(draws[:, 0].std(), rel=0.1)
    assert np.isinf(price_of(np.full(POPULATIONS, 170.0), np.full(POPULATIONS, 0.1)).value)


def test_the_spread_has_the_standard_error_of_a_standard_deviation() -> None:
    rng = np.random.default_rng(0)
    draws = np.array([spread_of(rng.normal(size=(16, 10))) for _ in range(500)])
    assert draws[:, 0].mean() == pytest.approx(1, abs=0.01)
    assert draws[:, 1].mean() == pytest.approx(draws[:, 0].std(), rel=0.1)


def test_every_rule_says_what_the_server_must_know() -> None:
    setting = setting_of("linear")
    needs = {name: knowledge(entrant.make(setting)) for name, entrant in ENTRANTS.items()}
    assert "a validation set" in needs["shapley"]
    assert "how many samples agents say they used" in needs["auction"]
    assert "the true gradient" in needs["genie"]
    assert "a public prediction of the gradient" in needs["information"]
    assert needs["balanced"] == ["what work costs"]
    assert {"flat", "contract", "cosine", "signs", "steady", "calibrated", "information"} <= set(needs)


def test_names_are_checked() -> None:
    with pytest.raises(ValueError, match="must be one of flat"):
        entrants(["flatt"])
    with pytest.raises(ValueError, match="name of its own"):
        enter("flat", "again")
    assert isinstance(entrants(["known:4.0"])["known:4.0"], Entrant)


def test_a_function_that_makes_no_rule_is_told_so() -> None:
    nothing: Any = Entrant("mine", "", lambda _: None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="'mine' must be made by a function that returns a `Rule`, got None"):
        Game(setting_of("still"), {"mine": nothing})


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="at least 4"):
        setting_of("linear", 2)
    with pytest.raises(ValueError, match="problem"):
        setting_of("lungs")
    with pytest.raises(ValueError, match="choose heart or network"):
        setting_of("linear", 10, different=True)


def test_an_answer_in_words() -> None:
    assert in_words(NOTHING) == "does not work, sends zeros, claims 3 × the request"
    assert in_words(NOTHING | {"share": 0.5}, claims=False) == "uses 50% of the samples, sends 1 × gradient"
    assert as_agent(NOTHING).fabricates


@pytest.mark.slow
def test_the_first_try_is_reproduced_with_every_rule() -> None:
    """K = 10, ν = 8, h = 1 + s, B = 8, d = 50: what sending the prediction gains, and tripling under loss scores."""
    setting = setting_of("still", 10)
    played = Game(setting, entrants())
    tried = ("honest", "prediction", "triple", "copy", "half")
    profit = {name: played.play(STRATEGIES[name], 4).profit for name in tried}
    gain = {
        name: {rule: float(np.mean(profit[name][rule] - profit["honest"][rule])) for rule in played.rules}
        for name in tried
    }
    earned = {rule: float(np.mean(profit["prediction"][rule])) for rule in played.rules}
    assert earned["flat"] == pytest.approx(9)
    for rule in ("cosine", "shapley", "gtg-shapley", "deviation", "balanced"):
        assert earned[rule] > 2, rule
    for rule in ("leave-one-out", "loss-score"):
        assert earned[rule] > 0.1, rule
    for rule in ("signs", "information"):
        assert gain["prediction"][rule] < -3, rule
    assert gain["triple"]["loss-score"] > 10
    assert gain["copy"]["signs"] > 3 > gain["copy"]["information"]
    for rule in ("known", "estimated", "balanced", "information", "steady", "witnessed", "genie"):
        assert gain["half"][rule] < -1, rule
    for rule in ("flat", "cosine", "shapley", "directions"):
        assert gain["half"][rule] > 0.5, rule


@pytest.mark.slow
@pytest.mark.parametrize("problem", [name for name in PROBLEMS if name not in ("still", "linear")])
def test_every_problem_can_be_played_with_different_agents(problem: str) -> None:
    setting = replace(setting_of(problem, 6, different=True), rounds=20)
    played = Game(setting, entrants(["flat", "information", "leave-one-out", "stackelberg"]))
    found = played.play(STRATEGIES["prediction"], 4)
    assert found.profit["flat"] == pytest.approx(17)
    assert found.profit["stackelberg"] == pytest.approx(17)
    assert np.all(np.isfinite(found.profit["information"]))
    assert np.all(found.accuracy > 0.5)
