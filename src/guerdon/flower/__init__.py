"""Paid federated learning on Flower: wrap a strategy in `Paid`, give the client app the mod `paid_work`."""

from typing import TYPE_CHECKING

from guerdon._lazy import loader

if TYPE_CHECKING:
    from guerdon.flower.client import decline, last_pay, named_work, paid_work, samples_to_use
    from guerdon.flower.fedsgd import FedSGD
    from guerdon.flower.pilot import Pilot
    from guerdon.flower.pytorch import torch_work
    from guerdon.flower.strategy import Paid
    from guerdon.run.messages import Pay, Request

__all__ = [
    "FedSGD",
    "Paid",
    "Pay",
    "Pilot",
    "Request",
    "decline",
    "last_pay",
    "named_work",
    "paid_work",
    "samples_to_use",
    "torch_work",
]

_WHERE = {
    "FedSGD": "fedsgd",
    "Paid": "strategy",
    "Pay": "guerdon.run.messages",
    "Pilot": "pilot",
    "Request": "guerdon.run.messages",
    "samples_to_use": "client",
    "decline": "client",
    "last_pay": "client",
    "named_work": "client",
    "paid_work": "client",
    "torch_work": "pytorch",
}

__getattr__ = loader(__name__, _WHERE)
