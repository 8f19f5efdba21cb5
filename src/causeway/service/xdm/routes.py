"""The addresses that a served lake of domains has beside those of every lake."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from causeway.model.errors import InvalidInput
from causeway.model.section import U64_MAX, Section
from causeway.protocols.xdm.state import MAX_CHANNEL
from causeway.service.requests import ENVELOPE_BYTES, Address, Body, Call, Number, Query, answered
from causeway.service.xdm.schemas import (
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


class Routes:
    """What each address answers."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def all(self) -> list[Address]:
        """Return all of them."""
        views = self._views
        own, names = views.own(), views.opened.names
        chain = {"chain": {"type": "string", "enum": own}}
        consensus = {"chain": {"type": "string", "enum": [views.consensus]}}
        found = [
            Address(
                "GET",
                f"{CHAIN}/channels/{{counterparty}}",
                "The channels of a chain with another, and the consensus block that messages to it are proved under.",
                self.channels,
                ChannelsQuery,
                answers={200: ChannelsAnswer},
                parts={**chain, "counterparty": {"type": "string", "enum": names}},
            ),
            Address(
                "POST",
                f"{CHAIN}/messages",
                "Messages to another chain in the storage of a block, with their proofs.",
                self.messages,
                body=MessagesBody,
                answers={200: MessagesAnswer},
                parts=chain,
                longest=MOST_LANES * LANE_BYTES + ENVELOPE_BYTES,
            ),
        ]
        if views.network.follows:
            found.append(
                Address(
                    "GET",
                    f"{CHAIN}/followed",
                    "What is known here of the consensus chain, which another lake runs.",
                    self.followed,
                    answers={200: FollowedAnswer},
                    parts=consensus,
                )
            )
            found.append(
                Address(
                    "GET",
                    f"{CHAIN}/receipts",
                    "The signed receipts of a domain's blocks.",
                    self.receipts,
                    AfterQuery,
                    answers={200: ReceiptsAnswer},
                    parts=chain,
                )
            )
            return found
        domains = {"type": "string", "enum": [name for name in names if name != views.consensus]}
        return [
            *found,
            Address(
                "GET",
                f"{CHAIN}/blocks",
                "Headers of the consensus chain, with its author's signature on the last.",
                self.blocks,
                AfterQuery,
                answers={200: BlocksAnswer},
                parts=consensus,
            ),
            Address(
                "GET",
                f"{CHAIN}/anchor",
                "The leaf of a consensus block in the mountain range, and a domain's confirmed receipt under it.",
                self.anchor,
                AnchorQuery,
                answers={200: AnchorAnswer},
                parts=consensus,
            ),
            Address(
                "GET",
                f"{CHAIN}/receipted/{{domain}}",
                "The last receipt of a domain that the consensus chain has taken in, and the last that it confirmed.",
                self.receipted,
                answers={200: ReceiptedAnswer},
                parts={**consensus, "domain": domains},
            ),
        ]

    def _require_consensus(self, call: Call) -> None:
        if call.path["chain"] != self._views.consensus:
            raise InvalidInput(f"chain: {call.path['chain'][:128]}; allowed: {self._views.consensus}")

    async def channels(self, call: Call) -> Response:
        """Answer the channels of a chain with ``counterparty``, at ``height``."""
        place = call.path["chain"], call.path["counterparty"]
        return await answered(self._views.channels, *place, call.query.height)

    async def messages(self, call: Call) -> Response:
        """Answer messages of some ``lanes`` to ``counterparty`` in the storage of ``block``, with their proofs."""
        asked = call.model
        lanes = [(lane.channel, lane.response, lane.first) for lane in asked.lanes]
        return await answered(
            self._views.messages, call.path["chain"], asked.counterparty, asked.block, lanes, asked.most
        )

    async def receipts(self, call: Call) -> Response:
        """Answer the signed receipts of a domain's blocks after the one of the number ``after``."""
        return await answered(self._views.receipts, call.path["chain"], call.query.after)

    async def blocks(self, call: Call) -> Response:
        """Answer headers of the consensus chain after the block of the number ``after``."""
        self._require_consensus(call)
        return await answered(self._views.blocks, call.query.after)

    async def anchor(self, call: Call) -> Response:
        """Answer the leaf of the block before ``under``, and the confirmed receipt of ``domain`` in its state."""
        self._require_consensus(call)
        return await answered(self._views.anchor, call.query.under, call.query.domain)

    async def receipted(self, call: Call) -> Response:
        """Answer the last receipts of ``domain`` that the consensus chain has taken in and confirmed."""
        self._require_consensus(call)
        return await answered(self._views.receipted, call.path["domain"])

    async def followed(self, call: Call) -> Response:
        """Answer what is known of the consensus chain."""
        self._require_consensus(call)
        return await answered(self._views.followed)
