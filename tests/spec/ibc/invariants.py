"""The safety statements of 1.2 on the log and the states of a network. Each gives its violations as sentences.

A network's zones make their blocks together, so heights order events of different zones: a state of height h is visible
to others from height h + 1.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from .errors import MalformedKey, SpecError
from .events import Abandoned, Acked, Cleaned, Received, Refused, Root, Row, Sent, TimedOut, Written, digest
from .keys import parse
from .network import Network
from .programs import Reply, decode_envelope, decode_result
from .queue import Queue, Store
from .values import decode_packet, decode_receipt, decode_state

Packet = tuple[str, str, int]
"""(source, destination, index)."""

Settled = Acked | TimedOut | Abandoned


def table(log: Sequence[Row], relation: Any, of_remote: bool = False) -> dict[Packet, Any]:
    """The relation's rows by packet. `of_remote`: the packet is the remote's, not ours."""
    rows: dict[Packet, Any] = {}
    for row in log:
        if isinstance(row, relation):
            ends = (row.remote, row.chain) if of_remote else (row.chain, row.remote)
            rows.setdefault((*ends, row.index), row)
    return rows


def lanes(log: Sequence[Row], relations: Any) -> dict[tuple[str, str], list[Any]]:
    """The rows of some relations by (chain, remote), in their order."""
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in log:
        if isinstance(row, relations):
            found[row.chain, row.remote].append(row)
    return found


# ---- the log


def g1_exactly_once_in_order(log: Sequence[Row], ordered: bool = True) -> list[str]:
    """Received indices are 0, 1, 2, ..., over a gap only where a cleanup jumped; so are those that were settled."""
    wrong = []
    for (chain, remote), rows in lanes(log, Received | Cleaned).items():
        expected, seen = 0, set()
        for row in rows:
            if isinstance(row, Cleaned):
                expected = max(expected, row.end)
                continue
            if row.index in seen or (ordered and row.index != expected):
                wrong.append(f"G1: {chain} received {row.index} of {remote}, expected {expected}")
            seen.add(row.index)
            expected = max(expected, row.index + 1)
    for (chain, remote), rows in lanes(log, Settled).items():
        indices = [row.index for row in rows]
        if len(set(indices)) != len(indices) or (ordered and indices != list(range(len(indices)))):
            wrong.append(f"G1: {chain} settled {indices} for {remote}")
    for (chain, remote), rows in lanes(log, Sent).items():
        if [row.index for row in rows] != list(range(len(rows))):
            wrong.append(f"G1: {chain} sent {[row.index for row in rows]} to {remote}")
    return wrong


def present(log: Sequence[Row]) -> set[str]:
    """The chains whose log this is."""
    return {row.chain for row in log if isinstance(row, Root)}


def unchecked(log: Sequence[Row]) -> list[str]:
    """What the log of some sides cannot tell."""
    here = present(log)
    said = {
        f"G2: no log of {row.remote}: {type(row).__name__} rows of {row.chain} are unchecked"
        for row in log
        if isinstance(row, Received | Acked | TimedOut) and row.remote not in here
    }
    return sorted(said)


def results(log: Sequence[Row]) -> dict[Packet, tuple[bytes | None, int | None, int]]:
    """(result hash, code, height) of every packet that has a receipt."""
    written = {packet: row for packet, row in table(log, Received, of_remote=True).items() if row.code is not None}
    written |= table(log, Written, of_remote=True)
    return {packet: (row.result_hash, row.code, row.height) for packet, row in written.items()}


def g2_authenticity(log: Sequence[Row]) -> list[str]:
    """Every Received has an earlier equal Sent; every Acked has an earlier receipt with equal result (G3 too)."""
    wrong, here, sent, receipts = [], present(log), table(log, Sent), results(log)
    for packet, row in table(log, Received, of_remote=True).items():
        origin = sent.get(packet)
        if packet[0] in here and (
            origin is None
            or (origin.type, origin.data_hash) != (row.type, row.data_hash)
            or not origin.height <= row.proof_height < row.height
        ):
            wrong.append(f"G2: {packet} was received and never sent so")
    for packet, row in table(log, Acked).items():
        if packet[1] not in here:
            continue
        result_hash, code, height = receipts.get(packet, (None, None, 0))
        if (result_hash, code) != (row.result_hash, row.code) or not height <= row.proof_height < row.height:
            wrong.append(f"G2, G3: {packet} was acknowledged with {row.code}, its receipt has {code}")
    return wrong


def g4_atomic(log: Sequence[Row]) -> list[str]:
    """Exactly one of commit and rollback, and commit iff the remote recorded success."""
    wrong, here, receipts, received = [], present(log), results(log), table(log, Received, of_remote=True)
    settled: dict[Packet, list[Settled]] = defaultdict(list)
    for row in log:
        if isinstance(row, Settled):
            settled[row.chain, row.remote, row.index].append(row)
    for packet, rows in settled.items():
        if len(rows) > 1:
            wrong.append(f"G4: {packet} was settled {len(rows)} times")
        for row in rows:
            committed = isinstance(row, Acked) and row.outcome == "commit"
            if isinstance(row, Acked) and committed != (row.code == 0):
                wrong.append(f"G4: {packet} has code {row.code} and {row.outcome}")
            if packet[1] not in here or isinstance(row, Abandoned):
                continue
            if isinstance(row, Acked) and committed != (receipts.get(packet, (None, None, 0))[1] == 0):
                wrong.append(f"G4: {packet}: {row.outcome} against the receipt")
            if isinstance(row, TimedOut) and packet in received and received[packet].executed:
                wrong.append(f"G4: {packet} timed out and was executed")
    return wrong


def g10_failures_are_results(log: Sequence[Row]) -> list[str]:
    """No receive was refused because its execution failed."""
    return [
        f"G10: {row.chain} refused {row.key.hex()}"
        for row in log
        if isinstance(row, Refused) and (row.call, row.error) == ("IBCreceive", "HandlerFault")
    ]


def c1_to_c5_causality(log: Sequence[Row], ordered: bool = True) -> list[str]:
    """Vector clocks made by C1, C2 and the order of each chain: no cycle, and in ordered queues the effects of a
    chain's sends (C4) and receives (C5) come in the order of their causes."""
    sent, own = table(log, Sent), defaultdict[str, dict[str, int]](dict)
    clocks: dict[Row | None, dict[str, int]] = {}
    answered: dict[Packet, Row] = {**table(log, Received, of_remote=True), **table(log, Written, of_remote=True)}
    wrong = []
    events = [row for row in log if isinstance(row, Sent | Received | Written | Acked)]
    for row in sorted(events, key=lambda event: (event.height, event.chain, event.tx)):
        cause: Row | None = None
        if isinstance(row, Received):
            cause = sent.get((row.remote, row.chain, row.index))
        elif isinstance(row, Acked):
            cause = answered.get((row.chain, row.remote, row.index))
        clock = dict(own[row.chain])
        if cause is not None and cause not in clocks:
            wrong.append(f"C1, C2: {row} comes before its cause")
        for chain, count in clocks.get(cause, {}).items():
            clock[chain] = max(clock.get(chain, 0), count)
        clock[row.chain] = clock.get(row.chain, 0) + 1
        clocks[row] = own[row.chain] = clock
    if not ordered:
        return wrong
    for relation, name in ((Received, "C4"), (Acked, "C5")):
        for (chain, remote), rows in lanes(log, relation).items():
            for first, second in pairwise(rows):
                if first.index >= second.index or not _before(clocks[first], clocks[second]):
                    wrong.append(f"{name}: {chain} took {first.index} of {remote} before {second.index}")
    for (chain, remote), rows in lanes(log, Sent).items():
        if any(not _before(clocks[one], clocks[two]) for one, two in pairwise(rows)):
            wrong.append(f"C3: sends of {chain} to {remote}")
    return wrong


