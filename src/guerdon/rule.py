"""What a payment rule is: the evidence of a round in, `Payments` out.

`init(num_agents)` gives the state before the first round, and `pay(state, round)` the payments of a round and the next
state. The server may change the request from round to round. The last axis of all arrays is the agents'; a rule that
remembers nothing takes many rounds at once, with the rounds along axes before it.

The rules themselves are in `agreement` (the paper's, and ours whose scale comes from earlier rounds), `witness` and
`statistical`; `registry` knows them by name.
"""

import math
from enum import IntEnum, StrEnum
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from guerdon.arrays import Array, as_mask, check_positive_integer, is_array, is_traced, namespace, to_numpy
from guerdon.costs import Cost, check_is_cost
from guerdon.evidence import Evidence
from guerdon.states import NoState, map_state

__all__ = [
    "Need",
    "Payments",
    "Round",
    "Rule",
    "Status",
    "as_request",
    "check_round",
    "round_of",
    "statuses",
]

# A difference of squares cannot be resolved below this part of them: less is rounding. It matters for an agent a
# thousand times further out than the rest, or the only one that differs, and keeps its (very negative) reward finite.
RESOLUTION = 1e-6

State = TypeVar("State", bound=tuple[Any, ...])


class Status(IntEnum):
    """What became of an agent's work in a round.

    PAID and WAITING pay it (`is_paid`). The others pay nothing for this round. Their reward is 0, or what a rule
    settles of earlier rounds.
    """

    PAID = 0  # by the rule
    DECLINED = 1  # it sent nothing
    ALONE = 2  # nobody else took part: there is nothing to compare it with
    TOO_FEW = 3  # two took part, and the variance cannot be estimated from one other agent
    NO_VARIANCE = 4  # all gradients were identical, so distances have no scale
    INVALID = 5  # what it sent held NaN, infinity or a number too large to square, or was malformed: treated as absent
    WAITING = 6  # paid its cost; the round's extra follows once the scale of distances is known

    @property
    def is_paid(self) -> bool:
        """Whether the work of the round was paid, at least at its cost."""
        return self in (Status.PAID, Status.WAITING)

    @property
    def label(self) -> str:
        """The name as people read it: 'too-few'."""
        return self.name.lower().replace("_", "-")


PAID_LABELS = tuple(status.label for status in Status if status.is_paid)


class Round(NamedTuple):
    """All that a rule is told of a round; the ledger keeps every part of it. `round_of` makes one."""

    evidence: Evidence  # how the reports compare
    sent: Array  # booleans (agents,): the agents that sent anything
    request: Any  # ν, how many samples each agent was asked for
    trusted: Array  # the agents that the others were compared with
    is_last: Any  # whether the run ends with it: what is open, or held, is settled


class Notice(NamedTuple):
    """What a rule says before a round, from earlier rounds: it depends on nothing that agents still choose."""

    own: Array | None = None  # (agents,): how many samples each agent is asked for; None: ν
    reach: float = 0.0  # how far apart two reports may count, in units of the distance 2V/ν of honest work; 0: any
    scale: Any = math.nan  # V; NaN: not known yet
    knowledge: Array | None = None  # how much each agent's reports told so far, relative to the others'; None: as much

    def cut_at(self, nu: Array) -> Array:
        """Return the largest squared distance of two reports that counts: reach · 2V/ν, for a request of ν samples."""
        return 2 * self.reach * namespace(nu).asarray(self.scale, dtype=nu.dtype) / nu


class Payments(NamedTuple):
    """Per agent: what the round earned, what the rule releases now, and what both were computed from.

    All are arrays (agents,).

    - `earned`: what the work of this round is worth, in units of money.
    - `released`: what the rule lets go of now, in units of money. For most rules that is `earned`. A rule that holds
      pay back releases it later: then it may include what earlier rounds earned, also for an agent that did not take
      part in this one.
    - `squared_distance`, `expected`, `variance`: D_k, E_k and V_k of R_k = h(ν) + h'(ν)·ν²/V_k·(E_k − D_k). All three
      are NaN where the rule was not applied.
    - `status`: values of `Status`.
    """

    earned: Array
    released: Array
    squared_distance: Array
    expected: Array
    variance: Array
    status: Array


