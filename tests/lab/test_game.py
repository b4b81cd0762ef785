"""The game: facts of the closed form, equilibria, ties, and all array libraries."""

import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import AffineCost, Cost, ExpressionCost, FlatPay, InformationPay, MinibatchGame, PowerCost, WitnessedPay
from guerdon.lab.game import RuleName, curve_of
from tests.support.libraries import Library, jax_once

COST = AffineCost(1, 1)
RULES: list[RuleName] = ["agreement", "known", "estimated", "information"]
every_rule = pytest.mark.parametrize("rule", RULES)


def paper_game(rule: RuleName = "known", **changes: Any) -> MinibatchGame:
    paper: dict[str, Any] = {"num_agents": 10, "request": 8, "cost": COST, "max_batch": 32, "rule": rule}
    return MinibatchGame(**paper | changes)


@pytest.mark.parametrize("rule", ["agreement", "known", "estimated"])
def test_figure_3(rule: RuleName) -> None:
    game = paper_game(rule)
    profiles = [[size, *[8] * 9] for size in (2, 4, 8, 16)]
    np.testing.assert_allclose([game.expected_reward(p)[0] for p in profiles], [-15, 1, 9, 13], atol=1e-12)
    np.testing.assert_allclose([game.utility(p)[0] for p in profiles], [-18, -4, 0, -4], atol=1e-12)


def test_figure_3_under_information_pay() -> None:
    """An agent's own noise is in the scale he is measured by: extremes cost less, the best response is the same."""
    utilities = paper_game("information").utilities(0, [8] * 10)
    np.testing.assert_allclose(utilities[[2, 4, 8, 16]], [-12.462, -3.273, 0, -3.789], atol=1e-3)


@every_rule
@given(request=st.integers(1, 40), agents=st.integers(3, 12), cost=st.sampled_from([COST, PowerCost(0.1, 2, 1)]))
def test_cooperation_is_an_equilibrium_that_pays_the_cost(
    rule: RuleName, request: int, agents: int, cost: Cost
) -> None:
    game = MinibatchGame(agents, request, cost, 2 * request, rule=rule)
    assert game.is_equilibrium([request] * agents)
    np.testing.assert_allclose(game.utility([request] * agents), 0, atol=1e-9 * cost(request))


@every_rule
def test_everybody_declining_is_an_equilibrium(rule: RuleName) -> None:
    assert paper_game(rule).is_equilibrium([0] * 10)


@pytest.mark.parametrize(("rule", "needed"), [("agreement", 2), ("known", 1)])
@given(sizes=st.lists(st.integers(0, 32), min_size=10, max_size=10))
def test_a_scale_from_elsewhere_makes_a_size_dominant(rule: RuleName, needed: int, sizes: list[int]) -> None:
    """Given that he takes part, ν is best whatever the others do; they matter only for whether to take part."""
    game = paper_game(rule)
    if sum(size > 0 for size in sizes[1:]) >= needed:
        assert int(np.argmax(game.utilities(0, sizes)[1:])) + 1 == 8
        assert game.best_response(0, sizes) in (0, 8)


def test_two_cannot_be_compared_under_agreement_and_are_paid_flat() -> None:
    """So one sample is best there: docs/explanation/agreement.md says so."""
    game = paper_game("agreement")
    assert game.best_response(0, [0, 0, 8, *[0] * 7]) == 1
    assert game.best_response(0, [0] * 10) == 0


@given(others=st.integers(1, 32), size=st.integers(1, 32))
def test_estimated_variance_looks_at_relative_work(others: int, size: int) -> None:
    """Others at s: E[R] = h(ν) + h'(ν)·ν·(1 − s/S); the best size above 0 is √(ν·s)."""
    game = paper_game("estimated")
    profile = [size, *[others] * 9]
    assert float(game.expected_reward(profile)[0]) == pytest.approx(9 + 8 * (1 - others / size), abs=1e-9)
    best = int(np.argmax(game.utilities(0, profile)[1:])) + 1
    assert abs(best - math.sqrt(8 * others)) <= 1
    # Against others who do more than was asked even that is a loss, and declining is better.
    assert (game.best_response(0, profile) == 0) == (others > 8)


