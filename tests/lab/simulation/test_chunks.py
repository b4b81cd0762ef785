"""Running a chunk at a time: what is run, what an interrupt leaves, and what is refused."""

from typing import Any

import pytest

from guerdon.lab.simulation.chunks import run_in_chunks


def record(first: int, count: int) -> tuple[int, int]:
    return first, count


class Interrupted:
    """A run that the user interrupts in its chunk number `at`."""

    def __init__(self, at: int) -> None:
        self.at, self.calls = at, 0

    def __call__(self, first: int, count: int) -> tuple[int, int]:
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return first, count


@pytest.mark.parametrize(
    ("repetitions", "chunk", "expected"),
    [
        (6, 3, [(0, 3), (3, 3)]),
        (7, 3, [(0, 3), (3, 3), (6, 1)]),
        (3, 3, [(0, 3)]),
        (2, 100, [(0, 2)]),
        (3, 1, [(0, 1), (1, 1), (2, 1)]),
    ],
)
def test_every_repetition_runs_once_in_order(repetitions: int, chunk: int, expected: list[Any]) -> None:
    assert run_in_chunks(record, repetitions, chunk, progress=False) == (expected, False)


@pytest.mark.parametrize("progress", [False, True])
def test_an_interrupt_keeps_what_is_finished(progress: bool) -> None:
    run = Interrupted(at=2)
    assert run_in_chunks(run, 9, 3, progress) == ([(0, 3)], True)
    assert run.calls == 2


@pytest.mark.parametrize("progress", [False, True])
def test_an_interrupt_before_anything_is_finished_is_raised(progress: bool) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_in_chunks(Interrupted(at=1), 9, 3, progress)


def test_errors_are_not_swallowed() -> None:
    def fail(first: int, count: int) -> Any:
        if first == 0:
            return first, count
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_in_chunks(fail, 4, 2, progress=False)


@pytest.mark.parametrize("chunk", [0, -1, 2.5, True, "3", None])
def test_a_chunk_is_a_positive_integer(chunk: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=f"`chunk` must be a positive integer, got {chunk!r}"):
        run_in_chunks(record, 4, chunk, progress=False)


def test_a_progress_bar_goes_to_standard_error_and_changes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)  # so that it shows although nobody is watching
    assert run_in_chunks(record, 5, 2, progress=True) == run_in_chunks(record, 5, 2, progress=False)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "repetitions" in shown.err
    assert "5/5" in shown.err


def test_no_progress_bar_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    run_in_chunks(record, 5, 2, progress=False)
    assert capsys.readouterr() == ("", "")
