"""Envelopes on the wire: ``CrossDomainMessage`` values in SCALE, to and from tables.

The tables store shared parts once: nodes of storage proofs, and the path from the mountain range to the state root. On
the wire each envelope has its own copy.

Reference: XDM, section 2.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.order import U64, Rows, group_rows, stable_order
from causeway_proofs.substrate import numbers_column, to_limbs
from causeway_proofs.xdm import ENVELOPES

from causeway.core.frame import Frame, empty_frame
from causeway.core.joins import lookup_rows
from causeway.protocols.shared.digests import digests, fixed_column
from causeway.protocols.xdm.chains import chain_ids, positions_of_ids
from causeway.protocols.xdm.state import MAX_CHANNEL, MAX_NONCE, lane_channels, substream
from causeway.protocols.xdm.tables import BASE, BASES_SCHEMA, ENDS, LATE_BASES_SCHEMA, LATE_NODES_SCHEMA, LATE_SCHEMA
from causeway.protocols.xdm.transactions import decode_lists, encode_lists
from causeway.protocols.xdm.validate import DeliveredEnvelopes, Mask
from causeway.protocols.xdm.wire import TAG_BITS, U256_BYTES, Tag

CONSENSUS_PROOF, DOMAIN_PROOF = 0, 1
"""Variants of a proof, numbered as on the wire."""

MAX_BLOCK = MAX_POSITION = 2**32 - 1
_MEMBER_BYTES = 4


def encode_envelopes(delivered: DeliveredEnvelopes) -> pa.LargeBinaryArray:
    """Encode each row of ``delivered.envelopes`` as ``CrossDomainMessage``.

    Args:
        delivered: Envelopes with their nodes and bases.

    Raises:
        InvalidInput: A row lacks its base, names an unknown node or one twice, or a base does not fit the wire format.
    """
    rows, bases, nodes = delivered.envelopes, delivered.bases, delivered.nodes
    count = len(rows)
    if count == 0:
        return pa.array([], pa.large_binary())
    base = lookup_rows(bases, rows, BASE)
    if (base < 0).any():
        raise InvalidInput(f"envelopes: row {int(np.argmax(base < 0))} has no row of bases")
    members, starts = _members(rows, nodes)
    proof = np.where(_lengths(bases["domain_proof"]) > 0, DOMAIN_PROOF, CONSENSUS_PROOF).astype(np.uint8)
    domain_proofs, listed = decode_lists(bases["domain_proof"].cast(pa.large_binary()))
    items = [_split_digests(value) for value in bases["items"].to_pylist()]
    if not (listed | (proof == CONSENSUS_PROOF)).all() or None in items or (bases["block"] > MAX_BLOCK).any():
        raise InvalidInput("bases: there are items, a domain_proof or a block number that are none of the wire")
    domain_proofs = pc.if_else(pa.array(proof == DOMAIN_PROOF), domain_proofs, pa.scalar(None, domain_proofs.type))
    schema, take = ENVELOPES.schema, pa.array(base)
    variant = (rows["tag"] & np.uint64(2**TAG_BITS - 1)).astype(np.uint8)
    with_endpoint = np.isin(variant, (Tag.ENDPOINT_REQUEST, Tag.ENDPOINT_RESPONSE))
    columns = {
        "src_chain_id": chain_ids(rows["source"]),
        "dst_chain_id": chain_ids(rows["destination"]),
        "channel_id": numbers_column(lane_channels(rows["substream"]), U256_BYTES),
        "nonce": numbers_column(rows["index"], U256_BYTES),
        "proof": pa.array(proof[base]),
        "consensus_block_number": pa.array(bases["block"][base].astype(np.uint32)),
        "consensus_block_hash": fixed_column(bases["block_hash"][base]),
        "opaque_mmr_leaf": bases["leaf"].take(take).cast(pa.large_binary()),
        "leaf_indices": _lists(np.arange(count + 1), pa.array(bases["leaf_index"][base])),
        "leaf_count": pa.array(bases["leaf_count"][base]),
        "items": pa.array(items, schema.field("items").type).take(take),
        "message_proof": _lists(starts, nodes["node"].cast(pa.large_binary()).take(pa.array(members))),
        "domain_proof": domain_proofs.take(take),
        "weight_tag": pa.array(variant),
        "weight_tag_endpoint": pa.array(rows["tag"] >> np.uint64(TAG_BITS), mask=~with_endpoint),
    }
    return ENVELOPES.encode(columns)


def decode_envelopes(values: pa.Array, responses: Mask) -> tuple[DeliveredEnvelopes, Mask]:
    """Decode wire envelopes to tables, without verification.

    Envelopes with an equal proof path between two chains share a base. ``validate.read_envelopes`` verifies them.

    Args:
        values: ``CrossDomainMessage`` values, large_binary.
        responses: Mask of responses; the wire format does not tell.

    Returns:
        The readable envelopes in order, and a mask of unreadable ones.
    """
    decoded = ENVELOPES.decode(values.cast(pa.large_binary()))
    rows, refused = decoded.columns, decoded.verdicts.codes != 0
    channel, nonce = (to_limbs(rows[name].fill_null(bytes(U256_BYTES))) for name in ("channel_id", "nonce"))
    refused |= (channel[:, 1:] != 0).any(axis=1) | (nonce[:, 1:] != 0).any(axis=1)
    refused |= (channel[:, 0] > MAX_CHANNEL) | (nonce[:, 0] > MAX_NONCE)
    refused |= rows["leaf_indices"].value_lengths().fill_null(0).to_numpy(zero_copy_only=False) != 1
    endpoint = rows["weight_tag_endpoint"].fill_null(0).to_numpy(zero_copy_only=False)
    refused |= endpoint >> np.uint64(64 - TAG_BITS) != 0
    chains = {
        name: positions_of_ids(rows[column])
        for name, column in (("source", "src_chain_id"), ("destination", "dst_chain_id"))
    }
    refused |= (chains["source"] > MAX_POSITION) | (chains["destination"] > MAX_POSITION)
    readable = np.flatnonzero(~refused)
    if len(readable) == 0:
        return DeliveredEnvelopes(
            *(empty_frame(schema) for schema in (LATE_SCHEMA, LATE_NODES_SCHEMA, LATE_BASES_SCHEMA))
        ), refused
    rows, channel, nonce = rows.take(pa.array(readable)), channel[readable, 0], nonce[readable, 0]
    lanes = {
        **{name: positions[readable].astype(np.uint32) for name, positions in chains.items()},
        "substream": substream(channel, 0) | responses[readable].astype(np.uint64),
        "index": nonce,
    }
    variant = rows["weight_tag"].to_numpy(zero_copy_only=False)
    tag: U64 = (endpoint[readable] << np.uint64(TAG_BITS)) | variant.astype(np.uint64)
    envelopes = Frame({**lanes, "tag": tag}, len(readable))
    bases, base = _number_bases(rows, envelopes)
    envelopes = envelopes.with_columns(base=base)
    members, nodes = _number_nodes(rows["message_proof"], envelopes)
    return DeliveredEnvelopes(envelopes.with_columns(members=members), nodes, bases), refused


def _members(rows: Frame, nodes: Frame) -> tuple[Rows, Rows]:
    """Return the rows of ``nodes`` of each envelope's proof, in ascending order of content."""
    packed = rows["members"].cast(pa.large_binary())
    lengths = _lengths(packed)
    data = b"".join(packed.to_pylist())
    if (lengths % _MEMBER_BYTES != 0).any():
        raise InvalidInput(f"members: row {int(np.argmax(lengths % _MEMBER_BYTES != 0))} has a part of a number")
    counts = lengths // _MEMBER_BYTES
    numbers = np.frombuffer(data, dtype="<u4").astype(np.uint32)
    owner = np.repeat(np.arange(len(rows)), counts)
    keys = Frame({name: rows[name][owner] for name in BASE} | {"number": numbers}, len(numbers))
    found = lookup_rows(nodes, keys, (*BASE, "number"))
    if (found < 0).any():
        raise InvalidInput(f"members: row {int(owner[np.argmax(found < 0)])} names a node that there is not")
    rank = np.empty(len(nodes), dtype=np.int64)
    rank[pc.sort_indices(nodes["node"].cast(pa.large_binary())).to_numpy()] = np.arange(len(nodes))
    order = np.lexsort((rank[found], owner))
    members: Rows = found[order]
    repeated = (members[1:] == members[:-1]) & (owner[1:] == owner[:-1])
    if repeated.any():
        raise InvalidInput(f"members: row {int(owner[np.argmax(repeated)])} names a node twice")
    return members, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _number_bases(rows: pa.RecordBatch, envelopes: Frame) -> tuple[Frame, U64]:
    """Return the distinct bases, numbered a pair of chains, and each envelope's number."""
    domain = rows["proof"].to_numpy(zero_copy_only=False) == DOMAIN_PROOF
    items = [b"".join(value) for value in rows["items"].to_pylist()]
    columns = {
        **{name: envelopes[name] for name in ENDS},
        "block": rows["consensus_block_number"].to_numpy(zero_copy_only=False).astype(np.uint64),
        "block_hash": digests(rows["consensus_block_hash"].to_pylist()),
        "leaf": rows["opaque_mmr_leaf"].cast(pa.binary()),
        "leaf_index": rows["leaf_indices"].flatten().to_numpy(zero_copy_only=False),
        "leaf_count": rows["leaf_count"].to_numpy(zero_copy_only=False),
        "items": pa.array(items, pa.binary()),
        "domain_proof": _distinct_lists(rows["domain_proof"], domain),
    }
    every = Frame(columns, len(envelopes))
    keys = [_column_codes(every[name]) for name in BASES_SCHEMA.names]
    order = stable_order(*keys)
    groups = group_rows(*(key[order] for key in keys))
    distinct = every.take(order[groups.starts])
    numbers = group_rows(*(distinct[name] for name in ENDS)).ranks().astype(np.uint64)
    base: U64 = np.empty(len(envelopes), dtype=np.uint64)
    base[order] = groups.spread(numbers)
    return distinct.with_columns(base=numbers), base


