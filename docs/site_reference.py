"""A Sphinx extension: the reference is made from the program itself, so that it cannot be out of date.

A page says where by a remark, which stands for what is written there when the site is built:

    <!-- names: guerdon.ledger -->     every public name of a module, from its docstrings
    <!-- commands -->                  every command of `guerdon`, with its options
    <!-- schema -->                    every table of the ledger, with its columns and constraints
"""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PUBLIC = (
    "guerdon", "guerdon.server", "guerdon.rule", "guerdon.registry", "guerdon.words", "guerdon.agreement",
    "guerdon.witness", "guerdon.statistical", "guerdon.statistical.dithers", "guerdon.statistical.predictions",
    "guerdon.statistical.audit", "guerdon.statistical.contributions", "guerdon.lab.agents", "guerdon.lab.problems",
    "guerdon.lab.simulation", "guerdon.lab.certificate", "guerdon.pilot", "guerdon.ledger", "guerdon.flower",
    "guerdon.run", "guerdon.client", "guerdon.lab.arena", "guerdon.lab.strategic_nodes",
    "guerdon.flare",  # last: importing it may need FLARE, and others need not
)  # fmt: skip
# Not for programmers who use Guerdon, or used by other names.
INSIDE = {
    "costs": "guerdon", "evidence": "guerdon", "noise_scale": "guerdon", "requests": "guerdon", "adaptive": "guerdon",
    "lens": "guerdon.server", "broadcast": "guerdon.server",
    "reports": "guerdon.evidence", "cuts": "guerdon.evidence", "gram": "guerdon.evidence", "scale": "guerdon.agreement",
    "settling": "guerdon.agreement", "provenance": "guerdon.registry", "asking": "guerdon.server",
    "states": "guerdon.rule", "arrays": "guerdon.rule",
    "canonical": "guerdon.ledger",
    "cli": "guerdon COMMAND", "dashboard": "guerdon dashboard",
    "expressions": "guerdon.ExpressionCost",
    "looks": "guerdon looks", "merkle": "guerdon looks",
    "terms": "guerdon", "lab.truth": "guerdon.lab.simulation",
    "lab.game": "guerdon", "lab.experiments": "guerdon reproduce", "lab.figures": "guerdon reproduce",
    "lab.held": "guerdon reproduce", "lab.planning": "guerdon plan", "serve": "guerdon serve",
    "web": "guerdon serve",
}  # fmt: skip


def public_names(module: str) -> dict[str, Any]:
    """Return what a module offers: what it names, or else what it defines; without what an earlier one offers."""
    found = _import(module)
    own = [name for name, value in vars(found).items() if getattr(value, "__module__", None) == module]
    names = getattr(found, "__all__", sorted(name for name in own if not name.startswith("_")))
    earlier = [getattr(_import(other), "__all__", ()) for other in PUBLIC[: PUBLIC.index(module)]]
    return {name: getattr(found, name) for name in names if not any(name in others for others in earlier)}


def _import(module: str) -> ModuleType:
    """Return a module; FLARE's half also where FLARE is not installed, as autodoc does (`autodoc_mock_imports`)."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        from sphinx.ext.autodoc.mock import mock  # pyright: ignore[reportPrivateImportUsage]

        with mock(["nvflare"]):
            return import_module(module)


def names(module: str) -> str:
    """Return autodoc's directives for every public name of a module."""
    found = [f".. automodule:: {module}\n", *(_directive(module, *pair) for pair in public_names(module).items())]
    return "```{eval-rst}\n" + "\n".join(found) + "\n```"


def _directive(module: str, name: str, value: Any) -> str:
    if inspect.isclass(value):
        return f".. autoclass:: {module}.{name}\n   :members:\n   :member-order: bysource\n"
    if isinstance(value, dict):
        return f".. py:data:: {name}\n   :module: {module}\n\n   By name: {', '.join(f'`{key}`' for key in value)}.\n"  # pyright: ignore[reportUnknownVariableType]
    kind = "autofunction" if inspect.isroutine(value) else "autodata"
    return f".. {kind}:: {module}.{name}\n"


def commands() -> str:
    """Return a section for every command of the program."""
    from guerdon.cli import app

    return "\n\n".join(_command("guerdon", typer.main.get_command(app)))


