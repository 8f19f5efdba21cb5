"""Commitments to packets and acknowledgements, one at a time (IBC reference X-7, X-8); ``columns.py`` makes many.

Under which keys deployed IBC chains store what they prove to each other (IBC reference X-7, X-8).

Commitments to many packets at once, from columns: shape (n,) in, digests of shape (n, 32) out.

Same rules as ``packets.py``, without a Python loop over packets. Packets of version 2 and their payloads are two
tables: the payloads of a packet are neighbours, and ``Groups`` says which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway_proofs.errors import InvalidInput, MalformedProof
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows, digest_values
from causeway_proofs.limits import require_length
from causeway_proofs.order import U64, Groups

VERSION_2 = b"\x02"
"""What the preimages of version 2 begin with."""

UNIVERSAL_ERROR_ACKNOWLEDGEMENT = sha256(b"UNIVERSAL_ERROR_ACKNOWLEDGEMENT").digest()
"""The one acknowledgement of a packet of which a payload failed (X-8)."""


@dataclass(frozen=True)
class Payload:
    """A payload of a version 2 packet; ``encoding`` is the media type of ``value``."""

    source_port: str
    destination_port: str
    version: str
    encoding: str
    value: bytes


@dataclass(frozen=True)
class PacketV2:
    """A version 2 packet; ``timeout_timestamp`` in seconds since 1970, ``sequence`` from 1."""

    sequence: int
    source_client: str
    destination_client: str
    timeout_timestamp: int
    payloads: tuple[Payload, ...]


def commit_packet_v1(timeout_timestamp: int, revision_number: int, revision_height: int, data: bytes) -> bytes:
    """Return the commitment to a version 1 packet, 32 bytes.

    Args:
        timeout_timestamp: nanoseconds since 1970, 0 for none.
        revision_number, revision_height: the height of the time-out on the receiving chain, both 0 for none.
        data: the packet's data.

    Raises:
        InvalidInput: a number does not fit into 64 bits.
    """
    return sha256(
        u64(timeout_timestamp, "timeout_timestamp")
        + u64(revision_number, "revision_number")
        + u64(revision_height, "revision_height")
        + sha256(data).digest()
    ).digest()


def commit_acknowledgement_v1(acknowledgement: bytes) -> bytes:
    """Return the commitment to the acknowledgement of a version 1 packet, 32 bytes."""
    return sha256(acknowledgement).digest()


def hash_payload(payload: Payload) -> bytes:
    """Return the hash of a payload: over the hashes of its five fields in order."""
    texts = (payload.source_port, payload.destination_port, payload.version, payload.encoding)
    hashes = [sha256(text.encode()).digest() for text in texts]
    return sha256(b"".join(hashes) + sha256(payload.value).digest()).digest()


def commit_packet_v2(packet: PacketV2) -> bytes:
    """Return the commitment to a version 2 packet, 32 bytes. Sequence and source are not in it: they are in its key.

    Raises:
        InvalidInput: the time-out does not fit into 64 bits.
    """
    payloads = b"".join([hash_payload(payload) for payload in packet.payloads])
    return sha256(
        VERSION_2
        + sha256(packet.destination_client.encode()).digest()
        + sha256(u64(packet.timeout_timestamp, "timeout_timestamp")).digest()
        + sha256(payloads).digest()
    ).digest()


def commit_acknowledgement_v2(acknowledgements: Sequence[bytes]) -> bytes:
    """Return the commitment to the acknowledgements of a version 2 packet (one a payload, or the error one)."""
    return sha256(VERSION_2 + b"".join([sha256(each).digest() for each in acknowledgements])).digest()


def u64(value: int, what: str) -> bytes:
    """Return a number as 8 bytes, big-endian: byte strings sort like the numbers.

    Raises:
        InvalidInput: it does not fit; ``what`` names it.
    """
    if not 0 <= value < 2**64:
        raise InvalidInput(f"{what} is {value}, 0..2**64 - 1 is allowed")
    return value.to_bytes(8, "big")


MAX_IDENTIFIER_BYTES = 128
"""Ports have 2 to 128 letters, channels 8 to 64, clients 9 to 64 on deployed chains; here only the bound is kept."""

_IDENTIFIER = re.compile(rf"[A-Za-z0-9._+#\[\]<>-]{{1,{MAX_IDENTIFIER_BYTES}}}", re.ASCII)


class KeyKind(IntEnum):
    """What a version 2 key leads to; the byte between client and sequence."""

    COMMITMENT = 1
    RECEIPT = 2
    ACKNOWLEDGEMENT = 3


@dataclass(frozen=True)
class PacketKey:
    """A version 2 key, taken apart. The client is the source for commitments, the destination for the other kinds."""

    client: str
    kind: KeyKind
    sequence: int


def packet_commitment_key_v2(client: str, sequence: int) -> bytes:
    """Return the key of a version 2 packet's commitment on the sending chain.

    Raises:
        InvalidInput: the client is no identifier, or the sequence not one of 1..2**64 - 1. So in all functions here.
    """
    return _key(client, KeyKind.COMMITMENT, sequence)


def packet_receipt_key_v2(client: str, sequence: int) -> bytes:
    """Return the key of a version 2 packet's receipt on the receiving chain."""
    return _key(client, KeyKind.RECEIPT, sequence)


