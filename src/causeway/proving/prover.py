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


@dataclass(frozen=True)
class ProvableMessage:
    """A message as a ledger has it, of which something may be proved.

    ``source``, ``destination``: chains; ``substream``: of the lane between them; ``index``: its number there;
    ``heights``: by event, at which heights of the lake it happened, ascending.
    """

    source: str
    destination: str
    substream: int
    index: int
    heights: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def during(self, begins: Sequence[str], ends: Sequence[str]) -> list[int]:
        """Return the heights from the first of some events on, until before the first one after it of others."""
        began = [height for event in begins for height in self.heights.get(event, ())]
        if not began:
            return []
        first = min(began)
        ended = [height for event in ends for height in self.heights.get(event, ()) if height > first]
        return [*range(first, min(ended, default=first + MOST_HEIGHTS))][:MOST_HEIGHTS]


MOST_HEIGHTS = 8
"""Heights of a message that are offered to be tried."""


@dataclass(frozen=True)
class Offer:
    """Something that may be proved of a message. ``what``: in words; ``given``: as of ``Prover.prove``; ``heights``:
    after which it may be there, in the order in which they are tried, None: the prover's own choice."""

    what: str
    given: Mapping[str, Any]
    heights: Sequence[int | None] = (None,)


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

    def offers(self, opened: OpenedLake, message: ProvableMessage) -> Sequence[Offer]:
        """Return what may be proved of a message between two chains of a lake."""
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


__all__ = ["Document", "NotAtHeight", "Offer", "ProvableMessage", "Proved", "Prover", "prover_of"]
