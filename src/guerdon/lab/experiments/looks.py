"""Verified work: flat pay that is held until a look. What every cheat earns, and what honest members are paid.

Four parts. Strategies: which rounds a cheat does not work, and when it leaves, in thousands of runs. Attacks: the real
agents of the exploit table, under other rules and under looks. Agreement beside looks. Honest members, whose named rows
an auditor computes again.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from guerdon.lab.experiments import looks_attacks, looks_extras, looks_honest, looks_strategies
from guerdon.lab.experiments.claims import (
    SIGNIFICANT,
    Claim,
    Experiment,
    Mean,
    Tell,
    count_steps,
    mean_over_repetitions,
)
from guerdon.lab.experiments.looks_attacks import FAIR, Earned
from guerdon.lab.experiments.looks_extras import Settled
from guerdon.lab.experiments.looks_figure import draw
from guerdon.lab.experiments.looks_honest import HonestCell
from guerdon.lab.experiments.looks_strategies import STRATEGIES
from guerdon.lab.held import spot_checks
from guerdon.lab.problems.heart import HeartData, load_survey, prepare
from guerdon.lab.problems.hospitals import VARIABLE, Hospitals, load_hospitals
from guerdon.terms import Looks

NAME = "looks"
# Times the repetitions. Where there are 250: 2,000 runs, 1,000 beside agreement (all their reports take 300 MB), and 25
# trainings.
RUNS, BESIDE, TRAININGS = 8.0, 4.0, 0.1
ROUNDS = 200  # of a strategy: four periods
STRICT = "two looks, all"
TERMS: Mapping[str, Looks] = {
    "one look": Looks(looks=1), "two looks, share": Looks(), STRICT: Looks(forfeit="all"),
    "one look, no margin": Looks(looks=1, margin=0), "two looks, share, no margin": Looks(margin=0),
    f"{STRICT}, no margin": Looks(margin=0, forfeit="all"),
}  # fmt: skip
# Of some forty means that are 0 one is beyond 3 standard errors in one of ten seeds, and beyond 4 in one of 400.
SURE = 4.0


class Tried(NamedTuple):
    """A strategy under some terms: profit a round and name, that over honest work, and that over the theorem's."""

    strategy: str
    terms: str
    profit: Mean
    gain: Mean
    beyond: Mean


