"""What a lake of subnets exchanges with lakes elsewhere: its nodes serve certified streams, and it pulls what remote
subnets serve into its blocks (IC reference 3.8, 3.10, X-9, X-15).

Nothing that is pulled is believed for whom it came from: the remote subnet's key certifies it, before it waits for a
block and again in the block, and with the block's record whoever executes the lake again verifies it a third time.

The certified streams of a subnet as the lake has them, for its endpoint: without a session of anything, and while
the lake goes on.

What is served follows the newest certified state: when a request comes and the lake has gone on, the table ``offers``
of the last height says header, way to the root and certification of each stream, and the messages that came since are
read from the heights that the segments of the streams name.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import ProofError
from causeway_proofs.ic.certified_streams import OfferedStreams
from causeway_proofs.ic.primitives import CertificationVersion
from causeway_proofs.ic.slice import decode_certification, encode_certified_stream_slice
from causeway_proofs.ic.stream_columns import encode_stream_messages
from causeway_proofs.ic.stream_header import decode_stream_header
from causeway_proofs.order import group_rows, stable_order

from causeway.config.traffic import CARRIED_SCHEMA
from causeway.core.frame import Frame, concat, empty_frame, from_table
from causeway.network.opened_lake import Mask, OpenedLake
from causeway.protocols.ic.fault_kinds import DOWN, LYING, SLOW, STALE
from causeway.protocols.ic.faults import find_faulty_nodes
from causeway.protocols.ic.ids import subnet_id
from causeway.protocols.ic.kernel import IcKernel
from causeway.protocols.ic.options import listen_address
from causeway.protocols.ic.streams.certified_slices import has_certification as is_certified
from causeway.protocols.ic.streams.endpoint import most_messages
from causeway.protocols.ic.streams.remote_slices import MESSAGES_SCHEMA, SliceReader
from causeway.protocols.ic.streams.slice_pool import SlicePool, StreamPosition
from causeway.protocols.shared.messages import MESSAGE_COLUMNS
from causeway.service.ic.xnet_client import PullsResumed, PullsStalled, RemoteNodes, StallDetector, XNetClient
from causeway.service.ic.xnet_endpoint import SLOW_SECONDS, STALE_HEIGHTS, ServingFaults, SliceTamperer, XNetNode
from causeway.service.node.endpoint import ExchangeLog, ExtraAddress
from causeway.storage.lake import Freed, Manifest

READ = MESSAGES_SCHEMA.names


class LakeStreams:
    """The certified streams of the subnet at a position of a lake.

    Args:
        opened: the lake.
        position: the subnet's.
        version: of the encodings.
        lag: heights of the lake that are left out: of a node that is behind.
    """

    def __init__(self, opened: OpenedLake, position: int, version: CertificationVersion, lag: int = 0) -> None:
        self._opened, self._position, self._version, self._lag = opened, position, version, lag
        numbers = [int(item["number"]) for item in opened.about["chains"]]
        self._ids = [subnet_id(number) for number in numbers]
        self._height = -1
        self._streams = OfferedStreams(version)
        self._lock = threading.Lock()

    def newest(self) -> OfferedStreams:
        """Return the streams as they were certified last.

        Where a vacuum has freed the state of the height, they are those that were returned before, at first none: a
        node without the state serves what it has.

        Raises:
            LakeError: the lake cannot be read (``ReplayDiffers``, ``ReplayBusy``: as of ``OpenedLake.state_rows``).
        """
        height = self._opened.last_height() - self._lag
        with self._lock:
            if height > self._height:
                with suppress(Freed):
                    self._move_to(self._opened.manifest(height))
                    self._height = height
        return self._streams

    def _move_to(self, manifest: Manifest) -> None:
        offers = self._rows(manifest, "offers")
        certified = pc.binary_length(offers["certification"]).to_numpy(zero_copy_only=False) > 0
        offers = offers.filter(certified & (offers["source"] != offers["destination"]))
        lanes = group_rows(offers["destination"])
        newest = offers.take(lanes.starts + lanes.counts - 1)
        wanted: dict[int, tuple[int, int]] = {}
        for row, destination in enumerate(newest["destination"].tolist()):
            header = decode_stream_header(newest["header"][row].as_py(), self._version)
            end = self._streams.end(self._ids[destination])
            wanted[destination] = (header.begin if end is None else max(header.begin, end), header.end)
        messages = self._messages(manifest, wanted)
        for row, destination in enumerate(newest["destination"].tolist()):
            self._streams.update(
                self._ids[destination],
                newest["header"][row].as_py(),
                messages[destination],
                newest["path"][row].as_py(),
                decode_certification(newest["certification"][row].as_py()),
            )
        for subnet in self._streams.subnets_with_certified_streams():
            if self._ids.index(subnet) not in wanted:
                self._streams.drop(subnet)

    def _messages(self, manifest: Manifest, wanted: dict[int, tuple[int, int]]) -> dict[int, pa.BinaryArray]:
        """Return the encoded messages [begin, end) that are wanted of each destination."""
        runs = concat([self._rows(manifest, table) for table in ("trimmed_runs", "runs")])
        begin = np.array([wanted.get(chain, (0, 0))[0] for chain in runs["destination"].tolist()], dtype=np.uint64)
        end = np.array([wanted.get(chain, (0, 0))[1] for chain in runs["destination"].tolist()], dtype=np.uint64)
        runs = runs.filter((runs["first"] < end) & (runs["first"] + runs["count"] > begin))
        rows = concat([empty_frame(MESSAGES_SCHEMA), *self._outbound(sorted(set(runs["height"].tolist())))])
        found = {}
        for destination, (first, stop) in wanted.items():
            mine = (rows["destination"] == destination) & (rows["index"] >= first) & (rows["index"] < stop)
            of_lane = rows.filter(mine)
            of_lane = of_lane.take(stable_order(of_lane["index"]))
            columns = {name: of_lane[name] for name in MESSAGE_COLUMNS}
            found[destination] = encode_stream_messages(columns, self._version)
        return found

    def _outbound(self, heights: Iterable[int]) -> Iterable[Frame]:
        """Yield what the subnet appended to its streams at some heights."""

        def mine(batch: pa.RecordBatch) -> Mask:
            mask: Mask = batch["source"].to_numpy() == self._position
            return mask

        for height in heights:
            rows = self._opened.log_rows("outbound", height, self._position, READ, mine)
            if rows is not None and rows.num_rows:
                yield from_table(rows)

    def _rows(self, manifest: Manifest, table: str) -> Frame:
        """Return the subnet's rows of a state table."""
        return self._opened.state_rows(manifest, table, self._position, lambda owners: owners)


