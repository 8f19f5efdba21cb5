"""Catalogue of programs: bundled ones by name, user programs by ``module:Class``."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from itertools import chain, count
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, TypeAlias

from causeway_proofs.errors import InvalidInput

from causeway.programs.bundled.certified_map import CertifiedMap
from causeway.programs.bundled.messaging import Caller, Echo, FanOut, Faulty, PingPong, ScalarEcho
from causeway.programs.bundled.token_ledger import TokenLedger
from causeway.programs.bundled.transfer import Transfer
from causeway.programs.scalar import Program
from causeway.programs.vector import VectorProgram

PROGRAMS: dict[str, type[Program] | type[VectorProgram]] = {
    "caller": Caller,
    "certified_map": CertifiedMap,
    "echo": Echo,
    "fan_out": FanOut,
    "faulty": Faulty,
    "ping_pong": PingPong,
    "scalar_echo": ScalarEcho,
    "token_ledger": TokenLedger,
    "transfer": Transfer,
}
"""Bundled programs by the name in scenarios."""


class ProgramNotFound(InvalidInput):
    """The module of a program cannot be loaded, or lacks the class."""


ProgramClass: TypeAlias = type[Program] | type[VectorProgram]

_BOUND: ContextVar[Mapping[str, ProgramClass]] = ContextVar("bound", default=MappingProxyType({}))
"""Classes of the current network by name."""


def register_class(found: object, bound: dict[str, ProgramClass]) -> str:
    """Register a class in a network and return its name.

    That is its catalogue name or ``module:Class``, with a number if another class has the name, such as one created
    anew by a function.

    Args:
        found: The class.
        bound: Classes of the network by name; extended.

    Raises:
        InvalidInput: It is not a program.
    """
    if not (isinstance(found, type) and issubclass(found, Program | VectorProgram)):
        raise InvalidInput(f"program {found!r} is not a subclass of Program or VectorProgram")
    for known, other in PROGRAMS.items():
        if other is found:
            return known
    own = f"{found.__module__}:{found.__qualname__}"
    names = chain([own], (f"{own}#{number}" for number in count(2)))
    name = next(name for name in names if bound.get(name, found) is found)
    bound[name] = found
    return name


@contextmanager
def bind_classes(bound: Mapping[str, ProgramClass]) -> Iterator[None]:
    """Bind names to the classes of a network in the body of a ``with`` statement.

    Args:
        bound: Classes by name.
    """
    token = _BOUND.set(bound)
    try:
        yield
    finally:
        _BOUND.reset(token)


def find_program_class(name: str) -> type[Program] | type[VectorProgram]:
    """Return the class of a program.

    Args:
        name: A catalogue name or ``module:Class``.

    Raises:
        ProgramNotFound: The module cannot be loaded, or lacks the class.
        InvalidInput: The name is unknown, or not a program.
    """
    if name in PROGRAMS:
        return PROGRAMS[name]
    bound = _BOUND.get()
    if name in bound:
        return bound[name]
    module, separator, attribute = name.partition(":")
    if not separator:
        known = ", ".join(sorted(PROGRAMS))
        raise InvalidInput(f'program "{name}" is unknown; allowed: {known}, or "module:Class" of your own')
    found: Any
    try:
        found = reduce(getattr, attribute.split("."), importlib.import_module(module))
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        text = f"{type(error).__name__}: {error}{_failure_location(error)}"
        raise ProgramNotFound(f'program "{name}" cannot be loaded: {" ".join(text.split())}') from error
    if not (isinstance(found, type) and issubclass(found, Program | VectorProgram)):
        raise InvalidInput(f'program "{name}" is not a subclass of Program or VectorProgram')
    return found


def _failure_location(error: BaseException) -> str:
    """Return the line at which an import failed, as `` (FILE, line N)``.

    It is the innermost one in the module's own folder. Empty if no line of it ran, as for a syntax error, which names
    its line itself.
    """
    lines: list[tuple[Path, int]] = []
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<") and file not in (__file__, importlib.__file__):
            lines.append((Path(file), trace.tb_lineno))
        trace = trace.tb_next
    own = [(file, line) for file, line in lines if file.is_relative_to(lines[0][0].parent)]
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""