def test_coordinated_shirking_pays_unless_the_variance_is_known() -> None:
    everybody_at_two = [2] * 10
    for rule in ("agreement", "estimated", "information"):
        assert paper_game(rule).expected_reward(everybody_at_two)[0] == pytest.approx(9)
    assert paper_game("known").expected_reward(everybody_at_two)[0] < -17


@given(
    sizes=st.lists(st.integers(0, 32), min_size=5, max_size=5),
    ratio=st.floats(0.1, 10),
    cost=st.sampled_from([COST, PowerCost(0.1, 2, 1)]),
)
def test_agreement_compares_with_the_others(sizes: list[int], ratio: float, cost: Cost) -> None:
    """E[R] = h(ν) + h'(ν)·ν²·σ²/V·(q − 1/S), one agent after the other; the extras add up to 0."""
    game = MinibatchGame(5, 8, cost, 32, ratio=ratio)
    rewards, working = game.expected_reward(sizes), [size for size in sizes if size]
    for k, size in enumerate(sizes):
        others = [1 / one for i, one in enumerate(sizes) if i != k and one]
        expected = 0.0
        if size and len(others) >= 2:
            expected = float(cost(8) + cost.slope(8) * 64 * ratio * (sum(others) / len(others) - 1 / size))
        elif size and others:
            expected = float(cost(8))  # two cannot be compared
        assert float(rewards[k]) == pytest.approx(expected, abs=1e-9)
    if len(working) >= 3:
        assert float(np.sum(rewards)) == pytest.approx(len(working) * float(cost(8)))


@given(st.lists(st.integers(1, 32), min_size=4, max_size=4))
def test_information_pay_measures_by_the_noise_of_all(sizes: list[int]) -> None:
    game = MinibatchGame(4, 8, COST, 32, rule="information")
    inverse = 1 / np.array(sizes)
    expected = 9 + 8 * (np.mean(inverse[1:]) - inverse[0]) / np.mean(inverse)
    assert float(game.expected_reward(sizes)[0]) == pytest.approx(expected)
    assert float(np.sum(game.expected_reward(sizes))) == pytest.approx(4 * 9)  # a fixed sum, however it is shared


def gain_by_hand(cost: Cost, request: int, largest: int, ratio: float) -> float:
    """Return what the best size above 0 earns beyond the request while the others use ν, from the definition."""
    stake = float(cost.slope(request)) * request**2 * ratio
    return max(stake * (1 / request - 1 / size) - float(cost(size) - cost(request)) for size in range(1, largest + 1))


@pytest.mark.parametrize("cost", [COST, AffineCost(30, 0.5), PowerCost(0.1, 2, 1), PowerCost(0.5, 1.5, 0.7)])
@pytest.mark.parametrize("asked", [1, 2, 8, 13])
def test_safe_ratios_are_where_the_request_is_a_best_response(cost: Cost, asked: int) -> None:
    low, high = MinibatchGame(6, asked, cost, 20).safe_ratios()
    assert 0 <= low < 1 < high
    grid = np.geomspace(0.2, 4, 400)
    safe = np.array([gain_by_hand(cost, asked, 20, ratio) <= 1e-9 for ratio in grid])
    np.testing.assert_array_equal(safe, (grid >= low) & (grid <= high))
    for ratio, best in ((low * 0.999, False), (low * 1.001, True), (high * 0.999, True), (high * 1.001, False)):
        if ratio > 0:
            game = MinibatchGame(6, asked, cost, 20, ratio=ratio)
            assert (game.best_response(0, [asked] * 6) == asked) == best
            assert game.is_equilibrium([asked] * 6) == best


