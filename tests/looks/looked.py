"""One look by itself: a member's rows, the function in a module, the report, and the task that follows."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from guerdon.looks import Commitment, Table, stacked
from guerdon.looks.auditors import auditor_of
from guerdon.looks.exchange import Subject, Task, report_hash
from guerdon.looks.isolation import code_hash
from guerdon.looks.recompute import arrays_hash
from tests.support.look_story import FUNCTION, work

AUDITOR, SECOND = (Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32) for seed in (1, 2))
ROWS, SEED = (7, 3, 11, 0, 19, 4), 12345
Arrays = Mapping[str, np.ndarray]


def table() -> Table:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 5)).astype(np.float32)
    return Table({"x": x, "y": x.sum(axis=1) + rng.normal(size=20).astype(np.float32)})


def mine(rows: Any = None, member: str = "Bern") -> Commitment:
    return Commitment.of(table() if rows is None else rows, ledger="books", run="knee", member=member, secret=b"m" * 32)


def named(places: Any = ROWS) -> dict[str, Any]:
    return stacked(table()[place] for place in places)


def model() -> dict[str, np.ndarray]:
    return {"w": np.linspace(-1, 1, 5, dtype=np.float32)}


def task_for(folder: Path, report: Arrays | None = None, **other: Any) -> Task:
    """Return the task of a look at a report; by default at honest work."""
    (folder / "task.py").write_text(FUNCTION)
    sent = work(model(), named(), SEED) if report is None else report
    subject = Subject(
        3, 7, mine().committed(), ROWS, SEED, "task:work", code_hash("task:work", [str(folder)])[0],
        arrays_hash(model()).hex(), report_hash(sent).hex(),
    )  # fmt: skip
    return Task(subject, auditor_of(AUDITOR), model(), sent, **other)


def about(task: Task, **other: Any) -> Task:
    """Return a task with other parts in its subject."""
    return replace(task, subject=task.subject._replace(**other))
