"""Disconnection between two lakes (IBC reference X-5): relay processes carry the final packets."""

from __future__ import annotations

from pathlib import Path

from causeway.core.vocabulary import Event, Kind
from tests.support.common.lakes import both

DISCONNECT = '[[faults]]\nkind = "disconnect"\nchain = "left"\ncounterparty = "right"\ntick = 0\n'


def test_final_packet_is_relayed_and_receipts_still_arrive(tmp_path: Path) -> None:
    with both(tmp_path, more=DISCONNECT) as lakes:
        assert lakes.lane("left")["client"]["state"] == "disconnecting"
        assert lakes.lane("left")["send"]["tail"] == 6, "five calls and the final packet"
        lakes.until_idle()
        assert lakes.lane("right")["client"]["state"] == "disconnecting"
        heads = {chain: lakes.lane(chain)["send"]["head"] for chain in ("left", "right")}
        assert heads == {"left": 6, "right": 5}, "nothing is outstanding"
        assert len(lakes.received("right")) == len(lakes.answered("right")) == 5
        rejected = {chain: len(lakes.events(chain, Event.REJECTED, Kind.REQUEST)) for chain in ("left", "right")}
        assert rejected == {"left": 5, "right": 0}, "what comes after is answered with an error"
        assert lakes.account("left")["refused"] == lakes.account("right")["refused"] == 0
