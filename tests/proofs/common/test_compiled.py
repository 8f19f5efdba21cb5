"""Compiled loops: modules, disk cache, and no use of outdated code."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs import jit_cache
from causeway_proofs.hashing import keccak256
from causeway_proofs.jit_cache import OWN_PACKAGE, is_prepared, loop_files, packages

from causeway.cli import process

SHOWN = "from causeway_proofs import jit_cache; print(jit_cache.cache_folder())"


def test_compiled_loops_are_only_in_loop_modules() -> None:
    files = [path for package in packages() for path in package.rglob("*.py")]
    users = {path for path in files if "from causeway_proofs.jit import" in path.read_text()}
    instructions = {OWN_PACKAGE / name for name in ("hashing/vector_instructions.py", "ic/memory.py")}
    assert users <= {*loop_files(), *instructions}


def folder(source: Path, **environ: str) -> str:
    """Return the folder of compiled code of a copy of the package, in a process of its own."""
    asked = [sys.executable, "-c", SHOWN]
    done = subprocess.run(
        asked, env={**os.environ, "PYTHONPATH": str(source), **environ}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def package(place: Path, loop: str) -> Path:
    """Write a package with only the compiler, a loop module and one of its constants; return the loops."""
    copy = place / "causeway_proofs"
    copy.mkdir(parents=True)
    (copy / "__init__.py").touch()
    for name in ("jit.py", "jit_cache.py", "jit_code.py", "jit_compiler.py"):
        (copy / name).write_text((OWN_PACKAGE / name).read_text())
    engine = copy / "jit_cache.py"
    engine.write_text(engine.read_text().replace('_ENGINE = "causeway"', '_ENGINE = "no_engine"'))
    (copy / "constants.py").write_text("MORE = 1")
    (copy / "some_loops.py").write_text(loop)
    return copy / "some_loops.py"


def test_changed_loop_source_is_compiled_into_another_folder(tmp_path: Path) -> None:
    """Loops of one file may call another's, which numba's own stamp ignores; constants are compiled in."""
    loop = package(tmp_path, "from causeway_proofs.constants import MORE")
    first = folder(tmp_path)
    assert Path(first).is_dir()
    assert folder(tmp_path) == first
    loop.write_text("from causeway_proofs.constants import MORE as SECOND")
    second = folder(tmp_path)
    loop.with_name("constants.py").write_text("MORE = 22")
    third = folder(tmp_path)
    assert len({first, second, third, folder(tmp_path, NUMBA_BOUNDSCHECK="1")}) == 4


@pytest.mark.parametrize(
    "form",
    [
        "from causeway_proofs.constants import MORE",
        "from causeway_proofs import constants",
        "from causeway_proofs import jit, constants as known",
        "from causeway_proofs import (\n    jit,  # the compiler (numba)\n    constants,\n)",
        "import causeway_proofs.constants",
        "import causeway_proofs.jit, causeway_proofs.constants as known",
        "from .constants import MORE",
        "from . import constants",
        "def double(number):\n    from causeway_proofs import constants",
    ],
)
def test_changed_imported_module_is_compiled_into_another_folder(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = package(tmp_path, form)
    monkeypatch.setattr(jit_cache, "packages", lambda: [loop.parent])
    first = jit_cache._places()
    assert jit_cache._places() == first
    loop.with_name("constants.py").write_text("MORE = 22")
    assert jit_cache._places() != first


LOOP = """
from causeway_proofs.jit import INT64, NOTHING, ROWS, ROWS_OUT, compile_loop

@compile_loop(INT64, [INT64])
def double(number):
    return 2 * number

@compile_loop()
def plus(number, other):
    return number + other

@compile_loop(NOTHING, [ROWS, INT64, ROWS_OUT])
def more(numbers, other, out):
    for row in range(len(numbers)):
        out[row] = plus(numbers[row], double(other))
