"""Compute packet commitments and the store keys of IBC (IBC reference X-7, X-8).

Three groups of functions:

- commitments to one packet or acknowledgement, of version 1 or 2;
- the keys under which deployed chains store commitments, receipts, channels and clients;
- the same commitments for many packets at once, columns of shape (n,) to digests of shape (n, 32).

The column functions follow the rules of the single ones without a Python loop over packets. Packets of version 2 and
their payloads are two tables: the payloads of a packet are adjacent rows, and ``Groups`` delimits them.

Reference:
    IBC reference X-7 (keys), X-8 (commitments).
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
"""Prefix of the preimages of version 2."""

UNIVERSAL_ERROR_ACKNOWLEDGEMENT = sha256(b"UNIVERSAL_ERROR_ACKNOWLEDGEMENT").digest()
"""The single acknowledgement of a packet with a failed payload (X-8)."""


@dataclass(frozen=True)
class Payload:
    """One payload of a version 2 packet.

    Attributes:
        source_port: port on the sending chain.
        destination_port: port on the receiving chain.
        version: version of the application.
        encoding: media type of ``value``.
        value: the payload's bytes.
    """

    source_port: str
    destination_port: str
    version: str
    encoding: str
    value: bytes


@dataclass(frozen=True)
class PacketV2:
    """A version 2 packet.

    Attributes:
        sequence: sequence number, from 1.
        source_client: client identifier on the sending chain.
        destination_client: client identifier on the receiving chain.
        timeout_timestamp: seconds since 1970.
        payloads: at least one payload.
    """

    sequence: int
    source_client: str
    destination_client: str
    timeout_timestamp: int
    payloads: tuple[Payload, ...]


def commit_packet_v1(timeout_timestamp: int, revision_number: int, revision_height: int, data: bytes) -> bytes:
    """Return the commitment to a version 1 packet.

    Args:
        timeout_timestamp: nanoseconds since 1970, 0 for none.
        revision_number: revision of the timeout height on the receiving chain, 0 for none.
        revision_height: the timeout height in that revision, 0 for none.
        data: the packet's data.

    Returns:
        32 bytes.

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
    """Return the commitment to the acknowledgement of a version 1 packet.

    Args:
        acknowledgement: the acknowledgement's bytes.

    Returns:
        32 bytes.
    """
    return sha256(acknowledgement).digest()


def hash_payload(payload: Payload) -> bytes:
    """Return the hash of a payload, computed over the hashes of its five fields in order."""
    texts = (payload.source_port, payload.destination_port, payload.version, payload.encoding)
    hashes = [sha256(text.encode()).digest() for text in texts]
    return sha256(b"".join(hashes) + sha256(payload.value).digest()).digest()


def commit_packet_v2(packet: PacketV2) -> bytes:
    """Return the commitment to a version 2 packet.

    The key holds the sequence and the source client; the commitment does not cover them.

    Args:
        packet: the packet.

    Returns:
        32 bytes.

    Raises:
        InvalidInput: the timeout does not fit into 64 bits.
    """
    payloads = b"".join([hash_payload(payload) for payload in packet.payloads])
    return sha256(
        VERSION_2
        + sha256(packet.destination_client.encode()).digest()
        + sha256(u64(packet.timeout_timestamp, "timeout_timestamp")).digest()
        + sha256(payloads).digest()
    ).digest()


def commit_acknowledgement_v2(acknowledgements: Sequence[bytes]) -> bytes:
    """Return the commitment to the acknowledgements of a version 2 packet.

    Args:
        acknowledgements: one acknowledgement a payload, or ``UNIVERSAL_ERROR_ACKNOWLEDGEMENT`` alone.

    Returns:
        32 bytes.
    """
    return sha256(VERSION_2 + b"".join([sha256(each).digest() for each in acknowledgements])).digest()


def u64(value: int, noun: str) -> bytes:
    """Encode a number as 8 big-endian bytes, which sort like the numbers.

    Raises:
        InvalidInput: the number does not fit; ``noun`` names it in the text.
    """
    if not 0 <= value < 2**64:
        raise InvalidInput(f"{noun} is {value}, 0..2**64 - 1 is allowed")
    return value.to_bytes(8, "big")


MAX_IDENTIFIER_BYTES = 128
"""Maximum length of an identifier.

Deployed chains require 2 to 128 characters for ports, 8 to 64 for channels and 9 to 64 for clients. Only the upper
bound is enforced here.
"""

_IDENTIFIER = re.compile(rf"[A-Za-z0-9._+#\[\]<>-]{{1,{MAX_IDENTIFIER_BYTES}}}", re.ASCII)


class KeyKind(IntEnum):
    """Kind of a version 2 key: the byte between client and sequence."""

    COMMITMENT = 1
    RECEIPT = 2
    ACKNOWLEDGEMENT = 3


