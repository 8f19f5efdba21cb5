"""Replay of a served lake: a function of its scenario and its input record."""

from __future__ import annotations

from pathlib import Path

from causeway.service.node.node import Node
from tests.support.common.lakes import ENDS, both


def headers(node: Node, chain: str) -> list[tuple[bytes, bytes]]:
    return [node.opened.header(chain, height) for height in range(node.network.height + 1)]


def test_equal_records_give_equal_headers(tmp_path: Path) -> None:
    with both(tmp_path, calls=7, options='cleanup = "on"') as lakes:
        lakes.until_idle(max_calls=3, cleanup_after=2)
        lakes.check(7)
        for chain in ENDS:
            first = lakes.nodes[chain]
            again = Node(first.scenario, str(tmp_path / f"{chain}-again"), first.pace)
            with again:
                lake = first.network.lake
                for made in map(lake.manifest, range(1, first.network.height + 1)):
                    outside = {
                        kind: lake.table(made, made.outside[kind])
                        for kind in ("ingress", "carried")
                        if kind in made.outside
                    }
                    again.network.step(made.tick, **outside)
                assert headers(again, chain) == headers(first, chain)
