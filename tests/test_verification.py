"""Spot checks of committed rows: what passes, what fails, and that old samples no longer pay."""

import secrets
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, Server, SteadyPay
from guerdon.broadcasts import Dither
from guerdon.verification import SpotCheck, commit, forfeit_held, named_rows

COST, NU, DIM, AGENTS, ROUNDS = AffineCost(1, 1), 16, 12, 6, 120
SALTS = [secrets.token_bytes(16) for _ in range(NU)]


def gradient(model: Any, rows: Any) -> Any:
    """Of least squares; the last number of a row is its label."""
    features, labels = np.asarray(rows)[:, :-1], np.asarray(rows)[:, -1]
    return features.T @ (features @ model - labels) / len(features)


CHECK = SpotCheck(gradient, share=0.2)


@dataclass
class Member:
    """An agent with committed rows: a lazy one computes its gradients from forty of them, whatever it is asked for."""

    rows: Any
    lazy: bool = False
    salts: list[bytes] = field(default_factory=list[bytes])

    def __post_init__(self) -> None:
        self.salts = [secrets.token_bytes(16) for _ in self.rows]
        self.commitments = [commit(row, salt) for row, salt in zip(self.rows, self.salts, strict=True)]

    def report(self, model: Any, named: Any) -> Any:
        return gradient(model, self.rows[:40] if self.lazy else self.rows[named])

    def passes(self, model: Any, report: Any, named: Any) -> bool:
        """Show the rows that were named to the server, which knows the commitments."""
        shown, salts = self.rows[named], [self.salts[k] for k in named]
        return CHECK.passes(model, report, shown, salts, [self.commitments[k] for k in named])


def members(rng: np.random.Generator) -> list[Member]:
    features = rng.normal(size=(AGENTS, 600, DIM))
    rows = np.concatenate([features, features.sum(axis=-1, keepdims=True) + rng.normal(size=(AGENTS, 600, 1))], axis=-1)
    return [Member(own, lazy=k == AGENTS - 1) for k, own in enumerate(rows)]


def train(*, checked: bool) -> tuple[Any, Any]:
    """Return what each member is paid a round, and how many of its checks it passed and failed."""
    rng = np.random.default_rng(5)
    crowd, model, everybody = members(rng), np.zeros(DIM), np.ones(AGENTS, dtype=bool)
    server = Server(SteadyPay(COST, period=ROUNDS), FixedRequest(NU, step=0.1), dither=Dither(3.0), alike=True)
    state, paid, tally = server.init(model, AGENTS), np.zeros(AGENTS), np.zeros((2, AGENTS), dtype=int)
    for t in range(ROUNDS):
        ask, state = server.ask(state, model, rng.normal(size=DIM))
        named = [named_rows(1, k, t, 600, NU) for k in range(AGENTS)]
        reports = np.stack([crowd[k].report(ask.model, named[k]) for k in range(AGENTS)])
        done, state = server.settle(state, ask, reports, everybody)
        model, paid = model - done.step * done.mean, paid + done.payments.reward / ROUNDS
        drawn = (rng.random(AGENTS) < CHECK.share) & checked
        passed = np.array([drawn[k] and crowd[k].passes(ask.model, reports[k], named[k]) for k in range(AGENTS)])
        state = forfeit_held(server, state, drawn & ~passed)
        tally += np.stack([drawn & passed, drawn & ~passed])
    return paid, tally


def test_old_samples_pay_unless_work_is_checked_and_honest_members_lose_nothing() -> None:
    """Forty old rows tell the gradient better than sixteen new ones: paid like work, for none, until somebody looks."""
    before, _ = train(checked=False)
    assert before[-1] > 0.8 * COST(NU)
    paid, (passed, failed) = train(checked=True)
    assert paid[-1] < 0.4 * COST(NU)
    assert (paid[:-1] > before[:-1] - 0.15 * COST(NU)).all()
    assert not failed[:-1].any()
    assert not passed[-1]
    assert failed[-1] > 10


def shown(rng: np.random.Generator) -> tuple[Any, Any, Any, list[str]]:
    """Return a model, rows, their gradient, and the commitments to them."""
    model, rows = rng.normal(size=DIM), rng.normal(size=(NU, DIM + 1))
    return model, rows, gradient(model, rows), [commit(row, salt) for row, salt in zip(rows, SALTS, strict=True)]


def test_the_rows_that_were_committed_to_and_their_gradient_pass() -> None:
    model, rows, report, told = shown(np.random.default_rng(1))
    assert CHECK.passes(model, report, rows, SALTS, told)
    assert CHECK.passes(model, report.astype(np.float32), rows, SALTS, told)  # sent in single precision


@pytest.mark.parametrize("wrong", ["rows", "salt", "fewer", "report", "shape", "nan"])
def test_anything_else_fails(wrong: str) -> None:
    model, rows, report, told = shown(np.random.default_rng(2))
    salts = list(SALTS)
    if wrong == "rows":
        rows = rows + 1e-9  # the gradient is right, but not of these rows
    if wrong == "salt":
        salts[3] = secrets.token_bytes(16)
    if wrong == "fewer":
        rows, salts = rows[:8], salts[:8]
    report = {"report": 1.001 * report, "shape": report[:-1], "nan": report * np.nan}.get(wrong, report)
    assert not CHECK.passes(model, report, rows, salts, told)


def test_rows_are_named_anew_in_every_round_and_for_every_agent() -> None:
    first, again = named_rows(1, 0, 5, 600, NU), named_rows(1, 0, 5, 600, NU)
    np.testing.assert_array_equal(first, again)
    assert len(set(first.tolist())) == NU
    for other in (named_rows(1, 0, 6, 600, NU), named_rows(1, 1, 5, 600, NU), named_rows(2, 0, 5, 600, NU)):
        assert len(set(first.tolist()) & set(other.tolist())) < NU / 2


def test_a_share_of_those_that_sent_something_is_drawn() -> None:
    sent = np.arange(4000) % 4 > 0
    drawn = CHECK.drawn(sent)
    assert not drawn[~sent].any()
    assert abs(drawn.sum() - 600) < 5 * (3000 * 0.2 * 0.8) ** 0.5
    assert not np.array_equal(drawn, CHECK.drawn(sent))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SpotCheck(gradient, share=0.0), "`share` must be a finite number above 0, got 0.0"),
        (lambda: SpotCheck(gradient, share=1.5), "`share` must be at most 1, got 1.5"),
        (lambda: SpotCheck(gradient, tolerance=-1.0), "`tolerance` must be a finite number of at least 0, got -1.0"),
        (lambda: commit([1.0], b"short"), "`salt` must have at least 16 bytes.*got 5"),
        (lambda: named_rows(1, 0, 0, 8, 9), "`request` must be at most the 8 rows that were committed, got 9"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("failed", [[True, False], np.zeros(4), True])
def test_who_failed_is_told_of_each_agent(failed: Any) -> None:
    server = Server(SteadyPay(COST), FixedRequest(NU, step=0.1))
    with pytest.raises(ValueError, match="`failed` must be true or false for each of the 4 agents, got"):
        forfeit_held(server, server.init(np.zeros(2), 4), failed)
