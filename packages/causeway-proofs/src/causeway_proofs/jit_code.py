"""Argument types of compiled loops, and a loader of cached code without the compiler.

Importing numba takes half a second, mapping its machine code a hundredth of that. A short process calls
``use_cached_code()`` before it imports a file of loops. All code is in one file, written at set-up
(``jit.compile_all_loops``) and tried in a process of its own, because code with a dangling reference would crash the
process that loads it. If the file is missing, corrupted, or of another processor or version, loops come from the
compiler as usual.

numba's C modules unpack arguments and call the compiled code; they need nothing else of numba. They check sizes of
arguments but not types, so the types are checked here.
"""

from __future__ import annotations

import builtins
import ctypes
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from causeway_proofs.jit_cache import OWN_PACKAGE, UNFINISHED, cache_folder, is_prepared

__all__ = [
    "ArrayArgument",
    "InnerLoop",
    "LoadedLoop",
    "LoopArgument",
    "MachineCode",
    "NamedTupleArgument",
    "ScalarArgument",
    "find_loop",
    "is_in_use",
    "load_loops",
    "loop_name",
    "save_code",
    "use_cached_code",
]

_NUMBERS = (int, np.integer, np.bool_)


class LoopArgument(Protocol):
    """Type of a loop's argument."""

    def fits(self, value: Any) -> bool:
        """Return True if ``value`` has this type."""
        ...


@dataclass(frozen=True)
class ScalarArgument:
    """A number, a boolean, or nothing (``void``)."""

    name: str

    def fits(self, value: Any) -> bool:
        """Return True if ``value`` has this type."""
        return isinstance(value, _NUMBERS)


@dataclass(frozen=True)
class ArrayArgument:
    """Arrays of a dtype and number of dimensions; ``written`` marks outputs."""

    dtype: str
    dimensions: int
    written: bool = False
    contiguous: bool = True

    @cached_property
    def _of(self) -> np.dtype[Any]:
        return np.dtype(self.dtype)

    def fits(self, value: Any) -> bool:
        """Return True if ``value`` has this type."""
        if not isinstance(value, np.ndarray) or value.ndim != self.dimensions or value.dtype != self._of:
            return False
        flags = value.flags
        return (flags.c_contiguous or not self.contiguous) and (flags.writeable or not self.written)


@dataclass(frozen=True)
class NamedTupleArgument:
    """A named tuple class."""

    of: type
    fields: tuple[LoopArgument, ...]

    def fits(self, value: Any) -> bool:
        """Return True if ``value`` has this type."""
        return isinstance(value, self.of) and all(
            kind.fits(field)
            for kind, field in zip(self.fields, value, strict=True)  # type: ignore[call-overload]
        )


LOADED_LOOPS = "ready"
"""File of all machine code, in the cache folder."""

_SEAL_BYTES = 16
_LENGTH_BYTES = 8
_NUMBA = "numba"
_PARTS = {
    "numba._helperlib": "_helperlib",
    "numba._dynfunc": "_dynfunc",
    "numba.core.runtime._nrt_python": "core/runtime/_nrt_python",
}
"""C modules of numba called by compiled code, and their paths in the package."""

_enabled = False
_lock = threading.Lock()


@dataclass(frozen=True)
class MachineCode:
    """Machine code of a loop.

    Attributes:
        entry: name of the entry point.
        environments: names of its references to Python objects.
    """

    name: str
    entry: str
    environments: Sequence[str]
    content: bytes


