"""Paid rounds for any framework: reports checked, the one server asked, every round booked in a ledger.

Flower's strategy, NVIDIA FLARE's aggregator and `guerdon serve` are thin: each turns its own messages into a model and
reports by name, and these decide nothing about pay. `PaidRun` is for a framework of your own. Needs the extra `ledger`.
"""

from typing import TYPE_CHECKING

from guerdon._lazy import loader

if TYPE_CHECKING:
    from guerdon.paying.book import PaidRound
    from guerdon.paying.messages import Request
    from guerdon.paying.reports import Report, hash_of
    from guerdon.paying.run import PaidRun

__all__ = ["PaidRound", "PaidRun", "Report", "Request", "hash_of"]

_WHERE = {"PaidRound": "book", "PaidRun": "run", "Report": "reports", "Request": "messages", "hash_of": "reports"}

__getattr__ = loader(__name__, _WHERE, "ledger")
