"""The client of XNetEndpoints: pulls certified slices from the nodes of remote subnets into a pool (X-9, X-15).

Nodes are strangers. A request has a deadline for all of it and an answer a length; redirects are not followed, nothing
is unpacked, no cookies are kept; and what came is pooled only when the remote subnet's key says that it holds. Whoever
fails is left alone for a while, and another node is asked.

Which node of a remote subnet is asked: near ones more often, bad ones not for a while (IC reference X-9).

Sans I/O: the caller says what time it is. A choice is a function of the seed and of what happened before.

Notices that nothing comes from a remote subnet any more, and that it goes on: said in few lines, whatever fails.

Sans I/O: after each pull, the caller says what time it is and what came of all pulls so far.
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
"""Between these (seconds) round-trip times count."""

NEWEST = 0.2
"""How much the newest round-trip time counts in the average."""

UNREACHABLE_SECONDS = 0.5
LYING_SECONDS = 60.0
"""For so long a node is left alone that did not answer in time, or served what does not hold; twice as long each time
in a row, up to ``LONGEST`` times as long."""

FAULT_SECONDS = 2.0
"""For so long a node is left alone whose answer led to a fault of this side: others are asked first."""

LONGEST = 16


@dataclass
class _Node:
    rtt: float | None = None
    bad_until: float = 0.0
    failures: int = 0


class NodeChoice:
    """The nodes of one remote subnet, as they answered so far. ``seed``: of the draws."""

    def __init__(self, nodes: Sequence[str], seed: int) -> None:
        self._nodes = {node: _Node() for node in nodes}
        self._draw = random.Random(seed)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that may be asked."""
        return tuple(self._nodes)

    def renew(self, nodes: Sequence[str]) -> None:
        """Ask other nodes from now on; those that stay are as they answered so far."""
        self._nodes = {node: self._nodes.get(node) or _Node() for node in nodes}

    def order(self, now: float) -> Iterator[str]:
        """Yield the nodes to ask, one after the other until one answers.

        Each is drawn with the weight 1000 / average round-trip time (milliseconds) among those left; those that are
        left alone are not asked, even if all are: the first one is when its time is over.
        """
        left = [name for name, node in self._nodes.items() if node.bad_until <= now]
        while left:
            found = self._draw.choices(left, [self._weight(name) for name in left])[0]
            left.remove(found)
            yield found

    def _weight(self, name: str) -> float:
        known = [node.rtt for node in self._nodes.values() if node.rtt is not None]
        rtt = self._nodes[name].rtt
        # One of which nothing is known counts as the nearest: else it would never be known.
        rtt = min(known, default=MOST_RTT) if rtt is None else rtt
        return 1000.0 / (1000.0 * rtt)

    def answered(self, name: str, seconds: float) -> None:
        """Take notice that a node answered after so many seconds, and that what it served holds."""
        node = self._nodes[name]
        seconds = min(max(seconds, LEAST_RTT), MOST_RTT)
        node.rtt = seconds if node.rtt is None else node.rtt + NEWEST * (seconds - node.rtt)
        node.failures, node.bad_until = 0, 0.0

    def failed(self, name: str, now: float, seconds: float) -> None:
        """Take notice that a node failed; it is left alone for ``seconds``, longer if it failed before, too."""
        node = self._nodes[name]
        node.bad_until = now + seconds * min(2**node.failures, LONGEST)
        node.failures = min(node.failures + 1, LONGEST)
        node.rtt = MOST_RTT

    def pause(self, now: float) -> float:
        """Return for how many seconds more nobody is asked, 0 if somebody is now."""
        return max(min((node.bad_until for node in self._nodes.values()), default=now) - now, 0.0)

    def bad(self, now: float) -> list[str]:
        """Return the nodes that are left alone now."""
        return [name for name, node in self._nodes.items() if node.bad_until > now]


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
class RemoteNodes:
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
class PullCounts:
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
                if data is None and self.pool.has_started(subnet):
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

    def _pool(self, subnet: bytes, asked: SliceRequest, data: bytes) -> bool:
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

    async def _get(self, node: str, asked: SliceRequest) -> bytes | None:
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


STILL_SECONDS, LONGEST_SILENCE = 10.0, 600.0
"""An exchange stands still when for so long no pull was of use; then that is said again after twice as long, four times
as long, and so on, up to the longest."""

MOST_ADVICE = 2
"""Kinds of failures of which one line says what to look at: the most frequent ones."""

_DOWN = "no node answers: is the other lake served, and at options.remote.{name}.endpoints"
_STATUS = "nodes refuse to answer, or something else does at options.remote.{name}.endpoints"
_KEY = "options.remote.{name}.public_key is not the key that signed it"
_BEHIND = "the other lake has less than was taken of it: an older copy of it, or another options.index_base"
_FALSE = "nodes serve what was not certified: they lie, or have another options.certification_version"
_BLOCK = "blocks refuse what the other subnet certifies: the ledger's rejected events say why"

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
"""What to look at, by the name of what went wrong."""


@dataclass(frozen=True)
class PullsStalled:
    """For ``seconds`` no pull was of use; ``failures``: what went wrong since, by cause."""

    seconds: float
    failures: Mapping[str, int]

    def advice(self, name: str) -> str:
        """Return what to look at. ``name``: of the remote subnet."""
        counts: Counter[str] = Counter()
        for cause, count in self.failures.items():
            counts[_advice(cause)] += count
        return "; ".join(text.format(name=name) for text, _ in counts.most_common(MOST_ADVICE))


@dataclass(frozen=True)
class PullsResumed:
    """A pull was of use, after ``seconds`` in which none was."""

    seconds: float


class StallDetector:
    """How the pulls of one subnet from another one go."""

    def __init__(self) -> None:
        self._answered = 0
        self._before: Counter[str] = Counter()
        self._since: float | None = None
        self._due = self._pause = 0.0

    def look(self, now: float, pulled: PullCounts) -> PullsStalled | PullsResumed | None:
        """Return what is to be said at a time, None if nothing is. ``pulled``: what came of all pulls so far."""
        if pulled.answered != self._answered:
            since, told = self._since, self._pause > STILL_SECONDS
            self._answered, self._before, self._since = pulled.answered, Counter(pulled.failures), None
            self._pause = STILL_SECONDS
            return PullsResumed(now - since) if since is not None and told else None
        failures = pulled.failures - self._before
        if self._since is None and failures:
            self._since, self._due, self._pause = now, now + STILL_SECONDS, STILL_SECONDS
        if self._since is None or now < self._due:
            return None
        self._pause = min(2 * self._pause, LONGEST_SILENCE)
        self._due = now + self._pause
        return PullsStalled(now - self._since, failures)


def _advice(cause: str) -> str:
    return _ADVICE.get(cause, _STATUS if cause.startswith("Status") else _FAULT)
