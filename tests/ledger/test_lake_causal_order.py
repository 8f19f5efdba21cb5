"""Causal order of zones in a lake: guaranteed by ordered queues; a false height is named."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.chance_lakes import section
from tests.ledger.test_planting_lakes import derive_case
from tests.planting import Traffic, plant
from tests.planting.judging import judge
from tests.support.common.small_lakes import lake_of, user_calls
from tests.support.properties.audit_ledgers import Case, compare

ZONES = ("left", "right", "far")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Return the ledger of three zones with ordered queues."""
    return zones(tmp_path_factory.mktemp("ordered"), "ordered")


def zones(folder: Path, order: str) -> Case:
    text = section("network", protocol="ibc", seed=1, executor="in_process", ticks=60)
    text += section("options", order=order, relayers=["one"]) + section("transport", skip=0.3)
    text += section("traffic", source="script")
    for name in ZONES:
        text += section("[chains]", name=name)
        text += section("[programs]", name=f"{name}_caller", chain=name, program="caller", balance=1_000_000)
        text += section("[programs]", name=f"{name}_echo", chain=name, program="echo")
    for first, one in zip((0, 3, 5), ZONES, strict=True):
        calls = [(f"{one}_caller", f"{other}_echo", "echo", 1, 0) for other in ZONES if other != one]
        text += user_calls(range(first, 32, 8), calls)
    return derive_case(lake_of(folder, text))


def test_ordered_queues_keep_the_guaranteed_causal_order(honest: Case) -> None:
    found = honest.audit(3)
    compare(honest, found)
    assert found.checks["causal_order"].examined == 24 and not found.checks["causal_order"].reasons


def test_unordered_queues_do_not_guarantee_causal_order(tmp_path: Path) -> None:
    assert zones(tmp_path, "unordered").audit().checks["causal_order"].examined == 0


@pytest.mark.parametrize("kind", ["cycle_of_2", "cycle_of_3"])
@pytest.mark.parametrize("seed", range(3))
def test_only_the_message_in_a_cycle_of_zones_is_named(honest: Case, kind: str, seed: int) -> None:
    random = Random(seed)
    traffic = Traffic(honest)
    planted = plant(traffic, kind, random)
    assert planted is not None
    found = judge(traffic.case(), [planted], random.choice((1, 3)))
    assert found.checks["causal_order"].violated == 1
    assert found.checks["causality"].violated == found.checks["order"].violated == 0
