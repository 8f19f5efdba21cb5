"""Stores with ICS-23 proofs: packet commitments, three kinds of trees, proofs one by one and in bulk."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from benchmarks.proofs.native import Native, NativeVerifier
from benchmarks.proofs.node import ICS23, OtherVerifier
from benchmarks.proofs.queues import Measured, Queue, changed_at_a_time, measure_queue
from benchmarks.proofs.timing import OURS, Clocked, Row, compared, require_same, take_turns, timed
from benchmarks.proofs.workload import IN_BULK, MANY, ONE_BY_ONE, payloads, random_rows, some_of
from causeway.proofs.hashing import DIGEST_BYTES, binary_rows
from causeway.proofs.ibc.columns import big_endian, commit_packets_v1
from causeway.proofs.ibc.keys import packet_commitment_key_v2
from causeway.proofs.ibc.packets import commit_packet_v1
from causeway.proofs.ics23.entries import Entries
from causeway.proofs.ics23.iavl_store import IavlStore, IavlVersion
from causeway.proofs.ics23.many import prepare, verify_many
from causeway.proofs.ics23.proof_specs import PROOF_SPECS
from causeway.proofs.ics23.range_proof import verify_range_proof
from causeway.proofs.ics23.simple_store import SimpleStore
from causeway.proofs.ics23.smt import SmtStore
from causeway.proofs.ics23.store_proofs import ProvableStore
from causeway.proofs.ics23.verify import verify_membership

CLIENT = "07-tendermint-0"
NO_KEYS = pa.array([], pa.binary())
MOST_PACKETS = 200_000

NATIVE_TIMES = 10
"""How often compiled verifiers go through the claims in a repetition: they are done soon."""

Store = TypeVar("Store", bound=ProvableStore)


def measure(size: int, repeats: int, node: str | None, native: Sequence[Native] = ()) -> list[Row]:
    """Measure stores of ``size`` packet commitments."""
    prepare()
    changed = changed_at_a_time(size)
    entries = _entries(size + changed)
    more, first_keys = entries.slice(size, size + changed), entries.keys[:changed]

    def simple(count: int) -> SimpleStore:
        return SimpleStore.over(entries.slice(0, count))

    iavl_stores: list[IavlStore] = []

    def iavl(count: int) -> IavlVersion:
        iavl_stores[:] = [IavlStore()]
        return iavl_stores[0].commit(entries.slice(0, count), NO_KEYS)

    def smt(count: int) -> SmtStore:
        part = entries.slice(0, count)
        return SmtStore(part.keys, part.values)

    def plain(count: int) -> bytes:
        part = entries.slice(0, count)
        return plain_simple_root(part.keys.to_pylist(), part.values.to_pylist())

    def root(store: ProvableStore) -> bytes:
        return store.root

    commits = -(-repeats // 2)
    rows = [_packet_commitments(min(size, MOST_PACKETS), repeats)]
    simple_queue = measure_queue(
        Queue(
            "simple store",
            simple,
            root,
            lambda store: store.updated(more, NO_KEYS),
            lambda store: store.updated(Entries.none(), first_keys),
            plain=("hashlib loop", plain),
        ),
        size,
        commits,
    )
    rows += [
        *simple_queue.rows,
        *_proofs("tendermint", simple_queue, repeats, node, native),
        *_range(simple_queue, repeats),
    ]
    del simple_queue
    iavl_queue = measure_queue(
        Queue(
            "IAVL store",
            iavl,
            root,
            lambda store: iavl_stores[0].commit(more, NO_KEYS),
            lambda store: iavl_stores[0].commit(Entries.none(), first_keys),
        ),
        size,
        commits,
    )
    rows += [*iavl_queue.rows, *_proofs("iavl", iavl_queue, repeats, node, native)]
    del iavl_queue
    iavl_stores.clear()
    smt_queue = measure_queue(Queue("sparse Merkle store", smt, root), size, commits)
    return [*rows, *smt_queue.rows, *_proofs("smt", smt_queue, repeats, None, native)]


def plain_simple_root(keys: list[bytes], values: list[bytes]) -> bytes:
    """Return the root of a simple store with short keys, in plain Python."""
    sha256 = hashlib.sha256
    nodes = [
        sha256(b"\x00%c%b\x20%b" % (len(key), key, sha256(value).digest())).digest()
        for key, value in zip(keys, values, strict=True)
    ]
    while len(nodes) > 1:
        above = [sha256(b"\x01" + nodes[left] + nodes[left + 1]).digest() for left in range(0, len(nodes) - 1, 2)]
        nodes = above + nodes[2 * len(above) :]
    return nodes[0]


def _entries(count: int) -> Entries:
    """Return packet commitments under their keys: what a queue of packets is in a store."""
    head = np.frombuffer(packet_commitment_key_v2(CLIENT, 1)[:-8], dtype=np.uint8)
    sequences = np.arange(1, count + 1, dtype=np.uint64)
    keys = np.concatenate([np.tile(head, (count, 1)), big_endian(sequences)], axis=1)
    return Entries.of(binary_rows(keys), binary_rows(random_rows(count, DIGEST_BYTES)))


def _packet_commitments(count: int, repeats: int) -> Row:
    data = payloads(count)
    plain = data.to_pylist()
    timeouts = np.arange(count, dtype=np.uint64)
    heights = np.full(count, 7, dtype=np.uint64)

    def columns() -> bytes:
        return commit_packets_v1(timeouts, heights, heights, data).tobytes()

    def one_by_one() -> bytes:
        return b"".join([commit_packet_v1(timeout, 7, 7, packet) for timeout, packet in enumerate(plain)])

    require_same(columns(), one_by_one(), "packet commitments")
    contenders = {OURS: (timed(columns), count), "one by one": (timed(one_by_one), count)}
    return compared("hash", f"packet commitments, {count:,} packets", "packets", contenders, repeats)


def _proofs(name: str, queue: Measured[Store], repeats: int, node: str | None, native: Sequence[Native]) -> list[Row]:
    store, spec = queue.state, PROOF_SPECS[name]
    root = store.root
    few = some_of(0, len(store), ONE_BY_ONE)
    bulk = some_of(0, len(store), IN_BULK)
    shown = store.entries_at(few)
    claims = list(
        zip(shown.keys.to_pylist(), shown.values.to_pylist(), store.existence_proofs(few).to_pylist(), strict=True)
    )
    many, many_proofs = store.entries_at(bulk), store.existence_proofs(bulk)

    def prove_each() -> None:
        for key, _, _ in claims:
            store.prove_existence(key)

    def verify_each() -> None:
        for key, value, proof in claims:
            verify_membership(spec, root, proof, key, value)

    def verify_bulk() -> None:
        refused = verify_many(spec, root, many.keys, many.values, many_proofs)
        require_same(refused, {}, f"proofs of the {name} store")

    label = {"tendermint": "simple store", "iavl": "IAVL store", "smt": "sparse Merkle store"}[name]
    proving = take_turns({OURS: timed(prove_each)}, repeats)[OURS]
    rows = [queue.against_rebuild(f"{label}: one entry", proving, len(claims))]
    in_bulk: dict[str, tuple[Clocked, int]] = {OURS: (timed(lambda: store.existence_proofs(bulk)), len(bulk))}
    rows.append(compared("prove", f"{label}: {len(bulk):,} entries", "proofs", in_bulk, repeats))
    single: dict[str, tuple[Clocked, int]] = {OURS: (timed(verify_each), len(claims))}
    in_bulk = {OURS: (timed(verify_bulk), len(bulk))}
    with contextlib.ExitStack() as stack:
        if node is not None:
            written = [[part.hex() for part in claim] for claim in claims]
            work = {"spec": name, "root": root.hex(), "claims": written}
            measure_other = stack.enter_context(OtherVerifier(node, "ics23", work)).measure
            single[ICS23] = in_bulk[ICS23] = (measure_other, len(claims))
        for other in native:
            verifier = stack.enter_context(NativeVerifier(other, name, root, claims, NATIVE_TIMES))
            single[other.name] = in_bulk[other.name] = (verifier.measure, NATIVE_TIMES * len(claims))
        rows.append(compared("verify", f"{label}: one entry", "proofs", single, repeats))
        rows.append(compared("verify", f"{label}: {len(bulk):,} proofs", "proofs", in_bulk, repeats))
    return rows


def _range(queue: Measured[SimpleStore], repeats: int) -> list[Row]:
    store = queue.state
    count = min(MANY, len(store))
    first = (len(store) - count) // 2
    root = store.root
    proof = store.range_proof(first, first + count - 1)
    what = f"simple store: run of {count:,} entries"
    works: list[tuple[str, Callable[[], object]]] = [
        ("prove", lambda: store.range_proof(first, first + count - 1)),
        ("verify", lambda: verify_range_proof(root, proof)),
    ]
    return [compared(part, what, "entries", {OURS: (timed(work), count)}, repeats) for part, work in works]
