"""The README is true: its Python is run, its commands are run, and their output is compared word for word."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from guerdon.rules import registry
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


DOCS = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts)
PAGES = ["README.md", "CONTRIBUTING.md", "benchmarks/README.md", *DOCS]


@pytest.mark.parametrize("page", PAGES)
def test_pictures_and_links_exist(page: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(link).exists(), link


@pytest.mark.usefixtures("somewhere")
@pytest.mark.parametrize(
    ("page", "examples"),
    [
        ("docs/how-to/simulation.md", 8),
        ("docs/how-to/planner.md", 8),
        ("docs/explanation/ledger.md", 9),
        ("docs/explanation/information.md", 20),
        ("docs/explanation/mechanism.md", 10),
        ("docs/explanation/audit.md", 9),
        ("docs/explanation/federations.md", 8),
        pytest.param("docs/how-to/pilot.md", 8, marks=pytest.mark.slow),
        ("docs/explanation/steady.md", 8),
    ],
)
def test_examples_in_the_docs(page: str, examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))  # a rule of one's own does not stay
    result = doctest.testfile(str(ROOT / page), module_relative=False, encoding="utf-8")
    assert result.attempted >= examples
    assert result.failed == 0
