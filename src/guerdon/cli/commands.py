"""All commands but those of the ledger, Flower and the dashboard. An extra is imported only where it is needed."""

import gc
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import click
import typer
from rich.console import Console
from rich.markup import escape

import guerdon
from guerdon.cli import (
    arena,
    audit,
    commit,
    contributions,
    dashboard,
    flower,
    ledger,
    look_auditor,
    looks,
    pilot,
    serve,
)
from guerdon.cli.files import read_array, read_gradients
from guerdon.cli.once import pay_once
from guerdon.cli.options import (
    AgentsOption,
    CostOption,
    JsonOption,
    PlotOption,
    RequestOption,
    RuleOption,
    SeedOption,
    chosen_rule,
    need,
    need_simulator,
)
from guerdon.cli.reports import (
    certificate_report,
    payment_rows,
    plan_report,
    print_certificate,
    print_claims,
    print_equilibrium,
    print_payments,
    print_plan,
    print_simulation,
    simulation_rows,
)
from guerdon.cli.tables import print_json, progress_bar
from guerdon.costs import ExpressionCost, check_cost
from guerdon.lab.game import RULES, MinibatchGame, equilibrium_report
from guerdon.lab.truth import choose
from guerdon.words import about, explain

if TYPE_CHECKING:
    from guerdon.lab.game import RuleName
    from guerdon.requests import FixedRequest

LARGEST_BATCH = 10_000  # a longer table helps nobody, and finding its equilibria takes the square of its length
MOST_AGENTS = 100_000
LARGEST_CHECKED = 1_000_000  # batch sizes at which the cost of a payment is checked

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Pay participants of federated learning for work that nobody can see.",
)
app.add_typer(ledger.app, name="ledger")
app.add_typer(flower.app, name="flower")
app.add_typer(looks.app, name="looks")
app.command(epilog="Example: [bold]guerdon dashboard --db guerdon.db[/]")(dashboard.dashboard)
app.command(
    epilog='Example: [bold]guerdon serve model.safetensors --run heart --cost "1 + s" --request 16 --step 0.1[/]'
)(serve.serve)
app.command(
    epilog="Examples: [bold]guerdon audit --db guerdon.db --out audit.svg[/], [bold]guerdon audit heart --alike[/]"
)(audit.audit)
app.command(
    epilog="Examples: [bold]guerdon pilot pilot.json --html pilot.html[/], [bold]guerdon pilot mine.toml --json[/]"
)(pilot.pilot)
app.command(epilog="Example: [bold]guerdon arena --rules flat,cosine,information --problem linear --quick[/]")(
    arena.arena
)
app.command(epilog="Example: [bold]guerdon contributions heart --db guerdon.db[/]")(contributions.contributions)
app.command(
    epilog="Examples: [bold]guerdon commit rows.parquet --ledger heart --run 'run 1' --member Bern[/], "
    "[bold]guerdon commit rows.csv --type postcode=text --ledger heart --run 'run 1' --member Bern[/]"
)(commit.commit)
app.command(
    epilog="Examples: [bold]guerdon look look-7.npz look-7.answer --key auditor.pem[/], "
    "[bold]guerdon look look-7.npz --at-site --rows rows.parquet --key auditor.pem[/]"
)(look_auditor.look)


def main() -> None:
    """Run the command line; bad input is answered with one line on standard error and exit status 2."""
    try:
        code = app(prog_name="guerdon", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _complain(_usage(error))
        sys.exit(error.exit_code)
    except click.Abort:
        _complain("stopped")
        sys.exit(1)
    except (ValueError, TypeError, ArithmeticError, OSError, ImportError) as error:
        _complain(words_of(error))
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(words: str) -> None:
    Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(words)}", highlight=False)


def _usage(error: click.ClickException) -> str:
    """Return what is wrong with how a command was called, and how to find out what is right."""
    # Both Typer and Click guess what was meant.
    words = ". ".join(dict.fromkeys(error.format_message().replace("?", "?.").removesuffix(".").split(". ")))
    context = getattr(error, "ctx", None)
    remedy = "" if context is None else f"`{context.command_path} --help` shows how it is called"
    return words[:1].lower() + words[1:] + ("; " if remedy and not words.endswith("?") else " " * bool(remedy)) + remedy


