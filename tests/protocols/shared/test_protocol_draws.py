"""Random draws of kernels: disjoint words, and no draws elsewhere."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np

import causeway
from causeway.protocols.shared.random_numbers import DrawPurpose, draw_words

PACKAGE = Path(causeway.__file__).parent


def test_no_two_draws_use_equal_words() -> None:
    """Compare draws at one height of one chain, under one seed."""
    words = {what: draw_words(what, 5, 7, 30).random_raw(4).tolist() for what in DrawPurpose}
    assert not any(set(words[one]) & set(words[other]) for one, other in itertools.combinations(DrawPurpose, 2))
    assert draw_words(DrawPurpose.FRAUD, 5, 7, 30, which=1).random_raw() not in words[DrawPurpose.FRAUD]
    assert [int(what) for what in DrawPurpose] == list(range(len(DrawPurpose)))


def test_all_kernel_draws_are_listed() -> None:
    others = {
        path.relative_to(PACKAGE).as_posix()
        for path in (PACKAGE / "protocols").rglob("*.py")
        if re.search(r"Philox\(|random\.(PCG64|default_rng)|import random", path.read_text())
    }
    assert others == {"protocols/shared/random_numbers.py"}


def test_long_draws_share_no_words() -> None:
    """Use more words than one generator batch: none recurs at other times, kinds or numbers."""
    whens, count = (30, 31, 32, 36), 40
    draws = [
        draw_words(what, 5, 7, when, which).random_raw(count)
        for what in DrawPurpose
        for when in whens
        for which in (0, 1)
    ]
    assert len(np.unique(draws)) == len(DrawPurpose) * len(whens) * 2 * count


def test_first_words_are_the_counted_block() -> None:
    """Pinned roots depend on them: Philox-4x64-10 of the counter (31, 2, 3, 0)."""
    block = np.random.Philox(key=np.array([5, 7], dtype=np.uint64), counter=np.array([30, 2, 3, 0], dtype=np.uint64))
    assert draw_words(DrawPurpose.TURNS, 5, 7, 30, 3).random_raw(4).tolist() == block.random_raw(4).tolist()
