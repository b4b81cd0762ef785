"""χ² variables at a cost that does not depend on their degrees of freedom: exact, and quick under `jax.vmap`.

Marsaglia and Tsang (2000): with α = f/2 ≥ 1, δ = α − 1/3, w = x/√(9δ) for a normal x, and v = (1 + w)³, the value 2δv
has the law of χ² with f degrees of freedom where it is accepted, which it is if ln u < x²/2 + δ(1 − v + ln v) for a
uniform u. At least 95 % are. `jax.random.gamma` draws one candidate after the other in a loop, which under `vmap` goes
on for all until the last is accepted. Here `TRIES` are drawn at once, and the loop is for those few that need more.
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from typing import Any

import jax
import jax.numpy as jnp

from guerdon.arrays import Array

TRIES = 2  # of 5,000 draws with 8 degrees of freedom about one needs a third
FIRST = 2**30  # loop keys are folded from here on, so that they do not meet the words drawn from the same key


def words_needed(count: int) -> int:
    """Return how many uniform numbers `chi_squares` takes for `count` variables."""
    return 2 * TRIES * count


def uniforms(key: Array, count: int, dtype: Any) -> Array:
    """Return numbers that are uniform between −1 and 1, neither of them included."""
    smallest = jnp.nextafter(jnp.asarray(-1, dtype), jnp.asarray(0, dtype))
    return jax.random.uniform(key, (count,), dtype, smallest, 1.0)


def normals(words: Array) -> Array:
    """Return standard normal numbers made of uniform ones between −1 and 1, as `jax.random.normal` makes them."""
    return jnp.sqrt(jnp.asarray(2, words.dtype)) * jax.lax.erf_inv(words)


def chi_squares(freedom: Array, words: Array, key: Array) -> Array:
    """Return a χ² variable for each number of degrees of freedom, a whole number (0 gives 0).

    `words` are `words_needed` uniform numbers; `key` may be the one that they were drawn with.
    """
    count = freedom.shape[0]
    given = words.reshape(TRIES, 2, count)
    value, done = _candidate(freedom, given[0])
    one = normals(given[0, 0]) ** 2  # the square of a normal number: too few degrees for the method, and needs none
    for number in range(1, TRIES):
        value, done = _choose(value, done, *_candidate(freedom, given[number]))
    value = _until_accepted(freedom, value, done | (freedom < 2), key)
    return jnp.where(freedom < 1, 0.0, jnp.where(freedom < 2, one, value))


def _candidate(freedom: Array, words: Array) -> tuple[Array, Array]:
    """Return a candidate for each variable, and whether it is accepted."""
    x, exponential = normals(words[0]), -jnp.log((words[1] + 1) / 2)
    size = jnp.maximum(freedom, 2) / 2 - 1 / 3
    w = x / jnp.sqrt(9 * size)
    possible = w > -1
    w = jnp.where(possible, w, 0.0)
    # 1 − v + ln v, without what cancels where w is small: with many degrees of freedom it always is.
    bent = 3 * (jnp.log1p(w) - w) - w**2 * (3 + w)
    return 2 * size * (1 + w) ** 3, possible & (-exponential < x**2 / 2 + size * bent)


def _choose(value: Array, done: Array, other: Array, accepted: Array) -> tuple[Array, Array]:
    return jnp.where(done, value, other), done | accepted


def _until_accepted(freedom: Array, value: Array, done: Array, key: Array) -> Array:
    """Return the values, with those that are not accepted yet drawn again until they are."""

    def again(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        number, value, done = state
        fresh = uniforms(jax.random.fold_in(key, FIRST + number), 2 * freedom.shape[0], value.dtype)
        return number + 1, *_choose(value, done, *_candidate(freedom, fresh.reshape(2, -1)))

    state = jax.lax.while_loop(_any_open, again, (jnp.asarray(0), value, done))
    return state[1]


def _any_open(state: tuple[Array, Array, Array]) -> Array:
    return ~jnp.all(state[2])
