"""Is agreement an equilibrium, and does it pay honest members their cost, on data that nobody prepared for it?

About eighty cells: kinds of data, numbers of members, requests, costs, dimensions and stages of a training. In each of
them one member uses other sizes than it was asked for, all through a training, and five rules pay: the paper's with the
variance known and estimated, balanced variance, agreement (the default), and the witness.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from guerdon.lab.experiments.agreement_claims import (
    COSTS,
    ROUNDS,
    SURE,
    Finding,
    Gain,
    claims,
    is_hard,
    judge,
    notes,
    of_rule,
)  # fmt: skip
from guerdon.lab.experiments.agreement_data import SURVEYS, Cell, play, survey_label, world_of
from guerdon.lab.experiments.agreement_pay import BATCHES, RULES
from guerdon.lab.experiments.claims import Experiment, Tell, count_steps
from guerdon.lab.figures import BLUE, GREEN, GREY, ORANGE, RED, TEXT, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = (*SURVEYS, "normal", "χ²", "t₅", "rows again", "noise differs")
COLUMNS = 38  # of the survey
MEMBERS, REQUESTS, STAGES, DIMS = (3, 4, 5, 10, 30), (2, 8, 16), ("early", "middle", "late"), (100, 1, 2)
DRAWN = 1.5  # gains are drawn up to this
COLORS = {"known": GREY, "estimated": RED, "balanced": ORANGE, "agreement": GREEN, "witness": BLUE}


def cells() -> list[Cell]:
    """Return the cells: all data with all numbers of members, twice; the rest goes round, so that all of it meets."""
    found: list[Cell] = []
    for index, (turn, data, members) in enumerate((t, d, k) for t in range(2) for d in DATA for k in MEMBERS):
        request = REQUESTS[(index + turn) % 3]
        cost = tuple(COSTS)[(index // 3 + turn) % 2]
        dim = COLUMNS if data in SURVEYS else DIMS[(index + index // 5) % 3]
        found.append(Cell(data, members, request, cost, STAGES[(index // 2) % 3], dim))
    return found


def sizes_of(request: int) -> tuple[int, ...]:
    """Return the sizes that are tried beside the request: one, half, three quarters, more, double."""
    tried = {1, request // 2, round(0.75 * request), round(1.25 * request), 2 * request}
    return (*sorted(tried - {0, request}), request)


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Play all cells, and say what each rule does in them."""
    listed = cells()
    step = count_steps(tell, len(listed))
    findings: list[Finding] = []
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(_judged, cell, repetitions, seed + 1000 * index) for index, cell in enumerate(listed)]
        for cell, job in zip(listed, jobs, strict=True):
            step(cell.words)
            findings += job.result()
    return Experiment(
        "agreement", "Agreement with a proof, on many data",
        f"What one honest member earns and what the best other size gains, in {len(listed)} cells under five rules. "
        "Each dot is a cell. Left: honest pay, as a share of the cost. Right: the largest gain of a member that uses "
        "another size all the time, in any third of a training, against its own honest work. A cross is a gain of more "
        f"than {SURE:g} standard errors, and a fault of the rule; above the dots is how many there are.",
        lambda: _figure(findings), _table(findings), tuple(claims(findings)),
        notes=notes(findings), survey=survey_label(),
    )  # fmt: skip


def _shape(cell: Cell, repetitions: int) -> tuple[int, int]:
    """Return how many repetitions and rounds: more where pay is noisier, as with rare samples or one dimension."""
    if cell.data in SURVEYS:
        factor = {"survey": 0.8, "survey, 1 %": 2.0, "survey, equal": 0.6}[cell.data]
    else:
        factor = 0.5 if cell.dim > 2 else 2.0
    factor *= 3 if cell.data == "rows again" else 2 if cell.request == 2 else 1
    if cell.data in SURVEYS and cell.stage == "early":
        factor *= 0.5
    return max(8, round(repetitions * factor * (0.5 if cell.members > 10 else 1.0))), ROUNDS


def _judged(cell: Cell, repetitions: int, seed: int) -> list[Finding]:
    shape = _shape(cell, repetitions)
    played = play(world_of(cell), cell.members, cell.request, sizes_of(cell.request), shape, BATCHES, seed)
    return list(judge(cell, played))


def _table(findings: Sequence[Finding]) -> pl.DataFrame:
    rows = [
        {**one.cell._asdict(), "hard": is_hard(one.cell), "rule": one.rule,
         "honest": one.honest.value, "honest_error": one.honest.error, "spread": one.spread,
         **_columns("gain", one.surest), **_columns("at_most", one.widest), **_columns("start", one.start),
         "informed_early": one.informed[0], "informed_late": one.informed[1]}
        for one in findings
    ]  # fmt: skip
    return pl.DataFrame(rows)


def _columns(name: str, gain: Gain | None) -> dict[str, Any]:
    value, error, size, third = (None, None, None, None) if gain is None else gain
    return {name: value, f"{name}_error": error, f"{name}_size": size, f"{name}_third": third}


def _figure(findings: Sequence[Finding]) -> "Figure":
    titles = ("Is honest work paid its cost? (bars: 2 s.e.)", "Does another size pay? × beyond chance")
    figure, (left, right) = panels(titles, 3.4, columns=2)
    rng = np.random.default_rng(0)
    for place, rule in enumerate(RULES):
        mine = of_rule(findings, rule)
        at = place + 0.16 * rng.standard_normal(len(mine)).clip(-2, 2)
        levels = [np.clip(one.honest.value, -1, 2) for one in mine]
        bars = [2 * one.honest.error for one in mine]
        left.errorbar(at, levels, bars, fmt="o", color=COLORS[rule], alpha=0.5, ms=3.5, elinewidth=0.8)
        sure = np.array([one.surest.least > 0 for one in mine])
        gains = np.array([np.clip(one.surest.value, -DRAWN, DRAWN) for one in mine])
        right.plot(at[~sure], gains[~sure], "o", color=COLORS[rule], alpha=0.5, ms=4)
        right.plot(at[sure], gains[sure], "x", color=COLORS[rule], ms=5, mew=1.6)
        right.annotate(f"{sure.sum()} of {len(mine)}", (place, DRAWN + 0.12), ha="center", fontsize=TEXT)
    words = "honest pay ÷ cost (cut at −1 and 2)", f"largest gain of another size ÷ cost (cut at ±{DRAWN:g})"
    for axes, level, named in zip((left, right), (1, 0), words, strict=True):
        axes.axhline(level, color="black", lw=0.8)
        axes.set_xticks(range(len(RULES)), RULES, rotation=20)
        axes.set_ylabel(named)
    left.set_ylim(-1.1, 2.1)
    right.set_ylim(-DRAWN - 0.1, DRAWN + 0.3)
    return figure
