"""Draws of kernels: each has words of its own, and none is made anywhere else."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import causeway
from causeway.protocols.draws import Draw, drawn

PACKAGE = Path(causeway.__file__).parent


def test_no_two_draws_see_the_same_words() -> None:
    """At one height of one chain, under one seed."""
    words = {what: drawn(what, 5, 7, 30).random_raw(4).tolist() for what in Draw}
    assert not any(set(words[one]) & set(words[other]) for one, other in itertools.combinations(Draw, 2))
    assert drawn(Draw.FRAUD, 5, 7, 30, which=1).random_raw() not in words[Draw.FRAUD]
    assert [int(what) for what in Draw] == list(range(len(Draw)))


def test_all_draws_of_kernels_are_listed() -> None:
    others = {
        path.relative_to(PACKAGE).as_posix()
        for path in (PACKAGE / "protocols").rglob("*.py")
        if re.search(r"Philox\(|random\.(PCG64|default_rng)|import random", path.read_text())
    }
    assert others == {"protocols/draws.py"}
