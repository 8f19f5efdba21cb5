"""Random networks on kernel and oracle: equal after every tick, with all provable messages proved."""

from __future__ import annotations

import pytest

from tests.spec.xdm.guarantees import violations
from tests.support.xdm.properties.xdm_carriers import honest
from tests.support.xdm.properties.xdm_pair import Pair
from tests.support.xdm.properties.xdm_scenes import THEMES, Scene, scene
from tests.tiers import sized

QUICK = {**dict.fromkeys(THEMES, 0), "operators": 2, "lists": 1, "waiting": 1, "pool": 4}
"""The seed of each theme that is always played."""
OCCURS: dict[str, tuple[str, ...]] = {
    "fees": ("fees that do not divide", "Refused BadProof", "FeePay"),
    "forks": ("fork",),
    "halts": ("halt", "fork"),
    "frauds": ("FraudProved", "forged"),
    "bundles": ("InvalidBundle", "Refused InvalidBundle"),
    "lists": ("Refused ChainNotAllowed", "InboxMessageResponse ChainNotAllowed"),
    "closing": ("ChannelClosed", "InboxMessageResponse InvalidChannelState"),
    "waiting": ("waits",),
    "pool": ("pool", "Refused Stale", "Refused InvalidBundle"),
    "operators": ("absent", "fees that do not divide", "FeePay"),
    "exhausted": ("exhausted", "absent"),
    "everything": ("fork", "halt", "FraudProved"),
}
"""What a theme is for: it must occur in the scene that is always played."""

FOUND = (
    *(("frauds", 16), ("halts", 17), ("bundles", 19), ("lists", 24), ("closing", 18)),
    *(("waiting", 12), ("waiting", 13), ("everything", 11), ("everything", 12), ("everything", 22)),
)
"""What is played among the slow ones beside the first seeds of each theme: there kernel and oracle have differed."""


def play_scene(made: Scene) -> Pair:
    """Play the scene and continue until all is answered."""
    pair = Pair(made)
    pair.step(made.blocks)
    pair.faults = honest
    for _ in range(5):
        pair.step(7)
        if pair.rests():
            break
    assert violations(pair.log.record()) == []
    assert violations(pair.model.record()) == []
    return pair


@pytest.mark.parametrize(
    "theme", [pytest.param(theme, marks=pytest.mark.slow) if theme == "operators" else theme for theme in THEMES]
)
def test_kernel_and_oracle_agree_after_every_tick(theme: str) -> None:
    pair = play_scene(scene(QUICK[theme], theme))
    missing = [what for what in OCCURS[theme] if not pair.seen[what]]
    assert not missing, f"never occurred: {missing}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theme", "seed"), [*((theme, seed) for theme in THEMES for seed in range(1, sized(1, 3))), *FOUND]
)
def test_kernel_and_oracle_agree_in_many_networks(theme: str, seed: int) -> None:
    play_scene(scene(seed, theme))
