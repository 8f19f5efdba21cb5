"""Fail a run of the tests that skips too many of them.

A skipped test says nothing, and a green run with many of them says little. What a machine cannot do (no browser, no
Linux) may skip a few tests, each with its reason. What needs a registry or hours is left out by a marker instead.
"""

from __future__ import annotations

from collections import Counter

import pytest

LIMIT = 0.01
"""Share of the tests that a run may skip."""

LEAST_TESTS = 500
"""A run of fewer tests is a selection: its share of skipped tests is not checked."""


class SkipLimit:
    """Count tests and skips of a run, in all its processes, and fail the run above the limit."""

    def __init__(self) -> None:
        self.tests = 0
        self.reasons: Counter[str] = Counter()

    @property
    def exceeded(self) -> bool:
        """Whether the run skips more than the limit."""
        return self.tests >= LEAST_TESTS and self.reasons.total() > LIMIT * self.tests

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test by its setup, and a skip by its reason."""
        self.tests += report.when == "setup"
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.reasons[reason.removeprefix("Skipped: ")] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Turn a passing run into a failing one."""
        if self.exceeded and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the reason of the failure."""
        if not self.exceeded:
            return
        terminalreporter.section("too many skipped tests", red=True, bold=True)
        terminalreporter.line(
            f"FAILED: {self.reasons.total():,} of {self.tests:,} tests were skipped; allowed: {LIMIT:.0%}.", red=True
        )
        for reason, count in self.reasons.most_common():
            terminalreporter.line(f"{count:>6,}  {reason}")
