"""The part of a state that holds its streams, from their roots."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import Digests
from causeway_proofs.ic.digest_columns import fork_roots, indexed_digests, leaf_digests
from causeway_proofs.ic.hash_tree import HashTree, Pruned, build_tree, digest
from causeway_proofs.ic.lookup import prune
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
