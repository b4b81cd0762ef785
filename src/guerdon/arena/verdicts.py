"""What the arena's numbers come to, in words: who wins at what, and where another rule beats ours."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from guerdon.arena.game import RuleResult
from guerdon.arena.settings import ArenaSetting
from guerdon.experiments.claims import SIGNIFICANT

CEILING = "genie"  # which no server can have: it wins nothing
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


# Of each: in words, and what is smaller the better.
MEASURES: dict[str, Callable[[RuleResult], float]] = {
    "Least gained by the best answer found": lambda found: max(found.best.gain.value, 0.0),
    "Honest pay closest to the cost": lambda found: abs(found.rent.value),
    "Honest pay that differs least between members": lambda found: found.spread,
    "Most work by agents that learn": lambda found: -found.settled.effort,
    "Most accuracy with agents that learn": lambda found: -found.settled.accuracy,
    "Least money for a point of accuracy": lambda found: found.settled.price,
}


def verdicts(results: Mapping[str, RuleResult]) -> list[Verdict]:
    """Return who wins at each measure; where rules are equal ours is named, and flat pay last."""
    usable = {name: found for name, found in results.items() if name != CEILING}
    ours = [name for name, found in usable.items() if found.entrant.ours]
    if not ours or not usable:
        return []
    made: list[Verdict] = []
    for what, measure in MEASURES.items():
        values = {name: measure(found) for name, found in usable.items()}
        own = min(ours, key=values.__getitem__)
        best = min(usable, key=lambda name: (values[name], name not in ours))
        winner = own if values[best] == values[own] else best
        made.append(Verdict(what, winner, abs(values[winner]), own, abs(values[own])))
    return made


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