def words_of(error: Exception) -> str:
    """Return what is wrong for people: of a file which one, and why, without the operating system's number.

    >>> words_of(FileNotFoundError(2, "No such file or directory", "pilot.json"))
    'pilot.json cannot be opened: no such file or directory'
    """
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename} cannot be opened: {error.strerror.lower()}"
    return str(error)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"guerdon {guerdon.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and stop.")
    ] = False,
) -> None:
    del version


@app.command(
    epilog='Example: [bold]guerdon equilibrium --agents 10 --request 8 --cost "1 + s" --max-batch 32 --plot game.svg[/]'
)
def equilibrium(
    agents: AgentsOption = 10,
    request: RequestOption = 8,
    cost: CostOption = "1 + s",
    max_batch: Annotated[int | None, typer.Option(help="Largest possible batch size (default: 4 × request).")] = None,
    rule: Annotated[
        str, typer.Option(metavar="|".join(RULES), help="The payment rule; the last two as in many dimensions.")
    ] = "agreement",
    ratio: Annotated[
        float, typer.Option(help="Under agreement: the variance σ² over the scale V that earlier rounds gave.")
    ] = 1.0,
    others: Annotated[int | None, typer.Option(help="Batch size of all others (default: the request).")] = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what each batch size earns an agent, its best response, and the equilibria."""
    _check_limit("--agents", agents, MOST_AGENTS)
    max_batch = 4 * request if max_batch is None else max_batch
    _check_limit("--max-batch", max_batch, LARGEST_BATCH)
    if ratio != 1 and rule != "agreement":
        raise ValueError(
            f"`--ratio` must be left out under the rule {rule!r}, got {ratio:g}: only agreement has a scale"
        )
    game = MinibatchGame(agents, request, ExpressionCost(cost), max_batch, rule=cast("RuleName", rule), ratio=ratio)
    others = request if others is None else others
    report = equilibrium_report(game, others, cost)
    if plot is not None:
        need("--plot", "sim", "matplotlib")
        from guerdon.lab.figures import save_figure, utility_figure

        save_figure(utility_figure(game, others, cost), plot)
    if as_json:
        print_json(report)
    else:
        print_equilibrium(report, plot)


@app.command(
    epilog='Examples: [bold]guerdon pay gradients.npy --request 8 --cost "1 + s"[/], '
    "[bold]guerdon pay gradients.npy --request 8 --scale 40[/], "
    "[bold]guerdon pay gradients.npy --request 8 --rule information --prediction last.npy[/]"
)
def pay(
    file: Annotated[
        Path, typer.Argument(help="One array (agents × dim), or one array per agent: .npy, .npz or .safetensors.")
    ],
    request: Annotated[int, typer.Option(help="Batch size that was asked for.")],
    cost: CostOption = "1 + s",
    rule: RuleOption = "agreement",
    scale: Annotated[
        float | None,
        typer.Option(metavar="V", help="Under agreement: the variance of a single-sample gradient in earlier rounds."),
    ] = None,
    prediction: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Public prediction of the gradient, one array (default: zeros).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compute what each agent is paid for one round's gradients, and why.

    Agreement measures distances by what earlier rounds had. Without `--scale` this is a first round: it pays the cost.
    """
    _check_limit("--request", request, LARGEST_CHECKED)
    expression = ExpressionCost(cost)
    chosen = chosen_rule(rule, expression)
    check_cost(expression, min(max(4 * request, 1), LARGEST_CHECKED))
    names, gradients = read_gradients(file)
    told = None if prediction is None else read_array(prediction)
    payments, notes = pay_once(chosen, request, gradients, told, scale)
    if not all(math.isfinite(reward) for reward in payments.released):
        raise ValueError("the rewards are too large for a number; check `--cost` and `--rule`")
    explained = zip(explain(chosen, payments, request), notes, strict=True)
    rows = payment_rows(names, payments, [f"{why}; {note}" if note else why for why, note in explained])
    if as_json:
        print_json({"request": request, "cost": cost, "rule": rule, "agents": rows})
    else:
        print_payments(rows, f"{file.name}: request {request}, h(s) = {cost}, {about(chosen).words(chosen)}")


@app.command(epilog='Example: [bold]guerdon certify --rule known --request 8 --cost "1 + s"[/]')
def certify(
    problem: Annotated[Literal["linear", "heart"], typer.Option(help="What is being learned.")] = "linear",
    rule: RuleOption = "agreement",
    agents: AgentsOption = 10,
    request: RequestOption = 8,
    cost: CostOption = "1 + s",
    rounds: Annotated[int, typer.Option(help="Rounds in each repetition.")] = 30,
    repetitions: Annotated[int, typer.Option(help="Independent repetitions.")] = 250,
    confidence: Annotated[float, typer.Option(help="Confidence of all intervals together.")] = 0.95,
    dither: Annotated[
        float | None, typer.Option(help="Take gradients this far from the model, to either side in turn.")
    ] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Simulate one agent's deviations, in work and in reports, and say which of them the payment rule deters."""
    need_simulator("guerdon certify")
    from guerdon.cli.config import parse_config
    from guerdon.lab.certificate import certify as run_certificate

    if not 1 <= request <= LARGEST_BATCH or agents < 2:
        raise ValueError(f"`--request` must be at least 1 and `--agents` at least 2, got {request} and {agents}")
    step: float | str = "optimal" if problem == "linear" else 0.1
    server: dict[str, Any] = {"request": request, "step": step, "cost": cost, "rules": [rule]}
    if dither is not None:
        server["dither"] = dither
    settings: dict[str, Any] = {"kind": problem, "max_batch": max(2 * request, 16)}
    config = parse_config({"problem": settings, "server": server, "agents": [{"kind": "cooperative", "count": agents}]})
    policy = cast("FixedRequest", config.requests)
    certificate = run_certificate(
        config.problem, config.rules[rule], request, float(policy.step), num_agents=agents, rounds=rounds,
        repetitions=repetitions, seed=seed, confidence=confidence, dither=config.dither, progress=sys.stderr.isatty(),
    )  # fmt: skip
    if as_json:
        print_json(certificate_report(certificate))
    else:
        title = f"{rule} rule, {config.label}: {agents} agents, request {request}, h(s) = {cost}"
        print_certificate(certificate, title, rule, agents)


@app.command(epilog="Example: [bold]guerdon reproduce fig3 fig4 --repetitions 250 --out results/[/]")
def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            help="fig2, fig3, fig4, fig5 (default: these), agreement, planner, exploits, federations, steady, looks."
        ),
    ] = None,
    repetitions: Annotated[int, typer.Option(help="Repetitions of each setting.")] = 250,
    out: Annotated[Path, typer.Option(help="Folder for figures, data, claims.json and report.html.")] = Path("results"),
    seed: SeedOption = 0,
) -> None:
    """Reproduce the paper's figures, check its claims (exit status 1 if one fails), and write a report.

    `agreement` pays one member that uses other sizes, on eighty kinds of data, by five rules; it takes three minutes.
    `planner` measures what the adaptive request pays, against the best fixed choice in hindsight and the optimum of the
    expected path; it takes two minutes. `exploits` tries every attack we know on flat pay, the paper's two rules,
    balanced variance, information pay and steady pay, and says which of them pay and which are found; it takes a
    quarter of an hour. `federations` divides the survey among agents in five
    ways, and says what honest and other agents earn; with 250 repetitions it takes hours on two cores, with 10 some
    minutes. `steady` plays all that was tried against steady pay; it takes some minutes with 50, but only 250 tell the
    smallest losses from nothing. `looks` plays all of it against pay that is held until a look, and lets an auditor
    compute honest work again; it takes three minutes.

    The heart-disease survey is read from the file that the environment variable GUERDON_HEART_DATA names; without it a
    synthetic survey takes its place, and every table and figure says so. GUERDON_HOSPITALS names the folder with the
    files of the four hospitals, which `looks` leaves out where it is not set.
    """
    need_simulator("guerdon reproduce")
    from guerdon.lab.experiments.reproduce import reproduce as run_experiments

    gc.freeze()  # what is imported stays: the search for garbage may leave it out
    gc.set_threshold(100_000)  # tracing makes many objects, and little garbage
    with progress_bar() as tell:
        experiments = run_experiments(figures or (), repetitions, out, seed, tell)
    print_claims(experiments, out)
    if not all(claim.holds for experiment in experiments for claim in experiment.claims):
        raise typer.Exit(1)


