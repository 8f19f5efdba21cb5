"""Client of a served lake of zones: each read of a relay process as a request."""

from __future__ import annotations

import json

from causeway.protocols.ibc.relay.accounts import COUNTS
from causeway.protocols.shared.limits import MAX_ANSWER_BYTES
from causeway.service.http.client import RequestRefused, ServiceClient, ServiceError, path_part
from causeway.service.ibc import answers
from causeway.service.ibc.relay_state import LaneView, view_from_answer
from causeway.service.keys.signing import carrier_number


class ZoneLakeClient(ServiceClient):
    """Client of one served lake of zones; all methods raise the errors of ``ServiceClient.ask``."""

    @property
    def number(self) -> int:
        """Number of the fee account, derived from the key."""
        return carrier_number(self.key.public)

    async def status(self) -> answers.ZoneStatusAnswer:
        """Return the chains, connections and options of the network."""
        return await self.ask(answers.ZoneStatusAnswer, "GET", "/v1/status")

    async def lane(self, chain: str, counterparty: str, packets_from: int = 0, receipts_from: int = 0) -> LaneView:
        """Return a chain's queues for a counterparty, and its client of it, at its last height.

        Args:
            chain: Name of the chain.
            counterparty: Name of the counterparty.
            packets_from: First index of the packets to list.
            receipts_from: First index of the receipts to list.
        """
        path = f"/v1/chains/{path_part(chain)}/queues/{path_part(counterparty)}"
        query = {"packets_from": packets_from, "receipts_from": receipts_from}
        found = await self.ask(answers.LaneAnswer, "GET", path, query)
        if (found.chain, found.counterparty) != (chain, counterparty):
            raise ServiceError(f"{self.url}{path}: another lane than that asked for")
        return view_from_answer(found)

    async def lane_at(
        self, chain: str, counterparty: str, height: int, packets_from: int = 0, receipts_from: int = 0
    ) -> LaneView | None:
        """Return a lane as of a height, or None if the lake has not stored that height.

        Args:
            chain: Name of the chain.
            counterparty: Name of the counterparty.
            height: The height.
            packets_from: First index of the packets to list.
            receipts_from: First index of the receipts to list.
        """
        path = f"/v1/chains/{path_part(chain)}/queues/{path_part(counterparty)}"
        query = {"packets_from": packets_from, "receipts_from": receipts_from, "height": height}
        try:
            found = await self.ask(answers.LaneAnswer, "GET", path, query)
        except RequestRefused:
            return None
        if (found.chain, found.counterparty, found.height) != (chain, counterparty, height):
            raise ServiceError(f"{self.url}{path}: another lane, or another height, than that asked for")
        return view_from_answer(found)

    async def header(self, chain: str, height: int) -> bytes:
        """Return the signed header of a chain at a height."""
        path = f"/v1/chains/{path_part(chain)}/header"
        found = (
            await self.ask(answers.SignedHeaderAnswer, "GET", path, {"height": height}, most=MAX_ANSWER_BYTES)
        ).signed_header
        if found is None:
            raise ServiceError(f"{self.url}{path}: no signed header of height {height}")
        return found

    async def proofs(self, chain: str, height: int, keys: tuple[bytes, ...]) -> list[tuple[bytes, bytes] | None]:
        """Return value and proof of each key in a chain's store at a height.

        An absent key has an empty value with the proof of absence, or None without one. A lake may answer only the
        first keys; the rest is requested again.

        Args:
            chain: Name of the chain.
            height: The height.
            keys: The keys.
        """
        path = f"/v1/chains/{path_part(chain)}/proofs"
        found: list[tuple[bytes, bytes] | None] = []
        while len(found) < len(keys):
            left = keys[len(found) :]
            body = json.dumps({"height": height, "keys": [key.hex() for key in left]}).encode()
            rows = (
                await self.ask(answers.ProofsAnswer, "POST", path, body=body, most=MAX_ANSWER_BYTES, again=True)
            ).proofs
            if [row.key for row in rows] != list(left[: len(rows)]):
                raise ServiceError(f"{self.url}{path}: other keys than those asked for")
            found += [None if row.proof is None else (row.value or b"", row.proof) for row in rows]
        return found

    async def packets(self, chain: str, counterparty: str, height: int, first: int, count: int) -> list[bytes]:
        """Return the values of at most ``count`` contiguous packets from index ``first`` on."""
        path = f"/v1/chains/{path_part(chain)}/queues/{path_part(counterparty)}/send"
        query = {"height": height, "first": first, "count": count}
        rows = (await self.ask(answers.EntriesAnswer, "GET", path, query, most=MAX_ANSWER_BYTES)).entries[:count]
        return [row.value for position, row in enumerate(rows) if row.index == first + position]

    async def account(self, chain: str, relayer: int) -> dict[str, int]:
        """Return a relayer's fee account with a chain; empty before its first transaction."""
        path = f"/v1/chains/{path_part(chain)}/relayers"
        found = await self.ask(answers.RelayersAnswer, "GET", path, {"relayer": relayer})
        mine = (row for row in found.relayers if row.number == relayer)
        return {name: getattr(row, name) for row in mine for name in COUNTS}

    async def refusals(self, chain: str, height: int, relayer: int) -> dict[str, int]:
        """Return the number of a relayer's refused calls in a block, by error."""
        path = f"/v1/chains/{path_part(chain)}/refusals"
        return (await self.ask(answers.RefusalsAnswer, "GET", path, {"height": height, "relayer": relayer})).refused
