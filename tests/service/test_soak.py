"""Short soak (``tests.support.common.soak``): random kills, hostile peers, ordered exactly-once delivery."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.common.soak import soak

pytestmark = pytest.mark.slow


def test_random_kills_and_hostile_peers(tmp_path: Path) -> None:
    with soak(tmp_path, seed=3) as running:
        running.run(35)  # at least two kills: they come within 15 seconds of each other
        running.settle()
        calls = running.check()
        assert all(calls.values()), running.table()
        assert sum(member.kills for member in running.members.values()) >= 2
