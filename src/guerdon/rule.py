"""What a payment rule is: the evidence of a round in, `Payments` out.

A rule is a frozen dataclass with two pure methods: `init(num_agents)` gives the state before the first round, and
`pay(state, round)` gives the payments of a round and the next state. The server may change the request from round to
round. The last axis of all arrays is the agents'; a rule that remembers nothing takes many
rounds at once, with the rounds along axes before it.

The rules themselves are in `agreement` (the paper's, and ours whose scale comes from earlier rounds), `information` and
`controls`; `registry` knows them by name.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import IntEnum, StrEnum
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from guerdon.arrays import Array, as_mask, check_positive_integer, is_array, is_traced, namespace, to_numpy
from guerdon.costs import Cost, check_is_cost
from guerdon.evidence import Evidence
from guerdon.states import NoState, map_state

__all__ = [
    "Facts",
    "Need",
    "Payments",
    "Round",
    "Rule",
    "Status",
    "Truth",
    "as_request",
    "check_round",
    "round_of",
    "statuses",
]

INFINITY = "infinity"

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
    sent: Array  # who sent anything
    request: Any  # how many samples were asked for
    trusted: Array  # whom the others were compared with
    is_last: Any  # whether the run ends with it: what is open, or held, is settled


class Notice(NamedTuple):
    """What a rule says before a round, from earlier rounds: it depends on nothing that agents still choose."""

    own: Array | None = None  # how many samples each agent is asked for; None: as many as all
    reach: float = 0.0  # how far apart two reports may count, in units of the distance 2V/ν of honest work; 0: any
    scale: Any = math.nan  # V; NaN: not known yet
    knowledge: Array | None = None  # how much each agent's reports told so far, relative to the others'; None: as much

    def cut_at(self, nu: Array) -> Array:
        """Return the largest squared distance of two reports that counts, where ν samples are asked for."""
        return 2 * self.reach * namespace(nu).asarray(self.scale, dtype=nu.dtype) / nu


class Payments(NamedTuple):
    """Per agent: what the round earned, what the rule releases now, and what both were computed from.

    For most rules `released` is `earned`. A rule that holds pay back releases it later; what is released may include
    what earlier rounds earned, also for an agent that did not take part in this one. `squared_distance` is D_k,
    `expected` E_k and `variance` V_k of R_k = h(ν) + h'(ν)·ν²/V_k·(E_k − D_k), all three NaN where the rule was not
    applied; `status` holds values of `Status`. Amounts are in units of the cost.
    """

    earned: Array
    released: Array
    squared_distance: Array
    expected: Array
    variance: Array
    status: Array


class Truth(Protocol):
    """What only a simulation knows, at the model that was broadcast."""

    @property
    def gradient(self) -> Array:
        """The true gradient m."""
        ...

    @property
    def variance(self) -> Array:
        """σ², the variance of a single sample's gradient."""
        ...


class Need(StrEnum):
    """What a server must know to pay by a rule, beside what reports say of each other."""

    COSTS = "what work costs"
    REPORTS = "whole reports, to compare each with each"
    ANNOUNCEMENTS = "how many samples agents say they used"
    VALIDATION = "a validation set"
    PREDICTION = "a public prediction of the gradient"
    VARIANCE = "the variance of a gradient"
    TRUTH = "the true gradient"
    TYPES = "which kinds of agents there are"


class Facts(NamedTuple):
    """What a server may know of a round beside the evidence; a rule says in its `needs` what it looks at."""

    reports: Array  # as they came, (agents, numbers)
    prediction: Array  # the public one of the gradient
    announced: Array  # how many samples each agent says it used
    model: Array  # at which the gradients were asked for
    loss: Callable[[Array], Array]  # of a model, on the server's validation set


