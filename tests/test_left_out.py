"""`pytest --left-out` runs what the run before it left out, and nothing twice."""

from pathlib import Path

import pytest

from tests.conftest import LONGEST

ROOT = Path(__file__).parent.parent
pytest_plugins = ["pytester"]

TESTS = {
    "test_one": """
        import os, pytest
        def test_always(): pass
        @pytest.mark.slow
        def test_full_size(): pass
        @pytest.mark.skipif("SERVER" not in os.environ, reason="no server")
        def test_with_a_server(): pass
        @pytest.mark.parametrize("library", ["here", "there"])
        def test_fixture(library, request):
            if library == "there" and "SERVER" not in os.environ: pytest.skip("not installed")
    """,
    "test_module": """
        import os, pytest
        if "SERVER" not in os.environ: pytest.skip("no server", allow_module_level=True)
        def test_whole_module(): pass
    """,
}


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makeini('[pytest]\naddopts = -m "not slow" -p no:xdist -p no:schemathesis\nmarkers =\n    slow: full-size')
    pytester.makepyfile(**TESTS)
    return pytester


def ran(result: pytest.RunResult) -> set[str]:
    return {line.split("::")[1].split()[0] for line in result.outlines if "PASSED" in line}


def test_what_was_skipped_runs_once_there_is_what_it_needs(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ran(project.runpytest("-v")) == {"test_always", "test_fixture[here]"}
    assert ran(project.runpytest("-v", "--left-out")) == {"test_full_size"}
    monkeypatch.setenv("SERVER", "1")
    left_out = {"test_full_size", "test_with_a_server", "test_fixture[there]", "test_whole_module"}
    assert ran(project.runpytest("-v", "--left-out")) == left_out
    assert ran(project.runpytest("-v", "--left-out")) == {"test_full_size"}


def test_it_needs_an_earlier_run(project: pytest.Pytester) -> None:
    result = project.runpytest("--left-out")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*run `make test` first*"])


def test_the_longest_files_start_first(project: pytest.Pytester) -> None:
    assert [name for name in LONGEST if not (ROOT / name).is_file()] == []
    long = project.path / LONGEST[-1]
    long.parent.mkdir(parents=True)
    long.write_text("import pytest\n@pytest.mark.slow\ndef test_long(): pass\n")
    project.runpytest()
    ran = [line for line in project.runpytest("-v", "--left-out").outlines if "PASSED" in line]
    assert [line.split()[0].split("::")[1] for line in ran] == ["test_long", "test_full_size"]
