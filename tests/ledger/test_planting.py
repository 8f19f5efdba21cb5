"""Violations of each kind planted in random honest ledgers: each is named, and no other.

``CAUSEWAY_PLANTS=100``: with so many ledgers, instead of a few.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.planting import KINDS, Traffic, plant, plant_all
from tests.planting.judging import LIMIT, judge, judge_cut
from tests.planting.windows import cut_by_chance
from tests.support.properties.audit_plants import Network

MORE = int(os.environ.get("CAUSEWAY_PLANTS", "0"))


@pytest.mark.parametrize("kind", KINDS)
def test_planted_violation_is_the_only_finding(kind: str) -> None:
    done = 0
    for seed in range(max(2, MORE)):
        random = Random(f"{kind} {seed}")
        honest = Network(random).case()
        traffic = Traffic(honest)
        planted = plant(traffic, kind, random)
        if planted is not None:
            judge(traffic.case(), [planted], random.choice((1, 3)), oracle=bool(MORE))
            done += 1
        if done and not MORE:
            break
    assert done


@pytest.mark.parametrize("seed", range(max(3, MORE)))
def test_removed_input_is_unknown_there_and_only_there(seed: int) -> None:
    """With the maximum number of planted violations, and with none."""
    random = Random(seed)
    honest = Network(random).case()
    case, planted = plant_all(honest, random)[0]
    whole = judge(case, planted)
    cut = cut_by_chance(random, honest)
    judge_cut(case, whole, planted, cut)
    judge_cut(honest, honest.audit(1, LIMIT), [], cut)
