"""Every page is true and readable: its examples run, its links lead somewhere, and its prose keeps to our rules."""

import doctest
import re
from pathlib import Path

import pytest

from guerdon import registry
from guerdon.lab.arena.entrants import ENTRANTS

ROOT = Path(__file__).parent.parent.parent
DOCS = sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts)
PAGES = [str(page.relative_to(ROOT)) for page in DOCS]
READ = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "benchmarks/README.md", *PAGES]
TEXT = {name: (ROOT / name).read_text() for name in READ}
# Other tests run these pages, with their commands.
ELSEWHERE = {"docs/how-to/audit.md", "docs/how-to/command-line.md"}
SLOW = {
    "docs/explanation/arena.md",
    "docs/explanation/information.md",
    "docs/how-to/different-members.md",
    "docs/how-to/pilot.md",
    "docs/how-to/simulation.md",
    "docs/reference/api/simulation.md",
}
RUN = [page for page in PAGES if "\n>>> " in TEXT[page] and page not in ELSEWHERE]


def prose(page: str) -> list[str]:
    """Return the lines of a page that are sentences: no code, no table, no heading, no picture."""
    lines = re.sub(r"^ *(```|:::).*?^ *\1$", "", TEXT[page], flags=re.DOTALL | re.MULTILINE).splitlines()
    return [line for line in lines if not line.startswith(("    ", "|", "#", "!["))]


@pytest.mark.parametrize("page", READ)
def test_pictures_and_links_exist(page: str) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#\s]+)[^)]*\)", TEXT[page]):
        assert (ROOT / page).parent.joinpath(link).exists(), link


@pytest.mark.parametrize("page", READ)
def test_lines_are_short_enough_to_read(page: str) -> None:
    assert [line for line in prose(page) if len(line) > 100] == []


@pytest.mark.parametrize("page", READ)
def test_agents_are_it_and_nobody_is_a_stranger(page: str) -> None:
    found = re.findall(r"(?i)\b(?:he|his|him|she|her|hers|whom|whoever|strangers?)\b", "\n".join(prose(page)))
    assert found == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_first_who_it_is_for(page: str) -> None:
    begins = re.sub(r"\A---.*?^---$", "", TEXT[page], flags=re.DOTALL | re.MULTILINE).lstrip().split("\n\n")[1]
    assert re.match(r"\*?For |\*\*The incentive layer", begins), begins


# Numbers that somebody measured, and what measures them again (or where the page says that nothing does).
MEASURED = re.compile(
    r"\d\s+repetitions|standard errors? (?:at most|of|under)|\(standard errors? \d|runs each|pilots of each|Tried: "
)
COMMAND = re.compile(
    r"guerdon\s+(?:reproduce|arena)|python -m benchmarks|make bench|flwr run|tests/\w+|#where-numbers-come-from"
)


@pytest.mark.parametrize("page", [page for page in PAGES if "/reference/" not in page])
def test_numbers_have_the_command_that_measured_them(page: str) -> None:
    text = re.sub(r"^ *```\W*(?:code-cell )?\W*python.*?^ *```$", "", TEXT[page], flags=re.DOTALL | re.MULTILINE)
    sections = re.split(r"^(?=#+ )", text, flags=re.MULTILINE)
    bare = [section for section in sections if MEASURED.search(section) and not COMMAND.search(section)]
    assert [section.partition("\n")[0] for section in bare] == []


def test_examples_are_found() -> None:
    """Blocks that are not run say so: they hold no `>>>`, and what they show is run elsewhere."""
    assert len(RUN) >= 7


@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW)) for page in RUN])
def test_examples_run(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_RULES", dict(registry.known_rules()))  # a page's own rule does not stay
    entered = set(ENTRANTS)
    result = doctest.testfile(
        str(ROOT / page), module_relative=False, encoding="utf-8", optionflags=doctest.NORMALIZE_WHITESPACE
    )
    for name in set(ENTRANTS) - entered:
        del ENTRANTS[name]
    assert result.failed == 0
