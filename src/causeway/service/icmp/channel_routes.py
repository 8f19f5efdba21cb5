"""The addresses that a served lake of parachains with HRMP channels has beside those of every lake."""

from __future__ import annotations

from pydantic import Field
from starlette.responses import Response

from causeway.service.icmp.channel_views import ChannelViews
from causeway.service.icmp.routes import CHAIN, HeightQuery
from causeway.service.icmp.schemas import BlockAnswer, ChannelProofAnswer, ChannelsAnswer, StateProofAnswer
from causeway.service.requests import Address, Call, Number, answered


class PageQuery(HeightQuery):
    """A message of a lane."""

    index: Number = Field(..., description="Its number in the lane, from 0.")


class ChannelRoutes:
    """What each address answers."""

    def __init__(self, views: ChannelViews) -> None:
        self._views = views

    def all(self) -> list[Address]:
        """Return all of them."""
        names, relay = self._views.opened.names, self._views.relay
        paras = {"type": "string", "enum": [name for name in names if name != relay]}
        one, two = {"chain": paras}, {"chain": paras, "counterparty": paras}
        about = "proved under the relay chain's state"
        return [
            Address(
                "GET",
                f"{CHAIN}/head",
                "The last block of the relay chain.",
                self.head,
                HeightQuery,
                answers={200: BlockAnswer},
                parts={"chain": {"type": "string", "enum": [relay]}},
            ),
            Address(
                "GET",
                f"{CHAIN}/watermark",
                f"How far a parachain has consumed, {about}.",
                self.watermark,
                HeightQuery,
                answers={200: StateProofAnswer},
                parts=one,
            ),
            Address(
                "GET",
                f"{CHAIN}/ingress",
                f"All channels to a parachain with what is in them, {about}.",
                self.ingress,
                HeightQuery,
                answers={200: StateProofAnswer},
                parts=one,
            ),
            Address(
                "GET",
                f"{CHAIN}/channels",
                f"All channels from a parachain and to it, {about}.",
                self.channels,
                HeightQuery,
                answers={200: ChannelsAnswer},
                parts=one,
            ),
            Address(
                "GET",
                f"{CHAIN}/channel/{{counterparty}}",
                f"The channel to another parachain and what is in it, {about}.",
                self.channel,
                HeightQuery,
                answers={200: ChannelProofAnswer},
                parts=two,
            ),
            Address(
                "GET",
                f"{CHAIN}/queued/{{counterparty}}",
                f"A message to another parachain that is not consumed, with all that is in their channel, {about}.",
                self.queued,
                PageQuery,
                answers={200: ChannelProofAnswer},
                parts=two,
            ),
        ]

    async def head(self, call: Call) -> Response:
        """Answer the last block of the relay chain at ``height``."""
        return await answered(self._views.head, call.path["chain"], call.query.height)

    async def watermark(self, call: Call) -> Response:
        """Answer the watermark of a parachain at ``height``, with its proof."""
        return await answered(self._views.received, "watermark", call.path["chain"], call.query.height)

    async def ingress(self, call: Call) -> Response:
        """Answer what waits for a parachain at ``height``, with its proof."""
        return await answered(self._views.received, "ingress", call.path["chain"], call.query.height)

    async def channels(self, call: Call) -> Response:
        """Answer the channels of a parachain at ``height``, with their proof."""
        return await answered(self._views.channels, call.path["chain"], call.query.height)

    async def channel(self, call: Call) -> Response:
        """Answer the channel to ``counterparty`` at ``height``, with its proof."""
        return await answered(self._views.channel, call.path["chain"], call.path["counterparty"], call.query.height)

    async def queued(self, call: Call) -> Response:
        """Answer message ``index`` to ``counterparty`` at ``height``, with its proof."""
        place, query = (call.path["chain"], call.path["counterparty"]), call.query
        return await answered(self._views.queued, *place, query.index, query.height)
