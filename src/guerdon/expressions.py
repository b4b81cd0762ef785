"""Arithmetic expressions in one variable: parsed safely, with an exact slope.

An expression is text such as ``"1 + s + 0.01 * s ** 2"``: numbers, the variable, ``+ - * / **`` and parentheses.
It is parsed into a syntax tree and evaluated node by node; nothing is ever executed. The slope comes from the same
evaluation on dual numbers (value, derivative), so it is exact and not a finite difference.
"""

import ast
import math
import operator
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from guerdon.arrays import Array, namespace

VARIABLE = "s"
LARGEST = sys.float_info.max
LONGEST = 200  # characters: far more than a cost needs, far less than the limit of the parser's recursion

# CPython 3.11 counts the depth of all trees being built in one place: threads that parse at once break it (gh-106905).
_ONE_AT_A_TIME = threading.Lock()

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


@dataclass(frozen=True)
class Dual:
    """A value together with its derivative: arithmetic on it follows the rules of differentiation."""

    value: Array
    slope: Array
    __array_ufunc__ = None  # a NumPy array on the left leaves the arithmetic to us

    def __add__(self, other: Any) -> "Dual":
        u, v = self, _dual(other)
        return Dual(u.value + v.value, u.slope + v.slope)

    def __mul__(self, other: Any) -> "Dual":
        u, v = self, _dual(other)
        return Dual(u.value * v.value, u.slope * v.value + u.value * v.slope)

    def __sub__(self, other: Any) -> "Dual":
        return self + -_dual(other)

    def __truediv__(self, other: Any) -> "Dual":
        u, v = self, _dual(other)
        return Dual(u.value / v.value, (u.slope * v.value - u.value * v.slope) / (v.value * v.value))

    def __pow__(self, other: Any) -> "Dual":
        if not isinstance(other, Dual):
            return Dual(self.value**other, other * self.value ** (other - 1) * self.slope)
        power = self.value**other.value
        return Dual(power, power * (other.slope * _log(self.value) + other.value * self.slope / self.value))

    def __neg__(self) -> "Dual":
        return Dual(-self.value, -self.slope)

    def __pos__(self) -> "Dual":
        return self

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> "Dual":
        return -self + other

    def __rtruediv__(self, other: Any) -> "Dual":
        return _dual(other) / self

    def __rpow__(self, other: Any) -> "Dual":
        power = other**self.value
        return Dual(power, power * _log(other) * self.slope)


def derivative(function: Callable[[Any], Any], point: Array) -> Array:
    """Return the exact slope at `point` of a `function` made only of arithmetic operators.

    >>> derivative(lambda s: 1 + s + s**2, 3.0)
    7.0
    """
    result = function(Dual(point, 1.0))
    if not isinstance(result, (Dual, int, float)):
        raise TypeError(f"`function` must be made of arithmetic operators, got a {type(result).__name__} from it")
    return result.slope + 0 * point if isinstance(result, Dual) else 0 * point


def parse(text: str) -> Callable[[Any], Any]:
    """Return the function of `s` that `text` describes, or raise a ValueError that names the part it cannot read.

    >>> parse("1 + s/2")(8)
    5.0
    >>> parse("__import__('os')")
    Traceback (most recent call last):
    ValueError: an expression may hold numbers, s, + - * / ** and parentheses only, not `__import__('os')`
    """
    if len(text) > LONGEST:
        raise ValueError(f"an expression must have at most {LONGEST} characters, got {len(text)}")
    try:
        with _ONE_AT_A_TIME:
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"cannot read the expression {text!r}: {getattr(error, 'msg', error)}") from None
    _check(tree)
    return lambda s: _evaluate(tree, s)


def _check(node: ast.AST) -> None:
    """Raise on the first part of the tree that is not plain arithmetic."""
    match node:
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            _check(left)
            _check(right)
        case ast.UnaryOp(op, operand) if type(op) in _OPERATORS:
            _check(operand)
        case ast.Constant(int() | float() as number) if not isinstance(number, bool) and abs(number) <= LARGEST:
            pass
        case ast.Name(name) if name == VARIABLE:
            pass
        case _:
            hint = "; write ** for a power" if isinstance(getattr(node, "op", None), ast.BitXor) else ""
            raise ValueError(
                f"an expression may hold numbers, s, + - * / ** and parentheses only, not `{ast.unparse(node)}`{hint}"
            )


def _evaluate(node: ast.AST, s: Any) -> Any:
    """Return the value of a checked tree. Constants are floats: powers of integers cannot grow without limit."""
    match node:
        case ast.BinOp(left, op, right):
            return _OPERATORS[type(op)](_evaluate(left, s), _evaluate(right, s))
        case ast.UnaryOp(op, operand):
            return _OPERATORS[type(op)](_evaluate(operand, s))
        case ast.Constant(value):
            return float(value)  # pyright: ignore[reportArgumentType]
        case _:
            return s


def _dual(value: Any) -> Dual:
    return value if isinstance(value, Dual) else Dual(value, 0.0)


def _log(value: Array) -> Array:
    return math.log(value) if isinstance(value, (int, float)) else namespace(value).log(value)