class Need(StrEnum):
    """What a rule must be told, or must be sure of, beside the evidence of a round: a server that cannot refuses it."""

    COSTS = "what work costs"
    OTHERS = "reports of others, to compare with"
    ONE_STEP = "one step of every member, on all samples that it was asked for"
    REPORTS = "whole reports, to compare each with each"
    ANNOUNCEMENTS = "how many samples agents say they used"
    VALIDATION = "a validation set"
    WITNESS = "a gradient of the server's own data"
    PREDICTION = "a public prediction of the gradient"
    VARIANCE = "the variance of a gradient"
    TRUTH = "the true gradient"
    TYPES = "which kinds of agents there are"
    AUDITOR = "an auditor who computes a few reports again"


class Rule(Protocol):
    """A payment rule: six members, all of which the ledger records, and verifies years later.

    A rule is a frozen dataclass. Its fields are its settings, as JSON can hold them. What people read of it, and what
    operators must know of it, is not here but in its `guerdon.words.About`.

    - `name`: under which it is written down.
    - `version`: raised with every change of a number that decides pay.
    - `needs`: what the server must know, or be sure of.
    - `cost`: h(s), what a member's work costs.
    - `init(num_agents)`: the state before the first round.
    - `pay(state, round)`: the payments of a round, and the next state.

    A rule that decides something before a round, from earlier rounds, says it by `notice` (see `Announcing`).
    """

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    needs: ClassVar[frozenset[Need]] = frozenset({Need.COSTS})
    cost: Cost

    def __post_init__(self) -> None:
        check_is_cost(self.cost)

    def init(self, num_agents: int) -> Any:
        """Return the state before the first round, for so many agents."""
        check_positive_integer("num_agents", num_agents)
        return NoState()

    def pay(self, state: Any, round: Round) -> tuple[Payments, Any]:
        """Return the payments of a round, and the next state.

        - `state`: what `init`, or `pay` of the round before, returned.
        - `round`: the evidence, who sent, the request, who is trusted, and whether the run ends.
        """
        ...


@runtime_checkable
class Announcing(Protocol):
    """A rule that says something before a round: where distances are cut, or what each agent is asked for."""

    def notice(self, state: Any, request: Any) -> Notice:
        """Return what the rule says before a round of `request` samples."""
        ...


def notice_of(rule: Rule, state: Any, request: Any) -> Notice:
    """Return what a rule says before a round of `request` samples; nothing, where it has nothing to say."""
    return rule.notice(state, request) if isinstance(rule, Announcing) else Notice()


def remembers(rule: Rule) -> bool:
    """Tell whether the pay of a round depends on earlier rounds.

    >>> from guerdon import AffineCost, FlatPay
    >>> remembers(FlatPay(AffineCost(1, 1)))
    False
    """
    return not isinstance(rule.init(1), NoState)


def round_of(
    evidence: Evidence, sent: Array, request: Any, trusted: Array | None = None, *, is_last: Any = False
) -> Round:
    """Return a round for a rule.

    - `evidence`: from `gather`.
    - `sent`: booleans (agents,), the mask that `evidence` was gathered with.
    - `request`: ν, in samples.
    - `trusted`: booleans (agents,), the agents that the others were compared with. None: all that count.
    - `is_last`: whether the run ends with this round.
    """
    return Round(evidence, sent, request, evidence.counted if trusted is None else trusted, is_last)


def as_recorded(round: Round) -> Round:
    """Return a round in NumPy, its evidence in float64: as the ledger keeps it, and pays it again from the same bits.

    Within a function that JAX compiles there is no NumPy: there it stays as it is.
    """
    if is_traced(*round.evidence, round.sent, round.request, round.trusted):
        return round
    sent, trusted = to_numpy(round.sent), to_numpy(round.trusted)
    return round._replace(evidence=round.evidence.as_recorded(), sent=sent, trusted=trusted)


def times(payments: Payments, factors: Any) -> Payments:
    """Return payments times a cost factor: an agent with factor 1.5 has 1.5 times the cost, and the pay.

    - `payments`: by the rule's own cost.
    - `factors`: one multiplier for all, or one per agent (agents,).
    """
    xp = namespace(payments.released)
    cost_factors = xp.asarray(factors, dtype=payments.released.dtype)
    return payments._replace(earned=payments.earned * cost_factors, released=payments.released * cost_factors)


def paid_work(status: Array) -> Array:
    """Return which work of the round was paid, from an array of statuses: PAID or WAITING.

    >>> paid_work(np.array([0, 1, 5, 6]))
    array([ True, False, False,  True])
    """
    return (status == Status.PAID.value) | (status == Status.WAITING.value)


