"""Every public name is in an example that is run: of its own docstring, or of a page."""

import doctest
import enum
import inspect
import pkgutil
import re
from importlib.util import find_spec
from typing import Any

from docs.site_reference import INSIDE, PUBLIC, public_names

import guerdon
from guerdon import lab
from tests.pages.test_pages import PAGES, ROOT, TEXT

# Tests call these; an example would need what is not here.
ELSEWHERE = {
    "guerdon.flare": {"PaidFedAvg", "PaidAggregator"},  # tests/flare runs them in FLARE
    "guerdon.flower": {"decline", "last_pay", "samples_to_use"},  # a message of a running federation
    "guerdon.lab.strategic_nodes": {"strategic"},  # a node of a running federation
    "guerdon.pilot": {"Trial"},  # `run_pilot` and Flower's `Pilot` hold it
    "guerdon.lab.simulation": {"TrueVariance"},  # a simulation puts it in the place of σ²
}
# What functions return: their examples show it.
RETURNED = {
    "ArenaSetting", "BestResponding", "Certificate", "FromLoss", "History", "Learning", "LinearRegression",
    "LogisticRegression", "NoisyQuadratic", "PaidRound", "PilotReport", "Report", "Reporting", "Request", "RuleReport",
    "Summary",
}  # fmt: skip
# Building blocks of the audit that the server and the ledger call; its page runs what people call.
BLOCKS = {"guerdon.statistical.audit"}
INSTALLED = [module for module in PUBLIC if module != "guerdon.flare" or find_spec("nvflare")]


def test_every_module_is_in_the_reference_or_is_no_users_business() -> None:
    folders = {"guerdon.": guerdon.__path__, "guerdon.lab.": lab.__path__}
    modules = {
        start + module.name for start, path in folders.items() for module in pkgutil.iter_modules(path)
        if module.name[0] != "_" and module.name != "lab"
    }  # fmt: skip
    inside = {f"guerdon.{name}" for name in INSIDE}
    assert modules == {module for module in PUBLIC if module != "guerdon" and ".statistical." not in module} | inside
    assert not inside & set(PUBLIC)


def test_examples_import_what_the_reference_has() -> None:
    found = {
        word for page in PAGES for word in re.findall(r"(?:from|import) (guerdon(?:\.lab)?(?:\.\w+)?)", TEXT[page])
    }
    assert len(found) > 10
    # One name each: for rules on any array library, a file's format, what a checkpoint holds, a known V, the default.
    # Of looks and their terms: the page on their function and files, and the one for members.
    helpers = {"guerdon.arrays", "guerdon.cli", "guerdon.states", "guerdon.settling", "guerdon.broadcast"}
    helpers |= {"guerdon.looks", "guerdon.terms"}
    assert found - set(PUBLIC) == helpers


def examples() -> set[str]:
    """Return every word in an example that is run."""
    parser = doctest.DocTestParser()
    texts = [file.read_text() for file in (ROOT / "src").rglob("*.py")] + [TEXT[page] for page in [*PAGES, "README.md"]]
    code = [example.source for text in texts for example in parser.get_examples(text)]
    code += [cell for text in texts for cell in re.findall(r"```\{code-cell\} python\n(.*?)```", text, flags=re.DOTALL)]
    return set(re.findall(r"\w+", "\n".join(code)))


def is_shown_by_what_returns_it(value: Any) -> bool:
    """Tell whether a name is for annotations (a protocol, an alias), or what a function returns."""
    if not inspect.isclass(value):
        return not inspect.isroutine(value)
    return getattr(value, "_is_protocol", False) or issubclass(value, tuple | enum.Enum) or value.__name__ in RETURNED


def test_every_public_name_is_in_an_example() -> None:
    words, missing = examples(), set[str]()
    for module in [module for module in INSTALLED if module not in BLOCKS]:
        names = public_names(module).items()
        wanted = {name for name, value in names if not is_shown_by_what_returns_it(value)}
        missing |= {f"{module}.{name}" for name in wanted - words - ELSEWHERE.get(module, set())}
    assert missing == set()


def test_every_public_name_says_what_it_is() -> None:
    names = [(f"{module}.{name}", value) for module in INSTALLED for name, value in public_names(module).items()]
    documented = [(name, value) for name, value in names if inspect.isclass(value) or inspect.isroutine(value)]
    assert [name for name, value in documented if not (inspect.getdoc(value) or "").strip()] == []
    assert len(documented) > 120
