"""Commitments to many packets at once, from columns: shape (n,) in, digests of shape (n, 32) out.

Same rules as ``packets.py``, without a Python loop over packets. Packets of version 2 and their payloads are two
tables: the payloads of a packet are neighbours, and ``Groups`` says which.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.model.order import U64, Groups
from causeway.proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows, digest_values

TextColumn = Any
"""An Arrow array of text, dictionary-encoded or not."""

VERSION_2 = 2


def commit_packets_v1(
    timeout_timestamp: U64, revision_number: U64, revision_height: U64, data: pa.BinaryArray
) -> Digests:
    """Return the commitments to version 1 packets; see ``packets.commit_packet_v1``."""
    numbers = big_endian(timeout_timestamp), big_endian(revision_number), big_endian(revision_height)
    return digest_rows(
        HashFunction.SHA256, np.concatenate([*numbers, digest_values(HashFunction.SHA256, data)], axis=1)
    )


def commit_acknowledgements_v1(acknowledgements: pa.BinaryArray) -> Digests:
    """Return the commitments to acknowledgements of version 1 packets."""
    return digest_values(HashFunction.SHA256, acknowledgements)


def hash_payloads(
    source_port: TextColumn,
    destination_port: TextColumn,
    version: TextColumn,
    encoding: TextColumn,
    value: pa.BinaryArray,
) -> Digests:
    """Return the hashes of payloads; see ``packets.hash_payload``."""
    texts = [hash_texts(column) for column in (source_port, destination_port, version, encoding)]
    return digest_rows(HashFunction.SHA256, np.concatenate([*texts, digest_values(HashFunction.SHA256, value)], axis=1))


def commit_packets_v2(
    destination_client: TextColumn, timeout_timestamp: U64, payload_hashes: Digests, payloads: Groups
) -> Digests:
    """Return the commitments to version 2 packets; see ``packets.commit_packet_v2``.

    Args:
        destination_client, timeout_timestamp: one a packet; seconds since 1970.
        payload_hashes: one a payload, from ``hash_payloads``.
        payloads: one group of payloads a packet, one payload at least in each.
    """
    _require_groups(payloads, len(timeout_timestamp), len(payload_hashes))
    preimages = np.empty((len(timeout_timestamp), 1 + 3 * DIGEST_BYTES), dtype=np.uint8)
    preimages[:, 0] = VERSION_2
    preimages[:, 1:33] = hash_texts(destination_client)
    preimages[:, 33:65] = digest_rows(HashFunction.SHA256, big_endian(timeout_timestamp))
    preimages[:, 65:97] = _hash_groups(payload_hashes, payloads, b"")
    return digest_rows(HashFunction.SHA256, preimages)


def commit_acknowledgements_v2(acknowledgements: pa.BinaryArray, packets: Groups) -> Digests:
    """Return the commitments to acknowledgements of version 2 packets; see ``packets.commit_acknowledgement_v2``.

    Args:
        acknowledgements: one a payload.
        packets: one group of acknowledgements a packet, one at least in each.
    """
    _require_groups(packets, len(packets), len(acknowledgements))
    return _hash_groups(digest_values(HashFunction.SHA256, acknowledgements), packets, bytes([VERSION_2]))


def hash_texts(texts: TextColumn) -> Digests:
    """Return the SHA-256 digest of each text; a text that many rows have is hashed once."""
    column = texts if pa.types.is_dictionary(texts.type) else pc.dictionary_encode(texts)
    if column.null_count:
        raise InvalidInput("a text column of packets has nulls, texts are needed")
    digests = digest_values(HashFunction.SHA256, column.dictionary)
    found: Digests = digests[column.indices.to_numpy(zero_copy_only=False)]
    return found


def big_endian(values: U64) -> npt.NDArray[np.uint8]:
    """Return each number as 8 bytes, shape (n, 8)."""
    return np.ascontiguousarray(values.astype(">u8")).view(np.uint8).reshape(len(values), 8)


def _hash_groups(digests: Digests, groups: Groups, prefix: bytes) -> Digests:
    """Return the hash of ``prefix`` and the digests of each group, one after the other.

    Groups of one size make a matrix; packets have few sizes (one payload, nearly always).
    """
    hashed = np.empty((len(groups), DIGEST_BYTES), dtype=np.uint8)
    for count in np.unique(groups.counts).tolist():
        rows = np.flatnonzero(groups.counts == count)
        members = digests[groups.starts[rows][:, None] + np.arange(count)].reshape(len(rows), count * DIGEST_BYTES)
        hashed[rows] = digest_rows(HashFunction.SHA256, members, prefix=prefix)
    return hashed


def _require_groups(groups: Groups, packets: int, members: int) -> None:
    if len(groups) != packets or groups.total != members:
        raise InvalidInput(
            f"groups are of {len(groups)} packets and {groups.total} rows, there are {packets} packets and {members}"
            " rows"
        )