class Found(NamedTuple):
    """All that was measured."""

    tried: Sequence[Tried]
    earned: Sequence[Earned]
    settled: Mapping[str, Settled]
    cells: Sequence[HonestCell]


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Play all four parts."""
    survey, hospitals = load_survey(), load_hospitals()
    data = prepare(survey)
    runs, trainings = round(RUNS * repetitions), max(2, round(TRAININGS * repetitions))
    settings, members = looks_attacks.settings(data, hospitals), looks_honest.federations(survey, hospitals)
    step = count_steps(tell, 2 + len(settings) + len(members))
    with ThreadPoolExecutor(2) as pool:  # while one problem is compiled, another is played
        attacks = [pool.submit(_attacks, setting, trainings, runs, seed) for setting in settings]
        step("strategies")
        tried = [_try(name, terms, runs, seed) for terms in TERMS for name in STRATEGIES]
        earned = list[Earned]()
        for setting, job in zip(settings, attacks, strict=True):
            step(setting.name)
            earned += job.result()
    step("agreement beside looks")
    settled = _extras(data, round(BESIDE * repetitions), seed)
    cells = list[HonestCell]()
    for one in members:
        step(f"honest members, {one.name}")
        cells += [cell for number in one.rows for cell in looks_honest.play(one, number)]
    found = Found(tried, earned, settled, cells)
    return Experiment(
        NAME, f"Verified work: pay that is held until a look ({data.label})", _caption(found, runs, trainings),
        partial(draw, tried, earned, FAIR), _table(found), tuple(claims(found)), notes=notes(found, hospitals),
        survey=data.label,
    )  # fmt: skip


def _attacks(setting: Any, trainings: int, runs: int, seed: int) -> list[Earned]:
    return list(looks_attacks.earned(setting, TERMS, trainings, runs, seed))


def _extras(data: HeartData, runs: int, seed: int) -> dict[str, Settled]:
    problem = data.regression(looks_strategies.REQUEST)
    return {name: looks_extras.play(problem, name, TERMS[STRICT], runs, seed) for name in looks_extras.BEHAVIOURS}


def _try(strategy: str, terms: str, runs: int, seed: int) -> Tried:
    one = STRATEGIES[strategy]
    played = looks_strategies.play(one, TERMS[terms], ROUNDS, runs, seed)
    sums = played.profit, played.profit - played.honest, played.profit - played.expected
    return Tried(strategy, terms, *(mean_over_repetitions(x / ROUNDS / one.crew) for x in sums))


def claims(found: Found) -> Iterator[Claim]:
    """Return all claims."""
    strict = [one for one in found.tried if one.terms == STRICT]
    yield from (_loses(f"strategy, {one.strategy}", one.gain) for one in strict)
    for problem in dict.fromkeys(one.problem for one in found.earned):
        mine = [one for one in found.earned if one.problem == problem and one.rule == STRICT]
        top = max(mine, key=lambda one: _beyond(one.gain))
        yield _loses(f"{problem}: each of {len(mine)} attacks by real agents; the least sure: {top.attack}", top.gain)
    yield from _claims_without_margin(found)
    yield from _claims_of_the_theorem(found.tried)
    yield from _claims_beside_agreement(found.settled)
    yield from _claims_of_honest(found.cells)


def _beyond(mean: Mean) -> float:
    """Return how many standard errors a mean is above 0; what chance has no part in is as sure as can be.

    A mean of equal numbers keeps their rounding: what is below 1e-9 is 0.
    """
    value = mean.value if abs(mean.value) > 1e-9 else 0.0
    return value / mean.error if mean.error > 1e-9 else float(np.sign(value)) * np.inf if value else 0.0


def _loses(words: str, gain: Mean) -> Claim:
    words = f"{words}: loses against honest work under two looks at all of it, margin 5 %"
    return Claim(NAME, words, "gain below 0, by 3 s.e.", *gain, _beyond(gain) < -SIGNIFICANT)


def _claims_without_margin(found: Found) -> Iterator[Claim]:
    """Claim that no cheat earns more than honest work, which earns 0."""
    for terms in (name for name in TERMS if TERMS[name].margin == 0):
        gains = {one.strategy: one.gain for one in found.tried if one.terms == terms}
        gains |= {f"{one.attack} ({one.problem})": one.gain for one in found.earned if one.rule == terms}
        top = max(gains, key=lambda name: _beyond(gains[name]))
        words = f"{terms}: none of {len(gains)} strategies and attacks gains; most surely: {top}"
        yield Claim(NAME, words, "at most 0, by 3 s.e.", *gains[top], _beyond(gains[top]) <= SIGNIFICANT)


def _claims_of_the_theorem(tried: Sequence[Tried]) -> Iterator[Claim]:
    """Claim that pay is that of the rounds that were worked, where a failed look costs its share."""
    exact = [one for one in tried if TERMS[one.terms].forfeit == "share"]
    top = max(exact, key=lambda one: abs(_beyond(one.beyond)))
    words = f"each of {len(exact)} plays under one look, or two that cost their share, is paid what it worked for"
    words += f"; furthest off: {top.strategy}, {top.terms}"
    yield Claim(NAME, words, f"0 within {SURE:g} s.e.", *top.beyond, abs(_beyond(top.beyond)) <= SURE)


def _claims_beside_agreement(settled: Mapping[str, Settled]) -> Iterator[Claim]:
    """Claim the same of agreement whose extras are settled after looks, and what honest members have beside a cheat."""
    margin = TERMS[STRICT].margin * FAIR
    for name, one in settled.items():
        gain = one.attacker._replace(value=one.attacker.value - margin)
        if name == "honest":
            words = "agreement beside looks: what an honest member earns over the stated margin"
            yield Claim(NAME, words, "0 within 3 s.e.", *gain, abs(_beyond(gain)) <= SIGNIFICANT)
        else:
            yield _loses(f"agreement beside looks, {name}", gain)


def _claims_of_honest(cells: Sequence[HonestCell]) -> Iterator[Claim]:
    for problem in dict.fromkeys(cell.problem for cell in cells):
        mine = [cell for cell in cells if cell.problem == problem]
        members, lengths = (sorted({getattr(cell, name) for cell in mine}) for name in ("members", "rounds"))
        words = (
            f"{problem}: runs of {lengths} rounds and {members} members in which each is paid exactly the stated pay"
        )
        words = words.replace("[", "").replace("]", "")
        exact = float(np.mean([cell.exact and cell.failed == 0 for cell in mine]))
        yield Claim(NAME, words, "all: 1", exact, 0.0, exact == 1)
        error, least = max(cell.error for cell in mine), min(cell.tolerance for cell in mine)
        reports = sum(cell.members * cell.rounds for cell in mine if cell.rounds == max(lengths))
        words = f"{problem}: largest error of {reports:,} honest reports that are computed again, one row at a time"
        yield Claim(NAME, words, f"below the auditors' least tolerance, {least:.1g}", error, 0.0, error < least)


def notes(found: Found, hospitals: Hospitals | None) -> tuple[str, ...]:
    """Return what a reader should know beside the claims."""
    beside = found.settled["the last mean, in turn"].honest
    lost = TERMS[STRICT].margin * FAIR - beside.value
    rare = min(
        (one for one in found.tried if one.terms == "two looks, share" and one.gain.error > 0),
        key=lambda one: abs(_beyond(one.gain)),
    )
    said = [
        "Where a failed look costs its share only, a cheat loses the margin of what it did not work, and no more. "
        "Where that is little, chance hides it in so few runs: "
        f"{rare.strategy}, {rare.gain.value:+.3f} with a standard error of {rare.gain.error:.3f}. There the claim is "
        "the theorem's; that a cheat loses is claimed of two looks at all of it.",
        "With agreement beside looks, honest pay depends on others again. A member that sends the last mean in every "
        f"second round takes {lost:.2f} ± {beside.error:.2f} a round on average from each of five others, by passing. "
        "With flat pay it takes nothing from them.",
    ]
    said.append(
        "What the other rules are worth, by the attack that gains most: as many looks in fifty rounds as would leave "
        f"the best answer to flat pay as much. {'; '.join(_worth(found.earned))}."
    )
    if hospitals is None:
        said.append(f"Without the four hospitals: let {VARIABLE} name the folder of their files.")
    return tuple(said)


def best_attacks(earned: Sequence[Earned]) -> list[Earned]:
    """Return the attack that gains most on each problem under each rule without looks."""
    kinds = dict.fromkeys((one.problem, one.rule) for one in earned if one.rule not in TERMS)
    groups = ([one for one in earned if (one.problem, one.rule) == kind] for kind in kinds)
    return [max(group, key=lambda one: one.gain.value) for group in groups]


def _worth(earned: Sequence[Earned]) -> Iterator[str]:
    for one in best_attacks(earned):
        looks = spot_checks(one.gain.value, FAIR)
        yield f"{one.rule} on the {one.problem} {looks:.2f} ({one.attack} gains {one.gain.value:+.1f} of {FAIR:g})"


def _caption(found: Found, runs: int, trainings: int) -> str:
    looked, failed, exact = (sum(getattr(cell, name) for cell in found.cells) for name in ("looks", "failed", "exact"))
    return (
        "What a cheat earns a round over honest work, as a share of the cost of a round. Above: real agents on real "
        f"problems, {trainings} trainings of {looks_attacks.ROUNDS} rounds. Under flat pay with two looks and a margin "
        "of 5 % all of them lose; under each other rule some gain. Below: strategies that see their candidates, "
        f"without a margin, in {runs:,} runs of {ROUNDS} rounds. One look makes a cheat worth what declining is worth: "
        "0. With two looks that cost all, every cheat loses but never working. Bars are 95 % intervals. Honest members "
        f"were paid exactly what was stated in {exact} of {len(found.cells)} runs, and {failed} of {looked:,} looks "
        "at them failed."
    )


def _table(found: Found) -> pl.DataFrame:
    rows: list[dict[str, Any]] = [
        {"part": "strategy", "what": one.strategy, "terms": one.terms, **_columns("profit", one.profit),
         **_columns("gain", one.gain), **_columns("beyond_theorem", one.beyond)}
        for one in found.tried
    ]  # fmt: skip
    rows += [
        {"part": "attack", "problem": one.problem, "what": one.attack, "terms": one.rule,
         **_columns("profit", one.profit), **_columns("gain", one.gain)}
        for one in found.earned
    ]  # fmt: skip
    rows += [
        {"part": "agreement beside looks", "what": name, "terms": STRICT, **_columns("profit", one.attacker),
         **_columns("at_once", one.at_once), **_columns("others", one.honest)}
        for name, one in found.settled.items()
    ]  # fmt: skip
    rows += [{"part": "honest", **cell._asdict()} for cell in found.cells]
    return pl.DataFrame(rows, infer_schema_length=None)


def _columns(name: str, mean: Mean) -> dict[str, float]:
    return {name: mean.value, f"{name}_error": mean.error}
