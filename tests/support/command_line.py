"""The command line for tests: in this process, since starting Python takes most of the time; and in one of its own."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from guerdon.cli import main

PLAIN = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def run(*arguments: str, cwd: Path | None = None, **environment: str) -> Done:
    """Run `guerdon ARGUMENTS` in this process, as its entry point does; what it does not handle itself is raised."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd or Path.cwd()),
        patch.dict(os.environ, PLAIN | environment),
        patch.object(sys, "argv", ["guerdon", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        main()
    code = end.value.code or 0
    assert isinstance(code, int)
    return Done(code, out.getvalue(), err.getvalue())


def run_json(*arguments: str, cwd: Path | None = None) -> Any:
    """Run a command that must succeed in silence, and return what it prints as JSON."""
    done = run(*arguments, "--json", cwd=cwd)
    assert (done.code, done.stderr) == (0, "")
    return json.loads(done.stdout)


def start(*arguments: str, cwd: Path | None = None, **environment: str) -> Done:
    """Run the installed program `guerdon ARGUMENTS` in a process of its own."""
    program = str(Path(sys.executable).parent / "guerdon")
    told = os.environ | PLAIN | environment
    done = subprocess.run([program, *arguments], capture_output=True, text=True, env=told, cwd=cwd, check=False)
    return Done(done.returncode, done.stdout, done.stderr)
