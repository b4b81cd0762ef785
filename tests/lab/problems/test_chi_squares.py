"""χ² variables have their law, whatever their degrees of freedom, and also where the first tries are refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon.lab.problems import _chi_squares
from guerdon.lab.problems._chi_squares import chi_squares, uniforms, words_needed
from tests.support.means import mean

SURE = 4.5  # standard errors, of 24 means
FREEDOM = (0, 1, 2, 3, 4, 8, 63, 999, 99_999)
DRAWS = 40_000


@jax.jit
def draw(keys: Any) -> Any:
    freedom = jnp.asarray(FREEDOM, jnp.float32)
    needed = words_needed(len(FREEDOM))
    return jax.vmap(lambda key: chi_squares(freedom, uniforms(key, needed, jnp.float32), key))(keys)


@pytest.fixture(scope="module")
def drawn() -> Any:
    return np.asarray(draw(jax.random.split(jax.random.key(3), DRAWS)), dtype=np.float64)


@pytest.mark.parametrize("freedom", FREEDOM[1:])
def test_mean_variance_and_skewness(drawn: Any, freedom: int) -> None:
    values = (drawn[:, FREEDOM.index(freedom)] - freedom) / np.sqrt(2 * freedom)
    for power, expected in ((1, 0.0), (2, 1.0), (3, np.sqrt(8 / freedom))):
        found = mean(values**power)
        assert abs(found.z(expected)) < SURE
        assert found.error < 0.3 if freedom == 1 else 0.1


@pytest.mark.parametrize("freedom", FREEDOM[1:])
def test_distribution(drawn: Any, freedom: int) -> None:
    """Against NumPy's own sampler: the Kolmogorov-Smirnov distance, at a level of 10⁻⁵."""
    own = np.sort(drawn[:, FREEDOM.index(freedom)])
    other = np.sort(np.random.default_rng(freedom).chisquare(freedom, 4 * DRAWS))
    distance = np.abs(np.searchsorted(other, own) / len(other) - np.arange(DRAWS) / DRAWS).max()
    assert distance < np.sqrt(-np.log(1e-5 / 2) / 2 * (1 / len(own) + 1 / len(other)))


def test_no_degrees_of_freedom_are_nothing(drawn: Any) -> None:
    assert (drawn[:, 0] == 0).all()
    assert (drawn[:, 1:] > 0).all()


def test_what_no_try_gave_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With uniforms that accept nothing, all values come from the loop: they are as good."""
    freedom = jnp.full(DRAWS, 6.0)
    refused = jnp.zeros((_chi_squares.TRIES, 2, DRAWS)).at[:, 0].set(0.9999).at[:, 1].set(0.99999)
    values = mean(np.asarray(chi_squares(freedom, refused.ravel(), jax.random.key(1)), dtype=np.float64))
    assert abs(values.z(6.0)) < SURE
    assert values.error < 0.03
    monkeypatch.setattr(_chi_squares, "_until_accepted", lambda _, value, *__: value)
    assert np.ptp(np.asarray(chi_squares(freedom, refused.ravel(), jax.random.key(1)))) == 0  # the words alone
