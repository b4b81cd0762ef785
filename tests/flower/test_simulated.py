"""The example apps on Flower's simulation runtime, by the commands of docs/how-to/flower.md."""

from pathlib import Path

import pytest

from guerdon.ledger import Ledger
from tests.support.namespaces import ROOT, run_alone

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("app", ["paid-numpy", "paid-torch"])
def test_the_commands_of_the_docs_run_the_examples(app: str, tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/flower.md").read_text().partition("## Examples")[2]
    commands = page.partition("```sh\n")[2].partition("```")[0].replace("paid-numpy", app)
    needs = ["ray", *(["torch", "jax"] if app == "paid-torch" else [])]
    told = run_alone(commands.replace("$PWD/", f"{tmp_path}/").replace("--db ", f"--db {tmp_path}/"), tmp_path, *needs)
    assert "[ROUND 3/3]" in told
    assert "simulated-3" in told.rpartition("Final results:")[2]
    again = f"flwr run examples/{app} --federation-config num-supernodes=4 --stream --run-config "
    setting = f"anonymous=true num-server-rounds=4 guerdon-db='{tmp_path}/simulated.db'"
    assert "[ROUND 4/4]" in run_alone(
        f'export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1; {again}"{setting}"', tmp_path
    )
    with Ledger(tmp_path / "simulated.db", read_only=True) as ledger:
        assert ledger.roster(app) == [f"simulated-{i}" for i in range(4)]
        assert [found.statuses for found in ledger.rounds(app)] == [{"paid": 4}] * 4
        assert ledger.verify().holds
