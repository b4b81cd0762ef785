"""How the site is built: `make docs`. Nothing is loaded from elsewhere, and formulas need no script."""

import re
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(Path(__file__).parent))  # site_*.py: our own small extensions

_project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

project, author, release = "Guerdon", _project["authors"][0]["name"], _project["version"]
project_copyright = f"2026, {author}"
autodoc_mock_imports = [] if find_spec("nvflare") else ["nvflare"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "site_mathml", "site_reference"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # other packages' types: there is no network to look them up
default_role = "code"  # docstrings write `names` as Markdown does
autodoc_typehints, autodoc_typehints_format, autodoc_preserve_defaults = "signature", "short", True
source_suffix = {".md": "myst-nb"}

html_theme = "furo"
html_title = "Guerdon"
html_show_sphinx = html_copy_source = False
html_static_path, html_css_files = ["_static"], ["site.css"]
html_math_renderer = "mathml"
html_baseurl = ""

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode, nb_execution_in_temp, nb_execution_raise_on_error, nb_execution_timeout = "cache", True, True, 300

_OUTSIDE = re.compile(r"\]\((?:\.\./)+((?:benchmarks|examples|src|tests|tools|CONTRIBUTING\.md|SECURITY\.md)[^)]*)\)")


def link_to_files(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Let links to files that are not on the site lead to the project's home."""
    home = _project["urls"]["Repository"]
    source[0] = _OUTSIDE.sub(lambda link: f"]({home}/blob/main/{link[1]})", source[0])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", link_to_files)
