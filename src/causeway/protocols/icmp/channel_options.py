"""The options of HRMP: names and values of the ICMP reference, X-6."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, Strict, model_validator

from causeway.model.section import Section
from causeway.protocols.block_numbers import PlannedTick
from causeway.protocols.limits import MAX_DATA_BYTES
from causeway.protocols.option_values import LARGEST, wrong

PAGE_BYTES = 14
"""Bytes of a page beside its one message, at most: the byte that begins it, the message's index, and its length."""

MOST_BLOCKS = 10_000
"""A session has at most so many blocks: of one in which nothing moves every block is made."""


NOTICE = 2
"""A channel closes, and a parachain leaves, at the earliest so many blocks after that was asked for: blocks of
parachains that were built before it could be known are included by then."""

MOST_CALLS = 100_000
"""A scenario plans at most so many calls."""


class ChannelCall(Section):
    """A call about the channel from ``sender`` to ``recipient``, in the first block from ``tick`` on of who makes it:
    ``by``, where that is not the sender (of an ``accept``: the recipient)."""

    tick: PlannedTick
    do: Literal["open", "accept", "cancel", "close"]
    sender: str
    recipient: str
    by: str | None = None


class HrmpOptions(Section):
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
    channel_calls: Annotated[tuple[ChannelCall, ...], Strict(False)] = Field(default=(), max_length=MOST_CALLS)

    @model_validator(mode="after")
    def _thresholds_ascend(self) -> Self:
        resume, suspend, drop = self.resume_threshold, self.suspend_threshold, self.drop_threshold
        if resume >= suspend:
            raise wrong("resume_threshold", f"{resume}: allowed: less than suspend_threshold = {suspend}")
        if suspend > drop:
            raise wrong("suspend_threshold", f"{suspend}: allowed: at most drop_threshold = {drop}")
        return self

    @property
    def content_limit(self) -> int:
        """Return how many bytes a message of a program may have: it fits into a page."""
        return MAX_DATA_BYTES if self.channels == "egress" else min(MAX_DATA_BYTES, self.max_message_size - PAGE_BYTES)
