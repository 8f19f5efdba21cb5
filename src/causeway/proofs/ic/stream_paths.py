"""The path of a stream: what is hashed on the way from its root to the state's, without the rest of the state.

Two bytes, the numbers n1 and n2, then n1 + n2 steps of 33 bytes: the side of the sibling (0 left, 1 right) and its
digest. From the stream's root: the label of the subnet that the stream leads to, n1 forks, the label ``streams``, n2
forks, the state's root.
"""

from __future__ import annotations

from collections.abc import Iterator

from causeway.proofs.errors import MalformedProof
from causeway.proofs.ic.digest_columns import LEFT, RIGHT, STEP_BYTES
from causeway.proofs.ic.hash_tree import Fork, HashTree, Labeled, Pruned
from causeway.proofs.ic.slice_payload import STREAMS

COUNTS = 2


def tree_along(path: bytes, subnet: bytes, stream: HashTree) -> HashTree:
    """Return the state's tree that shows ``stream``, which leads to ``subnet``, and has all else pruned.

    Raises:
        MalformedProof: ``path`` is none.
    """
    if len(path) < COUNTS or len(path) != COUNTS + STEP_BYTES * sum(path[:COUNTS]):
        raise MalformedProof(f"the path of a stream has {len(path)} bytes, its first two say another length")
    first = path[0]
    steps = list(_steps(path))
    streams = _forked(Labeled(subnet, stream), steps[:first])
    return _forked(Labeled(STREAMS, streams), steps[first:])


def _steps(path: bytes) -> Iterator[tuple[int, Pruned]]:
    for start in range(COUNTS, len(path), STEP_BYTES):
        side = path[start]
        if side not in (LEFT, RIGHT):
            raise MalformedProof(f"a step in the path of a stream has the side {side}: {LEFT} is left, {RIGHT} right")
        yield side, Pruned(path[start + 1 : start + STEP_BYTES])


def _forked(node: HashTree, steps: list[tuple[int, Pruned]]) -> HashTree:
    for side, sibling in steps:
        node = Fork(sibling, node) if side == LEFT else Fork(node, sibling)
    return node