def _before(x: dict[str, int], y: dict[str, int]) -> bool:
    return x != y and all(count <= y.get(chain, 0) for chain, count in x.items())


def open_obligations(log: Sequence[Row]) -> list[Packet]:
    """L1: what was sent and has no outcome yet."""
    settled = set(table(log, Settled))
    return sorted(packet for packet in table(log, Sent) if packet not in settled)


# ---- the states


def g5_immutable(network: Network) -> list[str]:
    """An index key has one value for ever, and once removed never comes back. Heads and tails never go back."""
    wrong = []
    for name in network.order:
        values: dict[bytes, bytes] = {}
        gone: set[bytes] = set()
        for height in range(network.height + 1):
            store = network.history[name, height]
            for key, value in store.items():
                if isinstance(parse(key)[2], str):
                    if decode_state(value) < decode_state(values.get(key, bytes(8))):
                        wrong.append(f"G5: {key!r} of {name} went back at height {height}")
                elif values.get(key, value) != value or key in gone:
                    wrong.append(f"G5: {key!r} of {name} was rewritten at height {height}")
                values[key] = value
            gone |= set(values) - set(store)
    return wrong


def g6_destination(network: Network) -> list[str]:
    """Every key tells a registered destination; every pending packet was sent by us to it."""
    wrong, sent = [], table(network.log, Sent)
    for name, zone in network.zones.items():
        for key, value in zone.store.items():
            try:
                d, purpose, place = parse(key)
                known = d in zone.connections
                if purpose == "send" and isinstance(place, int):
                    row = sent.get((name, d, place))
                    known = known and row is not None and row.data_hash == digest(decode_packet(value).data)
            except (MalformedKey, SpecError):
                known = False
            if not known:
                wrong.append(f"G6: key {key!r} of {name}")
    return wrong


