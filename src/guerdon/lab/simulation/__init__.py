"""Thousands of repetitions of a training with strategic agents, in seconds. Needs the extra `sim` (JAX)."""

from importlib.metadata import version
from importlib.util import find_spec

from guerdon._lazy import missing

if find_spec("jax") is None:
    raise missing("guerdon.lab.simulation", "jax", "sim")
if version("jaxlib") == "0.10.2":
    raise ImportError(
        "`jaxlib` must not be version 0.10.2, which gets some sums wrong on a CPU without saying so "
        "(jax-ml/jax#39103); install another one with: pip install 'jax!=0.10.2' 'jaxlib!=0.10.2'"
    )

from guerdon.lab.simulation.engine import simulate
from guerdon.lab.simulation.facts import Stop
from guerdon.lab.simulation.history import History
from guerdon.lab.simulation.pilot import run_pilot
from guerdon.lab.simulation.summary import Summary
from guerdon.lab.truth import TrueVariance

__all__ = ["History", "Stop", "Summary", "TrueVariance", "run_pilot", "simulate"]
