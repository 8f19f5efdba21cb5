"""Command options declared by protocols, and help texts shared by several protocols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DeclaredOption:
    """The common part of declared options.

    ``name``: ``max_calls`` is ``--max-calls``; ``help``: its help.
    """

    name: str
    help: str

    @property
    def flag(self) -> str:
        """Return the option as written on the command line."""
        return f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class CommandOption(DeclaredOption):
    """One option of a command.

    Attributes:
        kind: ``int``, ``float``, ``str`` or ``bool`` (off by default).
        default: The default value; None for none.
        required: True if the option must be given.
        words: The allowed texts, if limited.
        least: The least allowed number.
        most: The greatest allowed number.
        metavar: The placeholder of the value in the help.
    """

    kind: type = str
    default: Any = None
    required: bool = False
    words: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    metavar: str | None = None


@dataclass(frozen=True)
class FileOption(DeclaredOption):
    """An option for an output file.

    ``verified_by``: the option of ``causeway verify`` that reads it.
    """

    verified_by: str | None = None


CHAIN = "The chain whose state is proved."
COUNTERPARTY = "The chain at the other end of the connection or stream."
INDEX = "Prove the entry or message with this index."

TRUST_OUT = FileOption("trust_out", "Write the trusted header or public key to this file.", verified_by="--trust")
