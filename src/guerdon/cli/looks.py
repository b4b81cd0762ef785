"""The command line of verified work: `guerdon looks COMMAND`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from guerdon.cli import look_auditor, look_member, look_operator, rehearsal
from guerdon.cli.options import CostOption, JsonOption, need
from guerdon.cli.tables import new_table, print_json
from guerdon.costs import ExpressionCost, check_cost
from guerdon.looks.plan import Choice, Forfeit, Plan, choose
from guerdon.looks.plan import plan as planned
from guerdon.terms import FORFEITS, Looks

FIRST, OPERATOR, MEMBER, AUDITOR = "Before a run", "For operators", "For members", "For auditors"
FORMATS = ".svg", ".png", ".pdf"
DEFAULT = Looks()
# At most: beyond it the closed form adds up so many terms that it is slow, and nobody reads the answer.
LARGEST_REQUEST, MOST_ROUNDS, MOST_LOOKS = 1_000_000, 1_000_000, 100
LARGEST_MARGIN = 10.0  # pay of eleven times the cost: beyond it the number says no more than that there is none
EXPLAINED = (
    "Held, margins and losses are of one member, in the unit of the cost. A loss is against honest work; who declines "
    "all rounds earns 0, and loses the margins. Found: the chance that at least one look of the run fails."
)
ChanceEpsilon = Annotated[
    float, typer.Option(help="ε, the chance that honest work fails a look: `guerdon looks try` says at most how much.")
]
ChanceDelta = Annotated[float, typer.Option(help="δ, the chance that a cheat passes a look.")]

app = typer.Typer(
    no_args_is_help=True, help="Verified work: plan looks, answer them, draw them, settle them, check them."
)
app.command(
    "try",
    epilog="Example: [bold]guerdon looks try my_app.task:work --rows rows.npz --model model.npz[/]",
    rich_help_panel=FIRST,
)(rehearsal.rehearse)


def _add(panel: str, name: str, command: Callable[..., None], example: str) -> None:
    app.command(name, epilog=f"Example: [bold]guerdon looks {name} {example}[/]", rich_help_panel=panel)(command)


_OF_RUN = "--ledger 9f3c… --run heart"
_add(OPERATOR, "ledger", look_operator.ledger_name, "--db guerdon.db")
_add(OPERATOR, "commit", look_operator.commit, "rows.commitment.json --db guerdon.db")
_add(OPERATOR, "accept", look_operator.accept, "coins.json --db guerdon.db")
_add(OPERATOR, "draw", look_operator.draw, "nonces.json --db guerdon.db")
_add(OPERATOR, "list", look_operator.list_open, "--db guerdon.db")
_add(OPERATOR, "tasks", look_operator.tasks, "--db guerdon.db --auditor auditor.json --out tasks")
_add(OPERATOR, "receive", look_operator.receive, "look-7.answer --db guerdon.db")
_add(OPERATOR, "verdict", look_operator.verdict, "look-7.verdict.json --db guerdon.db")
_add(OPERATOR, "settle", look_operator.settle, "--db guerdon.db")
_add(MEMBER, "answer", look_member.answer, "look-7.npz --rows rows.parquet --auditor 5d21…")
_add(MEMBER, "check", look_member.check, "--db guerdon.db --member Bern")
_add(AUDITOR, "key", look_auditor.key, "--out auditor.pem")
_add(AUDITOR, "coins", look_auditor.coins, f"--key auditor.pem {_OF_RUN} --rounds 200 --out coins.json")
_add(AUDITOR, "open", look_auditor.open_coins, f"--key auditor.pem {_OF_RUN} --rounds 1-50 --out nonces.json")


@app.callback()
def looks() -> None:
    """Verified work."""


@app.command(
    epilog='Example: [bold]guerdon looks plan --cost "1 + s" --request 16 --rounds 200 --out plan.svg[/]',
    rich_help_panel=FIRST,
)
def plan(
    cost: CostOption = "1 + s",
    request: Annotated[int, typer.Option(help="Batch size that the server asks for.")] = 16,
    rounds: Annotated[int, typer.Option(help="Rounds of the run.")] = 200,
    members: Annotated[int, typer.Option(help="Members of the run.")] = 10,
    period: Annotated[int, typer.Option(help="Rounds until held pay is settled.")] = DEFAULT.period,
    looks: Annotated[int, typer.Option(help="Rounds that are looked at, per member and period.")] = DEFAULT.looks,
    margin: Annotated[float, typer.Option(help="Share of the cost that is paid on top of it.")] = DEFAULT.margin,
    forfeit: Annotated[
        Literal["share", "all"], typer.Option(help="What a failed look costs of what is held.")
    ] = DEFAULT.forfeit,
    epsilon: ChanceEpsilon = 0.0,
    delta: ChanceDelta = 0.0,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Draw it: .svg, .png or .pdf.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what terms of verified work come to: rows shown, money held, and what each cheat loses.

    It pays flat: every round its cost and the margin. All numbers are in closed form; nothing is simulated.
    """
    if out is not None:
        if out.suffix.lower() not in FORMATS:
            raise ValueError(f"`--out` must end in {', '.join(FORMATS)}, got {out}")
        need("--out", "sim", "matplotlib")
    given = ("request", request, LARGEST_REQUEST), ("rounds", rounds, MOST_ROUNDS), ("looks", looks, MOST_LOOKS)
    for name, value, largest in (*given, ("members", members, LARGEST_REQUEST)):
        if not 1 <= value <= largest:
            raise ValueError(f"`--{name}` must be from 1 to {largest:,}, got {value}")
    expression = ExpressionCost(cost)
    check_cost(expression, request)
    terms = replace(DEFAULT, period=period, looks=looks, margin=margin, forfeit=forfeit)
    found = planned(expression, request, rounds, terms, epsilon=epsilon, delta=delta)
    choice = choose(epsilon, delta=delta, members=members, rounds=rounds, period=period)
    about: dict[str, Any] = {"cost": cost, "request": request, "rounds": rounds, "epsilon": epsilon, "delta": delta}
    title = f"{rounds} rounds of {request} rows, h(s) = {cost}: {_terms(terms)}"
    if out is not None:
        from guerdon.lab.figures import save_figure
        from guerdon.lab.planning.looks_figure import looks_figure

        save_figure(looks_figure(found, expression, request, rounds, title, epsilon=epsilon, delta=delta), out)
    if as_json:
        print_json(_report(found, choice, about, members))
    else:
        _print(found, choice, title, out, epsilon, members)


