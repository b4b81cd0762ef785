"""The simulator: the same numbers as the slow reference, the same for the same seed, and what the theory says."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon import AffineCost, FlatPay, InformationPay, OutputAgreement, PowerCost
from guerdon.lab.agents import Cooperative, Declining, Fixed, best_responding, learning, scale
from guerdon.lab.problems import linear_regression
from guerdon.lab.problems.linear_regression import expected_errors
from guerdon.lab.simulation import History, engine, simulate
from guerdon.lab.simulation.training import repetition_key, round_keys
from guerdon.requests import FixedRequest, ScheduledRequest
from tests.lab.simulation.setting import (
    AGENTS,
    ALONE,
    CHANGING,
    COST,
    DIM,
    DISTANCE,
    HALF,
    LARGEST,
    MIXED,
    NU,
    REPETITIONS,
    ROUNDS,
    RULES,
    STEP,
    STEPS,
    compilations,
    cooperation,
    mixture,
    train,
)
from tests.support.means import Mean, mean
from tests.support.training_oracle import minibatches, reference

SURE = 4.0  # standard errors; with some hundred means tested here a false alarm has a chance below 1 in 100


def arrays(history: History) -> dict[str, Any]:
    """Return everything in a history by name."""
    names = ("request", "step", "batch_sizes", "participating", "costs", "active")
    return {name: getattr(history, name) for name in names} | dict(history.rewards) | dict(history.metrics)


def assert_same(left: History, right: History) -> None:
    """Bit for bit."""
    one, other = arrays(left), arrays(right)
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


# The shapes and meaning of what comes back.


def test_history_has_everything_that_happened() -> None:
    history = mixture()
    for array in (history.request, history.step, history.active):
        assert array.shape == (REPETITIONS, ROUNDS)
    for array in (history.batch_sizes, history.participating, history.costs, *history.rewards.values()):
        assert array.shape == (REPETITIONS, ROUNDS, AGENTS)
    assert list(history.rewards) == list(RULES)
    assert history.metrics["error"].shape == (REPETITIONS, ROUNDS + 1)
    assert history.active.all()
    assert (history.rounds_played == ROUNDS).all()
    assert not history.interrupted
    assert not history.diverged.any()
    assert all(np.isfinite(array).all() for array in arrays(history).values())
    assert all(isinstance(array, np.ndarray) for array in arrays(history).values())


def test_requests_steps_and_sizes_are_recorded() -> None:
    history = mixture()
    np.testing.assert_array_equal(history.request, np.broadcast_to(CHANGING, (REPETITIONS, ROUNDS)))
    np.testing.assert_allclose(history.step, np.broadcast_to(STEPS, (REPETITIONS, ROUNDS)), rtol=1e-6)
    np.testing.assert_array_equal(history.batch_sizes, np.broadcast_to(MIXED, (REPETITIONS, ROUNDS, AGENTS)))
    np.testing.assert_array_equal(history.participating, history.batch_sizes > 0)
    np.testing.assert_array_equal(history.costs, np.where(history.batch_sizes > 0, 1.0 + history.batch_sizes, 0.0))


def test_who_declines_is_paid_nothing() -> None:
    for reward in mixture().rewards.values():
        assert (reward[:, :, MIXED.index(0)] == 0).all()
        assert (reward[:, :, 0] != 0).all()


def test_metrics_begin_before_training() -> None:
    history = mixture()
    np.testing.assert_allclose(history.metrics["error"][:, 0], DISTANCE, rtol=1e-5)
    still = STEPS.index(0.0)  # a step of 0: the model stays
    np.testing.assert_array_equal(history.metrics["error"][:, still], history.metrics["error"][:, still + 1])


def test_sizes_are_kept_within_what_the_problem_can_draw() -> None:
    """A batch size beyond `max_batch` is cut to it, one below 0 declines."""
    history = train((1000, -5, 8, 8, 8, 8))
    assert (history.batch_sizes[..., 0] == LARGEST).all()
    assert (history.batch_sizes[..., 1] == 0).all()
    assert not history.participating[..., 1].any()


def test_a_rule_beside_others_is_paid_as_it_is_alone() -> None:
    """It gives a notice of its own: agreement cuts distances by its own scale, flat pay beside it cuts none."""
    agents = [Cooperative()] * 4 + [scale(50.0)]
    still = linear_regression(DIM, max_batch=LARGEST), agents
    alone, beside = (
        simulate(*still, rules, FixedRequest(NU, 0.0), ROUNDS, 2).rewards["agreement"]
        for rules in ({"agreement": OutputAgreement(COST)}, {"flat": FlatPay(COST), "agreement": OutputAgreement(COST)})
    )
    np.testing.assert_allclose(beside, alone, rtol=1e-4, atol=1e-4)


# Against the reference.


@functools.cache
def in_double_precision() -> Any:
    """Return the history of a few repetitions in 64 bits, and the problem they were of."""
    with jax.enable_x64(True):
        problem = linear_regression(DIM, DISTANCE, LARGEST)
        agents = [Fixed(size) for size in MIXED]
        rules = {name: RULES[name] for name in ("known", "estimated", "balanced")}
        policy = ScheduledRequest(CHANGING, STEPS)
        return problem, simulate(problem, agents, rules, policy, ROUNDS, 3, seed=5, dimension_free=False)


@jax.jit
def gradient(problem: Any, model: Any, size: Any, key: Any, turn: Any, agent: Any) -> Any:
    """Return the gradient of an agent as the engine draws it."""
    return problem.gradient(model, size, round_keys(key, turn, AGENTS)[1, agent])


@pytest.mark.parametrize("rule", ["known", "estimated", "balanced"])
def test_it_agrees_with_the_reference_on_the_same_draws(rule: str) -> None:
    """Given the engine's own gradients, the loops over rounds and agents find its rewards and models, to rounding."""
    problem, history = in_double_precision()
    assert history.rewards[rule].dtype == np.float64
    with jax.enable_x64(True):
        for repetition in (0, 2):
            key = repetition_key(5, jnp.asarray(repetition))
            steps = np.asarray(ScheduledRequest(CHANGING, STEPS).steps, dtype=np.float64)
            run = reference(
                lambda model, size, t, k: gradient(problem, model, size, key, t, k),  # noqa: B023
                np.zeros(DIM),
                [MIXED] * ROUNDS,
                CHANGING,
                steps.tolist(),
                COST,
                (lambda model: float(problem.variance(model))) if rule == "known" else rule,
            )
            np.testing.assert_allclose(history.rewards[rule][repetition], run.rewards, rtol=1e-9, atol=1e-9)
            errors = np.sum((run.models - np.asarray(problem.target)) ** 2, axis=1)
            np.testing.assert_allclose(history.metrics["error"][repetition], errors, rtol=1e-9)


