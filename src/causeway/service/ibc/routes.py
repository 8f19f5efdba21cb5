"""The addresses that a served lake of zones has beside those of every lake."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from causeway.model.section import U64_MAX
from causeway.protocols.limits import MAX_ITEMS
from causeway.service.ibc.answers import (
    MAX_KEY_BYTES,
    EntriesAnswer,
    HeaderAnswer,
    LaneAnswer,
    ProofsAnswer,
    RefusalsAnswer,
    RelayersAnswer,
)
from causeway.service.ibc.views import PURPOSES, Views
from causeway.service.requests import (
    ENVELOPE_BYTES,
    Address,
    Body,
    Call,
    Count,
    Digits,
    Number,
    Query,
    address_of_view,
    answered,
)

CHAIN = "/v1/chains/{chain}"

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


def addresses(views: Views) -> list[Address]:
    """Return headers, queues, proofs, accounts of relayers."""
    own, at = views.own(), address_of_view
    others = sorted({counterparty for _, counterparty in views.connections()})
    header = "The signed header of a chain."
    lane = "Both queues of a chain for a counterparty, and its client of it."
    entries = "Entries of a queue with their values."
    accounts = "The fee accounts of relayers with a chain."
    refused = "How many calls were refused in a block, by error."
    queues = f"{CHAIN}/queues/{{counterparty}}"

    async def proofs(call: Call) -> Response:
        keys = [bytes.fromhex(text) for text in call.model.wanted]
        return await answered(views.proofs, call.path["chain"], keys, call.model.height)

    return [
        at(f"{CHAIN}/header", header, views.header, HeaderAnswer, AtHeight, chain=own),
        at(queues, lane, views.lane, LaneAnswer, LaneQuery, chain=own, counterparty=others),
        at(
            f"{queues}/{{purpose}}",
            entries,
            views.entries,
            EntriesAnswer,
            EntriesQuery,
            chain=own,
            counterparty=others,
            purpose=list(PURPOSES),
        ),
        Address(
            "POST",
            f"{CHAIN}/proofs",
            "Value and proof of each key in a chain's store.",
            proofs,
            body=ProofsBody,
            answers={200: ProofsAnswer},
            parts={"chain": {"type": "string", "enum": own}},
            longest=2 * MAX_KEY_BYTES * MAX_ITEMS + ENVELOPE_BYTES,
        ),
        at(f"{CHAIN}/relayers", accounts, views.relayers, RelayersAnswer, AccountsQuery, chain=own),
        at(f"{CHAIN}/refusals", refused, views.refusals, RefusalsAnswer, RefusalsQuery, chain=own),
    ]
