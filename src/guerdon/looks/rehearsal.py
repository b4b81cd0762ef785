"""Looks before money moves: does a function's work repeat, how exactly, and which rows could be skipped unseen?

`rehearse` does on one machine what auditor and member will do: each look names rows as a round would, an auditor's
process measures its tolerance (`guerdon.looks.recompute`), and a second process, with more threads, does the honest
work. What another machine reports can take the second's place. All work is done by `guerdon.looks.isolation`.
"""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from guerdon.arrays import check_choice, check_number, check_positive_integer
from guerdon.canonical import canonical
from guerdon.looks._rehearsed import DOUBLE, TOLD
from guerdon.looks.encoding import Rows, decode_row, encode_rows
from guerdon.looks.isolation import Arrays, Limits, Ran, code_hash, run_isolated
from guerdon.looks.naming import Deck, member_seeds
from guerdon.looks.plan import failure_bound
from guerdon.looks.recompute import arrays_hash, compare
from guerdon.looks.rows import stacked

# Looks in which rows are sought that could be skipped: with 16 rows one takes about 60 times the work. The share
# differs from look to look by the named rows; the largest of three is close to what a member could hope for.
SEARCHED = 3
# Of the other process. More than one changes the order of sums; four are more than most shared machines give a process.
THREADS = 4
# Named rows that may be skipped unseen. One row of 16 is 6 %, and on a trained model one row is nearly always quiet;
# two are 12 %. A tolerance of 1e-2, which is too wide, has 30 to 63 %.
SHARE = 0.1
# A tolerance that is usually wider has a cause worth naming: up to eight steps in float32 repeat within 2e-4, and the
# tolerance is ten times as wide.
WIDE = 2e-3

CONTRACT = (
    "The function gets arrays by name (model, rows, seed), any number of rows, one too, and returns arrays of numbers "
    "by name."
)
TOO_SHORT = (
    "Compute the work in float64 and report it in float32: most of the error is float32's own. On a trained model a "
    "gradient is a small difference of large numbers."
)
STEPS = (
    "Use fewer local steps or a smaller rate: each step multiplies rounding errors. Where that cannot be, have "
    "segments looked at: the member signs hashes of the models in between."
)


class Rehearsal(NamedTuple):
    """What looks would find in honest work.

    `unable`: why the work cannot be looked at, "" where it can; all that follows is then empty. `ways`: errors by
    tensor in the first look, for each way of doing the work. `tolerance`: by tensor, the median of all looks, `widest`:
    the largest. `in_double`: whether the work follows double precision. `failed`: of `looks` honest reports, and
    `reasons` of the first that failed. `epsilon`: how large the chance of such a failure may be, with 95 % confidence.
    `skippable`: the share of named rows that could be skipped unseen on this model, and `most`, what was allowed.
    `reports`: one for each look, and `about`, the hash of what they were made of.
    """

    function: str
    code: str
    network: str
    request: int
    unable: str
    ways: tuple[tuple[str, dict[str, float]], ...] = ()
    tolerance: Mapping[str, float] = {}
    widest: Mapping[str, float] = {}
    types: Mapping[str, str] = {}
    in_double: bool = False
    looks: int = 0
    failed: int = 0
    reasons: tuple[str, ...] = ()
    epsilon: float = 1.0
    skippable: float = 1.0
    most: float = SHARE
    reports: tuple[dict[str, np.ndarray], ...] = ()
    about: str = ""

    @property
    def repeats(self) -> bool:
        """Whether this work can be looked at: every honest report passed."""
        return not self.unable and not self.failed

    @property
    def is_strict(self) -> bool:
        """Whether looks at this work see enough: no more rows could be skipped unseen than `most`."""
        return self.repeats and self.skippable <= self.most


