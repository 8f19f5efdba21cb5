"""Exchange of a lake of subnets with other lakes (IC reference 3.8, 3.10, X-9, X-15).

Its nodes serve certified streams, and its subnets pull remote streams into their blocks. A pulled slice is
verified with the remote subnet's key before it is pooled, again in the block, and again by any re-execution of
the block's record.

Served streams follow the newest certified state: the table ``offers`` of the last height holds header, path to
the root and certification of each stream, and new messages are read from the heights of the streams' segments.
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
    """Certified streams of one subnet of a lake.

    Args:
        opened: The lake.
        position: Position of the subnet.
        version: Version of the encodings.
        lag: Heights by which a stale node is behind.
    """

    def __init__(self, opened: OpenedLake, position: int, version: CertificationVersion, lag: int = 0) -> None:
        self._opened, self._position, self._version, self._lag = opened, position, version, lag
        numbers = [int(item["number"]) for item in opened.about["chains"]]
        self._ids = [subnet_id(number) for number in numbers]
        self._height = -1
        self._streams = OfferedStreams(version)
        self._lock = threading.Lock()

    def newest(self) -> OfferedStreams:
        """Return the last certified streams; thread-safe.

        If a vacuum removed the state of the height, the previous streams are returned, at first none.

        Raises:
            LakeError: The lake cannot be read (``ReplayDiffers``, ``ReplayBusy``: see ``OpenedLake.state_rows``).
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
        """Return the encoded messages [begin, end) of each destination."""
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
        """Yield the subnet's stream messages of some heights."""

        def select(batch: pa.RecordBatch) -> Mask:
            mask: Mask = batch["source"].to_numpy() == self._position
            return mask

        for height in heights:
            rows = self._opened.log_rows("outbound", height, self._position, READ, select)
            if rows is not None and rows.num_rows:
                yield from_table(rows)

    def _rows(self, manifest: Manifest, table: str) -> Frame:
        """Return the subnet's rows of a state table."""
        return self._opened.state_rows(manifest, table, self._position, lambda owners: owners)


PAUSE = 0.05
"""Seconds between two pulls from a subnet without news."""

FAILED_SECONDS, LONGEST_FAILED = 1.0, 60.0
"""Pause in seconds after a local error, doubled for each one in a row, and its maximum."""


MOST_UNCERTIFIED = 100
"""Blocks beyond the certification delay after which no more are made on demand: too few nodes sign."""

Offer = tuple[int, int | None, int | None, int]
"""Key of a pooled slice: begin of the stream, its messages' bounds, end of its signals."""

Ends = tuple[int, int]
"""End of a stream's messages, and of its signals."""


class LakeNode:
    """Node of a lake's subnet with the faults that the scenario gives it at the current tick."""

    def __init__(self, opened: OpenedLake, kernel: IcKernel, fresh: LakeStreams, position: int, number: int) -> None:
        self._opened, self._kernel, self._fresh = opened, kernel, fresh
        self._node = (int(kernel.numbers()[position]), number)
        self._behind = LakeStreams(opened, position, kernel.options.version, STALE_HEIGHTS)
        self._liar = SliceTamperer.create()

    def conduct(self) -> ServingFaults:
        """Return the current faults of the node."""
        tick = self._opened.manifest().tick

        def has_fault(kind: str) -> bool:
            return self._node in find_faulty_nodes(self._kernel.faults, tick, kind)

        streams = self._behind if has_fault(STALE) else self._fresh
        delay = SLOW_SECONDS if has_fault(SLOW) else 0.0
        return ServingFaults(streams.newest, self._liar if has_fault(LYING) else None, delay, has_fault(DOWN))


