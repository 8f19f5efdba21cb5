"""Tries that live: a state built and changed, beside building it anew; the roots of many short queues; proofs made."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import DIGEST_BYTES, binary_rows, columns
from causeway_proofs.order import Groups, Rows
from causeway_proofs.substrate.node import StateVersion, plain_root
from causeway_proofs.substrate.ordered_lists import ordered_key, ordered_roots
from causeway_proofs.substrate.trie import prove_storage
from causeway_proofs.substrate.tries import Tries

from benchmarks.proofs.queues import REBUILD
from benchmarks.proofs.storage import BY_ONE
from benchmarks.proofs.timing import OURS, Row, Samples, clock, compared, require_same, row, timed
from benchmarks.proofs.workload import IN_BULK, MANY, ONE_BY_ONE, PAYLOAD_BYTES, random_rows, some_of

MOST_PLAIN = 20_000
"""Entries that plain Python hashes, and lists that it finds the roots of."""

SHARES = (1_000, 100, 10)
"""One entry in so many is changed at once."""


def measure(size: int, repeats: int, node: str | None) -> list[Row]:
    """Measure a state of ``size`` entries of 32 and 64 bytes, and as many queues of one message."""
    columns.load_engines()
    # Sorted, as a state's changes are where they come from.
    in_order = np.sort(random_rows(size, DIGEST_BYTES, seed=4).view(f"S{DIGEST_BYTES}"), axis=0)
    keys = _column(in_order.view(np.uint8).reshape(-1, DIGEST_BYTES))
    values, others = (_column(random_rows(size, PAYLOAD_BYTES, seed)) for seed in (1, 5))
    tries, samples = Tries(), Samples()
    number = 0
    for _ in range(-(-repeats // 2) + 1):
        tries = Tries()
        number = int(tries.open(1)[0])
        samples.append(clock(tries.update, number, keys, values)[1])
    samples = samples[1:]
    few = min(size, MOST_PLAIN)
    plain = dict(zip(keys[:few].to_pylist(), values[:few].to_pylist(), strict=True))
    alone = Tries()
    alone.update(alone.open(1).repeat(few), keys[:few], values[:few])
    require_same(bytes(alone.roots(np.zeros(1, np.int64))[0]), plain_root(plain, StateVersion.V1), "a state")
    by_one = clock(plain_root, plain, StateVersion.V1)[1]
    contenders = {OURS: (samples, size), BY_ONE: ([by_one] * len(samples), few)}
    rows = [row("commit", f"state: {size:,} committed", "entries", contenders)]
    for count in sorted({max(1, size // share) for share in SHARES}):
        changed = some_of(0, size, count)
        rows += _changes(tries, number, changed, keys, values, others, samples, repeats)
    return [*rows, _queues(values, size, repeats), *_proofs(tries, number, keys, repeats)]


def _changes(
    tries: Tries,
    number: int,
    changed: Rows,
    keys: pa.Array,
    values: pa.Array,
    others: pa.Array,
    rebuilt: Samples,
    repeats: int,
) -> list[Row]:
    """Overwrite, remove and insert the same entries, turn by turn; the state is afterwards what it was."""
    rows = pa.array(changed)
    some, before, after = keys.take(rows), values.take(rows), others.take(rows)
    nothing = pa.nulls(len(changed), pa.large_binary())
    steps: list[tuple[str, Callable[[], None]]] = [
        ("overwritten", lambda: tries.update(number, some, after)),
        ("removed", lambda: tries.update(number, some, nothing)),
        ("inserted", lambda: tries.update(number, some, before)),
    ]
    samples: dict[str, Samples] = {what: [] for what, _ in steps}
    root = tries.roots(np.array([number])).tobytes()
    for _ in range(repeats):
        for what, step in steps:
            samples[what].append(clock(step)[1])
    require_same(tries.roots(np.array([number])).tobytes(), root, "a state changed and changed back")
    beside = (rebuilt, len(changed))
    return [
        row("commit", f"state: {len(changed):,} {what}", "changes", {OURS: (took, len(changed)), REBUILD: beside})
        for what, took in samples.items()
    ]


def _queues(messages: pa.Array, size: int, repeats: int) -> Row:
    groups = Groups(np.arange(size), np.ones(size, dtype=np.int64), size)
    few = messages[: min(size, MOST_PLAIN)].to_pylist()

    def one_by_one() -> list[bytes]:
        return [plain_root({ordered_key(0): message}, StateVersion.V0) for message in few]

    roots = ordered_roots(messages, groups)
    require_same(roots[: len(few)].tobytes(), b"".join(one_by_one()), "roots of queues")
    return compared(
        "commit",
        f"{size:,} queues of one message",
        "queues",
        {OURS: (timed(lambda: ordered_roots(messages, groups)), size), BY_ONE: (timed(one_by_one), len(few))},
        repeats,
    )


def _proofs(tries: Tries, number: int, keys: pa.Array, repeats: int) -> list[Row]:
    asked = keys.take(pa.array(some_of(0, len(keys), IN_BULK)))
    each = np.full(len(asked), number)
    shared = np.arange(len(asked)) // MANY
    under = np.full(int(shared[-1]) + 1, number)
    few = min(ONE_BY_ONE, len(asked))
    single = asked[:few].to_pylist()

    def one_by_one() -> list[list[bytes]]:
        return [prove_storage(tries, each[:1], [key]).nodes_of(0) for key in single]

    made = prove_storage(tries, each, asked)
    require_same([made.nodes_of(index) for index in range(few)], one_by_one(), "proofs of one key each")
    bulk = {OURS: (timed(lambda: prove_storage(tries, each, asked)), len(asked)), BY_ONE: (timed(one_by_one), few)}
    joint = {OURS: (timed(lambda: prove_storage(tries, under, asked, shared)), len(asked))}
    return [
        compared("prove", f"{len(asked):,} keys, a proof each", "proofs", bulk, repeats),
        compared("prove", f"{len(asked):,} keys, {len(under)} proofs of up to {MANY:,}", "keys", joint, repeats),
    ]


def _column(rows: npt.NDArray[np.uint8]) -> pa.Array:
    return binary_rows(rows).cast(pa.large_binary())
