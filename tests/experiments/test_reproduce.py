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

from guerdon.experiments import fig2, fig3, fig4
from guerdon.experiments.claims import Claim, Experiment, equals, exceeds, mean_over_repetitions
from guerdon.experiments.paper import AGENTS, DIM, START
from guerdon.experiments.report import write_report
from guerdon.experiments.reproduce import FIGURES, reproduce
from guerdon.problems.heart import VARIABLE
from guerdon.problems.linear_regression import optimal_step
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
    """THEORY §5: the expected error takes 74, 36, 18, 10, 6 rounds; a run stops at the first passage of its own."""
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


def test_what_figure_3_expects() -> None:
    """THEORY §3 under known variance; at the request the balanced rule pays the cost, the estimated one less."""
    np.testing.assert_allclose(fig3.expected_reward("known", [2, 4, 8, 16]), [-15, 1, 9, 13])
    assert fig3.expected_reward("balanced", 8) == pytest.approx(9, abs=1e-3)
    assert fig3.expected_reward("estimated", 8) == pytest.approx(9 - 8 * 2 / 70)
    # Lengths of noise that vary as χ² with S degrees of freedom, drawn.
    random = np.random.default_rng(0)
    own, others = random.chisquare(2, 200_000) / 4, random.chisquare(72, 200_000) / 64
    share = own / (own + others)
    assert fig3.expected_reward("balanced", 2) == pytest.approx(9 + 80 / 9 * (1 - 10 * share.mean()), abs=0.1)


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
    with pytest.raises(ValueError, match=r"an experiment must be one of fig2, .*, steady, got 'fig9'"):
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