@app.command(epilog="Example: [bold]guerdon simulate --example > mine.toml && guerdon simulate mine.toml[/]")
def simulate(
    config: Annotated[Path | None, typer.Argument(help="The experiment, a TOML file.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a commented experiment and stop.")] = False,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write every round as Parquet.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run an experiment of your own: any agents, payment rules and requests."""
    need_simulator("guerdon simulate")
    from guerdon.cli.config import EXAMPLE, read_config
    from guerdon.lab.simulation import simulate as run_simulation

    if example:
        typer.echo(EXAMPLE, nl=False)
        return
    if config is None:
        raise ValueError("CONFIG.toml is missing; `guerdon simulate --example` prints one to start from")
    read = read_config(config)
    run: Any = run_simulation
    found: Any = run(
        read.problem, read.agents, read.rules, read.requests, read.rounds, read.repetitions, read.seed,
        costs=read.costs, prediction=read.prediction, dither=read.dither, stop=read.stop,
        witness=read.witness,
        keep="summary" if save is None else "all", progress=sys.stderr.isatty(),
    )  # fmt: skip
    if save is not None:
        found.save(save)
    rows = simulation_rows(found, read.names)
    if as_json:
        print_json({"problem": read.label, "repetitions": found.repetitions, "agents": rows})
    else:
        print_simulation(found, rows, f"{config.name}: {read.label}, {read.rounds} rounds")


@app.command(
    epilog="Examples: [bold]guerdon plan --variance 400 --signal 4 --target 0.2[/], "
    '[bold]guerdon plan pilot.parquet --target "error <= 0.5" --plot plan.svg[/]'
)
def plan(
    pilot: Annotated[
        Path | None, typer.Argument(help="A pilot that reached its target, as `guerdon simulate --save` writes it.")
    ] = None,
    target: Annotated[
        str, typer.Option(metavar="VALUE|TEXT", help='With a pilot a metric: "error <= 0.5"; otherwise a ‖m‖².')
    ] = "",
    variance: Annotated[float | None, typer.Option(help="σ², the variance of a single-sample gradient.")] = None,
    signal: Annotated[float | None, typer.Option(help="‖m‖², the squared length of the first true gradient.")] = None,
    agents: AgentsOption = 10,
    cost: CostOption = "1 + s",
    max_batch: Annotated[int, typer.Option(help="The most that may be asked for.")] = 64,
    rule: RuleOption = "flat",
    repetitions: Annotated[int, typer.Option(help="Trainings that each forecast rests on.")] = 200,
    seed: SeedOption = 0,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forecast rounds and total reward of each request and of the adaptive rule, and recommend one.

    The forecast rests on a pilot run, or on σ² and ‖m‖² and how far ‖m‖² is to fall.
    """
    need_simulator("guerdon plan")
    from guerdon.lab.planning.forecasts import forecast
    from guerdon.lab.planning.pilots import parse_goal

    _check_limit("--agents", agents, 1000)
    _check_limit("--max-batch", max_batch, LARGEST_BATCH)
    fit = parse_goal(pilot, target, variance, signal, seed)
    with Console(stderr=True).status("forecasting") as status:
        found = forecast(
            ExpressionCost(cost), agents, fit, max_batch=max_batch, rule=choose(rule, ExpressionCost(cost)),
            repetitions=repetitions, seed=seed, announce=lambda name: status.update(f"forecasting {name}"),
        )  # fmt: skip
    title = f"{agents} agents, h(s) = {cost}, until {target if pilot else f'‖m‖² ≤ {target}'}"
    if plot is not None:
        from guerdon.lab.figures import plan_figure, save_figure

        save_figure(plan_figure(plan_report(found), title), plot)
    if as_json:
        print_json(plan_report(found))
    else:
        print_plan(found, title, plot)


def _check_limit(option: str, value: int, largest: int) -> None:
    if value > largest:
        raise ValueError(f"`{option}` must be at most {largest}, got {value if value < 10**20 else 'far more'}")
