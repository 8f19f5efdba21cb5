"""The options of egress queues: names, values and defaults of the reference, 4.1.

The options of HRMP: names and values of the ICMP reference, X-6.

A table of when bodies came to those who need them: what a simulation of the gossip network wrote.

``causeway gossip simulate --out LAKE`` leaves it as ``results/bodies.parquet`` in the lake.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from causeway_proofs.order import U64, Rows, stable_order
from pydantic import BeforeValidator, ConfigDict, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from causeway.config.section import ScenarioSection
from causeway.core.frame import Frame, from_table
from causeway.core.joins import lookup_rows
from causeway.protocols.shared.block_numbers import PlannedTick
from causeway.protocols.shared.limits import MAX_DATA_BYTES
from causeway.protocols.shared.option_values import LARGEST, ProfiledOptions, option_error

PAGE_BYTES = 14
"""Bytes of a page beside its one message, at most: the byte that begins it, the message's index, and its length."""

MOST_BLOCKS = 10_000
"""A session has at most so many blocks: of one in which nothing moves every block is made."""


NOTICE = 2
"""A channel closes, and a parachain leaves, at the earliest so many blocks after that was asked for: blocks of
parachains that were built before it could be known are included by then."""

MOST_CHANNEL_CALLS = 100_000
"""A scenario plans at most so many calls."""


class HrmpChannelCall(ScenarioSection):
    """A call about the channel from ``sender`` to ``recipient``, in the first block from ``tick`` on of who makes it:
    ``by``, where that is not the sender (of an ``accept``: the recipient)."""

    tick: PlannedTick
    do: Literal["open", "accept", "cancel", "close"]
    sender: str
    recipient: str
    by: str | None = None


class HrmpOptions(ScenarioSection):
    """Options of HRMP; ``docs/protocols/icmp.md`` says what each does. Amounts are in units of the asset, sizes in
    bytes."""

    channels: Literal["egress", "hrmp"] = "egress"
    session_blocks: int = Field(default=10, ge=1, le=MOST_BLOCKS)
    max_capacity: int = Field(default=1_000, ge=1, le=2**32 - 1)
    max_total_size: int = Field(default=102_400, ge=1, le=2**31)
    max_message_size: int = Field(default=102_400, ge=1, le=2**24)
    max_messages_per_candidate: int = Field(default=10, ge=1, le=1_000)
    max_outbound_channels: int = Field(default=128, ge=1, le=2**32 - 1)
    max_inbound_channels: int = Field(default=128, ge=1, le=2**32 - 1)
    sender_deposit: int = Field(default=10, ge=0, le=LARGEST)
    recipient_deposit: int = Field(default=10, ge=0, le=LARGEST)
    endowment: int = Field(default=1_000_000_000, ge=0, le=LARGEST)
    suspend_threshold: int = Field(default=2, ge=1, le=LARGEST)
    drop_threshold: int = Field(default=5, ge=1, le=LARGEST)
    resume_threshold: int = Field(default=1, ge=0, le=LARGEST)
    pages_per_block: int = Field(default=0, ge=0, le=LARGEST)
    overflow: Literal["wait", "drop"] = "wait"
    channel_calls: Annotated[tuple[HrmpChannelCall, ...], Strict(False)] = Field(
        default=(), max_length=MOST_CHANNEL_CALLS
    )

    @model_validator(mode="after")
    def _thresholds_ascend(self) -> Self:
        resume, suspend, drop = self.resume_threshold, self.suspend_threshold, self.drop_threshold
        if resume >= suspend:
            raise option_error("resume_threshold", f"{resume}: allowed: less than suspend_threshold = {suspend}")
        if suspend > drop:
            raise option_error("suspend_threshold", f"{suspend}: allowed: at most drop_threshold = {drop}")
        return self

    @property
    def content_limit(self) -> int:
        """Return how many bytes a message of a program may have: it fits into a page."""
        return MAX_DATA_BYTES if self.channels == "egress" else min(MAX_DATA_BYTES, self.max_message_size - PAGE_BYTES)


BODY_TABLE_SCHEMA = pa.schema(
    [
        pa.field("number", pa.uint64(), nullable=False),
        pa.field("source", pa.uint32(), nullable=False),
        pa.field("destination", pa.uint32(), nullable=False),
        pa.field("delay", pa.uint64()),
    ]
)
"""One row a queue: the number of the relay block that posted it, its ends (parachains, counted from 0), and how many
milliseconds after that block was made its recipient had the body; null: never."""

MOST_ROWS = 10_000_000
MOST_BYTES = 1 << 30

NEVER = 2**62
"""So many milliseconds, or ticks, later comes what does not come."""

_KEYS = ("number", "destination", "source")


@dataclass(frozen=True, eq=False)
class BodyTable:
    """The rows of a table (``number``, ``destination``, ``source``, ``delay``), by its keys."""

    rows: Frame

    def delays(self, listed: Frame, drawn: U64) -> Rows:
        """Return the delay (ms) of each queue of ``listed`` (``number``, ``to``, ``source``; parachains count from 1).
        One that the table does not have gets that of the row ``drawn`` for it (modulo the rows)."""
        one = np.uint32(1)
        asked = Frame(
            {"number": listed["number"], "destination": listed["to"] - one, "source": listed["source"] - one},
            len(listed),
        )
        found = lookup_rows(self.rows, asked, _KEYS)
        other = (drawn % np.uint64(len(self.rows))).astype(np.int64)
        delay: Rows = self.rows["delay"][np.where(found >= 0, found, other)]
        return delay


