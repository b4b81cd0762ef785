"""Checkpoints: what training resumes from is saved with the payments, or neither is."""

import importlib

import jax.numpy as jnp
import numpy as np
import pytest
from sqlalchemy import func, select

from guerdon.ledger import Ledger, UnavailableError
from guerdon.ledger.books import checkpoints, tables
from guerdon.ledger.books.checkpoints import pack, parts, unpack
from tests.support.ledger_scenes import AT_ONCE, NAMES, REMEMBERING, RULE, play, record
from tests.support.libraries import needs_torch


def test_arrays_of_every_library_come_back() -> None:
    groups = {
        "model": {"layer/0": np.arange(6.0).reshape(2, 3), "scalar": np.float32(2)},
        "rule": REMEMBERING.init(4),
        "jax": {"x": jnp.arange(3)},
        "empty": {},
    }
    assert unpack(pack({"half": {"jax": jnp.ones(2, dtype=jnp.bfloat16)}}))["half"]["jax"].dtype == np.float32
    back = unpack(pack(groups))
    assert set(back) == {"model", "rule", "jax"}
    np.testing.assert_array_equal(back["model"]["layer/0"], np.arange(6.0).reshape(2, 3))
    assert back["model"]["scalar"].shape == ()
    assert set(back["rule"]) == set(REMEMBERING.init(4)._fields) >= {"signal", "weight"}
    assert pack(groups) == pack(dict(reversed(groups.items())))


@needs_torch
def test_so_do_tensors() -> None:
    torch = importlib.import_module("torch")
    tensors = {"bias": torch.ones(3, requires_grad=True), "half": torch.ones(2, dtype=torch.bfloat16)}
    back = unpack(pack({"model": tensors}))["model"]
    np.testing.assert_array_equal(back["bias"], np.ones(3, dtype=np.float32))
    assert back["half"].dtype == np.float32


def test_only_the_last_checkpoint_of_each_run_is_kept(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "PART", 100)
    ledger.start_run("one", NAMES, RULE, AT_ONCE)
    ledger.start_run("two", NAMES, RULE, AT_ONCE)
    record(ledger, "one", play(3))
    record(ledger, "two", play(2))
    for run, number in (("one", 3), ("two", 2)):
        resumed = ledger.resume(run)
        assert resumed is not None
        assert (resumed.round, resumed.request) == (number, 8)
        np.testing.assert_array_equal(resumed.arrays["model"]["weights"], np.arange(4.0) * number)
    with ledger._database.reading() as connection:
        run = tables.checkpoints.c.run
        kept = connection.execute(select(run, func.count()).group_by(run).order_by(run)).all()
    assert [tuple(row) for row in kept] == [(1, 2), (2, 2)]  # in two parts each
    assert ledger.verify().holds


def test_a_round_without_checkpoint_leaves_none_to_resume_from(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    record(ledger, "run", play(1))
    ledger.record_round("run", *play(2)[1].arguments())
    resumed = ledger.resume("run")
    assert resumed is not None
    assert (resumed.round, resumed.arrays) == (2, {})
    assert ledger.resume("other") is None
    assert ledger.verify().holds


def test_a_damaged_checkpoint_is_not_resumed_from(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    record(ledger, "run", play(1))
    with ledger._database.engine.begin() as connection:
        connection.execute(tables.checkpoints.update().values(data=b"x" * 100))
    with pytest.raises(UnavailableError, match="the checkpoint of run 'run', round 1, is damaged"):
        ledger.resume("run")


def test_parts_are_the_whole() -> None:
    data = bytes(range(256)) * 10
    assert b"".join(parts(data)) == data
    assert parts(b"") == []
