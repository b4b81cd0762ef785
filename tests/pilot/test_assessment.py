"""What a pilot means, on pilots with known truth: full work costs 17, half work 9, so half may lose 8 of its pay."""

import json
import math

import numpy as np
import pytest

from guerdon import AffineCost
from guerdon.pilot import PilotRecord, RuleReport, assess
from guerdon.pilot.estimates import effect_of, mean_over_rounds
from tests.pilot.records import made_up


def rule_of(record: PilotRecord) -> RuleReport:
    (rule,) = assess(record).rules
    return rule


def test_a_rule_that_pays_for_work_is_called_so() -> None:
    report = assess(made_up(-16, 5, seed=1))
    (rule,) = report.rules
    assert (rule.verdict, rule.words) == ("pays for work", "pays for work here")
    assert rule.gain.low < -8 < rule.gain.high
    assert rule.slope.low < 2 < rule.slope.high
    assert rule.full_pay.low < 17 < rule.full_pay.high
    assert rule.half_pay.low < 1 < rule.half_pay.high
    assert report.recommended == "rule"
    assert (report.full_cost, report.half_cost, report.noise_scale) == (17, 9, 20)


def test_a_rule_that_pays_shirkers_is_called_so() -> None:
    report = assess(made_up(3, 5))
    assert report.rules[0].words == "pays shirkers here"
    assert report.recommended is None
    assert report.why == "rule: pays shirkers here."


def test_a_rule_that_is_too_noisy_says_how_many_rounds_it_takes() -> None:
    noisy = rule_of(made_up(-16, 100, seed=1))
    assert noisy.verdict == "too noisy"
    assert noisy.rounds_to_tell is not None
    assert f"about {noisy.rounds_to_tell:,} rounds" in noisy.words
    told = [rule_of(made_up(-16, 100, rounds=noisy.rounds_to_tell, seed=seed)).verdict for seed in range(10)]
    assert told.count("pays for work") >= 6  # 8 of 10 are expected


def test_half_work_that_pays_as_much_as_full_is_not_called_noisy() -> None:
    assert rule_of(made_up(-8, 3, seed=2)).words == "pays half work about as much as full work here"


def test_the_cost_that_counts_is_the_one_that_is_given() -> None:
    record = made_up(-16, 2)
    assert rule_of(record).verdict == "pays for work"
    assert assess(record, AffineCost(1, 3)).rules[0].verdict == "pays shirkers"


@pytest.mark.slow
def test_intervals_hold_as_often_as_they_say() -> None:
    """Agents and rounds differ far more than half work changes, and agents are absent at random."""
    gains = [rule_of(made_up(-16, 5, rounds=30, seed=seed, levels=20)).gain for seed in range(200)]
    misses = sum(not gain.low < -8 < gain.high for gain in gains)
    assert misses <= 20  # 10 are expected
    assert np.mean([gain.value for gain in gains]) == pytest.approx(-8, abs=0.3)


def test_the_effect_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(1)
    treated, values = rng.random((12, 5)) < 0.4, rng.normal(size=(12, 5))
    values[3, 2] = values[7] = np.nan
    rounds, agents = (np.array(index) for index in np.indices(values.shape))
    known = np.isfinite(values)
    columns = [rounds[known] == t for t in range(12)] + [agents[known] == k for k in range(5)] + [treated[known]]
    found = np.linalg.lstsq(np.column_stack(columns).astype(float), values[known], rcond=None)[0][-1]
    assert effect_of(treated, values, 0.05).value == pytest.approx(found)


def test_means_over_rounds_know_that_rounds_depend_on_each_other() -> None:
    rng, misses = np.random.default_rng(2), 0
    for _ in range(200):
        series = np.zeros(400)
        for t in range(1, 400):
            series[t] = 0.8 * series[t - 1] + rng.normal()
        found = mean_over_rounds(series, 0.05)
        misses += not found.low < 0 < found.high
    assert misses <= 26  # 10 are expected, 100 and more if rounds are taken for independent


