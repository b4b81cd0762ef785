"""The process in which an application's function computes work again. Run as a script, by `guerdon.looks.isolation`.

It imports nothing of Guerdon: before the function's module is loaded, only the standard library is. Its folder holds
`job.json`, `model.npz` and `rows.npz`; it writes a file for each report, and `done.json`, in which no message of an
exception stands: these may quote rows.
"""

import ctypes
import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

NEW_USER, NEW_NET = 0x10000000, 0x40000000  # CLONE_NEWUSER and CLONE_NEWNET of Linux
NAMESPACE, BLOCKED = "network namespace", "blocked sockets"


def limit(cpu: int, memory: int, disk: int) -> None:
    """Limit CPU seconds, bytes of address space and bytes of a file; no core dump."""
    import resource  # not on every system; `isolation` reads names from this file

    chosen = ((resource.RLIMIT_CPU, cpu), (resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, disk))
    for kind, most in (*chosen, (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        # A second more for CPU time, so that the signal says what it was.
        resource.setrlimit(kind, (most, most + 1 if kind == resource.RLIMIT_CPU else most))


def cut_off(network: str) -> str:
    """Take the network away, and return how: a namespace without any, or sockets that cannot be made."""
    if network != BLOCKED and sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        for flags in (NEW_NET, NEW_NET | NEW_USER):  # the second where one is not root
            if libc.unshare(flags) == 0:
                return NAMESPACE
    if network == NAMESPACE:
        raise OSError("no network namespace is permitted here: let `network` be 'auto' or 'blocked sockets'")
    sys.addaudithook(_refuse_sockets)
    return BLOCKED


def _refuse_sockets(event: str, arguments: tuple[object, ...]) -> None:
    del arguments
    if event.startswith("socket."):
        raise PermissionError("work that is computed again has no network")


def read(path: Path, names: list[str]) -> dict[str, Any]:
    """Return named arrays from a file; pickled objects are refused."""
    import numpy as np

    with np.load(path, allow_pickle=False) as file:
        return {name: file[f"arr_{place}"] for place, name in enumerate(names)}


def write(path: Path, report: Any) -> list[str]:
    """Write a report, and return the names of its tensors; raise unless it is named arrays of numbers."""
    import numpy as np

    arrays = {str(name): np.asarray(value) for name, value in report.items()}
    wrong = [array.dtype for array in arrays.values() if array.dtype.kind not in "biuf"]
    if wrong or not arrays:
        raise TypeError("not arrays of numbers")
    np.savez(path, *arrays.values())
    return list(arrays)


def where(error: BaseException, job: dict[str, Any]) -> str:
    """Return the type of an exception and the line of the application: not its message, which may quote a row."""
    frames = traceback.extract_tb(error.__traceback__)
    home = Path(str(sys.modules[job["function"].split(":")[0]].__file__)).parent
    lines = [frame for frame in frames if home in Path(frame.filename).parents] or frames
    return f"{type(error).__name__} in {Path(lines[-1].filename).name}, line {lines[-1].lineno}"


def load(job: dict[str, Any]) -> Any:
    """Return the function. Its module is loaded before any row is: what goes wrong here may be quoted."""
    sys.path[:] = job["path"]
    module, name = job["function"].split(":")
    return getattr(importlib.import_module(module), name)


def work(function: Any, folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Compute every report, and return what `done.json` says."""
    model, rows = read(folder / "model.npz", job["model"]), read(folder / "rows.npz", job["rows"])
    reports = list[list[str]]()
    for place, seed in enumerate(job["seeds"]):
        report = function(model, rows, seed, **job["options"])
        try:
            reports.append(write(folder / f"report-{place}.npz", report))
        except (TypeError, AttributeError, ValueError):
            return {"outcome": "bad result", "reason": f"{job['function']} must return arrays of numbers by name"}
        except OSError:
            return {"outcome": "bad result", "reason": f"its report takes more than {job['disk']:,} bytes of disk"}
    return {"outcome": "done", "reason": "", "reports": reports}


def attempt(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Return what `done.json` says, whatever happens."""
    done = {"outcome": "crashed", "network": ""}
    try:
        done["network"] = cut_off(job["network"])
        function = load(job)
    except Exception as error:  # noqa: BLE001 - whatever a module raises is an outcome
        return done | {"reason": f"{type(error).__name__}: {error}"}
    try:
        return done | work(function, folder, job)
    except MemoryError:
        return done | {"outcome": "too much memory", "reason": f"it wanted more than {job['memory']:,} bytes"}
    except BaseException as error:  # noqa: BLE001 - whatever the function raises, and if it leaves, too
        return done | {"reason": where(error, job)}


def main(folder: Path) -> None:
    """Do the job in a folder."""
    job = json.loads((folder / "job.json").read_text())
    limit(job["cpu"], job["memory"], job["disk"])
    text = json.dumps(attempt(folder, job))
    (folder / "done.json.part").write_text(text)
    os.replace(folder / "done.json.part", folder / "done.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
