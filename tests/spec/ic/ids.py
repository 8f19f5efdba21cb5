"""Ids, their byte forms and orders (2.9), and the draw that rotates the routing order.

A canister or a test subnet is its number n everywhere in this oracle; bytes matter for the order and for texts.
"""

import base64
import zlib

CanisterId = int
SubnetId = int

_WORD = 2**64 - 1


def canister_bytes(n: CanisterId) -> bytes:
    """8 bytes big-endian n || 01 01."""
    return n.to_bytes(8, "big") + b"\x01\x01"


def subnet_bytes(n: SubnetId) -> bytes:
    """8 bytes little-endian n || fc 01. Ascending subnets are ascending in these bytes, not in n."""
    return n.to_bytes(8, "little") + b"\xfc\x01"


def principal_text(identifier: bytes) -> str:
    """Base32 of CRC-32 and bytes, lower case, in groups of five."""
    checked = zlib.crc32(identifier).to_bytes(4, "big") + identifier
    letters = base64.b32encode(checked).decode().rstrip("=").lower()
    return "-".join(letters[at : at + 5] for at in range(0, len(letters), 5))


def canister_text(n: CanisterId) -> str:
    """`<id>` in the reject texts."""
    return principal_text(canister_bytes(n))


def philox_4x64(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox-4x64 with ten rounds (Salmon and others, 2011)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        product0 = 0xD2E7470EE14C6C93 * c0
        product1 = 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = (
            (product1 >> 64) ^ c1 ^ k0,
            product1 & _WORD,
            (product0 >> 64) ^ c3 ^ k1,
            product0 & _WORD,
        )
        k0 = (k0 + 0x9E3779B97F4A7C15) & _WORD
        k1 = (k1 + 0xBB67AE8584CAA73B) & _WORD
    return c0, c1, c2, c3


def draw(seed: int, own: SubnetId, height: int) -> int:
    """The first word that NumPy's Philox(key=[seed, own], counter=height) gives: it counts up before it draws."""
    return philox_4x64((height + 1, 0, 0, 0), (seed, own))[0]
