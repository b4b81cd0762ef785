"""Checks of what a server is given, before anything is computed with it; errors use the caller's names."""

import math
from typing import Any

from guerdon.arrays import Array, as_mask, is_array, is_torch, is_traced, namespace
from guerdon.costs import check_is_cost
from guerdon.reports import AgentRows
from guerdon.rule import Need, Rule

TOLD_BY_LENS = frozenset({Need.WITNESS, Need.PREDICTION})


def check_is_server(server: Any) -> None:
    """Raise where something else is given in the place of a server, such as a rule or its name."""
    if not isinstance(server, type) and hasattr(server, "settle"):
        return
    instead = "give Server(rule, requests)" if hasattr(server, "pay") else "`guerdon.statistical` makes others too"
    raise TypeError(
        "`server` must be a Server, such as Server(FlatPay(cost), FixedRequest(16, step=0.1)), got "
        f"{server!r:.80}: {instead}"
    )


def check_parts(rule: Any, requests: Any, lens: Any, broadcast: Any, sends: str) -> None:
    """Raise where the parts of a server are not what they should be, or do not fit each other."""
    for name, part, method, what in (
        ("rule", rule, "pay", "a payment rule, such as OutputAgreement(AffineCost(1, 1))"),
        ("requests", requests, "observe", "a policy, such as FixedRequest(16, step=0.1)"),
        ("lens", lens, "read", "a lens, such as Plain(); `statistical.server_for` takes a prediction and a dither"),
    ):
        if isinstance(part, type) or not hasattr(part, method):
            raise TypeError(f"`{name}` must be {what}, got {part!r}")
    check_is_cost(rule.cost)
    _check_needs(rule, lens)
    if isinstance(broadcast, type) or not hasattr(broadcast, "place"):
        raise TypeError(
            f"`dither` must be a Dither, such as Dither(3.0), got {broadcast!r}"
            + (f": give Dither({broadcast!r})" if isinstance(broadcast, (int, float)) else "")
        )
    if sends == "models" and requests.learns:
        raise ValueError(
            "`requests` that learn need gradients, and choose the step: let agents send gradients (on Flower: wrap "
            "`FedSGD`), or ask for a fixed or scheduled number of samples"
        )
    if sends == "models" and Need.WITNESS in rule.needs:
        raise ValueError(
            f"`rule` must not be {type(rule).__name__} where agents send models: the witness has gradients "
            "(on Flower: wrap `FedSGD`)"
        )
    if broadcast.learns and requests.learns:
        raise ValueError(
            "`requests` must be fixed or scheduled under a dither, which steps once in two rounds: those that learn "
            "expect a step in every round"
        )


def _check_needs(rule: Rule, lens: Any) -> None:
    """Raise where a lens does not tell what a rule needs."""
    missing = sorted((rule.needs & TOLD_BY_LENS) - lens.gives)
    if missing:
        raise ValueError(
            f"`lens` must tell {type(rule).__name__} {' and '.join(missing)}, got {type(lens).__name__}, which does "
            "not: `guerdon.statistical.server_for` makes a server with the lens that goes with a rule"
        )


def check_model(model: Any) -> None:
    """Raise unless a model is an array of real floating-point numbers, or a list of such layers."""
    layers: list[Any] = list(model) if isinstance(model, (list, tuple)) else [model]  # pyright: ignore[reportUnknownArgumentType]
    if not layers or not all(is_array(layer) for layer in layers):
        raise TypeError(f"`model` must be an array, or a list of arrays (its layers), got {_kind(model)}")
    for layer in layers:
        if not namespace(layer).isdtype(layer.dtype, "real floating"):
            raise TypeError(f"`model` must hold real floating-point numbers, got dtype {layer.dtype}")
        if getattr(layer, "requires_grad", False):  # it is the network's own, which training changes in place
            raise ValueError(
                "`model` must be a copy without gradients, got a tensor that requires one: give "
                "[part.detach().clone() for part in network.parameters()]"
            )


