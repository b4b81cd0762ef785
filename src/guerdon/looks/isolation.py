"""The application's function in a process of its own: without network, with limits, on data and nothing else.

A fresh Python gets the rows and the model as files of plain arrays (never pickle), and gives back files of plain
arrays. What it prints is thrown away, and so are the messages of its exceptions, because both may quote rows. A crash,
a time that is over and memory that is used up are outcomes with a reason, not exceptions.

The function is code that all have agreed on by its hash; rows are what a member sent. This keeps such code from the
network, and from using up the machine. It is no jail for hostile code, which could read what the user may read: run
`guerdon look` in a container, or as a user of its own, where that matters.
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from guerdon.arrays import check_choice, check_positive_integer
from guerdon.canonical import canonical
from guerdon.looks._child import BLOCKED, NAMESPACE

Arrays = Mapping[str, np.ndarray]
Ending = Literal["done", "not finite", "bad result", "crashed", "too long", "too much CPU time", "too much memory"]

KINDS = "biufSU"  # of arrays that are data: numbers, bytes and text of fixed width
KEPT = "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"  # of the environment: no secret is in these
THREADS = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"


@dataclass(frozen=True)
class Limits:
    """What a function may use. The defaults are for rounds that take minutes; all are terms that members know.

    `wall`, `cpu`: seconds, by the clock and of all threads together. `memory`: bytes of address space, of which
    PyTorch with a GPU reserves far more than it uses. `disk`: bytes of one file that it writes. `threads`: of NumPy and
    PyTorch, where they heed the usual variables; one, because the order of sums then is the same everywhere.
    """

    wall: int = 600
    cpu: int = 1200
    memory: int = 8 * 2**30
    disk: int = 2**30
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("wall", "cpu", "memory", "disk", "threads"):
            check_positive_integer(name, getattr(self, name))


class Ran(NamedTuple):
    """What became of a run: one report for each seed where it is done, else why there is none.

    `network`: how it was kept from the network. `code`: the SHA-256 of `files`, the function's source.
    """

    ending: Ending
    reports: tuple[dict[str, np.ndarray], ...]
    reason: str
    network: str
    code: str
    files: tuple[str, ...]


def run_isolated(
    function: str,
    rows: Arrays,
    model: Arrays,
    seeds: Sequence[int],
    limits: Limits | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    path: Sequence[str] | None = None,
    network: Literal["auto", "network namespace", "blocked sockets"] = "auto",
) -> Ran:
    """Return what `function` reports for these rows and this model, once for each seed.

    `function`: "module:function"; it is called as function(model, rows, seed, **options) and returns arrays by name.
    `options`: what JSON can hold. `path`: where modules are found, by default where they are found here. `network`: on
    Linux a network namespace, where that is permitted; else Python's own sockets are refused, which does not hold back
    libraries that open theirs in C. "auto" takes the first that works; naming one insists on it.

    Raises ValueError for what the caller gave: a function that is not there, rows that are not plain arrays.
    """
    limits, places = limits or Limits(), [place or os.getcwd() for place in (sys.path if path is None else path)]
    check_choice("network", network, ("auto", NAMESPACE, BLOCKED))
    code, files = code_hash(function, places)
    with tempfile.TemporaryDirectory(prefix="guerdon-look-") as name:
        folder = Path(name)
        job = {"function": function, "seeds": [int(seed) for seed in seeds], "options": dict(options or {})}
        job |= {"path": places, "network": network, "cpu": limits.cpu, "memory": limits.memory, "disk": limits.disk}
        job["model"] = _write(folder / "model.npz", "model", model)
        job["rows"] = _write(folder / "rows.npz", "rows", rows)
        (folder / "job.json").write_text(json.dumps(job))
        ended = _run(folder, limits)
        done = _read_done(folder)
        if done is None:
            return Ran(*ended, "", code, files)
        return Ran(*_results(folder, done, limits), str(done["network"]), code, files)


def code_hash(function: str, path: Sequence[str] | None = None) -> tuple[str, tuple[str, ...]]:
    """Return the SHA-256 of a function's source, in hexadecimal, and the files that it is of.

    These are all Python files of the package that the function is in, by their places in it; or the one file of a
    module that is in no package: what this imports from beside it is not covered. Nothing is imported.
    """
    module, colon, name = function.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module.split("."), name]):
        raise ValueError(f"`function` must be 'module:function', such as 'my_app.task:work', got {function!r}")
    # Python remembers what folder "." was when it was first asked for: look in the folder that it is now.
    places = None if path is None else [os.path.abspath(place) for place in path]
    spec = PathFinder.find_spec(module.partition(".")[0], places)
    roots = [Path(place) for place in (spec.submodule_search_locations or ()) if spec] if spec else []
    files = sorted((file, root.parent) for root in roots for file in root.rglob("*.py"))
    if not files and spec and spec.origin and spec.origin.endswith(".py"):
        files = [(Path(spec.origin), Path(spec.origin).parent)]
    if not files:
        raise ValueError(f"`function` must be in a module with source that can be found, got {function!r}: give `path`")
    lines = {file.relative_to(root).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file, root in files}
    return hashlib.sha256(canonical(["guerdon code 1", lines]).encode()).hexdigest(), tuple(sorted(lines))


def _write(file: Path, what: str, arrays: Arrays) -> list[str]:
    """Write arrays as data, and return their names."""
    for name, array in arrays.items():
        if array.dtype.kind not in KINDS:
            raise ValueError(f"`{what}` must be arrays of numbers, bytes or text, got {array.dtype} for {name!r}")
    np.savez(file, *arrays.values())
    return list(arrays)


def _run(folder: Path, limits: Limits) -> tuple[Ending, tuple[()], str]:
    """Run the process to its end, and return what it came to if it could not say so itself."""
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= dict.fromkeys(THREADS, str(limits.threads))
    environment |= {"PYTHONHASHSEED": "0", "HOME": str(folder), "TMPDIR": str(folder)}
    command = [sys.executable, "-s", "-P", "-B", str(Path(__file__).with_name("_child.py")), str(folder)]
    none = subprocess.DEVNULL
    process = subprocess.Popen(  # noqa: S603 - this Python, and a file of ours
        command, cwd=folder, env=environment, stdin=none, stdout=none, stderr=none, start_new_session=True
    )
    try:
        status = process.wait(limits.wall)
    except subprocess.TimeoutExpired:
        return "too long", (), f"it took more than {limits.wall} seconds"
    finally:
        with contextlib.suppress(ProcessLookupError):  # and what it started; nothing is left where all went well
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if status == -signal.SIGXCPU:
        return "too much CPU time", (), f"it used more than {limits.cpu} seconds of the processor"
    if status == -signal.SIGKILL:
        return "too much memory", (), "the system killed it, most likely for memory"
    how = f"by signal {-status}" if status < 0 else f"with status {status}"
    return "crashed", (), f"it ended {how} and left no result"


def _read_done(folder: Path) -> dict[str, Any] | None:
    try:
        done = json.loads((folder / "done.json").read_text())
    except (OSError, ValueError):
        return None
    return done if isinstance(done, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _results(
    folder: Path, done: dict[str, Any], limits: Limits
) -> tuple[Ending, tuple[dict[str, np.ndarray], ...], str]:
    """Return the ending, the reports and the reason."""
    if done["outcome"] != "done":
        return done["outcome"], (), done["reason"]
    reports = list[dict[str, np.ndarray]]()
    for place, names in enumerate(done["reports"]):
        try:
            reports.append(_read(folder / f"report-{place}.npz", names, limits.memory))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            return "bad result", (), f"its report cannot be read: {type(error).__name__}"
    real = [array for report in reports for array in report.values() if array.dtype.kind == "f"]
    if not all(np.isfinite(array).all() for array in real):
        return "not finite", tuple(reports), "its report holds a number that is not finite"
    return "done", tuple(reports), ""


def _read(file: Path, names: list[str], most: int) -> dict[str, np.ndarray]:
    """Return the arrays of a report, or raise where unpacking them would take more than `most` bytes."""
    with zipfile.ZipFile(file) as packed:
        if sum(part.file_size for part in packed.infolist()) > most:
            raise ValueError("too large")
    with np.load(file, allow_pickle=False) as unpacked:
        return {name: unpacked[f"arr_{place}"] for place, name in enumerate(names)}
