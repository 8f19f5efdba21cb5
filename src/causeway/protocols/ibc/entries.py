"""Entries of queues as leaves of a zone's store (IBC reference 2.3, 2.4, 2.6): from messages to leaf hashes.

A leaf's hash is SHA256(00 || uvarint(len key) || key || 20 || SHA256(value)), as ICS-23's Tendermint spec has it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.frame import Frame
from causeway.model.order import U64
from causeway.proofs.hashing import (
    DIGEST_BYTES,
    Digests,
    HashFunction,
    binary_rows,
    digest_in_pieces,
    digest_rows,
    sha256,
)
from causeway.proofs.merkle import LEAF_PREFIX
from causeway.proofs.varints import uvarint
from causeway.protocols.ibc.disconnecting import is_final
from causeway.protocols.ibc.envelope import answer_column, call_column
from causeway.protocols.ibc.expiry import time_limits
from causeway.protocols.ibc.keys import HEAD_KEY, INDEX_BYTES, TAIL_KEY
from causeway.protocols.ibc.options import DISCONNECT_TYPE
from causeway.protocols.ibc.state import RECEIPT, SEND
from causeway.protocols.ibc.values import packet_column, receipt_column
from causeway.protocols.ibc.zones import Zones


def type_codes(messages: Frame, zones: Zones) -> npt.NDArray[np.int32]:
    """Return the type of the packet that each request becomes, as its row in ``zones.types``.

    It is the request's method, if that is a declared type, else ``call``.
    """
    method = messages["method"]
    known = {name: code for code, name in enumerate(zones.types)}
    codes = [known.get(name, 0) for name in method.dictionary.to_pylist()]
    found: npt.NDArray[np.int32] = np.array(codes, dtype=np.int32)[method.indices.to_numpy(zero_copy_only=False)]
    return found


def values_of(messages: Frame, substream: int, zones: Zones, tick_ns: int) -> pa.BinaryArray:
    """Return V_send (``substream`` SEND) or V_receipt of each message.

    ``messages``: the message columns, for packets with limits also ``max_height`` and ``sent_tick``.
    """
    final = is_final(messages)
    if substream == RECEIPT:
        return receipt_column(messages["code"], _emptied(answer_column(messages), final))
    codes = np.where(final, np.int32(len(zones.types)), type_codes(messages, zones))
    types = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([*zones.types, DISCONNECT_TYPE], pa.string()))
    data = _emptied(call_column(messages), final)
    if not zones.options.limited:
        return packet_column(types, data)
    return packet_column(
        types, data, messages["max_height"], time_limits(messages["sent_tick"], tick_ns, zones.options)
    )


def _emptied(values: pa.BinaryArray, chosen: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    return pc.if_else(pa.array(chosen), pa.scalar(b"", pa.binary()), values) if chosen.any() else values


def entry_digests(messages: Frame, zones: Zones, tick_ns: int) -> tuple[Digests, Digests]:
    """Return the hash of each message's value, and its leaf hash: see ``entry_leaves``."""
    length = len(messages)
    substream = messages["substream"]
    values, leaves = (np.empty((length, DIGEST_BYTES), dtype=np.uint8) for _ in range(2))
    for kind in (RECEIPT, SEND):
        rows = np.flatnonzero(substream == kind)
        if len(rows) == 0:
            continue
        mine = messages if len(rows) == length else messages.take(rows)
        hashed = _hashed_values(mine, kind, zones, tick_ns)
        found = index_leaves(mine["destination"], mine["index"], kind, hashed, zones)
        if len(rows) == length:
            return hashed, found
        values[rows], leaves[rows] = hashed, found
    return values, leaves


def _hashed_values(messages: Frame, kind: int, zones: Zones, tick_ns: int) -> Digests:
    def values(start: int, stop: int) -> pa.BinaryArray:
        return values_of(messages.slice(start, stop), kind, zones, tick_ns)

    return digest_in_pieces(HashFunction.SHA256, len(messages), values)


def index_leaves(destination: npt.NDArray[np.uint32], index: U64, kind: int, hashed: Digests, zones: Zones) -> Digests:
    """Return the leaf hashes of entries of queues for ``destination``, given the hashes of their values."""
    names = zones.index_prefixes[kind]

    def preimages(start: int, stop: int) -> pa.BinaryArray:
        tails = np.empty((stop - start, INDEX_BYTES + 1 + DIGEST_BYTES), dtype=np.uint8)
        tails[:, :INDEX_BYTES] = index[start:stop].astype(">u8").view(np.uint8).reshape(-1, INDEX_BYTES)
        tails[:, INDEX_BYTES] = DIGEST_BYTES
        tails[:, INDEX_BYTES + 1 :] = hashed[start:stop]
        prefixes = names.take(pa.array(destination[start:stop]))
        return pc.binary_join_element_wise(prefixes, binary_rows(tails), pa.scalar(b"", pa.binary()))

    return digest_in_pieces(HashFunction.SHA256, len(index), preimages)


def position_leaves(queues: Frame, part: bytes, positions: U64, zones: Zones) -> Digests:
    """Return the leaf hash of the head (``part`` HEAD_KEY) or tail of each lane, whose value is its position."""
    return end_leaves(queues, part, hashed_positions(positions), zones)


def hashed_positions(positions: U64) -> Digests:
    """Return the hashes of heads and tails as values."""
    return digest_rows(HashFunction.SHA256, positions.astype(">u8").view(np.uint8).reshape(-1, INDEX_BYTES))


def end_leaves(queues: Frame, part: bytes, hashed: Digests, zones: Zones) -> Digests:
    """Return the leaf hash of the head or tail of each lane, given the hashes of their values."""
    zone_count = len(zones.names)
    names = zones.end_prefixes[part]
    choice = queues["substream"].astype(np.int64) * zone_count + queues["destination"].astype(np.int64)
    return digest_in_pieces(
        HashFunction.SHA256,
        len(queues),
        lambda start, stop: pc.binary_join_element_wise(
            names.take(pa.array(choice[start:stop])), binary_rows(hashed[start:stop]), pa.scalar(b"", pa.binary())
        ),
    )


def leaf_of(key: bytes, value: bytes) -> bytes:
    """Return the leaf hash of one entry of a store."""
    head = LEAF_PREFIX + uvarint(len(key)) + key + bytes([DIGEST_BYTES])
    return sha256(head + sha256(value))


__all__ = [
    "HEAD_KEY", "TAIL_KEY", "end_leaves", "entry_digests", "hashed_positions", "index_leaves",
    "leaf_of", "position_leaves", "type_codes", "values_of",
]  # fmt: skip