def rehearse(
    function: str,
    rows: Rows,
    model: Arrays,
    *,
    request: int = 16,
    looks: int = 20,
    seed: int = 0,
    sends: Literal["gradients", "models"] = "gradients",
    ways: Sequence[Mapping[str, Any]] = (),
    threads: int = THREADS,
    most: float = SHARE,
    limits: Limits | None = None,
    path: Sequence[Path | str] = (),
    others: "tuple[str, Sequence[Arrays]] | None" = None,
) -> Rehearsal:
    """Return what looks would find in honest work by a function, on this model and these rows.

    `function`: "module:function", in a folder of `path` or where Python finds it. It is called as function(model, rows,
    seed, **way). `rows`: dicts, as a `Table` has them. `request`: rows named in a round. `looks`: how many are
    rehearsed; `seed` chooses their rows. `sends`: "models" where the function returns a model: its move is compared.
    `ways`: options in which honest members may differ; `threads` and `micro_batch` are tried where the function has
    them. `threads`: of the second process. `most`: the share of rows that may be skipped unseen. `limits`: of each
    process, for all looks together. `others`: `about` and `reports` of another machine's rehearsal, in place of the
    second process. The reference of looks has an example that runs.
    """
    for name, value in (("request", request), ("looks", looks), ("threads", threads)):
        check_positive_integer(name, value)
    check_number("most", most, minimum=0)
    check_choice("sends", sends, ("gradients", "models"))
    places = [str(Path(place).resolve()) for place in (*path, *sys.path)]
    code, _ = code_hash(function, places)
    picked, seeds = _named(rows, request, looks, seed)
    about = _about(code, picked, model, [sends, *seeds])
    if others is not None and (others[0] != about or len(others[1]) != looks):
        raise ValueError("`others` must be reports by the same function on the same model, rows and seed: they are not")
    auditor = Side(function, picked, model, seeds, sends, ways, places, limits or Limits())
    ran, told, reports, unable = auditor.run(1)
    if not unable and others is None:
        _, _, honest, unable = auditor.run(threads, only_reports=True)
    else:
        honest = () if others is None else others[1]
    if unable:
        return Rehearsal(function, code, ran.network, request, unable)
    failed = _failures(told, reports, honest)
    widths = {name: [look["tolerance"][name] for look in told] for name in told[0]["tolerance"]}
    return Rehearsal(
        function, code, ran.network, request, "",
        (*((name, errors) for name, errors in told[0]["ways"]), ("with changed last bits", told[0]["last_bits"])),
        {name: float(np.median(values)) for name, values in widths.items()},
        {name: max(values) for name, values in widths.items()},
        {name: reports[0][name].dtype.name for name in widths},
        all(look["in_double"] for look in told),
        looks, len(failed), failed[0] if failed else (), failure_bound(len(failed), looks),
        max(look.get("skipped", {"share": 1.0})["share"] for look in told[:SEARCHED]),
        most, reports, about,
    )  # fmt: skip


def advice(found: Rehearsal) -> tuple[str, ...]:
    """Return what to change so that work can be looked at, in sentences; nothing where nothing is needed.

    >>> advice(Rehearsal("my_app.task:work", "", "", 16, unable="with 1 row it raises ValueError in task.py, line 7"))
    ('The function gets arrays by name (model, rows, seed), any number of rows, one too, ...',)
    """
    if found.unable:
        return (CONTRACT,)
    usual = max(found.tolerance.values())
    said = list[str]()
    if any(error > 0 for error in found.ways[0][1].values()):
        said.append(
            "The same work, done twice, differs: draw all randomness from the seed, and use deterministic kernels "
            "(in PyTorch `torch.use_deterministic_algorithms(True)`)."
        )
    if "float16" in found.types.values():
        said.append("Compute and report in float32: float16 has three digits.")
    if not found.in_double:
        said.append(
            "Let the work follow the type of its model: in float64 it must compute in float64. Without that the "
            "tolerance does not know other processors."
        )
    if usual > WIDE and not said:
        said.append(TOO_SHORT if _is_short(found) else STEPS)
    if found.skippable > found.most and usual <= WIDE:
        said.append(
            "The model has learnt some rows, which hardly change it any more: ask for fewer, or end the training."
        )
    if found.failed and not said:
        said.append("Name the way in which the other machine differs (--way), so that the tolerance knows it.")
    return tuple(said)


