"""Paid federated learning on Flower: wrap a strategy in `Rewarded`, give the client app the mod `paid_work`."""

from guerdon.flower.client import batch_size, decline, last_pay, paid_work
from guerdon.flower.fedsgd import FedSGD
from guerdon.flower.messages import Pay, Request
from guerdon.flower.strategy import Rewarded

__all__ = ["FedSGD", "Pay", "Request", "Rewarded", "batch_size", "decline", "last_pay", "paid_work"]
