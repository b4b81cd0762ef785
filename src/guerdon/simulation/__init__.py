"""Thousands of repetitions of a training with strategic agents, in seconds. Needs the extra `sim` (JAX)."""

from guerdon.simulation.engine import Stop, TrueVariance, simulate
from guerdon.simulation.history import History

__all__ = ["History", "Stop", "TrueVariance", "simulate"]
