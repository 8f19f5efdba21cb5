"""The programs that come with Causeway, by the name a scenario uses, and those of one's own by ``module:Class``."""

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


class ProgramNotFound(InvalidInput):
    """The module of a program cannot be loaded, or has no such class."""


ProgramClass: TypeAlias = type[Program] | type[VectorProgram]

_BOUND: ContextVar[Mapping[str, ProgramClass]] = ContextVar("bound", default=MappingProxyType({}))
"""Classes that were given as such, by the names that stand for them in one network."""


def register_class(found: object, bound: dict[str, ProgramClass]) -> str:
    """Return the name of a class in a network: its own in the catalogue, or ``module:Class``, and note in ``bound``
    whose it is there. Where another class has it, as one that a function makes anew, a number follows.

    Raises ``InvalidInput`` for what is no program.
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
    """Let names stand for the classes of a network in the body of a ``with`` statement."""
    token = _BOUND.set(bound)
    try:
        yield
    finally:
        _BOUND.reset(token)


def find_program_class(name: str) -> type[Program] | type[VectorProgram]:
    """Return the class of a program: a name of the catalogue, or ``module:Class``.

    Raises ``ProgramNotFound``, ``InvalidInput``.
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
    except (Exception, SystemExit) as error:  # whatever a user's module does when it is loaded
        text = f"{type(error).__name__}: {error}{_place_of(error)}"
        raise ProgramNotFound(f'program "{name}" cannot be loaded: {" ".join(text.split())}') from error
    if not (isinstance(found, type) and issubclass(found, Program | VectorProgram)):
        raise InvalidInput(f'program "{name}" is not a subclass of Program or VectorProgram')
    return found


def _place_of(error: BaseException) -> str:
    """Return where a module failed that was being loaded, as `` (FILE, line N)``: the innermost line in its own folder
    and those below it. Nothing where no line of it ran, as with an error of syntax, which says it itself."""
    lines: list[tuple[Path, int]] = []
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<") and file not in (__file__, importlib.__file__):
            lines.append((Path(file), trace.tb_lineno))
        trace = trace.tb_next
    own = [(file, line) for file, line in lines if file.is_relative_to(lines[0][0].parent)]
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""
