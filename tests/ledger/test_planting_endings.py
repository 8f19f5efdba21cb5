"""Faulty message endings planted in random honest ledgers: each is named, and no other."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.planting.endings import ENDINGS
from tests.planting.honest import Endings
from tests.planting.judging import LIMIT, named
from tests.planting.traffic import Traffic
from tests.support.properties.audit_ledgers import compare
from tests.tiers import generated_lakes

ORACLE = 8
"""Every eighth ledger is compared with the oracle, too."""


def test_planted_endings_are_the_only_findings() -> None:
    planted: Counter[str] = Counter()
    for seed in range(max(10, generated_lakes() // 8)):
        random = Random(seed)
        honest = Endings(random).case()
        before = honest.audit(1, LIMIT)
        assert not named(before, "violated"), seed
        traffic, expected = Traffic(honest), set()
        for kind in random.sample([*ENDINGS], len(ENDINGS)):
            faults = ENDINGS[kind](traffic, random)
            if faults is not None:
                traffic.index()
                expected |= faults
                planted[kind] += 1
        case = traffic.case()
        found = case.audit(random.choice((1, 3)), LIMIT)
        if seed % ORACLE == 0:
            compare(honest, before)
            compare(case, found)
        violated = {each for each in expected if each[1] == "violated"}
        assert named(found, "violated") == violated, (seed, named(found, "violated") ^ violated)
        noted, at_first = named(found, "noted"), named(before, "noted")
        assert expected - violated <= noted, (seed, expected - violated - noted)
        faulty = {each[3:] for each in expected}
        extra = {each for each in noted - expected - at_first if each[3:] not in faulty}
        assert not extra, (seed, extra)
        assert not {each for each in named(found, "unknown") - named(before, "unknown") if each[3:] not in faulty}, seed
    assert set(planted) == {*ENDINGS}, set(ENDINGS) - set(planted)


@pytest.mark.parametrize("kind", ENDINGS)
def test_single_fault_is_the_only_finding(kind: str) -> None:
    for seed in range(100, 200):
        random = Random(f"{kind} {seed}")
        honest = Endings(random).case()
        traffic = Traffic(honest)
        expected = ENDINGS[kind](traffic, random)
        if expected is not None:
            break
    assert expected
    found = traffic.case().audit(1, LIMIT)
    assert expected <= named(found, "violated") | named(found, "noted")
    assert named(found, "violated") == {each for each in expected if each[1] == "violated"}