def read_body_table(path: object) -> BodyTable | None:
    """Return the table in a Parquet file (``BODY_TABLE_SCHEMA``). Raises ``PydanticCustomError`` where it is none."""
    if path is None or isinstance(path, BodyTable):
        return path
    if not isinstance(path, str):
        raise _wrong("the path of a Parquet file")
    try:
        if os.path.getsize(path) > MOST_BYTES:
            raise _wrong(f"a file of at most {MOST_BYTES:,} bytes")
        if not os.path.isfile(path):  # who opens a pipe waits
            raise _wrong("a Parquet file that can be read")
        with pq.ParquetFile(path) as file:
            names, count = file.schema_arrow.names, file.metadata.num_rows
            if sorted(names) != sorted(BODY_TABLE_SCHEMA.names) or not 0 < count <= MOST_ROWS:
                columns = ", ".join(BODY_TABLE_SCHEMA.names)
                raise _wrong(f"a table with the columns {columns}, and 1 to {MOST_ROWS:,} rows")
            table = file.read().select(BODY_TABLE_SCHEMA.names)
            if any(table[name].null_count for name in _KEYS):
                raise _wrong(f"a table in which no {', '.join(_KEYS[:-1])} or {_KEYS[-1]} is null")
            table = table.cast(BODY_TABLE_SCHEMA)
        delay = table["delay"].cast(pa.int64()).fill_null(NEVER)
    except (OSError, pa.ArrowException) as error:
        raise _wrong(f"a Parquet file that can be read ({type(error).__name__})") from error
    rows = from_table(table.set_column(3, "delay", delay.combine_chunks()))
    rows = rows.take(stable_order(*(rows[name] for name in _KEYS)))
    keys = np.stack([rows[name].astype(np.uint64) for name in _KEYS])
    if len(rows) > 1 and bool((keys[:, 1:] == keys[:, :-1]).all(axis=0).any()):
        raise _wrong("one row a queue (number, source, destination)")
    return BodyTable(rows)


def _wrong(allowed: str) -> PydanticCustomError:
    return PydanticCustomError("body_table", "{text}", {"text": f"must be {allowed}"})


DEPLOYED: Mapping[str, Any] = {"watermark_rule": "has_messages"}
"""What ``profile = deployed`` changes: the values of the reference's column "other" that chains run."""


MOST_TICKS = 1_000_000
"""Bodies are on their way for at most so many ticks on average, and the fallback comes at the latest after so many."""

MOST_CALLS = 100_000
"""A scenario plans at most so many calls."""


class ParaCall(ScenarioSection):
    """A call to the relay chain: in its first block from ``tick`` on ``chain`` is registered or deregistered, or does
    not want to hear ``other`` any more (``block``), or again (``unblock``)."""

    tick: PlannedTick
    chain: str
    do: Literal["register", "deregister", "block", "unblock"]
    other: str | None = None


class IcmpOptions(HrmpOptions, ProfiledOptions):
    """Options of egress queues; ``docs/protocols/icmp.md`` says what each does."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    ingress_upper: Literal["exclusive", "inclusive"] = "exclusive"
    watermark_mode: Literal["per_candidate", "now_minus_1"] = "per_candidate"
    watermark_rule: Literal["any_ancestor", "has_messages"] = "any_ancestor"
    allow_empty_prefix: Literal["on", "off"] = "on"
    bodies: Literal["ideal", "drawn", "simulated"] = "ideal"
    body_ticks: float = Field(default=1.0, ge=0, le=MOST_TICKS)
    body_loss: float = Field(default=0.0, ge=0, le=1)
    body_table: Annotated[BodyTable | None, BeforeValidator(read_body_table)] = None
    fallback_request: Literal["off", "on"] = "off"
    fallback_after: int = Field(default=4, ge=0, le=MOST_TICKS)
    para_calls: Annotated[tuple[ParaCall, ...], Strict(False)] = Field(default=(), max_length=MOST_CALLS)

    @model_validator(mode="after")
    def _of_the_channels(self) -> Self:
        """Refuse options that do nothing with the channels that there are."""
        deployed = DEPLOYED if self.profile == "deployed" else {}
        for row, call in enumerate(self.para_calls if self.channels == "hrmp" else ()):
            if call.do in ("block", "unblock"):
                allowed = 'allowed with channels = "hrmp": "register", "deregister"'
                raise option_error(f"para_calls.{row}.do", f"{call.do!r}; {allowed}")
        for key in sorted(self.model_fields_set - {"channels", "profile", "para_calls"}):
            needed = "hrmp" if key in HrmpOptions.model_fields else "egress"
            if needed != self.channels and deployed.get(key) != getattr(self, key):
                raise option_error(
                    key, f'it does nothing with channels = "{self.channels}"; it needs channels = "{needed}"'
                )
        return self

    @model_validator(mode="after")
    def _table_is_there(self) -> Self:
        if (self.bodies == "simulated") != (self.body_table is not None):
            given = "missing" if self.body_table is None else f'it does nothing with bodies = "{self.bodies}"'
            raise option_error("body_table", f'{given}; with bodies = "simulated", and only then, it names a table')
        return self

    @model_validator(mode="after")
    def _of_the_bodies(self) -> Self:
        """Refuse options that do nothing where every body is there at once, or in a table."""
        needed: dict[str, tuple[str, ...]] = {"body_ticks": ("drawn",), "body_loss": ("drawn",)}
        needed |= dict.fromkeys(("fallback_request", "fallback_after"), ("drawn", "simulated"))
        for key in sorted(self.model_fields_set & needed.keys()):
            if self.bodies not in needed[key]:
                allowed = " or ".join(f'"{bodies}"' for bodies in needed[key])
                raise option_error(key, f'it does nothing with bodies = "{self.bodies}"; it needs bodies = {allowed}')
        return self

    @classmethod
    def deployed(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what ``profile = deployed`` changes."""
        return DEPLOYED
