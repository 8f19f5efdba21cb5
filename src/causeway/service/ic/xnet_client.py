"""Client of XNetEndpoints: pulls certified slices into a pool (IC reference X-9, X-15).

Remote nodes are untrusted. A request has a deadline and a maximum size; redirects, compression and cookies are
off; a slice is pooled only if the remote subnet's key certifies it. A failing node is excluded for a while, and
another one is asked. ``NodeChoice`` prefers near nodes (X-9). ``StallDetector`` reports stalls and their ends in
few log lines. Both are sans I/O: the caller supplies the time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import httpx
from causeway_proofs import errors as proof_errors
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.ic import errors as ic_errors
from causeway_proofs.ic.errors import InvalidAppend, TakeBeforeSliceBegin
from causeway_proofs.ic.primitives import principal_to_text

from causeway.protocols.ic.streams.remote_slices import MAX_SLICE_MESSAGES, SliceReader
from causeway.protocols.ic.streams.slice_pool import SLICE_BYTES, SlicePool, SliceRequest
from causeway.service.http.client import close_client, create_untrusted_client, is_address, is_plain
from causeway.service.ic.xnet_endpoint import PROTOBUF, STREAM_PATH

LEAST_RTT, MOST_RTT = 1e-6, 1.0
"""Bounds of round-trip times in seconds."""

NEWEST = 0.2
"""Weight of the newest round-trip time in the average."""

UNREACHABLE_SECONDS = 0.5
LYING_SECONDS = 60.0
"""Exclusion of an unreachable and of a lying node, doubled for each failure in a row up to ``LONGEST`` times."""

FAULT_SECONDS = 2.0
"""Exclusion of a node whose answer caused a local fault."""

LONGEST = 16


@dataclass
class _Node:
    rtt: float | None = None
    bad_until: float = 0.0
    failures: int = 0


class NodeChoice:
    """Nodes of one remote subnet with their statistics.

    Args:
        nodes: Addresses of the nodes.
        seed: Seed of the choices.
    """

    def __init__(self, nodes: Sequence[str], seed: int) -> None:
        self._nodes = {node: _Node() for node in nodes}
        self._draw = random.Random(seed)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Addresses of the nodes."""
        return tuple(self._nodes)

    def renew(self, nodes: Sequence[str]) -> None:
        """Replace the nodes; remaining ones keep their statistics."""
        self._nodes = {node: self._nodes.get(node) or _Node() for node in nodes}

    def order(self, now: float) -> Iterator[str]:
        """Yield nodes to ask until one answers.

        Each is drawn with weight 1000 / average round-trip time (ms) among the rest. Excluded nodes are not
        asked, even if all are.
        """
        candidates = [name for name, node in self._nodes.items() if node.bad_until <= now]
        while candidates:
            found = self._draw.choices(candidates, [self._weight(name) for name in candidates])[0]
            candidates.remove(found)
            yield found

    def _weight(self, name: str) -> float:
        known = [node.rtt for node in self._nodes.values() if node.rtt is not None]
        rtt = self._nodes[name].rtt
        # An unknown node counts as the nearest, so that it is tried.
        rtt = min(known, default=MOST_RTT) if rtt is None else rtt
        return 1000.0 / (1000.0 * rtt)

    def answered(self, name: str, seconds: float) -> None:
        """Record a valid answer and its duration in seconds."""
        node = self._nodes[name]
        seconds = min(max(seconds, LEAST_RTT), MOST_RTT)
        node.rtt = seconds if node.rtt is None else node.rtt + NEWEST * (seconds - node.rtt)
        node.failures, node.bad_until = 0, 0.0

    def failed(self, name: str, now: float, seconds: float) -> None:
        """Record a failure; exclude the node for ``seconds``, longer after previous failures."""
        node = self._nodes[name]
        node.bad_until = now + seconds * min(2**node.failures, LONGEST)
        node.failures = min(node.failures + 1, LONGEST)
        node.rtt = MOST_RTT

    def pause(self, now: float) -> float:
        """Return the seconds until a node can be asked, 0 if one can now."""
        return max(min((node.bad_until for node in self._nodes.values()), default=now) - now, 0.0)

    def bad(self, now: float) -> list[str]:
        """Return the excluded nodes."""
        return [name for name, node in self._nodes.items() if node.bad_until > now]


DEADLINE = 5.0
"""Deadline of a request in seconds, including the answer."""

BODY_BYTES = 5 * SLICE_BYTES
"""Maximum size of an answer."""

NO_STREAM, REFUSED_BY_BLOCK = "NoStream", "RefusedByBlock"
"""Causes other than errors: a node without a known stream, and a slice refused by a block."""


