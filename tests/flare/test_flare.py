"""Paid rounds in NVIDIA FLARE: the same server as the simulator's, and real runs in its simulator and deployment."""

# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportUnknownVariableType=false

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples.deployment import program
from safetensors.numpy import load_file, save_file  # pyright: ignore[reportUnknownVariableType]

from guerdon import AffineCost, FixedRequest, FlatPay, OutputAgreement, Server
from guerdon.ledger import Ledger
from guerdon.looks.coins import commit_coins
from guerdon.run.archive import Archive
from guerdon.run.driver import open_run
from guerdon.statistical.dithers import Dither
from guerdon.statistical.servers import server_for
from guerdon.terms import Terms
from tests.flower.test_one_server import same_dither_once, settled_by_default, simulated
from tests.support.ledger_scenes import check_agreement
from tests.support.look_scenes import AUDITOR, LOOKS, NAMES, RUN, commitment_of
from tests.support.namespaces import run_alone
from tests.support.one_server_scene import AGENTS, COST, REQUESTS, ROUNDS, RULE, scene

pytest.importorskip("nvflare", reason="nvflare is not installed: pip install '.[flare]'")

__all__ = ["same_dither_once"]  # a fixture
MODEL = {"a": np.zeros((2, 4)), "b": np.zeros(4)}
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # FLARE's own


def sent_by(name: str, line: Any) -> Any:
    from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

    params = {"a": line[:8].reshape(2, 4), "b": line[8:]}
    return FLModel(params=params, params_type=ParamsType.FULL, meta={"client_name": name})


@pytest.mark.usefixtures("same_dither_once")
def test_the_aggregator_pays_as_the_simulator_does(tmp_path: Path) -> None:
    """Copies, near-copies, garbage of every size, NaN, long and short reports, dropouts and joins; 30 rounds."""
    from guerdon.flare import PaidAggregator

    options: dict[str, Any] = {"dither": Dither(0.3, COST), "alike": False}
    sent, present = scene(0)
    history = simulated(RULE, sent, present, **options)
    rewards, names = np.zeros((ROUNDS, AGENTS)), [f"n{k}" for k in range(AGENTS)]
    with Ledger(tmp_path / "guerdon.db") as ledger:
        aggregator = PaidAggregator(
            open_run(server_for(RULE, REQUESTS, **options), ledger, "run", MODEL, rounds=ROUNDS)
        )
        aggregator.broadcast()
        for number in range(ROUNDS):
            aggregator.reset_stats()
            for k in np.flatnonzero(present[number]):
                aggregator.accept_model(sent_by(names[k], sent[number, k]))
            aggregator.aggregate_model()
            for slip in ledger.payslips("run", number + 1):
                rewards[number, names.index(slip.agent)] = slip.reward / 1e6
        assert ledger.verify().holds
    assert rewards == pytest.approx(history.rewards["reward"][0], rel=1e-9, abs=1e-6)
    length = sum(float(np.sum(part * part)) for part in aggregator.run.model.values())
    assert length == pytest.approx(history.metrics["length"][0, -1], rel=1e-9)


def test_clients_are_told_which_rows_a_round_names(tmp_path: Path) -> None:
    """One message names the work of every client that has committed; reports can be computed again from it."""
    from guerdon.flare import PaidAggregator, named_work

    server = Server(FlatPay(COST), FixedRequest(8, 0.1))
    with Ledger(tmp_path / "guerdon.db") as ledger:
        coins = commit_coins(AUDITOR, ledger.name, RUN, rounds=4)
        Archive(ledger.files, RUN).put_coins(coins, coins.to_json(AUDITOR))
        for name in NAMES:
            ledger.looks.commit(commitment_of(ledger, name).committed())
        aggregator = PaidAggregator(open_run(server, ledger, RUN, MODEL, Terms(LOOKS), rounds=4))
        sent = aggregator.broadcast()
        for _ in range(4):
            aggregator.reset_stats()
            for name in NAMES:
                rows, seed = named_work(sent, name)
                assert (len(set(rows.tolist())), seed >= 0) == (8, True)
                aggregator.accept_model(sent_by(name, np.full(12, float(rows.sum()))))
            sent = aggregator.aggregate_model()
        work = ledger.looks.work(RUN)
        assert [set(one.used) for one in work] == [set(NAMES)] * 4
        assert {slip.reward for slip in ledger.payslips(RUN)} == {9_450_000}
        with pytest.raises(ValueError, match="names no rows for 'Vigo'"):
            named_work(sent, "Vigo")
        sent.params["b"] = sent.params["b"] + 1
        with pytest.raises(ValueError, match="names no rows"):
            named_work(sent, NAMES[0])
        assert ledger.verify().holds


def test_the_default_rule_adds_up(tmp_path: Path) -> None:
    """With dropouts and joins, in 30 rounds."""
    from guerdon.flare import PaidAggregator

    sent, present = scene(0)
    with Ledger(tmp_path / "guerdon.db") as ledger:
        server = server_for(OutputAgreement(COST), REQUESTS)
        aggregator = PaidAggregator(open_run(server, ledger, "run", MODEL, rounds=ROUNDS))
        aggregator.broadcast()
        for number in range(ROUNDS):
            aggregator.reset_stats()
            for k in np.flatnonzero(present[number]):
                aggregator.accept_model(sent_by(f"n{k}", sent[number, k]))
            aggregator.aggregate_model()
        check_agreement(ledger, "run", settled_by_default())