def check_whole(rule: Rule, name: str) -> None:
    """Raise unless a rule's field is a whole number of at least 1; one that a command line gave as 50.0 becomes 50."""
    value = getattr(rule, name)
    if isinstance(value, float) and value.is_integer():
        object.__setattr__(rule, name, int(value))
    check_positive_integer(name, getattr(rule, name))


def padded(empty: Any, state: Any) -> Any:
    """Return a rule's state for the agents of `empty`; the first of them have the given state.

    Newcomers come last and start from nothing; so do all where there is no state, or that of another rule.
    """
    if type(state) is not type(empty):
        return empty

    def longer(new: Any, old: Any) -> Any:
        if is_common(new):
            return old
        if hasattr(new, "_fields"):
            return padded(new, old)
        return np.concatenate([old, new[..., old.shape[-1] :]], axis=-1)

    return type(empty)(*map(longer, empty, state))


def is_common(part: Any) -> bool:
    """Tell whether a part of a rule's state belongs to no single agent: such a part is a state that says so."""
    return getattr(part, "agents", 0) is None


def check_round(state: State, round: Round, kind: type = tuple) -> tuple[State, Array]:
    """Return the state, and the mask of agents that sent, as arrays of the evidence's library; raise where they differ.

    - `state`: as it was handed to `pay`.
    - `round`: as it was handed to `pay`.
    - `kind`: the class of the rule's own state.
    """
    evidence, request = round.evidence, round.request
    if not isinstance(state, kind):
        what = "a state of the rule" if kind is tuple else f"of type {kind.__name__}"
        raise TypeError(
            f"`state` must be {what}, got {type(state).__name__}: begin with the rule's `init(num_agents)`, and hand "
            "on what `pay` returned in the round before"
        )
    if not is_array(evidence.squared_deviation):
        raise TypeError(
            f"`evidence` must come from `gather`, got {type(evidence.squared_deviation).__name__} for a deviation"
        )
    xp = namespace(evidence.squared_deviation)
    num_agents = evidence.squared_deviation.shape[-1]
    if evidence.squared_deviation.ndim == 1:
        if is_array(request) and request.ndim:
            raise TypeError(f"`request` must be a positive integer, one for all members of a round, got {request!r}")
        check_positive_integer("request", request)
    mask = as_mask(xp, round.sent, evidence.squared_deviation.shape, "sent")
    if state and _agents_of(state) != num_agents:
        raise ValueError(
            f"`state` must be of the {num_agents} agents of this round, got one of {_agents_of(state)}; "
            "enrol everybody in `init` and tell who is absent through `sent`"
        )
    if not is_traced(mask, evidence.counted) and bool(xp.any(evidence.counted & ~mask)):
        raise ValueError("`sent` must be the mask that `evidence` was gathered with, got another")
    trusted = as_mask(xp, round.trusted, evidence.squared_deviation.shape, "trusted")
    if not is_traced(trusted, evidence.counted) and bool(xp.any(trusted & ~evidence.counted)):
        raise ValueError("`trusted` must be agents that `evidence` counts, got others")

    def as_own(part: Array) -> Array:
        return xp.asarray(part, dtype=evidence.squared_deviation.dtype)

    return map_state(as_own, state), mask


def _agents_of(state: Any) -> int:
    """Return of how many agents a state is."""
    part = next(part for part in state if not is_common(part))
    return _agents_of(part) if hasattr(part, "_fields") else part.shape[-1]


def as_request(evidence: Evidence, request: Any) -> Array:
    """Return a request as an array of the evidence's library and type."""
    return namespace(evidence.squared_deviation).asarray(request, dtype=evidence.squared_deviation.dtype)


def statuses(evidence: Evidence, participating: Array, least_participants: int, variance: Array) -> Array:
    """Return the status of every agent (…, agents); the first reason not to pay is the one given.

    - `evidence`: which agents are counted.
    - `participating`: booleans (…, agents), the agents that sent anything.
    - `least_participants`: how many agents the rule needs.
    - `variance`: V, which must be above 0 to be divided by.
    """
    xp = namespace(evidence.squared_deviation)
    count = xp.sum(xp.astype(evidence.counted, xp.int32), axis=-1, keepdims=True)
    status = xp.where(variance > 0, Status.PAID.value, Status.NO_VARIANCE.value)
    status = xp.where(count < least_participants, Status.TOO_FEW.value, status)
    status = xp.where((count < 2) & (least_participants > 1), Status.ALONE.value, status)
    status = xp.where(evidence.counted, status, Status.INVALID.value)
    return xp.where(participating, status, Status.DECLINED.value)
