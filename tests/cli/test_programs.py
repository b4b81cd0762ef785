"""Compiled programs are kept where the user's caches are, unless they are not wanted."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

from guerdon.cli.programs import VARIABLE, keep_programs

RUN = """
import jax
from guerdon.cli.programs import keep_programs
keep_programs()
missed = []
jax.monitoring.register_event_listener(lambda event, **_: missed.append(event) if event.endswith("cache_misses") else 0)
from pathlib import Path
from guerdon.lab.experiments.reproduce import reproduce
reproduce(["fig2", "fig3", "fig4"], 10, Path("results"))
print(len(missed))
"""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, object]:
    """What JAX is told, in an environment without any of our variables; it is not really told."""
    for name in (VARIABLE, "JAX_COMPILATION_CACHE_DIR", "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: dict[str, object] = {}
    monkeypatch.setattr(jax.config, "update", said.__setitem__)
    return said


def test_the_folder_is_in_the_users_cache(told: dict[str, object], tmp_path: Path) -> None:
    folder = keep_programs()
    assert folder is not None
    assert folder.is_dir()
    assert folder.parent == tmp_path / "guerdon" / "programs"
    assert told["jax_compilation_cache_dir"] == str(folder)


@pytest.mark.parametrize("given", ["", "relative/cache"])
def test_without_a_usable_folder_it_is_under_home(
    told: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = keep_programs()
    assert folder is not None
    assert folder.is_relative_to(tmp_path / ".cache" / "guerdon")
    assert told["jax_compilation_cache_dir"] == str(folder)


@pytest.mark.parametrize(
    ("name", "value"), [(VARIABLE, "off"), (VARIABLE, "0"), ("JAX_COMPILATION_CACHE_DIR", "/somewhere")]
)
def test_nothing_is_kept_where_it_is_not_wanted(
    told: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert keep_programs() is None
    assert not told
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_done_without(told: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "guerdon").write_text("a file is in the way")
    assert keep_programs() is None
    assert not told


@pytest.mark.slow
def test_a_second_reproduction_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), VARIABLE: ""}
    for name in ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS"):
        environment.pop(name, None)
    options: Any = {"env": environment, "cwd": tmp_path, "check": True, "capture_output": True}
    counts = [int(subprocess.run([sys.executable, "-c", RUN], **options).stdout) for _ in range(2)]
    assert counts[0] > 3
    assert counts[1] == 0
