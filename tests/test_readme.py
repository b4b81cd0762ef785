"""README and the command-line page are true: their Python is run, and the output of commands compared word for word."""

import doctest
import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from examples.demo_flower import NODES

import guerdon
from guerdon import Server
from tests.support.command_line import run

ROOT = Path(__file__).parent.parent
README, PAGE = "README.md", "docs/how-to/command-line.md"
# What the lines on Flower use: of Guerdon, and of Flower.
FLOWER = ("steady_pay", "FixedRequest", "Dither", "Paid", "FedSGD", "Terms", "ClientApp", "paid_work")


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


def sentences() -> str:
    """Return README as one line."""
    return " ".join((ROOT / README).read_text().split())


def said(pattern: str) -> list[str]:
    """Return what README says in the places of a pattern's groups."""
    match = re.search(pattern, sentences())
    assert match, f"README no longer says {pattern!r}: this test must change, too"
    return [*match.groups()]


class Played(NamedTuple):
    """What README's program did: its names, and what was released in each round (rounds, members)."""

    names: dict[str, Any]
    paid: Any


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """README's program, watched."""
    settle, rounds, names = Server.settle, list[Any](), dict[str, Any]()

    def watched(*arguments: Any, **options: Any) -> Any:
        done, state = settle(*arguments, **options)
        rounds.append(done.payments.released)
        return done, state

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("readme"))
        patch.setattr(Server, "settle", watched)
        exec(first_program()[0], names)  # noqa: S102 - our own page
    return Played(names, np.array(rounds))


def test_the_program_is_the_one_that_readme_announces(played: Played) -> None:
    """Six members, a hundred rounds of 16 samples; the fifth uses 8, the last sends zeros."""
    asked, half = said(
        r"Pay six members for a hundred rounds of (\d+) samples\. The fifth uses (\d+)\. The last sends zeros\."
    )
    assert played.paid.shape == (100, 6)
    assert played.names["ask"].request == int(asked)
    assert played.names["used"].tolist() == [int(asked)] * 4 + [int(half), int(asked)]
    assert not played.names["gradients"][5].any()
    assert played.names["gradients"][:5].any(axis=1).all()


def test_the_sentences_below_the_program_say_what_it_does(played: Played) -> None:
    """What work cost and brought, and in which round pay began."""
    full, half, brought, first = map(int, said(
        r"Honest work cost (\d+) a round\. Half of it cost (\d+) and brought (\d+)\. Zeros brought nothing\. "
        r"Pay began in round (\d+)"
    ))  # fmt: skip
    cost, paid = played.names["rule"].cost, played.paid
    assert [cost(16), cost(8), (paid[:, 4].sum() / 100).round()] == [full, half, brought]
    assert (paid[:, 5] == 0).all()
    assert not paid[: first - 1].any()
    assert (paid[first - 1, :4] > 0).any()
    assert played.names["rule"].probation == first - 1  # the rule's doing, not chance


def test_the_picture_shows_what_its_words_say(played: Played) -> None:
    """Four that work get about their cost, one that does half gets less than it spent, zeros get nothing."""
    words = said(r"!\[What six hospitals are paid a round, against what their work costs: ([^\]]*)\]")[0]
    assert words.startswith("four that work get about their cost, one that does half the work gets less than it spent")
    mean, cost = played.paid.mean(axis=0), played.names["rule"].cost
    np.testing.assert_allclose(mean[:4], cost(16), rtol=0.1)
    assert mean[4] < cost(8)
    assert mean[5] == 0


def test_the_scale_of_the_command_is_the_variance_of_one_sample(played: Played) -> None:
    """320: in the program a mean gradient of s samples has noise of 4/√s in each of 20 numbers."""
    (scale,) = said(r"(\d+) is the variance of one sample's gradient")
    assert f"--scale {scale}" in sentences()
    model = played.names["model"]
    assert "4 * rng.normal(size=(6, 20)) / np.sqrt(used)" in first_program()[0]
    assert int(scale) == 4**2 * model.size


def test_the_lines_on_flower_make_a_paid_strategy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three lines, with the names that README and the program above them import."""
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"```python\n(server = steady_pay.*?)```", (ROOT / README).read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {"cost": guerdon.AffineCost(1, 1)}
    for module in ("guerdon", "guerdon.flower", "guerdon.statistical", "guerdon.statistical.dithers", "flwr.clientapp"):
        names |= {name: getattr(import_module(module), name) for name in FLOWER if hasattr(import_module(module), name)}
    exec(lines[0], names)  # noqa: S102 - our own page
    assert type(names["strategy"]).__module__.startswith("guerdon.flower")
    assert said(r"Wrap any strategy in `(\w+)`, and give the client app the mod `(\w+)`") == ["Paid", "paid_work"]


def test_readme_names_what_there_is() -> None:
    """Targets of make, the oldest Python, the number of nodes, the licence and the paper."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"`make ([a-z-]+)`", sentences())) <= set(targets)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={said(r'You need Python ≥ ([0-9.]+[0-9])')[0]}"
    assert said(r"starts a SuperLink and (\w+) nodes") == [{4: "four"}[len(NODES)]]
    assert f"{project['license']}." in sentences()
    assert said(r"\*(Distributed [^*]*)\*")[0] in (ROOT / "CITATION.cff").read_text()


def test_readme_is_a_screen_and_a_half() -> None:
    assert len((ROOT / README).read_text().splitlines()) <= 100
