"""Relay processes (3.5) that act inside a tick. A relayer reads committed states and submits calls, no more."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from tests.spec.ibc.headers import Header, Proof
from tests.spec.ibc.keys import HEAD, TAIL, key
from tests.spec.ibc.options import Options
from tests.spec.ibc.queue import Queue, Store
from tests.spec.ibc.values import decode_packet
from tests.spec.ibc.zone import Zone, expired


@dataclass(frozen=True)
class Submission:
    """A transaction: call `call` of `zone` about `remote`. `argument`: a header for updateHeader, else a proof."""

    zone: str
    call: str
    remote: str
    argument: Any
    relayer: str
    fee: int = 1


@dataclass(frozen=True)
class View:
    """What relayers see at `height`: everything committed at the height before. `proven`: the store that the zone's
    header shows, `own`: the newest store, `unwritten`: (zone, remote) -> slots without value, `frozen`: pairs
    (zone, remote)."""

    height: int
    order: tuple[str, ...]
    headers: Mapping[str, Header]
    proven: Mapping[str, Store]
    own: Mapping[str, Store]
    unwritten: Mapping[tuple[str, str], frozenset[int]]
    frozen: frozenset[tuple[str, str]]
    options: Options


class Relay(Protocol):
    """Anything that submits calls, hostile or not."""

    name: str

    def calls(self, view: View, zone: Zone) -> Iterable[Submission]: ...


def never(height: int, zone: str, remote: str, call: str, index: int) -> bool:
    """Skip nothing."""
    return False


Lane = tuple[str, str, str]


@dataclass
class Relayer:
    """An honest relayer.

    `max_packets`: of a lane (zone, remote, call) a block; None: no bound. `skip(height, zone, remote, call, index)`:
    leave that one out. `min_batch`, `max_wait`: submit when that many are pending, or after that many blocks.
    `coordination` with `number` of `total`: leader: only number 0 acts; partition: only indices = number mod total.
    """

    name: str
    fee: int = 1
    max_packets: int | None = None
    skip: Callable[[int, str, str, str, int], bool] = never
    min_batch: int = 1
    max_wait: int = 0
    coordination: Literal["none", "leader", "partition"] = "none"
    number: int = 0
    total: int = 1
    waiting_since: dict[Lane, int] = field(default_factory=dict)

    def calls(self, view: View, zone: Zone) -> list[Submission]:
        """The calls to submit to `zone`: for each remote, update, receive, receipt, timeout, cleanup."""
        if self.coordination == "leader" and self.number != 0:
            return []
        submitted: list[Submission] = []
        for remote in view.order:
            if remote not in zone.connections or (zone.chain_id, remote) in view.frozen:
                continue
            calls = [
                Submission(zone.chain_id, call, remote, proof, self.name, self.fee)
                for call, proof in self.proofs(view, zone, remote)
            ]
            if calls:
                update = Submission(zone.chain_id, "updateHeader", remote, view.headers[remote], self.name, self.fee)
                submitted += [update, *calls]
        return submitted

    def proofs(self, view: View, zone: Zone, remote: str) -> Iterator[tuple[str, Proof]]:
        here, theirs = view.own[zone.chain_id], view.proven[remote]

        def proof(k: bytes) -> Proof:
            return Proof(k, theirs.get(k), view.headers[remote].height, remote)

        def ours(call: str, purpose: str, indices: list[int]) -> list[tuple[str, Proof]]:
            chosen = self.choose(view, (zone.chain_id, remote, call), indices)
            return [(call, proof(key(zone.chain_id, purpose, index))) for index in chosen]

        yield from ours("IBCreceive", "send", receivable(view, zone.chain_id, remote))
        ready = receivable_receipts(view, zone.chain_id, remote)
        receipts = ours("IBCreceipt", "receipt", ready)
        yield from receipts
        if view.options.timeouts == "on":
            late = overdue(view, zone, remote, all_taken=len(receipts) == len(ready))
            if view.options.order == "ordered":
                for _ in late:
                    yield "IBCtimeout", proof(key(zone.chain_id, "receipt", TAIL))
            else:
                for index in late:
                    yield "IBCtimeout", proof(key(zone.chain_id, "receipt", index))
        if view.options.cleanup == "on":
            popped = Queue(theirs, zone.chain_id, "send").head()
            if popped > Queue(here, remote, "receipt").head():
                yield "IBCcleanup", proof(key(zone.chain_id, "send", HEAD))

    def choose(self, view: View, lane: Lane, indices: list[int]) -> list[int]:
        """What of the pending indices is submitted now."""
        if self.coordination == "partition":
            indices = [index for index in indices if index % self.total == self.number]
        if not indices:
            self.waiting_since.pop(lane, None)
            return []
        since = self.waiting_since.setdefault(lane, view.height)
        if len(indices) < self.min_batch and view.height - since < self.max_wait:
            return []
        self.waiting_since.pop(lane)
        return [index for index in indices[: self.max_packets] if not self.skip(view.height, *lane, index)]


def receivable(view: View, zone: str, remote: str) -> list[int]:
    """The remote's packets that `zone` has not received. In order, nothing while packets that it waits for are gone
    (they timed out): only a cleanup helps then."""
    sent = Queue(view.proven[remote], zone, "send")
    receipts = Queue(view.own[zone], remote, "receipt")
    if view.options.order == "ordered":
        first = receipts.tail()
        return list(range(first, sent.tail())) if sent.head() <= first else []
    done = view.unwritten.get((zone, remote), frozenset())
    first = receipts.head()
    return [i for i in sent.indices() if i >= first and receipts.get(i) is None and i not in done]


def receivable_receipts(view: View, zone: str, remote: str) -> list[int]:
    """The receipts for `zone`'s pending packets: in order up to the first that is not written (X-9)."""
    receipts = Queue(view.proven[remote], zone, "receipt")
    pending = Queue(view.own[zone], remote, "send")
    if view.options.order == "unordered":
        return [index for index in pending.indices() if receipts.get(index) is not None]
    ready = []
    for index in range(pending.head(), receipts.tail()):
        if receipts.get(index) is None:
            break
        ready.append(index)
    return ready


def overdue(view: View, zone: Zone, remote: str, all_taken: bool) -> list[int]:
    """The packets of `zone` that the remote's header shows to be expired and not received. In order, those at the head
    once every receipt is taken."""
    header, receipts = view.headers[remote], Queue(view.proven[remote], zone.chain_id, "receipt")
    pending = Queue(view.own[zone.chain_id], remote, "send")

    def late(index: int) -> bool:
        value = pending.get(index)
        return value is not None and expired(zone, header.height, header.time, decode_packet(value))

    if view.options.order == "unordered":
        return [index for index in pending.indices() if receipts.get(index) is None and late(index)]
    found: list[int] = []
    at = max(pending.head(), receipts.tail())
    if not all_taken or any(receipts.get(i) is None for i in range(pending.head(), receipts.tail())):
        return []
    while at < pending.tail() and late(at):
        found.append(at)
        at += 1
    return found