PAUSE = 0.05
"""Seconds between two pulls from a subnet that had nothing new."""

FAILED_SECONDS, LONGEST_FAILED = 1.0, 60.0
"""For so long a subnet is not asked after an error of this side; twice as long each time in a row, up to the longest.
"""


MOST_UNCERTIFIED = 100
"""After so many blocks beyond the delay of certification none are made for it on demand: too few nodes sign."""

Offer = tuple[int, int | None, int | None, int]
"""What decides about whether a block can take a slice: begin of the stream, its messages, end of its signals."""

Ends = tuple[int, int]
"""Where the messages of a stream end, and its signals."""


class LakeNode:
    """How one node of a subnet of a lake serves, with the faults that the scenario gives it at the lake's tick."""

    def __init__(self, opened: OpenedLake, kernel: IcKernel, fresh: LakeStreams, position: int, number: int) -> None:
        self._opened, self._kernel, self._fresh = opened, kernel, fresh
        self._node = (int(kernel.numbers()[position]), number)
        self._behind = LakeStreams(opened, position, kernel.options.version, STALE_HEIGHTS)
        self._liar = SliceTamperer.made()

    def conduct(self) -> ServingFaults:
        """Return how the node serves now."""
        tick = self._opened.manifest().tick

        def does(what: str) -> bool:
            return self._node in find_faulty_nodes(self._kernel.faults, tick, what)

        streams = self._behind if does(STALE) else self._fresh
        delay = SLOW_SECONDS if does(SLOW) else 0.0
        return ServingFaults(streams.newest, self._liar if does(LYING) else None, delay, does(DOWN))


