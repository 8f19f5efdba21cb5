"""The canonical state tree of a subnet (2.9), and what is certified of it.

Labels at the top, of which those that hold nothing are absent:

canister   / canister id / certified_data     what a canister has set, as it has set it
causeway   / section                          32 bytes each: digests of the sections of the state that 2.9 has no
                                              place for, given from outside but for `loopback`; only with scope Full
metadata   / height, prev_state_hash          LEB128 of the subnet's own height; the root before, absent at height 0
                                              (before V24 one leaf, SystemMetadata)
streams    / stream / header, messages / index    not to itself from V20 on; no `messages` where there are none
time                                          LEB128 of the batch time in ns

The label of a stream is the id of the subnet that it leads to; with substreams, each is a stream of its own, and its
label is that id followed by the id of the canister that names the substream.
"""

from collections.abc import Mapping
from typing import Any

from tests.spec.ic.encoding import (
    CURRENT,
    LOOPBACK_NOT_CERTIFIED,
    METADATA_SUBTREE,
    encoded_header,
    encoded_message,
    encoded_metadata,
    leb128,
)
from tests.spec.ic.hash_tree import LabeledTree, root_of
from tests.spec.ic.ids import SubnetId, canister_bytes, subnet_bytes
from tests.spec.ic.state import CanonicalState, SubstreamId, expected_index, rejects_of, stream_begin, stream_end

FULL, METADATA = "Full", "Metadata"


def index_label(index: int) -> bytes:
    """8 bytes big-endian."""
    return index.to_bytes(8, "big")


def stream_label(remote: SubnetId, substream: SubstreamId = ()) -> bytes:
    """Where a substream of the stream to `remote` stands in `streams`."""
    return subnet_bytes(remote) + (canister_bytes(substream) if isinstance(substream, int) else b"")


def messages_tree(
    state: CanonicalState, remote: SubnetId, version: int = CURRENT, substream: SubstreamId = ()
) -> dict[bytes, bytes]:
    """The messages of a substream of the stream to `remote`."""
    queue = state.stream(remote).msgs.get(substream)
    elements = {} if queue is None else queue.elements
    return {index_label(i): encoded_message(message, version) for i, message in elements.items()}


def stream_tree(
    state: CanonicalState, remote: SubnetId, index_base: int, version: int = CURRENT, substream: SubstreamId = ()
) -> dict[bytes, LabeledTree] | None:
    """Header and messages of a substream of the stream to `remote`; nothing if none was ever sent or taken there."""
    stream = state.stream(remote)
    begin, end = stream_begin(stream, substream, index_base), stream_end(stream, substream, index_base)
    signals_end = expected_index(state.expected_xnet_indices, remote, substream, index_base)
    if end == signals_end == index_base:
        return None
    messages = messages_tree(state, remote, version, substream)
    header = encoded_header(begin, end, signals_end, rejects_of(stream, substream))
    return {b"header": header, **({b"messages": messages} if messages else {})}


def loopback_tree(state: CanonicalState, version: int = CURRENT) -> dict[bytes, LabeledTree]:
    """The messages of the stream to oneself; with substreams those of each that has any, under its canister's id."""
    found: dict[bytes, LabeledTree] = dict(messages_tree(state, state.own, version))
    for substream in state.stream(state.own).msgs:
        messages = messages_tree(state, state.own, version, substream)
        if isinstance(substream, int) and messages:
            found[canister_bytes(substream)] = messages
    return found


def state_tree(
    state: CanonicalState,
    previous: bytes | None,
    sections: Mapping[str, bytes],
    index_base: int,
    *,
    scope: str = FULL,
    version: int = CURRENT,
) -> dict[bytes, LabeledTree]:
    """The whole tree of a state. `previous`: the root of the state before it, None at height 0. `sections`: the
    digests of our own sections, of which `loopback` is made here."""
    lanes = {(remote, substream) for remote, stream in state.streams.items() for substream in stream.msgs}
    lanes |= {(remote, substream) for remote, (substream, _) in state.expected_xnet_indices}
    if version >= LOOPBACK_NOT_CERTIFIED:
        lanes = {(remote, substream) for remote, substream in lanes if remote != state.own}
    streams = {
        stream_label(remote, substream): stream_tree(state, remote, index_base, version, substream)
        for remote, substream in lanes
    }
    certified = {canister_bytes(canister): {b"certified_data": data} for canister, data in state.certified_data.items()}
    metadata: Any = encoded_metadata(previous)
    if version >= METADATA_SUBTREE:
        metadata = {b"height": leb128(state.number)}
        if previous is not None:
            metadata[b"prev_state_hash"] = previous
    own_sections = dict(sections)
    if "loopback" in own_sections:
        own_sections["loopback"] = root_of(loopback_tree(state, version))
    found: dict[bytes, Any] = {
        b"canister": certified,
        b"causeway": {name.encode(): digest for name, digest in own_sections.items()} if scope == FULL else {},
        b"metadata": metadata,
        b"streams": {subnet: tree for subnet, tree in streams.items() if tree is not None},
        b"time": leb128(state.time_ns),
    }
    return {label: tree for label, tree in found.items() if tree != {}}
