"""Loops that are compiled: plain Python over arrays, made into machine code once on each machine and kept on disk.

Compiled loops stand in files named ``loops.py`` or ``..._loops.py``, one function a loop:

    @compiled(INT64, [BYTES, ROWS, written("int64")])
    def count_zeros(data, starts, counts): ...

Their types are declared, so that importing such a file is all the preparation there is: no call ever waits for a
compiler. A file of loops is therefore imported where its work begins, not where a process does. No bounds are checked,
so a caller makes sure before that every index lies inside; with ``NUMBA_BOUNDSCHECK=1`` they are, which a test uses.

``compiled_files`` says where compiled code is kept.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import xxhash
from numba import types
from numba.core import serialize
from numba.core.compiler import CompileResult

from causeway.model.compiled_files import DONE, UNFINISHED, alone, folder, is_prepared, loop_files, module_of, tidy

Loop = TypeVar("Loop", bound=Callable[..., Any])

_CONFIG: Any = numba.config
_AS_WRITTEN = bool(_CONFIG.DISABLE_JIT)
"""Whether loops run as Python, which is for those who look for a fault in one: ``NUMBA_DISABLE_JIT=1``."""

_unwritten: list[OSError] = []
"""Why compiled code could not be written to the folder that it is kept in."""


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
        allocates: whether it may make arrays. What makes none counts no references to those it is given, and is made
            part of whoever calls it: where many arrays go through small functions, most of the time goes there.
    """
    njit: Any = numba.njit

    def decorate(loop: Loop) -> Loop:
        inline = not allocates and arguments is None
        made = njit(nogil=True, _nrt=allocates, forceinline=inline)(loop)
        if arguments is not None and not _AS_WRITTEN:
            place = folder()
            if place is not None:
                name = f"{loop.__module__}.{loop.__qualname__}-{loop.__code__.co_firstlineno}"
                made._cache = _Kept(place / name)
            made.compile(result(*arguments))
            made.disable_compile()
        return cast("Loop", made)

    return decorate


class _Kept:
    """One loop's compiled code on disk, as numba asks for it: sealed, so that a damaged file is as good as none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cache_path = path.parent

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the code in the file, None if it is not there, or not as it was written for this processor."""
        target.refresh()
        try:
            content = self._path.read_bytes()
        except OSError:
            return None
        seal, code = content[:_SEAL_BYTES], content[_SEAL_BYTES:]
        if seal != _seal(code, signature, target.codegen()):
            return None
        rebuild: Any = CompileResult._rebuild
        return rebuild(target, *pickle.loads(code))

    def save_overload(self, signature: Any, made: Any) -> None:
        """Write the file, whole or not at all."""
        if made.library.has_dynamic_globals:
            raise TypeError(f"{self._path.name} cannot be kept: it refers to addresses of this process")
        dumps: Any = serialize.dumps
        code = dumps(made._reduce())
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}{UNFINISHED}")
        try:
            new.write_bytes(_seal(code, signature, made.codegen) + code)
            new.replace(self._path)
        except OSError as error:
            _unwritten.append(error)
            with suppress(OSError):
                new.unlink()


_SEAL_BYTES = 16


def _seal(code: bytes, signature: Any, codegen: Any) -> bytes:
    """Return what shows that code is whole, and of these types, this processor and this version of numba."""
    return xxhash.xxh3_128_digest(f"{signature} {codegen.magic_tuple()} {numba.__version__}".encode() + code)


def prepare() -> None:
    """Compile all loops, unless that was done; where nothing can be kept on disk, for this process alone.

    Processes that start this at once wait for the first one. Code of files as they no longer are is removed.

    Raises:
        OSError: there is a folder for compiled code, and it could not be written there.
    """
    with alone():
        if is_prepared():
            return
        for file in loop_files():
            importlib.import_module(module_of(file))
        if _unwritten:
            raise _unwritten[0]
        place = folder()
        if place is not None:
            (place / DONE).touch()
            tidy(place)


if __name__ == "__main__":
    from causeway.model.compiled import prepare as prepare_all  # this file under its own name, as the loops know it

    try:
        prepare_all()
    except OSError as error:
        sys.exit(f"what is compiled cannot be written: {error}")
