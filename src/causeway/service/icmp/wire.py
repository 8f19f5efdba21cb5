"""Bytes between two nodes: frames, the first of which says who speaks (ICMP reference 2.5, X-3).

```
frame      length (u32, little-endian), body; of length 0: the sender is still there
hello      "cwgossip" version (u16) network (32 bytes) node (u32) peer (u32) nonce (32 bytes)
proof      32 bytes (``handshake``)
message    "dot1" topic (32 bytes) packet        packet: 01 01 Vec<Hash>, topic zeros; 03 root Vec<Vec<u8>>
```

A queue's topic travels beside its bytes: in the topic mode ``block`` nobody could tell it from the root.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from causeway.model.errors import InvalidInput
from causeway.protocols.icmp.gossip.options import GossipOptions

VERSION = 2

LENGTH = struct.Struct("<I")

SECRET_BYTES = 16
SESSION_BYTES = 8
NONCE_BYTES = 32
PROOF_BYTES = 32

_HELLO = struct.Struct(f"<8sH32sII{NONCE_BYTES}s")
_MAGIC = b"cwgossip"

HELLO_BYTES = _HELLO.size
"""Bytes of the body of the first frame; nothing longer is read before it."""

_ENGINE = b"dot1"
_TOPIC = slice(len(_ENGINE), len(_ENGINE) + 32)
HEADER_BYTES = len(_ENGINE) + 32

_NEIGHBOUR = b"\x01"

NO_TOPIC = bytes(32)
"""The topic of what has none: neighbour packets."""

_ROOT_AND_LENGTHS = 64
"""More than what a queue's kind, root and count of messages take."""


class WireError(InvalidInput):
    """What came is no message of this protocol; ``reason`` names why in a word."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class Hello:
    """Who speaks, to whom: ``network`` (hash of genesis), ``node``, ``peer``; ``nonce``: drawn for this connection."""

    network: bytes
    node: int
    peer: int
    nonce: bytes

    def encode(self) -> bytes:
        """Return the body of the frame."""
        return _HELLO.pack(_MAGIC, VERSION, self.network, self.node, self.peer, self.nonce)


def decode_hello(body: bytes, network: bytes) -> Hello:
    """Return who speaks. Raises ``WireError``: it is no hello, of another version, or of another network."""
    if len(body) != HELLO_BYTES:
        raise WireError("no-hello", f"a hello has {HELLO_BYTES} bytes, this has {len(body)}")
    magic, version, of, node, peer, nonce = _HELLO.unpack(body)
    if magic != _MAGIC:
        raise WireError("no-hello", f"a hello begins with {_MAGIC!r}, this with {magic!r}")
    if version != VERSION:
        raise WireError("version", f"the peer speaks version {version}, this node {VERSION}")
    if of != network:
        raise WireError("network", f"the peer is of the network {of.hex()}, this node of {network.hex()}")
    return Hello(of, node, peer, nonce)


def frame(body: bytes) -> bytes:
    """Return the bytes of a frame."""
    return LENGTH.pack(len(body)) + body


ALIVE = frame(b"")
"""What a node says that has nothing to say."""


def message_limit(options: GossipOptions) -> int:
    """Return the most bytes that the body of a message has: of the longest queue of the most messages."""
    lengths = 4 * options.max_queue_messages
    return HEADER_BYTES + _ROOT_AND_LENGTHS + lengths + options.max_queue_bytes


def encode_message(topic: bytes, packet: bytes) -> bytes:
    """Return the body of a message."""
    return _ENGINE + topic + packet


def decode_message(body: bytes) -> tuple[bytes, bytes]:
    """Return topic and packet. Raises ``WireError``: the body is no message."""
    if len(body) <= HEADER_BYTES or body[: len(_ENGINE)] != _ENGINE:
        raise WireError("no-message", f"a message begins with {_ENGINE!r} and a topic, this with {body[:4]!r}")
    return body[_TOPIC], body[HEADER_BYTES:]


def declares(body: bytes) -> bool:
    """Return whether the body of a message is a neighbour packet, or begins as one."""
    return body[HEADER_BYTES : HEADER_BYTES + 1] == _NEIGHBOUR