@pytest.mark.parametrize("rule", ["known", "estimated", "balanced"])
def test_it_agrees_with_the_reference_on_its_own_draws(rule: str) -> None:
    """Minibatches drawn sample by sample in NumPy give the same mean errors and rewards."""
    target, rng = np.full(DIM, (DISTANCE / DIM) ** 0.5), np.random.default_rng(1)

    def variance(model: Any) -> float:
        return 4 * ((DIM + 1) * float(np.sum((model - target) ** 2)) + DIM)

    setting = [MIXED] * ROUNDS, CHANGING, STEPS, COST, variance if rule == "known" else rule
    runs = [reference(minibatches(target, rng), np.zeros(DIM), *setting) for _ in range(240)]
    for t in (1, 2, ROUNDS):
        slow = mean([np.sum((run.models[t] - target) ** 2) for run in runs])
        assert_equal_means(mean(mixture().metrics["error"][:, t]), slow, within=0.1 * slow.value)
    for agent in range(AGENTS):
        if MIXED[agent] > 0:
            slow = mean([run.rewards[:, agent].mean() for run in runs])
            assert_equal_means(
                mean(mixture().rewards[rule][:, :, agent].mean(axis=1)), slow, within=0.1 * (5 + abs(slow.value))
            )


def assert_equal_means(one: Mean, other: Mean, within: float) -> None:
    error = float(np.hypot(one.error, other.error))
    assert abs(one.value - other.value) < SURE * error
    assert error < within


