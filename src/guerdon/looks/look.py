"""The look itself: a task and a member's rows become a signed verdict.

The rows must be those that the member committed to, and that the round named. The work is done on them in a process of
its own (`guerdon.looks.isolation`), several times over, so that the tolerance is this auditor's, on this model
(`guerdon.looks.recompute`). What comes out is compared with the report.

Whatever the member is to blame for is a verdict. What the auditor is to blame for (other code than the terms name, a
task that is not for this key) raises a ValueError: nothing is signed then.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from guerdon.looks._rehearsed import moved
from guerdon.looks.auditors import auditor_of
from guerdon.looks.coins import sealing_key
from guerdon.looks.exchange import Answer, Task
from guerdon.looks.isolation import Limits, Ran, code_hash
from guerdon.looks.opening import Opening, OpeningError, check
from guerdon.looks.outcomes import Outcome
from guerdon.looks.recompute import Arrays, Comparison, compare
from guerdon.looks.rehearsal import Side
from guerdon.looks.rows import stacked
from guerdon.looks.sealing import SealError, unseal
from guerdon.looks.verdict import SignedVerdict, Verdict, judged, sign

UNREPEATED = (
    "the auditor cannot repeat the work: tensor {name!r} has a tolerance above a tenth of its scale: a report without "
    "any work may lie inside"
)
# Of a tensor's scale. The cheapest cheat on an untrained network, one row of 16, is at 0.34; a tolerance of a third
# would see nothing, one of 0.03 takes honest work in bfloat16 for work that cannot be repeated.
WIDEST = 0.1


class Auditing(NamedTuple):
    """What an auditor brings: where the function is found, and what it allows.

    `path`: folders of modules, before where Python finds them. `ways`: options in which honest members may differ.
    `control`: rows of the auditor's own, of the same kind as members' rows, for work that cannot be done on a member's.
    `limits`: of the whole look; None: those of the task.
    """

    path: Sequence[Path | str] = ()
    ways: Sequence[Mapping[str, Any]] = ()
    control: Arrays | None = None
    limits: Limits | None = None


def judge(task: Task, answer: Answer, key: Ed25519PrivateKey, auditing: Auditing | None = None) -> SignedVerdict:
    """Return the verdict on a member's sealed answer, signed by the auditor's key."""
    _check(task, key, auditing or Auditing())
    if (answer.look, answer.of, answer.appeal) != (task.subject.look, task.subject.of, task.appeal):
        raise ValueError(
            f"`answer` must be to look {task.subject.look}, got one to look {answer.look} of {answer.of.member!r} in "
            f"round {answer.of.round}: take the files of one look"
        )
    sealed = answer.hash.hex()
    try:
        opening = Opening.from_bytes(unseal(answer.sealed, sealing_key(key), task.subject.of))
    except (SealError, OpeningError) as error:
        return sign(_verdict(task, Outcome.FAILED, (str(error),), sealed), key)
    return judge_opened(task, opening, key, auditing, sealed)


def judge_opened(
    task: Task, opening: Opening, key: Ed25519PrivateKey, auditing: Auditing | None = None, answer: str = ""
) -> SignedVerdict:
    """Return the verdict on rows that the auditor has before it, as at the member's site. `answer`: its hash, if any.

    The reference of looks has an example that runs.
    """
    auditing = auditing or Auditing()
    _check(task, key, auditing)
    try:
        rows = named_of(task, opening)
    except ValueError as error:  # an OpeningError is one
        return sign(_verdict(task, Outcome.FAILED, (str(error),), answer), key)
    return sign(_worked(task, rows, auditing, answer), key)


def named_of(task: Task, opening: Opening) -> dict[str, Any]:
    """Return the named rows as arrays, in their order, or raise a ValueError: what was opened is not these rows."""
    found = check(task.subject.committed, opening, task.subject.rows)
    return stacked(found[index] for index in task.subject.rows)


def _check(task: Task, key: Ed25519PrivateKey, auditing: Auditing) -> None:
    """Raise unless this auditor can judge this task."""
    own, asked = auditor_of(key), task.auditor
    if (own.signing, own.sealing) != (asked.signing, asked.sealing):
        raise ValueError(
            f"`key` must be that of the task's auditor, {asked.signing[:16]}…, got {own.signing[:16]}…: "
            + ("it is an appeal, for the second auditor" if task.appeal else "ask the operator for your tasks")
        )
    found, files = code_hash(task.subject.work, _places(auditing.path))
    if found != task.subject.code:
        raise ValueError(
            f"`{task.subject.work}` must have the code of the terms, {task.subject.code[:16]}…, got {found[:16]}… in "
            f"{len(files)} files such as {files[0]}: install the version that the members have, or name its folder"
        )


def _places(path: Sequence[Path | str]) -> list[str]:
    return [str(Path(place).resolve()) for place in (*path, *sys.path)]


def _worked(task: Task, rows: Arrays, auditing: Auditing, answer: str) -> Verdict:
    """Return the verdict on rows that are the named ones."""
    ran, told, again = _measured(task, rows, auditing)
    wide = [name for name, most in (told or {"tolerance": {}})["tolerance"].items() if not most <= WIDEST]
    if wide:
        reasons = (UNREPEATED.format(name=wide[0]),)
        return _verdict(task, Outcome.UNREPEATABLE, reasons, answer, network=ran.network)
    comparison = control = None
    if told is None:
        control = None if auditing.control is None else _measured(task, auditing.control, auditing)[0]
    else:
        sent = moved(task.report, task.model) if task.sends == "models" else task.report
        comparison = compare(again, sent, told["effect"], told["tolerance"])
    outcome, reasons = judged(ran, comparison, control)
    return _verdict(task, outcome, reasons, answer, comparison, ran.network)


def _measured(task: Task, rows: Arrays, auditing: Auditing) -> tuple[Ran, dict[str, Any] | None, Arrays]:
    """Return how the work ended, what was measured of it (None: it was not done), and its report."""
    subject, limits = task.subject, auditing.limits or task.limits
    places = _places(auditing.path)
    side = Side(subject.work, rows, task.model, [subject.seed], task.sends, auditing.ways, places, limits, searched=0)
    ran, told, reports, unable = side.run(limits.threads)
    if unable:
        ending = "crashed" if ran.ending == "done" else ran.ending
        return ran._replace(ending=ending, reason=unable), None, {}
    return ran, told[0], reports[0]


def _verdict(
    task: Task,
    outcome: Outcome,
    reasons: tuple[str, ...],
    answer: str,
    comparison: Comparison | None = None,
    network: str = "",
) -> Verdict:
    subject, of = task.subject, task.subject.of
    errors, tolerance = ({}, {}) if comparison is None else (_plain(comparison.errors), comparison.tolerance)
    return Verdict(
        of.ledger, of.run, of.round, subject.look, of.member, subject.committed.root.hex(), subject.report, outcome,
        errors, tolerance, reasons, subject.code, network, task.replaces, task.hash, answer,
    )  # fmt: skip


def _plain(errors: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return errors as JSON has them: an infinite one is none."""
    return {name: error if error is None or np.isfinite(error) else None for name, error in errors.items()}
