"""Packets as bytes (2.5, X-3): 01 01 Vec<Hash> for a declaration, 03 root Vec<Vec<u8>> for a queue.

Decisions. A queue's topic travels beside its bytes, as the envelope of 2.2 has it: in block mode no receiver could tell
it from the root. Every length is held against what is left before anything is read; an integer that is not in its
shortest form, bytes that are left over, and every other kind of packet are Malformed. How many heads are too many is
not the wire's to say (3.6).
"""

from tests.spec.icmp.errors import ensure
from tests.spec.icmp.packets import Declaration, Envelope
from tests.spec.icmp.relay import Hash
from tests.spec.icmp.trie import compact, scale_bytes

NEIGHBOR, V1, PARACHAIN_MESSAGES = 1, 1, 3


Known = Declaration | Envelope
"""The packets that X-3 gives bytes for."""


def encode(packet: Known) -> bytes:
    if isinstance(packet, Declaration):
        return bytes([NEIGHBOR, V1]) + compact(len(packet.heads)) + b"".join(packet.heads)
    queue = compact(len(packet.messages)) + b"".join(scale_bytes(message) for message in packet.messages)
    return bytes([PARACHAIN_MESSAGES]) + packet.root + queue


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        ensure(count <= len(self.data) - self.at, "Malformed")
        self.at += count
        return self.data[self.at - count : self.at]

    def length(self) -> int:
        first = self.take(1)[0]
        size = (1, 2, 4, first // 4 + 5)[first % 4]
        ensure(size <= 5, "Malformed")
        whole = bytes([first]) + self.take(size - 1)
        value = int.from_bytes(whole[1:] if size == 5 else whole, "little") >> (0 if size == 5 else 2)
        ensure(compact(value) == whole, "Malformed")
        return value

    def count(self, smallest: int) -> int:
        """How many items follow, each of at least so many bytes."""
        value = self.length()
        ensure(value * smallest <= len(self.data) - self.at, "Malformed")
        return value


def decode(topic: Hash, data: bytes) -> Known:
    """A packet that came with a topic; a declaration has none, so that its own is not looked at."""
    reader = Reader(data)
    kind = reader.take(1)[0]
    packet: Known
    if kind == NEIGHBOR:
        ensure(reader.take(1)[0] == V1, "Malformed")
        packet = Declaration(tuple(reader.take(32) for _ in range(reader.count(32))))
    else:
        ensure(kind == PARACHAIN_MESSAGES, "Malformed")
        root = reader.take(32)
        packet = Envelope(topic, root, tuple(reader.take(reader.length()) for _ in range(reader.count(1))))
    ensure(reader.at == len(data), "Malformed")
    return packet
