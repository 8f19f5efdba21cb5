"""Answers of a generated network take as long as those of the measured chain, when carriers skip as often as
calibrated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from causeway.core.vocabulary import Event, Kind
from causeway.network.network import LakeNetwork
from causeway.scenarios.traffic_settings import ANSWER_DELAY_SHARES, SLOW_CARRIER_SKIP

SCENARIO = f"""
[network]
executor = "in_process"
seed = 11
[options]
certification = "off"
[transport]
skip = {SLOW_CARRIER_SKIP}
[[chains]]
count = 6
prefix = "s"
[traffic]
source = "generated"
messages = 6_000
ticks = 40
channels = 10
"""


def test_answers_take_as_many_ticks_as_the_measured_ones_took_blocks(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO)
    with LakeNetwork.from_scenario(scenario, lake=str(tmp_path / "lake")) as net:
        net.run()
        storage = net.lake.storage
        sent = {
            (row["sender"], row["callback"]): row["sent_tick"]
            for path in net.lake.log_files("outbound")
            for row in storage.read_table(path).to_pylist()
            if row["kind"] == Kind.REQUEST
        }
        delays = Counter(
            row["tick"] - sent[row["receiver"], row["callback"]]
            for path in net.lake.log_files("events")
            for row in storage.read_table(path).to_pylist()
            if row["kind"] == Kind.RESPONSE and row["events"] & Event.ANSWERED
        )
    total = sum(delays.values())
    assert total == len(sent) == 6_000
    assert min(delays) == 2
    for ticks, share in ANSWER_DELAY_SHARES.items():
        assert abs(delays[ticks] / total - share) < 0.1, delays
