"""What the property tests say at the end of a run."""

from __future__ import annotations

import sys

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how many networks were played, and what happened in them, where any were."""
    for name in ("tests.property.ibc_tally", "tests.property.tried"):
        tally = sys.modules.get(name)
        for line in tally.summary() if tally is not None else ():
            terminalreporter.write_line(line)
