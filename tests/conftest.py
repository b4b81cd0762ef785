"""Settings for all tests: the same examples every time, quick compiling, and `--left-out`.

A test that lacks something here (a package, a server, a browser, a file) is skipped, and pytest remembers it. `pytest
--left-out` runs those tests and the slow ones, and nothing else: what `make test` did not run.
"""

import gc
import os
import sys
from importlib import import_module
from importlib.metadata import version

import pytest
from hypothesis import settings

settings.register_profile("guerdon", derandomize=True, deadline=None)
settings.load_profile("guerdon")

CACHE = "guerdon/skipped"
# Most of the quick tests' time would go into optimising programs that run once; slow tests are compiled as users do.
# As JAX's own tests do, they leave optimising out: that takes a third of the time, and runs several times as slowly.
# Where that counts a test plays `with optimised():` (tests/support/compiling.py).
UNOPTIMISED = "JAX_DISABLE_MOST_OPTIMIZATIONS"
# A process ends where its jaxlib does not know a flag, so only those are told that were tried.
COMPILE_QUICKLY = "--xla_cpu_use_fusion_emitters=false"


# Files that take minutes where they are run whole, the longest first: many of their tests wait for Flower.
LONGEST = [
    "tests/flower/test_crashes.py",
    "tests/lab/experiments/test_planner.py",
    "tests/flower/test_deployment.py",
    "tests/flower/test_deployment_looks.py",
    "tests/flower/test_tutorial.py",
    "tests/ledger/test_tampering.py",
    "tests/ledger/test_properties.py",
    "tests/flower/test_simulated.py",
    "tests/lab/experiments/test_exploits.py",
    "tests/ledger/test_crashes.py",
    "tests/flare/test_flare.py",
    "tests/pilot/test_simulated.py",
    "tests/lab/experiments/test_federations.py",
    "tests/lab/arena/test_game.py",
    "tests/pages/test_site.py",
    "tests/lab/experiments/test_reproduce.py",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--left-out", action="store_true", help="run the slow tests and those skipped last time")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--left-out"):
        if config.cache.get(CACHE, None) is None:
            raise pytest.UsageError("`--left-out` runs what an earlier run left out; run `make test` first")
        config.option.markexpr = ""  # by default it leaves out the slow ones
    if config.option.markexpr == "not slow":  # before anything imports JAX
        os.environ.setdefault(UNOPTIMISED, "1")
        if version("jaxlib").startswith("0.10."):
            os.environ.setdefault("XLA_FLAGS", COMPILE_QUICKLY)
    os.environ["GUERDON_CACHE"] = "off"  # nothing is written to the home of whoever runs the tests
    if not hasattr(config, "workerinput"):  # pytest-xdist's workers report to this process
        config.pluginmanager.register(SkippedTests(config.cache))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--left-out"):
        return
    skipped = set(config.cache.get(CACHE, []))
    wanted = {item for item in items if item.get_closest_marker("slow") or skipped.intersection(_ids(item))}
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = sorted((item for item in items if item in wanted), key=_place)


def pytest_collection_finish() -> None:
    """Let Python look for garbage less often, and not in what all tests share: that took a twelfth of their time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
    if "sqlalchemy" in sys.modules:
        import_module("tests.support.statements").share()


def _place(item: pytest.Item) -> int:
    """Return the place of a test's file among the longest: what starts last should not take long."""
    name = item.nodeid.partition("::")[0]
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def _ids(item: pytest.Item) -> list[str]:
    """Return the ids of a test and of its module, which may be skipped as a whole."""
    return [item.nodeid, item.nodeid.partition("::")[0]]


class SkippedTests:
    """Remembers which tests, and which whole modules, were skipped when they were last tried."""

    def __init__(self, cache: pytest.Cache) -> None:
        self.cache, self.skipped = cache, set[str](cache.get(CACHE, []))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report, tried=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report, tried=report.when == "call")

    def pytest_sessionfinish(self) -> None:
        self.cache.set(CACHE, sorted(self.skipped))

    def _note(self, report: pytest.CollectReport | pytest.TestReport, *, tried: bool) -> None:
        if report.skipped:
            self.skipped.add(report.nodeid)
        elif tried:
            self.skipped.discard(report.nodeid)