def _command(name: str, command: Any) -> Iterator[str]:
    options = [option for option in command.params if "--help" not in option.opts]
    if "commands" in vars(command):
        if name != "guerdon":
            yield f"## `{name}`\n\n{_plain(command.help)}"
        for word, inner in command.commands.items():
            yield from _command(f"{name} {word}", inner)
        return
    arguments = [option.make_metavar(_context(command)) for option in options if option.param_type_name == "argument"]
    yield f"## `{' '.join([name, *arguments])}`\n\n{_plain(command.help)}"
    rows = [_option(option, command) for option in options]
    if rows:
        yield "| option | value | what it says |\n|---|---|---|\n" + "\n".join(rows)
    if command.epilog:
        yield _plain(command.epilog)


def _context(command: Any) -> Any:
    return command.make_context("guerdon", [], resilient_parsing=True)


def _option(option: Any, command: Any) -> str:
    name = (
        option.human_readable_name
        if option.param_type_name == "argument"
        else ", ".join([*option.opts, *option.secondary_opts])
    )
    value = "" if getattr(option, "is_flag", False) else option.make_metavar(_context(command))
    notes = ["required"] if option.required else []
    if getattr(option, "envvar", None):
        notes.append(f"also in `{option.envvar}`")
    if option.default not in (None, False, ()) and not callable(option.default) and not option.required:
        notes.append(f"default `{option.default}`")
    said = _plain(option.help or "") + (f" ({'; '.join(notes)})" if notes else "")
    return (
        "| "
        + " | ".join(cell.replace("|", r"\|") for cell in (f"`{name}`", f"`{value}`" if value else "", said))
        + " |"
    )


def _plain(text: str | None) -> str:
    """Return what rich would print, with what is bold as code; one paragraph a line."""
    marked = re.sub(r"\[bold\](.*?)\[/\]", r"`\1`", inspect.cleandoc(text or ""), flags=re.DOTALL)
    return Text.from_markup(marked).plain.replace("*", r"\*").replace("<", r"\<")


def schema() -> str:
    """Return a section for every table of the ledger, with what its source says of each column."""
    from guerdon.ledger.books import tables

    source = Path(tables.__file__).read_text()
    return "\n\n".join(_table(table, source) for table in tables.metadata.tables.values())


def _table(table: Any, source: str) -> str:
    body = source.partition(f"\n{table.name} = _table(")[2].partition("\n)\n")[0].partition("\nsa.Index(")[0]
    said = dict(re.findall(r'_column\("(\w+)".*?\),?  # (.+)', body))
    head = re.match(r"  # (.+)", body) or re.search(rf"\n# (.+)\n{table.name} = _table\(", source)
    rows = [_row(column, said.get(column.name, "")) for column in table.columns]
    checks = sorted(str(found.sqltext) for found in table.constraints if hasattr(found, "sqltext"))
    parts = [f"## `{table.name}`", *([_sentence(head[1])] if head else [])]
    parts.append("| column | type | is | remark |\n|---|---|---|---|\n" + "\n".join(rows))
    if checks:
        parts.append("Checked:\n\n" + "\n".join(f"- `{check}`" for check in checks))
    return "\n\n".join(parts)


def _row(column: Any, remark: str) -> str:
    from sqlalchemy.dialects import postgresql

    return f"| `{column.name}` | {column.type.compile(dialect=postgresql.dialect())} | {_means(column)} | {remark} |"


def _means(column: Any) -> str:
    words = ["key"] if column.primary_key else []
    words += [f"refers to `{key.target_fullname}`" for key in column.foreign_keys]
    return ", ".join(words + ["may be empty"] * column.nullable)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:].rstrip(".") + "."


MADE = {"commands": commands, "schema": schema}


def fill(_app: "Sphinx", _page: str, source: list[str]) -> None:
    """Replace each remark by what it stands for."""
    found = re.sub(r"<!-- names: ([\w.]+) -->", lambda mark: names(mark[1]), source[0])
    source[0] = re.sub(r"<!-- (commands|schema) -->", lambda mark: MADE[mark[1]](), found)


def show_code(_app: "Sphinx", _what: str, _name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    """Show the indented parts of a docstring, formulas and code, as they are written."""
    text = re.sub(r"(^|\n)(\S[^\n]*)\n\n(?=    )(?!    (?:- |>>>))", r"\1\2\n\n::\n\n", "\n".join(lines))
    lines[:] = text.split("\n")


def setup(app: "Sphinx") -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", fill)
    app.connect("autodoc-process-docstring", show_code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
