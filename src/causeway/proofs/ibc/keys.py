"""Under which keys deployed IBC chains store what they prove to each other (IBC reference X-7, X-8)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import MalformedProof
from causeway.proofs.ibc.packets import u64
from causeway.proofs.limits import require_length

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
