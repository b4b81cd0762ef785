"""The game in closed form: expected rewards, utilities, best responses and equilibria.

A profile gives every agent's batch size S_k, 0 for an agent that declines. With n participants, o = n − 1 others, and
q_k the mean of 1/S_i over the other participants, output agreement pays participant k in expectation

    agreement             h(ν) + h'(ν) · ν² · ρ · (q_k − 1/S_k)
    known variance        h(ν) + h'(ν) · ( ν·c/(c−1) − ν² · (1/S_k + q_k/o) )
    estimated variance    h(ν) + h'(ν) · ν · ( c/(c−1) − (1/(S_k·q_k) + 1/o) · b )
    information pay       h(ν) + h'(ν) · ν · ( q_k·c/(c−1) − 1/S_k − q_k/o ) / r

with ρ = σ²/V the `ratio` of the true variance to the scale that earlier rounds gave, c the crowd, n ("present") or all
agents ("enrolled"), and r the mean of 1/S_i over all participants; σ² cancels in the others. The first is exact for any
distribution of the gradients as long as no distance is cut, and so is the second. The other two divide by an estimate
of this round, and hold where that is sharp: in many dimensions, the default. For Gaussian gradients in `dimension`
equally noisy directions the estimated rule is exact too when the others use one batch size, with b = f/(f − 2),
f = (o − 1)·dimension. A participant without enough others (one; two where the variance is estimated) is paid nothing;
under agreement two participants are paid h(ν).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from guerdon.agreement import Crowd, FlatPay
from guerdon.arrays import Array, as_float, check_choice, check_number, check_positive_integer, is_traced, namespace
from guerdon.costs import Cost, check_cost
from guerdon.rule import Rule
from guerdon.witness import WitnessedPay

RuleName: TypeAlias = Literal["agreement", "known", "estimated", "information"]
RULES = ("agreement", "known", "estimated", "information")  # those with a closed form
EXACT = ("agreement", "known")  # in any dimension
LARGEST_RATIO = 1e9  # beyond it pay is a number without meaning, and utilities that differ round to the same


def curve_of(rule: Rule) -> Callable[[Any, Any], Any] | None:
    """Return what any number of samples is paid in the mean, of (size, request), where that depends on nobody else."""
    curve: Any = getattr(rule, "curve", None)
    if curve is not None:
        return curve
    if isinstance(rule, FlatPay):
        return lambda size, request: rule.cost(request) + 0 * size
    if isinstance(rule, WitnessedPay):
        cost = rule.cost
        return lambda size, nu: cost(nu) + cost.slope(nu) * nu**2 * (1 / nu - 1 / size)
    return None


@dataclass(frozen=True)
class MinibatchGame:
    """One round: `num_agents` agents, each asked for `request` samples, each free to use 0…max_batch.

    Utilities that differ by less than `tolerance`, relative to what is at stake (ν·h'(ν)), count as equal.

    >>> from guerdon import AffineCost
    >>> game = MinibatchGame(num_agents=10, request=8, cost=AffineCost(1, 1), max_batch=32)
    >>> game.best_response(0, [1, 8, 8, 8, 8, 8, 8, 8, 8, 8])
    8
    >>> game.symmetric_equilibria()
    [0, 8]
    """

    num_agents: int
    request: int
    cost: Cost
    max_batch: int
    rule: str = "agreement"
    crowd: Crowd = "present"
    ratio: float = 1.0  # σ²/V, for `agreement`
    dimension: float = math.inf
    tolerance: float = 1e-9
    curve: Callable[[Any, Any], Any] | None = None  # a rule's own (`Mechanism.curve`); then `rule` is its name

    def __post_init__(self) -> None:
        for name in ("num_agents", "request", "max_batch"):
            check_positive_integer(name, getattr(self, name))
        if self.request > self.max_batch:
            raise ValueError(f"`request` must be at most `max_batch` ({self.max_batch}), got {self.request}")
        if self.curve is None:
            check_choice("rule", self.rule, RULES)
        check_choice("crowd", self.crowd, ("present", "enrolled"))
        if self.dimension != math.inf:
            check_number("dimension", self.dimension, minimum=1)
            if self.rule == "information":
                raise ValueError(
                    '`dimension` must be left out under the rule "information", got '
                    f"{self.dimension!r}: its closed form is the limit of many dimensions; "
                    "play few with `guerdon certify` or `simulate`"
                )
        check_number("tolerance", self.tolerance, minimum=0)
        check_number("ratio", self.ratio, minimum=0, inclusive=False)
        if self.ratio > LARGEST_RATIO:
            raise ValueError(f"`ratio` must be at most {LARGEST_RATIO:g}, got {self.ratio!r}")
        check_cost(self.cost, self.max_batch)

    def expected_reward(self, sizes: Any) -> Array:
        """Return what each agent is paid in expectation when the agents play `sizes`."""
        profile = self._profile(sizes)
        xp = namespace(profile)
        working = profile > 0
        inverse = xp.where(working, 1 / xp.where(working, profile, 1.0), 0.0)
        count = xp.astype(working, profile.dtype)
        return self._reward(profile, xp.sum(count) - count, xp.sum(inverse) - inverse)

    def utility(self, sizes: Any) -> Array:
        """Return each agent's expected reward less its cost."""
        return self.expected_reward(sizes) - self.cost(self._profile(sizes))

    def utilities(self, agent: Any, sizes: Any) -> Array:
        """Return `agent`'s utility for each batch size 0…max_batch it might choose while the others play `sizes`."""
        if not is_traced(agent) and not (int(agent) == agent and 0 <= agent < self.num_agents):
            raise ValueError(f"`agent` must be a whole number from 0 to {self.num_agents - 1}, got {agent!r}")
        profile = self._profile(sizes)
        xp = namespace(profile)
        others = (xp.arange(self.num_agents) != agent) & (profile > 0)
        inverse = xp.where(others, 1 / xp.where(others, profile, 1.0), 0.0)
        choices = xp.arange(self.max_batch + 1, dtype=profile.dtype)
        reward = self._reward(choices, xp.sum(xp.astype(others, profile.dtype)), xp.sum(inverse))
        return reward - self.cost(choices)

    def best_response(self, agent: Any, sizes: Any) -> Any:
        """Return the batch size that is best for `agent` while the others play `sizes`.

        Of several equally good ones (see `tolerance`) it is the one nearest to the request: an agent that gains nothing
        by refusing does not refuse. Of two equally near it is the smaller.
        """
        utilities = self.utilities(agent, sizes)
        xp = namespace(utilities)
        best = utilities >= xp.max(utilities) - self._slack(utilities)
        detour = xp.abs(xp.arange(self.max_batch + 1) - self.request)
        choice = xp.argmin(xp.where(best, detour, 2 * self.max_batch + 1))
        return choice if is_traced(choice) else int(choice)

    def is_equilibrium(self, sizes: Any) -> bool:
        """Tell whether no agent can gain (more than rounding, see `tolerance`) by changing its batch size alone."""
        profile = self._profile(sizes)
        current = self.utility(profile)
        # Agents with the same batch size face the same choice: one of each kind is enough.
        kinds = {float(size): agent for agent, size in enumerate(profile)}
        gains = ((agent, self.utilities(agent, profile)) for agent in kinds.values())
        return all(
            bool(namespace(options).max(options) <= current[agent] + self._slack(options)) for agent, options in gains
        )

    def safe_ratios(self) -> tuple[float, float]:
        """Return the smallest and largest σ²/V at which the request is a best response while the others cooperate.

        For `agreement`: 1 − 1/ν and 1 + 1/ν where the cost is affine, further apart where it is convex.

        >>> from guerdon import AffineCost
        >>> MinibatchGame(10, 8, AffineCost(1, 1), 32).safe_ratios()
        (0.875, 1.125)
        """
        nu, stake = self.request, self.request * float(self.cost.slope(self.request))
        rest = [size for size in range(1, self.max_batch + 1) if size != nu]
        ratios = {size: float(self.cost(size) - self.cost(nu)) * size / (stake * (size - nu)) for size in rest}
        low = max((ratio for size, ratio in ratios.items() if size < nu), default=0.0)
        return low, min((ratio for size, ratio in ratios.items() if size > nu), default=math.inf)

    def largest_gain(self) -> float:
        """Return what the best size earns beyond the request, while the others cooperate: 0 within `safe_ratios`."""
        utilities = self.utilities(0, [self.request] * self.num_agents)
        return float(namespace(utilities).max(utilities) - utilities[self.request])

    def symmetric_equilibria(self) -> list[int]:
        """Return every batch size s for which all agents playing s is an equilibrium, 0 (none takes part) included."""
        return [s for s in range(self.max_batch + 1) if self.is_equilibrium([s] * self.num_agents)]

    def best_response_path(self, start: Sequence[int], max_steps: int = 1000) -> list[tuple[int, ...]]:
        """Return the profiles that follow when all agents answer the profile before, until one would come again.

        If the last profile is an equilibrium, the path has arrived; otherwise it goes in circles, or
        `max_steps` were not enough.
        """
        path = [tuple(int(size) for size in self._profile(start))]
        while len(path) <= max_steps:
            answers = {size: self.best_response(path[-1].index(size), path[-1]) for size in set(path[-1])}
            profile = tuple(answers[size] for size in path[-1])
            if profile in path:
                break
            path.append(profile)
        return path

    def _reward(self, size: Array, others: Array, inverses: Array) -> Array:
        """Return the expected reward for batch size `size` against `others` participants with Σ 1/S_i = `inverses`."""
        xp = namespace(size)
        if self.curve is not None:
            return xp.where(size > 0, self.curve(xp.where(size > 0, size, 1.0), float(self.request)), 0.0)
        needed = 1 if self.rule in EXACT else 2
        paid = (size > 0) & (others >= needed)
        others = xp.where(others >= needed, others, float(needed))
        mean_inverse = xp.where(paid, inverses / others, 1.0)
        own_inverse = 1 / xp.where(size > 0, size, 1.0)
        crowd = others + 1 if self.crowd == "present" else float(max(self.num_agents, 2))
        constant = crowd / (crowd - 1)
        nu = float(self.request)
        if self.rule == "agreement":
            # Two are as far from each other: both get their cost.
            surplus = xp.where(others > 1, self.ratio * nu**2 * (mean_inverse - own_inverse), 0.0)
        elif self.rule == "known":
            surplus = nu * constant - nu**2 * (own_inverse + mean_inverse / others)
        elif self.rule == "information":
            mean_of_all = (others * mean_inverse + own_inverse) / (others + 1)
            surplus = nu * (mean_inverse * (constant - 1 / others) - own_inverse) / mean_of_all
        else:
            surplus = nu * constant - nu * (own_inverse / mean_inverse + 1 / others) * self._bias(others)
        return xp.where(paid, self.cost(self.request) + self.cost.slope(self.request) * surplus, 0.0)

    def _bias(self, others: Array) -> Array:
        """Return E[1/σ̂²]·E[σ̂²] for a variance estimated from `others` agents: f/(f − 2), infinite for f ≤ 2."""
        if self.dimension == math.inf:
            return 1.0
        freedom = (others - 1) * self.dimension
        xp = namespace(freedom)
        return xp.where(freedom > 2, freedom / xp.where(freedom > 2, freedom - 2, 1.0), math.inf)

    def _slack(self, utilities: Array) -> float:
        rounding = 8 * float(namespace(utilities).finfo(utilities.dtype).eps)
        stake = self.request * self.cost.slope(self.request)
        return max(self.tolerance * stake, rounding * (stake + self.cost(self.request)))

    def _profile(self, sizes: Any) -> Array:
        xp = namespace(sizes)
        profile = xp.asarray(sizes)
        if profile.shape != (self.num_agents,):
            raise ValueError(
                f"`sizes` must have one batch size per agent ({self.num_agents}), got shape {tuple(profile.shape)}"
            )
        if not (xp.isdtype(profile.dtype, "integral") or xp.isdtype(profile.dtype, "real floating")):
            raise TypeError(f"`sizes` must be whole numbers, got dtype {profile.dtype}")
        profile = as_float(xp, profile)
        allowed = (profile >= 0) & (profile <= self.max_batch) & (profile == xp.round(profile))
        if not is_traced(profile) and not bool(xp.all(allowed)):
            raise ValueError(f"`sizes` must be whole numbers from 0 to `max_batch` ({self.max_batch}), got {sizes!r}")
        return profile


def equilibrium_report(game: MinibatchGame, others: int, cost: str) -> dict[str, Any]:
    """Return the game from one agent's side, for JSON."""
    profile = [others] * game.num_agents
    utilities = [float(u) for u in game.utilities(0, profile)]
    costs = [game.cost(size) for size in range(game.max_batch + 1)]
    table = [
        {"batch_size": size, "expected_reward": u + c, "cost": c, "utility": u}
        for size, (u, c) in enumerate(zip(utilities, costs, strict=True))
    ]
    report = {
        "agents": game.num_agents, "request": game.request, "cost": cost, "max_batch": game.max_batch,
        "rule": game.rule, "others": others, "best_response": game.best_response(0, profile),
        "symmetric_equilibria": game.symmetric_equilibria(), "table": table,
        "exact": game.rule in EXACT or game.curve is not None,
    }  # fmt: skip
    if game.rule == "agreement":
        safe = [None if math.isinf(ratio) else ratio for ratio in game.safe_ratios()]  # JSON has no infinity
        report |= {"ratio": game.ratio, "safe_ratios": safe, "largest_gain": game.largest_gain()}
    return report
