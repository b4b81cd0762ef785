"""The audit keeps its word: false accusations at the stated rate, cheats found, nobody cleared for nothing."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon import InformationPay, OutputAgreement, SteadyPay, gather
from guerdon.evidence import Evidence
from guerdon.statistical.audit import AuditFinding, PlayedRound, differ_among_themselves, follow, judge
from guerdon.statistical.bets import BETS, Ranks, bet, evidence_against, limit, trusted_agents
from guerdon.statistical.trust import TrustState
from tests.support.audit_scenes import COST, DIM, REQUEST, RULE, Training, played, send_noise, send_prediction


def audited(rounds: int, agents: int, cheats: Any = None, alpha: float = 0.001, **settings: Any) -> list[AuditFinding]:
    return judge(follow(played(rounds, agents, cheats, **settings), alpha), alpha, alike=True)


def test_the_evidence_is_what_the_server_keeps() -> None:
    training = Training(6, seed=3, present=0.8)
    rounds, kept = [], []
    for _ in range(40):
        rounds.append(training.play({2: send_noise})[0])
        assert training.trust is not None
        kept.append(RULE.trust.suspicion(training.trust))
    trail = follow(rounds, 0.001)
    np.testing.assert_array_equal(trail.against, kept)
    assert trail.rounds == 40
    untold = follow([one._replace(trusted=None) for one in rounds], 0.001)  # then it follows from earlier rounds
    for one, other in zip(trail, untold, strict=True):
        np.testing.assert_array_equal(one, other)


def test_agents_are_ranked_among_those_that_were_trusted() -> None:
    """As they are recorded, also where the rule itself would have trusted others."""
    rounds = played(40, 6, {2: send_noise})
    half = [one._replace(trusted=one.evidence.counted & (np.arange(6) != 2)) for one in rounds]
    assert np.abs(follow(half, 0.001).against - follow(rounds, 0.001).against).max() > 0.01


@cache
def highest_evidence(agents: int, rounds: int, runs: int, present: float) -> Any:
    """Return the highest evidence ever against each of honest agents, in JAX: (runs, agents)."""

    def step(carry: Any, key: Any) -> Any:
        state, highest = carry
        first, second, third = jax.random.split(key, 3)
        reports = jax.random.normal(first, (DIM,)) + jax.random.normal(second, (agents, DIM))
        here = jax.random.uniform(third, (agents,)) < present
        reports = jnp.where(here[:, None], reports, 0)
        trusted = RULE.trust.reference(state, here)
        compared = jnp.where(trusted[:, None], reports, 0)
        length = jnp.sum(reports**2, axis=1)
        evidence = Evidence(length, length, length, reports @ jnp.sum(compared, axis=0), here)
        state = RULE.trust.learn(state, evidence, trusted, jnp.asarray(REQUEST))
        return (state, jnp.maximum(highest, RULE.trust.suspicion(state))), None

    def run(key: Any) -> Any:
        start = TrustState(*(jnp.asarray(part, dtype=jnp.float32) for part in RULE.trust.init(agents)))
        (_, highest), _ = jax.lax.scan(step, (start, jnp.zeros(agents)), jax.random.split(key, rounds))
        return highest

    return np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), runs)))


@pytest.mark.slow
@pytest.mark.parametrize("present", [1.0, 0.7], ids=["all", "dropouts"])
@pytest.mark.parametrize("alpha", [0.01, 0.001])
def test_honest_agents_are_accused_at_most_at_the_stated_rate(alpha: float, present: float) -> None:
    highest = highest_evidence(agents=6, rounds=120, runs=2000, present=present).ravel()  # 12,000 agents
    accused, most = np.count_nonzero(highest >= np.log(1 / alpha)), alpha * len(highest)
    assert accused <= most + 3 * most**0.5
    assert np.mean(highest >= np.log(10)) > 0.02, "the bets must be able to win at all"


@cache
def one_sends_the_prediction() -> list[list[AuditFinding]]:
    return [audited(100, 8, {0: send_prediction}, seed=seed) for seed in range(4)]


def test_who_sends_the_prediction_is_accused() -> None:
    for found in one_sends_the_prediction():
        assert found[0].verdict == "accused"
        assert found[0].differs_in is not None
        assert found[0].differs_in < 80
        assert found[0].cleared_to is None, "rounding is no information"


def test_the_advantage_is_what_the_theory_says() -> None:
    # B = σ²/g² = ν here: who sends the prediction has −(1 + ν/B) = −2, honest agents 0.
    found = one_sends_the_prediction()
    for agent, expected in ((0, -2.0), (1, 0.0)):
        values = np.array([findings[agent].advantage for findings in found])
        assert abs(values.mean() - expected) < 4 * values.std(ddof=1) / len(values) ** 0.5 + 0.1 * (agent == 0)
    assert found[0][1].compared == 100


def test_no_information_is_cleared_with_probability_alpha_at_most() -> None:
    # ⟨noise, w⟩ is symmetric: 4,000 agents who add nothing, 300 rounds, the bet stopped when it wins.
    alpha, rng = 0.02, np.random.default_rng(5)
    wealth, won = np.zeros((len(BETS), 4000)), np.zeros(4000, dtype=bool)
    for _ in range(300):
        wealth = bet(wealth, Ranks(np.sign(rng.normal(size=4000)), np.ones(4000)))
        won |= evidence_against(wealth) >= np.log(1 / alpha)
    assert won.mean() <= alpha + 3 * (alpha / 4000) ** 0.5
    assert won.mean() > alpha / 10, "and the bet is worth making"


def test_noise_is_not_cleared_and_work_is() -> None:
    cleared: list[bool] = []
    for seed in range(8):
        findings = audited(60, 6, {0: send_noise, 1: send_prediction}, alpha=0.05, seed=seed)
        cleared += [finding.cleared_to is not None for finding in findings[:2]]
        assert all(finding.cleared_to is not None and finding.cleared_to > 30 for finding in findings[2:])
    assert sum(cleared) <= 0.8 + 3 * 0.8**0.5


def test_who_stops_working_is_cleared_for_his_work_only() -> None:
    def stops(prediction: Any, true: Any, honest: Any, number: int, rng: Any) -> Any:
        return honest if number <= 60 else send_noise(prediction, true, honest, number, rng)

    for seed in range(2):
        findings = audited(200, 6, {0: stops}, seed=seed)
        assert findings[0].verdict == "accused"
        assert findings[0].differs_in is not None
        assert findings[0].differs_in >= 60
        # The bet that was running when he stopped may still be won by luck, with a probability of its wealth times α.
        assert findings[0].cleared_to is not None
        assert 30 < findings[0].cleared_to < 80
        assert all(finding.cleared_to is not None and finding.cleared_to > 170 for finding in findings[1:])


def test_other_rules_are_audited_but_clear_nobody() -> None:
    def zeros(prediction: Any, *_: Any) -> Any:
        return 0 * prediction

    findings = audited(150, 6, {4: zeros}, rule=OutputAgreement(COST))
    assert [finding.verdict for finding in findings] == ["not enough evidence"] * 4 + ["accused", "not enough evidence"]
    assert all(finding.informed == 0 for finding in findings)


def test_newcomers_and_absence() -> None:
    rounds = played(20, 5, seed=1)
    training = Training(7, seed=2)
    rounds += [training.play()[0] for _ in range(30)]
    trail = follow(rounds, 0.001)
    assert trail.against.shape == (50, 7)
    assert not trail.against[:20, 5:].any()
    assert np.isnan(trail.advantage[:20, 5:]).all()
    findings = judge(trail, 0.001)
    assert findings[6].compared == 30
    assert findings[6].verdict == "cleared"


def test_a_run_without_rounds() -> None:
    assert judge(follow([], 0.001), 0.001) == []


def test_too_few_participants_say_nothing() -> None:
    one = played(1, 3)[0]
    here = np.array([True, True, False])
    alone = PlayedRound(
        one.rule, Evidence(*(np.where(here, part, 0) for part in one.evidence[:-1]), counted=here), here, 8
    )
    findings = judge(follow([alone], 0.5), 0.5)
    assert [finding.compared for finding in findings] == [0, 0, 0]
    assert np.isnan(findings[0].advantage)


def framed(framers: int, idle: int, rounds: int = 150, seed: int = 0, unlike: float = 0.0, absent: float = 0.0) -> Any:
    """Return the trail of ten agents, of which some send short reports of one kind, and others the prediction alone.

    The noise of the rest differs, from `unlike` less to `unlike` more; they are absent in so many of the rounds.
    """
    rng, presence, rule = np.random.default_rng(seed), np.random.default_rng(seed + 1), InformationPay(COST)
    played, state = list[PlayedRound](), rule.trust.init(10)
    for _ in range(rounds):
        everybody = (np.arange(10) < framers + idle) | (presence.random(10) >= absent)
        reports = 0.5 + np.linspace(1 - unlike, 1 + unlike, 10)[:, None] * rng.normal(size=(10, 30))
        reports[:framers] = 0.5 + 0.3 * (reports[:framers] - 0.5)  # closer to the mean, and shorter
        reports[framers : framers + idle] = 0.0
        trusted = rule.trust.reference(state, everybody)
        evidence = gather(reports, everybody, np.zeros(30), trusted)
        played.append(PlayedRound(rule, evidence, everybody, 8, trusted))
        state = rule.trust.learn(state, evidence, trusted, 8)
    return follow(played, 0.001)


def test_four_of_ten_cannot_have_an_honest_agent_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their short reports make honest ones look long to bets that rank among all, though not to those that we make.

    Even where most honest agents differ so, none is accused.
    """
    assert (framed(framers=4, idle=0).against[:, 4:].max(axis=0) < limit(0.001)).all()
    monkeypatch.setattr("guerdon.statistical.trust.least_doubted", trusted_agents)
    trail = framed(framers=4, idle=0)
    findings = judge(trail, 0.001, alike=True)
    assert (trail.against[:, 4:].max(axis=0) >= limit(0.001)).mean() > 0.5
    assert [finding.verdict == "accused" for finding in findings[4:]] == [False] * 6


