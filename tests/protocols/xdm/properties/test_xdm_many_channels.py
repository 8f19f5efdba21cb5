"""Hazard 33 at full size: 20,000 pending messages in 100 channels; bounded blocks, and all arrive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from causeway_proofs.order import group_rows, stable_order

from causeway.protocols.xdm.state import ChannelState
from tests.support.xdm.xdm_network import Network

CHANNELS, EACH = 100, 200
CHANNELS_A_BLOCK, NONCES = 15, 257


def open_channels() -> Network:
    calls = [{"tick": tick, "chain": "a", "foreign": "b", "max_outgoing": EACH} for tick in range(CHANNELS)]
    options: dict[str, Any] = {"channels": "initiate", "channel_calls": calls, "resubmit_after": 40}
    chains = {"consensus": {}, "a": {11: "caller"}, "b": {21: "echo"}}
    net = Network(chains, options=options, balance=10**9)
    net.block(CHANNELS)
    for _ in range(60):
        net.block()
        if bool((net.state["channels"]["state"] == ChannelState.OPEN).all()) and not len(net.state["outbox"]):
            return net
    raise AssertionError("not all channels are open")


@pytest.mark.slow
def test_20000_messages_of_100_channels_arrive_in_bounded_blocks() -> None:
    net = open_channels()
    assert net.state["channels"]["state"].tolist() == [ChannelState.OPEN] * 2 * CHANNELS
    for number in range(CHANNELS * EACH):
        net.call(11, 21, number.to_bytes(4, "big"))
    net.block()
    assert len(net.state["outbox"]) == CHANNELS * EACH
    assert net.state["channels"]["count"].max() == EACH
    busy = 0
    for _ in range(200):
        net.block()
        rows = net.state["envelopes"]
        rows = rows.take(stable_order(*(rows[name] for name in ("source", "destination", "substream"))))
        lanes = group_rows(rows["source"], rows["destination"], rows["substream"])
        assert int(lanes.counts.max(initial=0)) <= NONCES
        channels = {(s, d, lane >> 1) for s, d, lane in zip(*_lanes(rows), strict=True)}
        for end in {(s, d) for s, d, _ in channels}:
            assert sum((s, d) == end for s, d, _ in channels) <= CHANNELS_A_BLOCK
        busy = max(busy, len(channels))
        if net.idle():
            break
    assert busy == CHANNELS_A_BLOCK
    assert net.idle()
    assert net.state.programs["caller"]["answered"].tolist() == [CHANNELS * EACH]
    assert net.refusals() == []
    assert np.array_equal(net.state["channels"]["next_response"], net.state["channels"]["next_outbox"])


def _lanes(rows: Any) -> list[list[int]]:
    return [rows[name].tolist() for name in ("source", "destination", "substream")]
