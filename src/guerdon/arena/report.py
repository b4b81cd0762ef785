"""The arena's report: one page, one page for each rule, and the numbers. The pages load nothing."""

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

import guerdon
from guerdon.arena.contest import RuleResult
from guerdon.arena.figures import heat_map, money_map
from guerdon.arena.learning import POPULATIONS
from guerdon.arena.settings import ArenaSetting
from guerdon.arena.strategies import STRATEGIES
from guerdon.arena.verdicts import first_paragraph, knowledge_of, rule_words, told, verdicts
from guerdon.experiments.claims import Mean
from guerdon.experiments.report import STYLE, inline_svg
from guerdon.figures import save_figure

ARENA_PAGE, RULE_PAGE = (
    files("guerdon.arena").joinpath(name).read_text(encoding="utf-8") for name in ("arena.html", "rule.html")
)
MORE_STYLE = "pre { white-space: pre-wrap; font-size: .9rem; }"


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
    frame = numbers(results)
    frame.write_parquet(out / "arena.parquet")
    frame.write_csv(out / "arena.csv")
    listed = "".join(
        f'<li><a href="rules/{_file(name)}">{escape(name)}</a>: {escape(found.entrant.words)}</li>'
        for name, found in results.items()
    )
    page = ARENA_PAGE.format(
        style=STYLE + MORE_STYLE, first=escape(first_paragraph(setting, results)), rules=len(results),
        agents=setting.agents, different=", different" if different else ", alike", repetitions=repetitions,
        populations=POPULATIONS, generations=generations,
        rounds=setting.rounds, request=setting.request, fair=setting.fair, words=escape(setting.words),
        heat=inline_svg(drawings["heat"], "heat"), money=inline_svg(drawings["money"], "money"),
        gains=_gain_table(results), settled=_settled_table(results), list=f"<ul>{listed}</ul>",
        verdicts=_list(verdict.words for verdict in verdicts(results)), version=escape(guerdon.__version__), seed=seed,
        survey=escape(f"With the {setting.survey}." if setting.survey else ""),
    )  # fmt: skip
    (out / "arena.html").write_text(page, encoding="utf-8")
    for name, found in results.items():
        (out / "rules" / _file(name)).write_text(_rule_page(name, found, setting), encoding="utf-8")


def numbers(results: Mapping[str, RuleResult]) -> pl.DataFrame:
    """Return one row per rule and strategy: its gain, and what was found of the rule."""
    rows: list[dict[str, Any]] = []
    for name, found in results.items():
        rule = {
            **_columns("rent", found.rent), **_columns("spread", found.spread), "settled": found.settled.strategy,
            "settled_share": found.settled.share, **_columns("effort", found.settled.effort),
            **_columns("paid", found.settled.paid), **_columns("accuracy", found.settled.accuracy),
            **_columns("price", found.settled.price), "needs": "; ".join(found.knows),
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


def _rule_page(name: str, found: RuleResult, setting: ArenaSetting) -> str:
    first, *words = rule_words(found, setting)
    source = inspect.getdoc(type(found.entrant.make(setting))) or ""
    rows = [[own, STRATEGIES[own].words, told(gain, "+")] for own, gain in found.gains.items()]
    return RULE_PAGE.format(
        style=STYLE + MORE_STYLE, name=escape(name), first=escape(first), words=_list(words),
        source=_paragraphs(source), gains=table(("strategy", "what it does", "gain a round"), rows),
        version=escape(guerdon.__version__),
    )  # fmt: skip


def _paragraphs(text: str) -> str:
    """Return a docstring as HTML: what is indented, or an example, keeps its lines."""
    parts = text.split("\n\n")
    kind = {part: "pre" if part.startswith((" ", ">>>")) else "p" for part in parts}
    return "\n".join(f"<{kind[part]}>{escape(inspect.cleandoc(part))}</{kind[part]}>" for part in parts)


def _gain_table(results: Mapping[str, RuleResult]) -> str:
    rows = [
        [
            name,
            told(found.rent, "+"),
            told(found.spread),
            told(found.best.gain, "+"),
            found.best.words,
            knowledge_of(found),
        ]
        for name, found in results.items()
    ]
    heads = ("rule", "honest pay over cost", "spread", "best answer gains", "best answer", "the server must know")
    return table(heads, rows)


def _settled_table(results: Mapping[str, RuleResult]) -> str:
    rows = [
        [name, f"{found.settled.strategy} ({found.settled.share:.0%})", told(found.settled.effort),
         told(found.settled.paid), told(found.settled.accuracy), told(found.settled.price)]
        for name, found in results.items()
    ]  # fmt: skip
    return table(("rule", "mostly", "work", "paid a round", "accuracy", "money a point"), rows)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "\n".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _list(sentences: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in sentences)}</ul>"


def _file(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name) + ".html"
