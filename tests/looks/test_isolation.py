"""Whatever the function does, the auditor lives, no row leaves, and the reason is said."""

import os
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon.looks._child import BLOCKED, NAMESPACE
from guerdon.looks.isolation import Limits, Ran, code_hash, run_isolated

MODEL = {"w": np.array([1.0, 2.0])}
ROWS = {"x": np.array([[3.0, 4.0], [50.0, 60.0]])}
SHORT = Limits(wall=60, cpu=60, memory=2**31)


def run(name: str, **changed: Any) -> Ran:
    given: dict[str, Any] = {"rows": ROWS, "model": MODEL, "seeds": [0], "limits": SHORT} | changed
    return run_isolated(f"tests.looks.misbehaving:{name}", **given)


def permitted() -> bool:
    return run("honest").network == NAMESPACE


def test_a_report_for_each_seed_and_what_it_prints_is_not_seen(capfd: pytest.CaptureFixture[str]) -> None:
    ran = run("honest", seeds=[0, 2**200], options={"scale": 2.0})
    assert ran.ending == "done"
    assert ran.reason == ""
    assert ran.network in (NAMESPACE, BLOCKED)
    first, second = ran.reports
    np.testing.assert_array_equal(first["w"], [107, 130])
    np.testing.assert_allclose(second["w"], 2.0**200)
    assert first["n"] == 2
    assert first["w"].dtype == np.float64
    assert capfd.readouterr() == ("", "")


def test_rows_may_be_text_and_no_secret_of_the_environment_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "password")
    (report,) = run("says_what_it_sees", rows={"label": np.array(["healthy", "ill"])}).reports
    assert report["label"].tolist() == [7, 3]
    assert report["seen"][[0, 1, 3]].tolist() == [1, 1, 0]
    assert report["seen"][2] > 0, "the home is a folder of its own"


def test_the_order_of_sets_is_the_same_every_time() -> None:
    orders = {tuple(run("draws_a_set").reports[0]["w"]) for _ in range(3)}
    assert len(orders) == 1


# The network.


@pytest.mark.parametrize("network", [NAMESPACE, BLOCKED])
def test_there_is_no_network(network: Any) -> None:
    if network == NAMESPACE and not permitted():
        pytest.skip("this system permits no network namespace")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        ran = run("opens_a_socket", model={"port": np.array([server.getsockname()[1]])}, network=network)
        assert ran.ending == "crashed"
        assert ran.network == network
        assert ran.reason.startswith(
            "PermissionError in" if network == BLOCKED else ("OSError in", "ConnectionRefused")
        )
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_namespace_has_no_device() -> None:
    if not permitted():
        pytest.skip("this system permits no network namespace")
    assert run("has_a_network", network=NAMESPACE).reports[0]["w"].sum() == 0


# Endings.


@pytest.mark.parametrize(
    ("name", "limits", "ending", "reason"),
    [
        ("loops", Limits(wall=60, cpu=1), "too much CPU time", "it used more than 1 seconds of the processor"),
        ("eats_memory", SHORT, "too much memory", "it wanted more than 2,147,483,648 bytes"),
        ("fills_the_disk", Limits(disk=10**6), "bad result", "its report takes more than 1,000,000 bytes of disk"),
        ("crashes", SHORT, "crashed", "ValueError in misbehaving.py, line {crashes}"),
        ("dies", SHORT, "crashed", "it ended by signal 11 and left no result"),
        ("leaves", SHORT, "crashed", "SystemExit in misbehaving.py, line {leaves}"),
        ("is_not_a_number", SHORT, "not finite", "its report holds a number that is not finite"),
        ("no_report", SHORT, "bad result", "tests.looks.misbehaving:no_report must return arrays of numbers by name"),
        ("objects", SHORT, "bad result", "tests.looks.misbehaving:objects must return arrays of numbers by name"),
        ("nobody", SHORT, "crashed", "AttributeError: module 'tests.looks.misbehaving' has no attribute 'nobody'"),
    ],
)
def test_every_ending_has_a_reason(name: str, limits: Limits, ending: str, reason: str) -> None:
    source = Path(__file__).with_name("misbehaving.py").read_text().splitlines()
    lines = {name: next(place for place, line in enumerate(source, 1) if what in line) for name, what in RAISES.items()}
    ran = run(name, limits=limits)
    assert (ran.ending, ran.reason) == (ending, reason.format(**lines))
    assert len(ran.code) == 64