def g7_isolation(network: Network) -> list[str]:
    """Every change of a queue is a row of the log: tails moved by Sent and Received, heads by what settled, Cleaned."""
    wrong = []
    height = network.height
    rows = [row for row in network.log if row.height == height]
    for name, zone in network.zones.items():
        old = network.history[name, max(0, height - 1)]
        for remote in zone.connections:
            mine = [row for row in rows if row.chain == name and getattr(row, "remote", None) == remote]
            send, was = Queue(zone.store, remote, "send"), Queue(old, remote, "send")
            new = [row.index for row in mine if isinstance(row, Sent)]
            taken = {row.index for row in mine if isinstance(row, Settled)}
            if new != list(range(was.tail(), send.tail())):
                wrong.append(f"G7: sends of {name} to {remote} at {height}")
            if taken != (set(was.indices()) | set(new)) - set(send.indices()):
                wrong.append(f"G7: settled of {name} for {remote} at {height}")
            receipt, before = Queue(zone.store, remote, "receipt"), Queue(old, remote, "receipt")
            received = [row.index + 1 for row in mine if isinstance(row, Received)]
            cleaned = [row.end for row in mine if isinstance(row, Cleaned)]
            if receipt.tail() != max([before.tail(), *received, *cleaned]):
                wrong.append(f"G7: receipts of {name} for {remote} at {height}")
            if receipt.head() != max([before.head(), *cleaned]):
                wrong.append(f"G7: cleanups of {name} for {remote} at {height}")
    for row in rows:
        if isinstance(row, Sent) and row.module not in network.zones[row.chain].permissions.get(row.type, set()):
            wrong.append(f"G7: module {row.module} sent type {row.type}")
    return wrong


def g8_bounds(network: Network) -> list[str]:
    """On one zone: head <= tail, and data exactly between. Across zones, at every cut whose states know no later
    state of each other."""
    wrong = []
    ordered, height = network.options.order == "ordered", network.height
    for name, zone in network.zones.items():
        for remote, connection in zone.connections.items():
            for queue in (connection.send, connection.receipt):
                stored = {
                    place
                    for d, purpose, place in map(parse, zone.store)
                    if (d, purpose) == (remote, queue.purpose) and isinstance(place, int)
                }
                window = set(range(queue.head(), queue.tail()))
                slots = connection.unwritten if queue.purpose == "receipt" else set()
                exact = stored == window - slots if ordered else stored <= window - slots
                if queue.head() > queue.tail() or not exact or not slots <= window:
                    wrong.append(f"G8: {queue.purpose} queue of {name} for {remote}: {sorted(stored)}")
    for a, b in _pairs(network):
        for of_a, of_b in ((height, height), (height - 1, height), (height, height - 1)):
            if min(of_a, of_b) >= 0:
                wrong += _across(network, a, b, network.history[a, of_a], network.history[b, of_b])
    return wrong


def _pairs(network: Network) -> Iterator[tuple[str, str]]:
    for a, zone in network.zones.items():
        for b in zone.connections:
            yield a, b


def _across(network: Network, a: str, b: str, of_a: Store, of_b: Store) -> list[str]:
    send, receipt = Queue(of_a, b, "send"), Queue(of_b, a, "receipt")
    wrong = []
    if receipt.head() > send.head() or receipt.tail() > send.tail():
        wrong.append(f"G8: {b} is ahead of {a}")
    suspended = network.options.timeouts == "on" or any(isinstance(row, Abandoned) for row in network.log)
    if send.head() > receipt.tail() and not suspended:
        wrong.append(f"G8: head {send.head()} of {a} for {b} is above the receipts' tail {receipt.tail()}")
    return wrong


def conserved(network: Network) -> list[str]:
    """G4, sum rule: balances and what is under way are what there was. A packet carries its cycles until its receipt
    is written, and then the refund, until it is popped."""
    total = 0
    for name, zone in network.zones.items():
        total += sum(zone.app.balances.values())
        total += sum(key.cycles for key in zone.app.open_local)
        total += sum(message.refund for _, message in zone.app.local if isinstance(message, Reply))
        for remote in zone.connections:
            for index in Queue(zone.store, remote, "send").indices():
                value = zone.store[Queue(zone.store, remote, "send").key(index)]
                packet = decode_packet(value)
                if packet.type == "disconnect":
                    continue
                cycles = decode_envelope(packet.data)[2].cycles
                written = Queue(network.zones[remote].store, name, "receipt").get(index)
                receipt = None if written is None else decode_receipt(written)
                total += cycles if receipt is None else decode_result(receipt.result, cycles)[0]
    installed = sum(len(here) for here in network.programs.values()) * network.balance
    return [] if total == installed else [f"G4: {total} cycles of {installed}"]


def violations(network: Network) -> list[str]:
    """Everything, after a block."""
    log, ordered = network.log, network.options.order == "ordered"
    return [
        *g1_exactly_once_in_order(log, ordered),
        *g2_authenticity(log),
        *g4_atomic(log),
        *g5_immutable(network),
        *g6_destination(network),
        *g7_isolation(network),
        *g8_bounds(network),
        *g10_failures_are_results(log),
        *c1_to_c5_causality(log, ordered),
        *conserved(network),
    ]
