"""The server's half of a simulated round: compare the reports, and pay for them by every rule."""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp

from guerdon.arrays import Array
from guerdon.evidence import Evidence, gather, lengths, shortening
from guerdon.information import InformationPay
from guerdon.mechanisms import GenieAided, KnownVariance, Mechanism
from guerdon.simulation.terms import TrueVariance


class Settled(NamedTuple):
    """What a round came to."""

    evidence: Evidence  # around zero, of the reports as they were sent
    rewards: tuple[Array, ...]  # one for each rule
    states: tuple[Any, ...]
    aggregate: Array  # the mean gradient, without what the first rule does not trust
    around: Evidence  # of the reports that are compared, around the prediction
    reference: Array  # who is compared with


class Round(NamedTuple):
    """What the server has in hand."""

    reports: Array
    participating: Array
    request: Array
    prediction: Array
    variance: Array  # σ², for rules that know it
    truth: Array | None  # m, for the genie


def settle(mechanisms: tuple[Mechanism, ...], states: tuple[Any, ...], played: Round) -> Settled:
    """Return the rewards and next states under every rule. The first rule's evidence is what training goes by."""
    plain = gather(played.reports, played.participating)
    first: tuple[Array, Evidence, Array] = played.reports, plain, plain.counted
    rewards: list[Array] = []
    following: list[Any] = []
    for rule, state in zip(mechanisms, states, strict=True):
        evidence = plain
        if isinstance(rule, InformationPay):
            compared, evidence, reference = _compare(rule, state, played)
            first = (compared, evidence, reference) if rule is mechanisms[0] else first
        elif isinstance(rule, GenieAided):
            evidence = gather(played.reports, played.participating, played.truth)
        told = _with_true_variance(rule, played.variance)
        payments, after = told.pay(state, evidence, played.participating, played.request)
        rewards.append(payments.reward)
        following.append(after)
    compared, around, reference = first
    return Settled(plain, tuple(rewards), tuple(following), _mean(compared, reference), around, reference)


def has_genie(mechanisms: tuple[Mechanism, ...]) -> bool:
    """Tell whether a rule pays by the distance to the true gradient."""
    return any(isinstance(rule, GenieAided) for rule in mechanisms)


def _compare(rule: InformationPay, state: Any, played: Round) -> tuple[Array, Evidence, Array]:
    """Return the reports as information pay compares them, the evidence, and who is compared with."""
    length, counted = lengths(played.reports, played.participating, played.prediction)
    factors = shortening(length, counted, rule.limit)
    reports = played.prediction + factors[:, None] * (played.reports - played.prediction)
    reference = rule.reference(state, counted)
    evidence = gather(reports, played.participating, played.prediction, reference)
    return reports, evidence, reference


def _with_true_variance(rule: Any, variance: Array) -> Mechanism:
    known = isinstance(getattr(rule, "variance", None), TrueVariance)
    return replace(rule, variance=KnownVariance(variance)) if known else rule


def _mean(reports: Array, counted: Array) -> Array:
    """Return the mean of the counted reports; zero where there are none."""
    total = jnp.sum(jnp.where(counted[:, None], reports, 0.0), axis=0)
    return total / jnp.maximum(jnp.sum(counted), 1)
