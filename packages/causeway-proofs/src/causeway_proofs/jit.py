"""Compile loops: plain Python over arrays to machine code, cached on disk.

Compiled loops live in files named ``loops.py`` or ``..._loops.py``, one function a loop:

    @compile_loop(INT64, [BYTES, ROWS, writable_arrays("int64")])
    def count_zeros(data, starts, counts): ...

Types are declared, so importing such a file is the only preparation and no call ever waits for a compiler. Import a
file of loops at its first use, not at process start. Bounds are unchecked: callers validate every index. With
``NUMBA_BOUNDSCHECK=1`` they are checked, as a test does.

``jit_cache`` locates compiled code on disk, ``jit_compiler`` wraps the compiler, ``jit_code`` loads cached code without
the compiler.
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

from causeway_proofs import jit_code
from causeway_proofs.jit_cache import (
    DONE_FILE,
    cache_folder,
    compiler_file,
    exclusive_lock,
    is_prepared,
    loop_files,
    module_of,
    packages,
    remove_stale_folders,
)
from causeway_proofs.jit_code import ArrayArgument, LoopArgument, NamedTupleArgument, ScalarArgument

Loop = TypeVar("Loop", bound=Callable[..., Any])


def read_only_arrays(dtype: str, dimensions: int = 1) -> ArrayArgument:
    """Return the argument type of contiguous read-only arrays; writable ones are accepted."""
    return ArrayArgument(dtype, dimensions)


def strided_arrays(dtype: str, dimensions: int) -> ArrayArgument:
    """Return the argument type of read-only arrays of any layout."""
    return ArrayArgument(dtype, dimensions, contiguous=False)


def writable_arrays(dtype: str, dimensions: int = 1) -> ArrayArgument:
    """Return the argument type of contiguous arrays that the loop writes."""
    return ArrayArgument(dtype, dimensions, written=True)


def named_tuples(of: type, fields: Sequence[LoopArgument]) -> NamedTupleArgument:
    """Return the argument type of a named tuple class."""
    return NamedTupleArgument(of, tuple(fields))


BYTES, BYTE_ROWS, ROWS = read_only_arrays("uint8"), read_only_arrays("uint8", 2), read_only_arrays("int64")
BYTES_OUT, BYTE_ROWS_OUT, ROWS_OUT = writable_arrays("uint8"), writable_arrays("uint8", 2), writable_arrays("int64")
INT64, UINT64, UINT8, BOOL, NOTHING = (ScalarArgument(name) for name in ("int64", "uint64", "uint8", "boolean", "void"))


def compile_loop(
    result: LoopArgument | None = None, arguments: Sequence[LoopArgument] | None = None, *, allocates: bool = True
) -> Callable[[Loop], Loop]:
    """Return a decorator that compiles a loop, which runs without the interpreter's lock.

    Args:
        result: type of the result.
        arguments: types of the arguments. Without them the function is callable from other loops only, and compiled
            with them.
        allocates: the loop may allocate arrays. A loop that does not skips reference counting of its arguments and is
            inlined into its callers, which saves most of the time of small functions over many arrays.

    Returns:
        The decorator.
    """

    def decorate(loop: Loop) -> Loop:
        if jit_code.is_in_use():
            found = jit_code.find_loop(loop, arguments, allocates)
            if found is not None:
                return cast("Loop", found)
        if compiler_file() is None:
            return loop  # as plain Python: right, and slow
        from causeway_proofs import jit_compiler

        return cast("Loop", jit_compiler.compile_or_load(loop, result, arguments, allocates=allocates))

    return decorate


def intrinsic(typed: Callable[..., Any]) -> Any:
    """Return a loop-callable function with given instructions (``numba.extending.intrinsic``)."""
    if jit_code.is_in_use():
        return jit_code.InnerLoop(typed, None)
    from causeway_proofs import jit_compiler

    return jit_compiler.intrinsic(typed)


def compiler_type(kind: LoopArgument) -> Any:
    """Return the compiler's type of an argument type."""
    from causeway_proofs import jit_compiler

    return jit_compiler.numba_type(kind)


def compile_all_loops(progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Compile all loops not yet compiled; without a writable cache, for this process alone.

    A second process compiles along. Processes that start this at once wait for the first one. Code of files as they no
    longer are is removed.

    Args:
        progress: called after each file with the number of loops compiled, and of all.

    Raises:
        OSError: there is a folder for compiled code, and it could not be written there.
    """
    from causeway_proofs import jit_compiler

    with exclusive_lock():
        if is_prepared():
            return
        files = loop_files()
        modules = [module_of(file) for file in files]
        ends = [*accumulate(file.read_text(encoding="utf-8").count("\n@compile_loop(") for file in files)]
        with _compile_from_the_end(modules):
            for module, done in zip(modules, ends, strict=True):
                importlib.import_module(module)
                progress(done, ends[-1])
        if jit_compiler.discard_results:
            raise jit_compiler.discard_results[0]
        place = cache_folder()
        if place is not None:
            jit_compiler.save_loaded_loops(place)
            (place / DONE_FILE).touch()
            remove_stale_folders(place)


@contextlib.contextmanager
def _compile_from_the_end(modules: Sequence[str]) -> Iterator[None]:
    """Compile modules in a second process, last first, until the body ends.

    Each process finds the modules that the other has compiled on disk.
    """
    if len(modules) < 2 or (os.cpu_count() or 1) < 2 or cache_folder() is None:
        yield
        return
    command = [sys.executable, "-c", f"import {', '.join(reversed(modules))}"]
    roots = [str(package.parent) for package in packages()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*roots, *sys.path])}
    quiet = subprocess.DEVNULL  # what cannot be compiled fails in the body, too
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, env=environment) as process:
        try:
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    try:
        compile_all_loops(lambda done, total: print(f"causeway: {done} of {total} loops", file=sys.stderr))
    except OSError as error:
        sys.exit(f"what is compiled cannot be written: {error}")
