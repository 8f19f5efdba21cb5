"""Recorded acknowledgements of Cosmos Hub channels, delivered to the kernel in their recorded order.

The recorded channels are unordered. On ordered ones an acknowledgement that precedes one of an earlier packet is out of
order and must be repeated: these are counted, with their delay. On unordered ones none waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.frame import concat
from causeway.core.ingress_call import encode_calls
from causeway.core.joins import encode_keys
from causeway.protocols.contract import Plan
from causeway.protocols.ibc.calls.submission import RelayPlan
from causeway.protocols.ibc.keys import KeyPart
from causeway.protocols.ibc.relayer_view import Alteration, SubmissionKind
from causeway.protocols.ibc.state import RECEIPT, SEND, State, lanes_of, reverse_lanes
from causeway.protocols.shared.messages import LANE, locate_ranges
from tests.recordings import Recordings
from tests.support.ibc.ibc_network import Network

EPOCH = 30_000
"""Blocks of the recording that are played as one: packets are sent, received, acknowledged one after the other."""

HUB = "hub"


@dataclass(frozen=True)
class Channel:
    """Packets of one channel by sequence: heights of sending and acknowledgement."""

    zone: str
    sent: np.ndarray
    acknowledged: np.ndarray


def channels(file: Path, most: int | None = None) -> list[Channel]:
    table = pq.read_table(file, columns=["channel_id", "sequence", "send_height", "ack_height"])
    found = []
    for name in sorted(set(table["channel_id"].to_pylist())):
        rows = table.filter(pa.compute.equal(table["channel_id"], name)).sort_by("sequence").slice(0, most)
        heard = rows["ack_height"].to_numpy(zero_copy_only=False).astype(float)
        # Missing ones say nothing about the order: they count as arriving with the previous one.
        before = np.fmax.accumulate(np.where(np.isnan(heard), -1, heard))
        sent = rows["send_height"].to_numpy()
        heard = np.where(np.isnan(heard), np.maximum(before, sent + 2), heard).astype(np.int64)
        found.append(Channel(name, sent, heard))
    return found


class Replay(Network):
    """Hub with a caller per channel, and a zone with an echo behind each. Acknowledgements come by hand."""

    def __init__(self, played: list[Channel], order: str) -> None:
        zones: dict[str, dict[int, str]] = {HUB: dict.fromkeys(range(len(played)), "caller")}
        zones |= {channel.zone: {1000 + place: "echo"} for place, channel in enumerate(played)}
        connections = [(HUB, channel.zone) for channel in played]
        super().__init__(zones, options={"order": order, "connections": connections})
        positions = self.kernel.zones.positions
        self.hub = positions[HUB]
        self.remotes = np.array([positions[channel.zone] for channel in played], dtype=np.uint32)
        self.submitted: list[tuple[int, int]] = []
        """(channel, index) of the acknowledgements that are submitted in the next block, in this order."""
        whole = self.kernel.plan
        object.__setattr__(self, "kernel", _Planned(self.kernel, whole, self))

    def send(self, channel: np.ndarray) -> None:
        """Send one packet in each of these channels, in this order."""
        payloads = encode_calls(
            (1000 + channel).astype(np.uint64), 0, 0, "ack", pa.array([b"x"] * len(channel), pa.binary())
        )
        columns = [
            pa.array(np.zeros(len(channel), dtype=np.uint64)),
            pa.array(channel.astype(np.uint64)),
            pa.array(np.zeros(len(channel), dtype=np.uint64)),
            pa.array(["call"] * len(channel)),
            payloads,
        ]
        self.tell_all(pa.table(columns, schema=INGRESS_SCHEMA))

    def with_acknowledgements(self, plan: Plan[RelayPlan], state: State) -> Plan[RelayPlan]:
        """Return the plan with the scripted acknowledgements instead of those of relayers."""
        rows, proofs = plan.content.submissions, plan.content.seen.proofs
        rows = rows.filter(rows["call"] != SubmissionKind.RECEIPT)
        places = np.array(self.submitted, dtype=np.int64).reshape(-1, 2)
        channel, index = places[:, 0], places[:, 1].astype(np.uint64)
        remote = self.remotes[channel]
        receipts = np.flatnonzero((proofs["substream"] == RECEIPT) & (proofs["part"] == KeyPart.INDEX))
        lanes = lanes_of(remote, np.full(len(remote), self.hub), RECEIPT)
        keys, asked = encode_keys((*LANE, "first"), proofs.take(receipts), lanes.with_columns(first=index))
        brought = lanes.with_columns(
            relayer=np.zeros(len(remote), dtype=np.uint32),
            call=np.full(len(remote), SubmissionKind.RECEIPT, dtype=np.uint8),
            begin=index,
            end=index + np.uint64(1),
            alteration=np.full(len(remote), Alteration.NONE, dtype=np.uint8),
            proof=receipts[np.searchsorted(keys, asked, side="right") - 1].astype(np.int64),
        ).select(rows.names)
        used = proofs.take(np.unique(brought["proof"]))
        wanted = used.with_columns(height=used["pushed"], begin=used["first"], end=used["first"] + used["count"])
        others = plan.reads.offered.filter(plan.reads.offered["substream"] != RECEIPT)
        offered = concat([others, wanted.select(others.names)])
        own = reverse_lanes(brought, SEND).with_columns(begin=brought["begin"], end=brought["end"])
        reads = replace(plan.reads, offered=offered, own=locate_ranges(own, state.runs))
        return replace(plan, content=replace(plan.content, submissions=concat([rows, brought])), reads=reads)


class _Planned:
    """Kernel whose plans have the scripted acknowledgements."""

    def __init__(self, kernel: Any, plan: Any, replay: Replay) -> None:
        self._kernel, self._plan, self._replay = kernel, plan, replay

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def plan(self, state: State, *given: Any) -> Plan[RelayPlan]:
        return self._replay.with_acknowledgements(self._plan(state, *given), state)


def epochs(played: list[Channel], ordered: bool) -> Iterator[tuple[np.ndarray, list[tuple[int, int]]]]:
    """Yield per epoch the channels of sent packets by height, and acknowledgements by recorded height.

    On ordered channels one that preceded that of an earlier packet is repeated after all earlier ones, as by a relayer
    that watches the chain.
    """
    sent = np.concatenate([channel.sent for channel in played])
    of = np.concatenate([np.full(len(channel.sent), place) for place, channel in enumerate(played)])
    index = np.concatenate([np.arange(len(channel.sent)) for channel in played])
    first = np.concatenate([channel.acknowledged for channel in played])
    in_turn = np.concatenate([np.maximum.accumulate(channel.acknowledged) for channel in played])
    again = np.flatnonzero((in_turn > first) & ordered)
    heard, of_heard = np.concatenate([first, in_turn[again]]), np.concatenate([of, of[again]])
    index_heard = np.concatenate([index, index[again]])
    for epoch in range(int(sent.min()) // EPOCH, int(heard.max()) // EPOCH + 1):
        now = np.flatnonzero(sent // EPOCH == epoch)
        due = np.flatnonzero(heard // EPOCH == epoch)
        if len(now) or len(due):
            due = due[np.lexsort((index_heard[due], of_heard[due], heard[due]))]
            acknowledged = list(zip(of_heard[due].tolist(), index_heard[due].tolist(), strict=True))
            yield of[now[np.lexsort((index[now], sent[now]))]], acknowledged


def out_of_order_rows(net: Replay) -> list[tuple[int, int]]:
    """Return (channel, index) of the last block's out-of-order acknowledgements."""
    events = net.events()
    reasons = np.array(events["reason"].to_pylist()) == "OutOfOrder"
    rows = events.filter(reasons & (events["chain"] == net.hub))
    channel = {int(remote): place for place, remote in enumerate(net.remotes.tolist())}
    columns = rows["source"].tolist(), rows["index"].tolist()
    return [(channel[remote], index) for remote, index in zip(*columns, strict=True)]