"""


def run(place: Path, text: str) -> str:
    """Return the output of a script that runs with such a package."""
    settings = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run([sys.executable, "-c", text], env=settings, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.slow
def test_corrupted_cached_code_is_recompiled(tmp_path: Path) -> None:
    """Truncated, or with other bytes: a file system may return that after a power failure."""
    package(tmp_path, LOOP)
    use = "from causeway_proofs.some_loops import double; print(double(21), len(double.stats.cache_hits))"
    run(tmp_path, "from causeway_proofs.jit import compile_all_loops; compile_all_loops()")
    assert run(tmp_path, use) == "42 1"
    (kept,) = Path(folder(tmp_path)).glob("*double*")
    ready = Path(folder(tmp_path)) / "ready"
    used = "from causeway_proofs.jit_code import use_cached_code; use_cached_code()\nimport sys, numpy as np\n"
    used += "from causeway_proofs.some_loops import double, more\n"
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
def test_second_process_compiles_the_last_loop_module_meanwhile(tmp_path: Path) -> None:
    loops = package(tmp_path, LOOP)
    loops.with_name("last_loops.py").write_text(LOOP.replace("double", "triple"))
    modules = ["causeway_proofs.some_loops", "causeway_proofs.last_loops"]
    text = (
        "import os, time\n"
        "from causeway_proofs import jit, jit_cache\n"
        "os.cpu_count = lambda: 2\n"
        "found = lambda: list(jit_cache.cache_folder().glob('*triple-*[0-9]'))\n"
        f"with jit._compile_from_the_end({modules}):\n"
        "    end = time.monotonic() + 60\n"
        "    while not found() and time.monotonic() < end:\n"
        "        time.sleep(0.1)\n"
        "from causeway_proofs.last_loops import triple\n"
        "print(triple(21), len(triple.stats.cache_hits))"
    )
    assert run(tmp_path, text) == "42 1"


def test_uncompiled_loops_are_compiled_before_a_command_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def run(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        calls.append(arguments)
        return subprocess.CompletedProcess(arguments, len(calls) - 1, "", "Traceback\nno room on the disk\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(process, "is_prepared", lambda: True)
    process.compile_before_use()
    assert (calls, capsys.readouterr().err) == ([], "")
    monkeypatch.setattr(process, "is_prepared", lambda: False)
    process.compile_before_use()
    assert calls == [[sys.executable, "-m", "causeway_proofs.jit"]]
    assert capsys.readouterr().err.count("\n") == 1
    process.compile_before_use()
    assert "were not compiled (no room on the disk)" in capsys.readouterr().err
    monkeypatch.setattr(process, "is_cacheable", lambda: False)
    process.compile_before_use()
    assert (len(calls), capsys.readouterr().err) == (2, "")


def test_machine_without_a_cache_folder_is_no_error(tmp_path: Path) -> None:
    """Neither beside the package nor in the user's cache: compiled code then serves one process."""
    file = tmp_path / "file"
    file.touch()
    text = (
        "from pathlib import Path\n"
        "from causeway_proofs import jit_cache\n"
        f"jit_cache._places = lambda: [Path({str(file)!r}, 'compiled')]\n"
        "assert not jit_cache.is_cacheable() and not jit_cache.is_prepared()\n"
        "import sys\n"
        "from causeway_proofs.hashing import HashFunction, digest_rows, columns\n"
        "import numpy as np\n"
        "columns.load_engines()\n"
        "digests = digest_rows(HashFunction.SHA256, np.zeros((columns.ENOUGH, 1), np.uint8))\n"
        "assert 'numba' not in sys.modules\n"
        "from causeway_proofs.jit import INT64, compile_loop\n"
        "assert compile_loop(INT64, [INT64])(lambda number: number + 1)(1) == 2\n"
        "print(digests[-1].tobytes().hex())\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"


def test_code_prepared_by_another_user_is_used_from_a_read_only_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    monkeypatch.setattr(jit_cache, "_places", lambda: [shared, own])
    monkeypatch.setattr(os, "access", lambda path, mode: path != shared)
    assert jit_cache.cache_folder.__wrapped__() == own
    (shared / jit_cache.DONE_FILE).touch()
    assert jit_cache.cache_folder.__wrapped__() == shared


def test_user_without_a_home_writes_no_cache_to_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert all(place.is_absolute() for place in jit_cache._places())
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert all(place.is_absolute() for place in jit_cache._places())


def test_old_cache_folders_are_removed(tmp_path: Path) -> None:
    for age in range(20):
        made = tmp_path / f"compiled-{age}"
        made.mkdir()
        os.utime(made, (1000 - age, 1000 - age))
    (tmp_path / "spark-classes").touch()
    present = tmp_path / "compiled-19"
    (present / "loop.new").touch()
    jit_cache.remove_stale_folders(present)
    left = {path.name for path in tmp_path.iterdir()}
    newest = {f"compiled-{age}" for age in range(jit_cache.MAX_FOLDERS - 1)}
    assert left == newest | {"compiled-19", "spark-classes"}
    assert not list(present.iterdir())


@pytest.mark.slow
def test_full_disk_is_reported_and_no_code_marked_as_prepared(tmp_path: Path) -> None:
    package(tmp_path, LOOP)
    text = (
        "import errno, pathlib\n"
        "from causeway_proofs import jit, jit_cache\n"
        "def full(path, content):\n"
        "    raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "pathlib.Path.write_bytes = full\n"
        "try:\n"
        "    jit.compile_all_loops()\n"
        "except OSError as error:\n"
        "    from causeway_proofs.some_loops import double\n"
        "    print(double(21), error.strerror, jit_cache.is_prepared())\n"
    )
    assert run(tmp_path, text) == "42 No space left on device False"


def test_uncompiled_loops_give_equal_results_and_refuse_other_arguments(tmp_path: Path) -> None:
    """Numba's functions in C use the sizes of their arguments, and convert numbers between types."""
    text = """
import sys
from causeway_proofs import jit_code
jit_code.use_cached_code()
import numpy as np
from causeway.ledger.number_loops import parse_number_slices, strip_spaces
from causeway_proofs.hashing import HashFunction, digest_rows, columns
data, ends = np.frombuffer(b"12-1x0xff", dtype=np.uint8), np.array([2, 4, 5, 9])
starts, words, found = np.array([0, 2, 4, 5]), np.zeros((4, 4), np.uint64), np.zeros(4, np.uint8)
parse_number_slices(data, starts, ends, words, found)
print(words[:, 0].tolist(), found.tolist())
for bad in (found.astype(np.int8), found[::-1], found.reshape(2, 2), np.frombuffer(b"1234", dtype=np.uint8), None):
    try:
        parse_number_slices(data, starts, ends, words, bad)
    except TypeError as error:
        print(str(error).split(":")[0])
for wrong in (lambda: strip_spaces(data, 0, 2), lambda: parse_number_slices(data)):
    try:
        wrong()
    except (TypeError, ValueError) as error:
        print(type(error).__name__)
columns.load_engines()
for function in HashFunction:
    print(digest_rows(function, np.zeros((20, 3), np.uint8))[19].tobytes().hex())
print("numba" in sys.modules)
import causeway_proofs.jit_compiler
found[:] = 9
parse_number_slices(data, starts, ends, words, found)
print(found.tolist(), "numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "[12, 0, 0, 255] [0, 2, 3, 0]",
        *["parse_number_slices"] * 5,
        "TypeError",
        "ValueError",
        hashlib.sha256(bytes(3)).hexdigest(),
        hashlib.blake2b(bytes(3), digest_size=32).hexdigest(),
        keccak256(bytes(3)).hex(),
        str(not is_prepared()),
        "[0, 2, 3, 0] True",
    ]
