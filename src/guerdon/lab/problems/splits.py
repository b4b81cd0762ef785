"""How a federation's rows are divided among its agents: alike, in small pools, or by what they hold."""

from typing import Any

import numpy as np

from guerdon.arrays import check_number, check_positive_integer


def pools(num_rows: int, num_agents: int, size: int, seed: int = 0) -> list[Any]:
    """Return `size` rows for each agent, at random, none twice: all of the same kind, but few and fixed."""
    for name, value in (("num_rows", num_rows), ("num_agents", num_agents), ("size", size)):
        check_positive_integer(name, value)
    if num_agents * size > num_rows:
        raise ValueError(f"`size` must be at most {num_rows // num_agents} for {num_agents} agents, got {size}")
    order = np.random.default_rng(seed).permutation(num_rows)
    return [order[agent * size : (agent + 1) * size] for agent in range(num_agents)]


def by_dirichlet(labels: Any, num_agents: int, concentration: float, seed: int = 0) -> list[Any]:
    """Return rows for each agent; of each label the shares are drawn from a Dirichlet distribution.

    The smaller the `concentration`, the more agents differ in their labels and in how many rows they have. Drawn again
    until every agent has at least ten rows (one, where there are fewer than a hundred for each).
    """
    check_positive_integer("num_agents", num_agents)
    check_number("concentration", concentration, minimum=0, inclusive=False)
    labels, rng = np.asarray(labels), np.random.default_rng(seed)
    least = 10 if len(labels) >= 100 * num_agents else 1
    for _ in range(1000):
        parts: list[list[Any]] = [[] for _ in range(num_agents)]
        for label in np.unique(labels):
            rows = rng.permutation(np.flatnonzero(labels == label))
            shares = np.cumsum(rng.dirichlet([concentration] * num_agents))[:-1]
            for part, share in zip(parts, np.split(rows, (shares * len(rows)).astype(int)), strict=True):
                part.append(share)
        rows_of_agents = [np.concatenate(part) for part in parts]
        if min(map(len, rows_of_agents)) >= least:
            return rows_of_agents
    raise ValueError(f"`concentration` must leave every agent some rows, got {concentration}; try a larger one")


def by_value(values: Any, num_agents: int, seed: int = 0) -> list[Any]:
    """Return rows for each agent, equally many, from those with the lowest values to those with the highest."""
    check_positive_integer("num_agents", num_agents)
    ties = np.random.default_rng(seed).permutation(len(values))
    return np.array_split(np.lexsort((ties, np.asarray(values))), num_agents)


def shards(labels: Any, num_agents: int, each: int = 2, seed: int = 0) -> list[Any]:
    """Return `each` runs of neighbouring rows for each agent, of the rows sorted by label: few labels each."""
    check_positive_integer("each", each)
    runs = by_value(labels, num_agents * each, seed)
    order = np.random.default_rng(seed + 1).permutation(len(runs))
    return [np.concatenate([runs[i] for i in order[k * each : (k + 1) * each]]) for k in range(num_agents)]
