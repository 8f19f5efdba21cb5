"""Fixtures for the tests of cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.recorded import Judge


@pytest.fixture
def judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Judge:
    """Return a judge that ingests and audits in its own folder."""
    return Judge(tmp_path, capsys)
