"""Compile loops with numba and cache the results on disk.

Importing numba takes half a second.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
import xxhash
from numba import types
from numba.core import serialize
from numba.core.compiler import CompileResult
from numba.extending import intrinsic

from causeway_proofs import jit_code
from causeway_proofs.jit_cache import UNFINISHED, cache_folder
from causeway_proofs.jit_code import ArrayArgument, LoopArgument, NamedTupleArgument, ScalarArgument

_CONFIG: Any = numba.config
_AS_WRITTEN = bool(_CONFIG.DISABLE_JIT)
"""Run loops as Python, for debugging: ``NUMBA_DISABLE_JIT=1``."""

discard_results: list[OSError] = []
"""Errors of failed writes to the cache folder."""

_cached_loops: list[str] = []
"""Names of this process's loops in the disk cache."""


def compile_or_load(
    loop: Callable[..., Any], result: LoopArgument | None, arguments: Sequence[LoopArgument] | None, *, allocates: bool
) -> Callable[..., Any]:
    """Return a loop as machine code, from disk if cached.

    Args:
        loop: the function.
        result: type of the result.
        arguments: types of the arguments; without them or ``result``, numba compiles the loop with its callers or at
            its first call.
        allocates: the loop may allocate arrays.

    Returns:
        The compiler's function.
    """
    njit: Any = numba.njit
    inline = not allocates and arguments is None
    compiled = njit(nogil=True, _nrt=allocates, forceinline=inline)(loop)
    if arguments is not None and result is not None and not _AS_WRITTEN:
        _with_compiled(loop)
        place = cache_folder()
        if place is not None:
            compiled._cache = _LoopCache(place / jit_code.loop_name(loop))
            _cached_loops.append(jit_code.loop_name(loop))
        compiled.compile(numba_type(result)(*map(numba_type, arguments)))
        compiled.disable_compile()
    return compiled  # type: ignore[no-any-return]


def _with_compiled(loop: Callable[..., Any]) -> None:
    """Replace a loop's references to ``jit_code.InnerLoop`` by functions known to the compiler."""
    names = loop.__globals__
    for name in [name for name, value in names.items() if isinstance(value, jit_code.InnerLoop)]:
        inner = names[name]
        _with_compiled(inner.loop)
        if inner.compiled is None:
            if inner.allocates is None:
                inner.compiled = intrinsic(inner.loop)
            else:
                inner.compiled = compile_or_load(inner.loop, None, None, allocates=inner.allocates)
        names[name] = inner.compiled


def numba_type(kind: LoopArgument) -> Any:
    """Return the compiler's type of an argument type.

    Args:
        kind: a scalar, array or named tuple type.

    Returns:
        The type, as of ``numba.types``.
    """
    if isinstance(kind, ScalarArgument):
        return getattr(types, kind.name)
    if isinstance(kind, NamedTupleArgument):
        return types.NamedTuple(tuple(numba_type(field) for field in kind.fields), kind.of)  # type: ignore[no-untyped-call]
    assert isinstance(kind, ArrayArgument)
    of, dimensions, readonly = getattr(types, kind.dtype), kind.dimensions, not kind.written
    return types.Array(of, dimensions, "C" if kind.contiguous else "A", readonly=readonly)


class _LoopCache:
    """Disk cache of one loop in numba's cache interface; a seal detects corrupted files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cache_path = path.parent

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the cached code, or None if it is missing, corrupted or of another processor."""
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

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Write the file atomically."""
        if compiled.library.has_dynamic_globals:
            raise TypeError(f"{self._path.name} cannot be kept: it refers to addresses of this process")
        dumps: Any = serialize.dumps
        code = dumps(compiled._reduce())
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}{UNFINISHED}")
        try:
            new.write_bytes(_seal(code, signature, compiled.codegen) + code)
            new.replace(self._path)
        except OSError as error:
            discard_results.append(error)
            with suppress(OSError):
                new.unlink()


_SEAL_BYTES = 16


def _seal(code: bytes, signature: Any, codegen: Any) -> bytes:
    """Return a digest over code, types, processor and version of numba."""
    return xxhash.xxh3_128_digest(f"{signature} {codegen.magic_tuple()} {numba.__version__}".encode() + code)


def save_loaded_loops(place: Path) -> None:
    """Write the machine code of all loops of this process to one file, for ``jit_code``.

    Args:
        place: the cache folder, with the cached code of each loop.

    Raises:
        OSError: the file cannot be written.
    """
    codes = []
    for name in _cached_loops:
        library, about, environment, *_, again, others = pickle.loads((place / name).read_bytes()[_SEAL_BYTES:])
        environments = [environment, *others]
        if library[1] == "object" and not again and not any(each.consts for each in environments):
            names = tuple(each.env_name for each in environments)
            codes.append(jit_code.MachineCode(name, about.llvm_cpython_wrapper_name, names, library[2][0]))
    jit_code.save_code(place, codes)


__all__ = ["compile_or_load", "discard_results", "intrinsic", "numba_type", "save_loaded_loops"]
