"""Paid federated learning on Flower: wrap a strategy in `Rewarded`, give the client app the mod `paid_work`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guerdon.flower.client import batch_size, decline, last_pay, paid_work
    from guerdon.flower.fedsgd import FedSGD
    from guerdon.flower.messages import Pay, Request
    from guerdon.flower.strategy import Rewarded

__all__ = ["FedSGD", "Pay", "Request", "Rewarded", "batch_size", "decline", "last_pay", "paid_work"]

_WHERE = {
    "FedSGD": "fedsgd",
    "Pay": "messages",
    "Request": "messages",
    "Rewarded": "strategy",
    "batch_size": "client",
    "decline": "client",
    "last_pay": "client",
    "paid_work": "client",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is asked for: a node needs neither a database nor a strategy."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