RAISES = {"crashes": "cannot learn from", "leaves": "raise SystemExit"}


def test_no_row_is_in_a_reason() -> None:
    assert "50" not in run("crashes").reason.replace("line 50", "")
    assert "[3. 4.]" not in run("crashes").reason


def test_a_run_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "note"
    ran = run("waits", model={"note": np.array([str(note)])}, limits=Limits(wall=3))
    assert (ran.ending, ran.reason) == ("too long", "it took more than 3 seconds")
    status = Path(f"/proc/{note.read_text()}/status")
    for _ in range(300):  # it was killed; a loaded machine takes a while to see to it
        if is_gone(status):
            return
        time.sleep(0.1)
    pytest.fail(f"what it started still runs: {status.read_text()}")


def is_gone(status: Path) -> bool:
    try:
        return "zombie" in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_report_of_another_shape_is_given_for_the_comparison_to_tell() -> None:
    ran = run("of_another_shape")
    assert ran.ending == "done"
    assert ran.reports[0]["w"].shape == (1,)


def test_a_report_that_would_fill_the_memory_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from guerdon.looks import isolation

    ran = run("honest")
    monkeypatch.setattr(isolation, "_run", forged(large=True))
    assert run("honest", limits=Limits(memory=2**20))[:3] == ("bad result", (), "its report cannot be read: ValueError")
    monkeypatch.setattr(isolation, "_run", forged(large=False))
    assert run("honest").ending == "bad result", "pickled objects are refused"
    assert ran.ending == "done"


def forged(large: bool) -> Any:
    """Return a run that leaves files as hostile code might."""

    def leave(folder: Path, limits: Limits) -> tuple[str, tuple[()], str]:
        del limits
        array = np.zeros(2**20) if large else np.array([{}])
        np.savez_compressed(folder / "report-0.npz", array, allow_pickle=True)
        done = '{"outcome": "done", "reason": "", "network": "", "reports": [["w"]]}'
        (folder / "done.json").write_text(done)
        return "crashed", (), ""

    return leave


# What the caller gives.


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        ("tests.looks.misbehaving", "`function` must be 'module:function', such as 'my_app.task:work', got"),
        ("a b:c", "`function` must be 'module:function'"),
        ("nowhere_to_be_found:work", "`function` must be in a module with source that can be found"),
        ("math:sqrt", "`function` must be in a module with source that can be found"),
    ],
)
def test_a_function_that_is_not_there_is_refused(function: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        run_isolated(function, ROWS, MODEL, [0])


def test_rows_that_are_not_data_are_refused() -> None:
    with pytest.raises(ValueError, match="`rows` must be arrays of numbers, bytes or text, got object for 'x'"):
        run("honest", rows={"x": np.array([{}, {}])})
    with pytest.raises(ValueError, match="`wall` must be a positive integer, got 0"):
        Limits(wall=0)
    with pytest.raises(
        ValueError, match="`network` must be one of 'auto', 'network namespace', 'blocked sockets', got"
    ):
        run("honest", network="none")


def test_the_hash_is_of_the_package_or_the_one_file(tmp_path: Path) -> None:
    package = tmp_path / "app"
    package.mkdir()
    for name in ("__init__.py", "task.py", "net.py"):
        (package / name).write_text(f"# {name}\n")
    (tmp_path / "alone.py").write_text("# alone\n")
    path = [str(tmp_path)]
    code, files = code_hash("app.task:work", path)
    assert files == ("app/__init__.py", "app/net.py", "app/task.py")
    (tmp_path / "alone.py").write_text("# changed\n")
    assert code_hash("app.task:other", path)[0] == code
    (package / "net.py").write_text("# changed\n")
    assert code_hash("app.task:work", path)[0] != code
    assert code_hash("alone:work", path)[1] == ("alone.py",)
    (package / "net.py").rename(package / "nets.py")
    assert code_hash("app.task:work", path)[1] == ("app/__init__.py", "app/nets.py", "app/task.py")


def test_nothing_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run("honest").ending == "done"
    assert os.listdir(tmp_path) == []


def test_a_folder_named_by_a_dot_is_the_one_that_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[str]()
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dotted.py").write_text(f"def work():\n    return {name!r}\n")
        monkeypatch.chdir(tmp_path / name)
        found.append(code_hash("dotted:work", ["."])[0])
    assert found[0] != found[1]
