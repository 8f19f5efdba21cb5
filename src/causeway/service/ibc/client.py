"""The client of a served lake of zones: each question of a relay process as a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from causeway.service.http_client import ServiceClient, path_part
from causeway.service.ibc.lanes import LaneView, lane_view


class LakeClient(ServiceClient):
    """The addresses of one served lake of zones."""

    async def lane(self, chain: str, remote: str, packets_from: int = 0, receipts_from: int = 0) -> LaneView:
        """Return both queues that a chain has for ``remote``, and its client of it, at its last height.

        Of entries below ``packets_from`` and ``receipts_from`` nothing is told.
        """
        path = f"/v1/chains/{path_part(chain)}/queues/{path_part(remote)}"
        query = {"packets_from": packets_from, "receipts_from": receipts_from}
        return self.understood(path, lane_view, await self.ask("GET", path, query))

    async def header(self, chain: str, height: int) -> bytes:
        """Return the signed header of a chain at a height."""
        path = f"/v1/chains/{path_part(chain)}/header"
        content = await self.ask("GET", path, {"height": height})
        return self.understood(path, lambda found: bytes.fromhex(found["signed_header"]), content)

    async def proofs(self, chain: str, height: int, keys: tuple[bytes, ...]) -> list[tuple[bytes, bytes] | None]:
        """Return value and proof of each key in the store of a chain at a height, None where there is nothing."""
        path = f"/v1/chains/{path_part(chain)}/proofs"
        body = json.dumps({"height": height, "keys": [key.hex() for key in keys]}).encode()
        content = await self.ask("POST", path, body=body, again=True)

        def read(found: Mapping[str, Any]) -> list[tuple[bytes, bytes] | None]:
            rows = found["proofs"]
            if [bytes.fromhex(row["key"]) for row in rows] != list(keys):
                raise ValueError("other keys than those asked for")
            return [
                None if row["proof"] is None else (bytes.fromhex(row["value"]), bytes.fromhex(row["proof"]))
                for row in rows
            ]

        return self.understood(path, read, content)

    async def packets(self, chain: str, remote: str, height: int, first: int, count: int) -> list[bytes]:
        """Return the values of packets from index ``first`` on, without a gap, at most ``count``."""
        path = f"/v1/chains/{path_part(chain)}/queues/{path_part(remote)}/send"
        content = await self.ask("GET", path, {"height": height, "first": first, "count": count})

        def read(found: Mapping[str, Any]) -> list[bytes]:
            rows = found["entries"]
            unbroken = [row for place, row in enumerate(rows) if row["index"] == first + place]
            return [bytes.fromhex(row["value"]) for row in unbroken]

        return self.understood(path, read, content)

    async def account(self, chain: str, relayer: int) -> dict[str, int]:
        """Return a relayer's fee account with a chain; empty before its first transaction."""
        path = f"/v1/chains/{path_part(chain)}/relayers"
        content = await self.ask("GET", path)

        def read(found: Mapping[str, Any]) -> dict[str, int]:
            rows = [row for row in found["relayers"] if row.get("number") == relayer]
            return {name: int(value) for row in rows for name, value in row.items() if name != "number"}

        return self.understood(path, read, content)

    async def refusals(self, chain: str, height: int, relayer: int) -> dict[str, int]:
        """Return how many calls of a relayer were refused in the block of a height, by the error's name."""
        path = f"/v1/chains/{path_part(chain)}/refusals"
        content = await self.ask("GET", path, {"height": height, "relayer": relayer})
        return self.understood(
            path, lambda found: {str(name): int(count) for name, count in found["refused"].items()}, content
        )