class XNetExchange:
    """The exchange of a served lake (``service.endpoint.Exchange``).

    Raises:
        InvalidInput: a remote address is none.
    """

    def __init__(self, opened: OpenedLake, kernel: IcKernel) -> None:
        self._opened, self._kernel = opened, kernel
        options = kernel.options
        names = kernel.chains()
        self._numbers = kernel.numbers()
        self._external = frozenset(kernel.topology.external)
        self._positions = {name: position for position, name in enumerate(names)}
        self.ids = [subnet_id(int(number)) for number in self._numbers.tolist()]
        own = [position for position, number in enumerate(self._numbers.tolist()) if number not in self._external]
        self.streams = {position: LakeStreams(opened, position, options.version) for position in own}
        self._listening = [
            (f"options.listen.{name}", self._positions[name], node, listen_address(where))
            for name, nodes in options.listen.items()
            for node, where in enumerate(nodes)
        ]
        self.remotes = {
            self.ids[self._positions[name]]: RemoteNodes(
                self.ids[self._positions[name]], bytes.fromhex(remote.public_key), tuple(remote.endpoints)
            )
            for name, remote in options.remote.items()
        }
        self._places = {subnet: self.ids.index(subnet) for subnet in self.remotes}
        self.reader = SliceReader({key: remote.public_key for key, remote in self.remotes.items()}, options.version)
        self.pools = {
            position: SlicePool(partial(self.reader.verify, self.ids[position]), options.index_base)
            for position in (own if self.remotes else ())
        }
        self._left: dict[tuple[int, bytes], Offer | None] = {}
        self._held: dict[tuple[int, bytes], int] = {}
        self._ends: dict[tuple[int, bytes], Ends] = {}
        self._uncertified: dict[int, int] = {}
        self._clients: list[XNetClient] = []
        self._log: ExchangeLog = _NobodyListens()
        self._registry = kernel.registry(opened.manifest().tick + 1)
        if self.pools:
            self.committed(opened.manifest())

    def clients(self, transport: httpx.AsyncBaseTransport | None = None) -> list[XNetClient]:
        """Return the clients that pull, made at the first call; ``transport``: what carries requests, for tests."""
        if not self._clients:
            seed = self._kernel.seed
            self._clients = [
                XNetClient(
                    self.ids[at],
                    pool,
                    self.reader,
                    self.remotes,
                    seed + at,
                    transport=transport,
                    endpoints=partial(self._endpoints, at),
                )
                for at, pool in self.pools.items()
            ]
        return self._clients

    def _endpoints(self, position: int, remote: bytes) -> tuple[str, ...]:
        """Return where a subnet of this lake finds the nodes of a remote one, by the registry version of the next
        round: none while one of the two is not in it."""
        registry = self._registry
        return registry.endpoints.get(self._places[remote], ()) if registry.members[position] else ()

    def addresses(self) -> Sequence[ExtraAddress]:
        """Return where the nodes of the lake's subnets serve."""
        return [ExtraAddress(key, host, port, self._node(at, node)) for key, at, node, (host, port) in self._listening]

    def _node(self, position: int, number: int) -> XNetNode:
        node = LakeNode(self._opened, self._kernel, self.streams[position], position, number)
        return XNetNode(node.conduct, lambda path, error: self._log.failed(path, error))

    @property
    def waits(self) -> bool:
        """Return whether any slice is pooled that the last block had no chance to take, or anything that remote subnets
        need is not certified yet. A slice that did not fit then does not fit now: blocks without end would be made for
        it, and so they would where a certification never comes (``MOST_UNCERTIFIED``)."""
        most = self._kernel.options.certification_delay + MOST_UNCERTIFIED
        return any(0 < blocks <= most for blocks in self._uncertified.values()) or any(
            (offer := _offer(pool, remote)) is not None and offer != self._left.get((position, remote))
            for position, pool in self.pools.items()
            for remote in self.remotes
        )

    def carried(self) -> pa.Table:
        """Return what the pools have for the next block; it is let go of."""
        rows = []
        for position, pool in self.pools.items():
            for remote in sorted(self.remotes):
                taken = self._taken_safely(position, pool, remote)
                self._left[position, remote] = _offer(pool, remote) if taken is None else None
                if taken is not None:
                    chain, carrier = (int(self._numbers[at]) for at in (position, self._places[remote]))
                    rows.append({"chain": chain, "carrier": carrier, "payload": taken})
        return pa.Table.from_pylist(rows, CARRIED_SCHEMA)

    def _taken_safely(self, position: int, pool: SlicePool, remote: bytes) -> bytes | None:
        """Return what ``_taken`` does; where that fails, what is pooled goes, and the block is made without."""
        try:
            return self._taken(position, pool, remote)
        except Exception as error:
            pool.drop(remote)
            self._log.failed(self._name(self.ids[position], remote), error)
            return None

    def _name(self, own: bytes, remote: bytes) -> str:
        """Return the name of the exchange between two subnets, for whoever reads the log."""
        names = self._kernel.chains()
        return f"{names[self.ids.index(own)]} pulls from {names[self._places[remote]]}"

    def _taken(self, position: int, pool: SlicePool, remote: bytes) -> bytes | None:
        """Return a slice of a remote subnet as the limits of a block allow it, None without one."""
        options = self._kernel.options
        pooled, limit = pool.pooled(remote), None
        if pooled is None:
            return None
        if options.limits == "deployed":
            room = pooled.payload.header.begin + options.limit.max_signals - pool.position(remote).message_index
            limit = min(max(room, 0), self._most_messages(position, remote))
        try:
            found = pool.take(remote, None, limit, options.payload_bytes or None)
        except ProofError:
            return None  # it was of no use, and is pulled again
        return None if found is None else encode_certified_stream_slice(found[0])

    def _most_messages(self, position: int, remote: bytes) -> int:
        """Return how many messages of a remote subnet the next block may take."""
        own, peer = (np.array([at], dtype=np.uint32) for at in (position, self._places[remote]))
        held = np.array([self._held.get((position, remote), 0)], dtype=np.uint64)
        return int(most_messages(own, peer, held, self._kernel.options, self._kernel.registry(0))[0])

    def committed(self, manifest: Manifest) -> None:
        """Let the pools know what the subnets expect after a height, see what of it is not certified, and take the
        endpoints of the next registry version."""
        self._registry = self._kernel.registry(manifest.tick + 1)
        for position, pool in self.pools.items():
            before = {key: ends for key, ends in self._ends.items() if key[0] == position}
            pool.garbage_collect(self._expected(manifest, position))
            ends = {key: ends for key, ends in self._ends.items() if key[0] == position}
            waited = self._uncertified.get(position, 0) if ends == before else 0
            self._uncertified[position] = 0 if self._all_certified(manifest, position) else waited + 1

    def _all_certified(self, manifest: Manifest, position: int) -> bool:
        """Return whether what remote subnets need of a subnet's streams, messages and signals, is certified."""
        options = self._kernel.options
        if options.certification == "bls" and not options.certification_delay:
            return True
        certified = dict.fromkeys(self._places.values(), (options.index_base, options.index_base))
        offers = self._opened.state_rows(manifest, "offers", position, lambda owners: owners)
        offers = offers.filter(is_certified(offers))  # ascending by their heights
        for place, header in zip(offers["destination"].tolist(), offers["header"].to_pylist(), strict=True):
            read = decode_stream_header(header, options.version)
            certified[place] = read.end, read.signals_end
        return all(certified[place] == self._ends[position, remote] for remote, place in self._places.items())

    def _expected(self, manifest: Manifest, position: int) -> Mapping[bytes, StreamPosition]:
        lanes = self._opened.state_rows(manifest, "lanes", position, lambda owners: owners)
        held = lanes["next_index"] - lanes["begin"]
        base = self._kernel.options.index_base
        found = {}
        for remote, place in self._places.items():
            row = np.flatnonzero(lanes["destination"] == place)
            names = ("expected", "begin", "next_index")
            expected, begin, end = [int(lanes[name][row[0]]) for name in names] if len(row) else [base] * 3
            self._held[position, remote] = int(held[row[0]]) if len(row) else 0
            self._ends[position, remote] = end, expected
            found[remote] = StreamPosition(expected, begin)
        return found

    async def run(self, news: Callable[[], None], log: ExchangeLog) -> None:
        """Pull from all remote subnets until cancelled; an error that is none of a node's is told, and stops the pulls
        of that subnet for a while. Told is, too, when nothing comes from a subnet any more, and when it goes on."""
        self._log = log
        clients = self.clients()
        try:
            await asyncio.gather(*(self._pull(client, remote, news) for client in clients for remote in self.remotes))
        finally:
            self._clients = []
            await asyncio.gather(*(client.close() for client in clients))

    async def _pull(self, client: XNetClient, remote: bytes, news: Callable[[], None]) -> None:
        still, following = StallDetector(), FAILED_SECONDS
        while True:
            try:
                if await client.pull(remote):
                    news()
                pause, following = PAUSE, FAILED_SECONDS
            except Exception as error:
                self._log.failed(self._name(client.own, remote), error)
                pause, following = following, min(2 * following, LONGEST_FAILED)
            self._tell(client, remote, still)
            await asyncio.sleep(pause)

    def _tell(self, client: XNetClient, remote: bytes, still: StallDetector) -> None:
        """Tell the log when pulls are of no use any more, and when they are again."""
        match still.look(client.clock(), client.pulled[remote]):
            case PullsStalled() as found:
                look = found.advice(self._kernel.chains()[self._places[remote]])
                again = client.pause(remote)
                self._log.stands_still(self._name(client.own, remote), found.seconds, again, found.failures, look)
            case PullsResumed(seconds):
                self._log.goes_on(self._name(client.own, remote), seconds)


class _NobodyListens:
    """Raises errors again: nobody is there to be told."""

    def failed(self, path: str, error: BaseException) -> None:
        raise error

    def stands_still(self, exchange: str, seconds: float, again: float, failures: Mapping[str, int], look: str) -> None:
        return None

    def goes_on(self, exchange: str, seconds: float) -> None:
        return None


def _offer(pool: SlicePool, remote: bytes) -> Offer | None:
    """Return what is pooled of a remote subnet, None without anything."""
    pooled = pool.pooled(remote)
    if pooled is None:
        return None
    payload = pooled.payload
    return payload.header.begin, payload.messages_begin, payload.messages_end, payload.header.signals_end
