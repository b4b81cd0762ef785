"""The optimum for the paper's linear regression: the cheapest sequence of requests, to compare others with.

It is that of the *expected path*: the error of a round is replaced by its mean (`optimal_requests`). Errors of real
runs are random. `realised_totals` plays runs that see their error in every round, with the best plan for that.
"""

# NumPy's functions of arrays lose track of what the arrays hold.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guerdon.arrays import check_number, check_positive_integer
from guerdon.costs import Cost

STABLE = 1e-3  # the optimum is known to this relative accuracy
GRID, DRAWN = 120, 100  # errors, and next errors drawn for each of them and each request, where errors are random


class Optimum(NamedTuple):
    """The least total reward that reaches a target, the requests that it takes, and the expected errors."""

    total: float
    accuracy: float  # relative: the true optimum lies within total·(1 − accuracy)…total
    requests: tuple[int, ...]
    errors: tuple[float, ...]  # expected, before each request and at the end


class _Values(NamedTuple):
    """The least reward still to be paid at each error of a grid, and the request to begin with."""

    log_errors: NDArray[np.float64]
    value: NDArray[np.float64]
    request: NDArray[np.int64]


def optimal_requests(
    dim: int, num_agents: int, cost: Cost, start: float, target: float, max_batch: int = 64
) -> Optimum:
    """Return the sequence of requests that takes the expected error of the paper's linear regression down most cheaply.

    Dynamic programming on the expected error, from `start` to `target`: one round at ν with the best step takes x to
    x/(1 + K·ν/B(x)), with B(x) = d + 1 + d/x, and costs K·h(ν). The error is put on a grid. Rounding it up gives a plan
    that is possible, rounding it down a bound that no plan beats. The grid is refined until the two agree to 0.1 %.

    >>> from guerdon import AffineCost
    >>> optimal_requests(dim=100, num_agents=10, cost=AffineCost(1, 1), start=100.0, target=1.0).total
    790.0
    """
    if start <= target:
        _check(dim, num_agents, start, target, max_batch)
        return Optimum(0.0, 0.0, (), (start,))
    values, prices, accuracy = _plan(dim, num_agents, cost, start, target, max_batch)
    return _trace(values, dim, num_agents, prices, accuracy)


def realised_totals(
    dim: int, num_agents: int, cost: Cost, start: float, target: float, max_batch: int = 64, *, runs: int, seed: int = 0
) -> NDArray[np.float64]:
    """Return what each of so many runs pays until its own error is at the target, with the best plan for random errors.

    A run knows its error x, and asks for the ν for which the price of this round and the expected price of all later
    ones are least, with the step that lowers the expected error most. The plan is found by iteration on a grid of
    errors, with drawn next errors; the runs are played with other draws. So their mean is a little above the least that
    such plans pay, never below.
    """
    _check(dim, num_agents, start, target, max_batch)
    random, prices = np.random.default_rng(seed), _prices(num_agents, cost, max_batch)
    logs, request = _plan_for_random_errors(dim, num_agents, prices, start, target, random)
    totals, active, error = np.zeros(runs), np.arange(runs), np.full(runs, float(start))
    while len(active):
        place = np.clip(np.rint((np.log(error) - logs[0]) / (logs[1] - logs[0])), 0, GRID - 1).astype(np.int64)
        totals[active] += prices[request[place] - 1]
        error = _next_errors(error, dim, num_agents * request[place], random.normal(size=(4, len(error))))
        active, error = active[error > target], error[error > target]
    return totals


