"""The safety statements of 1.2 on the states of a network. Each gives its violations as sentences.

A network's zones make their blocks together: a state of height h is visible to others from height h + 1.
"""

from tests.spec.ibc.calls import DISCONNECT
from tests.spec.ibc.errors import MalformedKey, SpecError
from tests.spec.ibc.events import Abandoned, Cleaned, Received, Sent, digest
from tests.spec.ibc.invariants import Settled, table
from tests.spec.ibc.keys import parse
from tests.spec.ibc.programs import decode_envelope, decode_result
from tests.spec.ibc.queue import Queue, Store
from tests.spec.ibc.record import Record
from tests.spec.ibc.values import decode_packet, decode_receipt, decode_state


def g5_immutable(record: Record) -> list[str]:
    """An index key has one value for ever, and once removed never comes back. Heads and tails never go back."""
    wrong = []
    for name in record.order:
        values: dict[bytes, bytes] = {}
        gone: set[bytes] = set()
        for height in range(record.height + 1):
            store = record.history[name, height]
            for key, value in store.items():
                if isinstance(parse(key)[2], str):
                    if decode_state(value) < decode_state(values.get(key, bytes(8))):
                        wrong.append(f"G5: {key!r} of {name} went back at height {height}")
                elif values.get(key, value) != value or key in gone:
                    wrong.append(f"G5: {key!r} of {name} was rewritten at height {height}")
                values[key] = value
            gone |= set(values) - set(store)
    return wrong


def g6_destination(record: Record) -> list[str]:
    """Every key tells a registered destination; every pending packet was sent by us to it."""
    wrong, sent = [], table(record.log, Sent)
    for name, store in record.stores.items():
        for key, value in store.items():
            try:
                d, purpose, place = parse(key)
                known = d in record.peers(name)
                if purpose == "send" and isinstance(place, int):
                    row = sent.get((name, d, place))
                    known = known and row is not None and row.data_hash == digest(decode_packet(value).data)
            except (MalformedKey, SpecError):
                known = False
            if not known:
                wrong.append(f"G6: key {key!r} of {name}")
    return wrong


def g7_isolation(record: Record) -> list[str]:
    """Every change of a queue is a row of the log: tails moved by Sent and Received, heads by what settled, Cleaned."""
    wrong = []
    height = record.height
    rows = [row for row in record.log if row.height == height]
    for name, store in record.stores.items():
        old = record.history[name, max(0, height - 1)]
        for remote in record.peers(name):
            mine = [row for row in rows if row.chain == name and getattr(row, "remote", None) == remote]
            send, was = Queue(store, remote, "send"), Queue(old, remote, "send")
            new = [row.index for row in mine if isinstance(row, Sent)]
            taken = {row.index for row in mine if isinstance(row, Settled)}
            if new != list(range(was.tail(), send.tail())):
                wrong.append(f"G7: sends of {name} to {remote} at {height}")
            if taken != (set(was.indices()) | set(new)) - set(send.indices()):
                wrong.append(f"G7: settled of {name} for {remote} at {height}")
            receipt, before = Queue(store, remote, "receipt"), Queue(old, remote, "receipt")
            received = [row.index + 1 for row in mine if isinstance(row, Received)]
            cleaned = [row.end for row in mine if isinstance(row, Cleaned)]
            if receipt.tail() != max([before.tail(), *received, *cleaned]):
                wrong.append(f"G7: receipts of {name} for {remote} at {height}")
            if receipt.head() != max([before.head(), *cleaned]):
                wrong.append(f"G7: cleanups of {name} for {remote} at {height}")
    for row in rows:
        if not isinstance(row, Sent) or (row.type, row.module) == (DISCONNECT, row.chain):
            continue
        if row.module not in record.permissions[row.chain].get(row.type, set()):
            wrong.append(f"G7: module {row.module} sent type {row.type}")
    return wrong


def g8_bounds(record: Record) -> list[str]:
    """On one zone: head <= tail, and data exactly between. Across zones, at every cut whose states know no later
    state of each other."""
    wrong = []
    ordered, height = record.options.order == "ordered", record.height
    for name, store in record.stores.items():
        for remote in record.peers(name):
            for queue in (Queue(store, remote, "send"), Queue(store, remote, "receipt")):
                stored = {
                    place
                    for d, purpose, place in map(parse, store)
                    if (d, purpose) == (remote, queue.purpose) and isinstance(place, int)
                }
                window = set(range(queue.head(), queue.tail()))
                slots = record.unwritten[name, remote] if queue.purpose == "receipt" else set()
                exact = stored == window - slots if ordered else stored <= window - slots
                if queue.head() > queue.tail() or not exact or not slots <= window:
                    wrong.append(f"G8: {queue.purpose} queue of {name} for {remote}: {sorted(stored)}")
    for a, b in record.unwritten:
        for of_a, of_b in ((height, height), (height - 1, height), (height, height - 1)):
            if min(of_a, of_b) >= 0:
                wrong += _across(record, a, b, record.history[a, of_a], record.history[b, of_b])
    return wrong


def _across(record: Record, a: str, b: str, of_a: Store, of_b: Store) -> list[str]:
    send, receipt = Queue(of_a, b, "send"), Queue(of_b, a, "receipt")
    wrong = []
    if receipt.head() > send.head() or receipt.tail() > send.tail():
        wrong.append(f"G8: {b} is ahead of {a}")
    suspended = record.options.timeouts == "on" or any(isinstance(row, Abandoned) for row in record.log)
    if send.head() > receipt.tail() and not suspended:
        wrong.append(f"G8: head {send.head()} of {a} for {b} is above the receipts' tail {receipt.tail()}")
    return wrong


def g9_relay_neutrality(one: Record, other: Record) -> list[str]:
    """Two runs of one network at rest, between which only the relays differ: the same queues, the same executed
    messages. (Of programs that do the same whatever comes when: latency is all that relays may change.)"""
    wrong = []
    for name in one.order:
        here, there = one.stores[name], other.stores[name]
        different = sorted(key for key in here.keys() | there.keys() if here.get(key) != there.get(key))
        wrong += [f"G9: {key!r} of {name} differs" for key in different]
    for packet in sorted(_executed(one) ^ _executed(other)):
        wrong.append(f"G9: {packet[:3]} was executed in one run only, or as another message")
    return wrong


def _executed(record: Record) -> set[tuple[str, str, int, str, bytes]]:
    """(source, destination, index, type, hash of the data) of every message that a handler took."""
    rows = (row for row in record.log if isinstance(row, Received) and row.executed)
    return {(row.remote, row.chain, row.index, row.type, row.data_hash) for row in rows}


def conserved(record: Record) -> list[str]:
    """G4, sum rule: balances and what is under way are what there was. A packet carries its cycles until its receipt
    is written, and then the refund, until it is popped."""
    total = record.held
    for name, store in record.stores.items():
        for remote in record.peers(name):
            send, receipts = Queue(store, remote, "send"), Queue(record.stores[remote], name, "receipt")
            for index in send.indices():
                packet = decode_packet(store[send.key(index)])
                if packet.type == DISCONNECT:
                    continue
                cycles = decode_envelope(packet.data)[2].cycles
                written = receipts.get(index)
                receipt = None if written is None else decode_receipt(written)
                total += cycles if receipt is None else decode_result(receipt.result, cycles)[0]
    return [] if total == record.installed else [f"G4: {total} cycles of {record.installed}"]
