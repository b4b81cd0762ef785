"""The exact optimum for the paper's linear regression: the cheapest sequence of requests, to compare others with."""

# NumPy's functions of arrays lose track of what the arrays hold.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guerdon.arrays import check_number, check_positive_integer
from guerdon.costs import Cost

STABLE = 1e-3  # the optimum is known to this relative accuracy


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
    """Return the sequence of requests that takes the paper's linear regression from `start` to `target` most cheaply.

    Dynamic programming on the exact expected error: one round at ν with the best step takes x to x/(1 + K·ν/B(x)), with
    B(x) = d + 1 + d/x, and costs K·h(ν). The error is put on a grid. Rounding it up gives a plan that is possible,
    rounding it down a bound that no plan beats. The grid is refined until the two agree to 0.1 %.

    >>> from guerdon import AffineCost
    >>> optimal_requests(dim=100, num_agents=10, cost=AffineCost(1, 1), start=100.0, target=1.0).total
    790.0
    """
    for name, value in (("dim", dim), ("num_agents", num_agents), ("max_batch", max_batch)):
        check_positive_integer(name, value)
    check_number("target", target, minimum=0, inclusive=False)
    check_number("start", start, minimum=0)
    if start <= target:
        return Optimum(0.0, 0.0, (), (start,))
    sizes = np.arange(1, max_batch + 1)
    prices = num_agents * np.asarray(cost(sizes.astype(np.float64)))
    smallest = np.log1p(num_agents / (dim + 1 + dim / target))  # the least that one round gains, in logarithms
    points = int(np.ceil(np.log(start / target) / smallest)) * 8
    while True:
        least, most = (_solve(dim, num_agents, prices, start, target, points, up) for up in (False, True))
        accuracy = 1 - least.value[-1] / most.value[-1]
        if accuracy <= STABLE:
            return _trace(most, dim, num_agents, prices, float(accuracy))
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
