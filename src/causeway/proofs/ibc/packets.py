"""Commitments to packets and acknowledgements, one at a time (IBC reference X-7, X-8); ``columns.py`` makes many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from causeway.model.errors import InvalidInput

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
