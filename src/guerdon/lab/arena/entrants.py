"""The rules of the arena by name, each with who it is in plain words. A rule of your own joins with `enter`:

@enter("half-flat", "Pays half of the cost to everybody, and shares the rest by announced samples.")
def half_flat(setting):
    return HalfFlat(setting.cost)
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from guerdon.agreement import EstimatedVariance, FlatPay, OutputAgreement
from guerdon.costs import Cost, ExpressionCost, formula_of
from guerdon.lab.arena.balanced import BalancedVariance
from guerdon.lab.arena.peers import DirectionAgreement, SignAgreement, SquaredDeviation
from guerdon.lab.arena.prices import (
    ContractMenu,
    LocalAccuracy,
    MarketPrice,
    PublicGoods,
    SampleShare,
    StackelbergPrice,
)
from guerdon.lab.arena.repeated import RobustWeights, ZeroDeterminant
from guerdon.lab.arena.reputation import CosineReputation
from guerdon.lab.arena.settings import ArenaSetting
from guerdon.lab.arena.sources import SOURCES
from guerdon.lab.arena.validation import GuidedShapley, LeaveOneOut, LossScore, QualityAuction, ShapleyShare
from guerdon.lab.arena.verified import VerifiedWork
from guerdon.lab.truth import GenieAided, TrueVariance, needs_truth
from guerdon.registry import choices, choose
from guerdon.rule import Need, Rule
from guerdon.statistical.calibrated import CalibratedAgreement
from guerdon.statistical.information import InformationPay
from guerdon.statistical.steady import SteadyPay
from guerdon.terms import Looks
from guerdon.witness import WitnessedPay

Maker: TypeAlias = Callable[[ArenaSetting], Rule]
MARGIN = 0.1  # that steady-plus adds to the cost
CONTROL = "flat"  # which trains the model where all rules are paid beside each other: it trusts everybody


class Entrant(NamedTuple):
    """A rule of the arena: how it is made for a game, what it does in plain words, and whether it is ours.

    `source` is its formula and where it comes from; where it is empty, the docstring of its class says that.
    """

    name: str
    words: str
    make: Maker
    ours: bool = False
    source: str = ""


ENTRANTS: dict[str, Entrant] = {}


def enter(name: str, words: str, ours: bool = False, source: str = "") -> Callable[[Maker], Maker]:
    """Let a rule join the arena under a name; used above a function that makes the rule for a game."""
    if not name or name in ENTRANTS:
        raise ValueError(f"`name` must be a name of its own in the arena, got {name!r}")

    def remember(make: Maker) -> Maker:
        ENTRANTS[name] = Entrant(name, words, make, ours, source)
        return make

    return remember


def entrants(names: Sequence[str] = ()) -> dict[str, Entrant]:
    """Return the rules of these names (default: all of the arena); any rule of `guerdon pay` may be named too."""
    known = dict(ENTRANTS)
    for name in names:
        if name not in known and name.partition(":")[0] in choices():
            known[name] = Entrant(name, "A rule of `guerdon pay`.", _by_name(name))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"a rule of the arena must be one of {', '.join(known)}, got {unknown[0]!r}")
    return {name: known[name] for name in dict.fromkeys(names or known)}


def _by_name(text: str) -> Maker:
    return lambda setting: choose(text, setting.cost)


def scaled(cost: Cost, factor: float) -> Cost:
    """Return a cost times a factor."""
    return ExpressionCost(f"{factor!r} * ({formula_of(cost)})")


def knowledge(rule: Rule) -> list[str]:
    """Return in words what a server must know to pay by a rule."""
    needs = set(rule.needs) - {Need.OTHERS, Need.ONE_STEP}  # what every game here has
    if needs_truth(rule):
        needs.add(Need.VARIANCE)
    if Need.WITNESS in needs:
        needs = needs - {Need.WITNESS} | {Need.VALIDATION}
    return [need.value for need in Need if need in needs]


# From the control to the ceiling: name, words, and what makes the rule for a game.
THEIRS: list[tuple[str, str, Maker]] = [
    ("flat", "Pays the cost to everybody who sends anything. No agent has a reason to work.",
     lambda s: FlatPay(s.cost)),
    ("samples", "Shares the budget by how many samples agents say they used, as FedAvg shares the mean.",
     lambda s: SampleShare(s.cost)),
    ("stackelberg", "Names a price per announced sample. Agents answer with the amount that suits them.",
     lambda s: StackelbergPrice(s.cost)),
    ("contract", "Offers a menu of amounts and rewards, one item for each type of agent, and pays for the item "
     "that an agent says it has fulfilled.", lambda s: ContractMenu(s.cost)),
    ("public-goods", "Lets those who announce less than the others pay those who announce more.",
     lambda s: PublicGoods(s.cost)),
    ("accuracy", "Pays for the local accuracy that an agent says it reached.", lambda s: LocalAccuracy(s.cost)),
    ("market", "Pays a price per announced sample that rises while too few are offered, and falls otherwise.",
     lambda s: MarketPrice(s.cost)),
    ("auction", "Buys from agents with the most quality for their bid. Quality is what their reports took off a "
     "validation loss.", lambda s: QualityAuction(s.cost, s.validation_step)),
    ("zero-determinant", "Pays the cost in this round to those who seemed to cooperate in the last.",
     lambda s: ZeroDeterminant(s.cost)),
    ("robust-weights", "Shares the budget by how much each report would weigh in a robust mean: by its cosine "
     "with the others.", lambda s: RobustWeights(s.cost)),
    ("cosine", "Shares the budget by reputation, which follows the cosine of a report with the weighted sum of all "
     "(CGSV).", lambda s: CosineReputation(s.cost)),
    ("shapley", "Shares the budget by Shapley values: how much each report improves the model, on average over "
     "all coalitions of the others.", lambda s: ShapleyShare(s.cost, s.validation_step)),
    ("gtg-shapley", "Shares the budget by Shapley values as GTG-Shapley estimates them, from few coalitions.",
     lambda s: GuidedShapley(s.cost, s.validation_step)),
    ("leave-one-out", "Shares the budget by how much worse the model would be without each report.",
     lambda s: LeaveOneOut(s.cost, s.validation_step)),
    ("loss-score", "Ranks agents by how much each report alone improves the model, and pays by rank "
     "(Templar's Gauntlet).", lambda s: LossScore(s.cost, s.validation_step)),
    ("signs", "Pays for agreement with the others in the signs of what differs from the public prediction.",
     lambda s: SignAgreement(s.cost)),
    ("directions", "Pays for pointing where the others point, as seen from the public prediction. Length does not "
     "count.", lambda s: DirectionAgreement(s.cost)),
    ("deviation", "Fines each agent for its squared distance to the others' mean, and gives the fines to the "
     "others.", lambda s: SquaredDeviation(s.cost, TrueVariance())),
    ("known", "The paper's rule: pays by the distance to the others' mean, with the variance known.",
     lambda s: OutputAgreement(s.cost, TrueVariance())),
    ("estimated", "The paper's rule with the variance estimated from the others.",
     lambda s: OutputAgreement(s.cost, EstimatedVariance())),
    ("genie", "Pays by the distance to the true gradient, which only a simulation knows: the paper's ceiling.",
     lambda s: GenieAided(s.cost, TrueVariance())),
]  # fmt: skip
OURS: list[tuple[str, str, Maker]] = [
    ("agreement", "Pays by the distance to the others, pair by pair, on a scale from earlier rounds.",
     lambda s: OutputAgreement(s.cost)),
    ("balanced", "The paper's rule with the spread of the round as its scale. Where few samples carry the variance, "
     "one sample pays.", lambda s: OutputAgreement(s.cost, BalancedVariance())),
    ("calibrated", "Pays flat while it learns each agent's own noise, then by distance relative to that.",
     lambda s: CalibratedAgreement(s.cost, calibration=max(1, s.rounds // 4))),
    ("witnessed", "Pays by the distance to a gradient of the server's own data.",
     lambda s: WitnessedPay(s.cost, s.witness_samples)),
    ("information", "Pays for what a report adds to the public prediction.", lambda s: InformationPay(s.cost)),
    ("steady", "Pays by agreement, at most the cost, and releases it only as far as reports tell something.",
     lambda s: SteadyPay(s.cost, period=s.rounds)),
    ("steady-plus", f"Steady pay for {MARGIN:.0%} more than the cost, so that working beats staying idle.",
     lambda s: SteadyPay(scaled(s.cost, 1 + MARGIN), period=s.rounds)),
    ("one-look", "Pays flat for announced work, held until an auditor has computed one round of fifty again.",
     lambda s: VerifiedWork(s.cost, Looks(looks=1, margin=0))),
    ("two-looks", "The same with two rounds of fifty; if one of them was not worked, all is lost.",
     lambda s: VerifiedWork(s.cost, Looks(margin=0, forfeit="all"))),
    ("two-looks-plus", "The same for 5% more than the cost, so that working beats staying away.",
     lambda s: VerifiedWork(s.cost, Looks(forfeit="all"))),
]  # fmt: skip

for _ours, _listed in ((False, THEIRS), (True, OURS)):
    for _name, _words, _make in _listed:
        enter(_name, _words, _ours, SOURCES.get(_name, ""))(_make)