def check_same_model(state: Any, model: Any) -> None:
    """Raise unless a model has the size, layer by layer, of the one that `init` was given, where the state shows it."""
    sizes = [math.prod(layer.shape) for layer in ([model] if is_array(model) else model)]
    lens = state.lens
    parts = (
        (state.broadcast, "offset", 0),
        (getattr(lens, "prediction", None), "total", 0),
        (getattr(lens, "records", None), "total", 1),
    )
    for part, name, rows in parts:
        kept: Any = getattr(part, name, None)
        if kept is None:
            continue
        first = [math.prod(layer.shape[rows:]) for layer in ([kept] if is_array(kept) else kept)]
        if first != sizes:
            raise ValueError(
                f"`model` must have the size of the model that `init` was given, {_sizes(first)}, got {_sizes(sizes)}: "
                "begin anew with `init` for another model"
            )


def _sizes(layers: list[int]) -> str:
    return f"{layers[0]} numbers" if len(layers) == 1 else f"{len(layers)} layers of {layers} numbers"


def check_reports(model: Any, reports: Any, sent: Array, enrolled: Array) -> None:
    """Raise unless reports are of the model's form and size, one for each agent; rows that are built later are not."""
    if not is_array(sent) or sent.ndim != 1:
        raise TypeError(f"`sent` must be an array of booleans, one entry per agent, got {_kind(sent)}")
    as_mask(namespace(sent), sent, sent.shape, "sent")
    if not is_traced(enrolled) and sent.shape[0] > int(enrolled):
        raise ValueError(f"`sent` must have one entry for each of the {int(enrolled)} agents, got {sent.shape[0]}")
    if is_array(model) != is_array(reports) and not isinstance(reports, AgentRows):
        form = (
            "an array (agents, dim), as the model is an array"
            if is_array(model)
            else "a list of layers, as the model is"
        )
        raise TypeError(f"`reports` must be {form}, got {_kind(reports)}")
    layers: Any = [model] if is_array(model) else model
    given: Any = [reports] if is_array(reports) else reports
    if isinstance(given, AgentRows) and not len(given.seats):
        return
    if len(given) != len(layers):
        raise ValueError(
            f"`reports` must have one entry for each of the model's {len(layers)} layers, each with a row for every "
            f"agent, got {len(given)} entries"
        )
    for index, layer in enumerate(layers if isinstance(given, (list, AgentRows)) else ()):
        _check_layer(index, layer, given[index], len(given.seats) if isinstance(given, AgentRows) else sent.shape[0])


def _check_layer(index: int, layer: Array, given: Any, agents: int) -> None:
    if not hasattr(given, "shape"):
        raise TypeError(f"`reports` must be arrays, one row per agent, got {_kind(given)} for layer {index}")
    if is_array(given) and is_torch(given) != is_torch(layer):
        raise TypeError(
            f"`reports` must be of the model's library ({_library(layer)}), got {_library(given)}: convert one of them"
        )
    if is_array(given) and not namespace(given).isdtype(given.dtype, "real floating"):
        raise TypeError(f"`reports` must hold real floating-point numbers, got dtype {given.dtype}")
    if getattr(given, "requires_grad", False):
        raise ValueError("`reports` must not require gradients: stack what agents send with .detach()")
    size = math.prod(layer.shape)
    if tuple(given.shape[:1]) != (agents,) or math.prod(given.shape[1:]) != size:
        raise ValueError(
            f"`reports` must have one row for each of the {agents} agents, with the {size} numbers of the model"
            f"{'' if index == 0 else f' in layer {index}'}, got shape {tuple(given.shape)}"
        )


def _library(array: Array) -> str:
    return type(array).__module__.partition(".")[0]


def _kind(value: Any) -> str:
    return f"{type(value).__name__} of dtype {value.dtype}" if is_array(value) else type(value).__name__