class NodeFailed(Exception):
    """Useless answer of a node; ``seconds`` is its exclusion."""

    def __init__(self, cause: str, seconds: float) -> None:
        self.cause, self.seconds = cause, seconds
        super().__init__(cause)


class TooSlow(NodeFailed):
    """Late answer; a smaller request may succeed."""


@dataclass(frozen=True)
class RemoteNodes:
    """Remote subnet: its id, public key (96 bytes), and the addresses of its nodes.

    Raises:
        InvalidInput: An address is invalid.
    """

    subnet: bytes
    public_key: bytes
    endpoints: tuple[str, ...]

    def __post_init__(self) -> None:
        for endpoint in self.endpoints:
            if not is_address(endpoint):
                raise InvalidInput(f"{endpoint}: no address of a node; write it as http://HOST:PORT")


@dataclass
class PullCounts:
    """Counts of pulls.

    Attributes:
        slices: Pooled slices.
        answered: Pulls without an obstacle: a proper answer, or a full pool.
        failures: Failures by cause.
    """

    slices: int = 0
    answered: int = 0
    failures: Counter[str] = field(default_factory=Counter)


class XNetClient:
    """Client that pulls for one subnet.

    Args:
        own: Id of the subnet.
        pool: Pool for the slices.
        reader: Decoder of slices.
        remotes: The remote subnets.
        seed: Seed of the node choices.
        transport: Transport, for tests.
        clock: Source of the time in seconds.
        deadline: Deadline of a request in seconds.
        endpoints: Source of a remote subnet's current nodes; by default those of ``remotes``.
    """

    def __init__(
        self,
        own: bytes,
        pool: SlicePool,
        reader: SliceReader,
        remotes: Mapping[bytes, RemoteNodes],
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
        self.pulled = {subnet: PullCounts() for subnet in remotes}
        self._most = dict.fromkeys(remotes, MAX_SLICE_MESSAGES)
        self._client = create_untrusted_client(PROTOBUF, deadline, transport=transport)

    async def close(self) -> None:
        """Close all connections."""
        await close_client(self._client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    def excluded_nodes(self, subnet: bytes) -> list[str]:
        """Return the excluded nodes of a remote subnet."""
        return self._choices[subnet].bad(self.clock())

    def pause(self, subnet: bytes) -> float:
        """Return the seconds until a node of a remote subnet can be asked, 0 if one can now."""
        return self._choices[subnet].pause(self.clock())

    async def pull(self, subnet: bytes) -> bool:
        """Pull one slice of a remote subnet from the first node with a valid answer.

        An unexpected error is raised and excludes the node for a while, so that the next pull asks another.

        Args:
            subnet: Id of the remote subnet.

        Returns:
            True if something new was pooled.
        """
        choice, counts = self._choices[subnet], self.pulled[subnet]
        if (endpoints := self._endpoints(subnet)) != choice.nodes:
            choice.renew(endpoints)
        behind = False
        refused, last_refused = self.pool.refused(subnet)
        if refused:
            counts.failures[REFUSED_BY_BLOCK] = refused
        for node in choice.order(self.clock()):
            request = self.pool.ask(subnet)
            if request is None:
                counts.answered += not last_refused
                return False
            request = replace(request, msg_limit=min(request.msg_limit, self._most[subnet]))
            started = self.clock()
            try:
                data = await self._get(node, request)
                if data is None and self.pool.has_started(subnet):
                    raise NodeFailed(NO_STREAM, 0.0)  # the node is behind
                new = data is not None and await asyncio.to_thread(self._pool, subnet, request, data)
            except NodeFailed as error:
                counts.failures[error.cause] += 1
                if isinstance(error, TooSlow):
                    self._most[subnet] = max(request.msg_limit // 2, 1)
                if error.seconds:
                    choice.failed(node, self.clock(), error.seconds)
                behind = behind or not error.seconds
                continue
            except Exception as error:
                counts.failures[type(error).__name__] += 1
                choice.failed(node, self.clock(), FAULT_SECONDS)
                raise
            choice.answered(node, self.clock() - started)
            counts.slices += new
            counts.answered += not last_refused
            self._most[subnet] = min(2 * self._most[subnet], MAX_SLICE_MESSAGES)
            return new
        if behind:
            # No node has the continuation of the pooled slice: restart with the next pull.
            self.pool.drop(subnet)
        return False

    def _pool(self, subnet: bytes, request: SliceRequest, data: bytes) -> bool:
        """Pool an answer; return True if it is new.

        Raises:
            NodeFailed: The slice is invalid.
        """
        before = self.pool.pooled(subnet)
        try:
            found = self._reader.decode(data)
            if request.is_suffix:
                self.pool.append(subnet, found, request.pooled)
            else:
                self.pool.put(subnet, found)
        except (InvalidAppend, TakeBeforeSliceBegin) as error:
            # An honest node may be behind, or the pool may have advanced.
            raise NodeFailed(type(error).__name__, 0.0) from error
        except ProofError as error:
            raise NodeFailed(type(error).__name__, LYING_SECONDS) from error
        after = self.pool.pooled(subnet)
        if before is None or after is None:
            return after is not before
        old_payload, new_payload = before.payload, after.payload
        return (old_payload.messages_end, old_payload.header.signals_end) != (
            new_payload.messages_end,
            new_payload.header.signals_end,
        )

    async def _get(self, node: str, request: SliceRequest) -> bytes | None:
        """Return the slice from a node, or None if it has no stream to this subnet.

        Raises:
            NodeFailed: The node gave no usable answer.
        """
        url = f"{node.rstrip('/')}{STREAM_PATH}{principal_to_text(self.own)}"
        query = {
            "msg_begin": request.msg_begin,
            "witness_begin": request.witness_begin,
            "msg_limit": request.msg_limit,
            "byte_limit": request.byte_limit,
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


STILL_SECONDS, LONGEST_SILENCE = 10.0, 600.0
"""Seconds without a useful pull before a stall is reported, and the maximum interval of repetitions.

The interval doubles each time.
"""

MOST_ADVICE = 2
"""Maximum number of hints in a line, for the most frequent failures."""

_DOWN = "no node answers: is the other lake served, and at options.remote.{name}.endpoints"
_STATUS = "nodes refuse to answer, or something else does at options.remote.{name}.endpoints"
_KEY = "options.remote.{name}.public_key is not the key that signed it"
_BEHIND = "the other lake has less than was taken of it: an older copy of it, or another options.index_base"
_FALSE = "nodes serve uncertified data: they are faulty, or have another options.certification_version"
_BLOCK = "blocks refuse data that the other subnet certified: see the rejected events of the ledger"

_FAULT = "errors of this side: the lines with the event fault say where"

_ADVICE = {
    **dict.fromkeys(("TimeoutError", *httpx.__all__), _DOWN),
    **{name: _FALSE for errors in (proof_errors, ic_errors) for name in vars(errors)},
    "InvalidSignature": _KEY,
    "OutOfRange": _BEHIND,
    NO_STREAM: _BEHIND,
    "SignalsEndRegresses": _BEHIND,
    "TakeBeforeSliceBegin": _BEHIND,
    "NoSlice": _STATUS,
    "Compressed": _STATUS,
    "TooLong": _STATUS,
    REFUSED_BY_BLOCK: _BLOCK,
}
"""Hints by cause of failure."""


@dataclass(frozen=True)
class PullsStalled:
    """Stall of ``seconds`` with its failures by cause."""

    seconds: float
    failures: Mapping[str, int]

    def advice(self, name: str) -> str:
        """Return hints for the operator; ``name`` is the remote subnet's."""
        counts: Counter[str] = Counter()
        for cause, count in self.failures.items():
            counts[_ADVICE.get(cause, _STATUS if cause.startswith("Status") else _FAULT)] += count
        return "; ".join(text.format(name=name) for text, _ in counts.most_common(MOST_ADVICE))


@dataclass(frozen=True)
class PullsResumed:
    """End of a stall of ``seconds``."""

    seconds: float


class StallDetector:
    """Stall detection for the pulls of one subnet from another."""

    def __init__(self) -> None:
        self._answered = 0
        self._before: Counter[str] = Counter()
        self._since: float | None = None
        self._due = self._pause = 0.0

    def look(self, now: float, pulled: PullCounts) -> PullsStalled | PullsResumed | None:
        """Return a report if one is due.

        Args:
            now: Time in seconds.
            pulled: Counts of all pulls so far.
        """
        if pulled.answered != self._answered:
            since, reported = self._since, self._pause > STILL_SECONDS
            self._answered, self._before, self._since = pulled.answered, Counter(pulled.failures), None
            self._pause = STILL_SECONDS
            return PullsResumed(now - since) if since is not None and reported else None
        failures = pulled.failures - self._before
        if self._since is None and failures:
            self._since, self._due, self._pause = now, now + STILL_SECONDS, STILL_SECONDS
        if self._since is None or now < self._due:
            return None
        self._pause = min(2 * self._pause, LONGEST_SILENCE)
        self._due = now + self._pause
        return PullsStalled(now - self._since, failures)