@dataclass(frozen=True)
class PacketKey:
    """Parts of a version 2 key.

    Attributes:
        client: the source client for commitments, the destination client for the other kinds.
        kind: the kind of entry.
        sequence: the packet's sequence number.
    """

    client: str
    kind: KeyKind
    sequence: int


def packet_commitment_key_v2(client: str, sequence: int) -> bytes:
    """Return the key of a version 2 packet's commitment on the sending chain.

    Args:
        client: the source client.
        sequence: the packet's sequence number, from 1.

    Returns:
        The key.

    Raises:
        InvalidInput: the client is not an identifier, or the sequence is outside of 1..2**64 - 1.
    """
    return _key(client, KeyKind.COMMITMENT, sequence)


def packet_receipt_key_v2(client: str, sequence: int) -> bytes:
    """Return the key of a version 2 packet's receipt on the receiving chain.

    Args:
        client: the destination client.
        sequence: the packet's sequence number, from 1.

    Returns:
        The key.

    Raises:
        InvalidInput: the client is not an identifier, or the sequence is outside of 1..2**64 - 1.
    """
    return _key(client, KeyKind.RECEIPT, sequence)


def packet_acknowledgement_key_v2(client: str, sequence: int) -> bytes:
    """Return the key of a version 2 packet's acknowledgement commitment on the receiving chain.

    Args:
        client: the destination client.
        sequence: the packet's sequence number, from 1.

    Returns:
        The key.

    Raises:
        InvalidInput: the client is not an identifier, or the sequence is outside of 1..2**64 - 1.
    """
    return _key(client, KeyKind.ACKNOWLEDGEMENT, sequence)


