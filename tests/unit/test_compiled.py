"""Compiled loops: where they stand, what is kept on disk, and that old code is never used for new text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from causeway.cli import compiling
from causeway.model.compiled_files import PACKAGE, loop_files

SHOWN = "from causeway.model import compiled_files; print(compiled_files.folder())"


def test_compiled_loops_stand_in_files_of_loops_only() -> None:
    users = {path for path in PACKAGE.rglob("*.py") if "from causeway.model.compiled import" in path.read_text()}
    assert users <= {*loop_files(), PACKAGE / "model" / "compiled.py"}


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
    (model / "compiled_files.py").write_text((PACKAGE / "model" / "compiled_files.py").read_text())
    loop = model / "some_loops.py"
    loop.write_text("first = 1")
    first = folder(tmp_path)
    assert folder(tmp_path) == first
    assert Path(first).parent == model / "__pycache__"
    loop.write_text("second = 2")
    second = folder(tmp_path)
    assert second != first
    assert folder(tmp_path, NUMBA_BOUNDSCHECK="1") not in (first, second)


def test_loops_that_were_not_compiled_are_before_a_command_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def run(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        calls.append(arguments)
        return subprocess.CompletedProcess(arguments, len(calls) - 1, "", "Traceback\nno room on the disk\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(compiling, "is_prepared", lambda: True)
    compiling.compile_first()
    assert (calls, capsys.readouterr().err) == ([], "")
    monkeypatch.setattr(compiling, "is_prepared", lambda: False)
    compiling.compile_first()
    assert calls == [[sys.executable, "-m", "causeway.model.compiled"]]
    assert capsys.readouterr().err.count("\n") == 1
    compiling.compile_first()
    assert "were not compiled (no room on the disk)" in capsys.readouterr().err
    monkeypatch.setattr(compiling, "can_be_kept", lambda: False)
    compiling.compile_first()
    assert (len(calls), capsys.readouterr().err) == (2, "")


def test_a_machine_without_a_place_for_compiled_code_is_no_error(tmp_path: Path) -> None:
    """Neither beside the package nor in the user's cache: code that is compiled there is for one process."""
    file = tmp_path / "file"
    file.touch()
    text = (
        "from pathlib import Path\n"
        "from causeway.model import compiled_files\n"
        f"compiled_files._places = lambda: [Path({str(file)!r}, 'compiled')]\n"
        "assert not compiled_files.can_be_kept() and not compiled_files.is_prepared()\n"
        "import sys\n"
        "from causeway.proofs.hashing import HashFunction, digest_rows, engines\n"
        "import numpy as np\n"
        "engines.prepare()\n"
        "digests = digest_rows(HashFunction.SHA256, np.zeros((engines.ENOUGH, 1), np.uint8))\n"
        "assert 'numba' not in sys.modules\n"
        "from causeway.model.compiled import INT64, compiled\n"
        "assert compiled(INT64, [INT64])(lambda number: number + 1)(1) == 2\n"
        "print(digests[-1].tobytes().hex())\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
