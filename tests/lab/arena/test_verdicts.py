"""What the arena tells people: numbers with their errors, sentences that the numbers do not contradict, and sources."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from guerdon.cli.arena import _print  # pyright: ignore[reportPrivateUsage]
from guerdon.lab.arena.contest import BestAnswer, RuleResult
from guerdon.lab.arena.entrants import ENTRANTS, knowledge
from guerdon.lab.arena.learning import Settled
from guerdon.lab.arena.report import write_arena
from guerdon.lab.arena.settings import ArenaSetting, setting_of
from guerdon.lab.arena.strategies import STRATEGIES
from guerdon.lab.arena.verdicts import first_paragraph, rule_words, told, told_share, verdicts
from guerdon.lab.experiments.claims import Mean

NONE = Mean(0.0, 0.0)


@pytest.fixture(scope="module")
def setting() -> ArenaSetting:
    return setting_of("linear")


def result(name: str, setting: ArenaSetting, **changed: Any) -> RuleResult:
    """What was found of a rule under which all is well, but for what is changed."""
    entrant = ENTRANTS[name]
    settled = Settled("honest", 1.0, Mean(1, 0), Mean(170, 0), Mean(0.999, 0), Mean(170.2, 0.1))
    plain = RuleResult(
        entrant, knowledge(entrant.make(setting)), dict.fromkeys(STRATEGIES, NONE), NONE, Mean(1.2, 0.1),
        BestAnswer("honest", NONE), settled,
    )  # fmt: skip
    settled = settled._replace(**changed.pop("settled", {}))
    return plain._replace(settled=settled, **changed)


@pytest.mark.parametrize(
    ("mean", "sign", "words"),
    [
        (Mean(0, 0), "+", "0"),
        (Mean(-1e-9, 0), "+", "0"),
        (Mean(17, 0), "+", "+17"),
        (Mean(52.3077, 0), "+", "+52.31"),
        (Mean(0.9987, 0.0001), "", "0.999"),
        (Mean(170.0001, 0.0002), "", "170"),
        (Mean(-714694.2, 714668.1), "", "−714,694 ± 714,668"),
        (Mean(0.123456, 0.0456), "+", "+0.123 ± 0.046"),
        (Mean(float("inf"), float("nan")), "", "–"),
    ],
)
def test_numbers_are_told_with_the_digits_that_their_errors_allow(mean: Mean, sign: str, words: str) -> None:
    assert told(mean, sign).replace("\u00a0", " ") == words


def test_shares_are_told_in_per_cent() -> None:
    assert told_share(Mean(0.475, 0.2056)) == "48%\u00a0±\u00a021"
    assert told_share(Mean(1, 0)) == "100%"


def test_a_rule_under_which_all_is_well_is_told_so(setting: ArenaSetting) -> None:
    words = " ".join(rule_words(result("steady", setting), setting))
    assert "nothing that we tried gains over honest work, and agents that learn keep working" in words
    assert "Honest agents are paid their cost of 17 a round, exactly." in words
    assert "beyond chance: none." in words
    assert "The search found no answer" in words


def test_a_gain_that_chance_explains_is_told_as_such(setting: ArenaSetting) -> None:
    found = result("steady", setting, best=BestAnswer("does not work, sends zeros", Mean(0.24, 0.67)))
    words = " ".join(rule_words(found, setting))
    assert "gains no more than chance explains (+0.24\u00a0±\u00a00.67 a round): an agent that does not work" in words
    assert "nothing that we tried gains" in words


def test_a_strategy_that_gains_is_told_with_what_it_does(setting: ArenaSetting) -> None:
    gains = dict.fromkeys(STRATEGIES, NONE) | {"copy": Mean(8.5, 0.1)}
    found = result("signs", setting, gains=gains, best=BestAnswer("copy", Mean(8.5, 0.1)), rent=Mean(-1.37, 0.03))
    words = " ".join(rule_words(found, setting))
    assert "beyond chance: copy." in words
    assert "“copy”, an agent that works once, and sends it under two names." in words
    assert "1.370\u00a0±\u00a00.030 a round less than their cost of 17" in words


@pytest.mark.parametrize(("paid", "words"), [(-700.0, "Agents pay the server"), (0.0, "Nobody is paid")])
def test_without_pay_no_money_is_said_to_buy_anything(setting: ArenaSetting, paid: float, words: str) -> None:
    unpriced = {"paid": Mean(paid, 10), "price": Mean(math.inf, math.nan), "accuracy": Mean(0.7, 0.2)}
    told = rule_words(result("estimated", setting, settled=unpriced), setting)[-1]
    assert words in told
    assert "bought nothing" not in told


def test_false_claims_are_called_honest_work_where_nobody_reads_them(setting: ArenaSetting) -> None:
    for name, read in (("steady", False), ("samples", True)):
        told = rule_words(result(name, setting, settled={"strategy": "false claim"}), setting)[-1]
        assert ("does not read claims" in told) is not read


def test_rules_of_others_that_are_as_good_are_named(setting: ArenaSetting) -> None:
    results = {name: result(name, setting) for name in ("signs", "steady")}
    results["flat"] = result("flat", setting, settled={"effort": Mean(0.2, 0.1)})
    results["leave-one-out"] = result("leave-one-out", setting, settled={"effort": Mean(0.5, 0.29)})  # nobody knows
    words = {verdict.what: verdict.words for verdict in verdicts(results)}["Most work by agents that learn"]
    assert words == "Most work by agents that learn: steady (1), one of ours. As good, as far as can be told: signs."


def test_without_a_rule_of_ours_nothing_is_said_of_ours(setting: ArenaSetting) -> None:
    assert first_paragraph(setting, {"flat": result("flat", setting)}).startswith("No rule of ours was played")


def test_every_rule_has_a_page_with_its_formula_and_source(setting: ArenaSetting, tmp_path: Path) -> None:
    results = {name: result(name, setting) for name in ENTRANTS}
    write_arena(setting, results, tmp_path, repetitions=4, generations=2, seed=0, different=False)
    said = set[str]()
    for name in results:
        page = (tmp_path / "rules" / f"{name}.html").read_text(encoding="utf-8")
        source = page[page.index("Formula and source") : page.index("What each strategy gains")]
        assert "Source: " in source, name
        assert "`" not in source, name
        assert "&gt;&gt;&gt;" not in source, name
        assert "16 samples asked for, at a cost of 17; 4 repetitions of 100 rounds; seed 0" in page
        said.add(source)
    assert len(said) == len(results)  # no page says what another one says
    page = (tmp_path / "arena.html").read_text(encoding="utf-8")
    for link in re.findall(r'<a href="([^"#]+)"', page):
        assert (tmp_path / link).is_file(), link
    assert '<a href="rules/steady.html">steady</a> *' in page
    assert "Work with s samples costs 1 + s." in page


def test_names_fit_into_a_terminal(setting: ArenaSetting, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stretched = {"strategy": "stretched prediction", "paid": Mean(-714694.0, 714668.0)}
    results = {name: result(name, setting) for name in ENTRANTS}
    results["estimated"] = result("estimated", setting, settled=stretched)
    _print(results, 17.0, "title", "first", Path("arena"))
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    for name in results:
        assert f"│ {name} " in shown