def _is_short(found: Rehearsal) -> bool:
    """Tell whether double precision is further away than any other way to do the work."""
    largest = {way: max(errors.values()) for way, errors in found.ways}
    double = largest.pop(DOUBLE, 0.0)
    return double >= max(largest.values())


class Measured(NamedTuple):
    """What a process found: how it ended, what each look told, the reports, and why there is nothing, "" if there is.

    `told`: for each look `effect` and `tolerance` by tensor, and more; `guerdon.looks._rehearsed` says what.
    """

    ran: Ran
    told: list[dict[str, Any]]
    reports: tuple[dict[str, np.ndarray], ...]
    unable: str


class Side(NamedTuple):
    """What a process needs to play the auditor, or the member.

    `searched`: in how many looks it seeks rows that could be skipped.
    """

    function: str
    rows: Arrays
    model: Arrays
    seeds: Sequence[int]
    sends: str
    ways: Sequence[Mapping[str, Any]]
    path: Sequence[str]
    limits: Limits
    searched: int = SEARCHED

    def run(self, threads: int, *, only_reports: bool = False) -> Measured:
        """Do the work in a process of its own, and measure how exactly it repeats."""
        given = self.limits
        limits = Limits(given.wall, given.cpu * threads, given.memory, given.disk, threads)
        options = {"function": self.function, "seeds": list(self.seeds), "ways": [dict(way) for way in self.ways]}
        options |= {"searched": self.searched, "sends": self.sends, "only_reports": only_reports}
        ours = str(Path(__file__).parent.parent.parent)
        ran = run_isolated(
            "guerdon.looks._rehearsed:measure", self.rows, self.model, [0], limits, options=options,
            path=[*self.path, ours],
        )  # fmt: skip
        if ran.ending != "done":
            return Measured(ran, [], (), ran.reason)
        report = ran.reports[0]
        told = json.loads(report.pop(TOLD).tobytes())
        if "unable" in told:
            return Measured(ran, [], (), told["unable"])
        return Measured(ran, told["looks"], tuple(_apart(report, len(self.seeds))), "")


def _apart(report: Arrays, looks: int) -> list[dict[str, np.ndarray]]:
    """Return the reports of all looks, each with the names of its tensors."""
    apart: list[dict[str, np.ndarray]] = [{} for _ in range(looks)]
    for name, array in report.items():
        place, _, tensor = name.partition("/")
        apart[int(place)][tensor] = array
    return apart


def _failures(
    told: Sequence[Mapping[str, Any]], reports: Sequence[Arrays], honest: Sequence[Arrays]
) -> list[tuple[str, ...]]:
    """Return the reasons against each honest report that fails its look."""
    found = [
        compare(again, sent, look["effect"], look["tolerance"]).reasons
        for look, again, sent in zip(told, reports, honest, strict=True)
    ]
    return [reasons for reasons in found if reasons]


def _named(rows: Rows, request: int, looks: int, seed: int) -> tuple[dict[str, np.ndarray], list[int]]:
    """Return the named rows of all looks, one after the other, and the seed of each.

    They are drawn as in a round, and written and read back as an answer to a look is.
    """
    if len(rows) < request:
        raise ValueError(f"`rows` must be at least the {request} of `request`, got {len(rows)}")
    deck, seeds, named = Deck(len(rows)), list[int](), list[int]()
    for round in range(looks):
        number = hashlib.sha256(f"guerdon rehearsal 1 {seed} {round}".encode()).digest()
        drawn = member_seeds(number, ledger="rehearsal", run="rehearsal", round=round, member="rehearsal")
        named += deck.deal(drawn.rows, request).tolist()
        seeds.append(drawn.work)
    return stacked(decode_row(encode_rows(rows, place, place + 1)[0]) for place in named), seeds


def _about(code: str, rows: Arrays, model: Arrays, settings: Sequence[str | int]) -> str:
    parts = [code, arrays_hash(rows).hex(), arrays_hash(model).hex(), list(settings)]
    return hashlib.sha256(canonical(["guerdon rehearsal 1", parts]).encode()).hexdigest()
