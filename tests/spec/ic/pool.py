"""The slice pool (X-15), as functions on a dict from remote subnets to the slice that is pooled of each."""

from collections.abc import Mapping
from dataclasses import replace

from tests.spec.ic.certified import (
    CertifiedStreamSlice,
    decode_certified_stream,
    garbage_collect,
    read_payload,
    take_prefix,
)
from tests.spec.ic.encoding import CURRENT, MAX_U64
from tests.spec.ic.errors import InvalidAppend, TakeBeforeSliceBegin
from tests.spec.ic.hash_tree import Witness
from tests.spec.ic.ids import SubnetId
from tests.spec.ic.sizes import certified_bytes
from tests.spec.ic.tree import index_label

Pool = dict[SubnetId, CertifiedStreamSlice]


def put(
    pool: Pool,
    own: SubnetId,
    remote: SubnetId,
    css: CertifiedStreamSlice,
    begin: int | None = None,
    version: int = CURRENT,
) -> None:
    """Decode and verify, trim below the position `begin`. It replaces what is pooled, whatever that has: a bad slice
    must not stick."""
    decode_certified_stream(own, remote, css, version)
    pool[remote] = css if begin is None else garbage_collect(css, begin)


def append(pool: Pool, own: SubnetId, remote: SubnetId, suffix: CertifiedStreamSlice, version: int = CURRENT) -> None:
    """A suffix whose witness starts at the pooled begin; what it joins is verified before it is pooled."""
    if remote not in pool:
        put(pool, own, remote, suffix, version=version)
        return
    pooled = pool[remote]
    ours, theirs = read_payload(pooled.payload, version), read_payload(suffix.payload, version)
    if ours.label != theirs.label:
        raise InvalidAppend("DifferentSubnet")
    if theirs.header.signals_end < ours.header.signals_end:
        raise InvalidAppend("SignalsEndRegresses")
    if ours.blobs and theirs.blobs and min(theirs.blobs) != max(ours.blobs) + 1:
        raise InvalidAppend("IndexMismatch")
    blobs = {**ours.blobs, **theirs.blobs}
    if witness_begin(suffix.witness, theirs.label) != min(blobs, default=None):
        raise InvalidAppend("IndexMismatch")
    messages = {index_label(index): blob for index, blob in blobs.items()}
    part = {b"header": theirs.header_bytes, **({b"messages": messages} if messages else {})}
    joined = replace(suffix, payload={b"streams": {ours.label: part}}, heights={**pooled.heights, **suffix.heights})
    decode_certified_stream(own, remote, joined, version)
    pool[remote] = joined


def witness_begin(witness: Witness, subnet: bytes) -> int | None:
    """The first index whose message the witness takes for known."""
    found: list[int] = []

    def walk(node: Witness, path: tuple[bytes, ...]) -> None:
        if node[0] == "fork":
            walk(node[1], path)
            walk(node[2], path)
        elif node[0] == "node":
            walk(node[2], (*path, node[1]))
        elif node[0] == "known" and len(path) == 4 and path[:3] == (b"streams", subnet, b"messages"):
            found.append(int.from_bytes(path[3], "big"))

    walk(witness, ())
    return min(found, default=None)


def take(
    pool: Pool,
    remote: SubnetId,
    begin: int | None = None,
    msg_limit: int | None = None,
    byte_limit: int | None = None,
) -> CertifiedStreamSlice | None:
    """The longest prefix from `begin` on within the limits (count_bytes); the rest stays. Nothing where nothing is
    pooled, or not even the header fits. A slice that begins behind `begin` is dropped."""
    if remote not in pool:
        return None
    pooled = pool[remote] if begin is None else garbage_collect(pool[remote], begin)
    indices = sorted(read_payload(pooled.payload).blobs)
    if begin is not None and indices and indices[0] > begin:
        del pool[remote]
        raise TakeBeforeSliceBegin(f"asked from {begin}, pooled from {indices[0]}")
    for count in range(len(indices) if msg_limit is None else min(msg_limit, len(indices)), -1, -1):
        prefix = take_prefix(pooled, count)
        if byte_limit is None or certified_bytes(prefix) <= byte_limit:
            del pool[remote]
            if count < len(indices):
                pool[remote] = garbage_collect(pooled, indices[count])
            return prefix
    pool[remote] = pooled
    return None


def collect(pool: Pool, positions: Mapping[SubnetId, tuple[int, int]]) -> None:
    """Drop what is below the (expected index, expected signal) of each subnet, slices that bring nothing beyond, and
    slices of subnets that have no position."""
    for remote, pooled in list(pool.items()):
        index, signal = positions.get(remote, (MAX_U64, MAX_U64))
        pool[remote] = garbage_collect(pooled, index)
        found = read_payload(pool[remote].payload)
        if not found.blobs and found.header.signals_end <= signal:
            del pool[remote]
