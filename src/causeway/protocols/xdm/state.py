"""The state of any set of chains as columns (XDM reference 2.5): the rows of its tables (``tables``), and
how lanes are named.

A lane is named by the chains of the message that travels on it: ``source`` keeps it for ``destination``. Substream
``2 * channel`` has the requests of a channel in that direction, ``2 * channel + 1`` the responses to those of the other
direction; indices are nonces. Where ``destination`` is ``source`` itself the lane is local: calls (0) and answers (1)
between programs of one chain, of which nothing is proved.

Tables of few rows, such as those with a row a domain, as rows with names, and the other way round.
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
"""The directions of the lanes of a channel."""

NOBODY = 2**64 - 1
"""The sender of a request that no program waits for: an answer that came later, a request of the protocol."""

ROOT_ACCOUNT = NOBODY
"""The owner of channels that root has opened: the number in the first 8 bytes of its account."""

MAX_CHANNEL = 2**63 - 1
MAX_NONCE = 2**64 - 2**22
"""Numbers of channels and messages inside; on the wire they have 256 bits. What would pass them is refused. A nonce has
room above it, so that no window of ``max_future_nonces`` after it passes 64 bits."""


class ChannelState(IntEnum):
    """What a channel is (2.2); the numbers are those of the wire."""

    INITIATED = 0
    OPEN = 1
    CLOSED = 2


class RequestKind(IntEnum):
    """What a request asks: the calls of the protocol, or an endpoint's."""

    CHANNEL_OPEN = 0
    CHANNEL_CLOSE = 1
    ENDPOINT = 2


class FeeModel(IntEnum):
    """What the sender of a request pays on a channel (3.8)."""

    V0 = 0
    """The compute fee and the channel's relay fee, on each side."""
    V1 = 1
    """The compute fee times ``fee_multiplier``."""


class State(TableState):
    """The states of a set of chains at one height: the frames of ``STATE_TABLES``, and the programs'."""

    def local(self) -> Queues:
        """Return the local lanes; their messages lie in the lake."""
        return Queues(LANE, self["queues"], empty_frame(OUTBOX_SCHEMA), self["runs"], base=0)

    def replace_local(self, queues: Queues) -> State:
        """Return the state with other local lanes."""
        assert queues.segments is not None
        return self.with_tables(queues=queues.counters.select(QUEUES_SCHEMA.names), runs=queues.segments)


def state_tables(program_schemas: Mapping[str, pa.Schema]) -> dict[str, StateTable]:
    """Return all tables of a state, with whose their rows are, given the schemas of the program classes in use."""
    return STATE_TABLES | program_tables(program_schemas)


def state_of_frames(frames: Mapping[str, Frame], program_schemas: Mapping[str, pa.Schema]) -> State:
    """Return the state that has these tables; absent ones are empty."""
    return State.from_frames(frames, STATE_TABLES, program_schemas)


def substream(channel: U64, direction: int) -> U64:
    """Return the substream of each channel's lane in a direction."""
    found: U64 = (channel << np.uint64(1)) | np.uint64(direction)
    return found


def lane_channels(substreams: U64) -> U64:
    """Return the channel that each lane is of."""
    found: U64 = substreams >> np.uint64(1)
    return found


def is_response(substreams: U64) -> npt.NDArray[np.bool_]:
    """Return which lanes are of responses."""
    found: npt.NDArray[np.bool_] = (substreams & np.uint64(1)) == 1
    return found


def channel_rows(channels: Frame, chain: npt.NDArray[Any], foreign: npt.NDArray[Any], channel: U64) -> Rows:
    """Return the row of each channel asked for, -1 where there is none."""
    asked = Frame({"chain": chain, "foreign": foreign, "channel": channel}, len(channel))
    return lookup_rows(channels, asked, CHANNEL)


def next_nonces(channels: Frame, rows: Rows, response: npt.NDArray[np.bool_]) -> U64:
    """Return the nonce that the chain of each row of ``channels`` takes next, of requests or of responses; 0 for -1, no
    channel."""
    if len(channels) == 0:
        return np.zeros(len(rows), dtype=np.uint64)
    found = np.where(response, channels["next_response"][rows], channels["next_inbox"][rows])
    return np.where(rows >= 0, found, np.uint64(0))


def channel_states(channels: Frame, rows: Rows) -> npt.NDArray[np.int64]:
    """Return the state (``ChannelState``) of each row of ``channels``; -1 for -1, no channel."""
    if len(channels) == 0:
        return np.full(len(rows), -1, dtype=np.int64)
    return np.where(rows >= 0, channels["state"][rows].astype(np.int64), -1)


def encode_set(numbers: Iterable[int]) -> bytes:
    """Encode a set of chain positions or operator numbers: 4 bytes each, little-endian, ascending."""
    return b"".join(number.to_bytes(4, "little") for number in sorted(numbers))


def decode_set(packed: bytes) -> list[int]:
    """Decode the numbers that ``encode_set`` wrote, ascending."""
    return [int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed), 4)]


def named_rows(frame: Frame) -> list[dict[str, Any]]:
    """Return the rows of a table, each by the names of its columns; digests are bytes."""
    columns = []
    for name in frame.names:
        column = frame[name]
        if isinstance(column, np.ndarray):
            columns.append([row.tobytes() for row in column] if column.ndim == 2 else column.tolist())
        else:
            columns.append(column.to_pylist())
    return [dict(zip(frame.names, row, strict=True)) for row in zip(*columns, strict=True)]


def table_from_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> Frame:
    """Return a table with the columns of ``schema`` from rows as ``rows_of`` gives them."""
    return Frame({field.name: _column([row[field.name] for row in rows], field.type) for field in schema}, len(rows))


def _column(values: list[Any], kind: pa.DataType) -> Column:
    if pa.types.is_fixed_size_binary(kind):
        digests: npt.NDArray[np.uint8] = np.frombuffer(b"".join(values), dtype=np.uint8)
        return digests.reshape(-1, kind.byte_width)
    return np.array(values, dtype=kind.to_pandas_dtype()) if pa.types.is_integer(kind) else pa.array(values, kind)


def replace_domain_rows(before: Frame, newest: Frame) -> Frame:
    """Return a table with a row a domain, those of ``newest`` in the place of what these domains had ``before``."""
    found = concat([before.filter(~np.isin(before["domain"], newest["domain"])), newest])
    return found.take(np.argsort(found["domain"], kind="stable"))
