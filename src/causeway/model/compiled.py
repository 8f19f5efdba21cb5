"""Loops that are compiled: plain Python over arrays, made into machine code once on each machine and kept on disk.

Compiled loops stand in files named ``loops.py`` or ``..._loops.py``, one function a loop:

    @compiled(INT64, [BYTES, ROWS, written("int64")])
    def count_zeros(data, starts, counts): ...

Their types are declared, so that importing such a file is all the preparation there is: no call ever waits for a
compiler. A file of loops is therefore imported where its work begins, not where a process does. No bounds are checked,
so a caller makes sure before that every index lies inside; with ``NUMBA_BOUNDSCHECK=1`` they are, which a test uses.

``compiled_files`` says where compiled code is kept, ``compiler`` is what knows the compiler, ``compiled_ready`` takes
what it made without loading it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeVar, cast

from causeway.model import compiled_ready
from causeway.model.compiled_files import DONE, PACKAGE, alone, folder, is_prepared, loop_files, module_of, tidy
from causeway.model.compiled_kinds import Arrays, Kind, Named, Scalar

Loop = TypeVar("Loop", bound=Callable[..., Any])


def read(dtype: str, dimensions: int = 1) -> Arrays:
    """Return the kind of contiguous arrays that are only read; those that may be written are taken as well."""
    return Arrays(dtype, dimensions)


def strided(dtype: str, dimensions: int) -> Arrays:
    """Return the kind of arrays that are only read, and need not be contiguous."""
    return Arrays(dtype, dimensions, contiguous=False)


def written(dtype: str, dimensions: int = 1) -> Arrays:
    """Return the kind of contiguous arrays that are written."""
    return Arrays(dtype, dimensions, written=True)


def named(of: type, fields: Sequence[Kind]) -> Named:
    """Return the kind of named tuples of a class."""
    return Named(of, tuple(fields))


BYTES, BYTE_ROWS, ROWS = read("uint8"), read("uint8", 2), read("int64")
BYTES_OUT, BYTE_ROWS_OUT, ROWS_OUT = written("uint8"), written("uint8", 2), written("int64")
INT64, UINT64, UINT8, BOOL, NOTHING = (Scalar(name) for name in ("int64", "uint64", "uint8", "boolean", "void"))


def compiled(
    result: Kind | None = None, arguments: Sequence[Kind] | None = None, *, allocates: bool = True
) -> Callable[[Loop], Loop]:
    """Return a decorator that compiles a loop, which runs without the interpreter's lock.

    Args:
        result: kind of what it returns.
        arguments: kinds of what it takes. Without any, the function is only for other loops, and compiled with them.
        allocates: whether it may make arrays. What makes none counts no references to those it is given, and is made
            part of whoever calls it: where many arrays go through small functions, most of the time goes there.
    """

    def decorate(loop: Loop) -> Loop:
        if compiled_ready.in_use():
            found = compiled_ready.loop(loop, arguments, allocates)
            if found is not None:
                return cast("Loop", found)
        from causeway.model import compiler

        return cast("Loop", compiler.made(loop, result, arguments, allocates=allocates))

    return decorate


def intrinsic(typed: Callable[..., Any]) -> Any:
    """Return a function for loops to call of which the instructions are given (``numba.extending.intrinsic``)."""
    if compiled_ready.in_use():
        return compiled_ready.Inner(typed, None)
    from causeway.model import compiler

    return compiler.intrinsic(typed)


def type_of(kind: Kind) -> Any:
    """Return the compiler's type of a kind, for who gives it instructions."""
    from causeway.model import compiler

    return compiler.type_of(kind)


def prepare(told: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Compile all loops, unless that was done; where nothing can be kept on disk, for this process alone.

    A second process compiles along. Processes that start this at once wait for the first one. Code of files as they no
    longer are is removed.

    Args:
        told: called after each file with the number of loops compiled, and of all.

    Raises:
        OSError: there is a folder for compiled code, and it could not be written there.
    """
    from causeway.model import compiler

    with alone():
        if is_prepared():
            return
        files = loop_files()
        modules = [module_of(file) for file in files]
        ends = [*accumulate(file.read_text(encoding="utf-8").count("\n@compiled(") for file in files)]
        with _compile_from_the_end(modules):
            for module, done in zip(modules, ends, strict=True):
                importlib.import_module(module)
                told(done, ends[-1])
        if compiler.unwritten:
            raise compiler.unwritten[0]
        place = folder()
        if place is not None:
            compiler.keep_ready(place)
            (place / DONE).touch()
            tidy(place)


@contextlib.contextmanager
def _compile_from_the_end(modules: Sequence[str]) -> Iterator[None]:
    """Compile modules in a second process, the last first, until the body ends.

    Where the two meet, each finds on disk what the other has compiled.
    """
    if len(modules) < 2 or (os.cpu_count() or 1) < 2 or folder() is None:
        yield
        return
    command = [sys.executable, "-c", f"import {', '.join(reversed(modules))}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *sys.path])}
    quiet = subprocess.DEVNULL  # what cannot be compiled fails in the body, too
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, env=environment) as process:
        try:
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    from causeway.model.compiled import prepare as prepare_all  # this file under its own name, as the loops know it

    try:
        prepare_all(lambda done, total: print(f"causeway: {done} of {total} loops", file=sys.stderr))
    except OSError as error:
        sys.exit(f"what is compiled cannot be written: {error}")
