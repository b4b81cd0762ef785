"""README and the command-line page are true: their Python is run, and the output of commands compared word for word."""

import doctest
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import Server
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


def test_readme_s_sentences_say_what_its_program_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number of the sentences below the program is that of the program."""
    monkeypatch.chdir(tmp_path)
    settle, rounds = Server.settle, list[Any]()

    def watched(*arguments: Any, **options: Any) -> Any:
        done, state = settle(*arguments, **options)
        rounds.append(done.payments.released)
        return done, state

    monkeypatch.setattr(Server, "settle", watched)
    played: dict[str, Any] = {}
    exec(first_program()[0], played)  # noqa: S102 - our own page
    text = " ".join((ROOT / README).read_text().split())
    told = re.search(
        r"Honest work cost (\d+) a round\. Half of it cost (\d+) and brought (\d+)\. "
        r"Zeros brought nothing, and in the first (\d+) rounds nobody was paid",
        text,
    )
    assert told, "the sentences have changed: this test must, too"
    paid, cost = np.array(rounds), played["rule"].cost
    assert [cost(16), cost(8), (paid[:, 4].sum() / 100).round()] == [int(number) for number in told.groups()[:3]]
    assert (paid[:, 5] == 0).all()
    assert paid.any(axis=1).argmax() == int(told[4])  # rounds before the first that pays anybody


def test_readme_is_a_screen_and_a_half() -> None:
    assert len((ROOT / README).read_text().splitlines()) <= 100
