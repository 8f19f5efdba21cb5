"""What it costs to relay the packets of relaying.toml in each way, and how long they take: the table of the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from relaying import WAYS, relay, table

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "relay.md"


@pytest.mark.slow
def test_the_table_of_the_page_is_what_the_ways_cost() -> None:
    rows = [relay(way, order) for order in ("ordered", "unordered") for way in WAYS]
    shown = PAGE.read_text().split("$ python examples/relaying.py\n", 1)[1].split("```", 1)[0]
    assert shown.splitlines() == table(rows)


def test_a_user_pays_for_its_own_packets_at_once_and_competing_relayers_three_times() -> None:
    way = "three that compete"
    row = relay(way, "unordered")
    assert (row.answered, row.slowest) == (100, 2)
    assert row.wasted * 3 == row.fees * 2
