"""Commands in a network of their own, without a way out: Ray looks for a cloud when it starts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from examples.deployment import QUIET

ROOT = Path(__file__).parent.parent.parent


def run_alone(commands: str, folder: Path, *needs: str) -> str:
    """Run shell commands in the checkout and return what they print; skip where something that they need is missing.

    Flower's files are in the folder. What the commands leave running, such as Flower's local SuperLink, is stopped.
    """
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("needs root and unshare, for a network namespace without a way out")
    for package in needs:
        pytest.importorskip(package)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    alone = [unshare, "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-ec"]
    done = subprocess.run(
        [*alone, f"ip link set lo up\n{commands}"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600,
        env=os.environ | QUIET | {"FLWR_HOME": str(folder / "flwr"), "PATH": path, "COLUMNS": "120"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout
