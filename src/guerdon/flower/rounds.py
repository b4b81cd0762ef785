"""The rounds of a run, counted from the run's own beginning: Flower's loop begins with 1 whenever a run goes on."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

log = logging.getLogger("flwr.guerdon")

BETWEEN = 1.0  # seconds between looks at what has come, while a quorum is waited for


@dataclass
class Rounds:
    """The rounds of a run up to `last`, as Flower plays them. `ended` tells that nothing more is asked for.

    A round waits `timeout` seconds for its replies, or until as many as the `quorum` have come; None: for all.
    """

    grid: Grid
    last: int
    timeout: float
    quorum: int | None
    train_config: ConfigRecord | None
    evaluate_config: ConfigRecord | None
    evaluate: Callable[[int, ArrayRecord], MetricRecord | None]
    ended: Callable[[], bool]

    def play(self, strategy: Strategy, arrays: ArrayRecord, done: int) -> Result:
        """Play the rounds after `done`; return the last model, and the metrics of each round."""
        result = Result(arrays=arrays)
        _keep(result.evaluate_metrics_serverapp, done, self.evaluate(done, arrays))
        for number in range(done + 1, self.last + 1):
            log.info("")
            log.info("[ROUND %d/%d]", number, self.last)
            result.arrays = self._train(number, strategy, result)
            if self.ended():
                break
            self._evaluate(number, strategy, result)
        for line in ["", "Final results:", *str(result).splitlines()]:
            log.info("%s", line)
        return result

    def _train(self, number: int, strategy: Strategy, result: Result) -> ArrayRecord:
        """Return the model after a round; the one before it where there is no new one."""
        config = self.train_config or ConfigRecord()
        messages = strategy.configure_train(number, result.arrays, config, self.grid)
        replies = self._send(messages) if self.quorum is None else self._send_until(messages, self.quorum)
        arrays, metrics = strategy.aggregate_train(number, replies)
        _keep(result.train_metrics_clientapp, number, metrics)
        return result.arrays if arrays is None else arrays

    def _evaluate(self, number: int, strategy: Strategy, result: Result) -> None:
        config = self.evaluate_config or ConfigRecord()
        replies = self._send(strategy.configure_evaluate(number, result.arrays, config, self.grid))
        _keep(result.evaluate_metrics_clientapp, number, strategy.aggregate_evaluate(number, replies))
        _keep(result.evaluate_metrics_serverapp, number, self.evaluate(number, result.arrays))

    def _send(self, messages: Iterable[Message]) -> Iterable[Message]:
        return self.grid.send_and_receive(messages, timeout=self.timeout)

    def _send_until(self, messages: Iterable[Message], quorum: int) -> list[Message]:
        """Return the replies that have come once there are as many as the quorum, none is missing, or time is up."""
        waited = set(self.grid.push_messages(messages))
        replies, end = list[Message](), time.monotonic() + self.timeout
        while waited:
            found = list(self.grid.pull_messages(waited))
            replies += found
            waited -= {reply.metadata.reply_to_message_id for reply in found}
            if sum(not reply.has_error() for reply in replies) >= quorum or time.monotonic() >= end:
                break
            time.sleep(BETWEEN)
        return replies


def _keep(told: dict[int, MetricRecord], number: int, metrics: MetricRecord | None) -> None:
    if metrics is not None:
        log.info("\t└──> MetricRecord: %s", metrics)
        told[number] = metrics
