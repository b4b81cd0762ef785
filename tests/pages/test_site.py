"""The site: it builds without a warning and offline, and the reference names all that there is."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
import typer
from docs.site_reference import PUBLIC, public_names

from guerdon.cli import app
from guerdon.ledger.books import tables
from tests.pages.test_pages import ROOT

pytestmark = pytest.mark.slow
# What makes a browser fetch something: attributes, and addresses in style sheets.
LOADED = re.compile(r"""(?:\bsrc|\bsrcset|<link[^>]*\bhref|@import|url\()\s*=?\s*\(?["']?(?:https?:)?//[^"')\s]+""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; `make docs` also runs the notebooks, which `test_tutorials.py` does here."""
    pytest.importorskip("furo")
    pytest.importorskip("myst_nb")
    out = tmp_path_factory.mktemp("site")
    options = ["--fail-on-warning", "--keep-going", "-q", "-D", "nb_execution_mode=off", "-b", "html"]
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def words(page: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    files = [*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.js")]
    assert len([file for file in files if file.suffix == ".html"]) > 40
    assert {str(file): found for file in files if (found := LOADED.findall(file.read_text()))} == {}


def test_every_command_and_option_is_in_the_reference(site: Path) -> None:
    page = words(site / "reference/commands.html")

    def look(name: str, command: object) -> int:
        inner = getattr(command, "commands", None)
        if inner:
            return sum(look(f"{name} {word}", found) for word, found in inner.items())
        section = re.search(rf"\n{name}(?: [^\n]*)?¶(.*?)(?=\n[^\n]*¶|\Z)", page, flags=re.DOTALL)
        assert section, name
        options = [
            option
            for found in getattr(command, "params", [])
            for option in [*found.opts, *found.secondary_opts]
            if option != "--help"
        ]
        assert all(option in section[1] for option in options if option.startswith("--")), name
        return 1

    assert look("guerdon", typer.main.get_command(app)) > 20


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    api = "".join(page.read_text() for page in (site / "reference/api").glob("*.html"))
    missing = [f"{module}.{name}" for module in PUBLIC for name in public_names(module)]
    assert [name for name in missing if f'id="{name}"' not in api] == []


def test_every_table_and_column_is_in_the_reference(site: Path) -> None:
    page = words(site / "reference/schema.html")
    for table in tables.metadata.tables.values():
        section = page.partition(f"\n{table.name}")[2]
        assert all(column.name in section for column in table.columns), table.name


def test_formulas_are_typeset_without_a_script(site: Path) -> None:
    page = "".join((site / f"explanation/{name}.html").read_text() for name in ("mechanism", "agreement"))
    assert page.count("<math") >= 5
    assert not re.search(r"<script[^>]*(?:mathjax|katex)", page, flags=re.IGNORECASE)
