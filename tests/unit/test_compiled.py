"""Compiled loops: where they stand, what is kept on disk, and that old code is never used for new text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from causeway.model.compiled import PACKAGE, loop_files

SHOWN = "from causeway.model import compiled; print(compiled._made_folder())"


def test_compiled_loops_stand_in_files_of_loops_only() -> None:
    users = {path for path in PACKAGE.rglob("*.py") if "from causeway.model.compiled import" in path.read_text()}
    own = PACKAGE / "model" / "compiled.py"
    assert users - set(loop_files()) - own_users() <= {own}


def own_users() -> set[Path]:
    """Return the files that only ask whether loops are there or can be, or prepare them."""
    asking = re.compile(r"compiled import (can_be_kept|is_prepared|prepare)")
    return {path for path in PACKAGE.rglob("*.py") if asking.search(path.read_text())}


def folder(source: Path, **environ: str) -> str:
    """Return the folder of compiled code of a copy of the package, in a process of its own."""
    asked = [sys.executable, "-c", SHOWN]
    done = subprocess.run(
        asked, env={**os.environ, "PYTHONPATH": str(source), **environ}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_another_text_of_a_loop_is_compiled_into_another_folder(tmp_path: Path) -> None:
    model = tmp_path / "causeway" / "model"
    model.mkdir(parents=True)
    (tmp_path / "causeway" / "__init__.py").touch()
    (model / "__init__.py").touch()
    (model / "compiled.py").write_text((PACKAGE / "model" / "compiled.py").read_text())
    loop = model / "some_loops.py"
    loop.write_text("first = 1")
    first = folder(tmp_path)
    assert folder(tmp_path) == first
    assert Path(first).parent == model / "__pycache__"
    loop.write_text("second = 2")
    second = folder(tmp_path)
    assert second != first
    assert folder(tmp_path, NUMBA_BOUNDSCHECK="1") not in (first, second)
