"""The arena's report: one page, one page for each rule, and the numbers. The pages load nothing."""

import inspect
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

import guerdon
from guerdon.costs import formula_of
from guerdon.lab.arena.contest import RuleResult
from guerdon.lab.arena.figures import heat_map, money_map
from guerdon.lab.arena.learning import POPULATIONS
from guerdon.lab.arena.settings import ArenaSetting
from guerdon.lab.arena.strategies import STRATEGIES
from guerdon.lab.arena.verdicts import (
    EQUIVALENCE,
    first_paragraph,
    knowledge_of,
    rule_words,
    told,
    told_share,
    verdicts,
    worth_looks,
)
from guerdon.lab.experiments.claims import Mean
from guerdon.lab.experiments.report import STYLE, inline_svg
from guerdon.lab.figures import save_figure

ARENA_PAGE, RULE_PAGE = (
    files("guerdon.lab.arena").joinpath(name).read_text(encoding="utf-8") for name in ("arena.html", "rule.html")
)
FEW = 8  # repetitions, below which a standard error is a guess
MORE_STYLE = (
    "pre { white-space: pre-wrap; font-size: .9rem; } a { color: var(--good); } "
    "@media (max-width: 700px) { table { width: max-content; } td { max-width: 16rem; } }"
)


def write_arena(
    setting: ArenaSetting,
    results: Mapping[str, RuleResult],
    out: Path,
    *,
    repetitions: int,
    generations: int,
    seed: int,
    different: bool,
) -> None:
    """Write arena.html, a page for each rule, both figures, and the numbers into a folder."""
    (out / "rules").mkdir(parents=True, exist_ok=True)
    drawings = {"heat": heat_map(setting, results), "money": money_map(setting, results)}
    for name, drawing in drawings.items():
        for suffix in ("svg", "png"):
            save_figure(drawing, out / f"{name}.{suffix}")
    frame = numbers(setting, results)
    frame.write_parquet(out / "arena.parquet")
    frame.write_csv(out / "arena.csv")
    listed = "".join(f"<li>{_linked(found)}: {escape(found.entrant.words)}</li>" for found in results.values())
    errors = _about_errors(repetitions)
    page = ARENA_PAGE.format(
        style=STYLE + MORE_STYLE, first=escape(first_paragraph(setting, results)), rules=len(results),
        agents=setting.agents, different=", different" if different else ", alike", repetitions=repetitions,
        populations=POPULATIONS, generations=generations,
        rounds=setting.rounds, request=setting.request, fair=setting.fair, words=escape(setting.words),
        cost=escape(re.sub(r"\b1\*s", "s", formula_of(setting.cost))),
        heat=inline_svg(drawings["heat"], "heat"), money=inline_svg(drawings["money"], "money"),
        gains=_gain_table(results, setting), equivalence=escape(EQUIVALENCE),
        settled=_settled_table(results), list=f"<ul>{listed}</ul>",
        verdicts=_list(verdict.words for verdict in verdicts(results)), version=escape(guerdon.__version__), seed=seed,
        errors=errors, survey=escape(f"With the {setting.survey}." if setting.survey else ""),
    )  # fmt: skip
    (out / "arena.html").write_text(page, encoding="utf-8")
    game = (
        f"{setting.words}; {setting.agents} agents, {'different' if different else 'alike'}; {setting.request} "
        f"samples asked for, at a cost of {setting.fair:g}; {repetitions} repetitions of {setting.rounds} rounds; "
        f"seed {seed}. {errors}"
    )
    for name, found in results.items():
        (out / "rules" / _file(name)).write_text(_rule_page(name, found, setting, game), encoding="utf-8")


def _about_errors(repetitions: int) -> str:
    rough = f" With {repetitions} repetitions standard errors are rough." if repetitions < FEW else ""
    return f"± is one standard error; where it is not shown it is below the last digit.{rough}"


def numbers(setting: ArenaSetting, results: Mapping[str, RuleResult]) -> pl.DataFrame:
    """Return one row per rule and strategy: its gain, and what was found of the rule."""
    rows: list[dict[str, Any]] = []
    for name, found in results.items():
        rule = {
            **_columns("rent", found.rent), **_columns("spread", found.spread), "settled": found.settled.strategy,
            "settled_share": found.settled.share, **_columns("effort", found.settled.effort),
            **_columns("paid", found.settled.paid), **_columns("accuracy", found.settled.accuracy),
            **_columns("price", found.settled.price), **_columns("looks", worth_looks(found, setting.fair)),
            "needs": "; ".join(found.knows),
        }  # fmt: skip
        gains = dict(found.gains) | {f"best: {found.best.words}": found.best.gain}
        for strategy, gain in gains.items():
            rows.append({"rule": name, "strategy": strategy} | _columns("gain", gain) | rule)
    return pl.DataFrame(rows)


