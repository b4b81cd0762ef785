"""What the arena's numbers come to, in words: who wins at what, and where another rule beats ours."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from guerdon.arena.contest import RuleResult
from guerdon.arena.settings import ArenaSetting
from guerdon.experiments.claims import SIGNIFICANT, Mean

CEILING = "genie"  # which no server can have: it wins nothing
GOOD = 0.98  # of the best accuracy
WORKING = 0.9  # of the work
DETERRED = 0.02  # of the cost: a gain below it is none


class Verdict(NamedTuple):
    """Who is best at something among all rules that a server can use, and who among ours."""

    what: str
    winner: str
    best: Mean
    ours: str
    own: Mean

    @property
    def beaten(self) -> bool:
        """Whether another rule does better than every rule of ours, by more than chance explains."""
        return self.winner != self.ours

    @property
    def words(self) -> str:
        """The verdict as a sentence."""
        if not self.beaten:
            return f"{self.what}: {self.ours} ({_size(self.own)}), one of ours."
        return f"{self.what}: {self.winner} ({_size(self.best)}); the best of ours is {self.ours} ({_size(self.own)})."


def told(mean: Mean, sign: str = "") -> str:
    """Return a mean and its standard error for people, with as many digits as the error allows, at most three."""
    if not math.isfinite(mean.value):
        return "–"
    digits = min(max(1 - math.floor(math.log10(mean.error)), 0), 3) if mean.error > 0 else 2
    value = f"{round(mean.value, digits) + 0.0:{sign}.{digits}f}".replace("-", "−")
    return f"{value}\u00a0±\u00a0{mean.error:.{digits}f}" if mean.error > 0 else value


def _size(mean: Mean) -> str:
    return told(mean._replace(value=abs(mean.value)))


def _beyond(mean: Mean) -> Mean:
    """Return how far a mean surely is from 0."""
    return Mean(max(abs(mean.value) - SIGNIFICANT * mean.error, 0.0), 0.0)


def _most(mean: Mean) -> Mean:
    return mean._replace(value=-mean.value)


# Of each: in words, and what is smaller the better.
MEASURES: dict[str, Callable[[RuleResult], Mean]] = {
    "Least gained by the best answer found": lambda found: _beyond(found.best.gain),
    "Honest pay closest to the cost": lambda found: _beyond(found.rent),
    "Honest pay that differs least between members and runs": lambda found: found.spread,
    "Most work by agents that learn": lambda found: _most(found.settled.effort),
    "Most accuracy with agents that learn": lambda found: _most(found.settled.accuracy),
    "Least money for a point of accuracy, among rules that get within a fiftieth of the best": lambda found: (
        found.settled.price
    ),
}
MONEY = list(MEASURES)[-1]


def verdicts(results: Mapping[str, RuleResult]) -> list[Verdict]:
    """Return who wins at each measure; where chance explains the difference one of ours is named."""
    usable = {name: found for name, found in results.items() if name != CEILING}
    best = max((found.settled.accuracy.value for found in usable.values()), default=0.0)
    good = {name: found for name, found in usable.items() if found.settled.accuracy.value >= GOOD * best}
    made = (_verdict(what, measure, good if what == MONEY else usable) for what, measure in MEASURES.items())
    return [verdict for verdict in made if verdict is not None]


def _verdict(what: str, measure: Callable[[RuleResult], Mean], usable: Mapping[str, RuleResult]) -> Verdict | None:
    """Return who wins; None where no rule of ours takes part, or nobody has a number."""
    values = {name: measure(found) for name, found in usable.items()}
    ours = [name for name in usable if usable[name].entrant.ours]
    own, winner = (min(names, key=lambda name: values[name].value, default="") for names in (ours, values))
    if not ours or not math.isfinite(values[winner].value):
        return None
    chance = SIGNIFICANT * math.hypot(values[winner].error, values[own].error)
    surely = not values[own].value - values[winner].value <= chance  # also where ours has no number at all
    return Verdict(what, winner if surely else own, values[winner], own, values[own])


def first_paragraph(setting: ArenaSetting, results: Mapping[str, RuleResult]) -> str:
    """Return what a reader must know first: where another rule beats ours, and what pays under which rule."""
    made = verdicts(results)
    beaten = [verdict for verdict in made if verdict.beaten]
    if beaten:
        opening = f"Other rules beat ours at {len(beaten)} of {len(made)} measures here. "
        opening += " ".join(verdict.words for verdict in beaten)
    else:
        opening = f"No other rule beats ours at any of the {len(made)} measures here."
    holding = [name for name, found in results.items() if deters(found, setting) and name != CEILING]
    closing = f" Rules under which no dishonest answer was found to pay: {', '.join(holding) or 'none'}."
    idle = [name for name in holding if not works(results[name])]
    if idle:
        closing += (
            f" But agents that learn do not all keep working under {', '.join(idle)}: idle is too nearly as good."
        )
    return opening + closing


def works(found: RuleResult) -> bool:
    """Tell whether agents that learn do nine tenths of the work on average."""
    return found.settled.effort.value >= WORKING


def deters(found: RuleResult, setting: ArenaSetting) -> bool:
    """Tell whether nothing that was tried gains more than a fiftieth of the cost, as far as can be told."""
    limit = DETERRED * setting.fair
    return found.best.gain.value <= limit + SIGNIFICANT * found.best.gain.error and found.rent.value > -limit - 0.1 * (
        setting.fair
    )


def knowledge_of(found: RuleResult) -> str:
    """Return what a server must know to pay by a rule."""
    return "; ".join(found.knows) or "nothing but the reports"


def rule_words(found: RuleResult, setting: ArenaSetting) -> list[str]:
    """Return what was found of a rule, in plain sentences."""
    settled, fair = found.settled, setting.fair
    pays = [own for own, gain in found.gains.items() if gain.value > DETERRED * fair + SIGNIFICANT * gain.error]
    bought = math.isfinite(settled.price.value)
    price = f", and a point of accuracy costs {told(settled.price)}" if bought else ": the money bought nothing"
    best = f"The best answer found: {found.best.words}. It gains {told(found.best.gain, '+')} a round."
    return [
        found.entrant.words,
        f"What the server must know: {knowledge_of(found)}.",
        f"Honest agents are paid {told(found.rent, '+')} over their cost of {fair:g}. "
        f"Between members and runs that differs by {told(found.spread)} (standard deviation).",
        f"What pays more than honest work: {', '.join(pays) or 'nothing on our list'}.",
        "No answer was found that gains over honest work." if found.best.words == "honest" else best,
        f"Agents that learn end mostly at “{settled.strategy}” ({settled.share:.0%} of them), use "
        f"{settled.effort.value:.0%} of the samples asked for (s.e. {settled.effort.error:.0%}), and are paid "
        f"{told(settled.paid)} a round in all. The model reaches an accuracy of "
        f"{told(settled.accuracy)}{price}.",
        f"In one line: {_in_short(found, setting)}",
    ]


def _in_short(found: RuleResult, setting: ArenaSetting) -> str:
    if deters(found, setting) and not works(found):
        return (
            "nothing gains over honest work, but idle is too nearly as good: agents that learn do not all keep working."
        )
    if deters(found, setting):
        return "honest work is the best that we found here."
    if found.best.gain.value <= DETERRED * setting.fair:
        return "nothing gains over honest work, but honest work is not paid its cost."
    return f"it pays to {_verb(found.best.words)}."


def _verb(words: str) -> str:
    return f"play “{words}”" if "," not in words else f"do this: {words}"
