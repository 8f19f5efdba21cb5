"""Equal slices get one number, also for chosen hash collisions."""

from __future__ import annotations

from random import Random

import numpy as np
from causeway_proofs.distinct import distinct_slices
from causeway_proofs.distinct_loops import MOST_STEPS, mix_word

WORD = 1 << 64


def numbered(slices: list[bytes]) -> tuple[list[int], list[int]]:
    ends = np.cumsum([0, *map(len, slices)], dtype=np.int64)
    numbers, firsts = distinct_slices(np.frombuffer(b"".join(slices), dtype=np.uint8), ends[:-1], ends[1:])
    return numbers.tolist(), firsts.tolist()


def test_numbers_follow_the_first_rows() -> None:
    chance = Random(5)
    slices = [chance.randbytes(chance.choice((0, 1, 7, 8, 9, 31, 32, 33, 64, 100))) for _ in range(300)]
    slices += [part[:-1] + bytes([part[-1] ^ 1]) for part in slices if part] + slices + [b"", b"\x00", bytes(2)]
    numbers, firsts = numbered(slices)
    order = list(dict.fromkeys(slices))
    assert [slices[row] for row in firsts] == order
    assert [order[number] for number in numbers] == slices
    assert numbered([]) == ([], [])


def test_slices_may_overlap() -> None:
    data = np.frombuffer(b"abcabc", dtype=np.uint8)
    numbers, firsts = distinct_slices(data, np.array([0, 3, 1, 4, 0]), np.array([2, 5, 3, 6, 6]))
    assert (numbers.tolist(), firsts.tolist()) == ([0, 0, 1, 1, 2], [0, 2, 4])


def colliding(count: int) -> list[bytes]:
    """Return slices of 64 bytes with one weak hash: the first word is any, the fifth restores the state."""

    def after(word: int) -> int:
        with np.errstate(over="ignore"):
            return int(mix_word(np.uint64(64), np.uint64(word)))

    end = after(0)
    return [
        number.to_bytes(8, "little") + bytes(24) + (end ^ after(number)).to_bytes(8, "little") + bytes(24)
        for number in range(count)
    ]


def test_chosen_collisions_cost_a_bounded_search_and_stay_distinct() -> None:
    slices = colliding(1_000)
    numbers, firsts = numbered(slices + slices)
    assert [(slices + slices)[firsts[number]] for number in numbers] == slices + slices
    # Only those that found a slot are looked up again.
    assert len(firsts) == 2_000 - MOST_STEPS
