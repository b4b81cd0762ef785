"""The certificate finds what is known: which deviations the rules deter, and which they do not."""

from typing import Any

import pytest

from guerdon import AffineCost, FlatPay, OutputAgreement
from guerdon._quantiles import student_quantile
from guerdon.lab.agents import Fixed, Portion, Reporting, shrink
from guerdon.lab.certificate import Certificate, certify, standard_deviations
from guerdon.lab.problems import linear_regression
from guerdon.lab.problems.linear_regression import optimal_step
from guerdon.lab.truth import TrueVariance
from tests.support.compiling import optimised

COST = AffineCost(1, 1)
PROBLEM = linear_regression(dim=100, max_batch=16)
STEP = optimal_step(100, 10, 8)
REPORTS = ("send zeros", "echo the last aggregate", "echo plus honest noise", "work, send half")


def verdicts(certificate: Certificate) -> dict[str, str]:
    return {finding.deviation: finding.verdict for finding in certificate.findings}


SMALL = {"rounds": 10, "tolerance": 0.4}  # what declining gains, which is nothing, is known to ±0.1 only


@pytest.fixture(scope="module", params=[SMALL, pytest.param({}, marks=pytest.mark.slow)], ids=["small", "full"])
def theorem(request: pytest.FixtureRequest) -> Certificate:
    with optimised():
        return certify(PROBLEM, OutputAgreement(COST, TrueVariance()), 8, STEP, **request.param)


def test_theorem_1_deters_every_size(theorem: Certificate) -> None:
    found = verdicts(theorem)
    sizes = [name for name in found if name.startswith("use") or name == "decline"]
    assert len(sizes) == 6
    assert {found[name] for name in sizes} == {"deters"}


def test_theorem_1_does_not_deter_made_up_reports(theorem: Certificate) -> None:
    found = verdicts(theorem)
    assert {found[name] for name in REPORTS} == {"does not deter"}
    assert {found["work, send double"], found["work, flip the sign"], found["send garbage"]} == {"deters"}
    assert not theorem.holds


def test_gains_are_those_of_the_theory(theorem: Certificate) -> None:
    """Known per round: half the work −4, double −4; zeros and echo near +16, shrinking near +6."""
    gains = {finding.deviation: finding for finding in theorem.findings}
    for name, gain in (("use 4", -4.0), ("use 16", -4.0), ("use 7", -1 / 7), ("use 9", -1 / 9)):
        assert abs(gains[name].gain - gain) < 4 * gains[name].standard_error
        assert gains[name].standard_error < 0.2
    assert 15 < gains["send zeros"].gain < 17
    assert 14 < gains["echo the last aggregate"].gain < 17
    assert abs(theorem.honest_utility) < 4 * theorem.honest_error


def test_intervals_hold_together(theorem: Certificate) -> None:
    level = 1 - 0.05 / (2 * len(theorem.findings))
    half_width = student_quantile(level, theorem.repetitions - 1)
    for finding in theorem.findings:
        assert finding.high - finding.gain == pytest.approx(half_width * finding.standard_error)
        assert finding.low < finding.gain < finding.high


@pytest.mark.slow
def test_flat_pay_deters_nothing_but_working_more() -> None:
    found = verdicts(certify(PROBLEM, FlatPay(COST), 8, STEP, repetitions=20, rounds=10))
    assert found["use 1"] == found["use 7"] == found["send zeros"] == "does not deter"
    assert found["use 16"] == found["use 9"] == "deters"


@pytest.mark.slow
def test_undecided_says_what_would_decide() -> None:
    rule = OutputAgreement(COST, TrueVariance())
    few = certify(
        PROBLEM, rule, 8, STEP, {"decline": Reporting(Portion(0.0))}, repetitions=10, rounds=10, tolerance=0.0
    )
    finding = few.findings[0]
    assert finding.verdict == "undecided"
    assert finding.repetitions_needed > 10
    assert not few.holds


def test_a_rule_that_deters_all_that_is_tried_holds() -> None:
    tried = {"half": Reporting(Portion(0.5)), "double": Reporting(Portion(2.0)), "longer": shrink(1.0, Portion(0.25))}
    certificate = certify(PROBLEM, OutputAgreement(COST), 8, STEP, tried, repetitions=50, rounds=15)
    assert certificate.holds
    assert certificate.tolerance == pytest.approx(0.02 * COST(8))


@pytest.mark.slow
def test_others_may_do_something_else_and_each_deviation_is_announced() -> None:
    # Known variance, the others at 4 of 8: E[R] falls by h'(8)·8²·(1/4 − 1/8)/9, whatever he does himself.
    heard: list[str] = []
    rule, tried = OutputAgreement(COST, TrueVariance()), {"half": Reporting(Portion(0.5))}
    settings: dict[str, Any] = {"rounds": 10, "repetitions": 200}
    usual = certify(PROBLEM, rule, 8, STEP, tried, **settings)
    slack = certify(PROBLEM, rule, 8, STEP, tried, others=Fixed(4), announce=heard.append, **settings)
    assert heard == ["do as asked", "half"]
    assert slack.honest_error < 0.1
    assert slack.honest_utility - usual.honest_utility == pytest.approx(-8 / 9, abs=4 * 1.5 * 0.1)


def test_deviations_fit_the_request() -> None:
    assert "use 2" in standard_deviations(1, 16)
    assert "use 0" not in standard_deviations(1, 16)
    assert "use 32" not in standard_deviations(16, 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"request": 0}, "`request` must be a positive integer, got 0"),
        ({"confidence": 1.0}, "`confidence` below 1"),
        ({"confidence": 0.0}, "`confidence` must be a finite number above 0"),
        ({"repetitions": 1}, "`repetitions` must be at least 2"),
        ({"request": 99}, r"`requests` must ask for at most the problem's `max_batch` \(16\), got 99"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"request": 8, "step": STEP} | changes
    with pytest.raises(ValueError, match=message):
        certify(PROBLEM, OutputAgreement(COST), **arguments)