def parse_packet_key_v2(key: bytes) -> PacketKey:
    """Parse a version 2 key.

    Args:
        key: the key.

    Returns:
        Its parts.

    Raises:
        MalformedProof: ``key`` is not a version 2 key.
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
    """Return the key of a version 1 packet's commitment on the sending chain.

    Args:
        port: the source port.
        channel: the source channel.
        sequence: the packet's sequence number, from 1.

    Returns:
        The key.

    Raises:
        InvalidInput: a name is not an identifier, or the sequence is outside of 1..2**64 - 1.
    """
    return _path_v1("commitments", port, channel, sequence)


def packet_receipt_path_v1(port: str, channel: str, sequence: int) -> bytes:
    """Return the key of a version 1 packet's receipt on the receiving chain.

    Only unordered channels write receipts.

    Args:
        port: the destination port.
        channel: the destination channel.
        sequence: the packet's sequence number, from 1.

    Returns:
        The key.

    Raises:
        InvalidInput: a name is not an identifier, or the sequence is outside of 1..2**64 - 1.
    """
    return _path_v1("receipts", port, channel, sequence)


def packet_acknowledgement_path_v1(port: str, channel: str, sequence: int) -> bytes:
    """Return the key of a version 1 packet's acknowledgement commitment on the receiving chain.

    Args:
        port: the destination port.
        channel: the destination channel.
        sequence: the packet's sequence number, from 1.

    Returns:
        The key.

    Raises:
        InvalidInput: a name is not an identifier, or the sequence is outside of 1..2**64 - 1.
    """
    return _path_v1("acks", port, channel, sequence)


def next_sequence_receive_path_v1(port: str, channel: str) -> bytes:
    """Return the key of an ordered channel's next receive sequence on the receiving chain.

    Args:
        port: the destination port.
        channel: the destination channel.

    Returns:
        The key.

    Raises:
        InvalidInput: a name is not an identifier.
    """
    return f"nextSequenceRecv/ports/{_identifier(port)}/channels/{_identifier(channel)}".encode()


def channel_path_v1(port: str, channel: str) -> bytes:
    """Return the key of a channel end.

    Args:
        port: the end's port.
        channel: the end's channel.

    Returns:
        The key.

    Raises:
        InvalidInput: a name is not an identifier.
    """
    return f"channelEnds/ports/{_identifier(port)}/channels/{_identifier(channel)}".encode()


def connection_path(connection: str) -> bytes:
    """Return the key of a connection end.

    Args:
        connection: the connection's identifier.

    Returns:
        The key.

    Raises:
        InvalidInput: ``connection`` is not an identifier.
    """
    return f"connections/{_identifier(connection)}".encode()


def client_state_path(client: str) -> bytes:
    """Return the key of a light client's state.

    Args:
        client: the client's identifier.

    Returns:
        The key.

    Raises:
        InvalidInput: ``client`` is not an identifier.
    """
    return f"clients/{_identifier(client)}/clientState".encode()


def consensus_state_path(client: str, revision_number: int, revision_height: int) -> bytes:
    """Return the key of a light client's consensus state for a height of the remote chain.

    Args:
        client: the client's identifier.
        revision_number: revision of the remote chain.
        revision_height: height in that revision.

    Returns:
        The key.

    Raises:
        InvalidInput: ``client`` is not an identifier.
    """
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
    """Return the commitments to version 1 packets: ``commit_packet_v1`` by columns.

    Args:
        timeout_timestamp: nanoseconds since 1970, 0 for none; uint64, shape (n,).
        revision_number: revision of each timeout height, uint64, shape (n,).
        revision_height: the timeout height in that revision, uint64, shape (n,).
        data: the data of each packet.

    Returns:
        Digests, shape (n, 32).
    """
    numbers = big_endian(timeout_timestamp), big_endian(revision_number), big_endian(revision_height)
    return digest_rows(
        HashFunction.SHA256, np.concatenate([*numbers, digest_values(HashFunction.SHA256, data)], axis=1)
    )


def commit_acknowledgements_v1(acknowledgements: pa.BinaryArray) -> Digests:
    """Return the commitments to acknowledgements of version 1 packets.

    Args:
        acknowledgements: one a packet.

    Returns:
        Digests, shape (n, 32).
    """
    return digest_values(HashFunction.SHA256, acknowledgements)


def hash_payloads(
    source_port: TextColumn,
    destination_port: TextColumn,
    version: TextColumn,
    encoding: TextColumn,
    value: pa.BinaryArray,
) -> Digests:
    """Return the hashes of payloads: ``hash_payload`` by columns.

    Args:
        source_port: port on the sending chain.
        destination_port: port on the receiving chain.
        version: version of the application.
        encoding: media type of the value.
        value: bytes of each payload.

    Returns:
        Digests, shape (n, 32).
    """
    texts = [hash_texts(column) for column in (source_port, destination_port, version, encoding)]
    return digest_rows(HashFunction.SHA256, np.concatenate([*texts, digest_values(HashFunction.SHA256, value)], axis=1))


def commit_packets_v2(
    destination_client: TextColumn, timeout_timestamp: U64, payload_hashes: Digests, payloads: Groups
) -> Digests:
    """Return the commitments to version 2 packets: ``commit_packet_v2`` by columns.

    Args:
        destination_client: client identifier on the receiving chain, one a packet.
        timeout_timestamp: seconds since 1970, one a packet; uint64.
        payload_hashes: one a payload, from ``hash_payloads``; shape (m, 32).
        payloads: one group of payloads a packet, none empty.

    Returns:
        Digests, shape (n, 32).
    """
    _require_groups(payloads, len(timeout_timestamp), len(payload_hashes))
    preimages = np.empty((len(timeout_timestamp), 1 + 3 * DIGEST_BYTES), dtype=np.uint8)
    preimages[:, 0] = VERSION_2_NUMBER
    preimages[:, 1:33] = hash_texts(destination_client)
    preimages[:, 33:65] = digest_rows(HashFunction.SHA256, big_endian(timeout_timestamp))
    preimages[:, 65:97] = _hash_groups(payload_hashes, payloads, b"")
    return digest_rows(HashFunction.SHA256, preimages)


def commit_acknowledgements_v2(acknowledgements: pa.BinaryArray, packets: Groups) -> Digests:
    """Return the commitments to acknowledgements of version 2 packets, by columns.

    Args:
        acknowledgements: one a payload.
        packets: one group of acknowledgements a packet, none empty.

    Returns:
        Digests, shape (n, 32).
    """
    _require_groups(packets, len(packets), len(acknowledgements))
    return _hash_groups(digest_values(HashFunction.SHA256, acknowledgements), packets, bytes([VERSION_2_NUMBER]))


def hash_texts(texts: TextColumn) -> Digests:
    """Return the SHA-256 digest of each text; equal texts are hashed once."""
    column = texts if pa.types.is_dictionary(texts.type) else pc.dictionary_encode(texts)
    if column.null_count:
        raise InvalidInput("a text column of packets has nulls, texts are needed")
    digests = digest_values(HashFunction.SHA256, column.dictionary)
    found: Digests = digests[column.indices.to_numpy(zero_copy_only=False)]
    return found


def big_endian(values: U64) -> npt.NDArray[np.uint8]:
    """Encode each number as 8 big-endian bytes, shape (n, 8)."""
    return np.ascontiguousarray(values.astype(">u8")).view(np.uint8).reshape(len(values), 8)


def _hash_groups(digests: Digests, groups: Groups, prefix: bytes) -> Digests:
    """Return the hash of ``prefix`` and the concatenated digests of each group.

    Groups of equal size form a matrix. Packets have few distinct sizes: nearly all carry one payload.
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
