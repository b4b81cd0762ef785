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
from guerdon.arena.figures import heat_map, money_map
from guerdon.arena.game import RuleResult
from guerdon.arena.settings import ArenaSetting
from guerdon.arena.strategies import STRATEGIES
from guerdon.arena.verdicts import first_paragraph, rule_words, verdicts
from guerdon.experiments.claims import Mean
from guerdon.experiments.report import STYLE, inline_svg
from guerdon.figures import save_figure

ARENA_PAGE, RULE_PAGE = (
    files("guerdon.arena").joinpath(name).read_text(encoding="utf-8") for name in ("arena.html", "rule.html")
)
MORE_STYLE = "pre { white-space: pre-wrap; font-size: .9rem; }"


def write_arena(
    setting: ArenaSetting, results: Mapping[str, RuleResult], out: Path, *, repetitions: int, seed: int, different: bool
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
            "rent": found.rent.value, "rent_error": found.rent.error, "spread": found.spread,
            "settled": found.settled.strategy, "effort": found.settled.effort, "paid": found.settled.paid,
            "accuracy": found.settled.accuracy, "price": found.settled.price, "needs": "; ".join(found.knows),
        }  # fmt: skip
        gains = dict(found.gains) | {f"best: {found.best.words}": found.best.gain}
        for strategy, gain in gains.items():
            rows.append({"rule": name, "strategy": strategy, "gain": gain.value, "gain_error": gain.error} | rule)
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
                "needs": found.knows, "gains": {own: gain._asdict() for own, gain in found.gains.items()},
                "rent": found.rent._asdict(), "spread": found.spread,
                "best": {"words": found.best.words} | found.best.gain._asdict(),
                "settled": found.settled._asdict() | {"price": _finite(found.settled.price)},
            }
            for name, found in results.items()
        },
    }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rule_page(name: str, found: RuleResult, setting: ArenaSetting) -> str:
    first, *words = rule_words(found, setting)
    source = inspect.getdoc(type(found.entrant.make(setting))) or ""
    rows = [[own, STRATEGIES[own].words, _pm(gain)] for own, gain in found.gains.items()]
    return RULE_PAGE.format(
        style=STYLE + MORE_STYLE, name=escape(name), first=escape(first), words=_list(words), source=escape(source),
        gains=table(("strategy", "what it does", "gain a round"), rows), version=escape(guerdon.__version__),
    )  # fmt: skip


def _gain_table(results: Mapping[str, RuleResult]) -> str:
    rows = [
        [name, _pm(found.rent), f"{found.spread:.2f}", _pm(found.best.gain), found.best.words, "; ".join(found.knows)]
        for name, found in results.items()
    ]
    heads = ("rule", "honest pay over cost", "spread", "best answer gains", "best answer", "the server must know")
    return table(heads, rows)


def _settled_table(results: Mapping[str, RuleResult]) -> str:
    rows = [
        [name, found.settled.strategy, f"{found.settled.effort:.0%}", f"{found.settled.paid:.1f}",
         f"{found.settled.accuracy:.3f}", f"{found.settled.price:.1f}" if math.isfinite(found.settled.price) else "–"]
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


def _pm(mean: Mean) -> str:
    return f"{mean.value:+.2f} ± {mean.error:.2f}"


def _file(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name) + ".html"
