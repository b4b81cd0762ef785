"""Text from the command line: understood or refused, never executed."""

import contextlib
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.expressions import LONGEST, derivative, parse


@pytest.mark.parametrize(
    ("text", "value", "slope"),
    [
        ("1 + s", 5, 1),
        ("3", 3, 0),
        ("s - 1", 3, 1),
        ("7 - s", 3, -1),
        ("2 * s / 4", 2, 0.5),
        ("12 / s", 3, -0.75),
        ("s ** 3", 64, 48),
        ("2 ** s", 16, 16 * 0.6931471805599453),
        ("s ** s", 256, 256 * (1.3862943611198906 + 1)),
        ("-(s + +2) * -1e1", 60, 10),
        ("(2*s + 1) ** 3", 729, 486),
        ("(2*s) ** s", 4096, 4096 * (2.0794415416798357 + 1)),
        ("2 ** (3*s)", 4096, 4096 * 3 * 0.6931471805599453),
        ("  (s)\n", 4, 1),
    ],
)
def test_value_and_exact_slope(text: str, value: float, slope: float) -> None:
    function = parse(text)
    assert function(4.0) == pytest.approx(value, rel=1e-15)
    assert derivative(function, 4.0) == pytest.approx(slope, rel=1e-15)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "s.real",
        "t + 1",
        "s if s else 1",
        "lambda: 1",
        "[s]",
        "'a' * s",
        "True",
        "1j * s",
        "s // 2",
        "s % 2",
        "s < 2",
        "s and 1",
        "exec('1')",
        "s(1)",
        "~s",
        "1e999",
        "9" * 190 + "e199",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="may hold numbers, s,"):
        parse(text)


def test_a_power_written_as_a_hat_is_explained() -> None:
    with pytest.raises(ValueError, match=r"not `s \^ 2`; write \*\* for a power"):
        parse("s ^ 2")


@pytest.mark.parametrize("text", ["", "1 +", "((s)", "s s", "\0", "(" * 90 + "s" + ")" * 90])
def test_what_cannot_be_read_is_said_to_be_so(text: str) -> None:
    try:
        assert parse(text)(1.0) == 1.0  # ninety parentheses are odd, not wrong
    except ValueError as error:
        assert "cannot read the expression" in str(error)  # noqa: PT017


def test_length_is_limited() -> None:
    with pytest.raises(ValueError, match=f"at most {LONGEST} characters, got {LONGEST + 2}"):
        parse("s" + "+1" * (LONGEST // 2) + "1")


@given(st.text(max_size=60))
def test_no_text_raises_anything_but_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse(text)


LEAVES = st.sampled_from(["s", "1", "2.5", "0.1", "3"])
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(lambda a, op, b: f"({a} {op} {b})", inner, st.sampled_from("+-*"), inner)
        | st.builds(lambda a, n: f"({a}) ** {n}", inner, st.integers(1, 3))
    ),
    max_leaves=6,
)


@given(EXPRESSIONS, st.floats(0.5, 2.0))
def test_slope_agrees_with_a_complex_step(text: str, point: float) -> None:
    # The complex step has no cancellation: an independent derivative, exact to rounding.
    if len(text) <= LONGEST:
        function = parse(text)
        step = 1e-30
        expected = complex(function(complex(point, step))).imag / step
        assert float(derivative(function, point)) == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_many_threads_may_parse_at_once() -> None:
    # CPython 3.11 fails now and then where several threads build trees at once, most of all when garbage is collected.
    failed: list[str] = []

    class Garbage:
        def __del__(self) -> None:
            self.own = None

    def work() -> None:
        for _ in range(1500):
            garbage = Garbage()
            garbage.own = garbage  # pyright: ignore[reportAttributeAccessIssue]
            try:
                parse("1 + s*(2 + s*(3 + s*(4 + s*(5 + s))))**1.5")
            except SystemError as error:
                failed.append(str(error))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failed == []