def test_models_where_gradients_are_expected_stop_the_first_round(tmp_path: Path) -> None:
    from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

    from guerdon.flare import PaidAggregator

    model = {"w": np.linspace(-1, 1, 60).reshape(20, 3)}
    with Ledger(tmp_path / "guerdon.db") as ledger:
        aggregator = PaidAggregator(
            open_run(server_for(OutputAgreement(COST), REQUESTS), ledger, "run", model, rounds=2)
        )
        aggregator.broadcast()
        for name in ("a", "b", "c"):
            trained = {"w": model["w"] + 0.01 * np.random.default_rng(len(name)).normal(size=(20, 3))}
            aggregator.accept_model(FLModel(params=trained, params_type=ParamsType.FULL, meta={"client_name": name}))
        with pytest.raises(ValueError, match=r"reports must be gradients, got models from a, b, c: .*`sends=.models.`"):
            aggregator.aggregate_model()
        assert ledger.runs() == []


JOB = """
import sys
from nvflare.fuel.utils.constants import FrameworkType
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner
from guerdon.flare import PaidFedAvg

where, folder, script = sys.argv[1:]
sites = ["site-1", "site-2", "site-3"]
job = FedJob(name="paid", min_clients=3)
job.to_server(PaidFedAvg(f"{folder}/model.safetensors", "run", request=8, ledger=f"{folder}/guerdon.db",
                         rule="agreement", step=0.05, num_clients=3, num_rounds=3))
for site in sites:
    job.to(ScriptRunner(script=script, script_args=folder, framework=FrameworkType.NUMPY), site)
if where == "simulator":
    job.simulator_run(f"{folder}/workspace")
else:  # what `nvflare poc` prepares and starts: a server and three clients, with certificates of their own
    from nvflare.recipe.poc_env import PocEnv

    deployment = PocEnv(clients=sites, num_clients=3, extra={"login_timeout": 60})
    try:
        print(deployment.get_job_result(deployment.deploy(job), timeout=200))
    finally:
        deployment.stop()
"""


@pytest.mark.parametrize("where", ["simulator", "deployment"])
def test_rounds_in_flare_are_paid(tmp_path: Path, where: str) -> None:
    """By the names that FLARE knows the clients by, whatever they say of themselves."""
    lines = {f"site-{k}": np.random.default_rng(k).normal(size=(3, 12)) + 1.0 for k in (1, 2, 3)}
    np.savez(tmp_path / "lines.npz", allow_pickle=False, **lines)
    save_file(MODEL, tmp_path / "model.safetensors")
    (tmp_path / "job.py").write_text(JOB)
    script = Path(__file__).with_name("client.py")
    own = f"HOME={tmp_path} NVFLARE_POC_WORKSPACE={tmp_path}/poc"
    told = run_alone(f"cd {tmp_path}\n{own} {sys.executable} job.py {where} {tmp_path} {script}", tmp_path)[-3000:]
    with Ledger(tmp_path / "guerdon.db", read_only=True) as ledger:
        assert ledger.roster("run") == ["site-1", "site-2", "site-3"], told
        assert [(run.rounds, run.last_round) for run in ledger.runs()] == [(3, 3)], told
        assert ledger.verify().holds
        paid = {(s.agent, n): s.reward / 1e6 for n in (1, 2, 3) for s in ledger.payslips("run", n)}
    server = server_for(OutputAgreement(AffineCost(1, 1)), FixedRequest(8, 0.05))
    model = np.zeros(12)
    state = server.init(model, 3)
    for number in range(3):
        ask, state = server.ask(state, model)
        ask = ask._replace(is_last=number == 2)  # which settles what is open
        reports = np.stack([lines[f"site-{k}"][number] for k in (1, 2, 3)])
        settled, state = server.settle(state, ask, reports, np.ones(3, dtype=bool))
        model = model - settled.step * settled.mean
        own = [paid[f"site-{k}", number + 1] for k in (1, 2, 3)]
        assert own == pytest.approx(settled.payments.released, abs=1e-6)
    trained = load_file(tmp_path / "model.trained.safetensors")
    assert np.concatenate([trained["a"].reshape(-1), trained["b"]]) == pytest.approx(model)
    assert (tmp_path / "site-2-3").read_text() == "8"


def test_flare_cannot_start_a_superlink_that_knows_nodes_by_their_keys() -> None:
    """Where this fails, FLARE or Flower has changed, and docs/how-to/flare.md is out of date: try it again."""
    from nvflare.app_opt.flower import applet

    told = "--serverappio-api-address"
    assert told in inspect.getsource(applet)
    command = [program("flower-superlink"), "--insecure", told, "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, f"{told}: this option is no longer supported" in done.stderr) == (2, True), done.stderr
