"""A round's reports, read a block of columns at a time: a model of any size streams through once.

Reports are an array (agents, dim), a sequence of layers, each (agents, …), or `AgentRows`, which leaves every agent's
arrays where they are. A sequence is read from front to back, so it may build each layer when it is asked for.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from guerdon.arrays import MOST_OF_ONE_THREAD, Array, as_mask, is_array, is_traced, namespace, widest_float

LARGEST = 1e15  # beyond this a square comes near the largest float32: such a component counts as infinite
BLOCK = 2**20  # numbers per block of columns: small enough for the cache, large enough to hide Python's overhead
NARROWEST = 512  # columns per block at least, so that a block's rows are still contiguous runs worth reading
WIDEST = 6 * MOST_OF_ONE_THREAD  # and at most, so that a sum over a row in float32 keeps its precision

Layers: TypeAlias = Array | Sequence[Array]


class StackedRows:
    """One layer of several agents, each in an array of its own; stacked a block of columns at a time."""

    def __init__(self, rows: Sequence[np.ndarray]) -> None:
        self.one = rows[0].shape  # the shape of one agent's layer
        self._rows = [row.reshape(-1) for row in rows]
        self.shape = (len(rows), self._rows[0].size)

    def __getitem__(self, index: tuple[slice, slice]) -> np.ndarray:
        return np.stack([row[index[1]] for row in self._rows])


class AgentRows(Sequence[StackedRows]):
    """The reports of a round, agent by agent, each a list of NumPy arrays; None where nothing can be used.

    As a sequence it has a layer for each array, with a row for each agent in `seats`: those who have a report.
    """

    def __init__(self, rows: Sequence[Sequence[np.ndarray] | None]) -> None:
        self.agents = len(rows)
        self.seats = np.flatnonzero([row is not None for row in rows])
        self._rows: list[Sequence[np.ndarray]] = [row for row in rows if row is not None]

    def __len__(self) -> int:
        return len(self._rows[0]) if self._rows else 0

    def __getitem__(self, index: Any) -> Any:
        layers: list[Any] = [row[index] for row in self._rows]
        return StackedRows(layers)

    def row(self, agent: int) -> Sequence[np.ndarray]:
        """Return the report of an agent that has one."""
        return self._rows[int(np.searchsorted(self.seats, agent))]

    def of_seats(self, values: Any) -> Any:
        """Return the rows of those who have a report, of an array or of each layer; None stays None."""
        if values is None or is_array(values):
            return None if values is None else values[self.seats]
        return [layer[self.seats] for layer in values]

    def seated(self, values: np.ndarray) -> np.ndarray:
        """Return the values of the reports as values of all agents: zero for those without."""
        spread = np.zeros((self.agents, *values.shape[1:]), dtype=values.dtype)
        spread[self.seats] = values
        return spread


class Block(NamedTuple):
    """Some columns of a layer, the prediction of them, and who took part."""

    columns: Array
    guess: Array
    participating: Array
    reference: Array | None  # None: everybody
    offsets: Array | None  # what to take off each row before it is compared; None: nothing


def as_matrices(reports: Layers) -> Layers:
    """Return reports as matrices (agents, numbers), one for each layer where there are several; zeros of the absent."""
    if isinstance(reports, AgentRows):
        return [reports.seated(layer[:, :]) for layer in reports]
    if is_array(reports):
        return _as_matrix(reports, "reports")
    return [as_matrices(layer) for layer in reports]


def combine(reports: Layers, weights: Array) -> Layers:
    """Return Σ_k w_k·X_k in the form of one report: an array, or a list of layers.

    - `reports`: X, (agents, …), a list of layers, or `AgentRows`.
    - `weights`: w, (agents,). Reports of weight 0 are not looked at.

    >>> combine(np.array([[1.0, 2.0], [3.0, 4.0], [np.nan, 0.0]]), np.array([0.5, 0.25, 0.0]))
    array([1.25, 2.  ])
    """
    if isinstance(reports, AgentRows):
        weights = weights[reports.seats]
    if is_array(reports):
        return _combined(reports, weights)
    return [_combined(reports[index], weights) for index in range(len(reports))]


def _combined(layer: Array, weights: Array) -> Array:
    xp, shape = namespace(weights), _shape_of_one(layer)
    matrix = _as_matrix(layer, "reports")
    if is_traced(layer, weights):
        return xp.reshape(xp.sum(xp.where(weights[:, None] != 0, weights[:, None] * matrix, 0.0), axis=0), shape)
    used = weights != 0
    parts = [weights[used] @ xp.astype(matrix[:, cut][used], weights.dtype) for cut in column_blocks(matrix)]
    return xp.reshape(xp.concat(parts), shape)


def read_blocks(
    reports: Layers,
    participating: Array,
    prediction: Layers | None,
    reference: Array | None = None,
    offsets: Layers | None = None,
) -> Iterator[Block]:
    """Yield the reports block by block, layer by layer, each layer checked when its turn comes.

    The arguments are those of `guerdon.evidence.gather`.
    """
    layers = [reports] if is_array(reports) else reports
    guesses = [prediction] if is_array(prediction) else prediction
    apart: Any = [offsets] if is_array(offsets) else offsets
    if not len(layers):
        raise ValueError("`gradients` must hold at least one layer, got an empty sequence")
    if guesses is not None and len(guesses) != len(layers):
        raise ValueError(f"`prediction` must have one array per layer ({len(layers)}), got {len(guesses)}")
    for index in range(len(layers)):
        name = "gradients" if layers is not reports else f"gradients[{index}]"
        layer = _as_matrix(layers[index], name)
        guess = _as_guess(None if guesses is None else guesses[index], layer, name)
        mask = as_mask(namespace(layer), participating, layer.shape[:1])
        compared = None if reference is None else as_mask(namespace(layer), reference, layer.shape[:1], "reference")
        for cut in column_blocks(layer):
            off = None if apart is None else apart[index][:, cut]
            yield Block(layer[:, cut], guess[cut], mask, compared, off)


def squared_lengths_around(reports: Layers, participating: Array, prediction: Layers | None) -> Array:
    """Return ‖X_k − p‖² (agents,), each computed by itself: one enormous report does not spoil the others' digits.

    NaN and infinity in a report give NaN and infinity. The result for absent agents means nothing.

    - `reports`: X, (agents, …), a list of layers, or `AgentRows`.
    - `participating`: booleans (agents,).
    - `prediction`: p, in the form of one report. None: zeros.
    """
    if isinstance(reports, AgentRows):
        if not len(reports.seats):
            return np.zeros(reports.agents)
        return reports.seated(squared_lengths_around(list(reports), reports.of_seats(participating), prediction))
    total: Any = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for block in read_blocks(reports, participating, prediction):
            xp = namespace(block.columns)
            apart = xp.astype(block.columns, widest_float(xp)) - block.guess
            total = total + xp.sum(apart * apart, axis=1)
    return total


def find_usable(blocks: Iterator[Block]) -> Array:
    """Tell, per agent, whether all components lie within `LARGEST` of the prediction; NaN does not."""
    usable: Any = True
    for block in blocks:
        xp = namespace(block.columns)
        usable = xp.all(xp.abs(block.columns - block.guess) <= LARGEST, axis=1) & usable
    return usable


def holds_tracer(*values: Any) -> bool:
    """Tell whether a value, or an element of a list or tuple among them, is traced by JAX."""
    return any(is_traced(value) or (isinstance(value, (list, tuple)) and holds_tracer(*value)) for value in values)  # pyright: ignore[reportUnknownArgumentType]


def column_blocks(layer: Array) -> Iterator[slice]:
    """Yield the blocks of columns; a traced layer is one: the compiler needs no help from the cache."""
    agents, columns = layer.shape
    if is_traced(layer):
        return iter([slice(0, columns)])
    width = min(max(BLOCK // agents, NARROWEST), WIDEST)
    if width > MOST_OF_ONE_THREAD:
        width -= width % MOST_OF_ONE_THREAD  # or inner products would be cut into a long part and a short one
    return (slice(start, start + width) for start in range(0, columns, width))


def _shape_of_one(layer: Any) -> tuple[int, ...]:
    return layer.one if isinstance(layer, StackedRows) else layer.shape[1:]


def _as_matrix(layer: Array, name: str) -> Array:
    """Return a layer as (agents, columns), or raise."""
    if isinstance(layer, StackedRows):
        return layer
    if not is_array(layer):
        raise TypeError(f"`{name}` must be an array of NumPy, JAX or PyTorch, got {type(layer).__name__}")
    xp = namespace(layer)
    if not xp.isdtype(layer.dtype, "real floating"):
        raise TypeError(f"`{name}` must hold real floating-point numbers, got dtype {layer.dtype}")
    if layer.ndim < 2 or 0 in layer.shape:
        raise ValueError(
            f"`{name}` must have shape (agents, dim), neither of them 0, got {tuple(layer.shape)}; "
            "stack one vector per agent along the first axis"
        )
    return xp.reshape(layer, (layer.shape[0], -1))


def _as_guess(guess: Array | None, layer: Array, name: str) -> Array:
    """Return the prediction of a layer's columns: zero where there is none."""
    xp, columns = namespace(layer), layer.shape[1]
    flat = xp.reshape(xp.asarray(0.0 if guess is None else guess, dtype=widest_float(xp)), (-1,))
    if guess is not None and flat.shape != (columns,):
        raise ValueError(
            f"`prediction` must have the shape of one agent's `{name}` ({columns} numbers), got {flat.shape[0]}"
        )
    if guess is not None and not is_traced(flat) and not bool(xp.all(xp.isfinite(flat))):
        raise ValueError(f"`prediction` of `{name}` must hold finite numbers only, got NaN or infinity")
    return xp.broadcast_to(flat, (columns,))
