"""Small lakes of all protocols in which much happens to chains: they are halted, fork, and go back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from causeway.config.traffic import INGRESS_SCHEMA
from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import OpenedLake, open_lake
from causeway.scenarios.scenario import load_scenario

NETWORK = """
[network]
protocol = "{protocol}"
seed = 5
executor = "in_process"
partitions = {partitions}
commit_every = {every}
ticks = {ticks}
[[chains]]
count = 3
prefix = "c"
"""

TRAFFIC = """
[traffic]
source = "generated"
messages_per_tick = 2
ticks = {ticks}
"""

HALT = """
[[faults]]
kind = "halt"
chain = "c1"
from = 4
until = 7
"""

REORG = """
[[faults]]
kind = "reorg"
tick = {tick}
depth = 4
"""

FORKS = """
[[faults]]
kind = "fork"
tick = 6
until = 10
leaves = 3
kept = 1
[[faults]]
kind = "fork"
tick = 16
until = 19
leaves = 3
kept = 2
elder = [2]
"""
"""After the second one the relay chain goes on from a block that is five heights old."""

OPTIONS = "[options]\narchiving_depth = 5\nchallenge_period = 8\n"

SCENARIOS = {
    "ic": NETWORK.format(protocol="ic", partitions=2, every=1, ticks=14) + TRAFFIC.format(ticks=9) + HALT,
    "ibc": NETWORK.format(protocol="ibc", partitions=1, every=5, ticks=22) + TRAFFIC.format(ticks=9) + HALT,
    "xdm": NETWORK.format(protocol="xdm", partitions=1, every=7, ticks=34)
    + OPTIONS
    + TRAFFIC.format(ticks=9)
    + REORG.format(tick=9)
    + REORG.format(tick=16),
    "icmp": NETWORK.format(protocol="icmp", partitions=1, every=7, ticks=27) + TRAFFIC.format(ticks=14) + FORKS,
}


def forked_lake(folder: Path, protocol: str) -> OpenedLake:
    """Return a lake below a folder: the same at each call."""
    path, place = folder / f"{protocol}.toml", folder / protocol
    if not place.exists():
        path.write_text(SCENARIOS[protocol])
        with LakeNetwork(load_scenario(path), str(place)) as net:
            net.run()
    return open_lake(str(place))


def recorded_lake(folder: Path, ticks: int = 8) -> OpenedLake:
    """Return a lake of subnets into which users sent messages in ticks 3 and 6, which are in its record."""
    path = folder / "served.toml"
    traffic = '[traffic]\nsource = "generated"\nmessages_per_tick = 2\nticks = 6\n'
    path.write_text(NETWORK.format(protocol="ic", partitions=1, every=1, ticks=ticks) + traffic)
    with LakeNetwork(load_scenario(path), str(folder / "served"), recorded=True) as net:
        programs = net.topology.programs
        chain, program = programs["chain"][0].as_py(), programs["number"][0].as_py()
        row = {"chain": chain, "receiver": program, "sender": 1, "method": "x", "payload": b"?"}
        for tick in range(ticks):
            sent = pa.Table.from_pylist([row], schema=INGRESS_SCHEMA) if tick in (3, 6) else None
            net.step(tick, ingress=sent)
    return open_lake(str(folder / "served"))


__all__ = ["SCENARIOS", "forked_lake", "recorded_lake"]