def _terms(terms: Looks) -> str:
    many = "1 look" if terms.looks == 1 else f"{terms.looks} looks"
    what = "all" if terms.forfeit == "all" else "its share"
    return f"{many} a period of {terms.period}, margin {terms.margin:.1%}, a failed look forfeits {what}"


def _report(found: Plan, choice: Choice, about: dict[str, Any], members: int) -> dict[str, Any]:
    """Return a plan for JSON."""
    shown = {name: value for name, value in found._asdict().items() if name not in ("terms", "behaviours", "cost")}
    return about | {
        "members": members,
        "terms": _json_terms(found.terms),
        "cost_of_a_round": found.cost,
        **shown,
        "behaviours": [one._asdict() for one in found.behaviours],
        "recommended": {"terms": _json_terms(choice.terms), "reasons": list(choice.reasons)},
    }


def _json_terms(terms: Looks) -> dict[str, Any]:
    return {name: getattr(terms, name) for name in ("period", "looks", "margin", "forfeit")}


def _print(found: Plan, choice: Choice, title: str, out: Path | None, epsilon: float, members: int) -> None:
    console = Console(emoji=False, highlight=False)
    console.print(escape(title), soft_wrap=True)
    facts = new_table("What the terms come to", "one member", "", text=["one member"])
    for name, cell in _facts(found, epsilon):
        facts.add_row(name, cell)
    console.print(facts)
    table = new_table(
        "What each cheat loses", "behaviour", "cheated", "saves", "found", *(_heading(found, way) for way in FORFEITS),
        text=["behaviour"],
    )  # fmt: skip
    for cells in _behaviours(found):
        table.add_row(*cells)
    console.print(table)
    console.print(EXPLAINED)
    for line in _conclusions(found, choice, members, epsilon):
        console.print(escape(line))
    if out is not None:
        console.print(f"Picture: {out}", soft_wrap=True, markup=False)


def _heading(found: Plan, forfeit: Forfeit) -> str:
    return f"loses, {forfeit}" + (" ◀" if forfeit == found.terms.forfeit else "")


def _facts(found: Plan, epsilon: float) -> list[tuple[str, str]]:
    honest = next(one for one in found.behaviours if one.forfeit == found.terms.forfeit)
    total = found.pay * honest.spent / found.cost if found.cost else 0.0
    return [
        ("cost of a round", f"{found.cost:,.2f}"),
        ("pay for a round", f"{found.pay:,.2f}"),
        ("looks in the run", f"{found.looks}"),
        ("rows that the auditor sees, expected", f"{found.rows_shown:,.1f}"),
        ("rows that the auditor sees, at most", f"{found.rows_at_most:,}"),
        ("share of the used rows", f"{found.share_shown:.1%}"),
        ("most money held at a time", f"{found.held:,.2f}"),
        ("margins of the run", f"{found.margins:,.2f}"),
        ("ε, honest work fails a look", f"{epsilon:.3%}"),
        ("honest work fails some look of the run", f"{honest.failed:.2%}"),
        ("honest work loses by false failures", f"{max(total - honest.released, 0.0):,.2f}"),
    ]


def _behaviours(found: Plan) -> list[list[str]]:
    """Return a line for each way to behave, with what it loses under each way to forfeit."""
    honest = found.behaviours[0].spent
    rows = list[list[str]]()
    for share, everything in zip(found.behaviours[::2], found.behaviours[1::2], strict=True):
        losses = ["–" if one.name == "honest" else f"{0.0 - one.against_honest:,.2f}" for one in (share, everything)]
        rows.append([share.name, str(share.cheated), f"{honest - share.spent:,.2f}", f"{share.failed:.1%}", *losses])
    return rows


def _conclusions(found: Plan, choice: Choice, members: int, epsilon: float) -> list[str]:
    terms, least = found.terms, found.least_margins[found.terms.forfeit]
    if terms.margin >= least and terms.margin > 0:
        lines = [f"Honest work is best: that needs a margin of {least:.1%}, and the margin is {terms.margin:.1%}."]
    elif terms.margin >= least:
        lines = ["No cheat gains, but with a margin of 0 honest work is no better than declining: give some margin."]
    elif least <= LARGEST_MARGIN:
        lines = [f"Honest work is not best: the margin must be at least {least:.2%}, got {terms.margin:.1%}."]
    else:
        lines = ["Honest work is not best, and no margin that anybody would pay is enough: ε and δ are too large."]
    lines += ["ε is taken as 0: measure it by `guerdon looks try`, and give it as --epsilon."] * (epsilon == 0)
    return [*lines, f"Recommended for {members} members: {_terms(choice.terms)}: {'; '.join(choice.reasons)}."]
