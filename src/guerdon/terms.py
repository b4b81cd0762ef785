"""The terms of a run: when pay is released, who covers losses, and what members must do. Settings only, no database.

They are recorded with the run. A change of them in a running run is a record of its own. Every way to run a federation
(Flower, FLARE, `guerdon serve`, a loop, a pilot) takes the same `Terms`, as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from guerdon.arrays import check_choice, check_number, check_positive_integer
from guerdon.rule import Rule
from guerdon.words import about, can_take_back

Losses: TypeAlias = Literal["carry", "deposit", "floor"]
LOSSES = "carry", "deposit", "floor"


@dataclass(frozen=True)
class AtOnce:
    """What a rule releases is payable at once."""


@dataclass(frozen=True)
class Vesting:
    """What a rule releases is held for so many rounds in which the member takes part; until then a loss can claim it.

    `rounds`: 20 holds more than the noise of pay can take in 20 rounds of every rule that we measured. Half of it lets
    a new name leave with what chance gave it; twice as many hold twice as much money.
    """

    rounds: int = 20

    def __post_init__(self) -> None:
        check_positive_integer("rounds", self.rounds)


Hold: TypeAlias = AtOnce | Vesting


@dataclass(frozen=True)
class Terms:
    """The terms of a run.

    `hold`: until when pay is held: `AtOnce()`, `Vesting(rounds)`. None: as is safe, `Vesting()` where the rule can take
    back more than a round's cost, else at once.

    `losses`: what becomes of a negative reward. "carry" nets it against later ones: for members that are known.
    "deposit" charges it to what the member has deposited: for seats that anybody may take. "floor" cuts it at zero, so
    that the payer covers it: a rule by which others gain what one loses refuses it.

    `deposit`: units that a member must have deposited before it joins.

    `budget`: units for all rounds of the run together; the run ends before a round that it does not cover. None: no
    end.

    `cost_factors`: one multiplier per member. A member with factor 1.5 has 1.5 times the rule's cost and is paid 1.5
    times as much. Others have 1.

    `quorum`: reports that settle a round before its deadline. None: all that were asked.

    `deadline`: seconds after which a round is settled without those that have not reported. None: as the framework has
    it.

    `signatures`: whether a report that its member did not sign is refused.

    `one_step`: whether the operator has made sure that members take one step on all samples that they were asked for.
    A rule that would pay for less work where they take several steps asks for it.

    >>> Terms(hold=Vesting(50), cost_factors={"Basel": 1.5}).losses
    'carry'
    """

    hold: Hold | None = None
    losses: Losses = "carry"
    deposit: float = 0.0
    budget: float | None = None
    cost_factors: Mapping[str, float] = field(default_factory=dict[str, float])
    quorum: int | None = None
    deadline: float | None = None
    signatures: bool = False
    one_step: bool = False

    def __post_init__(self) -> None:
        if self.hold is not None and not isinstance(self.hold, Hold):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"`hold` must be AtOnce() or Vesting(rounds), got {self.hold!r}")
        check_choice("losses", self.losses, LOSSES)
        check_number("deposit", self.deposit, minimum=0)
        for name in ("budget", "deadline"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), minimum=0)
        if self.quorum is not None:
            check_positive_integer("quorum", self.quorum)
        for name, factor in self.cost_factors.items():
            check_number(f"cost_factors[{name!r}]", factor, minimum=0, inclusive=False)

    def under(self, rule: Rule) -> "Terms":
        """Return the terms of a run that pays by a rule, with `hold` said, or raise where they do not fit the rule.

        Where one member's loss is another's gain no loss may be cut: then doing less would pay again.

        >>> from guerdon import AffineCost, FlatPay
        >>> Terms().under(FlatPay(AffineCost(1, 1))).hold
        AtOnce()
        """
        usual = Vesting() if can_take_back(rule) else AtOnce()
        terms = replace(self, hold=usual if self.hold is None else self.hold)
        at_once = isinstance(terms.hold, AtOnce)
        if about(rule).transfers(rule) and (self.losses == "floor" or (self.losses == "deposit" and at_once)):
            raise ValueError(
                f"`losses` must be 'carry' under {about(rule).words(rule)}, or 'deposit' with `hold=Vesting(rounds)`, "
                f"got {self.losses!r}: what one member loses others gain, and a loss that is cut makes less work pay"
            )
        return terms
