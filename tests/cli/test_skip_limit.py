"""The limit of skipped tests: a run above it fails; below it or with a selection it passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CONFTEST = """
from tests.skip_limit import SkipLimit

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipLimit())
"""
TESTS = """
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_number(number):
    if number < {skipped}:
        pytest.skip("no such machine")

@pytest.mark.xfail
def test_expected_failure():
    assert False
"""


def run(folder: Path, tests: int, skipped: int, *options: str) -> tuple[int, str]:
    """Run generated tests in a separate process; return its exit code and output."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_generated.py").write_text(TESTS.format(tests=tests, skipped=skipped))
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")])
def test_run_above_the_limit_fails_and_names_the_reasons(options: tuple[str, ...], tmp_path: Path) -> None:
    code, printed = run(tmp_path, 599, 7, *options)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "FAILED: 7 of 600 tests were skipped; allowed: 1%." in printed
    assert "     7  no such machine\n" in printed


@pytest.mark.parametrize(("tests", "skipped"), [(599, 6), (498, 498), (0, 0)])
def test_run_below_the_limit_or_of_a_selection_passes(tests: int, skipped: int, tmp_path: Path) -> None:
    code, printed = run(tmp_path, tests, skipped)
    assert code == pytest.ExitCode.OK and "tests were skipped" not in printed
