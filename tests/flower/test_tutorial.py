"""The quickstart tutorial is true: its diffs apply, and the apps that come out run and pay as it says."""

import ast
import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from guerdon.flower import paid_work
from guerdon.lab.agents import Agent, Portion, zero
from guerdon.lab.strategic_nodes import strategic
from guerdon.ledger import Ledger
from tests.flower.grids import MemoryGrid, Node
from tests.support.auditing import PUBLIC, Auditor, pass_appeals
from tests.support.namespaces import ROOT, run_alone

PAGE = (ROOT / "docs/tutorials/quickstarts.md").read_text()
NODES = 8
PAID = "Now paid"  # on the same SuperLink, which takes a while to start


class Quickstart(NamedTuple):
    """One of the two apps, and what it needs."""

    name: str
    package: str
    run: str  # as the ledger has it

    @property
    def section(self) -> str:
        """Its part of the page."""
        return PAGE.partition("## PyTorch:" if self.name == "torch" else "## scikit-learn:")[2].partition("\n## ")[0]

    def blocks(self, language: str) -> list[str]:
        return re.findall(rf"```{language}\n(.*?)```", self.section, flags=re.DOTALL)

    def paid(self, folder: Path) -> Path:
        """Return the app with the page's diff applied, in a folder of that name."""
        (folder / f"{self.name}.diff").write_text(self.blocks("diff")[0])
        app = folder / f"my-{self.name}"
        shutil.copytree(ROOT / f"examples/quickstart-{self.name}", app, ignore=shutil.ignore_patterns("__pycache__"))
        command = ["patch", "--fuzz=0", "-p1", "-d", str(app), "-i", str(folder / f"{self.name}.diff")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return app


TORCH, SKLEARN = Quickstart("torch", "torch", "torch"), Quickstart("sklearn", "sklearn", "quickstart-sklearn")
both = pytest.mark.parametrize("app", [TORCH, SKLEARN], ids=["torch", "sklearn"])


@both
def test_the_diff_applies_to_the_quickstart(app: Quickstart, tmp_path: Path) -> None:
    if shutil.which("patch") is None:
        pytest.skip("needs `patch`")
    for path in app.paid(tmp_path).rglob("*.py"):
        ast.parse(path.read_text())
    assert "Paid(" in (tmp_path / f"my-{app.name}/quickstart_{app.name}/server_app.py").read_text()


@pytest.mark.slow
@both
def test_the_commands_run(app: Quickstart, tmp_path: Path) -> None:
    """Unpaid as it is published, and paid after the diff, on Flower's simulation runtime."""
    first, second = app.blocks("sh")
    app.paid(tmp_path)
    plain = first.replace(f"my-{app.name}", f"{tmp_path}/plain")
    placed = second.replace("$PWD/", f"{tmp_path}/").replace("--db ", f"--db {tmp_path}/")
    paid = placed.replace(f"my-{app.name}", f"{tmp_path}/my-{app.name}").replace("prepare.py", f"{tmp_path}/prepare.py")
    for script in app.blocks("python"):
        (tmp_path / "prepare.py").write_text(script)
    commands = f"export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1\n{plain}\necho {PAID}\n{paid}"
    unpaid, _, told = run_alone(commands, tmp_path, "ray", app.package).partition(PAID)
    assert "aggregate_train: Received 8 results and 0 failures" in unpaid
    assert "[ROUND 20/20]" in told
    assert "Nodes report other" not in told
    with Ledger(tmp_path / f"{app.name}.db", read_only=True) as ledger:
        assert [found.statuses for found in ledger.rounds(app.run)] == [{"paid": NODES}] * 20
        if app is TORCH:
            assert {balance.held for balance in ledger.balances() if balance.earned} == {20 * 68_250_000}
        assert ledger.verify().holds


def play(app: Quickstart, folder: Path, rounds: int, agents: dict[int, Agent]) -> np.ndarray:
    """Return what the paid app pays (rounds × nodes) on a grid in memory, some nodes with an agent in their place."""
    package = f"quickstart_{app.name}"
    client, server = (importlib.import_module(f"{package}.{part}").app for part in ("client_app", "server_app"))
    settings = {"num-server-rounds": rounds, "anonymous": True, "guerdon-db": str(folder / "paid.db")}
    settings |= {"guerdon-run": "run", "fraction-train": 1.0, "local-epochs": 1}
    nodes = [
        Node(100 + i, instead(agents[i], client) if i in agents else client, config=partition(i)) for i in range(NODES)
    ]
    for node in nodes:
        node.context.run_config = settings
    server(MemoryGrid(nodes, wire=False), Context(1, 1, {}, RecordDict(), settings))
    with Ledger(folder / "paid.db", read_only=True) as ledger:
        names = ledger.roster("run")
        return (
            np.array([[line.reward for line in ledger.statement(name).lines if line.round] for name in names]).T / 1e6
        )


def partition(number: int) -> dict[str, Any]:
    return {"partition-id": number, "num-partitions": NODES}


def instead(agent: Agent, client: Callable[..., Any]) -> Callable[..., Any]:
    """Return an app whose agent chooses and reports in its place."""
    mod = strategic(agent, seed=1)
    return lambda message, context: paid_work()(message, context, lambda m, c: mod(m, c, client))


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Quickstart], Path]:
    """Return a function that makes an app with its diff applied importable."""

    def make(app: Quickstart) -> Path:
        pytest.importorskip(app.package)
        monkeypatch.syspath_prepend(app.paid(tmp_path))
        monkeypatch.chdir(tmp_path)  # the quickstart saves its model where it is
        for name in [name for name in sys.modules if name.startswith(f"quickstart_{app.name}")]:
            monkeypatch.delitem(sys.modules, name)
        return tmp_path

    return make


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let PyTorch compute in one thread: several cost more time than they save with a network this small."""
    torch: Any = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_who_trains_on_the_named_rows_of_the_pytorch_quickstart_is_paid_and_an_idle_node_is_not(
    importable: Callable[[Quickstart], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round costs 65 and pays 68.25. The third node sends the model back as it came."""
    app, names, rounds = importable(TORCH) / "my-torch", ["Basel", "Lyon", "Porto"], 2
    client, server, task = (
        importlib.import_module(f"quickstart_torch.{part}") for part in ("client_app", "server_app", "task")
    )
    nodes = [
        Node(100 + i, instead(zero(), client.app) if name == "Porto" else client.app, config=partition(i))
        for i, name in enumerate(names)
    ]
    settings = {"num-server-rounds": rounds, "fraction-evaluate": 0.0, "local-epochs": 1, "learning-rate": 0.03}
    settings |= {"batch-size": 8, "auditor": PUBLIC}
    for node in nodes:
        node.context.run_config = settings
    with Ledger(tmp_path / "torch.db") as ledger:
        ledger.enrol({name: node.der for name, node in zip(names, nodes, strict=True)})
        auditor = Auditor(ledger, "torch", 64, "quickstart_torch.task:work", app, task.work, models=True)
        data = {name: task.load_data(i, NODES, 8)[0].dataset[:] for i, name in enumerate(names)}
        rows = {name: {"x": x.numpy(), "y": y.numpy()} for name, (x, y) in data.items()}
        commitments = auditor.commit(rows, rounds)
        server.app(MemoryGrid(nodes), Context(1, 1, {}, RecordDict(), settings))
        auditor.draw()
        passed = {look.member: auditor.look(look, commitments[look.member]) for look in ledger.looks.open("torch")}
        assert passed == {"Basel": True, "Lyon": True, "Porto": False}
        pass_appeals(monkeypatch)
        released = {one.member: one.released for one in ledger.looks.settle("torch")}
        assert released == {"Basel": rounds * 68_250_000, "Lyon": rounds * 68_250_000, "Porto": 0}
        assert ledger.verify().holds


def test_the_pytorch_quickstart_takes_as_many_lines_as_the_page_says() -> None:
    """A line that changes counts, a blank one does not."""
    added = [line for line in TORCH.blocks("diff")[0].splitlines() if line.startswith("+") and line.strip("+")]
    counted = len([line for line in added if not line.startswith("+++")])
    assert f"It adds\n{counted} lines" in TORCH.section
    assert counted <= 15, "the most that a user should have to add"


@pytest.mark.slow
def test_half_the_work_and_none_in_the_scikit_learn_quickstart_lose(importable: Callable[[Quickstart], Path]) -> None:
    """Honest work costs 33, half of it 17. The rule settles every 100 rounds."""
    paid = play(SKLEARN, importable(SKLEARN), 200, {0: Portion(0.5), 1: zero()}).mean(axis=0)
    assert paid[0] < 17
    assert paid[1] < 1
    assert 22 < paid[2:].min() < paid[2:].max() < 40
