"""What is asked of a protocol whose lakes proofs can be taken out of.

What can be proved of one message of a lake, as its prover offers it, and the proof of an offer.
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
"""A proof, or what is trusted, as the JSON object that ``causeway verify`` reads."""


class NotAtHeight(InvalidInput):
    """What is asked for is not there after the height that is asked for; after others it may be."""


@dataclass(frozen=True)
class ProofResult:
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
class ProofOffer:
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

    def prove(self, opened: OpenedLake, height: int | None, given: Mapping[str, Any]) -> ProofResult:
        """Return a proof out of a lake at a committed height, by default the last.

        ``given``: the values of ``options`` and ``files`` by name, None for what was not given.

        Raises:
            InvalidInput: what is asked for is not there (``NotAtHeight``: after that height), or not all of it is named
                (``LakeError``: no such height).
        """
        ...

    def offers(self, opened: OpenedLake, message: ProvableMessage) -> Sequence[ProofOffer]:
        """Return what may be proved of a message between two chains of a lake."""
        ...


def create_prover(opened: OpenedLake) -> Prover:
    """Return what takes proofs out of a lake.

    Raises:
        InvalidInput: its protocol has nothing of that kind.
    """
    found: Prover | None = find_protocol(opened.protocol).part("prover")
    if found is None:
        where, known = opened.lake.storage.uri, ", ".join(protocol_names("prover"))
        raise InvalidInput(
            f"lake: {where} is of the protocol {opened.protocol}; proofs can be taken only from lakes of {known}"
        )
    return found


TRIED = 12
"""Heights of one offer that are tried at most."""


@dataclass(frozen=True)
class OfferProof:
    """The proof of an offer. ``height``: after which it was taken, None: the prover chose one; ``trust``: what is to be
    trusted, as the JSON object that ``causeway verify --trust`` reads."""

    proved: ProofResult
    height: int | None
    trust: Mapping[str, Any]


def find_offers(opened: OpenedLake, message: ProvableMessage) -> tuple[ProofOffer, ...]:
    """Return what a lake may prove of a message, none where its protocol has no proofs of messages."""
    known = {*opened.names}
    if message.source not in known or message.destination not in known or message.source == message.destination:
        return ()
    try:
        return tuple(create_prover(opened).offers(opened, message))
    except InvalidInput:
        return ()


def prove_offer(opened: OpenedLake, offer: ProofOffer) -> OfferProof:
    """Return the proof of an offer, after the first of its heights after which there is one.

    Raises:
        InvalidInput: there is none after any of them; the text is that of the first.
    """
    prover = create_prover(opened)
    names = [option.name for option in (*prover.options, *prover.files)]
    given = {**dict.fromkeys(names), **offer.given, TRUST: True}
    first: InvalidInput | LakeError | None = None
    for height in _heights(opened, offer.heights):
        try:
            proved = prover.prove(opened, height, given)
        except (InvalidInput, LakeError) as error:
            first = first or error
            continue
        return OfferProof(proved, height, proved.beside[TRUST])  # type: ignore[arg-type]
    raise InvalidInput(str(first) if first is not None else "nothing of it is provable after any height")


TRUST = "trust_out"
"""The name of the option with which all provers give what is to be trusted (``options.TRUST_OUT``)."""


def _heights(opened: OpenedLake, wanted: Sequence[int | None]) -> Iterator[int | None]:
    last = opened.last_height()
    found = [height for height in wanted if height is None or 0 <= height <= last]
    yield from dict.fromkeys(found[:TRIED])
