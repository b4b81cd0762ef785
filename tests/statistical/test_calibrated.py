"""Calibrated agreement: honest pay is the cost however noisy an agent's data are, and less work after it loses."""

from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, CalibratedAgreement, OutputAgreement, Status, gather, round_of
from guerdon.lab.arena.balanced import BalancedVariance

COST, NU, DIM = AffineCost(1, 1), 16, 40
RULE = CalibratedAgreement(COST, calibration=60)
DIFFERENT = np.array([0.6, 0.75, 0.9, 1.0, 1.0, 1.1, 1.25, 1.4])
ALIKE = np.ones(8)


def played(rng: np.random.Generator, levels: Any, share: Any) -> Any:
    """Return a round of gradients with noise of these levels, of agents that do a share of the work."""
    noise = rng.normal(size=(len(levels), DIM)) * np.sqrt(levels / share / NU)[:, None]
    everybody = np.ones(len(levels), dtype=bool)
    return round_of(gather(3.0 + noise, everybody), everybody, NU)


def calibrated(levels: Any, seed: int, share: Any = 1.0) -> Any:
    """Return the state after the calibration."""
    rng, state = np.random.default_rng([seed, 0]), RULE.init(len(levels))
    for _ in range(RULE.calibration):
        payments, state = RULE.pay(state, played(rng, levels, share))
        assert (payments.released == COST(NU)).all()
    return state


def profits(levels: Any, share: Any = 1.0, before: Any = 1.0, rule: Any = RULE, runs: int = 6) -> Any:
    """Return each agent's pay less its cost (runs × rounds, agents) after a calibration with shares `before`."""
    found: list[Any] = []
    worked = share * np.ones(len(levels))
    for seed in range(runs):
        state = calibrated(levels, seed, before) if rule is RULE else rule.init(len(levels))
        rng = np.random.default_rng([seed, 1])
        for _ in range(60):
            payments, state = rule.pay(state, played(rng, levels, worked))
            found.append(payments.released - COST(NU * worked))
    return np.array(found)


def first(share: float) -> Any:
    return np.where(np.arange(8) == 0, share, 1.0)


def test_honest_pay_is_within_a_tenth_of_the_cost_where_data_are_not_equally_noisy() -> None:
    ours, agreement = (profits(DIFFERENT, rule=rule).mean(axis=0) for rule in (RULE, OutputAgreement(COST)))
    assert np.abs(ours).max() < 0.1 * COST(NU)
    assert np.abs(agreement).max() > 0.3 * COST(NU)  # which is why the rule is there


@pytest.mark.parametrize("levels", [ALIKE, DIFFERENT])
@pytest.mark.parametrize("share", [0.5, 2.0])
def test_other_work_after_the_calibration_loses(levels: Any, share: float) -> None:
    """Also for the agent with the quietest data: its slope is its own. Theory: −h'ν/2 for half and for double."""
    found = profits(levels, first(share))[:, 0]
    error = found.std() / len(found) ** 0.5
    assert error < 1.0
    assert found.mean() + 3 * error < -0.15 * COST(NU)


@pytest.mark.slow
def test_less_work_from_the_first_day_loses_where_all_are_alike_and_not_where_they_differ() -> None:
    """The second is what no rule can tell: docs say so."""
    alike = profits(ALIKE, first(0.5), before=first(0.5))[:, 0]
    assert alike.mean() + 3 * alike.std() / len(alike) ** 0.5 < -0.1 * COST(NU)
    different = profits(DIFFERENT, first(0.5), before=first(0.5))[:, 0]
    assert different.mean() - 3 * different.std() / len(different) ** 0.5 > 0


def test_where_all_are_alike_it_is_output_agreement() -> None:
    state = calibrated(ALIKE, seed=0)._replace(total=np.full(8, 54.0), count=np.full(8, 54.0), squares=np.full(8, 55.0))
    found = played(np.random.default_rng(2), ALIKE, 1.0)
    balanced = OutputAgreement(COST, BalancedVariance())
    expected = balanced.pay(balanced.init(8), found)[0].released
    np.testing.assert_allclose(RULE.pay(state, found)[0].released, expected, rtol=1e-12)


def test_a_level_does_not_follow_what_an_agent_does_after_its_calibration() -> None:
    state = calibrated(DIFFERENT, seed=1)
    rng, after = np.random.default_rng(3), state
    for _ in range(50):
        _, after = RULE.pay(after, played(rng, DIFFERENT, first(0.25)))
    assert (RULE.levels(state) == RULE.levels(after)).all()


def test_a_newcomer_is_calibrated_while_the_others_are_paid() -> None:
    state = calibrated(DIFFERENT, seed=2)._replace()
    state = type(state)(*(np.where(np.arange(8) == 7, 0.0, part) for part in state))
    payments, after = RULE.pay(state, played(np.random.default_rng(4), DIFFERENT, 1.0))
    assert payments.released[7] == COST(NU)
    assert np.isnan(payments.squared_distance).tolist() == [False] * 7 + [True]
    assert after.rounds[7] == 1
    assert RULE.levels(after)[7] == 1


def test_too_few_are_paid_flat_in_their_calibration_and_nothing_after_it() -> None:
    everybody, rng = np.array([True, True, False]), np.random.default_rng(5)
    found = round_of(gather(rng.normal(size=(3, DIM)), everybody), everybody, NU)
    payments, state = RULE.pay(RULE.init(3), found)
    assert payments.released.tolist() == [COST(NU)] * 2 + [0.0]
    assert not state.rounds.any()  # such a round teaches nothing, and does not count
    done = state._replace(rounds=np.full(3, 60.0))
    assert RULE.pay(done, found)[0].status.tolist() == [Status.TOO_FEW] * 2 + [Status.DECLINED]


def test_an_agent_that_is_loud_now_and_then_does_not_hide_how_the_others_differ() -> None:
    """Five times the noise in every third round: the levels of the others stay what they are without that."""

    def levels(loud: float) -> Any:
        rng, state = np.random.default_rng(7), RULE.init(8)
        for number in range(RULE.calibration):
            share = np.where((np.arange(8) == 3) & (number % 3 == 0), loud**-2, 1.0)
            _, state = RULE.pay(state, played(rng, DIFFERENT, share))
        return RULE.levels(state)

    others = np.arange(8) != 3
    without, found = levels(1.0)[others], levels(5.0)[others]
    assert np.abs(found - without).max() < 0.12
    assert np.ptp(found) > 0.5


@pytest.mark.parametrize("loud", [1, 2])
def test_loud_agents_in_the_calibration_do_not_move_the_levels_of_others(loud: int) -> None:
    """Ten times the noise; levels stay within 0.15 of those without, and half the work afterwards loses."""
    noisy = np.where(np.arange(8) < loud, 100.0, 1.0)
    quiet, after = RULE.levels(calibrated(ALIKE, seed=4)), RULE.levels(calibrated(noisy, seed=4))
    assert np.abs(after - quiet)[loud:].max() < 0.15
    assert after[0] < 1.3  # it is not believed
    state = calibrated(noisy, seed=4)
    rng, paid = np.random.default_rng(6), list[Any]()
    for _ in range(200):
        payments, state = RULE.pay(state, played(rng, ALIKE, first(0.5)))
        paid.append(payments.released[0] - COST(NU / 2))
    assert np.mean(paid) + 3 * np.std(paid) / 200**0.5 < 0
