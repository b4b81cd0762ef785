"""The example apps on Flower's simulation runtime, by the commands of docs/how-to/flower.md."""

from pathlib import Path

import pytest

from guerdon.ledger import Ledger
from tests.support.namespaces import ROOT, run_alone

pytestmark = pytest.mark.slow

AGAIN = "The same once more"  # on the same SuperLink, which takes a while to start


@pytest.mark.parametrize("app", ["paid-numpy", "paid-torch"])
def test_the_commands_of_the_docs_run_the_examples(app: str, tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/flower.md").read_text().partition("## Examples")[2]
    commands = page.partition("```sh\n")[2].partition("```")[0].replace("paid-numpy", app)
    needs = ["ray", *(["torch", "jax"] if app == "paid-torch" else [])]
    placed = commands.replace("$PWD/", f"{tmp_path}/").replace("--db ", f"--db {tmp_path}/")
    again = f"flwr run examples/{app} --federation-config num-supernodes=4 --stream --run-config "
    setting = f"anonymous=true num-server-rounds=4 guerdon-db='{tmp_path}/simulated.db'"
    told, _, told_again = run_alone(f'{placed}\necho {AGAIN}\n{again}"{setting}"', tmp_path, *needs).partition(AGAIN)
    assert "[ROUND 3/3]" in told
    assert "simulated-3" in told.rpartition("Final results:")[2]
    assert "[ROUND 4/4]" in told_again
    with Ledger(tmp_path / "simulated.db", read_only=True) as ledger:
        assert ledger.roster(app) == [f"simulated-{i}" for i in range(4)]
        # Rounds are open until a scale of distances is known; the next round settles them.
        assert [found.statuses for found in ledger.rounds(app)] == [{"waiting": 4}] * 2 + [{"paid": 4}] * 2
        assert ledger.verify().holds
