"""Workers of a user's Spark session have the required imports, or the user is told."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.cluster.workers import require_workers


def session(python: str, master: str = "local[2]") -> Any:
    context = SimpleNamespace(master=master, pythonExec=python, getLocalProperty=lambda name: None)
    return SimpleNamespace(sparkContext=context)


def test_this_python_and_those_of_a_cluster_are_accepted(tmp_path: Path) -> None:
    require_workers(session(sys.executable))
    require_workers(session(str(tmp_path / "python3"), "spark://host:7077"))


def test_other_python_must_import_causeway(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    with pytest.raises(InvalidInput, match=f"workers run on {python}, .*; set PYSPARK_PYTHON={sys.executable} before"):
        require_workers(session(str(python)))
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(InvalidInput, match="does not import causeway"):
        require_workers(session(str(python)))
    other = tmp_path / "other"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    require_workers(session(str(other)))
