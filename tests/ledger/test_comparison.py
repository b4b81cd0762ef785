"""A round is refused where its driver computed another number than the ledger; nothing of it is recorded."""

from typing import Any

import jax
import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, OutputAgreement, PowerCost, round_of
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.books.money import MICRO, to_micro
from guerdon.rule import Status
from guerdon.statistical.servers import server_for
from tests.support.ledger_scenes import AT_ONCE, NAMES, RULE, on, play
from tests.support.libraries import Library, jax_once

FACTORS = {"south": 1.3, "west": 0.7}


def changed(part: str, seat: int, by: Any) -> Any:
    """Return the fifth round of a run, and its payments with one number changed."""
    one = play(5)[4]
    column = getattr(one.payments, part).copy()
    column[seat] = by(column[seat])
    return one, one.payments._replace(**{part: column})


def start(ledger: Ledger) -> None:
    ledger.start_run("heart", NAMES, RULE, AT_ONCE)
    for one in play(4):
        ledger.record_round("heart", *one.arguments(), payments=one.payments)


@pytest.mark.parametrize(
    ("part", "by", "words"),
    [
        ("released", lambda x: x + 5, r"a reward of {told} for agent 'south', the evidence gives {own};"),
        ("released", lambda x: np.nextafter(x, np.inf), r"a reward of {told} for agent 'south'"),
        ("released", lambda _: np.nan, r"a reward of nan for agent 'south', the evidence gives {own};"),
        ("status", lambda _: Status.ALONE.value, r"the status 'alone' for agent 'south', the evidence gives 'paid';"),
        ("squared_distance", lambda x: 2 * x, r"the squared distance D = {told} for agent 'south'"),
        ("expected", lambda x: 2 * x, r"the expected distance E = {told} for agent 'south'"),
        ("variance", lambda x: np.nextafter(x, 0), r"the variance V = {told} for agent 'south'"),
    ],
)
def test_one_number_that_is_another_is_refused(ledger: Ledger, part: str, by: Any, words: str) -> None:
    """Also by the last bit; the same round as it is goes in afterwards."""
    start(ledger)
    one, told = changed(part, 1, by)
    before, balances = ledger.verify(), ledger.balances()
    theirs, own = (repr(getattr(payments, part)[1].item()) for payments in (told, one.payments))
    match = r"round 5 of run 'heart': the driver computed " + words.format(told=theirs, own=own)
    with pytest.raises(RefusedError, match=match.replace("+", r"\+")):
        ledger.record_round("heart", *one.arguments(), payments=told)
    assert (ledger.verify(), ledger.balances()) == (before, balances)
    assert ledger.record_round("heart", *one.arguments(), payments=one.payments).new


def test_a_round_that_is_recorded_is_compared_too(ledger: Ledger) -> None:
    """In micro-units: a driver that asks again must not report what was not written."""
    start(ledger)
    one = play(4)[3]
    found = ledger.record_round("heart", *one.arguments(), payments=one.payments)
    assert not found.new
    assert not ledger.record_round("heart", *one.arguments(), payments=found.payments).new
    other = one.payments._replace(released=one.payments.released + 5)
    with pytest.raises(RefusedError, match=r"round 4 of run 'heart': the driver computed a reward of .*north"):
        ledger.record_round("heart", *one.arguments(), payments=other)


def test_payments_of_other_agents_are_refused(ledger: Ledger) -> None:
    start(ledger)
    one = play(5)[4]
    short = one.payments._replace(released=one.payments.released[:3])
    with pytest.raises(RefusedError, match=r"`payments.released` must have one entry for each of the 4 agents, got"):
        ledger.record_round("heart", *one.arguments(), payments=short)


@jax_once
def test_a_loop_in_any_library_pays_what_the_ledger_computes(ledger: Ledger, library: Library) -> None:
    """Reports in float32 too: pay is computed in NumPy's float64, from the evidence as it is recorded."""
    cost = PowerCost(0.3, 1.7, 0.1)  # none of its numbers is exact in binary
    server, rng = server_for(OutputAgreement(cost), FixedRequest(8, 0.1)), np.random.default_rng(4)
    ledger.start_run("heart", NAMES, server.rule, on(cost_factors=FACTORS))
    factors = np.array([FACTORS.get(name, 1.0) for name in NAMES])
    with library.precision():
        model, sent = library.array(np.zeros(20)), library.mask(np.ones(4))
        state = server.init(model, 4)
        for number in range(1, 9):
            ask, state = server.ask(state, model)
            reports = library.array(rng.normal(size=(4, 20)))
            done, state = server.settle(state, ask, reports, sent, factors=factors)
            assert all(isinstance(part, np.ndarray) for part in done.payments)
            assert done.payments.released.dtype == np.float64
            recorded = ledger.record_round("heart", number, round_of(done.evidence, sent, 8), payments=done.payments)
            assert recorded.payments is not None
            np.testing.assert_array_equal(recorded.payments.released, to_micro(done.payments.released) / MICRO)
    assert ledger.verify().holds


def test_a_compiled_round_stays_in_its_library() -> None:
    """Within `jax.jit` there is no NumPy: the rule pays in JAX, and nothing is recorded from there."""
    server = server_for(OutputAgreement(AffineCost(1, 1)), FixedRequest(8, 0.1), alike=True)
    with jax.enable_x64(True):
        model, reports = jax.numpy.zeros(6), jax.numpy.asarray(np.random.default_rng(0).normal(size=(4, 6)))
        ask, state = server.ask(server.init(model, 4), model)
        compiled = jax.jit(lambda rows: server.settle(state, ask, rows, np.ones(4, dtype=bool))[0].payments.released)
        own = server.settle(state, ask, reports, np.ones(4, dtype=bool))[0].payments.released
        np.testing.assert_allclose(compiled(reports), own, rtol=1e-12)