def test_safe_ratios_of_an_affine_cost_are_one_sample_wide() -> None:
    for asked in (2, 8, 31):
        assert paper_game("agreement", request=asked).safe_ratios() == pytest.approx((1 - 1 / asked, 1 + 1 / asked))
    low, high = paper_game("agreement", cost=PowerCost(0.1, 2, 1)).safe_ratios()
    assert low < 1 - 1 / 8
    assert high > 1 + 1 / 8
    assert paper_game("agreement", request=1).safe_ratios()[0] == 0
    assert paper_game("agreement", request=32).safe_ratios()[1] == math.inf


@pytest.mark.parametrize("cost", [COST, AffineCost(30, 0.5), PowerCost(0.1, 2, 1), PowerCost(0.5, 1.5, 0.7)])
@pytest.mark.parametrize("ratio", [0.25, 0.5, 0.9, 1.0, 1.1, 1.5, 3.0])
def test_the_largest_gain_is_that_of_the_best_size(cost: Cost, ratio: float) -> None:
    game = MinibatchGame(6, 8, cost, 32, ratio=ratio)
    # Who declines saves a cost that is paid: nothing is gained.
    assert game.largest_gain() == pytest.approx(gain_by_hand(cost, 8, 32, ratio), abs=1e-9)
    low, high = game.safe_ratios()
    assert (game.largest_gain() <= 1e-9) == (low <= ratio <= high)
    # The bound of docs/explanation/agreement.md, which is reached where any size can be used.
    assert game.largest_gain() <= float(cost.slope(8)) * 8 * (math.sqrt(ratio) - 1) ** 2 + 1e-9


def test_best_response_paths() -> None:
    assert [p[0] for p in paper_game("estimated").best_response_path([1] * 10)] == [1, 3, 5, 6, 7, 8]
    assert [p[0] for p in paper_game("information").best_response_path([1] * 10)] == [1, 3, 5, 6, 7, 8]
    # Agreement has a dominant size. Against others who do more than was asked it is a loss.
    assert [p[0] for p in paper_game("agreement").best_response_path([1] * 10)] == [1, 8]
    assert [p[0] for p in paper_game("agreement").best_response_path([9] * 10)] == [9, 0]
    # Where all others hardly work, a known variance makes taking part a loss: nobody does.
    assert [p[0] for p in paper_game("known").best_response_path([1] * 10)] == [1, 0]
    assert [p[0] for p in paper_game("known").best_response_path([6] * 10)] == [6, 0]
    assert [p[0] for p in paper_game("known").best_response_path([9] * 10)] == [9, 8]


def test_a_path_that_goes_in_circles_ends() -> None:
    game = MinibatchGame(2, 8, COST, 32, rule="known")
    path = game.best_response_path([8, 0])
    assert path == [(8, 0), (0, 8)]
    assert not game.is_equilibrium(path[-1])


def test_a_path_can_be_cut_short() -> None:
    assert len(paper_game("estimated").best_response_path([1] * 10, max_steps=2)) == 3


def test_symmetric_equilibria() -> None:
    assert paper_game("known").symmetric_equilibria() == [0, 8]
    assert paper_game("agreement").symmetric_equilibria() == [0, 8]
    assert paper_game("information").symmetric_equilibria() == [0, 8]
    # Under the estimated rule, against 7 the sizes 7 and 8 are exactly equally good.
    assert paper_game("estimated").symmetric_equilibria() == [0, 7, 8]


@every_rule
def test_symmetric_equilibria_are_those_found_by_brute_force(rule: RuleName) -> None:
    game = MinibatchGame(4, 5, PowerCost(0.3, 1.5, 0.7), 12, rule=rule)
    found: list[int] = []
    for s in range(13):
        base = float(game.utility([s] * 4)[0])
        if all(float(game.utility([d, s, s, s])[0]) <= base + 1e-9 for d in range(13)):
            found.append(s)
    assert game.symmetric_equilibria() == found


@every_rule
@settings(max_examples=40)
@given(sizes=st.lists(st.integers(0, 6), min_size=3, max_size=3))
def test_equilibrium_means_no_agent_gains(rule: RuleName, sizes: list[int]) -> None:
    game = MinibatchGame(3, 4, COST, 6, rule=rule)
    gain = max(
        float(game.utility([*sizes[:k], d, *sizes[k + 1 :]])[k] - game.utility(sizes)[k])
        for k in range(3)
        for d in range(7)
    )
    assert game.is_equilibrium(sizes) == (gain <= 1e-9)


