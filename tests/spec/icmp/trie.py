"""The root of a list of messages (2.3, layout V0) and the topics of gossip (2.4, 5.1 (3), X-3).

The trie is built from the definition: sort by nibbles, split where keys part. Nothing is kept or shared.
"""

import hashlib
from collections.abc import Sequence

from tests.spec.icmp.options import Options

Nibbles = tuple[int, ...]
LEAF, BRANCH, BRANCH_WITH_VALUE = 0b01, 0b10, 0b11


def H(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


EMPTY_ROOT = H(b"\0")


def u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def compact(value: int) -> bytes:
    """SCALE Compact of a u32, in its shortest form."""
    if value < 2**6:
        return bytes([value << 2])
    if value < 2**14:
        return (value << 2 | 0b01).to_bytes(2, "little")
    if value < 2**30:
        return (value << 2 | 0b10).to_bytes(4, "little")
    return b"\3" + u32(value)


def scale_bytes(data: bytes) -> bytes:
    """Vec<u8>."""
    return compact(len(data)) + data


def nibbles(key: bytes) -> Nibbles:
    return tuple(n for byte in key for n in (byte >> 4, byte & 0x0F))


def node_header(kind: int, partial: Nibbles) -> bytes:
    """The kind in two bits, the number of nibbles in six and, if they are all ones, in the bytes that follow; then the
    nibbles, the first alone if they are odd."""
    n = len(partial)
    if n < 63:
        head = bytes([kind << 6 | n])
    else:
        rest = n - 63
        head = bytes([kind << 6 | 63]) + b"\xff" * (rest // 255) + bytes([rest % 255])
    even = partial if n % 2 == 0 else (0, *partial)
    return head + bytes(16 * high + low for high, low in zip(even[::2], even[1::2], strict=True))


def encode_node(pairs: Sequence[tuple[Nibbles, bytes]]) -> bytes:
    """The node of all pairs; their keys are what is left of them, in ascending order, and differ."""
    if not pairs:
        return b"\0"
    first, last = pairs[0][0], pairs[-1][0]
    if len(pairs) == 1:
        return node_header(LEAF, first) + scale_bytes(pairs[0][1])
    common = 0
    while common < len(first) and first[common] == last[common]:
        common += 1
    own = [value for key, value in pairs if len(key) == common]
    bitmap, children = 0, b""
    for k in range(16):
        below = [(key[common + 1 :], value) for key, value in pairs if len(key) > common and key[common] == k]
        if below:
            bitmap |= 1 << k
            child = encode_node(below)
            children += scale_bytes(child if len(child) < 32 else H(child))
    head = node_header(BRANCH_WITH_VALUE if own else BRANCH, first[:common]) + bitmap.to_bytes(2, "little")
    return head + (scale_bytes(own[0]) if own else b"") + children


def trie_root(entries: dict[bytes, bytes]) -> bytes:
    return H(encode_node(sorted((nibbles(key), value) for key, value in entries.items())))


def R(messages: Sequence[bytes]) -> bytes:
    """R(L) of 2.1."""
    return trie_root({compact(i): message for i, message in enumerate(messages)})


def queueTopic(h: bytes) -> bytes:
    return H(h + b"message_queue")


def attestationTopic(parent: bytes) -> bytes:
    return H(parent + b"attestations")


def topics(options: Options, block: bytes, sender: int, recipient: int, root: bytes) -> tuple[bytes, ...]:
    """The topics of a queue that was posted in a block: one, or two with from_to.

    Decision. ParaIds in the topics of from_to are u32 little endian (SCALE); from_to topics name the block, whatever
    `topic_mode`.
    """
    if options.topology == "from_to":
        return H(block + b"from" + u32(sender)), H(block + b"to" + u32(recipient))
    return (queueTopic(block if options.topic_mode == "block" else root),)
