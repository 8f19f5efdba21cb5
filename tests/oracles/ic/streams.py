"""The part of a state that holds its streams, from their roots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import Digests
from causeway_proofs.ic.digest_columns import fork_roots, indexed_digests, leaf_digests
from causeway_proofs.ic.hash_tree import (
    EMPTY_DIGEST,
    HashTree,
    Pruned,
    build_tree,
    digest,
    fork_digest,
    labeled_digest,
    leaf_digest,
)
from causeway_proofs.ic.lookup import prune
from causeway_proofs.ic.slice_payload import index_label
from causeway_proofs.ic.stream_tree import roots_of_streams
from causeway_proofs.order import U64, Groups


def streams_tree(roots: Mapping[bytes, bytes]) -> HashTree:
    """Return the subtree ``streams`` from the root of each stream, by the id of the subnet that it leads to."""
    return build_tree({subnet: Pruned(root) for subnet, root in roots.items()})


def streams_witness(roots: Mapping[bytes, bytes], subnet: bytes, stream: HashTree) -> HashTree:
    """Return the subtree ``streams`` that shows ``stream``, a witness of the stream to ``subnet``, and no other.

    Raises:
        InvalidInput: ``stream`` does not have the root that ``roots`` gives for ``subnet``.
    """
    if roots.get(subnet) != digest(stream):
        raise InvalidInput(
            f"the stream to {subnet.hex()} has the root {digest(stream).hex()}, not the one committed to"
        )
    streams: dict[bytes, HashTree] = {other: Pruned(root) for other, root in roots.items()}
    streams[subnet] = stream
    return prune(build_tree(streams), [[subnet]])


def stream_roots(headers: pa.BinaryArray, indexes: U64, messages: pa.BinaryArray, groups: Groups) -> Digests:
    """Return the roots of many streams at once, shape (len(groups), 32).

    Args:
        headers: the encoded header of each stream.
        indexes: the index of each message.
        messages: the encoded messages, the streams one after the other, each in ascending order of indexes.
        groups: which messages are of which stream; a group may be empty.
    """
    message_roots = fork_roots(indexed_digests(indexes, leaf_digests(messages)), groups)
    return roots_of_streams(headers, message_roots, groups.counts > 0)


class PlainStream:
    """The messages of one stream; its root is hashed anew each time (IC reference 2.9)."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self._digests: list[bytes] = []

    @property
    def end(self) -> int:
        """Return the index after the last message."""
        return self.begin + len(self._digests)

    @property
    def root(self) -> bytes:
        """Return the digest of the subtree."""
        level = self._digests or [EMPTY_DIGEST]
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=False)
            level = [fork_digest(*pair) for pair in pairs] + level[len(level) & ~1 :]
        return level[0]

    def append(self, messages: Sequence[bytes]) -> None:
        """Append messages."""
        for message in messages:
            self._digests.append(labeled_digest(index_label(self.end), leaf_digest(message)))

    def trim(self, begin: int) -> None:
        """Drop the messages below index ``begin``."""
        self._digests = self._digests[begin - self.begin :]
        self.begin = begin
