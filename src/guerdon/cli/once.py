"""A single round, paid without a past: what `guerdon pay` shows."""

from typing import Any

import numpy as np

from guerdon.arrays import check_positive_integer
from guerdon.requests import FixedRequest
from guerdon.rule import Payments, Rule
from guerdon.settling import with_scale
from guerdon.statistical.predictions import ZeroPrediction
from guerdon.statistical.servers import server_for


def pay_once(
    rule: Rule, request: int, gradients: Any, prediction: Any = None, scale: float | None = None
) -> tuple[Payments, list[str]]:
    """Return what a single round pays, and what was done with each report: without a past, around a prediction.

    `gradients` are (agents, …), in NumPy. The prediction is zero where none is given. `scale` is the variance σ² that
    earlier rounds would have given to output agreement; without it the round is a first one.
    """
    check_positive_integer("request", request)
    matrix = np.reshape(gradients, (len(gradients), -1))
    if prediction is not None and prediction.shape != matrix.shape[1:]:
        raise ValueError(f"`prediction` must have {matrix.shape[1]} numbers, as a gradient has, got {prediction.size}")
    model = np.zeros(matrix.shape[1])
    server = server_for(rule, FixedRequest(request, 0.0), ZeroPrediction())
    state = server.init(model, len(matrix))
    if scale is not None:
        state = state._replace(rule=with_scale(state.rule, scale))
    ask, state = server.ask(state, model)
    ask = ask if prediction is None else ask._replace(prediction=prediction)
    with np.errstate(over="ignore", invalid="ignore"):
        done, _ = server.settle(state, ask, matrix, np.ones(len(matrix), dtype=bool))
    return done.payments, done.notes
