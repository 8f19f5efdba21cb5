"""The state of a set of chains as columns, and the names of lanes.

A lane is named by the direction of its messages: ``source`` stores them for ``destination``. Substream ``2 * channel``
has the requests of a channel, ``2 * channel + 1`` the responses to the requests of the opposite direction; indices are
nonces. A lane with equal ``source`` and ``destination`` is local: calls (0) and answers (1) between programs of one
chain, without proofs.

Small tables, such as those with a row a domain, convert to named rows and back.

Reference: XDM, section 2.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64, Rows

from causeway.core.frame import Column, Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.core.queues import Queues
from causeway.protocols.contract import StateTable
from causeway.protocols.shared.execution import program_tables
from causeway.protocols.shared.messages import LANE
from causeway.protocols.shared.state_tables import TableState
from causeway.protocols.xdm.tables import CHANNEL, OUTBOX_SCHEMA, QUEUES_SCHEMA, STATE_TABLES

REQUEST = 0
RESPONSE = 1
"""Directions of the lanes of a channel."""

NOBODY = 2**64 - 1
"""The sender of a request without a waiting program: a late answer or a protocol request."""

ROOT_ACCOUNT = NOBODY
"""The owner of channels opened by root: the first 8 bytes of its account."""

MAX_CHANNEL = 2**63 - 1
MAX_NONCE = 2**64 - 2**22
"""Limits of channel numbers and nonces; larger ones on the wire (256 bits) are refused.

The space above ``MAX_NONCE`` keeps a window of ``max_future_nonces`` within 64 bits.
"""


class ChannelState(IntEnum):
    """State of a channel (2.2), numbered as on the wire."""

    INITIATED = 0
    OPEN = 1
    CLOSED = 2


class RequestKind(IntEnum):
    """Kind of a request: a protocol call or an endpoint call."""

    CHANNEL_OPEN = 0
    CHANNEL_CLOSE = 1
    ENDPOINT = 2


class FeeModel(IntEnum):
    """Fees of a request on a channel (3.8)."""

    V0 = 0
    """The compute fee plus the channel's relay fee, on each side."""
    V1 = 1
    """The compute fee times ``fee_multiplier``."""


class State(TableState):
    """States of a set of chains at one height: ``STATE_TABLES`` and tables of programs."""

    def local(self) -> Queues:
        """Return the local lanes; the lake stores their messages."""
        return Queues(LANE, self["queues"], empty_frame(OUTBOX_SCHEMA), self["runs"], base=0)

    def replace_local(self, queues: Queues) -> State:
        """Return the state with new local lanes.

        Args:
            queues: Counters and segments of the lanes.
        """
        assert queues.segments is not None
        return self.with_tables(queues=queues.counters.select(QUEUES_SCHEMA.names), runs=queues.segments)


def state_tables(program_schemas: Mapping[str, pa.Schema]) -> dict[str, StateTable]:
    """Return all tables of a state by name, including those of the program classes."""
    return STATE_TABLES | program_tables(program_schemas)


def state_of_frames(frames: Mapping[str, Frame], program_schemas: Mapping[str, pa.Schema]) -> State:
    """Create a state from frames.

    Args:
        frames: Tables by name; missing tables are empty.
        program_schemas: Schemas of the program classes by name.
    """
    return State.from_frames(frames, STATE_TABLES, program_schemas)


def substream(channel: U64, direction: int) -> U64:
    """Return the substream of each channel's lane in a direction."""
    lanes: U64 = (channel << np.uint64(1)) | np.uint64(direction)
    return lanes


def lane_channels(substreams: U64) -> U64:
    """Return the channel of each lane.

    Args:
        substreams: Substreams of lanes, uint64.
    """
    found: U64 = substreams >> np.uint64(1)
    return found


def is_response(substreams: U64) -> npt.NDArray[np.bool_]:
    """Return a mask of response lanes.

    Args:
        substreams: Substreams of lanes, uint64.
    """
    found: npt.NDArray[np.bool_] = (substreams & np.uint64(1)) == 1
    return found


def channel_rows(channels: Frame, chain: npt.NDArray[Any], foreign: npt.NDArray[Any], channel: U64) -> Rows:
    """Return the row of each channel, -1 for a missing one."""
    keys = Frame({"chain": chain, "foreign": foreign, "channel": channel}, len(channel))
    return lookup_rows(channels, keys, CHANNEL)


def next_nonces(channels: Frame, rows: Rows, response: npt.NDArray[np.bool_]) -> U64:
    """Return the next expected nonce for each row of ``channels``, 0 for row -1.

    Args:
        channels: ``CHANNELS_SCHEMA``.
        rows: Rows of ``channels``, -1 for a missing channel.
        response: Mask of response lanes.
    """
    if len(channels) == 0:
        return np.zeros(len(rows), dtype=np.uint64)
    found = np.where(response, channels["next_response"][rows], channels["next_inbox"][rows])
    return np.where(rows >= 0, found, np.uint64(0))


def channel_states(channels: Frame, rows: Rows) -> npt.NDArray[np.int64]:
    """Return the ``ChannelState`` of each row of ``channels``, -1 for row -1."""
    if len(channels) == 0:
        return np.full(len(rows), -1, dtype=np.int64)
    return np.where(rows >= 0, channels["state"][rows].astype(np.int64), -1)


def encode_set(numbers: Iterable[int]) -> bytes:
    """Encode a set of chain positions or operators: 4 bytes each, little-endian, ascending."""
    return b"".join(number.to_bytes(4, "little") for number in sorted(numbers))


def decode_set(packed: bytes) -> list[int]:
    """Decode the output of ``encode_set``, ascending."""
    return [int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed), 4)]


def named_rows(frame: Frame) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries; digests become bytes."""
    columns = []
    for name in frame.names:
        column = frame[name]
        if isinstance(column, np.ndarray):
            columns.append([row.tobytes() for row in column] if column.ndim == 2 else column.tolist())
        else:
            columns.append(column.to_pylist())
    return [dict(zip(frame.names, row, strict=True)) for row in zip(*columns, strict=True)]


def table_from_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> Frame:
    """Create a table with the columns of ``schema`` from the output of ``named_rows``."""
    return Frame({field.name: _column([row[field.name] for row in rows], field.type) for field in schema}, len(rows))


def _column(values: list[Any], kind: pa.DataType) -> Column:
    if pa.types.is_fixed_size_binary(kind):
        digests: npt.NDArray[np.uint8] = np.frombuffer(b"".join(values), dtype=np.uint8)
        return digests.reshape(-1, kind.byte_width)
    return np.array(values, dtype=kind.to_pandas_dtype()) if pa.types.is_integer(kind) else pa.array(values, kind)


def replace_domain_rows(before: Frame, newest: Frame) -> Frame:
    """Return a table with the rows of the domains in ``newest`` replaced."""
    joined = concat([before.filter(~np.isin(before["domain"], newest["domain"])), newest])
    return joined.take(np.argsort(joined["domain"], kind="stable"))
