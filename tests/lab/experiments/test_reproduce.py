"""The paper's figures, reproduced: small and quick here, at full size in the slow test."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from guerdon.lab.experiments import fig2, fig4
from guerdon.lab.experiments.claims import Claim, Experiment, equals, exceeds, mean_over_repetitions, pay_of_one
from guerdon.lab.experiments.paper import AGENTS, DIM, START, expected_pay, seed_of
from guerdon.lab.experiments.report import write_report
from guerdon.lab.experiments.reproduce import FIGURES, reproduce
from guerdon.lab.problems.heart import VARIABLE
from guerdon.lab.problems.linear_regression import optimal_step
from tests.support.print import check_print

REPETITIONS, SEED = 10, 3


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Experiment]:
    """A small reproduction, made once."""
    out, told = tmp_path_factory.mktemp("small"), list[tuple[str, float]]()
    (experiment,) = reproduce(["fig2"], REPETITIONS, out, SEED, lambda *now: told.append(now))
    assert told == [(f"fig2: S = {2**step}", step / 5) for step in range(5)]
    return out, experiment


def test_a_small_reproduction_writes_everything(small: tuple[Path, Experiment]) -> None:
    out, experiment = small
    names = {path.name for path in out.iterdir()}
    assert names == {"fig2.svg", "fig2.pdf", "fig2.png", "fig2.parquet", "fig2.csv", "claims.json", "report.html"}
    claims = json.loads((out / "claims.json").read_text())
    assert [set(claim) for claim in claims] == [
        {"figure", "claim", "expected", "measured", "standard_error", "holds"}
    ] * len(experiment.claims)
    frame = pl.read_parquet(out / "fig2.parquet")
    assert frame.equals(experiment.data)
    assert frame.height == 5 * (fig2.ROUNDS + 1)
    assert pl.read_csv(out / "fig2.csv").height == frame.height


def test_the_report_is_self_contained_and_escapes(small: tuple[Path, Experiment]) -> None:
    page = (small[0] / "report.html").read_text()
    assert "<svg" in page
    assert not re.search(r'(src|href)="(?!#)(https?:)?//', page)
    assert "<script" not in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'xlink:href="#([^"]+)"', page):
        assert target in ids


def test_the_same_seed_gives_the_same_claims(small: tuple[Path, Experiment], tmp_path: Path) -> None:
    reproduce(["fig2"], REPETITIONS, tmp_path, SEED)
    for name in ("claims.json", "fig2.svg"):
        assert (tmp_path / name).read_bytes() == (small[0] / name).read_bytes()


def test_a_figure_is_fit_for_print(small: tuple[Path, Experiment]) -> None:
    check_print(small[1].drawing)


def test_a_run_reaches_the_target_before_the_expected_error_does() -> None:
    """The expected error takes 74, 36, 18, 10, 6 rounds; a run stops at the first passage of its own."""
    expected = [fig4.expected_rounds(nu) for nu in (1, 2, 4, 8, 16)]
    for mean, rounds in zip(expected, (74, 36, 18, 10, 6), strict=True):
        assert mean.value < rounds - 3 * mean.error
    literal = mean_over_repetitions([literal_rounds(16, seed) for seed in range(100)])
    assert abs(literal.value - expected[-1].value) < 3 * np.hypot(literal.error, expected[-1].error)


def literal_rounds(nu: int, seed: int) -> int:
    """Train on samples, one run, and return how many rounds it took to be at the target."""
    random, error, rounds = np.random.default_rng(seed), np.full(DIM, (START / DIM) ** 0.5), 0
    while error @ error > fig4.TARGET:
        features = random.normal(size=(AGENTS * nu, DIM))
        residuals = features @ error - random.normal(size=AGENTS * nu)
        error = error - optimal_step(DIM, AGENTS, nu) * 2 * residuals @ features / (AGENTS * nu)
        rounds += 1
    return rounds


def test_what_an_agent_is_expected_to_be_paid() -> None:
    """Under known variance; the estimated one pays less than the cost at the request."""
    np.testing.assert_allclose(expected_pay("known", [1, 2, 4, 8, 16]), [-47, -15, 1, 9, 13])
    assert expected_pay("estimated", 8) == pytest.approx(9 - 8 * 2 / 70)
    # Lengths of noise that vary as χ² with S degrees of freedom, drawn.
    random = np.random.default_rng(0)
    own, others = random.chisquare(2, 200_000) / 4, random.chisquare(9 * 4, 200_000) / 16
    drawn = 5 + 4 * (1 - 9 * own / others)
    assert expected_pay("estimated", 2, 4) == pytest.approx(drawn.mean(), abs=4 * drawn.std() / 200_000**0.5)


def test_settings_of_an_experiment_have_their_own_draws() -> None:
    seeds = [seed_of(seed, size, split) for seed in (-1, 0, 1) for size in (1, 2, 16) for split in range(3)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_one_agents_pay_shows_what_the_mean_over_agents_hides() -> None:
    """A rule that hands out n·h(ν) in every round, and always pays the first agent too little."""
    rounds = np.random.default_rng(0).integers(20, 60, size=500)
    paid = np.outer(rounds, [8.0, 10.0]) + np.random.default_rng(1).normal(size=(500, 1)) * [1.0, -1.0]
    assert equals("f", "mean over agents", pay_of_one(paid.mean(axis=1), rounds, 9.0), 9.0).holds
    claim = equals("f", "one agent", pay_of_one(paid[:, 0], rounds, 9.0), 9.0)
    assert not claim.holds
    assert claim.measured == pytest.approx(8.0, abs=0.01)


def test_pay_of_one_is_not_biased_by_when_a_run_stops() -> None:
    """A run stops after its first round of good pay: the ratio of pay and rounds is then far from the mean pay of 0."""
    random, paid, rounds = np.random.default_rng(0), np.zeros(20_000), np.zeros(20_000)
    active = np.arange(20_000)
    while len(active):
        gained = random.normal(size=len(active))
        paid[active] += gained
        rounds[active] += 1
        active = active[gained < 1.0]
    assert np.mean(paid / rounds) > 0.2
    assert equals("f", "pay", pay_of_one(paid, rounds, 0.0), 0.0).holds


def test_which_request_is_cheapest_depends_on_the_step() -> None:
    """Figure 4: 4 or 8 with the step that suits each request, 2 with one step for all."""
    assert all(claim.holds for claim in fig4._choices())
    totals = {nu: fig4.expected_total(nu, steps="the step of ν = 1").value for nu in (1, 2, 4, 8, 16)}
    assert min(totals, key=lambda nu: totals[nu]) == 2
    assert max(totals, key=lambda nu: totals[nu]) == 16


def test_claims_can_fail() -> None:
    noise = np.random.default_rng(0).normal(size=1000)
    assert equals("f", "zero mean", noise, 0.0).holds
    assert not equals("f", "zero mean", noise + 0.2, 0.0).holds
    assert exceeds("f", "positive", noise + 0.2).holds
    assert not exceeds("f", "positive", noise).holds
    assert Claim("f", "c", "e", np.inf, np.nan, False).to_dict()["measured"] is None


def test_the_number_of_claims_that_hold_says_which_survey_was_used(
    small: tuple[Path, Experiment], tmp_path: Path
) -> None:
    experiment = small[1]
    for survey, words in (
        ("", f"{sum(claim.holds for claim in experiment.claims)} of 5</b><span>claims hold</span>"),
        ("synthetic <one>", "hold, with the synthetic &lt;"),
    ):
        write_report([replace(experiment, survey=survey)], REPETITIONS, SEED, tmp_path / "report.html")
        assert words in (tmp_path / "report.html").read_text()


def test_wrong_names_and_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"an experiment must be one of fig2, .*, looks, got 'fig9'"):
        reproduce(["fig9"], 10, tmp_path)
    with pytest.raises(ValueError, match="`repetitions` must be at least 2"):
        reproduce(["fig2"], 1, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"the real survey is not here; set {VARIABLE} to its path")
def test_every_claim_holds_at_full_size(tmp_path: Path) -> None:
    assert failures(FIGURES, tmp_path) == []
    assert "synthetic" not in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_the_synthetic_survey_leads_to_the_same_conclusions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert failures(["fig5"], tmp_path) == []
    assert "synthetic" in (tmp_path / "report.html").read_text()
    assert "synthetic" in (tmp_path / "fig5.csv").read_text()


def failures(names: Sequence[str], out: Path) -> list[Claim]:
    """Return the claims that fail at the paper's 250 repetitions."""
    experiments = reproduce(names, 250, out)
    for experiment in experiments:
        check_print(experiment.drawing)
    return [claim for experiment in experiments for claim in experiment.claims if not claim.holds]
