"""Stores with ICS-23 proofs: packet commitments, three kinds of trees, proofs one by one and in bulk."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from causeway_proofs.hashing import DIGEST_BYTES, binary_rows
from causeway_proofs.ibc.commitments import big_endian, commit_packet_v1, commit_packets_v1, packet_commitment_key_v2
from causeway_proofs.ics23.entries import Entries
from causeway_proofs.ics23.proof_specs import PROOF_SPECS
from causeway_proofs.ics23.simple_store import SimpleStore, verify_range_proof
from causeway_proofs.ics23.store_proofs import ProvableStore
from causeway_proofs.ics23.verify import verify_membership

from benchmarks.proofs.native import Native, NativeVerifier
from benchmarks.proofs.node import ICS23, OtherVerifier
from benchmarks.proofs.queues import Queue, measure_queue
from benchmarks.proofs.timing import OURS, Clocked, Row, compared, require_same, timed
from benchmarks.proofs.workload import IN_BULK, MANY, ONE_BY_ONE, payloads, random_rows, some_of
from tests.oracles.ics23.iavl_store import IavlStore
from tests.oracles.ics23.smt import SmtStore

CLIENT = "07-tendermint-0"
MOST_PACKETS = 200_000

NATIVE_TIMES = 10
"""How often compiled verifiers go through the claims in a repetition: they are done soon."""


def measure(size: int, repeats: int, node: str | None, native: Sequence[Native] = ()) -> list[Row]:
    """Measure stores of ``size`` packet commitments."""
    entries = _entries(size)

    def simple(count: int) -> SimpleStore:
        return SimpleStore.over(entries.slice(0, count))

    def plain(count: int) -> bytes:
        part = entries.slice(0, count)
        return plain_simple_root(part.keys.to_pylist(), part.values.to_pylist())

    def root(store: SimpleStore) -> bytes:
        return store.root

    queue = measure_queue(Queue("simple store", simple, root, plain=("hashlib loop", plain)), size, -(-repeats // 2))
    store = queue.state
    rows = [_packet_commitments(min(size, MOST_PACKETS), repeats), *queue.rows]
    rows += [*_prove(store, repeats), *_verify("tendermint", store, repeats, node, native), *_range(store, repeats)]
    rows += _verify("iavl", IavlStore().commit(entries, pa.array([], pa.binary())), repeats, node, native)
    return rows + _verify("smt", SmtStore(entries.keys, entries.values), repeats, None, native)


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


def _prove(store: SimpleStore, repeats: int) -> list[Row]:
    bulk = some_of(0, len(store), IN_BULK)
    work: dict[str, tuple[Clocked, int]] = {OURS: (timed(lambda: store.existence_proofs(bulk)), len(bulk))}
    return [compared("prove", f"simple store: {len(bulk):,} entries", "proofs", work, repeats)]


def _verify(name: str, store: ProvableStore, repeats: int, node: str | None, native: Sequence[Native]) -> list[Row]:
    spec, root = PROOF_SPECS[name], store.root
    few = some_of(0, len(store), ONE_BY_ONE)
    shown = store.entries_at(few)
    claims = list(
        zip(shown.keys.to_pylist(), shown.values.to_pylist(), store.existence_proofs(few).to_pylist(), strict=True)
    )

    def verify_each() -> None:
        for key, value, proof in claims:
            verify_membership(spec, root, proof, key, value)

    label = {"tendermint": "simple store", "iavl": "IAVL store", "smt": "sparse Merkle store"}[name]
    single: dict[str, tuple[Clocked, int]] = {OURS: (timed(verify_each), len(claims))}
    with contextlib.ExitStack() as stack:
        if node is not None:
            written = [[part.hex() for part in claim] for claim in claims]
            work = {"spec": name, "root": root.hex(), "claims": written}
            measure_other = stack.enter_context(OtherVerifier(node, "ics23", work)).measure
            single[ICS23] = (measure_other, len(claims))
        for other in native:
            verifier = stack.enter_context(NativeVerifier(other, name, root, claims, NATIVE_TIMES))
            single[other.name] = (verifier.measure, NATIVE_TIMES * len(claims))
        return [compared("verify", f"{label}: one entry", "proofs", single, repeats)]


def _range(store: SimpleStore, repeats: int) -> list[Row]:
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
