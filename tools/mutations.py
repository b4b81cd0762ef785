"""Break the code on purpose, one place at a time, and see whether the tests notice.

    python -m tools.mutations map                  # once for a test suite: which test runs which line
    python -m tools.mutations run --out new.json   # 100 faults, each against the tests that run its line
    python -m tools.mutations run --retry new.json # only those that were not noticed
    python -m tools.mutations compare old.json new.json

A fault is a sign (+ for -), a bound (< for <=, a number off by one, `and` for `or`) or a dropped line, in a function.
The faults depend on the seed and the source alone, so two test suites can be compared on the same ones: use this file
in a checkout of each. Every fault is tried in a copy of the tree; the tree itself is not changed.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import coverage
import pytest

SOURCE = Path("src/guerdon")
AREAS = {
    "core": ("*.py", "cli/*.py"),
    "statistical": ("statistical/*.py",),
    "simulation": ("lab/*.py", *(f"lab/{name}/*.py" for name in ("simulation", "problems", "experiments", "planning"))),
    "ledger": ("ledger/**/*.py",),
    "flower": ("flower/*.py",),
    "dashboard": ("dashboard/*.py",),
}
SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
MAP = Path("build/mutations")  # what `map` leaves
CORES = os.cpu_count() or 1

Edit = tuple[int, int, str, str]  # line, column in bytes, text, new text


class Fault(NamedTuple):
    """One edit of one line of the source."""

    path: str
    line: int
    column: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column} {self.old!r} -> {self.new!r}"

    def apply(self, root: Path) -> None:
        """Edit the file below `root`."""
        lines = (root / self.path).read_bytes().splitlines(keepends=True)
        line, old = lines[self.line - 1], self.old.encode()
        if not line.startswith(old, self.column):
            raise ValueError(f"{self} does not fit the source: it was drawn from another")
        lines[self.line - 1] = line[: self.column] + self.new.encode() + line[self.column + len(old) :]
        (root / self.path).write_bytes(b"".join(lines))


def draw(count: int, seed: int) -> list[Fault]:
    """Return `count` faults, as many in each area, at most one a line."""
    rng, faults = random.Random(seed), list[Fault]()
    for index, patterns in enumerate(AREAS.values()):
        found = [
            fault for path in sorted(p for pattern in patterns for p in SOURCE.glob(pattern)) for fault in _in(path)
        ]
        one_a_line = {(fault.path, fault.line): fault for fault in rng.sample(found, len(found))}
        wanted = count * (index + 1) // len(AREAS) - count * index // len(AREAS)
        faults += rng.sample(list(one_a_line.values()), min(wanted, len(one_a_line)))
    return faults


def _in(path: Path) -> Iterator[Fault]:
    text = path.read_text()
    lines = [line.encode() for line in text.splitlines()]
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            for node in (inner for statement in function.body for inner in ast.walk(statement)):
                yield from (Fault(str(path), *edit) for edit in _edits(node, lines))


def _edits(node: ast.AST, lines: list[bytes]) -> Iterator[Edit]:
    match node:
        case ast.BinOp(left=left, right=right, op=operator) if not (_is_text(left) or _is_text(right)):
            yield from _swap(left, right, operator, lines)
        case ast.BoolOp(values=[left, right, *_], op=operator):
            yield from _swap(left, right, operator, lines)
        case ast.Compare(left=left, comparators=[right, *_], ops=[operator, *_]):
            yield from _swap(left, right, operator, lines)
        case ast.UnaryOp(op=ast.USub()):
            yield node.lineno, node.col_offset, "-", "+"
        case ast.Constant(value=value) if type(value) is int:
            yield node.lineno, node.col_offset, str(value), str(value + 1)
        case ast.Expr() | ast.AugAssign() | ast.Raise():
            is_docstring = isinstance(node, ast.Expr) and _is_text(node.value)
            if node.lineno == node.end_lineno and not is_docstring:
                old = lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
                yield node.lineno, node.col_offset, old, "pass"
        case _:
            pass


def _swap(left: ast.expr, right: ast.expr, operator: ast.AST, lines: list[bytes]) -> Iterator[Edit]:
    if type(operator) in SWAPS and left.end_lineno == right.lineno:
        old, new = SWAPS[type(operator)]
        column = lines[right.lineno - 1].find(old.encode(), left.end_col_offset, right.col_offset)
        if column >= 0:
            yield right.lineno, column, old, new


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


class Recorder:
    """A plugin of pytest: which test runs which line, and how long each takes."""

    def __init__(self, name: str) -> None:
        self.seconds, self.path = defaultdict[str, float](float), MAP / f"{name}.json"
        self.coverage = coverage.Coverage(data_file=MAP / f"{name}.coverage", source=[str(SOURCE)], config_file=False)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Forget compiled functions, so that every test that needs a line is seen to run it."""
        self.coverage.switch_context(item.nodeid)
        if "jax" in sys.modules:
            sys.modules["jax"].clear_caches()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up a test's parts."""
        self.seconds[report.nodeid] += report.duration

    def run(self, arguments: list[str]) -> int:
        """Run tests in this process."""
        self.coverage.start()
        code = pytest.main(["-q", *arguments], plugins=[self])
        self.coverage.stop()
        self.coverage.save()
        self.path.write_text(json.dumps(self.seconds))
        return int(code)