def _distinct_lists(lists: pa.LargeListArray, wanted: Mask) -> pa.BinaryArray:
    """Encode each wanted list of nodes as one value, empty for the others."""
    distinct: dict[tuple[bytes, ...] | None, int] = {None: 0}
    number = [
        distinct.setdefault(tuple(nodes) if is_wanted else None, len(distinct))
        for nodes, is_wanted in zip(lists.to_pylist(), wanted.tolist(), strict=True)
    ]
    values = [b"", *encode_lists([nodes for nodes in distinct if nodes is not None]).to_pylist()]
    return pa.array([values[at] for at in number], pa.binary())


def _number_nodes(lists: pa.LargeListArray, envelopes: Frame) -> tuple[pa.BinaryArray, Frame]:
    """Return each envelope's nodes as packed numbers, and the table of distinct nodes a base."""
    counts = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    if not counts.any():
        return pa.array([b""] * len(envelopes), pa.binary()), empty_frame(LATE_NODES_SCHEMA)
    values = lists.flatten().dictionary_encode()
    owner = np.repeat(np.arange(len(envelopes)), counts)
    content = values.indices.to_numpy(zero_copy_only=False).astype(np.uint64)
    keys = [*(envelopes[name][owner] for name in BASE), content]
    order = stable_order(*keys)
    groups = group_rows(*(column[order] for column in keys))
    first = order[groups.starts]
    number = group_rows(*(column[first] for column in keys[:-1])).ranks().astype(np.uint32)
    numbers = np.empty(len(owner), dtype="<u4")
    numbers[order] = groups.spread(number)
    nodes = Frame(
        {
            **{name: column[first] for name, column in zip(BASE, keys, strict=False)},
            "number": number,
            "node": values.dictionary.take(pa.array(content[first].astype(np.int64))).cast(pa.binary()),
        },
        len(first),
    )
    ends_of = np.concatenate([[0], np.cumsum(counts)]) * _MEMBER_BYTES
    packed = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(envelopes), [None, pa.py_buffer(ends_of.astype(np.int64)), pa.py_buffer(numbers)]
    )
    return packed.cast(pa.binary()), nodes


def _column_codes(column: Any) -> U64:
    """Return equal numbers for equal values of a column."""
    if isinstance(column, np.ndarray) and column.ndim == 1:
        return column.astype(np.uint64)
    values = fixed_column(column) if isinstance(column, np.ndarray) else column
    numbers: U64 = values.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.uint64)
    return numbers


def _split_digests(packed: bytes) -> list[bytes] | None:
    """Split concatenated digests; None for a wrong length."""
    if len(packed) % DIGEST_BYTES:
        return None
    return [packed[at : at + DIGEST_BYTES] for at in range(0, len(packed), DIGEST_BYTES)]


def _lengths(column: pa.Array) -> Rows:
    lengths: Rows = pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _lists(offsets: npt.NDArray[np.integer[Any]], values: pa.Array) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array(offsets.astype(np.int64)), values)


__all__ = ["decode_envelopes", "encode_envelopes"]
