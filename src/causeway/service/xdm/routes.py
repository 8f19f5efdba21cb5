"""The addresses that a served lake of domains has beside those of every lake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from causeway.model.errors import InvalidInput
from causeway.model.section import U64_MAX, Section
from causeway.protocols.xdm.state import MAX_CHANNEL
from causeway.service.requests import ENVELOPE_BYTES, Address, Body, Call, Number, Query, address_of_view, answered
from causeway.service.xdm.answers import (
    AnchorAnswer,
    BlocksAnswer,
    ChannelsAnswer,
    FollowedAnswer,
    MessagesAnswer,
    ReceiptedAnswer,
    ReceiptsAnswer,
)
from causeway.service.xdm.views import Views

CHAIN = "/v1/chains/{chain}"

MOST_LANES = 256
"""Lanes that messages are asked of at once."""

LANE_BYTES = 128
"""Bytes of a lane in a body: its keys, and the digits of two numbers."""


class ChannelsQuery(Query):
    """A height."""

    height: Number | None = Field(None, description="A committed height; without it, the last.")


class AfterQuery(Query):
    """From where on."""

    after: Number | None = Field(None, description="The number of a block; without it, from the first on.")


class AnchorQuery(Query):
    """What is to be proved."""

    under: Number = Field(..., description="The number of the block under whose mountain range it is proved.")
    domain: str | None = Field(None, max_length=128, description="Whose confirmed receipt is proved, too.")


class Lane(Section):
    """Messages of one direction of a channel."""

    channel: Annotated[int, Field(ge=0, le=MAX_CHANNEL)] = Field(..., description="The channel's number.")
    response: bool = Field(False, description="Responses; else requests.")
    first: Annotated[int, Field(ge=0, le=U64_MAX)] = Field(0, description="The first nonce.")


class MessagesBody(Body):
    """Which messages."""

    counterparty: Annotated[str, Field(max_length=128)] = Field(..., description="The chain that they are for.")
    block: Annotated[int, Field(ge=0, le=2**32 - 1)] = Field(
        ..., description="The number of the chain's block in whose storage they are."
    )
    lanes: list[Lane] = Field(..., min_length=1, max_length=MOST_LANES, description="Of which lanes.")
    most: Annotated[int, Field(ge=1, le=1_000)] = Field(257, description="Of a lane at most.")


def addresses(views: Views) -> list[Address]:
    """Return channels, messages with proofs, receipts, and what there is of the consensus chain."""
    own, names, main, at = views.own(), views.opened.names, views.consensus, address_of_view
    domains = [name for name in names if name != main]

    async def messages(call: Call) -> Response:
        asked = call.model
        lanes = [(lane.channel, lane.response, lane.first) for lane in asked.lanes]
        return await answered(views.messages, call.path["chain"], asked.counterparty, asked.block, lanes, asked.most)

    def of_consensus(view: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        """Return a view that refuses to be asked of another chain than the consensus chain."""

        def view_of_consensus(chain: str, **asked: Any) -> dict[str, Any]:
            if chain != main:
                raise InvalidInput(f"chain: {chain[:128]}; allowed: {main}")
            return view(**asked)

        return view_of_consensus

    channels = "The channels of a chain with another, and the consensus block that messages to it are proved under."
    found = [
        at(
            f"{CHAIN}/channels/{{counterparty}}",
            channels,
            views.channels,
            ChannelsAnswer,
            ChannelsQuery,
            chain=own,
            counterparty=names,
        ),
        Address(
            "POST",
            f"{CHAIN}/messages",
            "Messages to another chain in the storage of a block, with their proofs.",
            messages,
            body=MessagesBody,
            answers={200: MessagesAnswer},
            parts={"chain": {"type": "string", "enum": own}},
            longest=MOST_LANES * LANE_BYTES + ENVELOPE_BYTES,
        ),
    ]
    if views.network.follows:
        known = "What is known here of the consensus chain, which another lake runs."
        signed = "The signed receipts of a domain's blocks."
        return [
            *found,
            at(f"{CHAIN}/followed", known, of_consensus(views.followed), FollowedAnswer, chain=[main]),
            at(f"{CHAIN}/receipts", signed, views.receipts, ReceiptsAnswer, AfterQuery, chain=own),
        ]
    headers = "Headers of the consensus chain, with its author's signature on the last."
    leaf = "The leaf of a consensus block in the mountain range, and a domain's confirmed receipt under it."
    last = "The last receipt of a domain that the consensus chain has taken in, and the last that it confirmed."
    receipted, place = of_consensus(views.receipted), f"{CHAIN}/receipted/{{domain}}"
    return [
        *found,
        at(f"{CHAIN}/blocks", headers, of_consensus(views.blocks), BlocksAnswer, AfterQuery, chain=[main]),
        at(f"{CHAIN}/anchor", leaf, of_consensus(views.anchor), AnchorAnswer, AnchorQuery, chain=[main]),
        at(place, last, receipted, ReceiptedAnswer, chain=[main], domain=domains),
    ]
