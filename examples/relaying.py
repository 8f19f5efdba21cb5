"""Relay the packets of relaying.toml in four ways, and compare what a packet costs and how long it takes.

python examples/relaying.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import causeway as cw

SCENARIO = Path(__file__).with_name("relaying.toml")

USERS = '{ ann = ["ann"], bob = ["bob"], cleo = ["cleo"] }'
WAYS: Mapping[str, Mapping[str, str]] = {
    "users relay their own": {"relayers": '["ann", "bob", "cleo"]', "relay.users": USERS, "relay.sponsored": "{}"},
    "a sponsored relayer": {"relayers": '["public"]', "relay.users": "{}"},
    "users, the rest sponsored": {},
    "three that compete": {"relayers": '["one", "two", "three"]', "relay.users": "{}", "relay.sponsored": "{}"},
}
"""The options of each way, beside those of the file."""


class Row(NamedTuple):
    """What one way took: calls, headers and fees, and how many ticks from a call to its answer."""

    way: str
    order: str
    answered: int
    headers: int
    fees: int
    wasted: int
    median: int
    slowest: int

    @property
    def fees_a_packet(self) -> float:
        """The fees of all relayers for a packet and its receipt."""
        return self.fees / self.answered


def relay(way: str, order: str) -> Row:
    """Run the scenario in one way, with enough money in every account."""
    chosen = {"network.executor": "in_process", "options.order": f'"{order}"', "faults": "[]"}
    chosen |= {f"options.{key}": value for key, value in WAYS[way].items()}
    chosen["options.relay.accounts"] = "{ balance = 1_000_000 }"
    with TemporaryDirectory() as folder, cw.LakeNetwork.from_scenario(SCENARIO, chosen, lake=f"{folder}/lake") as net:
        net.run()
        lake = cw.open(f"{folder}/lake")
        accounts = list(lake.state("relayers"))
        headers, fees, wasted = (sum(row[name] for row in accounts) for name in ("headers", "fees", "wasted"))
        (delays,) = lake.latency.where(scope="all", measure="round_trip", unit="ticks")
    return Row(way, order, delays["count"], headers, fees, wasted, int(delays["p50"]), int(delays["max"]))


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as lines of text."""
    lines = ["order      relayed by                 answered  headers  fees a packet  wasted  ticks p50  max"]
    lines += [
        f"{row.order:<10} {row.way:<26} {row.answered:>8} {row.headers:>8} {row.fees_a_packet:>14.1f} "
        f"{row.wasted / row.fees:>7.0%} {row.median:>10} {row.slowest:>4}"
        for row in rows
    ]
    return lines


def main() -> None:
    """Print the table."""
    print("\n".join(table([relay(way, order) for order in ("ordered", "unordered") for way in WAYS])))


if __name__ == "__main__":
    main()
