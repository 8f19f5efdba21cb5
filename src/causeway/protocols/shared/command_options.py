"""Options of commands that a protocol declares: data, which the command line makes options of.

What the options of ``causeway prove`` say of themselves that lakes of several protocols have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DeclaredOption:
    """What all of them have. ``name``: ``max_calls`` is ``--max-calls``; ``help``: what the option says of itself."""

    name: str
    help: str

    @property
    def flag(self) -> str:
        """Return the option as it is written."""
        return f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class CommandOption(DeclaredOption):
    """One option of a command.

    ``kind``: ``int``, ``float``, ``str`` or ``bool`` (off unless given). ``default``: what it is when it is not given,
    None for nothing; what is ``required`` must be given. ``words``: the texts that are allowed, where others are not.
    ``least``, ``most``: the numbers that are. ``metavar``: what stands for its value in the help.
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
    """An option that names a file to be written; ``verified_by``: the option by which ``causeway verify`` is given it,
    where it is.
    """

    verified_by: str | None = None


CHAIN = "The chain whose state is proved."
COUNTERPARTY = "The chain at the other end of the connection or stream."
INDEX = "Prove the entry or message with this index."

TRUST_OUT = FileOption(
    "trust_out",
    "Write what to trust to this file: the header with the root, or the public key.",
    verified_by="--trust",
)
