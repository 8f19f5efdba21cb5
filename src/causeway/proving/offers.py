"""What can be proved of one message of a lake, as its prover offers it, and the proof of an offer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.network.opened import OpenedLake
from causeway.pipeline.lake import LakeError
from causeway.proving.prover import Offer, ProvableMessage, Proved, prover_of

TRIED = 12
"""Heights of one offer that are tried at most."""


@dataclass(frozen=True)
class OfferProved:
    """The proof of an offer. ``height``: after which it was taken, None: the prover chose one; ``trust``: what is to be
    trusted, as the JSON object that ``causeway verify --trust`` reads."""

    proved: Proved
    height: int | None
    trust: Mapping[str, Any]


def offers_of(opened: OpenedLake, message: ProvableMessage) -> tuple[Offer, ...]:
    """Return what a lake may prove of a message, none where its protocol has no proofs of messages."""
    known = {*opened.names}
    if message.source not in known or message.destination not in known or message.source == message.destination:
        return ()
    try:
        return tuple(prover_of(opened).offers(opened, message))
    except InvalidInput:
        return ()


def prove_offer(opened: OpenedLake, offer: Offer) -> OfferProved:
    """Return the proof of an offer, after the first of its heights after which there is one.

    Raises:
        InvalidInput: there is none after any of them; the text is that of the first.
    """
    prover = prover_of(opened)
    names = [option.name for option in (*prover.options, *prover.files)]
    given = {**dict.fromkeys(names), **offer.given, TRUST: True}
    first: InvalidInput | LakeError | None = None
    for height in _heights(opened, offer.heights):
        try:
            proved = prover.prove(opened, height, given)
        except (InvalidInput, LakeError) as error:
            first = first or error
            continue
        return OfferProved(proved, height, proved.beside[TRUST])  # type: ignore[arg-type]
    raise InvalidInput(str(first) if first is not None else "nothing of it is provable after any height")


TRUST = "trust_out"
"""The name of the option with which all provers give what is to be trusted (``options.TRUST_OUT``)."""


def _heights(opened: OpenedLake, wanted: Sequence[int | None]) -> Iterator[int | None]:
    last = opened.last_height()
    found = [height for height in wanted if height is None or 0 <= height <= last]
    yield from dict.fromkeys(found[:TRIED])


__all__ = ["OfferProved", "offers_of", "prove_offer"]