def play(played: list[Channel], order: str) -> tuple[Replay, list[tuple[int, int]]]:
    """Play all epochs; return the final network and the rejected acknowledgements."""
    net, waited = Replay(played, order), list[tuple[int, int]]()
    for packets, due in epochs(played, order == "ordered"):
        net.send(packets)
        net.block(2)  # sent, received
        net.submitted = due
        net.block()
        waited += out_of_order_rows(net)
        net.submitted = []
    return net, waited


def late_acknowledgements(played: list[Channel]) -> set[tuple[int, int]]:
    """Return acknowledgements recorded at a lower height than one of an earlier packet of the channel."""
    found = set()
    for place, channel in enumerate(played):
        latest = np.maximum.accumulate(channel.acknowledged)
        found |= {(place, int(index)) for index in np.flatnonzero(channel.acknowledged < latest)}
    return found


def is_settled(net: Replay, played: list[Channel]) -> bool:
    """Return whether every caller has all its answers."""
    callers = net.state.programs["caller"]
    found: list[int] = callers["answered"].tolist()
    return found == [len(channel.sent) for channel in played]


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_acknowledgements_wait_only_in_ordered_queues(recordings: Recordings, order: str) -> None:
    played = channels(recordings.hub_packets, most=120)
    late = late_acknowledgements(played)
    net, waited = play(played, order)
    assert is_settled(net, played)
    assert len(late) > 3
    assert sorted(waited) == (sorted(late) if order == "ordered" else [])


@pytest.mark.slow
def test_449_of_all_recorded_acknowledgements_would_have_waited(recordings: Recordings) -> None:
    played = channels(recordings.hub_packets)
    net, waited = play(played, "ordered")
    assert is_settled(net, played)
    assert len(waited) == len(set(waited)) == 449
