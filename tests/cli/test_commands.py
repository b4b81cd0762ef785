"""The command line as a person uses it, wrong input included, with real files."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import typer

from guerdon import ExpressionCost, OutputAgreement, gather, round_of
from guerdon.cli import app
from guerdon.cli.reports import print_claims
from guerdon.lab.experiments.claims import Claim, Experiment
from guerdon.ledger import Ledger
from guerdon.registry import choices
from guerdon.settling import with_scale
from tests.support.command_line import run, run_json, start

EQUILIBRIUM = ["equilibrium", "--agents", "10", "--request", "8", "--cost", "1 + s", "--max-batch", "32"]


@pytest.fixture
def gradients(tmp_path: Path) -> Path:
    values = np.random.default_rng(0).normal(size=(5, 40))
    values[3] *= 2
    values[4, 7] = np.nan
    np.save(tmp_path / "gradients.npy", values)
    return tmp_path / "gradients.npy"


def test_equilibrium_prints_the_table_of_the_paper() -> None:
    result = run(*EQUILIBRIUM)
    assert result.code == 0
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines()]
    rows = {cells[0]: cells[1:] for cells in lines if len(cells) == 5}
    assert len(rows) == 33
    assert rows["2"] == ["-15.000", "3.000", "-18.000", ""]
    assert rows["8"] == ["9.000", "9.000", "0.000", "◀ best response"]
    assert "Equilibria in which everybody does the same: 0 (decline), 8 (the request)" in result.stdout


def test_equilibrium_as_json() -> None:
    report = run_json(*EQUILIBRIUM)
    assert report["best_response"] == 8
    assert report["symmetric_equilibria"] == [0, 8]
    assert report["table"][16] == {"batch_size": 16, "expected_reward": 13.0, "cost": 17.0, "utility": -4.0}


def test_equilibrium_under_another_rule_and_lazy_others() -> None:
    report = run_json(*EQUILIBRIUM, "--rule", "estimated", "--others", "2")
    assert (report["rule"], report["others"], report["best_response"]) == ("estimated", 2, 4)


@pytest.mark.parametrize(("agents", "title"), [("1", "1 agent, request 8"), ("2", "2 agents, request 8")])
def test_two_agents_are_told_that_nobody_compares_them(agents: str, title: str) -> None:
    printed = " ".join(run("equilibrium", "--agents", agents).stdout.split())
    assert title in printed
    assert "Two agents cannot be compared: agreement pays each of them h(ν) whatever it sends" in printed
    assert "cannot be compared" not in run("equilibrium", "--agents", agents, "--rule", "known").stdout
    assert "cannot be compared" not in run("equilibrium", "--agents", "3").stdout


def test_others_who_decline() -> None:
    report = run_json(*EQUILIBRIUM, "--others", "0")
    assert (report["others"], report["best_response"]) == (0, 0)


def test_a_long_table_is_shortened_and_says_so() -> None:
    result = run("equilibrium", "--request", "200", "--max-batch", "1000")
    assert len(result.stdout.splitlines()) < 60
    assert "1001 batch sizes; --json lists them all" in result.stdout
    assert "200 (the request)" in result.stdout


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_plot(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"game.{suffix}"
    result = run(*EQUILIBRIUM, "--plot", str(path))
    assert result.code == 0, result.stderr
    assert path.read_bytes()[:5] in (b"<?xml", b"\x89PNG\r", b"%PDF-")
    assert str(path) in result.stdout


def test_pay_prints_every_agent_with_a_reason(gradients: Path) -> None:
    result = run("pay", str(gradients), "--request", "8", "--cost", "1 + s", "--rule", "known:320")
    assert (result.code, result.stderr) == (0, "")
    assert "invalid" in result.stdout
    assert "4 of 5 agents paid" in result.stdout


@pytest.mark.parametrize("more", [(), ("--scale", "20")])
def test_pay_says_that_two_cannot_be_compared(tmp_path: Path, more: tuple[str, ...]) -> None:
    np.save(tmp_path / "two.npy", np.random.default_rng(0).normal(size=(2, 40)))
    told = run("pay", str(tmp_path / "two.npy"), "--request", "8", *more, COLUMNS="200").stdout
    assert told.count("only two took part, or all reports were the same: they cannot be compared") == 2
    assert "--scale" not in told


def test_pay_of_a_first_round_says_that_it_is_the_cost_alone(gradients: Path) -> None:
    told = run("pay", str(gradients), "--request", "8").stdout
    assert "4 of 5 agents paid, 4 of them their cost alone" in told
    assert "This is a first round. --scale V" in told
    assert "cost alone" not in run("pay", str(gradients), "--request", "8", "--scale", "40").stdout


def test_pay_by_a_rule_that_needs_many_rounds_says_so(gradients: Path) -> None:
    result = run("pay", str(gradients), "--request", "8", "--rule", "steady")
    assert (result.code, result.stderr) == (0, "")
    assert "this rule pays over many rounds" in result.stdout
    assert "many rounds" not in run("pay", str(gradients), "--request", "8").stdout


def test_pay_is_what_the_mechanism_says(gradients: Path) -> None:
    report = run_json("pay", str(gradients), "--request", "8", "--scale", "40")
    rule = OutputAgreement(ExpressionCost("1 + s"))
    evidence = gather(np.load(gradients), [True] * 5)
    expected, _ = rule.pay(with_scale(rule.init(5), 40.0), round_of(evidence, np.ones(5, dtype=bool), 8))
    assert [agent["reward"] for agent in report["agents"]] == pytest.approx(expected.released.tolist(), rel=1e-12)
    assert [agent["status"] for agent in report["agents"]] == ["paid"] * 4 + ["invalid"]
    assert report["agents"][4]["distance"] is None


def test_names_from_a_file_are_shown_as_they_are(tmp_path: Path) -> None:
    names = {"[red]eve[/]": np.zeros(3), "Zoë": np.ones(3), "x" * 30: np.array([1.0, 0.0, 2.0])}
    np.savez(tmp_path / "g.npz", **names)  # pyright: ignore[reportArgumentType]
    result = run("pay", str(tmp_path / "g.npz"), "--request", "8")
    assert all(name in result.stdout for name in names)


PLAN = ["plan", "--variance", "4", "--signal", "1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["equilibrium", "--cost", "9 - s"], "`cost` must increase strictly"),
        (["equilibrium", "--cost", "s ** 0.5"], "`cost` must be convex for s > 0"),
        (["equilibrium", "--cost", "s - 5"], "`cost` must not be negative, but h(1) = -4: it fails at s = 1"),
        (["equilibrium", "--cost", "__import__('os')"], "an expression may hold numbers, s,"),
        (["equilibrium", "--cost", "9**9**9**9"], "`cost` cannot be computed"),
        (["equilibrium", "--cost", ""], "cannot read the expression"),
        (["equilibrium", "--request", "0"], "`request` must be a positive integer, got 0"),
        (["equilibrium", "--agents", "-2"], "`num_agents` must be a positive integer, got -2"),
        (["equilibrium", "--max-batch", "4"], "`request` must be at most `max_batch` (4), got 8"),
        (["equilibrium", "--max-batch", "100000000000"], "`--max-batch` must be at most 10000, got 100000000000"),
        (["equilibrium", "--agents", "1" + "0" * 400], "`--agents` must be at most 100000, got far more"),
        (["pay", "FILE", "--request", "1" + "0" * 400], "`--request` must be at most 1000000, got far more"),
        (["pay", "FILE", "--request", "8", "--rule", "known:1e-320"], "the rewards are too large for a number"),
        (
            ["pay", "FILE", "--request", "16", "--cost", "1e306*s", "--scale", "1e-3"],
            "the rewards are too large for a number",
        ),
        (["equilibrium", "--others", "99"], "`sizes` must be whole numbers from 0 to `max_batch` (32)"),
        (["equilibrium", "--plot", "/nowhere/at/all.png"], "cannot be opened: no such file or directory"),
        (["equilibrium", "--plot", "game.docx"], "docx"),
        (["equilibrium", "--rule", "guess"], "`rule` must be one of 'agreement', 'known', 'estimated', "),
        (["equilibrium", "--request", "eight"], "invalid value for '--request'"),
        (
            ["pay", "FILE", "--request", "8", "--rule", "known"],
            "it needs the variance of a single sample",
        ),
        (["pay", "FILE", "--request", "8", "--rule", "known:-1"], "`variance` must be a finite number above 0, got -1"),
        (
            ["pay", "FILE", "--request", "8", "--rule", "known:nan"],
            "`variance` must be a finite number above 0, got nan",
        ),
        (["pay", "FILE", "--request", "8", "--rule", "exact"], "the rule must be one of agreement, known, estimated, "),
        (
            ["pay", "FILE", "--request", "8", "--rule", "agreement:abc"],
            "`--rule` must be a name, or a name and a number",
        ),
        (["pay", "FILE", "--request", "8", "--rule", "agreement:abc"], "got 'agreement:abc': 'abc' is no number"),
        (["pay", "FILE", "--request", "8", "--rule", "agreement:"], "got 'agreement:': give the number, or no colon"),
        (["pay", "FILE", "--request", "-1"], "`request` must be a positive integer, got -1"),
        (["pay", "FILE", "--request", "8", "--cost", "2 - s"], "`cost` must"),
        (["pay", "gone.npy", "--request", "8"], "`gone.npy` is not a file"),
        (["pay", "FILE"], "missing option '--request'"),
        (["certify", "--request", "0"], "`--request` must be at least 1"),
        (["certify", "--agents", "1"], "`--agents` at least 2, got 8 and 1"),
        (["certify", "--repetitions", "1"], "`repetitions` must be at least 2"),
        (["certify", "--confidence", "2"], "`confidence` below 1"),
        (["certify", "--cost", "2 - s"], "`cost` must"),
        (["simulate"], "CONFIG.toml is missing; `guerdon simulate --example` prints one"),
        (["simulate", "gone.toml"], "cannot be opened: no such file or directory"),
        (
            ["reproduce", "fig9"],
            "one of fig2, fig3, fig4, fig5, agreement, planner, exploits, federations, steady, looks, got 'fig9'",
        ),
        (["reproduce", "--repetitions", "0"], "`repetitions` must be a positive integer, got 0"),
        (["plan"], "`plan` needs a pilot and `--target`, or all of `--variance`, `--signal` and `--target`"),
        (PLAN, "`plan` needs a pilot and `--target`, or all of"),
        ([*PLAN, "--target", "2"], "`target` must be below `signal` (1)"),
        (
            ["plan", "--variance", "-4", "--signal", "1", "--target", "0.1"],
            "`variance` must be a finite number above 0",
        ),
        (
            [*PLAN, "--target", "low"],
            "`--target` must be a number without a pilot",
        ),
        (
            [*PLAN, "--target", "0.1", "--agents", "1"],
            "`num_agents` must be at least",
        ),
        ([*PLAN, "--target", "0.1", "--cost", "9 - s"], "`cost` must increase"),
        (
            [*PLAN, "--target", "0.1", "--max-batch", "99999"],
            "`--max-batch` must be",
        ),
        (["plan", "gone.parquet", "--target", "error <= 1"], "`gone.parquet` is not a file"),
        (["plan", "FILE", "--target", "error <= 1"], "cannot be read as Parquet"),
        (["plan", "FILE", "--target", "error"], "`--target` must be a metric and a value"),
        (["serve", "FILE", "--run", "x", "--request", "0"], "`--request` must be a positive integer, got 0"),
        (
            ["serve", "FILE", "--run", "x", "--request", "8", "--dither", "-1"],
            "`--dither` must be a finite number above 0, got -1",
        ),
        (["serve", "FILE", "--run", "x", "--request", "8"], "`MODEL` must be a safetensors file"),
        (["nonsense"], "no such command 'nonsense'"),
    ],
)
def test_wrong_input_is_one_clear_message(gradients: Path, arguments: list[str], message: str) -> None:
    result = run(*(str(gradients) if word == "FILE" else word for word in arguments))
    assert result.code == 2
    assert message in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_certify_finds_what_pays() -> None:
    settings = ("--rule", "known", "--agents", "4", "--repetitions", "20", "--rounds", "5")
    report = run_json("certify", *settings)
    verdicts = {finding["deviation"]: finding["verdict"] for finding in report["deviations"]}
    assert verdicts["use 4"] == "deters"
    assert verdicts["send zeros"] == "does not deter"
    assert not report["holds"]
    assert report["repetitions"] == 20
    table = run("certify", *settings).stdout  # compiled already
    assert "known rule, linear" in table
    assert "4 agents, request 8, h(s) = 1 + s" in table
    assert "does not deter" in table
    assert "95% confidence (Bonferroni)" in table


def test_simulate_prints_an_example_that_runs(tmp_path: Path) -> None:
    quick = run("simulate", "--example").stdout
    for line, small in {"dim = 100": 5, "max_batch = 64": 16, "rounds = 60": 3, "repetitions = 250": 4}.items():
        assert f"# {line}" in quick
        quick = quick.replace(f"# {line}", f"{line.partition('=')[0]}= {small}")
    assert [name for name in choices() if not re.search(rf"\b{name}\b", quick)] == []
    (tmp_path / "mine.toml").write_text(quick)
    saved = tmp_path / "mine.parquet"
    result = run("simulate", str(tmp_path / "mine.toml"), "--save", str(saved))
    assert (result.code, result.stderr) == (0, "")
    assert "profit per round" in result.stdout
    assert pl.read_parquet(saved).height == 4 * 3 * 10 * 2
    report = run_json("simulate", str(tmp_path / "mine.toml"))
    assert [(row["agents"], row["count"], row["rule"]) for row in report["agents"]] == [
        ("cooperative", 9, "information"),
        ("cooperative", 9, "agreement"),
        ("fixed", 1, "information"),
        ("fixed", 1, "agreement"),
    ]


def test_simulate_plays_every_rule_that_the_example_names(tmp_path: Path) -> None:
    text = "[problem]\nkind = 'linear'\ndim = 3\nmax_batch = 16\n[server]\nrequest = 8\nrules = {}\n"
    text += "[[agents]]\nkind = 'cooperative'\ncount = 4\n[run]\nrounds = 2\nrepetitions = 2\n"
    (tmp_path / "all.toml").write_text(text.format(list(choices())))
    report = run_json("simulate", str(tmp_path / "all.toml"))
    assert [row["rule"] for row in report["agents"]] == list(choices())
    (tmp_path / "odd.toml").write_text(text.format(["witnessed:40"]))
    assert "2 minibatches of 16 samples" in run("simulate", str(tmp_path / "odd.toml")).stderr.replace("\n", " ")


def test_simulate_names_the_wrong_key(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(run("simulate", "--example").stdout.replace("size = 4", "sise = 4"))
    result = run("simulate", str(tmp_path / "bad.toml"))
    assert result.code == 2
    assert "`agents[1].size` is missing" in result.stderr


@pytest.mark.slow
def test_simulate_says_that_runs_diverged(tmp_path: Path) -> None:
    (tmp_path / "wild.toml").write_text(
        '[problem]\nkind = "linear"\n[server]\nrequest = 8\nstep = 5.0\n'
        '[[agents]]\nkind = "fixed"\nsize = 1\ncount = 4\n[run]\nrounds = 40\nrepetitions = 3\n'
    )
    result = run("simulate", str(tmp_path / "wild.toml"))
    assert (result.code, result.stderr) == (0, "")
    assert "3 of 3 repetitions diverged" in result.stdout


CLAIMS = (
    Claim(
        "f",
        "the share [of agents] that is found by an audit of eighty rounds or more",
        "at least 0.9",
        0.95,
        0.01,
        True,
    ),
    Claim("f", "rounds", "3", 3.0, 0.0, True),
    Claim(
        "f", "what a claim says is one line, however long it is: nothing breaks it", "below 12345.678", 2e4, 31, False
    ),
)


def printed(survey: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    draw: Any = None
    print_claims([Experiment("f", "Figure 1", "", draw, pl.DataFrame(), CLAIMS, 1.2, (), survey)], Path("out"))
    return capsys.readouterr().out.splitlines()


def test_in_a_log_every_claim_is_one_whole_line_with_its_number_first(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed("synthetic survey", capsys)
    assert lines[0] == "Figure 1 (1.2 s)"
    for line, claim, number in zip(lines[1:4], CLAIMS, ("0.95 ± 0.01", "3", "2e+04 ± 31"), strict=True):
        assert line.strip().startswith(number)
        assert line.endswith(f"{'✓' if claim.holds else '✗'} {claim.claim}; expected: {claim.expected}")
    assert [line.index("✓✗"[not claim.holds]) for line, claim in zip(lines[1:4], CLAIMS, strict=True)] == [22] * 3
    assert "2 of 3 claims hold, with the synthetic survey (±: standard error)." in lines


def test_on_a_terminal_a_claim_is_cut_and_one_that_fails_comes_again_in_full(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in printed("", capsys)]
    assert max(map(len, lines[:4])) <= 80
    assert lines[1].endswith("…")
    assert lines[4] == "✗ f fails: what a claim says is one line, however long it is: nothing breaks it"
    assert lines[5] == "  expected: below 12345.678; measured: 2e+04 ± 31"
    assert lines[-2] == "2 of 3 claims hold (±: standard error)."


@pytest.mark.slow
def test_reproduce_prints_claims_and_fails_where_one_fails(tmp_path: Path) -> None:
    result = run("reproduce", "fig2", "--repetitions", "150", "--out", str(tmp_path / "good"))
    assert result.code == 0, result.stderr
    assert "5 of 5 claims hold" in result.stdout
    assert "report.html" in result.stdout
    assert result.stderr == "", "a bar is for terminals"
    # Two repetitions cannot show a median's growth: the claim fails, and so does the command.
    result = run("reproduce", "fig2", "--repetitions", "2", "--out", str(tmp_path / "bad"))
    assert result.code == 1
    assert "✗ fig2 fails:" in result.stdout


@pytest.mark.slow
def test_plan_forecasts_from_a_pilot(tmp_path: Path) -> None:
    (tmp_path / "pilot.toml").write_text(
        '[problem]\nkind = "linear"\ndim = 20\n[server]\nrequest = "adaptive"\n'
        'stop = { metric = "error", at_most = 2.0 }\n'
        '[[agents]]\nkind = "cooperative"\ncount = 5\n[run]\nrounds = 60\nrepetitions = 6\n'
    )
    pilot, plot = tmp_path / "pilot.parquet", tmp_path / "plan.svg"
    assert run("simulate", str(tmp_path / "pilot.toml"), "--save", str(pilot)).code == 0
    arguments = ("plan", str(pilot), "--target", "error <= 2", "--agents", "5", "--repetitions", "40")
    result = run(*arguments, "--plot", str(plot))
    assert (result.code, result.stderr) == (0, "")
    assert "◀ recommended" in result.stdout
    assert "recommended" in plot.read_text()
    report = run_json(*arguments)
    assert [row["request"] for row in report["policies"]] == [None, 1, 2, 4, 8, 16, 32]
    assert report["recommended"] in [row["policy"] for row in report["policies"]]
    for row in report["policies"]:
        for part in (row["rounds"], row["total_reward"]):
            assert part["low"] <= part["median"] <= part["high"]


def test_help_has_examples() -> None:
    for command in ("equilibrium", "pay", "certify", "simulate", "reproduce", "pilot"):
        result = run(command, "--help")
        assert result.code == 0
        assert re.search(f"Examples?: guerdon {command}", result.stdout)
    assert "Examples: guerdon plan" in run("plan", "--help").stdout


PLUGIN = """
from guerdon.agreement import FlatPay

