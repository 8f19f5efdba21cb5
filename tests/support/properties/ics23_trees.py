"""Trees of the three deployed kinds, built the obvious way, and proofs from them: what a verifier is tried with."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from hashlib import sha256

from causeway_proofs.wire.ics23_pb2 import (
    CommitmentProof,
    ExistenceProof,
    HashOp,
    InnerOp,
    LeafOp,
    LengthOp,
    NonExistenceProof,
)

SHA256 = HashOp.SHA256
EMPTY = bytes(32)


class Tree:
    """Leaves in the order of their places, with the path of each.

    Attributes:
        root: the root's hash.
        places: where each leaf stands among the others, ascending: its key, or the hash of it.
        proofs: the leaves' proofs in that order.
    """

    def __init__(self, root: bytes, places: list[bytes], proofs: list[ExistenceProof], hashed: bool = False) -> None:
        self.root = root
        self.places = places
        self.proofs = proofs
        self._hashed = hashed

    def existence(self, key: bytes) -> CommitmentProof:
        """Return the proof that ``key`` is stored."""
        return CommitmentProof(exist=self.proofs[self.places.index(self._place(key))])

    def non_existence(self, key: bytes) -> CommitmentProof:
        """Return the proof that ``key`` is not stored."""
        after = bisect_left(self.places, self._place(key))
        return CommitmentProof(
            nonexist=NonExistenceProof(
                key=self._place(key),
                left=self.proofs[after - 1] if after else None,
                right=self.proofs[after] if after < len(self.proofs) else None,
            )
        )

    def _place(self, key: bytes) -> bytes:
        return sha256(key).digest() if self._hashed else key


def uvarint(number: int) -> bytes:
    head, rest = number & 0x7F, number >> 7
    return bytes([head]) if not rest else bytes([head | 0x80]) + uvarint(rest)


def _sized(data: bytes) -> bytes:
    return uvarint(len(data)) + data


def build_simple(stored: Mapping[bytes, bytes]) -> Tree:
    """Build the tree of RFC 6962 over the sorted keys."""
    keys = sorted(stored)
    leaf = LeafOp(hash=SHA256, prehash_value=SHA256, length=LengthOp.VAR_PROTO, prefix=b"\x00")
    proofs = [ExistenceProof(key=key, value=stored[key], leaf=leaf) for key in keys]

    def node(start: int, stop: int) -> bytes:
        if stop - start == 1:
            value = sha256(stored[keys[start]]).digest()
            return sha256(b"\x00" + _sized(keys[start]) + _sized(value)).digest()
        middle = start + (1 << (stop - start - 1).bit_length() - 1)
        left, right = node(start, middle), node(middle, stop)
        for proof in proofs[start:middle]:
            proof.path.append(InnerOp(hash=SHA256, prefix=b"\x01", suffix=right))
        for proof in proofs[middle:stop]:
            proof.path.append(InnerOp(hash=SHA256, prefix=b"\x01" + left))
        return sha256(b"\x01" + left + right).digest()

    return Tree(node(0, len(keys)), keys, proofs)


def build_iavl(stored: Mapping[bytes, bytes], versions: Sequence[int] = (1, 70, 9000)) -> Tree:
    """Build an IAVL tree split in the middle; ``versions`` are given to its nodes in turn."""
    keys = sorted(stored)
    proofs = [ExistenceProof(key=key, value=stored[key]) for key in keys]
    given = 0

    def version() -> bytes:
        nonlocal given
        given += 1
        return uvarint(2 * versions[given % len(versions)])

    def node(start: int, stop: int) -> tuple[int, bytes]:
        if stop - start == 1:
            prefix = b"\x00\x02" + version()
            leaf = LeafOp(hash=SHA256, prehash_value=SHA256, length=LengthOp.VAR_PROTO, prefix=prefix)
            proofs[start].leaf.CopyFrom(leaf)
            value = sha256(stored[keys[start]]).digest()
            return 0, sha256(prefix + _sized(keys[start]) + _sized(value)).digest()
        middle = (start + stop) // 2
        (left_height, left), (right_height, right) = node(start, middle), node(middle, stop)
        height = 1 + max(left_height, right_height)
        numbers = uvarint(2 * height) + uvarint(2 * (stop - start)) + version()
        for proof in proofs[start:middle]:
            proof.path.append(InnerOp(hash=SHA256, prefix=numbers + b"\x20", suffix=_sized(right)))
        for proof in proofs[middle:stop]:
            proof.path.append(InnerOp(hash=SHA256, prefix=numbers + _sized(left) + b"\x20"))
        return height, sha256(numbers + _sized(left) + _sized(right)).digest()

    return Tree(node(0, len(keys))[1], keys, proofs)


def build_smt(stored: Mapping[bytes, bytes]) -> Tree:
    """Build a sparse tree by the bits of the keys' hashes; a leaf alone in its subtree stands for the subtree."""
    keys = {sha256(key).digest(): key for key in stored}
    places = sorted(keys)
    leaf = LeafOp(hash=SHA256, prehash_key=SHA256, prehash_value=SHA256, prefix=b"\x00")
    proofs = [ExistenceProof(key=keys[place], value=stored[keys[place]], leaf=leaf) for place in places]

    def node(start: int, stop: int, bit: int) -> bytes:
        if start == stop:
            return EMPTY
        if stop - start == 1:
            return sha256(b"\x00" + places[start] + sha256(proofs[start].value).digest()).digest()
        middle = start + sum(not places[at][bit // 8] >> 7 - bit % 8 & 1 for at in range(start, stop))
        left, right = node(start, middle, bit + 1), node(middle, stop, bit + 1)
        for proof in proofs[start:middle]:
            proof.path.append(InnerOp(hash=SHA256, prefix=b"\x01", suffix=right))
        for proof in proofs[middle:stop]:
            proof.path.append(InnerOp(hash=SHA256, prefix=b"\x01" + left))
        return sha256(b"\x01" + left + right).digest()

    return Tree(node(0, len(places), 0), places, proofs, hashed=True)


BUILDERS = {"simple": build_simple, "iavl": build_iavl, "smt": build_smt}
SPEC_NAMES = {"simple": "tendermint", "iavl": "iavl", "smt": "smt"}
