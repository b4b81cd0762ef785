"""What the arena's numbers come to, in words: who wins at what, and where another rule beats ours."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from guerdon.lab.arena.contest import RuleResult
from guerdon.lab.arena.settings import ArenaSetting
from guerdon.lab.arena.strategies import STRATEGIES
from guerdon.lab.experiments.claims import SIGNIFICANT, Mean
from guerdon.lab.held import spot_checks
from guerdon.rule import Need

CEILING = "genie"  # which no server can have: it wins nothing
GOOD = 0.98  # of the best accuracy
WORKING = 0.9  # of the work
DETERRED = 0.02  # of the cost: a gain below it is none
ALIKE = 0.1  # relative difference of two rules of which one is as good as the other
LEAST_ERROR = 0.0005  # that is told
EQUIVALENCE = (
    "A rule is worth so many looks in fifty rounds as leave the best answer to flat pay the gain that the best answer "
    "found has under the rule."
)


class Verdict(NamedTuple):
    """Who is best at something among all rules that a server can use, and who among ours."""

    what: str
    winner: str
    best: Mean
    ours: str
    own: Mean
    as_good: tuple[str, ...] = ()  # rules of others that chance does not tell from the best of ours

    @property
    def beaten(self) -> bool:
        """Whether another rule does better than every rule of ours, by more than chance explains."""
        return self.winner != self.ours

    @property
    def words(self) -> str:
        """The verdict as a sentence."""
        if not self.beaten:
            others = f" As good, as far as can be told: {', '.join(self.as_good)}." if self.as_good else ""
            return f"{self.what}: {self.ours} ({_size(self.own)}), one of ours.{others}"
        return f"{self.what}: {self.winner} ({_size(self.best)}); the best of ours is {self.ours} ({_size(self.own)})."


def told(mean: Mean, sign: str = "") -> str:
    """Return a mean and its standard error for people, with as many digits as the error allows, at most three.

    An error that these digits do not show is left out, and so are zeros at the end.
    """
    if not math.isfinite(mean.value):
        return "–"
    if not mean.error >= LEAST_ERROR:
        plain = f"{mean.value:{sign},.{3 if abs(mean.value) < 10 else 2}f}".rstrip("0").rstrip(".")
        return "0" if plain.strip("+-") in ("", "0") else plain.replace("-", "−")
    digits = min(max(1 - math.floor(math.log10(mean.error)), 0), 3)
    value = f"{round(mean.value, digits) + 0.0:{sign},.{digits}f}".replace("-", "−")
    return f"{value}\u00a0±\u00a0{mean.error:,.{digits}f}"


def told_share(mean: Mean) -> str:
    """Return a share and its standard error in per cent."""
    return f"{mean.value:.0%}\u00a0±\u00a0{100 * mean.error:.0f}" if mean.error >= 0.005 else f"{mean.value:.0%}"


def _size(mean: Mean) -> str:
    return told(mean._replace(value=abs(mean.value)))


def _beyond(mean: Mean) -> Mean:
    """Return how far a mean surely is from 0."""
    return Mean(max(abs(mean.value) - SIGNIFICANT * mean.error, 0.0), 0.0)


def _most(mean: Mean) -> Mean:
    return mean._replace(value=-mean.value)


def worth_looks(found: RuleResult, fair: float) -> Mean:
    """Return the spot-check equivalence of a rule, where a round costs `fair`: `EQUIVALENCE` says what it is."""
    return Mean(spot_checks(found.best.gain.value, fair), found.best.gain.error / fair)


# Of each: in words, and what is smaller the better.
MEASURES: dict[str, Callable[[RuleResult], Mean]] = {
    "Least gained by the best answer found, beyond chance": lambda found: _beyond(found.best.gain),
    "Honest pay closest to the cost, beyond chance": lambda found: _beyond(found.rent),
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
    # A rule surely does better also where ours has no number at all.
    surely = not _close(values[own], values[winner])
    as_good = tuple(name for name in values if name not in ours and _as_good(values[name], values[own]))
    return Verdict(what, winner if surely else own, values[winner], own, values[own], as_good)


def _as_good(one: Mean, other: Mean) -> bool:
    """Tell whether chance explains what one lacks, and it is not much: a number that is known badly is not good."""
    return _close(one, other) and one.value - other.value <= ALIKE * abs(other.value)


def _close(one: Mean, other: Mean) -> bool:
    """Tell whether one is at most as far above the other as chance explains."""
    return one.value - other.value <= SIGNIFICANT * math.hypot(one.error, other.error)


def first_paragraph(setting: ArenaSetting, results: Mapping[str, RuleResult]) -> str:
    """Return what a reader must know first: where another rule beats ours, and what pays under which rule."""
    made = verdicts(results)
    beaten = [verdict for verdict in made if verdict.beaten]
    if beaten:
        opening = f"Other rules beat ours at {len(beaten)} of {len(made)} measures here. "
        opening += " ".join(verdict.words for verdict in beaten)
    elif made:
        opening = f"No other rule beats ours at any of the {len(made)} measures here."
    else:
        opening = "No rule of ours was played, so that nothing is said of ours."
    holding = [name for name, found in results.items() if deters(found, setting) and name != CEILING]
    closing = f" Rules under which no dishonest answer was found to pay, beyond chance: {', '.join(holding) or 'none'}."
    idle = [name for name in holding if not works(results[name])]
    if idle:
        closing += (
            f" But agents that learn do not all keep working under {', '.join(idle)}: being idle is nearly as good."
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
    limit = DETERRED * setting.fair
    pays = [own for own, gain in found.gains.items() if gain.value > limit + SIGNIFICANT * gain.error]
    gaining = f"by more than {limit:.2g} a round (a fiftieth of its cost) and beyond chance"
    return [
        found.entrant.words,
        f"In short: {_in_short(found, setting)}",
        f"What the server must know: {knowledge_of(found)}.",
        f"{_rent_words(found.rent, setting.fair)} {_spread_words(found.spread)}",
        f"Strategies of our list that gain over honest work, {gaining}: {', '.join(pays) or 'none'}.",
        _best_words(found),
        f"It is worth {told(worth_looks(found, setting.fair))} looks in fifty rounds. {EQUIVALENCE}",
        _settled_words(found, setting.fair * setting.agents),
    ]


def _rent_words(rent: Mean, fair: float) -> str:
    if abs(rent.value) < LEAST_ERROR > rent.error:
        return f"Honest agents are paid their cost of {fair:g} a round, exactly."
    if abs(rent.value) <= SIGNIFICANT * rent.error:
        return f"Honest agents are paid their cost of {fair:g} a round, as far as can be told ({told(rent, '+')})."
    much = "more" if rent.value > 0 else "less"
    return f"Honest agents are paid {_size(rent)} a round {much} than their cost of {fair:g}."


def _spread_words(spread: Mean) -> str:
    if spread.value < LEAST_ERROR:
        return "All of them get the same."
    return f"Between members and runs their pay differs by {told(spread)} a round (standard deviation)."


def _best_words(found: RuleResult) -> str:
    words, gain = found.best
    if words == "honest":
        return "The search found no answer that gains over honest work."
    answer = f"“{words}”, an agent that {STRATEGIES[words].words}" if words in STRATEGIES else f"an agent that {words}"
    if gain.value <= SIGNIFICANT * gain.error:
        return f"The best answer found gains no more than chance explains ({told(gain, '+')} a round): {answer}."
    return f"The best answer found gains {told(gain)} a round over honest work: {answer}."


def _settled_words(found: RuleResult, by_all: float) -> str:
    settled = found.settled
    sentences = [
        f"Agents that learn end mostly at “{settled.strategy}” ({settled.share:.0%} of them).",
        f"They use {told_share(settled.effort)} of the samples asked for.",
        f"In all they are paid {told(settled.paid)} a round; honest work by all costs {by_all:g}.",
        f"The model reaches an accuracy of {told(settled.accuracy)}.",
    ]
    if settled.strategy == "false claim" and Need.ANNOUNCEMENTS.value not in found.knows:
        sentences.insert(1, "This rule does not read claims, so that “false claim” is honest work here.")
    if math.isfinite(settled.price.value):
        sentences.append(f"A point of it (0.01) costs {told(settled.price)} over the whole training.")
    elif settled.paid.value <= -LEAST_ERROR:
        sentences.append("Agents pay the server, so that a point of it has no price.")
    elif settled.paid.value < LEAST_ERROR:
        sentences.append("Nobody is paid, so that a point of it has no price.")
    else:
        sentences.append("The money bought nothing.")
    return " ".join(sentences)


def _in_short(found: RuleResult, setting: ArenaSetting) -> str:
    if deters(found, setting) and not works(found):
        return (
            "nothing that we tried gains over honest work, but being idle is nearly as good. Agents that learn do not "
            "all keep working."
        )
    if deters(found, setting):
        return "nothing that we tried gains over honest work, and agents that learn keep working."
    if found.best.gain.value <= DETERRED * setting.fair:
        return "nothing that we tried gains over honest work, but honest work is not paid its cost."
    after = "agents that learn keep working" if works(found) else "agents that learn do less than was asked for"
    return f"honest work is not the best answer. Another one gains {told(found.best.gain)} a round, and {after}."
