"""The addresses that a served lake of parachains has beside those of every lake."""

from __future__ import annotations

from pydantic import Field
from starlette.responses import Response

from causeway.service.icmp.schemas import HeadsAnswer, ProofAnswer
from causeway.service.icmp.views import Views
from causeway.service.requests import Address, Call, Number, Query, answered

CHAIN = "/v1/chains/{chain}"


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


class MessageQuery(LeafQuery):
    """A message of a lane."""

    index: Number = Field(..., description="Its number in the lane, from 0.")


class Routes:
    """What each address answers."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def all(self) -> list[Address]:
        """Return all of them."""
        names, relay = self._views.opened.names, self._views.relay
        paras = {"type": "string", "enum": [name for name in names if name != relay]}
        proof = {200: ProofAnswer}
        return [
            Address(
                "GET",
                f"{CHAIN}/heads",
                "The leaves of the relay chain.",
                self.heads,
                HeightQuery,
                answers={200: HeadsAnswer},
                parts={"chain": {"type": "string", "enum": [relay]}},
            ),
            Address(
                "GET",
                f"{CHAIN}/watermark",
                "How far a parachain has consumed, proved at a leaf of the relay chain.",
                self.watermark,
                LeafQuery,
                answers=proof,
                parts={"chain": paras},
            ),
            Address(
                "GET",
                f"{CHAIN}/ingress",
                "All queues that wait for a parachain, proved at a leaf of the relay chain.",
                self.ingress,
                LeafQuery,
                answers=proof,
                parts={"chain": paras},
            ),
            Address(
                "GET",
                f"{CHAIN}/queued/{{counterparty}}",
                "A message to another parachain that is not consumed, proved at a leaf of the relay chain.",
                self.queued,
                MessageQuery,
                answers=proof,
                parts={"chain": paras, "counterparty": paras},
            ),
        ]

    async def heads(self, call: Call) -> Response:
        """Answer the leaves of the relay chain at ``height``."""
        return await answered(self._views.heads, call.path["chain"], call.query.height)

    async def watermark(self, call: Call) -> Response:
        """Answer the watermark of a parachain at ``height`` and ``leaf``, with its proof."""
        return await answered(self._views.watermark, call.path["chain"], call.query.height, call.query.leaf)

    async def ingress(self, call: Call) -> Response:
        """Answer what waits for a parachain at ``height`` and ``leaf``, with its proof."""
        return await answered(self._views.ingress, call.path["chain"], call.query.height, call.query.leaf)

    async def queued(self, call: Call) -> Response:
        """Answer message ``index`` to ``counterparty`` at ``height`` and ``leaf``, with its proof."""
        place, query = (call.path["chain"], call.path["counterparty"]), call.query
        return await answered(self._views.queued, *place, query.index, query.height, query.leaf)
