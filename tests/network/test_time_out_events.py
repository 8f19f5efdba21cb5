"""Time-out events in the log: packets are named by their own queue, whatever their outcome."""

from __future__ import annotations

from pathlib import Path

from causeway.core.vocabulary import NO_CHAIN, Kind, Via
from causeway.network.network import LakeNetwork
from causeway.protocols.ibc.state import SEND

SCENARIO = """
[network]
protocol = "ibc"
executor = "in_process"
partitions = 1
[options]
timeouts = "on"
timeout_blocks = 2
[[chains]]
name = "east"
[[chains]]
name = "west"
[[programs]]
name = "caller"
chain = "east"
program = "caller"
[[programs]]
name = "echo"
chain = "west"
program = "echo"
[[faults]]
kind = "disconnect"
chain = "east"
counterparty = "west"
tick = 0
[[faults]]
kind = "drop"
source = "east"
destination = "west"
until = 6
[traffic]
source = "script"
[[traffic.send]]
tick = 0
to = "caller"
call = { receiver = "echo", text = "too late" }
"""


def test_time_outs_are_logged_with_the_queue_of_their_packet(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    with LakeNetwork.from_scenario(tmp_path / "scenario.toml", lake=str(tmp_path / "lake")) as net:
        net.run(ticks=12)
        manifests = [net.lake.manifest(height) for height in net.lake.heights()]
        tables = [table for manifest in manifests for table in net.lake.log_rows("events", manifest)]
    rows = [row for table in tables for row in table.to_pylist() if row["via"] == Via.TIMEOUT]
    found = {(row["kind"], row["source"], row["destination"], row["substream"], row["index"]) for row in rows}
    assert found == {(Kind.RESPONSE, NO_CHAIN, NO_CHAIN, SEND, 0), (Kind.CONTROL, 0, 1, SEND, 1)}