def test_ties_go_to_the_size_nearest_the_request() -> None:
    # At cooperation declining earns 0 and so does working: the agent works.
    assert paper_game().best_response(3, [8] * 10) == 8
    # Against 7 under the estimated rule 7 and 8 earn the same: 8 was asked for.
    game = paper_game("estimated")
    assert np.ptp(game.utilities(0, [7] * 10)[7:9]) == pytest.approx(0, abs=1e-12)
    assert game.best_response(0, [7] * 10) == 8
    # Against 3 the sizes 4, 5 and 6 earn 6, 6.2 and 6: with a rough tolerance they count as equal.
    assert game.best_response(0, [3] * 10) == 5
    assert paper_game("estimated", tolerance=0.03).best_response(0, [3] * 10) == 6


def test_rounding_does_not_decide() -> None:
    nearly = ExpressionCost("1 + s + 0.000000000000001 * s")
    assert paper_game(cost=nearly).best_response(0, [8] * 10) == 8
    assert paper_game(cost=nearly).is_equilibrium([8] * 10)


def test_a_participant_without_enough_others_is_paid_nothing() -> None:
    least_others: dict[RuleName, int] = {"known": 1, "agreement": 1, "estimated": 2, "information": 2}
    for rule, needed in least_others.items():
        for others in range(3):
            sizes = [8] + [8] * others + [0] * (9 - others)
            reward = float(paper_game(rule).expected_reward(sizes)[0])
            assert (reward == 0) == (others < needed)


def test_the_literal_crowd_underpays_when_somebody_is_absent() -> None:
    sizes = [8] * 5 + [0] * 5
    present = paper_game().expected_reward(sizes)[0]
    assert present == pytest.approx(9)
    enrolled = paper_game(crowd="enrolled").expected_reward(sizes)[0]
    assert present - enrolled == pytest.approx(8 * (5 / 4 - 10 / 9))
    assert paper_game(crowd="enrolled").expected_reward([8] * 10)[0] == pytest.approx(9)


@pytest.mark.parametrize("rule", ["known", "estimated", "information"])
def test_the_literal_crowd_matters_under_every_rule_with_a_constant(rule: RuleName) -> None:
    sizes = [8] * 5 + [0] * 5
    present, enrolled = (paper_game(rule, crowd=crowd).expected_reward(sizes)[0] for crowd in ("present", "enrolled"))
    assert present - enrolled == pytest.approx(8 * (5 / 4 - 10 / 9))


def test_the_crowd_does_not_matter_where_pairs_are_compared() -> None:
    sizes = [8] * 5 + [0] * 5
    for crowd in ("present", "enrolled"):
        assert paper_game("agreement", crowd=crowd).expected_reward(sizes)[0] == pytest.approx(9)


def test_the_request_may_be_the_largest_batch() -> None:
    assert paper_game(max_batch=8).symmetric_equilibria() == [0, 8]


def test_a_large_fixed_cost_blurs_nothing() -> None:
    assert paper_game(cost=AffineCost(1e6, 1)).symmetric_equilibria() == [0, 8]


def test_few_dimensions_underpay() -> None:
    assert float(paper_game("estimated", dimension=10).expected_reward([8] * 10)[0]) < 9
    assert float(paper_game("estimated", dimension=1e9).expected_reward([8] * 10)[0]) == pytest.approx(9)
    assert paper_game("estimated", num_agents=3, dimension=2).expected_reward([8] * 3)[0] == -math.inf


