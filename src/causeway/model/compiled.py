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
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numba
from numba import types

from causeway.model.compiled_files import DONE, can_be_kept, folder, is_prepared, loop_files, module_of

Loop = TypeVar("Loop", bound=Callable[..., Any])

_CONFIG: Any = numba.config
if can_be_kept():
    _CONFIG.CACHE_DIR = str(folder())


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
    keep = arguments is not None and can_be_kept()

    def decorate(loop: Loop) -> Loop:
        types_of = () if arguments is None else (result(*arguments),)
        njit: Any = numba.njit
        return cast("Loop", njit(*types_of, nogil=True, cache=keep, _nrt=allocates)(loop))

    return decorate


def prepare() -> None:
    """Compile all loops, unless that was done; where nothing can be kept on disk, for this process alone."""
    if is_prepared():
        return
    for file in loop_files():
        importlib.import_module(module_of(file))
    place = folder()
    if place is not None:
        (place / DONE).touch()


if __name__ == "__main__":
    from causeway.model.compiled import prepare as prepare_all  # this file under its own name, as the loops know it

    prepare_all()
