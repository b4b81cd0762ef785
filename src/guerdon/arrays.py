"""Array libraries and input checks: what lets the core be written once for NumPy, JAX and PyTorch."""

import hashlib
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias

import array_api_compat as compat
import numpy as np

# No static type covers the arrays of all three libraries, nor the modules that hold their functions.
Array: TypeAlias = Any
Namespace: TypeAlias = Any

NUMPY: Namespace = compat.array_namespace(np.empty(0))
HOST_TYPES = "float16", "float32", "float64"  # real numbers of other libraries that NumPy has too

# A longer product of float64 is computed by two threads of OpenBLAS, which wait for each other where the cores are
# busy: 160 ms instead of 0.1 ms was seen.
MOST_OF_ONE_THREAD = 10_000


def namespace(*values: object) -> Namespace:
    """Return the array library that the given arrays belong to; NumPy where there is no array among them.

    >>> import numpy as np
    >>> namespace(3, np.ones(2)).__name__
    'array_api_compat.numpy'
    """
    arrays = [value for value in values if is_array(value)]
    if all(isinstance(value, (np.ndarray, np.generic)) for value in arrays):
        return NUMPY  # looked up so often that it shows
    return compat.array_namespace(*arrays)


def is_array(value: object) -> bool:
    """Return whether `value` is an array of one of the libraries; a list is not.

    >>> import numpy as np
    >>> is_array(np.zeros(2)), is_array([0.0, 0.0])
    (True, False)
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return True
    if value is None or isinstance(value, (list, tuple, dict, str, bytes, bool, int, float)):
        return False
    try:
        return bool(compat.is_array_api_obj(value))  # pyright: ignore[reportUnknownArgumentType]
    except AttributeError:  # another thread is importing a library just now: nothing can be an array of it yet
        return False


def is_numpy(value: object) -> bool:
    """Tell whether `value` is an array of NumPy."""
    return isinstance(value, np.ndarray)


def is_torch(value: object) -> bool:
    """Tell whether a value is a tensor of PyTorch."""
    return isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ()))  # it may be being imported just now


def are_jax(values: Any) -> bool:
    """Tell whether `values` is an array of JAX, or a list or tuple of such arrays."""
    return all(map(compat.is_jax_array, values if isinstance(values, (list, tuple)) else [values]))  # pyright: ignore[reportUnknownArgumentType]


def is_traced(*values: object) -> bool:
    """Tell whether any value is a JAX tracer: its shape can be checked, its contents cannot."""
    # Another thread may be importing JAX just now: nothing is traced before it is there.
    tracer = getattr(getattr(sys.modules.get("jax"), "core", None), "Tracer", None)
    return tracer is not None and any(isinstance(value, tracer) for value in values)


def to_numpy(array: Array) -> Any:
    """Return an array of any library as NumPy's, on the host; bfloat16, which NumPy lacks, becomes float32."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        array = array.float() if str(array.dtype) == "torch.bfloat16" else array
    plain = np.asarray(array)
    return plain.astype(np.float32) if plain.dtype.name == "bfloat16" else plain


def gradient_hash(layers: Iterable[Any]) -> bytes:
    """Return the SHA-256 of a gradient: each layer's type and shape, and its numbers row by row, little-endian."""
    total = hashlib.sha256()
    for layer in layers:
        array = to_numpy(layer)
        plain = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
        total.update(f"{plain.dtype.str}{list(array.shape)}\n".encode())
        total.update(plain.data if plain.size else b"")
    return total.digest()


def as_host_array(array: Any) -> Any:
    """Return the NumPy array that shares its memory with a PyTorch tensor or a JAX array; None where there is none."""
    tensor: Any = array  # the checks below would leave its type unknown where a library is not installed
    if is_torch(array):
        on_host = bool(tensor.device.type == "cpu")
    else:
        on_host = are_jax(array) and not is_traced(array) and all(d.platform == "cpu" for d in tensor.devices())
    return to_numpy(tensor) if on_host and str(tensor.dtype).removeprefix("torch.") in HOST_TYPES else None


def widest_float(xp: Namespace) -> Any:
    """Return float64 where the library has it; JAX has it only in its 64-bit mode."""
    return xp.asarray(1.0).dtype if compat.is_jax_namespace(xp) else xp.float64