@every_rule
@jax_once
def test_array_libraries_agree(rule: RuleName, library: Library) -> None:
    game = paper_game(rule)
    sizes = [0, 3, 8, 8, 5, 16, 1, 8, 0, 32]
    with library.precision():
        profile = library.array(sizes)
        for function in (game.expected_reward, game.utility, lambda p: game.utilities(2, p)):
            np.testing.assert_allclose(
                np.asarray(function(profile)),
                function(sizes),
                rtol=20 * library.tolerance,
                atol=200 * library.tolerance,
            )
        assert [game.best_response(k, profile) for k in range(10)] == [game.best_response(k, sizes) for k in range(10)]
        assert game.is_equilibrium(library.array([8] * 10))
        assert game.is_equilibrium(library.module.asarray(np.array([8] * 10)))
        assert not game.is_equilibrium(profile)


@every_rule
def test_best_responses_under_jit_and_vmap(rule: RuleName) -> None:
    game = paper_game(rule)
    profiles = np.random.default_rng(0).integers(0, 33, (20, 10))
    agents = np.arange(20) % 10
    mapped = jax.jit(jax.vmap(game.best_response))(agents, profiles)
    assert mapped.tolist() == [game.best_response(k, profile) for k, profile in zip(agents, profiles, strict=True)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_agents": 0}, "`num_agents` must be a positive integer, got 0"),
        ({"request": -1}, "`request` must be a positive integer, got -1"),
        ({"max_batch": 4}, r"`request` must be at most `max_batch` \(4\), got 8"),
        ({"rule": "guess"}, "`rule` must be one of 'agreement', 'known', 'estimated', 'information', got 'guess'"),
        ({"crowd": "all"}, "`crowd` must be one of 'present', 'enrolled', got 'all'"),
        ({"dimension": 0}, "`dimension` must be a finite number of at least 1, got 0"),
        ({"rule": "balanced"}, "`rule` must be one of .*, got 'balanced'"),
        ({"rule": "information", "dimension": 3}, '`dimension` must be left out under the rule "information", got 3'),
        ({"ratio": 0}, "`ratio` must be a finite number above 0, got 0"),
        ({"ratio": 1e300}, r"`ratio` must be at most 1e\+09, got 1e\+300"),
        ({"tolerance": -1}, "`tolerance` must be a finite number of at least 0, got -1"),
        ({"cost": ExpressionCost("9 - s")}, "`cost` must increase strictly"),
    ],
)
def test_parameters_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        paper_game(**changes)


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ([8] * 9, ValueError, r"`sizes` must have one batch size per agent \(10\), got shape \(9,\)"),
        ([8] * 9 + [33], ValueError, r"`sizes` must be whole numbers from 0 to `max_batch` \(32\)"),
        ([8] * 9 + [-1], ValueError, "`sizes` must be whole numbers from 0"),
        ([8] * 9 + [2.5], ValueError, "`sizes` must be whole numbers from 0"),
        ([8] * 9 + [math.nan], ValueError, "`sizes` must be whole numbers from 0"),
        ([True] * 10, TypeError, "`sizes` must be whole numbers, got dtype bool"),
    ],
)
def test_profiles_are_checked(sizes: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        paper_game().utility(sizes)


@pytest.mark.parametrize("agent", [-1, 10, 1.5])
def test_the_agent_is_checked(agent: int) -> None:
    with pytest.raises(ValueError, match="`agent` must be a whole number from 0 to 9, got"):
        paper_game().best_response(agent, [8] * 10)


def test_a_rule_with_a_curve_of_its_own_is_played_like_any_other() -> None:
    cost = AffineCost(1, 1)
    flat = MinibatchGame(10, 8, cost, 32, rule="flat", curve=curve_of(FlatPay(cost)))
    assert flat.expected_reward([0, 1, 8, 32, 8, 8, 8, 8, 8, 8]).tolist() == [0, *[9] * 9]
    assert flat.best_response(0, [8] * 10) == 1
    assert flat.symmetric_equilibria() == [1]
    witnessed = MinibatchGame(10, 8, cost, 32, rule="witnessed", curve=curve_of(WitnessedPay(cost, 64)))
    assert witnessed.best_response(0, [2] * 10) == 8
    assert witnessed.expected_reward([8] * 10).tolist() == pytest.approx([9] * 10)
    assert curve_of(InformationPay(cost)) is None
