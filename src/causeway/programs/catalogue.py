"""The programs that come with Causeway, by the name a scenario uses, and those of one's own by ``module:Class``."""

from __future__ import annotations

import importlib

from causeway.model.errors import InvalidInput
from causeway.programs.caller import Caller, PingPong
from causeway.programs.echo import Echo, ScalarEcho
from causeway.programs.fan_out import FanOut
from causeway.programs.faulty import Faulty
from causeway.programs.scalar import Program
from causeway.programs.token_ledger import TokenLedger
from causeway.programs.transfer import Transfer
from causeway.programs.vector import VectorProgram

PROGRAMS: dict[str, type[Program] | type[VectorProgram]] = {
    "caller": Caller,
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


def program_class(name: str) -> type[Program] | type[VectorProgram]:
    """Return the class of a program: a name of the catalogue, or ``module:Class``.

    Raises ``ProgramNotFound``, ``InvalidInput``.
    """
    if name in PROGRAMS:
        return PROGRAMS[name]
    module, separator, attribute = name.partition(":")
    if not separator:
        known = ", ".join(sorted(PROGRAMS))
        raise InvalidInput(f'program "{name}" is unknown; allowed: {known}, or "module:Class" of your own')
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a user's module does when it is loaded
        raise ProgramNotFound(f'program "{name}" cannot be loaded: {type(error).__name__}: {error}') from error
    if not (isinstance(found, type) and issubclass(found, Program | VectorProgram)):
        raise InvalidInput(f'program "{name}" is not a subclass of Program or VectorProgram')
    return found
