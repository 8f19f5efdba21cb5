"""The Merkle mountain range of 2.4: Keccak-256, peaks bagged from right to left."""

from collections.abc import Mapping

from Crypto.Hash import keccak

from tests.spec.xdm.errors import XdmError
from tests.spec.xdm.values import MmrProof


def keccak256(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()


def mountains(n: int) -> list[tuple[int, int]]:
    """(height, first leaf) of the mountains of n leaves, left to right."""
    found, start = [], 0
    for height in reversed(range(n.bit_length())):
        if n >> height & 1:
            found.append((height, start))
            start += 1 << height
    return found


def size(n: int) -> int:
    """How many nodes n leaves make."""
    return 2 * n - n.bit_count()


def bag(peaks: list[bytes]) -> bytes:
    acc = peaks[-1]
    for peak in reversed(peaks[:-1]):
        acc = keccak256(acc + peak)
    return acc


class Mmr:
    """All nodes of complete subtrees, by height: they serve every earlier leaf count as well."""

    def __init__(self) -> None:
        self.levels: list[list[bytes]] = [[]]

    def append(self, leaf: bytes) -> None:
        self.levels[0].append(leaf)
        height = 0
        while len(self.levels[height]) % 2 == 0:
            if height + 1 == len(self.levels):
                self.levels.append([])
            self.levels[height + 1].append(keccak256(b"".join(self.levels[height][-2:])))
            height += 1

    def truncate(self, n: int) -> None:
        self.levels = [level[: n >> height] for height, level in enumerate(self.levels)]

    def peak(self, height: int, start: int) -> bytes:
        return self.levels[height][start >> height]

    def root(self, n: int) -> bytes:
        return bag([self.peak(*mountain) for mountain in mountains(n)])

    def prove(self, leaf: int, n: int) -> MmrProof:
        left: list[bytes] = []
        siblings: list[bytes] = []
        right: list[bytes] = []
        for height, start in mountains(n):
            if start + (1 << height) <= leaf:
                left.append(self.peak(height, start))
            elif start > leaf:
                right.append(self.peak(height, start))
            else:
                siblings = [self.levels[h][leaf >> h ^ 1] for h in range(height)]
        return MmrProof((leaf,), n, tuple(left + siblings + ([bag(right)] if right else [])))


def root_of(leaves: Mapping[int, bytes], n: int, items: tuple[bytes, ...]) -> bytes:
    """The root that a proof of these leaves leads to. Raises XdmError("BadProof") for a proof of the wrong shape."""
    if not leaves or min(leaves) < 0 or max(leaves) >= n:
        raise XdmError("BadProof")
    left = iter(items)
    peaks: list[bytes] = []
    last = max(leaves)
    try:
        for height, start in mountains(n):
            if start > last:
                peaks.append(next(left))  # all peaks that follow, bagged
                break
            known = {i - start: h for i, h in leaves.items() if start <= i < start + (1 << height)}
            if not known:
                peaks.append(next(left))
                continue
            for _ in range(height):
                above: dict[int, bytes] = {}
                for i in sorted(known):
                    if i // 2 not in above:
                        other = known[i ^ 1] if i ^ 1 in known else next(left)
                        above[i // 2] = keccak256(other + known[i] if i % 2 else known[i] + other)
                known = above
            peaks.append(known[0])
    except StopIteration:
        raise XdmError("BadProof") from None
    if next(left, None) is not None:
        raise XdmError("BadProof")
    return bag(peaks)
