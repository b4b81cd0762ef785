"""The one driver of paid rounds: reports checked, the server asked, every round booked in a ledger.

Flower's strategy, NVIDIA FLARE's aggregator and `guerdon serve` hold only what is their framework's: each turns its own
messages into reports by name. `open_run` is for a loop of your own. Needs the extra `ledger`.
"""

from typing import TYPE_CHECKING

from guerdon._lazy import loader

if TYPE_CHECKING:
    from guerdon.run.driver import open_run
    from guerdon.run.messages import Request
    from guerdon.run.reports import Report
    from guerdon.run.rounds import PaidRound

__all__ = ["PaidRound", "Report", "Request", "open_run"]

_WHERE = {
    "PaidRound": "rounds",
    "Report": "reports",
    "Request": "messages",
    "open_run": "driver",
}

__getattr__ = loader(__name__, _WHERE, "ledger")
