"""The client of XNetEndpoints: pulls certified slices from the nodes of remote subnets into a pool (X-9, X-15).

Nodes are strangers. A request has a deadline for all of it and an answer a length; redirects are not followed, nothing
is unpacked, no cookies are kept; and what came is pooled only when the remote subnet's key says that it holds. Whoever
fails is left alone for a while, and another node is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import httpx

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import ProofError
from causeway.proofs.ic.errors import InvalidAppend, TakeBeforeSliceBegin
from causeway.proofs.ic.principals import principal_to_text
from causeway.protocols.ic.slice_pool import SLICE_BYTES, Ask, SlicePool
from causeway.protocols.ic.wire_slices import MAX_SLICE_MESSAGES, SliceReader
from causeway.service.ic.node_choice import FAULT_SECONDS, LYING_SECONDS, UNREACHABLE_SECONDS, NodeChoice
from causeway.service.ic.xnet_endpoint import PROTOBUF, STREAM_PATH
from causeway.service.strangers import client_of_strangers, close, is_address, is_plain

DEADLINE = 5.0
"""Seconds that a request takes at most, from connecting to the last byte of the answer."""

BODY_BYTES = 5 * SLICE_BYTES
"""Longest answer that is read."""

NO_STREAM, REFUSED_BY_BLOCK = "NoStream", "RefusedByBlock"
"""Causes of failures that are no errors: a node knows nothing of a stream of which something was taken already, and a
block refused what the remote subnet certified."""


class NodeFailed(Exception):
    """A node gave no answer that is of use. ``seconds``: for how long it is left alone."""

    def __init__(self, cause: str, seconds: float) -> None:
        self.cause, self.seconds = cause, seconds
        super().__init__(cause)


class TooSlow(NodeFailed):
    """An answer did not come in time: less may."""


@dataclass(frozen=True)
class Remote:
    """A remote subnet: its id, its public key (96 bytes), and the addresses of its nodes.

    Raises:
        InvalidInput: an address is none.
    """

    subnet: bytes
    public_key: bytes
    endpoints: tuple[str, ...]

    def __post_init__(self) -> None:
        for endpoint in self.endpoints:
            if not is_address(endpoint):
                raise InvalidInput(f"{endpoint}: no address of a node; write it as http://HOST:PORT")


@dataclass
class Pulled:
    """What came of pulls: how many slices were pooled, how often a node failed, by cause, and how many pulls had
    nothing in their way: a node answered as it should, or there was no room for more."""

    slices: int = 0
    answered: int = 0
    failures: Counter[str] = field(default_factory=Counter)


class XNetClient:
    """Pulls for one subnet.

    Args:
        own: the subnet's id.
        pool: where slices go; whoever takes from it holds ``lock``.
        reader: reads what comes.
        remotes: the remote subnets.
        seed: of the choice of nodes.
        transport: what carries requests, for tests.
        clock: the time in seconds.
        deadline: seconds that a request takes at most.
        endpoints: where the nodes of a remote subnet serve now; without it, where ``remotes`` says.
    """

    def __init__(
        self,
        own: bytes,
        pool: SlicePool,
        reader: SliceReader,
        remotes: Mapping[bytes, Remote],
        seed: int,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        deadline: float = DEADLINE,
        endpoints: Callable[[bytes], tuple[str, ...]] | None = None,
    ) -> None:
        self.own, self.pool, self._reader, self.clock = own, pool, reader, clock
        self._deadline = deadline
        self._endpoints = endpoints or (lambda subnet: remotes[subnet].endpoints)
        self.remotes = dict(remotes)
        numbered = enumerate(sorted(remotes))
        self._choices = {subnet: NodeChoice(remotes[subnet].endpoints, seed + at) for at, subnet in numbered}
        self.pulled = {subnet: Pulled() for subnet in remotes}
        self._most = dict.fromkeys(remotes, MAX_SLICE_MESSAGES)
        self._client = client_of_strangers(PROTOBUF, deadline, transport=transport)

    async def close(self) -> None:
        """Close all connections."""
        await close(self._client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    def bad_nodes(self, subnet: bytes) -> list[str]:
        """Return the nodes of a remote subnet that are left alone now."""
        return self._choices[subnet].bad(self.clock())

    def pause(self, subnet: bytes) -> float:
        """Return for how many seconds more no node of a remote subnet is asked, 0 if one is now."""
        return self._choices[subnet].pause(self.clock())

    async def pull(self, subnet: bytes) -> bool:
        """Pull one slice from a remote subnet: from the first node of which what it serves holds.

        Returns whether anything new was pooled. What no node should be able to bring about is raised; the node that was
        asked is left alone for a while, so that others are asked next time.
        """
        choice, noted = self._choices[subnet], self.pulled[subnet]
        if (endpoints := self._endpoints(subnet)) != choice.nodes:
            choice.renew(endpoints)
        behind = False
        refused, last_refused = self.pool.refused(subnet)
        if refused:
            noted.failures[REFUSED_BY_BLOCK] = refused
        for node in choice.order(self.clock()):
            asked = self.pool.ask(subnet)
            if asked is None:
                noted.answered += not last_refused
                return False
            asked = replace(asked, msg_limit=min(asked.msg_limit, self._most[subnet]))
            begun = self.clock()
            try:
                data = await self._get(node, asked)
                if data is None and self.pool.has_begun(subnet):
                    raise NodeFailed(NO_STREAM, 0.0)  # it is behind
                new = data is not None and await asyncio.to_thread(self._pool, subnet, asked, data)
            except NodeFailed as error:
                noted.failures[error.cause] += 1
                if isinstance(error, TooSlow):
                    self._most[subnet] = max(asked.msg_limit // 2, 1)
                if error.seconds:
                    choice.failed(node, self.clock(), error.seconds)
                behind = behind or not error.seconds
                continue
            except Exception as error:
                noted.failures[type(error).__name__] += 1
                choice.failed(node, self.clock(), FAULT_SECONDS)
                raise
            choice.answered(node, self.clock() - begun)
            noted.slices += new
            noted.answered += not last_refused
            self._most[subnet] = min(2 * self._most[subnet], MAX_SLICE_MESSAGES)
            return new
        if behind:
            # Nobody has what follows on what is pooled: the next pull begins anew.
            self.pool.drop(subnet)
        return False

    def _pool(self, subnet: bytes, asked: Ask, data: bytes) -> bool:
        """Pool what a node answered; return whether it is new. Raises ``NodeFailed``."""
        before = self.pool.pooled(subnet)
        try:
            found = self._reader.decode(data)
            if asked.is_suffix:
                self.pool.append(subnet, found, asked.pooled)
            else:
                self.pool.put(subnet, found)
        except (InvalidAppend, TakeBeforeSliceBegin) as error:
            # An honest node may be behind, or the pool have moved on meanwhile.
            raise NodeFailed(type(error).__name__, 0.0) from error
        except ProofError as error:
            raise NodeFailed(type(error).__name__, LYING_SECONDS) from error
        after = self.pool.pooled(subnet)
        if before is None or after is None:
            return after is not before
        ours, theirs = before.payload, after.payload
        return (ours.messages_end, ours.header.signals_end) != (theirs.messages_end, theirs.header.signals_end)

    async def _get(self, node: str, asked: Ask) -> bytes | None:
        """Return the slice that a node serves, None when it has no stream to us. Raises ``NodeFailed``."""
        url = f"{node.rstrip('/')}{STREAM_PATH}{principal_to_text(self.own)}"
        query = {
            "msg_begin": asked.msg_begin,
            "witness_begin": asked.witness_begin,
            "msg_limit": asked.msg_limit,
            "byte_limit": asked.byte_limit,
        }
        content = bytearray()
        try:
            async with asyncio.timeout(self._deadline), self._client.stream("GET", url, params=query) as response:
                status, kind = response.status_code, response.headers.get("content-type", "")
                if status == 200 and kind.split(";")[0].strip() != PROTOBUF:
                    raise NodeFailed("NoSlice", LYING_SECONDS)
                if not is_plain(response):
                    raise NodeFailed("Compressed", LYING_SECONDS)
                async for piece in response.aiter_bytes():
                    if len(content) + len(piece) > BODY_BYTES:
                        raise NodeFailed("TooLong", LYING_SECONDS)
                    content += piece
        except (httpx.ReadTimeout, TimeoutError) as error:
            raise TooSlow(type(error).__name__, UNREACHABLE_SECONDS) from error
        except httpx.HTTPError as error:
            raise NodeFailed(type(error).__name__, UNREACHABLE_SECONDS) from error
        match status:
            case 200:
                return bytes(content)
            case 204:
                return None
            case 416:
                raise NodeFailed("OutOfRange", 0.0)
            case _:
                raise NodeFailed(f"Status{status}", UNREACHABLE_SECONDS)
