"""What the arena's numbers come to, in words: who wins at what, and where another rule beats ours."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from guerdon.arena.game import RuleResult
from guerdon.arena.settings import ArenaSetting
from guerdon.experiments.claims import SIGNIFICANT, Mean

CEILING = "genie"  # which no server can have: it wins nothing
GOOD = 0.9  # of the best accuracy
DETERRED = 0.02  # of the cost: a gain below it is none


class Verdict(NamedTuple):
    """Who is best at something among all rules that a server can use, and who among ours."""

    what: str
    winner: str
    value: float
    ours: str
    own: float

    @property
    def beaten(self) -> bool:
        """Whether another rule does better than every rule of ours."""
        return self.winner != self.ours

    @property
    def words(self) -> str:
        """The verdict as a sentence."""
        if not self.beaten:
            return f"{self.what}: {self.winner} ({self.value:.3g}), one of ours."
        return f"{self.what}: {self.winner} ({self.value:.3g}); the best of ours is {self.ours} ({self.own:.3g})."


def _beyond(mean: Mean) -> float:
    """Return how far a mean surely is from 0."""
    return max(abs(mean.value) - SIGNIFICANT * mean.error, 0.0)


# Of each: in words, and what is smaller the better, as far as it is not chance.
MEASURES: dict[str, Callable[[RuleResult], float]] = {
    "Least gained by the best answer found": lambda found: _beyond(found.best.gain),
    "Honest pay closest to the cost": lambda found: _beyond(found.rent),
    "Honest pay that differs least between members and runs": lambda found: found.spread,
    "Most work by agents that learn": lambda found: -found.settled.effort,
    "Most accuracy with agents that learn": lambda found: -found.settled.accuracy,
    "Least money for a point of accuracy, among rules that get within a tenth of the best": lambda found: (
        found.settled.price
    ),
}
MONEY = list(MEASURES)[-1]


def verdicts(results: Mapping[str, RuleResult]) -> list[Verdict]:
    """Return who wins at each measure; where rules are equal one of ours is named."""
    usable = {name: found for name, found in results.items() if name != CEILING}
    best = max((found.settled.accuracy for found in usable.values()), default=0.0)
    good = {name: found for name, found in usable.items() if found.settled.accuracy >= GOOD * best}
    made = (_verdict(what, measure, good if what == MONEY else usable) for what, measure in MEASURES.items())
    return [verdict for verdict in made if verdict is not None]


def _verdict(what: str, measure: Callable[[RuleResult], float], usable: Mapping[str, RuleResult]) -> Verdict | None:
    """Return who wins; None where no rule of ours takes part, or nobody has a number."""
    values = {name: measure(found) for name, found in usable.items()}
    ours = [name for name in usable if usable[name].entrant.ours]
    if not ours or not math.isfinite(min(values.values())):
        return None
    own = min(ours, key=values.__getitem__)
    winner = min(usable, key=lambda name: (values[name], name != own))
    return Verdict(what, winner, abs(values[winner]), own, abs(values[own]))


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
    listed = ", ".join(holding) or "none"
    return f"{opening} Rules under which no dishonest answer was found to pay: {listed}."


def deters(found: RuleResult, setting: ArenaSetting) -> bool:
    """Tell whether nothing that was tried gains more than a fiftieth of the cost, as far as can be told."""
    limit = DETERRED * setting.fair
    return found.best.gain.value <= limit + SIGNIFICANT * found.best.gain.error and found.rent.value > -limit - 0.1 * (
        setting.fair
    )


def rule_words(found: RuleResult, setting: ArenaSetting) -> list[str]:
    """Return what was found of a rule, in plain sentences."""
    settled, fair = found.settled, setting.fair
    pays = [own for own, gain in found.gains.items() if gain.value > DETERRED * fair + SIGNIFICANT * gain.error]
    known = "; ".join(found.knows) or "nothing but the reports"
    price = f"{settled.price:.3g}" if math.isfinite(settled.price) else "no end of money"
    return [
        found.entrant.words,
        f"What the server must know: {known}.",
        f"An honest agent is paid {found.rent.value:+.2f} over its cost of {fair:g} (s.e. {found.rent.error:.2f}). "
        f"Between members and runs that differs by {found.spread:.2f} (standard deviation).",
        f"What pays more than honest work: {', '.join(pays) or 'nothing on our list'}.",
        f"The best answer found: {found.best.words}. It gains {found.best.gain.value:+.2f} a round "
        f"(s.e. {found.best.gain.error:.2f}).",
        f"Agents that learn end mostly at “{settled.strategy}”, use {settled.effort:.0%} of the samples asked for, and "
        f"are paid {settled.paid:.1f} a round in all. The model reaches an accuracy of {settled.accuracy:.3f}, and a "
        f"point of accuracy costs {price}.",
        f"In one line: {_in_short(found, setting)}",
    ]


def _in_short(found: RuleResult, setting: ArenaSetting) -> str:
    if deters(found, setting):
        return "honest work is the best that we found here."
    if found.best.gain.value <= DETERRED * setting.fair:
        return "nothing gains over honest work, but honest work is not paid its cost."
    return f"it pays to {_verb(found.best.words)}."


def _verb(words: str) -> str:
    return f"play “{words}”" if "," not in words else f"do this: {words}"