def test_nor_where_they_are_half_of_those_present() -> None:
    """The honest are there in six rounds of ten. Of those present alone four of nine are too few to allow for."""
    found = [framed(framers=4, idle=0, seed=seed, absent=0.4).proven[:, 4:].max() for seed in range(3)]
    assert max(found) < limit(0.001)


def test_an_idle_agent_is_accused_where_some_are_absent() -> None:
    found = judge(framed(framers=0, idle=1, seed=1, absent=0.2), 0.001, alike=True)
    assert [finding.verdict == "accused" for finding in found] == [True] + [False] * 9


def test_nobody_is_accused_where_the_rest_differs_among_themselves_too() -> None:
    """The operator says that all are alike, and the evidence says otherwise."""
    trail = framed(framers=0, idle=1, unlike=0.3)
    assert differ_among_themselves(trail, 0.001)
    found = [finding.verdict for finding in judge(trail, 0.001, alike=True)]
    assert found[0] in ("differs", "cleared")
    assert "accused" not in found
    assert (trail.proven.max(axis=0) >= limit(0.001)).any()


@pytest.mark.slow
def test_agents_that_are_alike_are_rarely_taken_to_differ_among_themselves() -> None:
    found = [differ_among_themselves(framed(framers=0, idle=1, seed=seed), 0.001) for seed in range(60)]
    assert sum(found) <= 8  # at most 3 are expected; more than 8 with a probability of 0.004


