"""How the server chooses what to ask for: fixed, scheduled, adaptive, within a budget."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import AffineCost, ExpressionCost, FunctionCost, PowerCost, gather
from guerdon.adaptive import BudgetRequest, NoiseScaleRequest, cheapest_request, dearest_request
from guerdon.costs import Cost
from guerdon.requests import FixedRequest, Outcome, Requests, ScheduledRequest

COST = AffineCost(1, 1)
COSTS: dict[str, Cost] = {
    "affine": COST,
    "dear to join": AffineCost(50, 0.5),
    "free to join": AffineCost(0, 2),
    "power": PowerCost(0.1, 2, 3),
    "function": FunctionCost(lambda s: 5 + s + 0.01 * s**3),
    "text": ExpressionCost("2 + s ** 1.5"),
}
AGENTS, DIM = 10, 30
SCHEDULE = ScheduledRequest([8, 4, 2], [0.5, 0.25, 0.125])


def outcome(request: int = 8, paid: float = 90.0, seed: int = 0, present: Any = None) -> Outcome:
    here = np.ones(AGENTS, dtype=bool) if present is None else present
    drawn = 1 + np.random.default_rng(seed).normal(size=(AGENTS, DIM))
    mean = drawn[here].mean(axis=0) if here.any() else np.zeros(DIM)
    return Outcome(request, gather(drawn, here), mean, paid)


def asked(policy: Requests, rounds: int) -> list[tuple[int, float]]:
    """Return requests and steps of a training in which nothing of interest happens."""
    state, found = policy.init(np.zeros(DIM), AGENTS), list[tuple[int, float]]()
    for turn in range(rounds):
        request = int(policy.ask(state, turn))
        step, state = policy.observe(state, outcome(max(request, 1)))
        found.append((request, float(step)))
    return found


def descend(policy: Requests, rounds: int = 400, seed: int = 0, noise: float = 10.0) -> tuple[Any, Any, Any]:
    """Train on a quadratic with curvature 1 as a server would; return requests, money spent and errors by round."""
    rng = np.random.default_rng(seed)
    model, state = np.full(DIM, 10.0), policy.init(np.zeros(DIM), AGENTS)
    requests, spent, errors = list[int](), list[float](), list[float]()
    for turn in range(rounds):
        request = int(policy.ask(state, turn))
        if request == 0:
            break
        drawn = model + noise * rng.normal(size=(AGENTS, DIM)) / math.sqrt(request)
        aggregate = drawn.mean(axis=0)
        paid = AGENTS * float(COST(request))
        evidence = gather(drawn, np.ones(AGENTS, dtype=bool))
        step, state = policy.observe(state, Outcome(request, evidence, aggregate, paid))
        model = model - float(step) * aggregate
        requests.append(request)
        spent.append(paid)
        errors.append(float(model @ model))
    return np.array(requests), np.array(spent), np.array(errors)


# Fixed and scheduled.


def test_a_fixed_request_never_changes() -> None:
    assert asked(FixedRequest(8, 0.25), 4) == [(8, 0.25)] * 4
    assert asked(FixedRequest(1, 0.0), 1) == [(1, 0.0)]  # a step of 0 is allowed


def test_a_schedule_is_followed_and_its_last_entry_repeated() -> None:
    assert asked(SCHEDULE, 5) == [(8, 0.5), (4, 0.25), (2, 0.125), (2, 0.125), (2, 0.125)]


def test_the_largest_request_is_known_in_advance() -> None:
    assert FixedRequest(8, 0.1).largest(5) == 8
    assert [ScheduledRequest([2, 8, 4], [0.1] * 3).largest(rounds) for rounds in (1, 2, 9)] == [2, 8, 8]
    assert NoiseScaleRequest(COST, 32).largest(5) == 32
    assert BudgetRequest(COST, 100.0, 32).largest(5) == 32


@pytest.mark.parametrize(
    ("batch_size", "step", "message"),
    [
        (0, 0.1, "`batch_size` must be a positive integer, got 0"),
        (-3, 0.1, "`batch_size` must be a positive integer, got -3"),
        (2.5, 0.1, "`batch_size` must be a positive integer, got 2.5"),
        (True, 0.1, "`batch_size` must be a positive integer, got True"),
        (8, -0.1, "`step` must be a finite number of at least 0, got -0.1"),
        (8, float("nan"), "`step` must be a finite number of at least 0, got nan"),
        (8, float("inf"), "`step` must be a finite number of at least 0, got inf"),
        (8, "0.1", "`step` must be a finite number of at least 0, got '0.1'"),
    ],
)
def test_a_bad_fixed_request_is_refused(batch_size: Any, step: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        FixedRequest(batch_size, step)


@pytest.mark.parametrize(
    ("batch_sizes", "steps", "message"),
    [
        ([], [], "`batch_sizes` and `steps` must have one entry per round, got 0 and 0"),
        ([8, 8], [0.1], "`batch_sizes` and `steps` must have one entry per round, got 2 and 1"),
        ([8, 0], [0.1, 0.1], "`batch_sizes` must be a positive integer, got 0"),
        ([8, 2.5], [0.1, 0.1], "`batch_sizes` must be a positive integer, got 2.5"),
        ([8, 8], [0.1, -1], "`steps` must be a finite number of at least 0, got -1"),
        ([8, 8], [0.1, float("nan")], "`steps` must be a finite number of at least 0, got nan"),
    ],
)
def test_a_bad_schedule_is_refused(batch_sizes: Any, steps: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        ScheduledRequest(batch_sizes, steps)


# The cheapest request.


@pytest.mark.parametrize("name", COSTS)
@settings(max_examples=40)
@given(noise_scale=st.floats(0.01, 1e6), agents=st.integers(1, 1000))
def test_the_cheapest_request_is_the_cheapest(name: str, noise_scale: float, agents: int) -> None:
    """Against a search through all of them."""
    cost, sizes = COSTS[name], np.arange(1.0, 65.0)
    prices = cost(sizes) / np.log1p(agents * sizes / noise_scale)
    found = int(cheapest_request(cost, noise_scale, agents, max_batch=64))
    assert 1 <= found <= 64
    assert prices[found - 1] <= prices.min() * (1 + 1e-9)


def test_it_grows_as_the_square_root_of_the_noise() -> None:
    """√(2·c0·B/(c1·n)) for a large B."""
    for fixed, noise_scale in ((1, 1e6), (10, 1e7), (3, 1e8)):
        found = int(cheapest_request(AffineCost(fixed, 2), noise_scale, 10, max_batch=10**6))
        assert found == pytest.approx(math.sqrt(2 * fixed * noise_scale / (2 * 10)), rel=0.02)


@pytest.mark.parametrize("name", COSTS)
@settings(max_examples=40)
@given(money=st.floats(-10, 1e4))
def test_the_dearest_request_is_what_can_be_paid(name: str, money: float) -> None:
    cost = COSTS[name]
    found = int(dearest_request(cost, np.asarray(money), max_batch=64))
    affordable = [nu for nu in range(1, 65) if cost(nu) <= money]
    assert found == max(affordable, default=0)


# The adaptive rule.


def test_before_the_first_round_it_asks_for_a_few() -> None:
    for policy, few in (
        (NoiseScaleRequest(COST), 4),
        (NoiseScaleRequest(COST, 2), 2),
        (NoiseScaleRequest(COST, first=9), 9),
    ):
        assert int(policy.ask(policy.init(np.zeros(DIM), AGENTS), 0)) == few


def test_it_converges_and_asks_for_more_as_the_signal_fades() -> None:
    for seed in range(3):
        requests, _, errors = descend(NoiseScaleRequest(COST), seed=seed, rounds=60)
        assert errors[-1] < 0.02 * errors[0]
        assert np.mean(requests[-10:]) > 2 * np.mean(requests[1:6])


def test_the_request_follows_the_noise_scale() -> None:
    """With σ² = 3000 and ‖m‖² known from the errors: a round behind, and leaning to the small side, but it follows."""
    ratios: list[float] = []
    for seed in range(5):
        requests, _, errors = descend(NoiseScaleRequest(COST, 1000), seed=seed, rounds=60)
        best = [int(cheapest_request(COST, 100 * DIM / e, AGENTS, 1000)) for e in errors[:-1]]
        ratios.extend((requests[1:] / best)[5:])
    assert 0.6 < np.median(ratios) < 1.2
    assert np.percentile(ratios, 5) > 0.35
    assert np.percentile(ratios, 95) < 2


@pytest.mark.parametrize(("least", "most"), [(1, 64), (2, 5), (7, 7)])
def test_it_keeps_within_its_bounds(least: int, most: int) -> None:
    requests, _, _ = descend(NoiseScaleRequest(COST, most, min_batch=least), rounds=100, noise=30.0)
    assert requests.min() >= least
    assert requests.max() <= most
    assert requests.max() == most  # which the noise makes it reach


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch": 0}, "`max_batch` must be a positive integer, got 0"),
        ({"max_batch": 2**21}, "`max_batch` must be at most 1048576, got 2097152"),
        ({"min_batch": 0}, "`min_batch` must be a positive integer, got 0"),
        ({"min_batch": 65}, r"`min_batch` must be at most `max_batch` \(64\), got 65"),
        ({"first": 0}, "`first` must be a positive integer, got 0"),
        ({"first": 65}, r"`first` must be from `min_batch` to `max_batch` \(1…64\), got 65"),
        ({"curvature": 0}, "`curvature` must be a finite number above 0, got 0"),
        ({"curvature": float("nan")}, "`curvature` must be a finite number above 0, got nan"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        NoiseScaleRequest(COST, **options)


@pytest.mark.parametrize("make", [NoiseScaleRequest, lambda cost: BudgetRequest(cost, 100.0)])
def test_a_cost_as_text_is_refused(make: Any) -> None:
    with pytest.raises(TypeError, match=r"`cost` must be a cost, .* got '1 \+ s': give ExpressionCost\('1 \+ s'\)"):
        make("1 + s")


def test_rounds_without_agents_change_nothing_but_the_bill() -> None:
    policy = NoiseScaleRequest(COST)
    _, state = policy.observe(policy.init(np.zeros(DIM), AGENTS), outcome())
    for present in (0, 1):
        step, after = policy.observe(state, outcome(present=np.arange(AGENTS) < present, paid=5.0))
        assert float(step) == 0
        assert int(policy.ask(after, 1)) == int(policy.ask(state, 1))
        assert float(after.spent) == float(state.spent) + 5


def test_drop_outs_are_borne() -> None:
    """Half of the agents away at random, whole rounds without any: the error still falls to a fiftieth."""
    rng = np.random.default_rng(0)
    policy = NoiseScaleRequest(COST)
    model, state = np.full(DIM, 10.0), policy.init(np.zeros(DIM), AGENTS)
    for turn in range(120):
        here = (rng.uniform(size=AGENTS) < 0.5) & (turn % 7 > 0)
        request = int(policy.ask(state, turn))
        drawn = model + 10 * rng.normal(size=(AGENTS, DIM)) / math.sqrt(request)
        aggregate = drawn[here].mean(axis=0) if here.any() else np.zeros(DIM)
        step, state = policy.observe(state, Outcome(request, gather(drawn, here), aggregate, 0.0))
        model = model - float(step) * aggregate
    assert float(model @ model) < 0.02 * 100 * DIM
    assert 3 < float(state.filter.crowd) < 7


# The budget.


@pytest.mark.parametrize("budget", [0.0, 19.0, 20.0, 55.0, 199.0, 1000.0, 12_345.0])
def test_a_budget_is_never_exceeded_and_used_up(budget: float) -> None:
    for seed in range(2):
        _, spent, _ = descend(BudgetRequest(COST, budget), seed=seed)
        assert spent.sum() <= budget
        assert budget - spent.sum() < 20  # less than one sample a head costs


def test_more_money_buys_a_better_model() -> None:
    ends = [np.mean([descend(BudgetRequest(COST, b), seed=s)[2][-1] for s in range(4)]) for b in (300, 1000, 3000)]
    assert ends[0] > 1.5 * ends[1] > 1.5 * 1.5 * ends[2]


@pytest.mark.slow
def test_a_budget_buys_as_much_as_the_best_fixed_request() -> None:
    """The same step rule with the request fixed, chosen in hindsight: the mean error is at most 10 % larger."""

    def end(policy: Requests) -> float:
        return float(np.mean([errors[-1] for _, _, errors in (descend(policy, seed=s) for s in range(40))]))

    fixed: dict[int, float] = {}
    for nu in (2, 4, 8, 16):
        rounds = 1000 // (AGENTS * (1 + nu))
        fixed[nu] = float(
            np.mean([descend(NoiseScaleRequest(COST, nu, min_batch=nu), rounds, s)[2][-1] for s in range(40)])
        )
    assert end(BudgetRequest(COST, 1000.0)) < 1.1 * min(fixed.values())


@pytest.mark.parametrize("budget", [-1, float("nan"), float("inf"), "all"])
def test_a_bad_budget_is_refused(budget: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="`budget` must be a finite number of at least 0"):
        BudgetRequest(COST, budget)