def packet_acknowledgement_key_v2(client: str, sequence: int) -> bytes:
    """Return the key of the commitment to a version 2 packet's acknowledgement on the receiving chain."""
    return _key(client, KeyKind.ACKNOWLEDGEMENT, sequence)


def parse_packet_key_v2(key: bytes) -> PacketKey:
    """Return the parts of a version 2 key.

    Raises:
        MalformedProof: ``key`` is not such a key.
    """
    require_length(key, "packet key", MAX_IDENTIFIER_BYTES + 9)
    client, kind, sequence = key[:-9], key[-9:-8], int.from_bytes(key[-8:], "big")
    if kind not in (b"\x01", b"\x02", b"\x03"):
        raise MalformedProof(f"packet key {key.hex()} has no byte 01, 02 or 03 before the last eight")
    name = client.decode("latin-1")
    if not _IDENTIFIER.fullmatch(name):
        raise MalformedProof(f"packet key {key.hex()} does not begin with the identifier of a client")
    if sequence == 0:
        raise MalformedProof(f"packet key {key.hex()} has the sequence 0, sequences start at 1")
    return PacketKey(name, KeyKind(kind[0]), sequence)


def packet_commitment_path_v1(port: str, channel: str, sequence: int) -> bytes:
    """Return the key of a version 1 packet's commitment on the sending chain."""
    return _path_v1("commitments", port, channel, sequence)


def packet_receipt_path_v1(port: str, channel: str, sequence: int) -> bytes:
    """Return the key of a version 1 packet's receipt on the receiving chain (unordered channels)."""
    return _path_v1("receipts", port, channel, sequence)


def packet_acknowledgement_path_v1(port: str, channel: str, sequence: int) -> bytes:
    """Return the key of the commitment to a version 1 packet's acknowledgement on the receiving chain."""
    return _path_v1("acks", port, channel, sequence)


def next_sequence_receive_path_v1(port: str, channel: str) -> bytes:
    """Return the key of the sequence that an ordered channel takes next on the receiving chain."""
    return f"nextSequenceRecv/ports/{_identifier(port)}/channels/{_identifier(channel)}".encode()


def channel_path_v1(port: str, channel: str) -> bytes:
    """Return the key of a channel's end."""
    return f"channelEnds/ports/{_identifier(port)}/channels/{_identifier(channel)}".encode()


def connection_path(connection: str) -> bytes:
    """Return the key of a connection's end."""
    return f"connections/{_identifier(connection)}".encode()


def client_state_path(client: str) -> bytes:
    """Return the key of a light client's state."""
    return f"clients/{_identifier(client)}/clientState".encode()


def consensus_state_path(client: str, revision_number: int, revision_height: int) -> bytes:
    """Return the key of what a light client knows of a height of the remote chain."""
    u64(revision_number, "revision_number")
    u64(revision_height, "revision_height")
    return f"clients/{_identifier(client)}/consensusStates/{revision_number}-{revision_height}".encode()


def _key(client: str, kind: KeyKind, sequence: int) -> bytes:
    return _identifier(client).encode() + bytes([kind]) + u64(_sequence(sequence), "sequence")


def _path_v1(folder: str, port: str, channel: str, sequence: int) -> bytes:
    u64(_sequence(sequence), "sequence")
    return f"{folder}/ports/{_identifier(port)}/channels/{_identifier(channel)}/sequences/{sequence}".encode()


def _identifier(name: str) -> str:
    if not _IDENTIFIER.fullmatch(name):
        raise InvalidInput(f"{name!r} is no identifier, 1..{MAX_IDENTIFIER_BYTES} of A-Z a-z 0-9 . _ + # [ ] < > -")
    return name


def _sequence(sequence: int) -> int:
    if sequence < 1:
        raise InvalidInput(f"sequence is {sequence}, 1..2**64 - 1 is allowed")
    return sequence


TextColumn = Any
"""An Arrow array of text, dictionary-encoded or not."""

VERSION_2_NUMBER = 2


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
    preimages[:, 0] = VERSION_2_NUMBER
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
    return _hash_groups(digest_values(HashFunction.SHA256, acknowledgements), packets, bytes([VERSION_2_NUMBER]))


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
