"""Every array library and precision that the core promises to run on, for parametrised tests."""

import contextlib
import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not TORCH, reason="PyTorch is not installed; pip install torch==2.13.0")


@dataclass(frozen=True)
class Library:
    """An array library with a floating-point type."""

    name: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}-{self.dtype}"

    @property
    def tolerance(self) -> float:
        """Relative rounding error that a sum of a few products may have."""
        return 1e-12 if self.dtype == "float64" else 3e-6

    @property
    def module(self) -> Any:
        return importlib.import_module({"numpy": "numpy", "jax": "jax.numpy", "torch": "torch"}[self.name])

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """Enter JAX's 64-bit mode where float64 is wanted of it."""
        if self.name == "jax":
            return importlib.import_module("jax").enable_x64(self.dtype == "float64")
        return contextlib.nullcontext()

    def array(self, values: Any) -> Any:
        """Return floating-point values as an array of the library, in its precision."""
        return self.module.asarray(np.asarray(values, dtype=self.dtype))

    def mask(self, values: Any) -> Any:
        return self.module.asarray(np.asarray(values, dtype=bool))


LIBRARIES = [Library(name, dtype) for name in ("numpy", "jax", "torch") for dtype in ("float32", "float64")]


def run_on(libraries: list[Library]) -> Any:
    """Return the mark that runs a test on these libraries."""
    marks = [needs_torch if library.name == "torch" else () for library in libraries]
    cases = [pytest.param(one, id=str(one), marks=mark) for one, mark in zip(libraries, marks, strict=True)]
    return pytest.mark.parametrize("library", cases)


every_library = run_on(LIBRARIES)
# JAX compiles every operation for every shape and precision. So it gets few of them; what is drawn is for the others.
jax_once = run_on([library for library in LIBRARIES if library != Library("jax", "float64")])
without_jax = run_on([library for library in LIBRARIES if library.name != "jax"])
