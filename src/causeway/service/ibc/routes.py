"""The addresses that a served lake of zones has beside those of every lake."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from causeway.model.errors import InvalidInput
from causeway.model.section import U64_MAX
from causeway.protocols.ibc.keys import Purpose
from causeway.protocols.limits import MAX_ITEMS
from causeway.service.ibc.answers import MAX_KEY_BYTES
from causeway.service.ibc.schemas import (
    EntriesAnswer,
    HeaderAnswer,
    LaneAnswer,
    ProofsAnswer,
    RefusalsAnswer,
    RelayersAnswer,
)
from causeway.service.ibc.views import Views
from causeway.service.requests import ENVELOPE_BYTES, Address, Body, Call, Count, Digits, Number, Query, answered

CHAIN = "/v1/chains/{chain}"

PURPOSES = {purpose.name.lower(): purpose for purpose in Purpose}

HEIGHT = "A committed height; without it, the last."


class AtHeight(Query):
    """A height."""

    height: Number | None = Field(None, description=HEIGHT)


class LaneQuery(AtHeight):
    """Of which entries to tell."""

    packets_from: Number = Field(0, description="Of packets below this index nothing is told.")
    receipts_from: Number = Field(0, description="Of receipts below this index nothing is told.")


class EntriesQuery(AtHeight):
    """Which entries."""

    first: Number = Field(0, description="The first index.")
    count: Count = Field(MAX_ITEMS, description="So many at most.")


class AccountsQuery(AtHeight):
    """Whose accounts."""

    relayer: Number | None = Field(None, description="Only that of this relayer, by number.")


class RefusalsQuery(Query):
    """Which refusals."""

    height: Number = Field(..., description="A committed height.")
    relayer: Number | None = Field(None, description="Only those of this relayer, by number.")


class ProofsBody(Body):
    """What to prove."""

    wanted: list[Annotated[Digits, Field(max_length=2 * MAX_KEY_BYTES)]] = Field(
        ..., alias="keys", min_length=1, max_length=MAX_ITEMS, description="Keys of the chain's store."
    )
    height: Annotated[int, Field(ge=0, le=U64_MAX)] | None = Field(None, description=HEIGHT)


class Routes:
    """What each address answers."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def all(self) -> list[Address]:
        """Return all of them."""
        chain = {"chain": {"type": "string", "enum": self._views.own()}}
        counterparties = sorted({counterparty for _, counterparty in self._views.connections()})
        lane = {**chain, "counterparty": {"type": "string", "enum": counterparties}}
        entries = {**lane, "purpose": {"type": "string", "enum": list(PURPOSES)}}
        return [
            Address(
                "GET",
                f"{CHAIN}/header",
                "The signed header of a chain.",
                self.header,
                AtHeight,
                answers={200: HeaderAnswer},
                parts=chain,
            ),
            Address(
                "GET",
                f"{CHAIN}/queues/{{counterparty}}",
                "Both queues of a chain for a counterparty, and its client of it.",
                self.lane,
                LaneQuery,
                answers={200: LaneAnswer},
                parts=lane,
            ),
            Address(
                "GET",
                f"{CHAIN}/queues/{{counterparty}}/{{purpose}}",
                "Entries of a queue with their values.",
                self.entries,
                EntriesQuery,
                answers={200: EntriesAnswer},
                parts=entries,
            ),
            Address(
                "POST",
                f"{CHAIN}/proofs",
                "Value and proof of each key in a chain's store.",
                self.proofs,
                body=ProofsBody,
                answers={200: ProofsAnswer},
                parts=chain,
                longest=2 * MAX_KEY_BYTES * MAX_ITEMS + ENVELOPE_BYTES,
            ),
            Address(
                "GET",
                f"{CHAIN}/relayers",
                "The fee accounts of relayers with a chain.",
                self.relayers,
                AccountsQuery,
                answers={200: RelayersAnswer},
                parts=chain,
            ),
            Address(
                "GET",
                f"{CHAIN}/refusals",
                "How many calls were refused in a block, by error.",
                self.refusals,
                RefusalsQuery,
                answers={200: RefusalsAnswer},
                parts=chain,
            ),
        ]

    async def header(self, call: Call) -> Response:
        """Answer the signed header of a chain at ``height``."""
        return await answered(self._views.header, call.path["chain"], call.query.height)

    async def lane(self, call: Call) -> Response:
        """Answer both queues of a chain for a counterparty, and its client of it, at ``height``; of their entries those
        from ``packets_from`` and ``receipts_from`` on."""
        begin = (call.query.packets_from, call.query.receipts_from)
        return await answered(
            self._views.lane, call.path["chain"], call.path["counterparty"], call.query.height, *begin
        )

    async def entries(self, call: Call) -> Response:
        """Answer entries of a queue with their values: ``count`` at most from index ``first`` on, at ``height``."""
        place, query = call.path, call.query
        if place["purpose"] not in PURPOSES:
            raise InvalidInput(f"queue: {place['purpose']}; allowed: {', '.join(PURPOSES)}")
        arguments = (place["chain"], place["counterparty"], PURPOSES[place["purpose"]], query.first, query.count)
        return await answered(self._views.entries, *arguments, query.height)

    async def proofs(self, call: Call) -> Response:
        """Answer value and proof of each of ``keys`` (hexadecimal) in a chain's store at ``height``."""
        keys = [bytes.fromhex(text) for text in call.model.wanted]
        return await answered(self._views.proofs, call.path["chain"], keys, call.model.height)

    async def relayers(self, call: Call) -> Response:
        """Answer the fee accounts of relayers with a chain; of one ``relayer``, or of all."""
        return await answered(self._views.relayers, call.path["chain"], call.query.height, call.query.relayer)

    async def refusals(self, call: Call) -> Response:
        """Answer how many calls were refused in the block of ``height``, by error; of one ``relayer``, or of all."""
        return await answered(self._views.refusals, call.path["chain"], call.query.height, call.query.relayer)
