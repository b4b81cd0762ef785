"""The README is true: its Python is run, its commands are run, and their output is compared word for word."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from tests.support.command_line import run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def commands() -> list[tuple[str, str]]:
    """Return each `guerdon` command of the README with the output printed below it."""
    blocks: list[str] = re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    split = [part.partition("\n") for part in parts]
    return [(command, output) for command, _, output in split if command.startswith("guerdon")]


@pytest.fixture
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, as a newcomer would."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_python_examples() -> doctest.TestResults:
    test = doctest.DocTestParser().get_doctest(README, {}, "README.md", "README.md", 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test)
    return runner.summarize(verbose=False)


@pytest.mark.usefixtures("somewhere")
def test_python_examples() -> None:
    result = run_python_examples()
    assert result.attempted >= 5
    assert result.failed == 0


def test_commands_print_what_the_readme_shows(somewhere: Path) -> None:
    run_python_examples()
    assert len(commands()) >= 2
    for command, expected in commands():
        result = run(*shlex.split(command)[1:], cwd=somewhere, COLUMNS="100")
        assert (result.code, result.stderr) == (0, "")
        assert [line.rstrip() for line in result.stdout.splitlines()] == expected.splitlines()
