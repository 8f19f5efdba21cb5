"""Substrate tries: queues and states under a root, storage proofs out of them."""

from __future__ import annotations

import contextlib

import numpy as np
import pyarrow as pa
from causeway_proofs.substrate.node import StateVersion, plain_root
from causeway_proofs.substrate.ordered_lists import ordered_key
from causeway_proofs.substrate.proof import verify_storage_proof
from causeway_proofs.substrate.storage_keys import storage_key, twox_64_concat
from causeway_proofs.substrate.trie import Trie, prove

from benchmarks.proofs.node import SUBSTRATE, OtherVerifier
from benchmarks.proofs.queues import Queue, changed_at_a_time, measure_queue
from benchmarks.proofs.timing import OURS, Clocked, Row, compared, take_turns, timed
from benchmarks.proofs.workload import MANY, ONE_BY_ONE, payloads, some_of
from tests.oracles.ordered_trie import OrderedTrie

MOST_ENTRIES = 10_000


def measure(size: int, repeats: int, node: str | None) -> list[Row]:
    """Measure the trie of a queue of ``size`` messages, and that of a state."""
    changed = changed_at_a_time(size)
    messages = payloads(size + changed)

    def build(count: int) -> OrderedTrie:
        queue = OrderedTrie()
        queue.append(messages[:count])
        return queue

    def append(queue: OrderedTrie) -> OrderedTrie:
        queue.append(messages[size:])
        return queue

    def trim(queue: OrderedTrie) -> OrderedTrie:
        queue.trim(changed)
        return queue

    def one_by_one(count: int) -> bytes:
        plain = messages[:count].to_pylist()
        return plain_root({ordered_key(index): message for index, message in enumerate(plain)}, StateVersion.V0)

    queue = measure_queue(
        Queue("trie of a queue", build, lambda queue: queue.root, append, trim, plain=("entry by entry", one_by_one)),
        size,
        -(-repeats // 2),
    )
    trie, root = queue.state.trie, queue.state.root
    entries = {
        ordered_key(position): messages[position].as_py() for position in some_of(changed, size, ONE_BY_ONE).tolist()
    }
    many = {ordered_key(position): messages[position].as_py() for position in some_of(changed, size, MANY).tolist()}
    proofs = {key: prove(trie, [key]) for key in entries}
    joint = prove(trie, many)

    def prove_each() -> None:
        for key in entries:
            prove(trie, [key])

    def verify_each() -> None:
        for key, value in entries.items():
            verify_storage_proof(root, proofs[key], {key: value})

    proving = take_turns({OURS: timed(prove_each)}, repeats)[OURS]
    of_many = f"one proof of {len(many):,} messages"
    rows = [*queue.rows, _state_root(min(size, MOST_ENTRIES), repeats, node)]
    rows.append(queue.against_rebuild("one message", proving, len(entries)))
    rows.append(compared("prove", of_many, "messages", {OURS: (timed(lambda: prove(trie, many)), len(many))}, repeats))
    contenders: dict[str, tuple[Clocked, int]] = {OURS: (timed(verify_each), len(entries))}
    with contextlib.ExitStack() as stack:
        if node is not None:
            asked = [
                {"nodes": list(map(_hex, proofs[key])), "key": _hex(key), "value": _hex(value)}
                for key, value in entries.items()
            ]
            other = OtherVerifier(node, "trie_proofs", {"root": _hex(root), "proofs": asked})
            contenders[SUBSTRATE] = (stack.enter_context(other).measure, len(entries))
        rows.append(compared("verify", "one message", "proofs", contenders, repeats))
    verified = timed(lambda: verify_storage_proof(root, joint, many))
    rows.append(compared("verify", of_many, "messages", {OURS: (verified, len(many))}, repeats))
    return rows


def _state_root(count: int, repeats: int, node: str | None) -> Row:
    numbers = np.arange(count, dtype="<u8")
    keys = pa.array(
        [storage_key("Assets", "Account", (twox_64_concat, number.tobytes())) for number in numbers], pa.large_binary()
    )
    values = payloads(count).cast(pa.large_binary())
    root = Trie.build(keys, values).root
    contenders: dict[str, tuple[Clocked, int]] = {OURS: (timed(lambda: Trie.build(keys, values).root), count)}
    with contextlib.ExitStack() as stack:
        if node is not None:
            pairs = [[_hex(key), _hex(value)] for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)]
            work = {"entries": pairs, "version": int(StateVersion.V1), "root": _hex(root)}
            contenders[SUBSTRATE] = (stack.enter_context(OtherVerifier(node, "trie_root", work)).measure, count)
        return compared("commit", f"state of {count:,} entries: root", "entries", contenders, repeats)


def _hex(data: bytes) -> str:
    return "0x" + data.hex()
