"""The rounds of a run, counted from the run's own beginning: Flower's loop begins with 1 whenever a run goes on."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

log = logging.getLogger("flwr.guerdon")


@dataclass
class Rounds:
    """The rounds of a run up to `last`, as Flower plays them. `ended` tells that nothing more is asked for."""

    grid: Grid
    last: int
    timeout: float
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
        replies = self._send(strategy.configure_train(number, result.arrays, config, self.grid))
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


def _keep(told: dict[int, MetricRecord], number: int, metrics: MetricRecord | None) -> None:
    if metrics is not None:
        log.info("\t└──> MetricRecord: %s", metrics)
        told[number] = metrics
