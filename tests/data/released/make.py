# type: ignore  # noqa: PGH003 - later versions have other names
"""Made `guerdon.db` and `expected.json` beside it, with version 0.1.0 (commit 6d37fa8). It runs with that version only.

Kept for the record: `PYTHONPATH=src:. python tests/data/released/make.py`. Keys and rounds have seeds, the name and
times of the ledger have none. The nodes of the runs made through Flower are those of `nodes()`; `continued` says what
they were paid when 0.1.0 went on for two rounds.
"""

import json
import shutil
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.serverapp.strategy import FedAvg
from tests.flower.grids import MemoryGrid, Node
from tests.flower.learners import DIM, Learner, arrays
from tests.support.audit_scenes import Training, record_more

from guerdon import (
    AffineCost,
    BalancedVariance,
    EstimatedVariance,
    FlatPay,
    InformationPay,
    KnownVariance,
    OutputAgreement,
    __version__,
    fixed_request,
    noise_scale_request,
)
from guerdon.broadcasts import Dither
from guerdon.flower import FedSGD, Rewarded, broadcast
from guerdon.ledger import Ledger
from guerdon.predictions import RunningMean

HERE = Path(__file__).parent
COST = AffineCost(1, 1)
NAMES = ["north", "south", "east", "west", "Köln"]
RULES = {  # run: rule, liability
    "balanced": (OutputAgreement(COST), "carry"),
    "known": (OutputAgreement(COST, KnownVariance(2.0)), "deposit"),
    "estimated": (OutputAgreement(COST, EstimatedVariance(), "enrolled"), "floor"),
    "remembering": (OutputAgreement(COST, BalancedVariance(decay=0.9)), "carry"),
    "harsh": (OutputAgreement(COST, KnownVariance(2.0)), "carry"),
    "flat": (FlatPay(COST), "carry"),
    "information": (InformationPay(COST), "floor"),
}
FLOWER = {  # run: strategy, rounds, options
    "flower averages": (FedAvg, 3, {"mechanism": OutputAgreement(COST), "requests": fixed_request(8, 0.1)}),
    "flower dithers": (FedSGD, 3, {
        "mechanism": InformationPay(COST), "requests": fixed_request(8, 0.1), "prediction": RunningMean(),
        "dither": Dither(1.5), "escrow": True}),
    "flower adapts": (FedSGD, 4, {"mechanism": OutputAgreement(COST), "requests": noise_scale_request(COST)}),
}  # fmt: skip


def same_normals(layers):
    """Return an offset that is a function of the model: the same each time."""
    seed = [int(abs(part.sum()) * 2**40) % 2**32 for part in layers]
    return [np.random.default_rng([*seed, i]).normal(size=part.shape) for i, part in enumerate(layers)]


def nodes():
    """Return the nodes n0 to n4: node i runs `Learner(i, wanders=1.0)`, its private key on SECP384R1 is 1000 + i."""
    people = [Learner(i, wanders=1.0) for i in range(5)]
    people[3].absent = {2}
    return [Node(100 + i, person, ec.derive_private_key(1000 + i, ec.SECP384R1())) for i, person in enumerate(people)]


def train(ledger, run, more=0):
    """Play the rounds of a run through Flower, and `more`; return what each node is paid in each."""
    make, rounds, options = FLOWER[run]
    strategy = Rewarded(make(fraction_evaluate=0.0), run=run, ledger=ledger, **options)
    result = strategy.start(MemoryGrid(nodes()), arrays(np.zeros(DIM)), num_rounds=rounds + more)
    return {number: list(found["guerdon-pay"]) for number, found in result.train_metrics_clientapp.items()}


def pay_by_every_rule(ledger):
    ledger.move("deposit", "north", 20_000_000, "transfer 1")
    for seed, (run, (rule, liability)) in enumerate(RULES.items()):
        training = Training(4, rule=rule, seed=seed, present=0.7)
        ledger.start_run(run, NAMES[:4], rule, liability=liability)
        record_more(ledger, run, NAMES[:4], training, 4, hold=False)
        record_more(ledger, run, NAMES, training, 2, hold=False)  # Köln joins
    ledger.settle_payout(ledger.payout(memo="first"), "paid", "SEPA 1")
    ledger.start_run("waiting", NAMES, OutputAgreement(COST))


def works_first(prediction, true, honest, number, rng):
    """Send honest reports for eight rounds, then the public prediction."""
    del true, rng
    return honest if number <= 8 else prediction


def hold_and_settle(ledger):
    """Two runs hold escrow of the same agents; one is settled, then goes on; hands move some of it too."""
    cheats, trainings = {4: works_first}, {}
    for seed, (run, rounds) in enumerate({"long": 36, "short": 3}.items()):
        trainings[run] = Training(5, seed=10 + seed)
        ledger.start_run(run, NAMES, trainings[run].rule)
        record_more(ledger, run, NAMES, trainings[run], rounds, cheats)
    moves = ledger.settle_escrow("long", forfeit_accused=True)
    assert {move.kind for move in moves} == {"release", "forfeit"}
    assert ledger.settle_escrow("short", forfeit_accused=True) == []
    ledger.move("hold", "east", 1_500_000, "by hand")
    ledger.move("release", "east", 250_000, "by hand")
    ledger.move("release", "south", 500_000, 'audit of run "short", rounds to 3: typed by hand')
    ledger.move("forfeit", "west", 750_000, "by hand")
    record_more(ledger, "long", NAMES, trainings["long"], 4, cheats)
    record_more(ledger, "short", NAMES, trainings["short"], 1, cheats)
    ledger.settle_payout(ledger.payout(minimum=5_000_000, memo="second"), "cancelled")
    ledger.payout(memo="third")


def summary(ledger):
    return {
        "version": __version__,
        "balances": [list(row) for row in ledger.balances()],
        "common": ledger.common_balances(),
        "rounds": {run.name: run.rounds for run in ledger.runs()},
        "head": ledger.verify().head.hex(),
    }


def shrink(path):
    """Store the ledger in small pages: most tables are nearly empty."""
    connection = sqlite3.connect(path)
    for statement in ("journal_mode = DELETE", "page_size = 1024"):
        connection.execute(f"PRAGMA {statement}")
    connection.execute("VACUUM")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


def main():
    assert __version__ == "0.1.0"
    broadcast.fresh_normals = same_normals
    with tempfile.TemporaryDirectory() as folder:
        made, copy = Path(folder, "guerdon.db"), Path(folder, "copy.db")
        with Ledger(made, unit="EUR") as ledger:
            ledger.enrol(dict.fromkeys(NAMES) | {f"n{i}": node.der for i, node in enumerate(nodes())})
            pay_by_every_rule(ledger)
            hold_and_settle(ledger)
            for run in FLOWER:
                train(ledger, run)
            ledger.sign(Ed25519PrivateKey.from_private_bytes(bytes(32)))
            expected = summary(ledger)
            assert ledger.verify().holds
        shrink(made)
        shutil.copy(made, copy)
        with Ledger(copy) as ledger:
            expected["continued"] = {run: train(ledger, run, more=2) for run in FLOWER}
            expected["requests"] = {run: [found.request for found in ledger.rounds(run)] for run in FLOWER}
        shutil.copy(made, HERE / "guerdon.db")
    lines = ",\n".join(f'"{name}": {json.dumps(part, ensure_ascii=False)}' for name, part in expected.items())
    (HERE / "expected.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