def make_map() -> None:
    """Run all quick tests once, in as many processes as there are cores, each with its share of the files."""
    shutil.rmtree(MAP, ignore_errors=True)
    MAP.mkdir(parents=True)
    files = ["src", *sorted(str(path) for path in Path("tests").rglob("test_*.py"))]
    code = "import sys; from tools.mutations import Recorder; sys.exit(Recorder(sys.argv[1]).run(sys.argv[2:]))"
    shares = [[sys.executable, "-c", code, str(index), *files[index::CORES]] for index in range(CORES)]
    for process in [subprocess.Popen(share) for share in shares]:
        process.wait()  # tests that count compilations may fail here, since compiled functions are forgotten


class CoveringTests:
    """What `map` found."""

    def __init__(self) -> None:
        if not any(MAP.glob("*.coverage")):
            raise SystemExit(f"{MAP} holds no map of the tests: run `python -m tools.mutations map` first")
        self.seconds = dict[str, float]()
        self.tests = defaultdict[str, dict[int, set[str]]](dict)
        for path in MAP.glob("*.coverage"):
            self.seconds |= json.loads(path.with_suffix(".json").read_text())
            data = coverage.CoverageData(str(path))
            data.read()
            for file in data.measured_files():
                lines = self.tests[str(Path(file).relative_to(Path.cwd()))]
                for line, tests in data.contexts_by_lineno(file).items():
                    lines[line] = lines.get(line, set[str]()) | (set(tests) & self.seconds.keys())

    def of(self, fault: Fault) -> list[str]:
        """Return the tests that run the fault's statement, the quickest first."""
        lines = self.tests[fault.path]
        begun = max((line for line in lines if line <= fault.line), default=0)
        return sorted(lines.get(begun, ()), key=lambda test: self.seconds[test])


def try_all(faults: list[Fault], out: Path) -> None:
    """Try each fault, one at a time on each core, and write down which test noticed it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    tests, copies, results = CoveringTests(), SimpleQueue[Path](), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(CORES) as pool:
        for index in range(CORES):
            copies.put(_copy(Path(folder) / str(index)))

        def judge(fault: Fault) -> None:
            copy, tried = copies.get(), tests.of(fault)
            original = (copy / fault.path).read_bytes()
            fault.apply(copy)
            noticed = _first_failure(copy, tried, limit := 120 + 5 * sum(tests.seconds[test] for test in tried))
            (copy / fault.path).write_bytes(original)
            if noticed in tried and _first_failure(copy, tried[: tried.index(noticed) + 1], limit):
                noticed = None  # that test fails without the fault too, after the same tests
            copies.put(copy)
            results.append({"fault": fault, "tests": len(tried), "noticed": noticed})
            out.write_text(json.dumps(sorted(results, key=lambda result: result["fault"]), indent=1))
            verdict = f"noticed by {noticed}" if noticed else f"NOT NOTICED by {len(tried)} tests"
            print(f"[{len(results)} of {len(faults)}] {fault}: {verdict}", flush=True)

        list(pool.map(judge, faults))


def _copy(target: Path) -> Path:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if Path(name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, target / name)
    return target


def _first_failure(copy: Path, tests: list[str], limit: float) -> str | None:
    """Return the first test that fails in a copy, or None; tests that do not end in time count as failing."""
    if not tests:
        return None
    (copy / "tests.txt").write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "@tests.txt"]
    environment = os.environ | {"PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return f"a test that did not end in {limit:.0f} s"
    if done.returncode == 0:
        return None
    summary = done.stdout.rpartition("short test summary info")[2].splitlines()
    failed = [line for line in summary if line.startswith(("FAILED ", "ERROR "))]
    return failed[0].partition(" ")[2].partition(" - ")[0] if failed else f"exit code {done.returncode}"


def _read(path: Path) -> dict[Fault, str | None]:
    """Return which test noticed each fault of a file of results."""
    if not path.is_file():
        raise SystemExit(f"{path} must be a file that `python -m tools.mutations run --out` wrote; there is none")
    return {Fault(*result["fault"]): result["noticed"] for result in json.loads(path.read_text())}


def compare(old: Path, new: Path) -> int:
    """Print the faults that the old tests noticed and the new ones do not; return how many."""
    before, after = _read(old), _read(new)
    both = sorted(before.keys() & after.keys())
    lost = [fault for fault in both if before[fault] and not after[fault]]
    print(*(f"lost: {fault}, which {before[fault]} noticed" for fault in lost), sep="\n", end="\n" * bool(lost))
    counts = [sum(bool(side[fault]) for fault in both) for side in (before, after)]
    print(
        f"of {len(both)} faults tried on both, the old tests notice {counts[0]}, the new {counts[1]}; lost: {len(lost)}"
    )
    return len(lost)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("map", help="find out which test runs which line")
    run = commands.add_parser("run", help="try faults")
    run.add_argument("--count", type=int, default=100, help="how many faults")
    run.add_argument("--seed", type=int, default=0, help="which faults")
    run.add_argument("--out", type=Path, default=Path("build/mutations.json"), help="where the results go")
    run.add_argument("--retry", type=Path, help="a file of results: try again only what was not noticed there")
    run.add_argument("--list", action="store_true", help="print the faults and try none")
    comparing = commands.add_parser("compare", help="compare two files of results")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    options = parser.parse_args()
    if options.command == "map":
        return make_map()
    if options.command == "compare":
        raise SystemExit(bool(compare(options.old, options.new)))
    faults = draw(options.count, options.seed)
    if options.retry:
        known = _read(options.retry)
        faults = [fault for fault in faults if fault in known and not known[fault]]
    return print(*faults, sep="\n") if options.list else try_all(faults, options.out)


if __name__ == "__main__":
    main()