class Plugged(FlatPay):
    name = "plugged"
"""


def test_rules_of_installed_packages_are_found(gradients: Path, tmp_path: Path) -> None:
    """As pip lays a package down: its module, and what it says of itself beside it."""
    (tmp_path / "plugin.py").write_text(PLUGIN)
    about = tmp_path / "plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[guerdon.rules]\nplugged = plugin:Plugged\n")
    arguments = ("pay", str(gradients), "--request", "8", "--rule", "plugged", "--json")
    assert run(*arguments).code == 2
    told = start(*arguments, PYTHONPATH=str(tmp_path))
    assert (told.code, told.stderr) == (0, "")
    assert {row["reward"] for row in json.loads(told.stdout)["agents"]} == {0.0, 9.0}  # one sent nothing


def test_in_a_process_of_its_own() -> None:
    """The installed program: what it prints, its exit status, and that complaints go to standard error."""
    assert start("--version").stdout.startswith("guerdon 0.")
    wrong = ("equilibrium", "--cost", "9 - s")
    result = start(*wrong)
    assert result == run(*wrong)
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: `cost` must increase strictly")


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[Any, tuple[str, ...]]]:
    yield command, path
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, (*path, name))


def test_help_cuts_nothing_at_eighty_columns() -> None:
    """Names of options and of environment variables, and addresses, are whole."""
    for command, path in walk(typer.main.get_command(app)):
        shown = run(*path, "--help", COLUMNS="80").stdout
        assert not re.findall(r"\S… *│", shown), path
        assert max(map(len, shown.splitlines())) <= 80, path
        for option in command.params:
            names = [*option.opts, *option.secondary_opts] if option.param_type_name == "option" else []
            for name in (*names, getattr(option, "envvar", None) or ""):
                assert name in shown, (path, name)
    assert "GUERDON_DASHBOARD_TOKEN" in run("dashboard", "--help", COLUMNS="80").stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["pay"], "error: missing argument 'FILE'; `guerdon pay --help` shows how it is called"),
        (["pay", "x.npy", "--nonsense"], "error: no such option '--nonsense'; `guerdon pay --help`"),
        (["serv"], "error: no such command 'serv'. Did you mean 'serve'? `guerdon --help` shows how it is called"),
        (["pay", "x.npy", "--request", "x"], "error: invalid value for '--request': 'x' is not a valid integer"),
        (["pay", "x.npy", "--request", "8"], "error: `x.npy` is not a file"),
        (["dashboard", "--port", "65536"], "error: `--port` must be a number from 0 (any free port) to 65535"),
    ],
)  # fmt: skip
def test_every_mistake_is_told_in_one_style(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path, COLUMNS="80")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith(complaint)
    assert done.stderr.count("\n") == 1


def test_tables_keep_names_whatever_the_amounts(tmp_path: Path) -> None:
    long = "Universitätsklinikum Hamburg-Eppendorf"
    with Ledger(tmp_path / "guerdon.db") as ledger:
        ledger.enrol({long: None, "south": None})
        ledger.move("deposit", "south", 12_345_678_901_234)
        for columns in (80, 60):
            shown = " ".join(run("ledger", "balances", cwd=tmp_path, COLUMNS=str(columns)).stdout.split())
            assert long in shown
            assert "south" in shown
            assert "12,345,678.901234" in shown
    small = run("ledger", "balances", cwd=tmp_path, COLUMNS="200").stdout
    assert small.startswith("Balances in CREDIT")
    assert "┃" in small


@pytest.mark.parametrize("shape", [(0, 3), (0,), (3, 0), ()])
def test_a_file_without_gradients_is_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "empty.npy", np.zeros(shape))
    done = run("pay", "empty.npy", "--request", "8", cwd=tmp_path)
    assert done.code == 2
    assert done.stderr.startswith("error: `empty.npy` must hold an array (agents, dim) of at least one agent")
