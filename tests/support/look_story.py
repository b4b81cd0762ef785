"""A run under looks with real files: three members with rows, a function in a module, an archive, and two auditors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from guerdon import AffineCost, FlatPay, gather, round_of
from guerdon.ledger import Ledger
from guerdon.looks import draw
from guerdon.looks.coins import CoinCommitments
from guerdon.looks.isolation import code_hash
from guerdon.looks.naming import NamedRound, Used, member_seeds, named_rows
from guerdon.looks.recompute import arrays_hash
from guerdon.looks.rows import read_rows, stacked
from guerdon.run.archive import Archive
from guerdon.run.reports import hash_of
from guerdon.terms import Looks, Terms

NAMES = "Basel", "Lyon", "Porto"
RUN, REQUEST, ROUNDS = "knee", 16, 4
PAY = 17_850_000  # micro-units for a round: 1 + 16 units, and 5 % of it
RULE = FlatPay(AffineCost(1, 1))
FUNCTION = """\
import numpy as np


def work(model, rows, seed, micro_batch=0):
    size, total = micro_batch or len(rows["y"]), 0 * model["w"]
    noise = np.random.default_rng(seed).normal(size=model["w"].shape).astype(np.float32)
    for at in range(0, len(rows["y"]), size):
        x, y = rows["x"][at : at + size], rows["y"][at : at + size]
        total = total + (x @ (model["w"] + noise) - y) @ x
    return {"w": (total / len(rows["y"])).astype(model["w"].dtype)}
"""
Arrays = Mapping[str, np.ndarray]


def write_rows(folder: Path) -> None:
    """Write the function, and the rows of each member."""
    (folder / "task.py").write_text(FUNCTION)
    for place, name in enumerate(NAMES):
        rng = np.random.default_rng(place)
        x = rng.normal(size=(60, 5)).astype(np.float32)
        np.savez(folder / f"{name}.npz", x=x, y=x.sum(axis=1) + rng.normal(size=60).astype(np.float32))


def terms(folder: Path, auditor: str, second: str, **other: Any) -> Terms:
    told: dict[str, Any] = {"period": ROUNDS, "looks": 2, "answer": 100, "verdict": 100, "appeal": 100} | other
    code = code_hash("task:work", [str(folder)])[0]
    return Terms(Looks(auditor=auditor, second_auditor=second, work="task:work", code=code, **told))


def work(model: Arrays, rows: Arrays, seed: int) -> dict[str, np.ndarray]:
    found: dict[str, Any] = {}
    exec(compile(FUNCTION, "task.py", "exec"), found)  # noqa: S102 - the function above, as a member imports it
    return found["work"](model, rows, seed)


class Server:
    """Plays a server's rounds: names rows, has the members work, keeps reports, and records."""

    def __init__(self, folder: Path, ledger: Ledger, coins: CoinCommitments) -> None:
        self.folder, self.ledger, self.coins = folder, ledger, coins
        self.archive = Archive(ledger.files, RUN)
        self.used: dict[str, list[Used]] = {name: [] for name in NAMES}
        self.named: dict[tuple[int, str], list[int]] = {}

    def model(self, number: int) -> dict[str, np.ndarray]:
        return {"w": np.random.default_rng(number).normal(size=5).astype(np.float32)}

    def play(self, number: int, replaced: Mapping[str, int] | None = None) -> None:
        """Play a round. `replaced`: how many of its named rows a member replaces by its first one."""
        fresh, reports = bytes([number]) * 32, dict[str, dict[str, np.ndarray]]()
        for name in NAMES:
            seeds = member_seeds(fresh, ledger=self.ledger.name, run=RUN, round=number, member=name)
            rows = [int(row) for row in named_rows(seeds.rows, 60, self.used[name], REQUEST)]
            self.named[number, name] = list(rows)
            self.used[name].append(Used(seeds.rows, REQUEST))
            count = (replaced or {}).get(name, 0)
            rows[len(rows) - count :] = [rows[0]] * count
            table = read_rows(self.folder / f"{name}.npz")
            reports[name] = work(self.model(number), stacked(table[row] for row in rows), seeds.work)
        own = draw.nonce(self.archive.secret(), "server", self.ledger.name, RUN, number)
        server = draw.commitment(own, "server", self.ledger.name, RUN, number)
        named = NamedRound(fresh, server, self.coins.of_round(number), arrays_hash(self.model(number)))
        self.archive.keep(number, self.model(number), reports)
        sent = np.ones(len(NAMES), dtype=bool)
        told = round_of(gather(np.stack([reports[name]["w"] for name in NAMES]), sent), sent, REQUEST)
        gradients = [hash_of(reports[name]) for name in NAMES]
        self.ledger.record_round(RUN, number, told, agents=list(NAMES), gradients=gradients, work=named)
