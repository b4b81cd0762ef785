"""The package as a stranger gets it: the wheel alone, in an empty environment, does what README says."""

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from tests.test_readme import README, ROOT, commands, first_program

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HOME = PROJECT["project"]["urls"]["Repository"]
CONSUMER = """
from typing import assert_type
import numpy as np
from guerdon import AffineCost, FixedRequest, OutputAgreement, Server
from guerdon.rule import Payments

cost = AffineCost(fixed=1, per_sample=1)
server = Server(OutputAgreement(cost), FixedRequest(8, step=0.1))
ask, state = server.ask(server.init(np.zeros(3), num_agents=4), np.zeros(3))
done, state = server.settle(state, ask, np.ones((4, 3)), np.ones(4, dtype=bool))
assert_type(done.payments, Payments)
"""
MISTAKE = "AffineCost(fixed='free', per_sample=1)\n"


def test_one_home() -> None:
    """The address of the project stands in `project.urls`; README's links on PyPI lead there too."""
    assert all(url.startswith(HOME) for url in PROJECT["project"]["urls"].values())
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    assert all(HOME in rule["replacement"] for rule in hook["substitutions"])


def test_pythons_agree() -> None:
    """Every Python that the package names is one that CI runs, from the oldest on."""
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    matrix = re.search(r"python: (\[.*\])", (ROOT / ".github/workflows/ci.yml").read_text())
    assert matrix
    assert named == re.findall(r"3\.\d+", matrix[1])
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatch_fancy_pypi_readme")
    out = tmp_path_factory.mktemp("dist")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(out),
        str(ROOT),
    ]
    subprocess.run(command, check=True)
    (built,) = out.glob("guerdon-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python in a new environment that holds the wheel and what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder / "venv", with_pip=True)
    installed = folder / "venv/bin/python"
    done = subprocess.run(
        [installed, "-m", "pip", "install", "-q", str(wheel)], capture_output=True, text=True, check=False, cwd=folder
    )
    if "No matching distribution" in done.stderr or "Connection" in done.stderr:
        pytest.skip("needs a package index")
    assert done.returncode == 0, done.stderr
    return installed


@pytest.mark.slow
def test_readme_works_from_the_wheel_alone(python: Path, tmp_path: Path) -> None:
    program, printed = first_program()
    (tmp_path / "first.py").write_text(program)
    environment = {"PATH": f"{python.parent}:{os.environ['PATH']}", "COLUMNS": "100"}

    def run(*command: str) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "site-packages" in run("python", "-c", "import guerdon; print(guerdon.__file__)")
    assert run("python", "first.py").strip() == printed
    told = [run("sh", "-c", command) for command, _ in commands(README)]
    assert "6 of 6 agents paid" in told[0]
    assert "Best response: 8" in told[1]


@pytest.mark.slow
def test_type_checkers_see_the_types(python: Path, tmp_path: Path) -> None:
    """`py.typed` is there: a consumer's code is checked, and its mistake found."""
    checker = Path(sys.executable).parent / "basedpyright"
    settings = ["--pythonpath", str(python), "--level", "error"]
    for name, code, status in (("right.py", CONSUMER, 0), ("wrong.py", CONSUMER + MISTAKE, 1)):
        (tmp_path / name).write_text(code)
        done = subprocess.run([checker, *settings, name], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == status, done.stdout
    assert "fixed" in done.stdout


@pytest.mark.slow
def test_what_pypi_shows(wheel: Path) -> None:
    """No link or picture of README is relative there, and nothing but the package is in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        contents = [entry.CRC for entry in archive.infolist() if entry.file_size]
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("METADATA"))
    shown = message_from_string(metadata)
    text = str(shown.get_payload())
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 10
    assert all(link.startswith(HOME) for link in links), links
    assert f"{HOME}/raw/main/docs/images/first-round.svg" in text
    assert {name.partition("/")[0] for name in names} == {"guerdon", f"guerdon-{shown['Version']}.dist-info"}
    assert len(contents) == len(set(contents)), "check-wheel-contents refuses a file that is there twice"
    assert "guerdon/py.typed" in names
    assert "guerdon/cli/example.toml" in names
