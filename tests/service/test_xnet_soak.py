"""A short soak (``tests.support.common.xnet_soak``): two deployments over HTTP, kills, one of four endpoints lying."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.common.xnet_soak import xnet_soak

pytestmark = pytest.mark.slow


def test_calls_each_way_with_kills(tmp_path: Path) -> None:
    with xnet_soak(tmp_path, seed=2, calls=3_000, kills=4) as soak:
        outcome = soak.run()
        soak.check()
        assert outcome.kills == 4 and all(outcome.blocks.values())
