"""Contract of provers, and proofs of a message by offer.

A prover extracts proofs from lakes of one protocol. For a message it offers the provable facts;
``prove_offer`` builds the proof of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from causeway_proofs.errors import InvalidInput

from causeway.network.opened_lake import OpenedLake
from causeway.protocols.registry import find_protocol, protocol_names
from causeway.protocols.shared.command_options import CommandOption, FileOption
from causeway.storage.lake import LakeError

__all__ = [
    "Document",
    "NotAtHeight",
    "OfferProof",
    "ProofOffer",
    "ProofResult",
    "ProvableMessage",
    "Prover",
    "create_prover",
    "find_offers",
    "prove_offer",
]

Document = dict[str, Any]
"""Proof or trust document: the JSON object that ``causeway verify`` reads."""


class NotAtHeight(InvalidInput):
    """Missing at the requested height, but possibly present at others."""


@dataclass(frozen=True)
class ProofResult:
    """Result of a prover.

    Attributes:
        document: The proof.
        lines: Readable summary; the first line states the proven fact.
        beside: Further documents or bytes by option name (``Prover.files``).
    """

    document: Document
    lines: Sequence[str]
    beside: Mapping[str, Document | bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class ProvableMessage:
    """Message of a ledger.

    Attributes:
        source: Name of the sender.
        destination: Name of the recipient.
        substream: Substream of the lane.
        index: Number in the lane.
        heights: Heights of the lake by event, ascending.
    """

    source: str
    destination: str
    substream: int
    index: int
    heights: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def during(self, begins: Sequence[str], ends: Sequence[str]) -> list[int]:
        """Return the heights between two events of the message.

        Args:
            begins: Events that start the period; the first one counts.
            ends: Events that end it; the first one after the start counts.

        Returns:
            At most ``MOST_HEIGHTS`` heights, without the end.
        """
        began = [height for event in begins for height in self.heights.get(event, ())]
        if not began:
            return []
        first = min(began)
        ended = [height for event in ends for height in self.heights.get(event, ()) if height > first]
        return [*range(first, min(ended, default=first + MOST_HEIGHTS))][:MOST_HEIGHTS]


MOST_HEIGHTS = 8
"""Maximum number of heights offered for a message."""


@dataclass(frozen=True)
class ProofOffer:
    """Provable fact of a message.

    Attributes:
        what: Description.
        given: Values of the prover's options (``Prover.prove``).
        heights: Candidate heights in order of preference; None for the prover's choice.
    """

    what: str
    given: Mapping[str, Any]
    heights: Sequence[int | None] = (None,)


class Prover(Protocol):
    """Prover of one protocol, named in the registry and used by ``causeway prove``.

    Attributes:
        about: Part of the command's help.
        options: Options that select the fact.
        files: Options for additional output files.
    """

    about: str
    options: tuple[CommandOption, ...]
    files: tuple[FileOption, ...]

    def prove(self, opened: OpenedLake, height: int | None, given: Mapping[str, Any]) -> ProofResult:
        """Build a proof from a lake.

        Args:
            opened: The lake.
            height: A committed height, by default the last.
            given: Values of ``options`` and ``files`` by name, None if not given.

        Raises:
            NotAtHeight: The fact does not hold at that height.
            InvalidInput: There is no such fact, or a required option is missing.
            LakeError: The height is not committed.
        """

    def offers(self, opened: OpenedLake, message: ProvableMessage) -> Sequence[ProofOffer]:
        """Return the provable facts of a message between two chains of a lake."""


def create_prover(opened: OpenedLake) -> Prover:
    """Create the prover for a lake.

    Args:
        opened: The lake.

    Raises:
        InvalidInput: The lake's protocol has no prover.
    """
    found: Prover | None = find_protocol(opened.protocol).part("prover")
    if found is None:
        uri, supported = opened.lake.storage.uri, ", ".join(protocol_names("prover"))
        raise InvalidInput(
            f"lake: {uri} is of the protocol {opened.protocol}; proofs can be taken only from lakes of {supported}"
        )
    return found


TRIED = 12
"""Maximum number of heights tried for an offer."""


@dataclass(frozen=True)
class OfferProof:
    """Proof of an offer.

    Attributes:
        proved: The proof.
        height: Height of the proof; None if the prover selected it.
        trust: Trust document, as read by ``causeway verify --trust``.
    """

    proved: ProofResult
    height: int | None
    trust: Mapping[str, Any]


def find_offers(opened: OpenedLake, message: ProvableMessage) -> tuple[ProofOffer, ...]:
    """Return the provable facts of a message; none if the protocol has no prover.

    Args:
        opened: The lake.
        message: The message.
    """
    known = {*opened.names}
    if message.source not in known or message.destination not in known or message.source == message.destination:
        return ()
    try:
        return tuple(create_prover(opened).offers(opened, message))
    except InvalidInput:
        return ()


def prove_offer(opened: OpenedLake, offer: ProofOffer) -> OfferProof:
    """Prove an offer at the first possible of its heights.

    Args:
        opened: The lake.
        offer: The offer.

    Raises:
        InvalidInput: No height has a proof; the text is that of the first one.
    """
    prover = create_prover(opened)
    names = [option.name for option in (*prover.options, *prover.files)]
    given = {**dict.fromkeys(names), **offer.given, TRUST: True}
    first: InvalidInput | LakeError | None = None
    for height in _candidate_heights(opened, offer.heights):
        try:
            proved = prover.prove(opened, height, given)
        except (InvalidInput, LakeError) as error:
            first = first or error
            continue
        return OfferProof(proved, height, proved.beside[TRUST])  # type: ignore[arg-type]
    raise InvalidInput(str(first) if first is not None else "nothing of it is provable after any height")


TRUST = "trust_out"
"""Name of the option for trust documents, shared by all provers (``command_options.TRUST_OUT``)."""


def _candidate_heights(opened: OpenedLake, wanted: Sequence[int | None]) -> Iterator[int | None]:
    last = opened.last_height()
    found = [height for height in wanted if height is None or 0 <= height <= last]
    yield from dict.fromkeys(found[:TRIED])
