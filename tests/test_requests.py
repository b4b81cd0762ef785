"""How the server chooses what to ask for."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon.requests import FixedRequest, Requests, ScheduledRequest, fixed_request, scheduled_request

POLICIES = {"fixed": fixed_request(8, 0.25), "scheduled": scheduled_request([8, 4, 2], [0.5, 0.25, 0.125])}
every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def asked(policy: Requests, rounds: int) -> list[tuple[int, float]]:
    return [(int(x.batch_size), float(x.step)) for x in map(policy.ask, jnp.arange(rounds))]


def test_a_fixed_request_never_changes() -> None:
    assert asked(fixed_request(8, 0.25), 4) == [(8, 0.25)] * 4


def test_a_schedule_is_followed_and_its_last_entry_repeated() -> None:
    assert asked(POLICIES["scheduled"], 5) == [(8, 0.5), (4, 0.25), (2, 0.125), (2, 0.125), (2, 0.125)]


@every_policy
def test_it_runs_compiled_and_mapped(policy: Requests) -> None:
    compiled: Any = jax.jit(lambda policy, turn: policy.ask(turn))
    for turn in range(4):
        np.testing.assert_array_equal(compiled(policy, turn), policy.ask(jnp.asarray(turn)))
    mapped = jax.vmap(policy.ask)(jnp.arange(4))
    assert list(zip(mapped.batch_size.tolist(), mapped.step.tolist(), strict=True)) == asked(policy, 4)
    assert compiled._cache_size() == 1


@every_policy
def test_it_asks_for_whole_samples_and_steps_by_a_number(policy: Requests) -> None:
    request = policy.ask(jnp.asarray(0))
    assert request.batch_size.shape == request.step.shape == ()
    assert jnp.issubdtype(request.batch_size.dtype, jnp.integer)
    assert request.step.dtype == jnp.float32


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (fixed_request(8, 0.25), fixed_request(2, 0.5)),
        (scheduled_request([8, 4], [0.5, 0.1]), scheduled_request([1, 2], [0.3, 0.2])),
    ],
)
def test_its_numbers_are_data(one: Requests, other: Requests) -> None:
    """So that another request or step needs no new compilation."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert len(jax.tree.leaves(one)) == 2


def test_factories_give_what_they_say() -> None:
    assert isinstance(fixed_request(8, 0.25), FixedRequest)
    assert isinstance(scheduled_request([8], [0.25]), ScheduledRequest)
    assert asked(fixed_request(1, 0.0), 1) == [(1, 0.0)]  # a step of 0 is allowed


@pytest.mark.parametrize(
    ("batch_size", "step", "message"),
    [
        (0, 0.1, "`batch_size` must be a positive integer, got 0"),
        (-3, 0.1, "`batch_size` must be a positive integer, got -3"),
        (2.5, 0.1, "`batch_size` must be a positive integer, got 2.5"),
        (True, 0.1, "`batch_size` must be a positive integer, got True"),
        (8, -0.1, "`step` must be a finite number of at least 0, got -0.1"),
        (8, float("nan"), "`step` must be a finite number of at least 0, got nan"),
        (8, float("inf"), "`step` must be a finite number of at least 0, got inf"),
        (8, "0.1", "`step` must be a finite number of at least 0, got '0.1'"),
    ],
)
def test_a_bad_fixed_request_is_refused(batch_size: Any, step: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        fixed_request(batch_size, step)


@pytest.mark.parametrize(
    ("batch_sizes", "steps", "message"),
    [
        ([], [], "`batch_sizes` and `steps` must have one entry per round, got 0 and 0"),
        ([8, 8], [0.1], "`batch_sizes` and `steps` must have one entry per round, got 2 and 1"),
        ([8, 0], [0.1, 0.1], "`batch_sizes` must be a positive integer, got 0"),
        ([8, 2.5], [0.1, 0.1], "`batch_sizes` must be a positive integer, got 2.5"),
        ([8, 8], [0.1, -1], "`steps` must be a finite number of at least 0, got -1"),
        ([8, 8], [0.1, float("nan")], "`steps` must be a finite number of at least 0, got nan"),
    ],
)
def test_a_bad_schedule_is_refused(batch_sizes: Any, steps: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        scheduled_request(batch_sizes, steps)