def _plan_for_random_errors(
    dim: int, num_agents: int, prices: NDArray[np.float64], start: float, target: float, random: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return a grid of log errors, and the best request at each."""
    logs = np.linspace(np.log(target), np.log(1.5 * start), GRID)
    samples = num_agents * np.arange(1, len(prices) + 1)[:, None]
    # The same draws for every error and request: otherwise lucky draws would choose a request.
    after = _next_errors(np.exp(logs)[:, None, None], dim, samples, random.normal(size=(4, DRAWN)))
    place = np.clip((np.log(after) - logs[0]) / (logs[1] - logs[0]), 0, GRID - 1 - 1e-6)
    below, part, arrived = place.astype(np.int64), place % 1, place <= 0
    value, change, request = np.zeros(GRID), np.inf, np.ones(GRID, dtype=np.int64)
    while change > 0.1 * STABLE * value[-1]:
        later = np.where(arrived, 0.0, value[below] * (1 - part) + value[below + 1] * part)
        totals = prices + later.mean(axis=2)
        least, request = np.min(totals, axis=1), 1 + np.argmin(totals, axis=1)
        change, value = float(np.max(np.abs(least - value))), least
    return logs, request


def _next_errors(
    error: NDArray[np.float64], dim: int, samples: NDArray[np.int64], normals: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return random errors after a round with `samples` samples in all and the best step, from four normal numbers.

    The mean of n gradients of ν samples is one of N = nν samples. With a_i and ε_i standard normal, L = √x and
    e_i = L·a_i − ε_i (a sample's component along δ, its noise and its residual)

        x' = (L − (2η/N)·Σ a_i e_i)² + (2η/N)²·Σ e_i²·χ²_{d−1}
    """
    length, (across, *others) = np.sqrt(error), normals
    squares, rest, side = (_chi_square(n, z) for n, z in zip((samples, samples - 1, dim - 1), others, strict=True))
    products = np.sqrt(squares) * across  # Σ a_i², Σ a_i ε_i and Σ ε_i²: Bartlett's decomposition
    residuals = error * squares - 2 * length * products + across**2 + rest
    factor = 1 / (samples + dim + 1 + dim / error)  # 2η/N
    along = length - factor * (length * squares - products)
    return along**2 + factor**2 * residuals * side


def _chi_square(freedom: Any, normal: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return χ² from a normal number, nearly (Wilson and Hilferty, 1931)."""
    return freedom * np.maximum(1 - 2 / (9 * freedom) + normal * np.sqrt(2 / (9 * freedom)), 0) ** 3


def _check(dim: int, num_agents: int, start: float, target: float, max_batch: int) -> None:
    for name, value in (("dim", dim), ("num_agents", num_agents), ("max_batch", max_batch)):
        check_positive_integer(name, value)
    check_number("target", target, minimum=0, inclusive=False)
    check_number("start", start, minimum=0)


def _prices(num_agents: int, cost: Cost, max_batch: int) -> NDArray[np.float64]:
    """Return what a round costs at each request."""
    return num_agents * np.asarray(cost(np.arange(1, max_batch + 1, dtype=np.float64)))


def _plan(
    dim: int, num_agents: int, cost: Cost, start: float, target: float, max_batch: int
) -> tuple[_Values, NDArray[np.float64], float]:
    """Return the values on a grid that is fine enough, the price of a round at each request, and the accuracy."""
    _check(dim, num_agents, start, target, max_batch)
    prices = _prices(num_agents, cost, max_batch)
    smallest = np.log1p(num_agents / (dim + 1 + dim / target))  # the least that one round gains, in logarithms
    points = int(np.ceil(np.log(start / target) / smallest)) * 8
    while True:
        least, most = (_solve(dim, num_agents, prices, start, target, points, up) for up in (False, True))
        accuracy = 1 - least.value[-1] / most.value[-1]
        if accuracy <= STABLE:
            return most, prices, float(accuracy)
        points *= 2


def next_error(error: NDArray[np.float64], dim: int, samples: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the expected error after a round with `samples` samples in all and the best step."""
    return error / (1 + samples / (dim + 1 + dim / error))


def _solve(
    dim: int, num_agents: int, prices: NDArray[np.float64], start: float, target: float, points: int, up: bool
) -> _Values:
    """Return the values on a grid, a block of errors at a time: what follows from a block lies below it."""
    logs = np.linspace(np.log(target), np.log(start), points + 1)
    value, request = np.zeros(points + 1), np.zeros(points + 1, dtype=np.int64)
    samples = num_agents * np.arange(1, len(prices) + 1)
    begin = 1
    while begin <= points:
        gained = np.log1p(num_agents / (dim + 1 + dim / np.exp(logs[begin])))
        end = min(points + 1, begin + max(1, int(gained / (logs[1] - logs[0])) - 1))
        after = np.log(next_error(np.exp(logs[begin:end])[:, None], dim, samples[None, :]))
        place = (after - logs[0]) / (logs[1] - logs[0])
        index = np.clip(np.ceil(place - 1e-9) if up else np.floor(place + 1e-9), 0, begin - 1).astype(np.int64)
        totals = prices[None, :] + value[index]
        request[begin:end] = 1 + np.argmin(totals, axis=1)
        value[begin:end] = np.min(totals, axis=1)
        begin = end
    return _Values(logs, value, request)


def _trace(values: _Values, dim: int, num_agents: int, prices: NDArray[np.float64], accuracy: float) -> Optimum:
    """Return the plan that begins at the last error of the grid and follows the requests."""
    target, error = np.exp(values.log_errors[[0, -1]])
    errors, requests = [float(error)], list[int]()
    while error > target * (1 + 1e-12):
        above = min(int(np.searchsorted(values.log_errors, np.log(error) - 1e-12)), len(values.value) - 1)
        requests.append(int(values.request[above]))
        error = next_error(error, dim, np.asarray(num_agents * requests[-1]))
        errors.append(float(error))
    return Optimum(float(sum(prices[nu - 1] for nu in requests)), accuracy, tuple(requests), tuple(errors))