def as_report(setting: ArenaSetting, results: Mapping[str, RuleResult]) -> dict[str, Any]:
    """Return everything for JSON; what is infinite is null."""
    return {
        "problem": setting.words,
        "agents": setting.agents,
        "request": setting.request,
        "cost": setting.fair,
        "first": first_paragraph(setting, results),
        "rules": {
            name: {
                "needs": found.knows, "gains": {own: _numbers(gain) for own, gain in found.gains.items()},
                "rent": _numbers(found.rent), "spread": _numbers(found.spread),
                "best": {"words": found.best.words} | _numbers(found.best.gain),
                "looks": _numbers(worth_looks(found, setting.fair)),
                "settled": {
                    own: _numbers(value) if isinstance(value, Mean) else value
                    for own, value in found.settled._asdict().items()
                },
            }
            for name, found in results.items()
        },
    }  # fmt: skip


def _columns(name: str, mean: Mean) -> dict[str, float]:
    return {name: mean.value, f"{name}_error": mean.error}


def _numbers(mean: Mean) -> dict[str, float | None]:
    return {part: value if math.isfinite(value) else None for part, value in mean._asdict().items()}


class Html(str):
    """Text that is HTML already, and is not escaped."""

    __slots__ = ()


def _rule_page(name: str, found: RuleResult, setting: ArenaSetting, game: str) -> str:
    first, *words = rule_words(found, setting)
    source = found.entrant.source or inspect.getdoc(type(found.entrant.make(setting))) or ""
    rows = [[own, STRATEGIES[own].words, told(gain, "+")] for own, gain in found.gains.items()]
    return RULE_PAGE.format(
        style=STYLE + MORE_STYLE, name=escape(name), first=escape(first), words=_list(words), game=escape(game),
        source=_paragraphs(source), gains=table(("strategy", "what it does", "gain a round"), rows),
        version=escape(guerdon.__version__),
    )  # fmt: skip


def _paragraphs(text: str) -> str:
    """Return a docstring as HTML without its examples: what is indented keeps its lines, and names are code."""
    parts = [part for part in text.split("\n\n") if not part.startswith(">>>")]
    kind = {part: "pre" if part.startswith(" ") else "p" for part in parts}
    return "\n".join(f"<{kind[part]}>{_with_code(inspect.cleandoc(part))}</{kind[part]}>" for part in parts)


def _with_code(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _linked(found: RuleResult) -> Html:
    """Return a rule's name, marked where it is ours, as a link to its page."""
    name = found.entrant.name
    return Html(f'<a href="rules/{_file(name)}">{escape(name)}</a>{" *" if found.entrant.ours else ""}')


def _gain_table(results: Mapping[str, RuleResult], setting: ArenaSetting) -> str:
    rows = [
        [
            _linked(found),
            told(found.rent, "+"),
            told(found.spread),
            told(found.best.gain, "+"),
            "none found" if found.best.words == "honest" else found.best.words,
            told(worth_looks(found, setting.fair)),
            knowledge_of(found),
        ]
        for found in results.values()
    ]
    heads = (
        "rule",
        "honest pay over cost",
        "its spread",
        "best answer gains",
        "best answer",
        "worth looks in 50 rounds",
        "the server must know",
    )
    return table(heads, rows)


def _settled_table(results: Mapping[str, RuleResult]) -> str:
    rows = [
        [_linked(found), f"{found.settled.strategy} ({found.settled.share:.0%})", told_share(found.settled.effort),
         told(found.settled.paid), told(found.settled.accuracy), told(found.settled.price)]
        for found in results.values()
    ]  # fmt: skip
    return table(("rule", "agents end mostly at", "work", "paid a round", "accuracy", "money a point"), rows)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table; its cells are text, or `Html`."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "\n".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: str) -> str:
    return cell if isinstance(cell, Html) else escape(cell)


def _list(sentences: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in sentences)}</ul>"


def _file(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name) + ".html"
