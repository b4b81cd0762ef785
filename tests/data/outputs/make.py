"""Writes beside it what the commands of `guerdon` print: `python -m tests.data.outputs.make` in the root.

One text file for each story: its commands after `$`, and what each printed (standard error after `!`, an exit status
other than 0 after `?`). They run in one folder, in this order, with copies of the golden ledgers and with files that
are made from a seed. What may differ from run to run is replaced: dates of today, versions, hashes and keys of what is
written then. A change of the code that is to change no output must print the same (`tests/test_recorded_outputs.py`).
If an output is meant to change, run this script (of some stories: add their names), and say in the commit what changed.
"""

import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from tests.data.golden import make as golden
from tests.pilot.records import made_up
from tests.support.command_line import run

HERE = Path(__file__).parent
EXPERIMENT = """\
[problem]
kind = "linear"
dim = 5
max_batch = 16
[server]
request = 8
rules = ["agreement", "known", "flat"]
[[agents]]
kind = "cooperative"
count = 4
[[agents]]
kind = "fixed"
size = 4
[run]
rounds = 6
repetitions = 4
"""


class Story(NamedTuple):
    """Commands that run one after the other in one folder."""

    commands: list[str]
    slow: bool = False  # compiles, for seconds, and computes in float32


def ledger(name: str) -> Story:
    """Return what is read of a golden ledger."""
    db = f"--db {name}.db"
    words = ["runs", f"rounds {name}", "balances", "statement Porto", "statement Vigo --format csv", "verify",
             "export --format beancount"]  # fmt: skip
    return Story([f"ledger {word} {db}" for word in words] + [f"contributions {db}", f"audit {db}"])


def pay(rule: str) -> list[str]:
    return [f"pay gradients.npz --request 8 --rule {rule}"]


DB = "--db agreement.db"
STORIES: dict[str, Story] = {
    "help": Story(["--help", "ledger --help", "ledger payout --help", "flower --help", "looks --help", "pay"]),
    "pay": Story([
        *(line for rule in ("agreement", "known:40", "estimated", "calibrated", "steady", "witnessed", "flat")
          for line in pay(rule)),
        "pay gradients.npz --request 8 --scale 40 --json",
        "pay gradients.npz --request 8 --rule information --prediction prediction.npy --json",
    ]),
    "equilibrium": Story([
        "equilibrium --agents 5 --request 6 --cost '2 + s ** 1.5' --ratio 0.8 --max-batch 12",
        *(f"equilibrium --rule {rule} --others 4 --max-batch 10" for rule in ("known", "estimated", "information")),
    ]),
    "looks": Story([
        "commit rows.csv --ledger heart --run first --member Bern --stream",
        "commit rows.csv --ledger heart --run first --member Bern --json --out again.npz",
        "commit rows.csv --ledger heart --run first --member Bern",
        "look nowhere.npz nowhere.answer --key auditor.pem",
        "looks plan --epsilon 0.001", "looks plan --looks 1 --forfeit all --epsilon 0.001 --rounds 60 --json",
    ]),
    "plan": Story(["plan --variance 400 --signal 4 --target 0.2 --repetitions 20 --max-batch 32"], slow=True),
    "certify": Story(["certify --rule known --agents 4 --rounds 5 --repetitions 10"], slow=True),
    "simulate": Story(["simulate --example", "simulate experiment.toml"], slow=True),
    "pilot": Story(["pilot pilot.json", "pilot pilot.json --cost '1 + 3 * s' --alpha 0.01 --json"]),
    **{f"ledger-{name}": ledger(name) for name in golden.RULES},
    "ledger-writes": Story([
        f"ledger enrol Nice {DB}", f"ledger move deposit Nice 100 --memo 'transfer 1' {DB}",
        f"ledger move hold Lyon 1.5 {DB}", f"ledger move release Lyon 9 {DB}", f"ledger move release Lyon 0.5 {DB}",
        f"ledger payee Lyon DE89370400440532013000 {DB}",
        f"ledger payout create --minimum 10 {DB}", f"ledger payout show 1 {DB}",
        f"ledger payout paid 1 --memo 'SEPA 7' {DB}", f"ledger payout paid 1 {DB}", f"ledger payout list {DB}",
        f"ledger balances {DB}", f"ledger statement Lyon {DB}", f"ledger close agreement {DB}",
        "ledger key operator.pem", f"ledger sign --key operator.pem --out head.json {DB}",
        f"ledger verify --receipt head.json {DB}", f"ledger upgrade {DB}", f"audit {DB}",
    ]),
    "audit": Story(["audit --alike --db steady.db --alpha 0.05", "audit --alike --db steady.db --json",
                    f"ledger stakes agreement {DB}", "ledger balances --db nowhere.db"]),
}  # fmt: skip

# What differs from run to run, and what stands for it.
CHANGING: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)", "VERSION"),
    (r"20(2[5-9]|[3-9]\d)-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?( UTC|Z|\+00:00)?", "TODAY"),
]
HASH = r"\b[0-9a-f]{12,}…?"  # a hash or a key


def prepare(folder: Path) -> None:
    """Put there what the commands read."""
    rng = np.random.default_rng(0)
    gradients = 1 + rng.normal(size=(6, 40)) / np.sqrt([8, 8, 8, 8, 2, 8])[:, None]
    gradients[5, 7] = np.nan
    reports: dict[str, np.ndarray] = dict(
        zip(["Basel", "Lyon", "Nice", "Porto", "Turin", "Vigo"], gradients, strict=True)
    )
    np.savez(folder / "gradients.npz", allow_pickle=False, **reports)
    np.save(folder / "prediction.npy", np.full(40, 0.9))
    (folder / "experiment.toml").write_text(EXPERIMENT)
    made_up(-16, 5, seed=1, evidence=9.0).save(folder / "pilot.json")
    (folder / "rows.csv").write_text("age,sex,rate\n63,f,150\n41,m,172.5\n63,f,150\n")
    (folder / "guerdon.secret").write_text(f"guerdon secret 1\n{'5a' * 32}\n")
    (folder / "guerdon.secret").chmod(0o600)
    for name in golden.RULES:
        shutil.copy(golden.HERE / golden.file_of(name), folder / f"{name}.db")


def printed(name: str, folder: Path) -> str:
    """Return what a story's commands print."""
    prepare(folder)
    return "\n".join(_told(name, command, folder) for command in STORIES[name].commands)


def _told(name: str, command: str, folder: Path) -> str:
    # As the installed program, not as `python -m` something: its name is in the words on wrong usage.
    with patch.object(sys.modules["__main__"], "__package__", None):
        done = run(*shlex.split(command), cwd=folder)
    said = [f"$ guerdon {command}", *done.stdout.splitlines(), *(f"! {line}" for line in done.stderr.splitlines())]
    text = "\n".join(line.rstrip() for line in said + [f"? {done.code}"] * (done.code != 0)) + "\n"
    for pattern, instead in CHANGING:
        text = re.sub(pattern, instead, text)
    text = re.sub(HASH, "HASH", text) if name == "ledger-writes" else text
    return text.replace(str(folder), "FOLDER")


def main(names: Iterable[str]) -> None:
    """Write the outputs of these stories; of all, if none is named."""
    for name in list(names) or STORIES:
        with tempfile.TemporaryDirectory() as folder:
            (HERE / f"{name}.txt").write_text(printed(name, Path(folder)))


if __name__ == "__main__":
    main(sys.argv[1:])
