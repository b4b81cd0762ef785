"""How JAX compiles what tests play."""

import contextlib
from collections.abc import Generator

import jax

NAME = "jax_disable_most_optimizations"


@contextlib.contextmanager
def optimised() -> Generator[None]:
    """Let JAX optimise what is compiled in here, because it runs for long; tests/conftest.py leaves that out.

    >>> with optimised():
    ...     jax.jit(lambda x: x + 1)(1).item()
    2
    """
    before = jax.config.values[NAME]
    jax.config.update(NAME, False)
    try:
        yield
    finally:
        jax.config.update(NAME, before)
