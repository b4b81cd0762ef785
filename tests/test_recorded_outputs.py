"""The commands print what they printed: a change of structure changes no output."""

import math
import re
from pathlib import Path

import pytest
import typer

from guerdon.cli import app
from tests.data.outputs import make

NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
stories = [pytest.param(name, marks=[pytest.mark.slow] * make.STORIES[name].slow) for name in make.STORIES]


def differences(kept: str, found: str, close: float = 1e-9) -> list[str]:
    """Return the lines that differ in more than the last digits of a number, which another machine may round."""
    old, new = kept.splitlines(), found.splitlines()
    wrong = [f"{a!r} is now {b!r}" for a, b in zip(old, new, strict=False) if not same(a, b, close)]
    return wrong if len(old) == len(new) else [*wrong, f"{len(old)} lines are now {len(new)}"]


def same(one: str, other: str, close: float) -> bool:
    if one == other:
        return True
    numbers = [[float(number) for number in NUMBER.findall(line)] for line in (one, other)]
    if NUMBER.sub("", one) != NUMBER.sub("", other) or len(numbers[0]) != len(numbers[1]):
        return False
    return all(math.isclose(a, b, rel_tol=close, abs_tol=1e-12) for a, b in zip(*numbers, strict=True))


@pytest.mark.parametrize("name", stories)
def test_commands_print_what_was_recorded(name: str, tmp_path: Path) -> None:
    close = 2e-3 if make.STORIES[name].slow else 1e-9  # what is simulated is in float32, and shown in few digits
    assert differences((make.HERE / f"{name}.txt").read_text(), make.printed(name, tmp_path), close) == []


def test_there_is_an_output_of_every_command_that_ends_by_itself_and_soon() -> None:
    asked = {command.split()[0] for story in make.STORIES.values() for command in story.commands}
    longer = {"dashboard", "serve", "arena", "reproduce"}
    commands: dict[str, object] = vars(typer.main.get_command(app))["commands"]
    assert set(commands) - longer == asked - {"--help"}
    assert {path.stem for path in make.HERE.glob("*.txt")} == set(make.STORIES)


def test_what_differs_is_found() -> None:
    kept = (make.HERE / "ledger-steady.txt").read_text()
    assert differences(kept, kept) == []
    assert differences(kept, kept.replace("Porto", "Posto", 1))
    assert differences(kept, kept + "one more line\n")
    number = NUMBER.findall(kept)[-1]
    assert differences(kept, kept.replace(number, f"{float(number) + 1e-6:.6f}"))
