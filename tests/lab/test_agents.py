"""What each agent does: how many samples he uses, and what he sends. `tests/contracts` has what all promise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon import AffineCost, MinibatchGame, PowerCost
from guerdon.costs import Cost
from guerdon.lab.agents import (
    Agent,
    Cooperative,
    Declining,
    Fixed,
    Learning,
    Portion,
    Reporting,
    View,
    best_responding,
    echo,
    garbage,
    learning,
    noisy_echo,
    scale,
    shrink,
    sign_flip,
    zero,
)
from guerdon.lab.game import RuleName
from guerdon.lab.simulation.players import Players, by_kind, choose, sort_by_kind
from tests.support.means import mean

SURE = 4.0
COST = AffineCost(1, 1)
KEY = jax.random.key(0)
KEYS = jax.random.split(KEY, 20_000)

MODEL = jnp.asarray([4.0, -2.0, 1.0, 0.0, 8.0])
AGGREGATE = jnp.asarray([1.0, 3.0, -2.0, 0.5, -4.0])
GRADIENT = jnp.asarray([2.0, -1.0, 0.25, 7.0, 0.0])
PREDICTION = jnp.asarray([0.5, 2.5, -1.0, 0.0, -3.0])


def view(request: int = 8, turn: int = 3, memory: Any = ()) -> View:
    """Return what an agent knows after a step along `AGGREGATE`."""
    public = MODEL, AGGREGATE, MODEL, PREDICTION
    return View(jnp.asarray(turn), jnp.asarray(request), *public, jnp.float32(50), memory)


def chosen(agent: Agent, request: int) -> int:
    return int(agent.choose(view(request), KEY))


def sent(agent: Agent) -> Any:
    return np.asarray(agent.report(view(), GRADIENT, KEY))


# Compiled once for each kind of agent.
choices: Any = jax.jit(jax.vmap(lambda agent, known, key: agent.choose(known, key), in_axes=(None, None, 0)))
reports: Any = jax.jit(jax.vmap(lambda agent, known, key: agent.report(known, GRADIENT, key), in_axes=(None, None, 0)))


def many_sent(agent: Agent) -> Any:
    """Return what an agent sends with each of many keys."""
    return np.asarray(reports(agent, view(), KEYS), dtype=np.float64)


# What they choose.


def test_cooperative_does_what_is_asked() -> None:
    assert [chosen(Cooperative(), request) for request in (1, 8, 16)] == [1, 8, 16]
    np.testing.assert_array_equal(sent(Cooperative()), GRADIENT)


def test_fixed_does_the_same_whatever_is_asked() -> None:
    assert [chosen(Fixed(3), request) for request in (1, 8, 16)] == [3, 3, 3]
    assert chosen(Fixed(0), 8) == 0
    np.testing.assert_array_equal(sent(Fixed(3)), GRADIENT)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, [0, 0, 0]), (0.5, [0, 4, 8]), (1.0, [1, 8, 16]), (2.0, [2, 16, 32])]
)
def test_portion_does_a_share_of_what_is_asked(share: float, expected: list[int]) -> None:
    assert [chosen(Portion(share), request) for request in (1, 8, 16)] == expected


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.75, 1.0])
def test_declining_declines_as_often_as_he_says(probability: float) -> None:
    sizes = np.asarray(choices(Declining(probability), view(5), KEYS))
    assert set(np.unique(sizes)) <= {0, 5}
    measured = mean(sizes == 0)
    if probability in (0.0, 1.0):
        assert measured.value == probability
    else:
        assert abs(measured.z(probability)) < SURE
        assert measured.error < 0.005


@pytest.mark.parametrize("rule", ["agreement", "known", "estimated", "information"])
@pytest.mark.parametrize("cost", [COST, PowerCost(0.5, 2, 1), AffineCost(30, 1)])
@pytest.mark.parametrize("others", [None, 2])
def test_best_responding_plays_the_best_response_of_the_game(rule: RuleName, cost: Cost, others: int | None) -> None:
    agent = best_responding(cost, num_agents=5, max_batch=8, rule=rule, others=others)
    for request in range(1, 9):
        game = MinibatchGame(5, request, cost, 8, rule=rule)
        profile = [others or request] * 5
        utilities = game.utilities(0, profile)
        assert chosen(agent, request) == game.best_response(0, profile)
        assert utilities[chosen(agent, request)] == pytest.approx(utilities.max(), abs=1e-9)


def test_best_responding_follows_the_request_where_the_variance_is_known() -> None:
    agent = best_responding(COST, num_agents=10, max_batch=16)
    assert [chosen(agent, request) for request in range(1, 17)] == list(range(1, 17))


def play_bandit(agent: Learning, profits: dict[int, float], rounds: int) -> list[int]:
    """Return the sizes that a learning agent uses when each always earns the same."""
    memory, sizes = agent.init(), list[int]()
    for t in range(rounds):
        known = view(turn=t, memory=memory)
        size = choices(agent, known, KEYS[t : t + 1])[0]
        reward = profits[int(size)] + COST(int(size))
        memory = agent.learn(known, size, jnp.float32(reward))
        sizes.append(int(size))
    np.testing.assert_array_equal(memory[0], [sizes.count(int(size)) for size in agent.sizes])
    np.testing.assert_allclose(memory[1], memory[0] * jnp.asarray([profits[int(s)] for s in agent.sizes]), rtol=1e-5)
    return sizes


def test_learning_tries_everything_once_then_does_what_paid() -> None:
    agent = learning((0, 4, 8, 16), COST, exploration=0.0)
    sizes = play_bandit(agent, {0: 0.0, 4: -4.0, 8: 2.0, 16: -4.0}, 12)
    assert sorted(sizes[:4]) == [0, 4, 8, 16]
    assert sizes[4:] == [8] * 8


def test_learning_tries_in_random_order() -> None:
    agent = learning((0, 4, 8, 16), COST)
    first = np.asarray(choices(agent, view(turn=0, memory=agent.init()), KEYS))
    for size in (0, 4, 8, 16):
        assert abs(mean(first == size).z(0.25)) < SURE


def test_learning_explores_what_was_little_tried() -> None:
    """With a bonus, the second best is tried again and again, but seldom."""
    sizes = play_bandit(learning((4, 8), COST, exploration=2.0), {4: -1.0, 8: 0.0}, 120)
    assert 5 < sizes.count(4) < 40
    assert sizes[60:].count(4) > 0


def test_learning_learns_only_about_what_he_used() -> None:
    agent = learning((4, 8), COST)
    tries, profits = agent.learn(view(memory=agent.init()), jnp.asarray(8), jnp.float32(11.0))
    np.testing.assert_array_equal(tries, [0, 1])
    np.testing.assert_array_equal(profits, [0, 2])  # paid 11 for work that cost 9


@pytest.mark.parametrize("sizes", [(), (-1, 4), (2.5,), (True, 4)])
def test_learning_refuses_sizes_that_do_not_exist(sizes: Any) -> None:
    with pytest.raises(ValueError, match="`sizes` must be whole numbers of at least 0, at least one, got"):
        learning(sizes, COST)


def test_learning_refuses_a_negative_bonus() -> None:
    with pytest.raises(ValueError, match="`exploration` must be a finite number of at least 0, got -1"):
        learning((4, 8), COST, exploration=-1)


# What they send.

IDLE: dict[str, Agent] = {"zero": zero(), "echo": echo(), "noisy-echo": noisy_echo(), "garbage": garbage()}
WORKING: dict[str, Agent] = {"shrink": shrink(), "scale": scale(), "sign-flip": sign_flip()}


@pytest.mark.parametrize("agent", IDLE.values(), ids=IDLE)
def test_who_makes_it_up_uses_no_samples_and_sends_all_the_same(agent: Agent) -> None:
    assert chosen(agent, 8) == 0
    assert agent.fabricates


@pytest.mark.parametrize("agent", WORKING.values(), ids=WORKING)
def test_who_distorts_his_gradient_works_as_asked(agent: Agent) -> None:
    assert [chosen(agent, request) for request in (1, 8)] == [1, 8]
    assert not agent.fabricates


@pytest.mark.parametrize("factory", [shrink, scale])
def test_who_distorts_may_work_as_he_likes(factory: Any) -> None:
    assert chosen(factory(0.5, Fixed(3)), 8) == 3
    assert chosen(sign_flip(Fixed(2)), 8) == 2


def test_a_distorting_learner_learns() -> None:
    agent = shrink(0.5, chooser=learning((4, 8), COST))
    tries, profits = agent.learn(view(memory=agent.init()), jnp.asarray(8), jnp.float32(11.0))
    assert (tries.tolist(), profits.tolist()) == ([0, 1], [0, 2])
    assert int(agent.choose(view(memory=(tries, profits)), KEY)) == 4  # the one not tried yet


def test_zero_sends_zeros() -> None:
    np.testing.assert_array_equal(sent(zero()), np.zeros(5))


def test_echo_sends_the_last_aggregate_exactly() -> None:
    np.testing.assert_array_equal(sent(echo()), AGGREGATE)


def test_echo_has_nothing_to_echo_in_the_first_round() -> None:
    first = view()._replace(aggregate=jnp.zeros(5))
    np.testing.assert_array_equal(echo().report(first, GRADIENT, KEY), np.zeros(5))


@pytest.mark.parametrize("strength", [1.0, 0.25])
def test_noisy_echo_has_the_variance_of_honest_work(strength: float) -> None:
    draws = many_sent(noisy_echo(strength))  # with σ² = 50 and ν = 8
    lengths = mean(np.sum((draws - np.asarray(AGGREGATE)) ** 2, axis=1))
    assert abs(lengths.z(strength * 50.0 / 8)) < SURE
    assert lengths.error < 0.01 * strength * 50.0 / 8
    for component in range(5):
        assert abs(mean(draws[:, component]).z(float(AGGREGATE[component]))) < SURE


@pytest.mark.parametrize(
    ("agent", "factor"),
    [(shrink(), 0.5), (shrink(0.1), 0.1), (shrink(0), 0.0), (scale(), 2.0), (scale(3.5), 3.5), (sign_flip(), -1.0)],
)
def test_a_multiple_of_the_gradient(agent: Agent, factor: float) -> None:
    np.testing.assert_array_equal(sent(agent), np.float32(factor) * np.asarray(GRADIENT))


@pytest.mark.parametrize("size", [1e3, 2.0])
def test_garbage_is_as_large_as_it_says(size: float) -> None:
    draws = many_sent(garbage(size)).ravel() / size
    assert abs(mean(draws).z(0.0)) < SURE
    assert abs(mean(draws**2).z(1.0)) < SURE
    assert mean(draws**2).error < 0.01


def test_a_mixture_of_everything() -> None:
    """gradient·X + echo·(last aggregate) + noise of variance honest_noise·σ²/ν + noise²·d."""
    draws = many_sent(Reporting(Portion(1.0), 0.5, -2.0, 0.4, 3.0))
    centre = 0.5 * np.asarray(GRADIENT) - 2 * np.asarray(AGGREGATE)
    expected = 0.4 * 50 / 8 + 9 * 5
    lengths = mean(np.sum((draws - centre) ** 2, axis=1))
    assert abs(lengths.z(expected)) < SURE
    assert lengths.error < 0.01 * expected


@pytest.mark.parametrize(
    ("factory", "number", "message"),
    [
        (shrink, -0.5, "`factor` must be a finite number of at least 0, got -0.5"),
        (shrink, 1.5, "`factor` must be at most 1, got 1.5; `scale` makes a gradient longer"),
        (scale, -1.0, "`factor` must be a finite number of at least 0, got -1"),
        (scale, float("inf"), "`factor` must be a finite number of at least 0, got inf"),
        (noisy_echo, -1.0, "`strength` must be a finite number of at least 0, got -1"),
        (garbage, -1.0, "`size` must be a finite number of at least 0, got -1"),
        (garbage, float("nan"), "`size` must be a finite number of at least 0, got nan"),
    ],
)
def test_bad_numbers_are_refused(factory: Any, number: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        factory(number)


# What the server predicts is public too, and samples can be shared.


def test_the_prediction_can_be_sent_and_mixed_in() -> None:
    alone = Reporting(Portion(0.0), gradient=0.0, prediction=1.0, fabricates=True)
    np.testing.assert_array_equal(sent(alone), PREDICTION)
    assert chosen(alone, 8) == 0
    mixed = Reporting(Cooperative(), gradient=0.5, prediction=0.5)
    np.testing.assert_allclose(sent(mixed), 0.5 * GRADIENT + 0.5 * PREDICTION)
    assert chosen(mixed, 8) == 8
    np.testing.assert_array_equal(sent(Reporting(Cooperative())), GRADIENT)


def test_nobody_follows_anybody_unless_he_says_so() -> None:
    assert all(agent.leader == -1 for agent in (Cooperative(), Fixed(3), Reporting(Cooperative()), zero(), garbage()))
    assert Reporting(Cooperative(), leader=2).leader == 2


def test_choices_say_whose_samples_are_drawn() -> None:
    agents = [Cooperative(), Reporting(Cooperative(), leader=0), Fixed(4), Reporting(Cooperative(), leader=2), zero()]
    players = Players(*sort_by_kind(agents))
    memories = tuple(by_kind(players, lambda agent, *_: agent.init(), players.kinds, jnp.arange(5)))
    chosen_by_all = choose(players, view(), memories, KEYS[:5])
    assert chosen_by_all.leaders.tolist() == [0, 0, 2, 2, 4]
    assert chosen_by_all.sizes.tolist() == [8, 8, 4, 8, 0]
    assert chosen_by_all.fabricates.tolist() == [False, False, False, False, True]
    assert players.number == 5
