"""README and the command-line page are true: their Python is run, and the output of commands compared word for word."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from tests.support.command_line import run

ROOT = Path(__file__).parent.parent
README, PAGE = "README.md", "docs/how-to/command-line.md"


def commands(name: str) -> list[tuple[str, str]]:
    """Return each `guerdon` command of a page with the output printed below it."""
    blocks: list[str] = re.findall(r"```console\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    split = [part.partition("\n") for part in parts]
    return [(command, output) for command, _, output in split if command.startswith("guerdon")]


def first_program() -> tuple[str, str]:
    """Return the program that README tells to save, and what README says that it prints."""
    text = (ROOT / README).read_text()
    found = re.search(r"```python\n(import numpy.*?# prints (.*?), .*?)```", text, flags=re.DOTALL)
    assert found
    return found[1], found[2]


@pytest.mark.parametrize(("name", "shown"), [(README, 0), (PAGE, 3)])
def test_python_and_commands_do_what_the_page_shows(
    name: str, shown: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In an empty folder, as a newcomer would."""
    monkeypatch.chdir(tmp_path)
    if name == README:
        code, printed = first_program()
        exec(compile(code, "first.py", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own page
        assert capsys.readouterr().out.strip() == printed
    else:
        result = doctest.testfile(str(ROOT / name), module_relative=False, encoding="utf-8")
        assert result.failed == 0
        assert result.attempted >= 5
    assert len(commands(name)) >= 2
    assert sum(bool(expected) for _, expected in commands(name)) == shown
    for command, expected in commands(name):
        done = run(*shlex.split(command)[1:], cwd=tmp_path, COLUMNS="100")
        assert (done.code, done.stderr) == (0, "")
        if expected:
            assert [line.rstrip() for line in done.stdout.splitlines()] == expected.splitlines()


def test_readme_is_a_screen_and_a_half() -> None:
    assert len((ROOT / README).read_text().splitlines()) <= 100
