"""What is asked of a protocol whose lakes proofs can be taken out of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from causeway.model.errors import InvalidInput
from causeway.network.opened import OpenedLake
from causeway.protocols.command_options import CommandOption, FileOption
from causeway.protocols.registry import names, protocol

Document = dict[str, Any]
"""A proof, or what is trusted, as the JSON object that ``causeway verify`` reads."""


class NotAtHeight(InvalidInput):
    """What is asked for is not there after the height that is asked for; after others it may be."""


@dataclass(frozen=True)
class Proved:
    """A proof that was asked for.

    ``document``: the proof. ``lines``: what a person reads of it, its first line what is proved. ``beside``: further
    documents, or bytes as they are, by the name of the option (``Prover.files``) that asked for them.
    """

    document: Document
    lines: Sequence[str]
    beside: Mapping[str, Document | bytes] = field(default_factory=dict)


class Prover(Protocol):
    """Takes proofs out of lakes of one protocol. The registry names it; ``causeway prove`` asks it.

    ``about``: what the command says of itself in its help. ``options``: those that name what is proved. ``files``:
    those that name files for what goes with a proof.
    """

    about: str
    options: tuple[CommandOption, ...]
    files: tuple[FileOption, ...]

    def prove(self, opened: OpenedLake, height: int | None, given: Mapping[str, Any]) -> Proved:
        """Return a proof out of a lake at a committed height, by default the last.

        ``given``: the values of ``options`` and ``files`` by name, None for what was not given.

        Raises:
            InvalidInput: what is asked for is not there (``NotAtHeight``: after that height), or not all of it is named
                (``LakeError``: no such height).
        """
        ...


def prover_of(opened: OpenedLake) -> Prover:
    """Return what takes proofs out of a lake.

    Raises:
        InvalidInput: its protocol has nothing of that kind.
    """
    found: Prover | None = protocol(opened.protocol).part("prover")
    if found is None:
        where, known = opened.lake.storage.uri, ", ".join(names("prover"))
        raise InvalidInput(
            f"lake: {where} is of the protocol {opened.protocol}; proofs can be taken only from lakes of {known}"
        )
    return found


__all__ = ["Document", "NotAtHeight", "Proved", "Prover", "prover_of"]