class Rule(Protocol):
    """A payment rule. A rule has a cost and defines `pay`; all else here has a default.

    The defaults are those of a rule that looks at reports as they come and trusts every agent. What a caller needs to
    know of a rule is asked of the rule: nobody looks at its type. `guerdon.registry.register` makes a rule known to the
    ledger, the command line, the files of experiments and the playground.
    """

    cost: Cost
    rule_name: ClassVar[str] = ""  # under which it is written down
    version: ClassVar[int] = 1  # raised with every change of a number that decides pay: it is written down too
    needs: ClassVar[frozenset[Need]] = frozenset({Need.COSTS})  # what the server must know
    wants_prediction: ClassVar[bool] = False  # evidence is gathered around a public prediction
    wants_truth: ClassVar[bool] = False  # evidence is gathered around the true gradient: in a simulation only
    compares_agents: ClassVar[bool] = True  # with each other: what is stable in how they differ is taken off
    takes_off_answers: ClassVar[bool] = True  # and how each one answers to a dither
    credits_doubtful_pairs: ClassVar[bool] = True  # for agreeing, until they are as good as proven to share something
    compares_pairs: ClassVar[bool] = False  # copies are left out, and reports longer than `limit` allows shortened
    remembers: bool = False  # the pay of a round depends on earlier rounds
    takes_back: ClassVar[bool] = True  # a reward can be negative
    transfers: bool = False  # what one member loses others gain in the same round: no loss may be cut
    holds: ClassVar[bool] = False  # a reward is what a round releases of what was earned so far
    fewest_rounds: ClassVar[int] = 1  # of an agent, that are paid at all: fewer tell too little
    pays_short_moves: ClassVar[bool] = False  # of models: fewer local steps, so less work, are paid more
    formula: ClassVar[str] = ""  # what is in the brackets of R = h(ν) + h'(ν)·ν²/V·(…), in letters
    limit: float = math.inf  # times the median length of the others
    vary: float = 0.0  # agents are asked for up to this share more or less than the request (`Notice.own`)
    samples: int = 0  # of the server's own data, whose gradient evidence is gathered around; 0: it needs none

    def __post_init__(self) -> None:
        check_is_cost(self.cost)

    def init(self, num_agents: int) -> Any:
        """Return the state before the first round."""
        check_positive_integer("num_agents", num_agents)
        return NoState()

    def pay(self, state: Any, round: Round) -> tuple[Payments, Any]:
        """Return the payments of a round, and the next state; `Notice.own`, or `request` of all, were asked for."""
        ...

    @property
    def trust(self) -> Any:
        """What tells whom the others are compared with (a `Trust`); None: everybody that counts."""
        return None

    def scale(self, state: Any) -> Array:
        """Return V, the variance that distances of the next round are measured by; NaN where it is not known."""
        del state
        return np.asarray(np.nan)

    def scaled(self, state: Any, scale: float) -> Any:
        """Return the state as if earlier rounds had given this V, or raise."""
        del state
        raise ValueError(
            f"`scale` must be left out for {self.words()}, which takes none from earlier rounds, got {scale!r}"
        )

    def worst_loss(self, request: Any) -> float:
        """Return the most that a member can lose in one round, below h(ν); infinity: there is no bound."""
        del request
        return math.inf

    def notice(self, state: Any, request: Any) -> Notice:
        """Return what the rule says before a round of `request` samples."""
        del state, request
        return Notice()

    def held(self, state: Any) -> Array | None:
        """Return what each agent would be released if the run ended now; None for a rule that holds nothing."""
        del state
        return None

    def warning(self, state: Any, request: Any) -> str:
        """Return what an operator must know of how the rule does here, at this request; mostly nothing."""
        del state, request
        return ""

    def shrinkage(self, state: Any, request: Any) -> Any:
        """Return the factor ã that a round will be scored with, for simulations: nobody else may see it."""
        del state, request
        return 1.0

    @property
    def wants_witness(self) -> bool:
        """Whether evidence is gathered around a gradient of the server's own data."""
        return self.samples > 0

    @property
    def needs_truth(self) -> bool:
        """Whether only a simulation can pay by it."""
        return self.wants_truth

    def knowing(self, truth: Truth) -> "Rule":
        """Return the rule with what it needs of the truth filled in, in a simulation."""
        del truth
        return self

    def informed(self, facts: Facts) -> "Rule":
        """Return the rule with what the server knows of this round beside the evidence."""
        del facts
        return self

    def curve(self, size: Any, request: Any) -> Any:
        """Return the expected reward of `size` samples where it does not depend on the others; None: it does.

        The playground draws it (`guerdon.lab.game.MinibatchGame`).
        """
        del size, request

    @classmethod
    def choices(cls) -> Mapping[str, Callable[..., "Rule"]]:
        """Return the names by which people choose the rule, and what makes it from a cost (and a number)."""
        return {cls.rule_name: cls}

    def settings(self) -> dict[str, Any]:
        """Return all but the cost, as JSON can hold it; infinity is text."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "cost"}  # pyright: ignore[reportArgumentType]
        return {name: INFINITY if value == math.inf else value for name, value in found.items()}

    @classmethod
    def from_settings(cls, cost: Cost, settings: Mapping[str, Any]) -> "Rule":
        """Return the rule that `settings` described."""
        names = [field.name for field in fields(cls) if field.name != "cost"]  # pyright: ignore[reportArgumentType]
        if set(settings) != set(names):
            raise ValueError(f"its settings must be {', '.join(names)}, got {', '.join(settings)}")
        return cls(cost, **{name: math.inf if value == INFINITY else value for name, value in settings.items()})  # pyright: ignore[reportCallIssue]

    def words(self) -> str:
        """Return what the rule is, in words."""
        return f"{self.rule_name} pay"

    def why(self, distance: float, expected: float) -> str | None:
        """Return in words why a paid agent got more or less than the cost; None: the rule does not say."""
        del distance, expected
        return None

    def bracket(self, distance: float, expected: float) -> tuple[float, float]:
        """Return the two numbers of `formula`."""
        return expected, distance

    def reasons(self) -> Mapping[Status, str]:
        """Return why an agent gets nothing for a round, by status, where the rule has other words for it than most."""
        return {}

    def largest_distance(self, payments: Payments, length: Array) -> Array:
        """Return, per payment, how large the parts of D and E are together: rounding is relative to this."""
        del length
        xp = namespace(payments.squared_distance)
        return xp.abs(payments.expected) + xp.abs(payments.squared_distance)


def round_of(
    evidence: Evidence, sent: Array, request: Any, trusted: Array | None = None, *, is_last: Any = False
) -> Round:
    """Return a round for a rule; the others are compared with all that count unless `trusted` are said."""
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
    """Return payments to agents whose costs are these multiples of the rule's: their rewards are, too."""
    xp = namespace(payments.released)
    own = xp.asarray(factors, dtype=payments.released.dtype)
    return payments._replace(earned=payments.earned * own, released=payments.released * own)


def paid_work(status: Array) -> Array:
    """Tell whose work of the round was paid, from an array of statuses: PAID or WAITING.

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
    """Return the state and who sent, as arrays of the evidence's library, or raise; `kind` is the rule's own state."""
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
    """Return the status of every agent; the first reason not to pay is the one given."""
    xp = namespace(evidence.squared_deviation)
    count = xp.sum(xp.astype(evidence.counted, xp.int32), axis=-1, keepdims=True)
    status = xp.where(variance > 0, Status.PAID.value, Status.NO_VARIANCE.value)
    status = xp.where(count < least_participants, Status.TOO_FEW.value, status)
    status = xp.where((count < 2) & (least_participants > 1), Status.ALONE.value, status)
    status = xp.where(evidence.counted, status, Status.INVALID.value)
    return xp.where(participating, status, Status.DECLINED.value)