class XNetExchange:
    """Exchange of a served lake (``service.node.endpoint.LakeExchange``).

    Raises:
        InvalidInput: A remote address is invalid.
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
            (f"options.listen.{name}", self._positions[name], node, listen_address(address))
            for name, nodes in options.listen.items()
            for node, address in enumerate(nodes)
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
        self._remaining_offers: dict[tuple[int, bytes], Offer | None] = {}
        self._stream_lengths: dict[tuple[int, bytes], int] = {}
        self._ends: dict[tuple[int, bytes], Ends] = {}
        self._uncertified: dict[int, int] = {}
        self._clients: list[XNetClient] = []
        self._log: ExchangeLog = _RaisingLog()
        self._registry = kernel.registry(opened.manifest().tick + 1)
        if self.pools:
            self.committed(opened.manifest())

    def clients(self, transport: httpx.AsyncBaseTransport | None = None) -> list[XNetClient]:
        """Return the pulling clients, created on the first call.

        Args:
            transport: Transport, for tests.
        """
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
        """Return a remote subnet's nodes by the registry version of the next round.

        There are none while one of the two subnets is not in the registry.
        """
        registry = self._registry
        return registry.endpoints.get(self._places[remote], ()) if registry.members[position] else ()

    def addresses(self) -> Sequence[ExtraAddress]:
        """Return the serving addresses of the subnets' nodes."""
        return [ExtraAddress(key, host, port, self._node(at, node)) for key, at, node, (host, port) in self._listening]

    def _node(self, position: int, number: int) -> XNetNode:
        node = LakeNode(self._opened, self._kernel, self.streams[position], position, number)
        return XNetNode(node.conduct, lambda path, error: self._log.failed(path, error))

    @property
    def waits(self) -> bool:
        """True if a slice is pooled that the last block did not see, or content is uncertified.

        A slice that did not fit is not counted, nor an overdue certification (``MOST_UNCERTIFIED``): both would cause
        endless blocks.
        """
        most = self._kernel.options.certification_delay + MOST_UNCERTIFIED
        return any(0 < blocks <= most for blocks in self._uncertified.values()) or any(
            (offer := _pooled_offer(pool, remote)) is not None
            and offer != self._remaining_offers.get((position, remote))
            for position, pool in self.pools.items()
            for remote in self.remotes
        )

    def carried(self) -> pa.Table:
        """Pop the pooled slices for the next block."""
        rows = []
        for position, pool in self.pools.items():
            for remote in sorted(self.remotes):
                payload = self._pop_slice_or_drop(position, pool, remote)
                self._remaining_offers[position, remote] = _pooled_offer(pool, remote) if payload is None else None
                if payload is not None:
                    chain, carrier = (int(self._numbers[at]) for at in (position, self._places[remote]))
                    rows.append({"chain": chain, "carrier": carrier, "payload": payload})
        return pa.Table.from_pylist(rows, CARRIED_SCHEMA)

    def _pop_slice_or_drop(self, position: int, pool: SlicePool, remote: bytes) -> bytes | None:
        """Pop a slice; on an error drop and log it, so that the block can be made."""
        try:
            return self._pop_slice(position, pool, remote)
        except Exception as error:
            pool.drop(remote)
            self._log.failed(self._name(self.ids[position], remote), error)
            return None

    def _name(self, own: bytes, remote: bytes) -> str:
        """Return the name of the exchange between two subnets, for the log."""
        names = self._kernel.chains()
        return f"{names[self.ids.index(own)]} pulls from {names[self._places[remote]]}"

    def _pop_slice(self, position: int, pool: SlicePool, remote: bytes) -> bytes | None:
        """Pop a slice of a remote subnet within a block's limits, or return None."""
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
            return None  # the slice is unusable, and is pulled again
        return None if found is None else encode_certified_stream_slice(found[0])

    def _most_messages(self, position: int, remote: bytes) -> int:
        """Return the maximum number of a remote subnet's messages in the next block."""
        own, peer = (np.array([at], dtype=np.uint32) for at in (position, self._places[remote]))
        length = np.array([self._stream_lengths.get((position, remote), 0)], dtype=np.uint64)
        return int(most_messages(own, peer, length, self._kernel.options, self._kernel.registry(0))[0])

    def committed(self, manifest: Manifest) -> None:
        """Update pools, certification state and remote endpoints after a height."""
        self._registry = self._kernel.registry(manifest.tick + 1)
        for position, pool in self.pools.items():
            before = {key: ends for key, ends in self._ends.items() if key[0] == position}
            pool.garbage_collect(self._expected(manifest, position))
            ends = {key: ends for key, ends in self._ends.items() if key[0] == position}
            waited = self._uncertified.get(position, 0) if ends == before else 0
            self._uncertified[position] = 0 if self._all_certified(manifest, position) else waited + 1

    def _all_certified(self, manifest: Manifest, position: int) -> bool:
        """Return True if all messages and signals for remote subnets are certified."""
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
        lengths = lanes["next_index"] - lanes["begin"]
        base = self._kernel.options.index_base
        found = {}
        for remote, place in self._places.items():
            row = np.flatnonzero(lanes["destination"] == place)
            names = ("expected", "begin", "next_index")
            expected, begin, end = [int(lanes[name][row[0]]) for name in names] if len(row) else [base] * 3
            self._stream_lengths[position, remote] = int(lengths[row[0]]) if len(row) else 0
            self._ends[position, remote] = end, expected
            found[remote] = StreamPosition(expected, begin)
        return found

    async def run(self, news: Callable[[], None], log: ExchangeLog) -> None:
        """Pull from all remote subnets until cancelled.

        A local error is logged and pauses the pulls of that subnet. Stalls and their ends are logged.
        """
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
            self._log_stall(client, remote, still)
            await asyncio.sleep(pause)

    def _log_stall(self, client: XNetClient, remote: bytes, still: StallDetector) -> None:
        """Log the start and end of a stall."""
        match still.look(client.clock(), client.pulled[remote]):
            case PullsStalled() as found:
                look = found.advice(self._kernel.chains()[self._places[remote]])
                pause = client.pause(remote)
                self._log.stands_still(self._name(client.own, remote), found.seconds, pause, found.failures, look)
            case PullsResumed(seconds):
                self._log.goes_on(self._name(client.own, remote), seconds)


class _RaisingLog:
    """Log that raises errors, before ``run`` sets one."""

    def failed(self, path: str, error: BaseException) -> None:
        raise error

    def stands_still(self, exchange: str, seconds: float, again: float, failures: Mapping[str, int], look: str) -> None:
        return None

    def goes_on(self, exchange: str, seconds: float) -> None:
        return None


def _pooled_offer(pool: SlicePool, remote: bytes) -> Offer | None:
    """Return the key of the pooled slice of a remote subnet, or None."""
    pooled = pool.pooled(remote)
    if pooled is None:
        return None
    payload = pooled.payload
    return payload.header.begin, payload.messages_begin, payload.messages_end, payload.header.signals_end