@pytest.mark.parametrize("size", [2, 8])
def test_errors_follow_the_exact_recursion(size: int) -> None:
    """The expected error after each round, when everybody uses `size`."""
    history = train((size,) * AGENTS)
    expected = expected_errors(DIM, AGENTS, size, STEP, DISTANCE, ROUNDS)
    for t in range(1, ROUNDS + 1):
        measured = mean(history.metrics["error"][:, t])
        assert abs(measured.z(expected[t])) < SURE
        assert measured.error < 0.03 * expected[t]


# Seeds and chunks.


def test_the_same_seed_gives_the_same_numbers() -> None:
    assert_same(train(MIXED, CHANGING, STEPS), mixture())


def test_another_seed_gives_other_numbers() -> None:
    errors = train(MIXED, CHANGING, STEPS, seed=1).metrics["error"][:, 1:]
    assert not np.intersect1d(errors, mixture().metrics["error"][:, 1:]).size > 0.001 * errors.size


def test_repetitions_agents_and_rounds_have_their_own_randomness() -> None:
    history = cooperation()
    assert np.unique(history.metrics["error"][:, -1]).size > 0.99 * REPETITIONS
    pay = history.rewards["genie"].astype(np.float64)  # depends on nobody else's gradient
    rows = pay.transpose(1, 2, 0).reshape(ROUNDS * AGENTS, REPETITIONS)
    correlations = np.corrcoef(rows)[np.triu_indices(ROUNDS * AGENTS, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(REPETITIONS)


def test_the_chunk_size_changes_nothing() -> None:
    """Repetitions in two chunks, or all at once: the same draws and choices.

    The sums behind errors and rewards may round differently, because XLA arranges them by the size of the chunk.
    """
    divided, whole = arrays(train(MIXED, CHANGING, STEPS, rules=ALONE, chunk=HALF)), arrays(mixture())
    for name, values in divided.items():
        tolerance = 1e-5 * np.abs(values).max() if values.dtype == np.float32 else 0
        np.testing.assert_allclose(values, whole[name], rtol=0, atol=tolerance, err_msg=name)
    assert_same(train(MIXED, CHANGING, STEPS, chunk=5 * REPETITIONS), mixture())  # larger than there is to do


def test_a_shorter_last_chunk_is_cut_from_a_whole_one() -> None:
    divided = train(MIXED, CHANGING, STEPS, rules=ALONE, chunk=HALF)
    before = compilations()
    ragged = arrays(train(MIXED, CHANGING, STEPS, rules=ALONE, chunk=HALF, repetitions=HALF + 7))
    assert compilations() == before
    for name, values in arrays(divided).items():
        np.testing.assert_array_equal(ragged[name], values[: HALF + 7], err_msg=name)


def test_an_interrupt_keeps_the_chunks_that_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    play = engine._run

    def interrupted(*arguments: Any) -> Any:
        if arguments[-2] > 0:  # the second chunk
            raise KeyboardInterrupt
        return play(*arguments)

    monkeypatch.setattr(engine, "_run", interrupted)
    history = train(MIXED, CHANGING, STEPS, rules=ALONE, chunk=HALF)
    assert history.interrupted
    assert history.repetitions == HALF
    monkeypatch.undo()
    assert_same(history, train(MIXED, CHANGING, STEPS, rules=ALONE, repetitions=HALF))


def test_an_interrupt_before_the_first_chunk_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train()


def test_chunks_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `chunk`, the numbers recorded and six copies of the gradients stay below `MEMORY`."""
    counts: list[int] = []
    play = engine._run

    def watched(*arguments: Any) -> Any:
        counts.append(arguments[-1])
        return play(*arguments)

    monkeypatch.setattr(engine, "_run", watched)
    per_repetition = 4 * AGENTS * (ROUNDS * (2 + len(ALONE)) + 6 * DIM)
    monkeypatch.setattr(engine, "MEMORY", (HALF + 1) * per_repetition - 1)
    train(rules=ALONE)
    assert counts == [HALF, HALF]
    monkeypatch.setattr(engine, "MEMORY", 2 * HALF * per_repetition)
    train(rules=ALONE, repetitions=HALF)
    assert counts == [HALF, HALF, HALF]


def test_other_numbers_need_no_new_compilation() -> None:
    cooperation()
    before = compilations()
    train((1, 2, 3, 4, 0, 6), (5,) * ROUNDS, (0.01,) * ROUNDS, seed=17, distance=3.0)
    train((16,) * AGENTS, CHANGING, STEPS, seed=2**31 - 1)
    assert compilations() == before


# Agents.


def test_agents_of_mixed_kinds_keep_their_order() -> None:
    """The same batch sizes chosen by agents of three kinds, interleaved, give the same numbers, agent by agent."""
    honest = scale(1.0, chooser=Fixed(16))
    agents = [Fixed(1), Cooperative(), Fixed(2), honest, Cooperative(), Fixed(4)]
    policy = ScheduledRequest((NU,) * ROUNDS, (STEP,) * ROUNDS)
    mixed = simulate(linear_regression(DIM, DISTANCE, LARGEST), agents, ALONE, policy, ROUNDS, HALF)
    plain = train((1, NU, 2, 16, NU, 4), rules=ALONE, repetitions=HALF)
    np.testing.assert_array_equal(mixed.batch_sizes, plain.batch_sizes)
    np.testing.assert_allclose(mixed.metrics["error"], plain.metrics["error"], rtol=1e-4)
    np.testing.assert_allclose(mixed.rewards["balanced"], plain.rewards["balanced"], rtol=1e-3, atol=1e-3)


def test_a_rule_pays_the_same_alone_and_among_others() -> None:
    alone, among = train(MIXED, CHANGING, STEPS, rules=ALONE, repetitions=HALF), mixture()
    np.testing.assert_allclose(alone.rewards["balanced"], among.rewards["balanced"][:HALF], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(alone.metrics["error"], among.metrics["error"][:HALF], rtol=1e-4)


CROWD = 8
LEARNER, BEST, DECLINING = 2, 5, 6
LONG = 400


@functools.cache
def crowd() -> History:
    """Return the history of many kinds of agents in a long training, paid by the known variance."""
    agents = [
        Fixed(3),
        Cooperative(),
        learning((4, 8, 16), COST),
        Fixed(5),
        Cooperative(),
        best_responding(COST, CROWD, LARGEST),
        Declining(0.3),
        Fixed(7),
    ]
    problem = linear_regression(DIM, DISTANCE, LARGEST)
    return simulate(problem, agents, RULES["known"], FixedRequest(NU, 0.1), LONG, 60, seed=3)


def test_every_kind_of_agent_does_what_it_says() -> None:
    sizes = crowd().batch_sizes
    for agent, size in {0: 3, 1: NU, 3: 5, 4: NU, BEST: NU, 7: 7}.items():
        assert (sizes[..., agent] == size).all()
    assert set(np.unique(sizes[..., LEARNER])) == {4, 8, 16}
    assert set(np.unique(sizes[..., DECLINING])) == {0, NU}


def test_declining_agents_decline_at_their_own_time() -> None:
    declined = crowd().batch_sizes[..., DECLINING] == 0
    measured = mean(declined.ravel())
    assert abs(measured.z(0.3)) < SURE
    assert measured.error < 0.01
    assert np.unique(declined, axis=0).shape[0] == 60  # not at the same time in all repetitions


def test_a_learning_agent_finds_the_request() -> None:
    """From nothing but his pay: with known variance ν is best whatever the others do."""
    sizes = crowd().batch_sizes[..., LEARNER]
    assert np.mean(sizes[:, :30] == NU) < 0.6
    late = sizes[:, LONG // 2 :]
    usual = [np.bincount(run, minlength=17).argmax() for run in late]
    assert np.mean(np.equal(usual, NU)) > 0.95
    assert np.mean(late == NU) > 0.75


def test_agents_have_their_own_costs() -> None:
    costs = [AffineCost(1, 1), PowerCost(0.5, 2), AffineCost(0, 3), COST, AffineCost(5, 0.5), PowerCost(1, 1.5)]
    history = train(MIXED, CHANGING, STEPS, costs=costs)
    for agent, (cost, size) in enumerate(zip(costs, MIXED, strict=True)):
        assert (history.costs[..., agent] == cost(size)).all()
        for rule in RULES:
            gained = history.rewards[rule][..., agent] - cost(size)
            np.testing.assert_allclose(history.utilities[rule][..., agent], gained, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(history.rewards[rule], mixture().rewards[rule])  # they are paid all the same


def test_one_cost_is_everybodys() -> None:
    history = train(MIXED, CHANGING, STEPS, costs=AffineCost(2, 3))
    np.testing.assert_array_equal(history.costs, np.where(history.batch_sizes > 0, 2.0 + 3 * history.batch_sizes, 0))


# What the rules pay.


@pytest.mark.parametrize("rule", ["known", "genie"])
def test_honest_work_is_paid_what_it_costs(rule: str) -> None:
    measured = mean(cooperation().rewards[rule].mean(axis=(1, 2)))
    assert abs(measured.z(COST(NU))) < SURE
    assert measured.error < 0.05


def test_the_genie_pays_each_by_his_own_work_alone() -> None:
    """E[R_k] = h(ν) + h'(ν)·(ν − ν²/S_k), the paper's equation 8 in expectation, among agents of any size."""
    history = train((1, 2, 4, 8, 16, 0))
    for agent, size in enumerate((1, 2, 4, 8, 16)):
        measured = mean(history.rewards["genie"][..., agent].mean(axis=1))
        assert abs(measured.z(COST(NU) + NU - NU**2 / size)) < SURE
        assert measured.error < 0.3 + 0.02 * NU**2 / size


def test_flat_pay_is_flat() -> None:
    history = train((1, 2, 4, 8, 16, 0), CHANGING)
    expected = np.where(history.batch_sizes > 0, COST(history.request)[..., None], 0.0)
    np.testing.assert_array_equal(history.rewards["flat"], expected)


def test_the_estimated_rule_underpays() -> None:
    measured = mean(cooperation().rewards["estimated"].mean(axis=(1, 2)))
    assert measured.z(COST(NU)) < -10


def test_balanced_pay_adds_up() -> None:
    total = cooperation().rewards["balanced"].sum(axis=2)
    np.testing.assert_allclose(total, AGENTS * COST(NU), rtol=1e-4)


def test_the_default_rule_adds_up() -> None:
    """With absences and a join, in every round of every training: also where open rounds are settled."""
    problem = linear_regression(DIM, DISTANCE, LARGEST)
    agents = [*[Cooperative()] * 3, Declining(0.3), Fixed(NU // 2), Cooperative()]
    history = simulate(problem, agents, OutputAgreement(COST), FixedRequest(NU, 0.05), 14, 200, joins=[*[0] * 5, 4])
    present, rewards = history.participating, history.rewards["reward"]
    assert not present[:, :4, 5].any()
    assert 0.2 < 1 - present[:, :, 3].mean() < 0.4
    np.testing.assert_allclose(rewards.sum(axis=2), COST(NU) * present.sum(axis=2), rtol=1e-4)
    np.testing.assert_array_equal(rewards[:, 0], COST(NU) * present[:, 0])
    assert (rewards[:, 1:7] * ~present[:, 1:7] != 0).any(), "who is absent then gets its extra of open rounds"
    assert (rewards[:, 8:] * ~present[:, 8:] == 0).all()
    assert mean(rewards[:, :, 4].mean(axis=1) - COST(NU // 2)).z(0.0) < -SURE


def test_an_agent_that_comes_back_under_a_new_name_starts_from_nothing() -> None:
    """What is held against one that sends far too much is gone with its name; of the others nothing changes before."""
    problem, agents = linear_regression(DIM, DISTANCE, LARGEST), [Cooperative()] * (AGENTS - 1) + [scale(9.0)]
    rule, requests = InformationPay(COST), FixedRequest(NU, 0.01)
    once, again = (
        simulate(problem, agents, rule, requests, 12, 100, joins=[*[0] * (AGENTS - 1), names]).accusation
        for names in ([0, 0], [0, 8])
    )
    np.testing.assert_array_equal(once[:, :8], again[:, :8])
    assert (once[:, 8:, -1] > 5).all()
    assert (again[:, 8, -1] < 2).all()
