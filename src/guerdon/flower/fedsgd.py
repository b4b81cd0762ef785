"""The paper's own protocol as a Flower strategy: gradients in, their mean, one step."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy

from guerdon.arrays import check_number
from guerdon.flower.payload import mean, read_arrays
from guerdon.flower.recovery import unwrap
from guerdon.run.reports import Arrays


class FedSGD(FedAvg):
    """Nodes send gradients (arrays named and shaped like the model's); the model moves by −step × their plain mean.

    Everybody was asked for the same number of samples, so no gradient weighs more than another. Wrapped in `Paid`,
    `requests` chooses the step of each round; on its own, `step` stays what it is. All other arguments are FedAvg's.
    Arrays of other than floating-point numbers stay as they are.

    """

    def __init__(self, step: float = 0.1, **options: Any) -> None:
        super().__init__(**options)
        check_number("step", step, minimum=0)
        self.step = step
        self.current_arrays: ArrayRecord | None = None
        self._along: Arrays | None = None

    def plan_step(self, model: ArrayRecord, step: float, along: Arrays | None) -> None:
        """Say how the next step is taken: how far, and from which model, wherever the gradients were taken.

        `along`, if given, takes the place of the replies' mean; arrays that it does not name stay.
        """
        self.current_arrays, self.step, self._along = model, step, along

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember the model that the gradients are taken at, and send it."""
        self.current_arrays = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the model after one step, and the mean of the nodes' metrics."""
        del server_round
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        if not valid or self.current_arrays is None:
            return None, None
        contents = [reply.content for reply in valid]
        gradients = [read_arrays(next(iter(content.array_records.values()))) for content in contents]
        along, self._along = self._along, None
        moved: dict[str, Array] = {}
        for name, old in read_arrays(self.current_arrays).items():
            stays = old.dtype.kind != "f" or (along is not None and name not in along)
            gradient = None if stays else mean(gradients, name) if along is None else along[name]
            new = old if gradient is None else (old - self.step * gradient).astype(old.dtype)
            moved[name] = Array(np.asarray(new))
        return ArrayRecord(moved), self.train_metrics_aggr_fn(contents, self.weighted_by_key)


def find_steps(strategy: Strategy) -> FedSGD | None:
    """Return the `FedSGD` inside a strategy, whose nodes send gradients; None: they send models."""
    if not isinstance(strategy, Strategy):  # pyright: ignore[reportUnnecessaryIsInstance]
        made = strategy if isinstance(strategy, type) else type(strategy)
        if issubclass(made, Strategy):
            raise TypeError(f"`strategy` must be an object, got the class {made.__name__}: give {made.__name__}()")
        raise TypeError(
            f"`strategy` must be one of flwr.serverapp.strategy, got {made.__module__}.{made.__qualname__}: import it "
            "from there, such as FedAvg, or take guerdon.flower.FedSGD"
        )
    return next((layer for layer in unwrap(strategy) if isinstance(layer, FedSGD)), None)
