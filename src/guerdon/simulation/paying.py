"""The server's half of a simulated round: compare the reports, and pay for them by every rule."""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp

from guerdon.arrays import Array
from guerdon.audit import copying
from guerdon.evidence import Evidence, gather, lengths, products, shortening
from guerdon.information import InformationPay, Surprise, surprise
from guerdon.mechanisms import GenieAided, KnownVariance, Mechanism
from guerdon.problems import Problem
from guerdon.simulation.terms import TrueVariance


class Settled(NamedTuple):
    """What a round came to."""

    evidence: Evidence  # around zero, of the reports as they were sent
    rewards: tuple[Array, ...]  # one for each rule
    states: tuple[Any, ...]
    aggregate: Array  # the mean gradient, without what the first rule does not trust
    reference: Array  # who is compared with, under the first rule
    surprise: Surprise  # what its evidence says of ‖m − p‖² and σ²
    products: Array  # of the reports with each other, around the prediction; unused where nobody looks at pairs


class Round(NamedTuple):
    """What the server has in hand."""

    pairs: Array  # wealth of the bets against pairs before the round
    reports: Array
    participating: Array
    request: Array
    prediction: Array
    problem: Problem  # for rules that know more than a server can
    model: Array  # that was broadcast


def settle(mechanisms: tuple[Mechanism, ...], states: tuple[Any, ...], played: Round) -> Settled:
    """Return the rewards and next states under every rule. The first rule's evidence is what training goes by."""
    plain = gather(played.reports, played.participating)
    inner = products(played.reports, played.participating, played.prediction)
    first: tuple[Array, Evidence, Array] = played.reports, plain, plain.counted
    rewards: list[Array] = []
    following: list[Any] = []
    for rule, state in zip(mechanisms, states, strict=True):
        evidence = plain
        if isinstance(rule, InformationPay):
            compared, evidence, reference = _compare(rule, state, played, inner)
            first = (compared, evidence, reference) if rule is mechanisms[0] else first
        elif isinstance(rule, GenieAided):
            truth = played.problem.population_gradient(played.model)
            evidence = gather(played.reports, played.participating, truth)
        told = _with_true_variance(rule, played)
        payments, after = told.pay(state, evidence, played.participating, played.request)
        rewards.append(payments.reward)
        following.append(after)
    compared, around, reference = first
    said = surprise(around, reference, played.request)
    return Settled(plain, tuple(rewards), tuple(following), _mean(compared, reference), reference, said, inner)


def _compare(rule: InformationPay, state: Any, played: Round, inner: Array) -> tuple[Array, Evidence, Array]:
    """Return the reports as information pay compares them, the evidence, and who is compared with.

    Copies are left out, and reports that are too long made shorter.
    """
    length, counted = lengths(played.reports, played.participating, played.prediction)
    copies = copying(inner, counted, played.pairs)
    factors = shortening(length, counted, rule.limit)
    reports = played.prediction + factors[:, None] * (played.reports - played.prediction)
    reference = rule.reference(state, counted & ~copies)
    evidence = gather(reports, played.participating & ~copies, played.prediction, reference)
    return reports, evidence, reference


def _with_true_variance(rule: Any, played: Round) -> Mechanism:
    if not isinstance(getattr(rule, "variance", None), TrueVariance):
        return rule
    return replace(rule, variance=KnownVariance(played.problem.variance(played.model)))


def _mean(reports: Array, counted: Array) -> Array:
    """Return the mean of the counted reports; zero where there are none."""
    total = jnp.sum(jnp.where(counted[:, None], reports, 0.0), axis=0)
    return total / jnp.maximum(jnp.sum(counted), 1)
