"""Compiled loops: where they stand, what is kept on disk, and that old code is never used for new text."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from causeway.cli import compiling
from causeway.model import compiled_files
from causeway.model.compiled_files import PACKAGE, is_prepared, loop_files
from causeway.proofs.hashing import keccak256

SHOWN = "from causeway.model import compiled_files; print(compiled_files.folder())"


def test_compiled_loops_stand_in_files_of_loops_only() -> None:
    users = {path for path in PACKAGE.rglob("*.py") if "from causeway.model.compiled import" in path.read_text()}
    instructions = {PACKAGE / "proofs" / name for name in ("hashing/vectors.py", "ic/memory.py")}
    assert users <= {*loop_files(), *instructions, PACKAGE / "model" / "compiled.py"}


def folder(source: Path, **environ: str) -> str:
    """Return the folder of compiled code of a copy of the package, in a process of its own."""
    asked = [sys.executable, "-c", SHOWN]
    done = subprocess.run(
        asked, env={**os.environ, "PYTHONPATH": str(source), **environ}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def package(place: Path, loop: str) -> Path:
    """Write a package with nothing but the compiler, a file of loops and one of their constants; return the loops."""
    model = place / "causeway" / "model"
    model.mkdir(parents=True)
    (place / "causeway" / "__init__.py").touch()
    (model / "__init__.py").touch()
    for name in ("compiled.py", "compiled_files.py", "compiled_kinds.py", "compiled_ready.py", "compiler.py"):
        (model / name).write_text((PACKAGE / "model" / name).read_text())
    (model / "constants.py").write_text("MORE = 1")
    (model / "some_loops.py").write_text(loop)
    return model / "some_loops.py"


def test_another_text_of_a_loop_is_compiled_into_another_folder(tmp_path: Path) -> None:
    """One file's loops may call another's, of which numba's own stamp knows nothing; constants are compiled in."""
    loop = package(tmp_path, "from causeway.model.constants import MORE")
    first = folder(tmp_path)
    assert Path(first).is_dir()
    assert folder(tmp_path) == first
    loop.write_text("from causeway.model.constants import MORE as SECOND")
    second = folder(tmp_path)
    loop.with_name("constants.py").write_text("MORE = 22")
    third = folder(tmp_path)
    assert len({first, second, third, folder(tmp_path, NUMBA_BOUNDSCHECK="1")}) == 4


LOOP = """
from causeway.model.compiled import INT64, NOTHING, ROWS, ROWS_OUT, compiled

@compiled(INT64, [INT64])
def double(number):
    return 2 * number

@compiled()
def plus(number, other):
    return number + other

@compiled(NOTHING, [ROWS, INT64, ROWS_OUT])
def more(numbers, other, out):
    for row in range(len(numbers)):
        out[row] = plus(numbers[row], double(other))
"""


