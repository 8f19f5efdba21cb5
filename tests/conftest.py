"""Fixtures for every test."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from causeway.cluster.session import spark_session
from causeway.programs.user_modules import BESIDE
from tests.recordings import Recordings
from tests.skip_limit import SkipLimit
from tests.tiers import current_tier, sized

# Without a deadline: on any load of the machine. The soak draws other examples each time.
fixed = current_tier() != "soak"
settings.register_profile("causeway", deadline=None, max_examples=sized(40, 1_000), derandomize=fixed)
settings.load_profile("causeway")

gc.set_threshold(50_000, 10, 10)
"""Cycles among objects are looked for less often than Python does by itself, which took a twentieth of the time of what
compares kernels and oracles, and a quarter of that of collecting tests: next to nothing is kept by a cycle alone."""

TALLIES = ("tests.support.ibc.ibc_tally", "tests.support.properties.tried")
"""Modules that count the work of property tests: ``COUNTS``, and ``summary()`` in lines."""


SOAK = frozenset((Path(__file__).parent / "soak.txt").read_text(encoding="utf-8").splitlines())
"""Tests that only the tier soak runs, by node; a name without parameters stands for all cases of the test."""


FIRST = ("tests/cli/test_random_scenarios",)
"""Name prefixes of the files with the longest tests: they start first, so that no worker ends with them alone."""


def _test_of(name: str) -> str:
    return name.partition("[")[0]


def pytest_configure(config: pytest.Config) -> None:
    """Watch how many tests the run skips, in the process that sees the reports of all others.

    A shell starts background commands with interrupts ignored. Tests interrupt commands, so restore the handler.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipLimit(), "skip-limit")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to the tier soak the tests named in tests/soak.txt: further cases of other tests in the same file."""
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
    names = {item.nodeid for item in items}
    missing = SOAK - names - {_test_of(name) for name in names} if config.args == config.getini("testpaths") else set()
    if missing:
        raise pytest.UsageError(f"tests/soak.txt: no such tests: {', '.join(sorted(missing))}")
    if current_tier() != "soak":
        left_out = [item for item in items if SOAK & {item.nodeid, _test_of(item.nodeid)}]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not SOAK & {item.nodeid, _test_of(item.nodeid)}]


def pytest_collection_finish() -> None:
    """Exclude the collected modules and tests from garbage collection: they stay until the end."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the counts of this process to the one that started it, if it ran a part of the tests."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        modules = {name: sys.modules[name] for name in TALLIES if name in sys.modules}
        output["tallies"] = {
            name: {title: dict(counts) for title, counts in module.COUNTS.items()} for name, module in modules.items()
        }


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Sum the counts of the processes that ran a part of the tests each."""
    for name, found in getattr(node, "workeroutput", {}).get("tallies", {}).items():
        for title, counts in found.items():
            importlib.import_module(name).COUNTS.setdefault(title, Counter()).update(counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of networks of the property tests and their features, if any ran."""
    for name in TALLIES:
        tally = sys.modules.get(name)
        for line in tally.summary() if tally is not None else ():
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    """Return the recorded traffic; each file is written on first use."""
    return Recordings(tmp_path_factory.mktemp("recordings"))


@pytest.fixture(scope="session", autouse=True)
def nobody_pulls_the_plug() -> Iterator[None]:
    """Disable fsync in this process: written data is visible to every reader, even after a kill. Other processes
    started by tests do sync."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which also refuses closed files
        yield


@pytest.fixture
def own_modules(tmp_path: Path) -> Iterator[None]:
    """Unload, after the test, the modules imported from the test's folder, and remove its import path."""
    before = list(BESIDE.folders)
    yield
    BESIDE.folders[:] = before
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Return the Spark session shared by all tests: starting one takes seconds."""
    with spark_session("local[2]") as session:
        yield session