def as_float(xp: Namespace, values: object) -> Array:
    """Return `values` as an array of real floating-point numbers, integers converted to the default type."""
    array = xp.asarray(values)
    return array if xp.isdtype(array.dtype, "real floating") else xp.astype(array, xp.asarray(1.0).dtype)


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays compiled by JAX, which must be loaded: its arrays are what it is called with."""
    return sys.modules["jax"].jit(function)


def row_dots(xp: Namespace, rows: Array, others: Array) -> Array:
    """Return the inner product of each row with the vector `others`, or with its own row of the matrix `others`."""
    if compat.is_numpy_namespace(xp):
        cuts = range(0, rows.shape[-1], MOST_OF_ONE_THREAD)
        return sum(xp.vecdot(*(part[..., cut : cut + MOST_OF_ONE_THREAD] for part in (rows, others))) for cut in cuts)
    # JAX may run a dot product at reduced precision on an accelerator, and PyTorch's adds up without care for rounding.
    return xp.sum(rows * others, axis=-1)


def as_mask(xp: Namespace, values: object, shape: tuple[int, ...], name: str = "participating") -> Array:
    """Return `values` as a boolean array, or raise.

    - `xp`: the array library.
    - `values`: booleans, one entry per agent.
    - `shape`: that it must have: (agents,) for one round.
    - `name`: of the argument, for the error.
    """
    array = xp.asarray(values)
    if not xp.isdtype(array.dtype, "bool"):
        raise TypeError(f"`{name}` must be an array of booleans, got dtype {array.dtype}")
    if tuple(array.shape) != tuple(shape):
        raise ValueError(f"`{name}` must have shape {tuple(shape)}, one entry per agent, got {tuple(array.shape)}")
    return array


def at_least_one(count: Array) -> Array:
    """Return a count to divide by, at least 1: where it was less the quotient is masked away, but must exist."""
    return namespace(count).where(count > 1, count, 1.0)


def over_layers(function: Callable[..., Any], *values: Any) -> Any:
    """Return a function of arrays, or of each layer where they are lists of layers."""
    if is_array(values[0]):
        return function(*values)
    return [function(*parts) for parts in zip(*values, strict=True)]


def either(condition: Array, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """Return what one of two functions gives; the other is not called. JAX may trace the condition."""
    if is_traced(condition):
        return sys.modules["jax"].lax.cond(condition, yes, no)
    return yes() if bool(condition) else no()


def zeros_like(value: Any) -> Any:
    """Return zeros in the form of an array, or of a list of layers."""
    return namespace(value).zeros_like(value) if is_array(value) else [zeros_like(part) for part in value]


def layers_dot(left: Any, right: Any) -> Array:
    """Return the inner product of two arrays, or of two lists of layers."""
    if is_array(left):
        return namespace(left, right).sum(left * right)
    return sum(layers_dot(a, b) for a, b in zip(left, right, strict=True))


def check_positive_integer(name: str, value: object) -> None:
    """Raise unless `value` is a whole number of at least 1 (of a traced value only the type can be checked).

    >>> check_positive_integer("request", -3)
    Traceback (most recent call last):
    ValueError: `request` must be a positive integer, got -3
    """
    complaint = f"`{name}` must be a positive integer, got {value!r}"
    if isinstance(value, bool) or not _is_integer(value):
        raise TypeError(complaint)
    if not is_traced(value) and int(value) < 1:  # pyright: ignore[reportArgumentType]
        raise ValueError(complaint)


def check_number(name: str, value: object, *, minimum: float, inclusive: bool = True) -> None:
    """Raise unless `value` is a finite real number of at least (or, if not inclusive, above) `minimum`."""
    if is_traced(value):
        return
    what = f"`{name}` must be a finite number {'of at least' if inclusive else 'above'} {minimum:g}, got {value!r}"
    try:
        number = float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError) as error:
        raise TypeError(what) from error
    except OverflowError as error:
        raise ValueError(what) from error
    if isinstance(value, (bool, str)):
        raise TypeError(what)
    if not math.isfinite(number) or number < minimum or (number == minimum and not inclusive):
        raise ValueError(what)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, choices))}, got {value!r}")


def _is_integer(value: object) -> bool:
    if isinstance(value, int):
        return True
    if not is_array(value):
        return False
    array: Array = value
    return array.ndim == 0 and namespace(array).isdtype(array.dtype, "integral")
