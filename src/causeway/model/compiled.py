"""Loops that are compiled: plain Python over arrays, made into machine code once on each machine and kept on disk.

Compiled loops stand in files named ``loops.py`` or ``..._loops.py``, one function a loop:

    @compiled(INT64, [BYTES, ROWS, written("int64")])
    def count_zeros(data, starts, counts): ...

Their types are declared, so that importing such a file is all the preparation there is: no call ever waits for a
compiler. A file of loops is therefore imported where its work begins, not where a process does. No bounds are checked,
so a caller makes sure before that every index lies inside; with ``NUMBA_BOUNDSCHECK=1`` they are, which a test uses.

What is compiled depends on the processor and on all files of loops, since one may call another's, and on the vector
instructions in files named ``...vectors.py``: the folder on disk is named by the sizes and times of all these, beside
this file or, where that cannot be written, in the user's cache.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name
from numba import types

Loop = TypeVar("Loop", bound=Callable[..., Any])

PACKAGE = Path(__file__).parents[1]
"""The folder of all rooms."""

_CONFIG: Any = numba.config

DONE = "done"
"""File in the folder of compiled code that says that all of it is there."""


def read(dtype: str, dimensions: int = 1) -> Any:
    """Return the type of a contiguous array that is only read; one that may be written is taken as well."""
    return types.Array(getattr(types, dtype), dimensions, "C", readonly=True)


def written(dtype: str, dimensions: int = 1) -> Any:
    """Return the type of a contiguous array that is written."""
    return types.Array(getattr(types, dtype), dimensions, "C")


BYTES, BYTE_ROWS, ROWS = read("uint8"), read("uint8", 2), read("int64")
BYTES_OUT, BYTE_ROWS_OUT, ROWS_OUT = written("uint8"), written("uint8", 2), written("int64")
INT64, UINT64, UINT8, BOOL, NOTHING = types.int64, types.uint64, types.uint8, types.boolean, types.void


def compiled(
    result: Any = None, arguments: Sequence[Any] | None = None, *, allocates: bool = True
) -> Callable[[Loop], Loop]:
    """Return a decorator that compiles a loop, which runs without the interpreter's lock.

    Args:
        result: type of what it returns.
        arguments: types of what it takes. Without any, the function is only for other loops, and compiled with them.
        allocates: whether it may make arrays. What makes none counts no references to those it is given: where many
            arrays go through small functions, that counting is most of the time.
    """
    keep = arguments is not None and _folder() is not None

    def decorate(loop: Loop) -> Loop:
        types_of = () if arguments is None else (result(*arguments),)
        njit: Any = numba.njit
        return cast("Loop", njit(*types_of, nogil=True, cache=keep, _nrt=allocates)(loop))

    return decorate


def can_be_kept() -> bool:
    """Return whether compiled code can be kept on disk, for other processes to load."""
    return _folder() is not None


def is_prepared() -> bool:
    """Return whether all loops were compiled on this machine, as their files are now."""
    folder = _folder()
    return folder is not None and (folder / DONE).exists()


def prepare() -> None:
    """Compile all loops, unless that was done; where nothing can be kept on disk, for this process alone."""
    if is_prepared():
        return
    for file in loop_files():
        importlib.import_module(".".join([PACKAGE.name, *file.relative_to(PACKAGE).with_suffix("").parts]))
    folder = _folder()
    if folder is not None:
        (folder / DONE).touch()


def loop_files() -> Iterable[Path]:
    """Return the files of loops, in the order of their paths."""
    return sorted(PACKAGE.rglob("*loops.py"))


def _folder() -> Path | None:
    """Return the folder of compiled code, made if need be, None where none can be written; tells numba of it once."""
    if not _FOLDER:
        _FOLDER.append(_made_folder())
        if _FOLDER[0] is not None:
            _CONFIG.CACHE_DIR = str(_FOLDER[0])
    return _FOLDER[0]


def _made_folder() -> Path | None:
    machine = (
        _CONFIG.CPU_NAME or get_host_cpu_name(),
        _CONFIG.CPU_FEATURES or get_host_cpu_features().flatten(),
    )
    stamp = hashlib.sha256(f"{numba.__version__} {sys.version} {_CONFIG.BOUNDSCHECK} {machine}".encode())
    for file in (*loop_files(), *sorted(PACKAGE.rglob("*vectors.py"))):
        about = file.stat()
        stamp.update(f"{file} {about.st_size} {about.st_mtime_ns}".encode())
    name = f"compiled-{stamp.hexdigest()[:16]}"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for parent in (Path(__file__).parent / "__pycache__", Path(home, "causeway")):
        try:
            (parent / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(parent / name, os.W_OK):
            return parent / name
    return None


_FOLDER: list[Path | None] = []

if __name__ == "__main__":
    from causeway.model.compiled import prepare as prepare_all  # this file under its own name, as the loops know it

    prepare_all()