def run(place: Path, text: str) -> str:
    """Return what a script says that runs with such a package."""
    settings = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run([sys.executable, "-c", text], env=settings, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.slow
def test_kept_code_that_is_damaged_is_made_again(tmp_path: Path) -> None:
    """Cut off, or with other bytes: a file system gives that back after a power failure."""
    package(tmp_path, LOOP)
    use = "from causeway.model.some_loops import double; print(double(21), len(double.stats.cache_hits))"
    run(tmp_path, "from causeway.model.compiled import prepare; prepare()")
    assert run(tmp_path, use) == "42 1"
    (kept,) = Path(folder(tmp_path)).glob("*double*")
    ready = Path(folder(tmp_path)) / "ready"
    used = "from causeway.model.compiled_ready import use; use()\nimport sys, numpy as np\n"
    used += "from causeway.model.some_loops import double, more\n"
    used += "room = np.zeros(2, np.int64); more(np.ones(2, np.int64), 20, room); print(double(21), *room, end=' ')\n"
    used += "print('numba' in sys.modules)"
    assert run(tmp_path, used) == "42 41 41 False"
    whole = ready.read_bytes()
    for damaged in (b"", whole[:-1], whole[:-2000] + bytes(2000)):
        ready.write_bytes(damaged)
        assert run(tmp_path, used) == "42 41 41 True"
    whole = kept.read_bytes()
    at = whole.index(b"\x7fELF")
    for damaged in (b"", whole[:-1], whole[: at + 64] + bytes(len(whole) - at - 64)):
        kept.write_bytes(damaged)
        assert run(tmp_path, use) == "42 0"
        assert run(tmp_path, use) == "42 1"


@pytest.mark.slow
def test_a_second_process_compiles_the_last_file_of_loops_meanwhile(tmp_path: Path) -> None:
    loops = package(tmp_path, LOOP)
    loops.with_name("last_loops.py").write_text(LOOP.replace("double", "triple"))
    modules = ["causeway.model.some_loops", "causeway.model.last_loops"]
    text = (
        "import os, time\n"
        "from causeway.model import compiled, compiled_files\n"
        "os.cpu_count = lambda: 2\n"
        "found = lambda: list(compiled_files.folder().glob('*triple-*[0-9]'))\n"
        f"with compiled._compile_from_the_end({modules}):\n"
        "    end = time.monotonic() + 60\n"
        "    while not found() and time.monotonic() < end:\n"
        "        time.sleep(0.1)\n"
        "from causeway.model.last_loops import triple\n"
        "print(triple(21), len(triple.stats.cache_hits))"
    )
    assert run(tmp_path, text) == "42 1"


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


def test_code_that_another_user_has_prepared_is_used_where_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    monkeypatch.setattr(compiled_files, "_places", lambda: [shared, own])
    monkeypatch.setattr(os, "access", lambda path, mode: path != shared)
    assert compiled_files.folder.__wrapped__() == own
    (shared / compiled_files.DONE).touch()
    assert compiled_files.folder.__wrapped__() == shared


def test_a_user_without_a_home_keeps_nothing_where_commands_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert all(place.is_absolute() for place in compiled_files._places())
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert all(place.is_absolute() for place in compiled_files._places())


def test_old_folders_of_compiled_code_do_not_pile_up(tmp_path: Path) -> None:
    for age in range(20):
        made = tmp_path / f"compiled-{age}"
        made.mkdir()
        os.utime(made, (1000 - age, 1000 - age))
    (tmp_path / "spark-classes").touch()
    present = tmp_path / "compiled-19"
    (present / "loop.new").touch()
    compiled_files.tidy(present)
    left = {path.name for path in tmp_path.iterdir()}
    newest = {f"compiled-{age}" for age in range(compiled_files.MOST_FOLDERS - 1)}
    assert left == newest | {"compiled-19", "spark-classes"}
    assert not list(present.iterdir())


@pytest.mark.slow
def test_a_full_disk_is_told_and_nothing_is_said_to_be_prepared(tmp_path: Path) -> None:
    package(tmp_path, LOOP)
    text = (
        "import errno, pathlib\n"
        "from causeway.model import compiled, compiled_files\n"
        "def full(path, content):\n"
        "    raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "pathlib.Path.write_bytes = full\n"
        "try:\n"
        "    compiled.prepare()\n"
        "except OSError as error:\n"
        "    from causeway.model.some_loops import double\n"
        "    print(double(21), error.strerror, compiled_files.is_prepared())\n"
    )
    assert run(tmp_path, text) == "42 No space left on device False"


def test_loops_taken_without_the_compiler_do_the_same_and_refuse_other_arguments(tmp_path: Path) -> None:
    """Numba's functions in C look at the sizes of what they are given, and take numbers of one type for another."""
    text = """
import sys
from causeway.model import compiled_ready
compiled_ready.use()
import numpy as np
from causeway.ledger.number_loops import read_numbers, stripped
from causeway.proofs.hashing import HashFunction, digest_rows, engines
data, ends = np.frombuffer(b"12-1x0xff", dtype=np.uint8), np.array([2, 4, 5, 9])
starts, words, found = np.array([0, 2, 4, 5]), np.zeros((4, 4), np.uint64), np.zeros(4, np.uint8)
read_numbers(data, starts, ends, words, found)
print(words[:, 0].tolist(), found.tolist())
for bad in (found.astype(np.int8), found[::-1], found.reshape(2, 2), np.frombuffer(b"1234", dtype=np.uint8), None):
    try:
        read_numbers(data, starts, ends, words, bad)
    except TypeError as error:
        print(str(error).split(":")[0])
for wrong in (lambda: stripped(data, 0, 2), lambda: read_numbers(data)):
    try:
        wrong()
    except (TypeError, ValueError) as error:
        print(type(error).__name__)
engines.prepare()
for function in HashFunction:
    print(digest_rows(function, np.zeros((20, 3), np.uint8))[19].tobytes().hex())
print("numba" in sys.modules)
import causeway.model.compiler
found[:] = 9
read_numbers(data, starts, ends, words, found)
print(found.tolist(), "numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "[12, 0, 0, 255] [0, 2, 3, 0]",
        *["read_numbers"] * 5,
        "TypeError",
        "ValueError",
        hashlib.sha256(bytes(3)).hexdigest(),
        hashlib.blake2b(bytes(3), digest_size=32).hexdigest(),
        keccak256(bytes(3)).hex(),
        str(not is_prepared()),
        "[0, 2, 3, 0] True",
    ]