def test_an_idle_agent_is_accused_all_the_same() -> None:
    findings = judge(framed(framers=0, idle=1), 0.001, alike=True)
    assert findings[0].verdict == "accused"
    assert [finding.verdict == "accused" for finding in findings[1:]] == [False] * 9


@pytest.mark.slow
def test_honest_agents_are_accused_no_more_often_than_said() -> None:
    """at α = 0.1, to have the power to see it; 10 agents × 25 runs."""
    highest = np.concatenate([framed(0, 0, rounds=40, seed=seed).proven.max(axis=0) for seed in range(25)])
    assert (highest >= np.log(10)).mean() <= 0.1


def test_under_steady_pay_told_more_is_what_reports_tell_and_not_what_they_earn() -> None:
    """Zeros are close to the others, and earn most before they are held back; they tell nothing."""
    rng, everybody, rule = np.random.default_rng(0), np.ones(6, dtype=bool), SteadyPay(COST)
    played, state = list[PlayedRound](), rule.trust.init(6)
    for _ in range(30):
        reports = rng.normal(size=30) + rng.normal(size=(6, 30))
        reports[0] = 0.0
        trusted = rule.trust.reference(state, everybody)
        evidence = gather(reports, everybody, np.zeros(30), trusted)
        played.append(PlayedRound(rule, evidence, everybody, 8, trusted))
        state = rule.trust.learn(state, evidence, trusted, 8)
    idle, *others = judge(follow(played, 0.001), 0.001)
    assert idle.advantage < -1
    assert all(abs(finding.advantage) < 1 for finding in others)
    np.testing.assert_allclose(follow(played, 0.001).against[-1], rule.trust.suspicion(state))