class InnerLoop:
    """A function for other loops, part of their machine code.

    Attributes:
        allocates: as in ``jit.compile_loop``; None for an intrinsic.
        compiled: the compiler's function, created on demand.
    """

    def __init__(self, loop: Callable[..., Any], allocates: bool | None) -> None:
        self.loop, self.allocates = loop, allocates
        self.compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Raise ``TypeError``."""
        raise TypeError(f"{self.loop.__qualname__} is only for other loops")


class LoadedLoop(InnerLoop):
    """A callable loop from cached code."""

    def __init__(
        self, loop: Callable[..., Any], allocates: bool, call: Callable[..., Any], kinds: Sequence[LoopArgument]
    ) -> None:
        super().__init__(loop, allocates)
        self.__name__ = self.__qualname__ = loop.__qualname__
        self._call, self._kinds = call, tuple(kinds)

    def __call__(self, *arguments: Any) -> Any:
        """Call the loop. Raises ``TypeError`` for arguments of other types than declared."""
        for number, (kind, argument) in enumerate(zip(self._kinds, arguments, strict=True)):
            if not kind.fits(argument):
                raise TypeError(f"{self.__name__}: argument {number} is no {kind}")
        return self._call(*arguments)


def use_cached_code() -> None:
    """Load loops without the compiler from now on, if possible."""
    global _enabled
    _enabled = True


def is_in_use() -> bool:
    """Return True if loops are loaded without the compiler."""
    return _enabled and _codes() is not None


def loop_name(loop: Callable[..., Any]) -> str:
    """Return the name of a loop in the cache.

    Args:
        loop: function of a module.

    Returns:
        Module, qualified name and first line number, as one text.
    """
    return f"{loop.__module__}.{loop.__qualname__}-{loop.__code__.co_firstlineno}"


def find_loop(
    loop: Callable[..., Any], arguments: Sequence[LoopArgument] | None, allocates: bool
) -> LoadedLoop | InnerLoop | None:
    """Return a loop from the cached code, or None.

    Args:
        loop: the function.
        arguments: types of the arguments; None: callable from other loops only.
        allocates: the loop may allocate arrays.

    Returns:
        The loaded loop; an ``InnerLoop`` if ``arguments`` is None; None if the code is missing.
    """
    if arguments is None:
        return InnerLoop(loop, allocates)
    codes = _codes()
    call = None if codes is None else codes.get(loop_name(loop))
    return None if call is None else LoadedLoop(loop, allocates, call, arguments)


def save_code(place: Path, codes: Sequence[MachineCode]) -> None:
    """Write code to a folder, and remove it again if it does not load.

    Args:
        place: the cache folder; the file is ``LOADED_LOOPS`` in it.
        codes: machine code of the loops.

    Raises:
        OSError: the file cannot be written, or the process that tries it does not start.
    """
    listed = [(code.name, code.entry, [*code.environments], len(code.content)) for code in codes]
    head = json.dumps(listed).encode()
    content = len(head).to_bytes(_LENGTH_BYTES, "little") + head + b"".join(code.content for code in codes)
    path, new = place / LOADED_LOOPS, place / f"{LOADED_LOOPS}.{os.getpid()}{UNFINISHED}"
    new.write_bytes(_seal(content) + content)
    new.replace(path)
    tried = [sys.executable, "-c", f"from causeway_proofs import jit_code as r; r.load_loops(r.Path({str(path)!r}))"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(OWN_PACKAGE.parent), *sys.path])}
    done = subprocess.run(tried, stdin=subprocess.DEVNULL, capture_output=True, env=environment)
    if done.returncode:
        with suppress(FileNotFoundError):
            path.unlink()


def load_loops(path: Path) -> dict[str, Callable[..., Any]] | None:
    """Return the loops of a file by name, None if missing, corrupted or for another processor.

    Args:
        path: file written by ``save_code``.

    Returns:
        Compiled functions by name (``loop_name``), or None.
    """
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if content[:_SEAL_BYTES] != _seal(content[_SEAL_BYTES:]):
        return None
    start = _SEAL_BYTES + _LENGTH_BYTES
    end = start + int.from_bytes(content[_SEAL_BYTES:start], "little")
    codes = []
    for name, entry, environments, length in json.loads(content[start:end]):
        start, end = end, end + length
        codes.append(MachineCode(name, entry, environments, content[start:end]))
    return _loaded(codes)


@cache
def _codes() -> dict[str, Callable[..., Any]] | None:
    with _lock:
        place = cache_folder()
        settings = any(name.startswith("NUMBA_") for name in os.environ) or os.path.exists(".numba_config.yaml")
        return None if place is None or settings or not is_prepared() else load_loops(place / LOADED_LOOPS)


def _loaded(codes: Sequence[MachineCode]) -> dict[str, Callable[..., Any]]:
    import llvmlite.binding as llvm

    helpers, functions, runtime = (_part(name, path) for name, path in _PARTS.items())
    llvm.add_symbol("_Py_NoneStruct", id(None))
    for prefix, part in (("numba_", helpers), ("numba_", functions), ("NRT_", runtime)):
        for name, address in part.c_helpers.items():
            llvm.add_symbol(name if part is runtime and name.startswith("_") else prefix + name, address)
    for known in vars(builtins).values():
        if isinstance(known, type) and issubclass(known, BaseException):
            llvm.add_symbol(f"PyExc_{known.__name__}", id(known))
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(codemodel="jitdefault", jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(f'target triple = "{target.triple}"'), machine)
    for code in codes:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code.content))
    engine.finalize_object()
    found = {}
    for code in codes:
        environment = functions.Environment({})
        for name in code.environments:
            address = engine.get_global_value_address(name)
            if address:
                ctypes.c_void_p.from_address(address).value = id(environment)
        entry = engine.get_function_address(code.entry)
        references = (engine, environment)
        found[code.name] = functions.make_function(sys.modules[__name__], code.name, "", entry, environment, references)
    return found


def _part(name: str, path: str) -> ModuleType:
    """Load a C module of numba without importing the package."""
    place = f"{_package()}/{path}{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    loader = importlib.machinery.ExtensionFileLoader(name, place)
    spec = importlib.util.spec_from_file_location(name, place, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _package() -> str:
    found = importlib.util.find_spec(_NUMBA)
    assert found is not None and found.submodule_search_locations
    return found.submodule_search_locations[0]


def _seal(content: bytes) -> bytes:
    """Return a digest over code, processor and versions."""
    import llvmlite.binding as llvm
    import xxhash

    processor = (llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    about = [str(processor), str(llvm.llvm_version_info)]
    for path in _PARTS.values():
        state = os.stat(f"{_package()}/{path}{importlib.machinery.EXTENSION_SUFFIXES[0]}")
        about.append(f"{path} {state.st_size} {state.st_mtime_ns}")
    return xxhash.xxh3_128_digest("\n".join(about).encode() + content)