def test_noise_spread_and_deposit() -> None:
    rule = rule_of(made_up(-16, 5, rounds=800, levels=4, agents=40))
    assert rule.noise == pytest.approx(math.sqrt(50), rel=0.25)  # of its own and of the round
    assert rule.spread == pytest.approx(4, rel=0.4)
    covered = 2.326 * math.sqrt(50 * rule.noise**2 + 2500 * rule.spread**2) + 50 * (17 - rule.full_pay.value)
    assert rule.deposit == pytest.approx(covered, rel=1e-3)
    assert rule_of(made_up(-16, 5, rounds=400)).spread < 1


def test_an_agent_that_has_just_joined_says_nothing_of_noise_and_spread() -> None:
    record = made_up(-16, 5, rounds=400)
    before = rule_of(record)
    record.pay["rule"][:-2, 0] = np.nan
    after = rule_of(record)
    assert after.noise == pytest.approx(before.noise, rel=0.2)
    assert math.isfinite(after.deposit)
    assert not after.agents[0].off


def test_a_deposit_covers_what_it_says() -> None:
    rule = rule_of(made_up(-16, 5, rounds=400))
    behind = -np.random.default_rng(0).normal(0, math.sqrt(50), size=(20_000, 50)).sum(axis=1)
    assert np.mean(behind > rule.deposit) == pytest.approx(0.01, abs=0.008)


def test_agents_that_are_paid_far_from_their_cost_are_named() -> None:
    record = made_up(-16, 2, rounds=100)
    record.pay["rule"][:, 3] -= 12
    report = assess(record)
    (rule,) = report.rules
    assert [agent.agent for agent in rule.agents if agent.off] == ["a3"]
    assert any("off by more than 10% of the cost 17 for: a3" in note for note in rule.notes)
    assert report.recommended is None
    assert "some honest agents are paid far from their cost" in report.why


def test_honest_agents_are_seldom_named() -> None:
    off = [agent.off for seed in range(40) for agent in rule_of(made_up(-16, 5, rounds=40, seed=seed)).agents]
    assert sum(off) <= 2


def test_ghosts_that_earn_speak_against_a_rule() -> None:
    report = assess(made_up(-16, 2, ghost=5))
    assert report.rules[0].ghosts_earn
    assert "An agent that does no work and sends nothing new would earn 5" in report.rules[0].notes[0]
    assert report.recommended is None
    assert "doing nothing pays more than work" in report.why


def test_agents_that_an_audit_would_flag_are_counted() -> None:
    rule = rule_of(made_up(-16, 2, evidence=9.0))  # 0, 1, …, 9 against log(1000) = 6.9
    assert rule.flagged == pytest.approx(0.3)
    assert any("An audit would flag 30% of the agents" in note for note in rule.notes)


@pytest.mark.parametrize("rounds", [0, 1, 2, 5, 9])
def test_a_pilot_that_has_hardly_begun_says_so(rounds: int) -> None:
    report = assess(made_up(-16, 5, rounds=rounds))
    assert report.recommended is None
    assert all(rule.verdict == "too noisy" for rule in report.rules)
    json.dumps(report.as_json(), allow_nan=False)


def test_json_holds_everything() -> None:
    found = json.loads(json.dumps(assess(made_up(-16, 5)).as_json(), allow_nan=False))
    assert found["rules"][0]["verdict"] == "pays for work"
    assert set(found["rules"][0]["gain"]) == {"value", "low", "high", "error"}
    assert found["rules"][0]["agents"][0]["agent"] == "a0"


@pytest.mark.parametrize("alpha", [0, 1, 2.0, -0.1])
def test_alpha_is_a_probability(alpha: float) -> None:
    with pytest.raises(ValueError, match="`alpha` must be"):
        assess(made_up(-16, 5, rounds=4), alpha=alpha)
