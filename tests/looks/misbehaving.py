"""Functions that an auditor's process must survive: each is called with a model, rows and a seed."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np


def honest(model: Any, rows: Any, seed: int, scale: float = 1.0) -> dict[str, Any]:
    print("a row:", rows["x"][0])  # noqa: T201 - nobody may see it
    return {"w": model["w"] + scale * rows["x"].sum(axis=0) + seed, "n": np.array(len(rows["x"]))}


def says_what_it_sees(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    del model, seed
    variables = [os.environ.get(name, "") for name in ("PYTHONHASHSEED", "OMP_NUM_THREADS", "HOME", "A_SECRET")]
    return {
        "label": np.array([len(text) for text in rows["label"]]),
        "seen": np.array([len(part) for part in variables]),
    }


def draws_a_set(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    """The order of a set of text depends on a seed of Python's own."""
    del model, rows, seed
    return {"w": np.array([float(ord(letter)) for letter in set("abcdefgh")])}


def opens_a_socket(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    port = int(model["port"][0])
    del rows, seed
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"a row")
    return {"w": np.ones(1)}


def has_a_network(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    """Return 1 for every network device but the loopback, which is down."""
    del model, rows, seed
    return {"w": np.array([float(name != "lo") for _, name in socket.if_nameindex()])}


def loops(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    del model, rows, seed
    while True:
        pass


def waits(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    """Leave the number of a child that waits as well."""
    del rows, seed
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(str(model["note"][0])).write_text(str(child.pid))
    threading.Event().wait()
    return {}


def eats_memory(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    del model, rows, seed
    return {"w": np.ones(10**9)}


def fills_the_disk(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    del model, rows, seed
    return {"w": np.random.default_rng(0).random(10**6)}


def crashes(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    del model, seed
    raise ValueError(f"cannot learn from {rows['x'][0]}")


def dies(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    del model, rows, seed
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def leaves(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    del model, rows, seed
    raise SystemExit(0)


def is_not_a_number(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    del rows, seed
    return {"w": model["w"] * np.nan}


def of_another_shape(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    return {"w": honest(model, rows, seed)["w"][:1], "n": np.array(2)}


def no_report(model: Any, rows: Any, seed: int) -> Any:
    del model, rows, seed
    return [1, 2, 3]


def objects(model: Any, rows: Any, seed: int) -> Any:
    del model, rows, seed
    return {"w": np.array([{}, {}])}
