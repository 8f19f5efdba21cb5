"""The addresses that a served lake of parachains has beside those of every lake."""

from __future__ import annotations

from functools import partial

from pydantic import Field

from causeway.service.icmp.answers import (
    BlockAnswer,
    ChannelProofAnswer,
    ChannelsAnswer,
    HeadsAnswer,
    ProofAnswer,
    StateProofAnswer,
)
from causeway.service.icmp.channel_views import ChannelViews
from causeway.service.icmp.views import Views
from causeway.service.requests import Address, Number, Query, address_of_view

CHAIN = "/v1/chains/{chain}"
QUEUED = f"{CHAIN}/queued/{{counterparty}}"


class HeightQuery(Query):
    """A height."""

    height: Number | None = Field(None, description="A committed height; without it, the last.")


class LeafQuery(HeightQuery):
    """A leaf of the relay chain after a height."""

    leaf: str | None = Field(
        None,
        pattern=r"^([0-9]{1,3}|[0-9a-fA-F]{64})$",
        description="Its number, or the hash of its block; without it, the one with the lowest number.",
    )


class PageQuery(HeightQuery):
    """A message of a lane."""

    index: Number = Field(..., description="Its number in the lane, from 0.")


class MessageQuery(PageQuery, LeafQuery):
    """A message of a lane, at a leaf of the relay chain."""


def addresses(views: Views | ChannelViews) -> list[Address]:
    """Return the leaves of the relay chain, and proofs at each of them; of a network with channels, its last block and
    proofs of channels and of what is in them."""
    relay = [views.relay]
    paras = [name for name in views.opened.names if name != views.relay]
    at = address_of_view
    if isinstance(views, ChannelViews):
        about = "proved under the relay chain's state"
        watermark, ingress = (partial(views.received, what) for what in ("watermark", "ingress"))
        consumed = f"How far a parachain has consumed, {about}."
        waiting = f"All channels to a parachain with what is in them, {about}."
        every = f"All channels from a parachain and to it, {about}."
        one = f"The channel to another parachain and what is in it, {about}."
        message = f"A message to another parachain that is not consumed, with all that is in their channel, {about}."
        pair = {"chain": paras, "counterparty": paras}
        return [
            at(
                f"{CHAIN}/head", "The last block of the relay chain.", views.head, BlockAnswer, HeightQuery, chain=relay
            ),
            at(f"{CHAIN}/watermark", consumed, watermark, StateProofAnswer, HeightQuery, chain=paras),
            at(f"{CHAIN}/ingress", waiting, ingress, StateProofAnswer, HeightQuery, chain=paras),
            at(f"{CHAIN}/channels", every, views.channels, ChannelsAnswer, HeightQuery, chain=paras),
            at(f"{CHAIN}/channel/{{counterparty}}", one, views.channel, ChannelProofAnswer, HeightQuery, **pair),
            at(QUEUED, message, views.queued, ChannelProofAnswer, PageQuery, **pair),
        ]
    about = "proved at a leaf of the relay chain"
    consumed = f"How far a parachain has consumed, {about}."
    waiting = f"All queues that wait for a parachain, {about}."
    message = f"A message to another parachain that is not consumed, {about}."
    return [
        at(f"{CHAIN}/heads", "The leaves of the relay chain.", views.heads, HeadsAnswer, HeightQuery, chain=relay),
        at(f"{CHAIN}/watermark", consumed, views.watermark, ProofAnswer, LeafQuery, chain=paras),
        at(f"{CHAIN}/ingress", waiting, views.ingress, ProofAnswer, LeafQuery, chain=paras),
        at(QUEUED, message, views.queued, ProofAnswer, MessageQuery, chain=paras, counterparty=paras),
    ]
