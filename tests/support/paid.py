"""A paid strategy from one list of keywords: what is the server's, what is the terms', and the rest."""

from dataclasses import fields
from typing import Any

from flwr.serverapp.strategy import FedAvg, Strategy

from guerdon import AffineCost, EstimatedVariance, FixedRequest, OutputAgreement
from guerdon.flower import Paid
from guerdon.statistical.servers import server_for
from guerdon.terms import Terms

RULE = OutputAgreement(AffineCost(1, 1), EstimatedVariance())  # rewards differ from the first round on
OF_SERVER = "prediction", "dither", "alike"
OF_TERMS = tuple(part.name for part in fields(Terms))


def paid_strategy(strategy: Strategy | None, **options: Any) -> Paid:
    """Return `Paid(strategy, server, terms, …)`, for `RULE` and eight samples unless the options say otherwise."""
    options = {"rule": RULE, "requests": FixedRequest(8, 0.1), "run": "run", "one_step": True} | options
    parts = {name: options.pop(name) for name in OF_SERVER if name in options}
    server = server_for(options.pop("rule"), options.pop("requests"), **parts)
    terms = Terms(**{name: options.pop(name) for name in OF_TERMS if name in options})
    return Paid(strategy or FedAvg(), server, terms, **options)
