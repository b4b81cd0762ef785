"""A rule from outside of the package joins everything by being registered."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, Cost, FixedRequest, KnownVariance, OutputAgreement, explain, registry, round_of
from guerdon.arrays import namespace
from guerdon.dashboard import playground
from guerdon.lab import truth
from guerdon.lab.truth import GenieAided
from guerdon.ledger import Ledger
from guerdon.provenance import NotInstalledError, distribution_of, same_rule
from guerdon.registry import choices, choose, describe, register, restore
from guerdon.rule import Payments, Round, Rule, as_request, check_round, statuses
from guerdon.statistical.servers import server_for
from guerdon.words import About, about, told_by
from tests.support.command_line import run, run_json
from tests.support.ledger_scenes import AT_ONCE

COST = AffineCost(1, 1)
SETTINGS = playground.GameSettings(agents=4, request=4, cost="1 + s", rule="lottery", others=4, max_batch=8, ratio=1)


class AboutLottery(About):
    """Pays by chance."""

    def why(self, rule: Any, distance: float, expected: float) -> str:
        del rule
        return "a prize" if distance <= expected else "no luck"


@told_by(AboutLottery())
@dataclass(frozen=True)
class Lottery(Rule):
    """Pays `prize` times the cost to everybody whose report is not longer than the mean length, and nothing else."""

    cost: Cost
    prize: float = 2.0

    name, version = "lottery", 3

    def pay(self, state: Any, round: Round) -> tuple[Payments, Any]:
        state, mask = check_round(state, round)
        evidence = round.evidence
        xp, nu = namespace(evidence.squared_length), as_request(evidence, round.request)
        status = statuses(evidence, mask, 1, 1 + 0 * evidence.squared_length)
        usual = xp.sum(evidence.squared_length, axis=-1, keepdims=True) / xp.sum(
            evidence.counted, axis=-1, keepdims=True
        )
        won = (status == 0) & (evidence.squared_length <= usual)
        reward = xp.where(won, self.prize * self.cost(nu), 0.0 * evidence.squared_length)
        shown = xp.where(status == 0, evidence.squared_length, xp.nan)
        return Payments(reward, reward, shown, xp.where(status == 0, usual, xp.nan), 1 + 0 * shown, status), state


@pytest.fixture
def lottery(monkeypatch: pytest.MonkeyPatch) -> type[Lottery]:
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))  # it does not stay
    register(Lottery)
    return Lottery


@pytest.mark.usefixtures("lottery")
def test_a_rule_from_outside_is_paid_recorded_verified_and_explained(tmp_path: Path) -> None:
    server, model = server_for(Lottery(COST, 3.0), FixedRequest(8, 0.1)), np.zeros(5)
    state, names = server.init(model, 3), ["Basel", "Lyon", "Porto"]
    with Ledger(tmp_path / "guerdon.db") as ledger:
        ledger.start_run("run", names, server.rule, AT_ONCE)
        for number in (1, 2):
            ask, state = server.ask(state, model)
            reports = np.array([[1.0] * 5, [2.0] * 5, [9.0] * 5])
            done, state = server.settle(state, ask, reports, np.ones(3, dtype=bool))
            ledger.record_round(
                "run", number, round_of(done.evidence, np.ones(3, dtype=bool), 8), payments=done.payments
            )
        assert ledger.verify().holds
        assert [row.balance for row in ledger.balances()] == [54_000_000, 54_000_000, 0]
        assert "a prize" in ledger.payslips("run")[0].why
        assert ledger.statement("Porto").lines[-1].why == "9 for the 8 samples asked for, less 9: no luck"
        resumed = ledger.resume("run")
    assert resumed is not None
    text, cost = describe(Lottery(COST, 3.0))
    told = {"rule": "lottery", "version": 3, "module": __name__, "distribution": None, "settings": {"prize": 3.0}}
    assert (json.loads(text), cost) == (told, "1 + 1*s")
    assert restore(text, cost).cost(8) == 9
    assert explain(server.rule, done.payments, 8)[0].endswith("plus 18: a prize")


@pytest.mark.usefixtures("lottery")
def test_it_can_be_chosen_wherever_a_rule_can(tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.array([[1.0, 1.0], [2.0, 0.0], [9.0, 9.0]]))
    paid = run_json("pay", str(tmp_path / "g.npy"), "--request", "8", "--rule", "lottery:4")
    assert [row["reward"] for row in paid["agents"]] == [36.0, 36.0, 0.0]
    (tmp_path / "mine.toml").write_text(
        '[problem]\nkind = "linear"\ndim = 5\n[server]\nrequest = 4\nrules = ["lottery"]\n'
        '[[agents]]\nkind = "cooperative"\ncount = 3\n[run]\nrounds = 2\nrepetitions = 3\n'
    )
    simulated = run_json("simulate", str(tmp_path / "mine.toml"))
    assert [row["rule"] for row in simulated["agents"]] == ["lottery"]
    with pytest.raises(ValueError, match="the rule 'lottery' has no closed form; press Simulate"):
        playground.play(SETTINGS)
    assert "one of agreement, known, estimated, witnessed, flat, calibrated, information, steady, lottery" in run(
        "pay", str(tmp_path / "g.npy"), "--request", "8", "--rule", "fair"
    ).stderr.replace("\n", " ")


@pytest.mark.slow
@pytest.mark.usefixtures("lottery")
def test_the_playground_simulates_it() -> None:
    found = playground.simulate(SETTINGS, lambda _: None)
    assert len(found["points"]) == len(playground.sizes_to_try(SETTINGS))


def test_a_rule_is_known_while_it_is_registered(lottery: type[Lottery]) -> None:
    assert register(lottery) is lottery  # again changes nothing

    @dataclass(frozen=True)
    class Other(Lottery):
        """Another rule of the same name."""

    with pytest.raises(ValueError, match="must be names of their own, got 'lottery'"):
        register(Other)
    with pytest.raises(ValueError, match="`rule` must be a rule that can be recorded"):
        describe(Other(COST))


def test_rules_that_need_the_truth_are_for_simulations() -> None:
    with pytest.raises(ValueError, match=r"'known' cannot be made: it needs the variance .*: known:4\.0"):
        choose("known", COST)
    with pytest.raises(ValueError, match=r"the rule must be one of .*got 'genie'"):
        choose("genie", COST)
    for text in ("known", "genie"):
        rule = truth.choose(text, COST)
        assert truth.needs_truth(rule)
        with pytest.raises(ValueError, match=r"must be a rule that can be recorded|cannot be recorded"):
            describe(rule)
    assert choose("known:4", COST) == truth.choose("known:4", COST) == OutputAgreement(COST, KnownVariance(4.0))
    assert isinstance(truth.choose("genie", COST), GenieAided)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fair", "the rule must be one of agreement, known, .*got 'fair'"),
        ("known:x", "the rule 'known:x' cannot be made: could not convert"),
        ("known:0", "`variance` must be a finite number above 0"),
        ("flat:3", "the rule 'flat:3' cannot be made"),
    ],
)
def test_what_cannot_be_chosen_is_said(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose(text, COST)


@pytest.mark.parametrize(
    "text",
    ["not json", "[]", '"text"', '{"rule":"flat"}', '{"rule":"flat","settings":{"more":1},"version":1}',
     '{"rule":"output-agreement","settings":{},"version":1}', '{"rule":["flat"],"settings":{},"version":1}'],
)  # fmt: skip
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="a recorded payment rule cannot be read"):
        restore(text, "1 + s")


@pytest.mark.parametrize("name", [name for name in choices() if name != "known"])
def test_every_choice_can_be_written_down_and_read_again(name: str) -> None:
    rule = choose(name, COST)
    again = restore(*describe(rule))
    assert type(again) is type(rule)
    assert about(again).settings(again) == about(rule).settings(rule)
    assert about(again).words(again)


@pytest.mark.parametrize(("text", "field"), [("calibrated:50", "calibration"), ("witnessed:64", "samples")])
def test_a_whole_number_can_be_chosen_by_text(text: str, field: str) -> None:
    assert repr(getattr(registry.choose(text, COST), field)) == text.partition(":")[2]
    for wrong in ("0", "2.5"):
        with pytest.raises(ValueError, match=f"`{field}` must be a positive integer, got"):
            registry.choose(f"{text.partition(':')[0]}:{wrong}", COST)


@pytest.mark.parametrize("name", truth.choices())
def test_every_rule_says_its_version(name: str) -> None:
    """Beside its name, where who changes a number of it sees it: none is inherited."""
    kind = type(truth.choose(name, COST))
    assert {"name", "version"} <= set(vars(kind))


@pytest.mark.parametrize("version", [0, -1, "1", 1.0, True])
def test_a_version_is_a_whole_number_from_one(monkeypatch: pytest.MonkeyPatch, version: Any) -> None:
    monkeypatch.setattr(Lottery, "version", version)
    with pytest.raises(ValueError, match="`version` of Lottery must be a whole number of at least 1, got"):
        register(Lottery)


def recorded(**changes: Any) -> str:
    """Return the text of a rule that is recorded otherwise than what is installed."""
    return json.dumps(json.loads(describe(choose("flat", COST))[0]) | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 2}, "the rule 'flat' was recorded in version 2, and version 1 is installed here; .* install the "
                         "release of guerdon that has this version"),
        ({"rule": "shares", "distribution": "fair-pay 1.4", "module": "fair_pay.shares"},
         "the rule 'shares' was recorded in version 1, and none is installed here; .*, install fair-pay 1.4, which has "
         "it in fair_pay.shares; or begin another run"),
        ({"rule": "shares", "distribution": None, "module": "mine"}, "first run the module mine with this version"),
    ],
)  # fmt: skip
def test_what_is_not_installed_is_named_with_what_to_install(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(NotInstalledError, match=words):
        restore(recorded(**changes), "1 + s")


def test_a_rule_is_its_name_version_and_settings_wherever_it_is_from() -> None:
    """A release that moves a module, or the next one of another package, is no other rule."""
    plain = describe(choose("flat", COST))[0]
    assert same_rule(plain, recorded(module="guerdon.flat", distribution="guerdon-rules 2"))
    for change in ({"version": 2}, {"rule": "even"}, {"settings": {"more": 1}}):
        assert not same_rule(plain, recorded(**change))
    assert not same_rule("not json", "not json either")
    assert not same_rule("not json", plain)


def test_the_distribution_of_a_module_is_found_with_its_version() -> None:
    assert (
        distribution_of("guerdon.statistical.steady") == "guerdon"
    )  # without: each release has another, the rule has not
    assert distribution_of("numpy.linalg") == f"numpy {np.__version__}"
    assert distribution_of("__main__") is None
