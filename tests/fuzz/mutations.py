"""Cheap mutations of seeds, for fuzzing without coverage guidance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

EDGES = (0, 1, 0x7F, 0x80, 0xFF)
"""Bytes at which encodings change their meaning."""

LONGEST_INSERT = 16


def mutations(seeds: Sequence[bytes], count: int, random: Random) -> Iterator[bytes]:
    """Yield ``count`` inputs: each is a seed after one to four changes, or random bytes."""
    for number in range(count):
        if number % 20 == 0:
            yield random.randbytes(random.randrange(64))
            continue
        data = bytearray(random.choice(seeds))
        for _ in range(random.choice((1, 1, 2, 4))):
            _change(data, seeds, random)
        yield bytes(data)


def _change(data: bytearray, seeds: Sequence[bytes], random: Random) -> None:
    """Change ``data`` at one position: a bit, a byte, a range of bytes, its end, or a part of a seed."""
    place = random.randrange(len(data) + 1)
    until = min(len(data), place + random.randrange(1, LONGEST_INSERT))
    kind = random.randrange(8)
    if kind == 0 and place < len(data):
        data[place] ^= 1 << random.randrange(8)
    elif kind == 1 and place < len(data):
        data[place] = random.choice(EDGES)
    elif kind == 2 and place < len(data):
        data[place] = (data[place] + random.choice((-1, 1))) % 256
    elif kind == 3:
        del data[place:]
    elif kind == 4:
        del data[place:until]
    elif kind == 5:
        data[place:place] = random.randbytes(until - place)
    elif kind == 6:
        data[place:place] = data[place:until]
    else:
        other = random.choice(seeds)
        begin = random.randrange(len(other) + 1)
        data[place:until] = other[begin : begin + until - place]
