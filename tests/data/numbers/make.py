"""Writes what every rule pays today in the scene of `tests.support.one_server_scene`, one file for each rule.

    python -m tests.data.numbers.make            # in the root; of some rules: add their names

The plain server plays the scene, in float64, with a dither that is drawn from a seed: alike and not, with and without a
dither, gradients and models. Each file holds, by case and field, an array (rounds, agents): what was paid and why, the
evidence, who is trusted, what the model is made from; and the length of each round's mean. A change of the code that is
to change nothing must find the same numbers (`tests/test_recorded_numbers.py`). If a number is meant to change, run
this script, and say in the commit which and why.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tests.support.one_server_scene import (
    AGENTS,
    COST,
    DIM,
    JOINS,
    PLAIN,
    REQUESTS,
    ROUNDS,
    RULE,
    STEP,
    TRUSTING,
    calm_scene,
    scene,
)

from guerdon import CalibratedAgreement, InformationPay, SteadyPay, WitnessedPay
from guerdon.rule import Need, Rule
from guerdon.statistical.dithers import Dither
from guerdon.statistical.lenses import suspicion_of
from guerdon.statistical.predictions import Extrapolation, RunningMean, ZeroPrediction
from guerdon.statistical.servers import server_for
from guerdon.witness import WitnessSample, witness_samples
from guerdon.words import about

HERE = Path(__file__).parent
VARIANCE = 12.0  # σ² of one sample, for the rule that has a witness
PER_AGENT = (
    "released", "squared_distance", "expected", "variance", "status",  # payments
    "squared_deviation", "pair_distance", "squared_length", "alignment", "counted",  # evidence
    "trusted", "weights",  # and which part of each report is in the mean
    "against",  # what the bets against each agent have become; NaN where there are none
    "held",  # NaN where nothing is
)  # fmt: skip

Numbers = dict[str, Any]  # field: (rounds, agents), and `mean`: (rounds,)


class Case(NamedTuple):
    """A rule, and how its server is made."""

    rule: Rule
    options: dict[str, Any]
    scene: Callable[[int], Any] = scene
    settles: bool = False  # in every round, as if it were the last one


def play(case: Case, sent: Any, present: Any, normals: Any) -> Numbers:
    """Play the scene on the server as it is today: the one function to change when its API does.

    `normals` (rounds, dim) place the dither, and the witness. The last round closes: what is open or held is settled.
    """
    numbers: Numbers = {name: np.full((ROUNDS, AGENTS), np.nan) for name in PER_AGENT} | {"mean": np.zeros(ROUNDS)}
    server, model = server_for(case.rule, REQUESTS, **case.options), np.zeros(DIM)
    state = server.init(model, int(np.sum(JOINS == 0)))
    for turn in range(ROUNDS):
        joined = int(np.sum(turn >= JOINS))
        state = server.enlarge(state, joined)
        ask, state = server.ask(state, model, normals[turn] if server.broadcast.learns else None)
        reports = sent[turn] if server.sends == "gradients" else ask.model - STEP * sent[turn]
        witness = WitnessSample(1 + 0.2 * normals[turn], np.array(VARIANCE), witness_samples(case.rule))
        ask = ask._replace(
            witness=witness if (Need.WITNESS in case.rule.needs) else None, is_last=case.settles or turn == ROUNDS - 1
        )
        done, state = server.settle(state, ask, reports[:joined], present[turn, :joined])
        model = model - done.step * done.mean
        found = done.reading
        values = done.payments._asdict() | done.evidence._asdict() | {"trusted": found.trusted}
        values["weights"] = np.where(found.used, found.parts, 0.0)
        values["against"] = suspicion_of(server.lens, state.lens)
        values["held"] = about(case.rule).held(case.rule, state.rule)
        for name in PER_AGENT:
            numbers[name][turn, :joined] = np.nan if values[name] is None else values[name]
        numbers["mean"][turn] = np.linalg.norm(done.mean)
    return numbers


DITHER, LEARNING = Dither(0.3, COST), {"dither": Dither(0.3, COST), "prediction": Extrapolation()}
MODELS = {"models": {"sends": "models", "alike": True},
          "models, dithered": {"sends": "models", "dither": DITHER, "alike": False}}  # fmt: skip


def cases(rule: Rule, dither: dict[str, Any], **others: dict[str, Any]) -> dict[str, Case]:
    """Return the four ways in which every rule is played, and others."""
    ways: dict[str, dict[str, Any]] = {
        "alike": {"alike": True}, "different": {"alike": False},
        "alike, dithered": {"alike": True} | dither, "different, dithered": {"alike": False} | dither,
    }  # fmt: skip
    return {name: Case(rule, options) for name, options in (ways | others).items()}


def settled(played: dict[str, Case]) -> dict[str, Case]:
    """Return cases in which every round settles what is held."""
    return {name: case._replace(settles=True) for name, case in played.items()}


FIRST = {"dither": DITHER}
INFORMATION = {
    "dither as it is": {"dither": Dither(0.3), "prediction": RunningMean(), "alike": False},
    "no prediction": {"prediction": ZeroPrediction(), "alike": True},
}
# Short periods and calibrations, so that thirty rounds reach every stage of a rule.
CASES: dict[str, dict[str, Case]] = {
    **{name: cases(rule, FIRST) for name, rule in PLAIN.items() if name != "agreement"},
    "agreement": cases(PLAIN["agreement"], FIRST, **MODELS),
    "calibrated": cases(CalibratedAgreement(COST, calibration=8, vary=0.25), FIRST) | {
        "the request of all": Case(CalibratedAgreement(COST, calibration=8), {"alike": False}, calm_scene),
    },
    "information": cases(RULE, LEARNING, **MODELS, **INFORMATION) | {
        "everybody trusted": Case(TRUSTING, {"alike": True}),
        "pooled": Case(InformationPay(COST, decay=0.9, pooled=True), {"alike": True}),
    },
    "steady": settled(cases(SteadyPay(COST, period=12), {"dither": Dither(0.3)}, **MODELS)) | {
        "two periods": Case(SteadyPay(COST, period=15, probation=4), {"alike": True}),
        "calm": Case(SteadyPay(COST, period=25, probation=8), {"alike": False}, calm_scene),
        "calm, alike": Case(SteadyPay(COST, period=16, probation=8), {"alike": True}, calm_scene),
    },
    "witnessed": cases(WitnessedPay(COST, samples=64), FIRST),
}  # fmt: skip


def played(name: str) -> dict[str, Numbers]:
    """Return the numbers of every case of a rule."""
    normals = np.random.default_rng(1).normal(size=(ROUNDS, DIM))
    found: dict[str, Numbers] = {}
    for word, case in CASES[name].items():
        sent, present = case.scene(0)
        found[word] = play(case, sent, present, normals)
    return found


def flat(numbers: dict[str, Numbers]) -> Numbers:
    """Return the numbers of all cases by `case/field`."""
    return {f"{word}/{field}": values for word, fields in numbers.items() for field, values in fields.items()}


def main(names: Iterable[str]) -> None:
    """Write the files of these rules; of all, if none is named."""
    for name in list(names) or CASES:
        np.savez_compressed(HERE / f"{name}.npz", **flat(played(name)))


if __name__ == "__main__":
    main(sys.argv[1:])
