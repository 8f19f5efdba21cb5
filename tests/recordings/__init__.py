"""Recorded traffic, stored as compact columns and written out in the shape in which people have it.

README.md names the source and the licence of each recording, and explains the columns. Tests take the fixture
``recordings`` of tests/conftest.py: each of its properties is the path of a file, written on first use.
"""

from __future__ import annotations

import csv
import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FOLDER = Path(__file__).resolve().parent

BLOCK_MICROSECONDS = 5_920_000
"""Time between two blocks of Cosmos Hub from which ``drift`` of hub_blocks.parquet is counted."""

MICROSECONDS = pa.timestamp("us", tz="UTC")
BRIDGE_COLUMNS = (
    "direction",
    "side",
    "chain",
    "timestamp",
    "tx_hash",
    "nonce",
    "token_dst",
    "beneficiary",
    "amount",
)


class Recordings:
    """Recorded traffic as files of a folder.

    Args:
        folder: An existing folder that the files are written to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def hub_packets(self) -> Path:
        """161,478 IBC packets that Cosmos Hub sent, as Parquet. ``channels`` lies beside it."""
        path = self._folder / "ibc_packets_cosmoshub.parquet"
        pq.write_table(read_hub_packets(), path, compression="zstd")
        assert self.channels.parent == path.parent
        return path

    @cached_property
    def channels(self) -> Path:
        """857 registered IBC channels, as a JSON array with a record a line."""
        path = self._folder / "ibc_channels.json"
        records = pq.read_table(FOLDER / "ibc_channels.parquet").to_pylist()
        path.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n", encoding="utf-8")
        return path

    @cached_property
    def bridge_events(self) -> Path:
        """22,827 events of the Nomad bridge from Ethereum to Moonbeam, as CSV."""
        path = self._folder / "nomad_ethereum_to_moonbeam.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(BRIDGE_COLUMNS)
            writer.writerows(read_bridge_events())
        return path

    @cached_property
    def xcm_journeys(self) -> Path:
        """50 events of 18 XCM messages, as JSON lines."""
        path = self._folder / "xcm_journeys.jsonl"
        path.write_text("".join(json.dumps(event) + "\n" for event in read_xcm_journeys()), encoding="utf-8")
        return path


def read_hub_packets() -> pa.Table:
    """Read the packets of Cosmos Hub, ordered by height, channel and sequence.

    Returns:
        Columns source_chain and channel_id (string), sequence, send_height and ack_height (int64), send_time and
        ack_time (timestamp in microseconds, UTC). A packet without a known acknowledgement or time has nulls there.
    """
    stored, blocks = pq.read_table(FOLDER / "hub_packets.parquet"), pq.read_table(FOLDER / "hub_blocks.parquet")
    block_heights = np.cumsum(blocks["height_step"].to_numpy(), dtype=np.int64)
    block_times = np.cumsum(blocks["drift"].to_numpy()) + BLOCK_MICROSECONDS * block_heights

    def times(heights: np.ndarray) -> pa.Array:
        places = np.minimum(np.searchsorted(block_heights, heights), len(block_heights) - 1)
        return pa.array(block_times[places], mask=block_heights[places] != heights).cast(MICROSECONDS)

    channel = stored["channel"].to_numpy()
    sequence = np.cumsum(stored["sequence_step"].to_numpy(), dtype=np.int64)
    sent = np.cumsum(stored["sent_step"].to_numpy(), dtype=np.int64)
    order = np.lexsort((sequence, channel, sent))
    waited = stored["acknowledged_after"].take(pa.array(order))
    sent = sent[order]
    acknowledged = sent + waited.fill_null(0).to_numpy()
    missing = pc.is_null(waited).to_numpy()
    columns = {
        "source_chain": pa.array(["cosmoshub-4"] * len(order)),
        "channel_id": pa.array([f"channel-{number}" for number in channel[order].tolist()]),
        "sequence": pa.array(sequence[order]),
        "send_height": pa.array(sent),
        "send_time": times(sent),
        "ack_height": pa.array(acknowledged, mask=missing),
        "ack_time": times(np.where(missing, -1, acknowledged)),
    }
    return pa.table(columns)


def read_bridge_events() -> list[tuple[Any, ...]]:
    """Read the events of the Nomad bridge, ordered by time, transaction and nonce.

    Returns:
        For each event the fields of ``BRIDGE_COLUMNS``: time and nonce are integers, the others text.
    """
    stored = pq.read_table(FOLDER / "bridge_messages.parquet").to_pylist()
    events: list[tuple[Any, ...]] = []
    nonce = received = 0
    for row in stored:
        nonce, received = nonce + row["nonce_step"], received + row["received_step"]
        token, beneficiary = f"0x{row['token'].hex()}", f"0x{row['beneficiary'].hex()}"
        content = (nonce, token, beneficiary, row["amount"])
        events.append(
            ("eth->moonbeam", "recv", "moonbeam", received, f"0x{row['received_transaction'].hex()}", *content)
        )
        if row["waited"] is not None:
            if row["sent_beneficiary"] is not None:
                content = (nonce, token, f"0x{row['sent_beneficiary'].hex()}", row["amount"])
            transaction = f"0x{row['sent_transaction'].hex()}"
            events.append(("eth->moonbeam", "send", "ethereum", received - row["waited"], transaction, *content))
    return sorted(events, key=lambda event: event[3:6])


def read_xcm_journeys() -> list[dict[str, Any]]:
    """Read the events of XCM messages in the order in which they were recorded.

    Returns:
        For each event the nested record: type, messageId, origin, destination, waypoint and, where known, sender.
    """
    events = []
    for row in pq.read_table(FOLDER / "xcm_journeys.parquet").to_pylist():
        waypoint: dict[str, Any] = {
            "chainId": row["chain"],
            "blockNumber": str(row["height"]),
            "timestamp": row["milliseconds"],
            "outcome": row["outcome"],
            "messageHash": row["message_hash"],
        }
        if row["position"] is not None:
            waypoint["event"] = {"blockPosition": row["position"]}
        if row["extrinsic"] is not None:
            waypoint["extrinsicHash"] = row["extrinsic"]
        event: dict[str, Any] = {
            "type": f"xcm.{row['type']}",
            "messageId": row["message"],
            "origin": {"chainId": row["origin"]},
            "destination": {"chainId": row["destination"]},
            "waypoint": waypoint,
        }
        if row["signer"] is not None:
            event["sender"] = {"signer": {"publicKey": row["signer"]}}
        events.append(event)
    return events
