"""A short soak (``tests.service.xnet_soak``): two deployments over HTTP, kills, one of four endpoints lying."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.xnet_soak import xnet_soak
from tests.tiers import sized

pytestmark = pytest.mark.slow


def test_calls_each_way_and_kills(tmp_path: Path) -> None:
    kills = sized(2, 4)
    with xnet_soak(tmp_path, seed=2, calls=sized(1_000, 3_000), kills=kills) as soak:
        outcome = soak.run()
        soak.check()
        assert outcome.kills == kills and all(outcome.blocks.values())
