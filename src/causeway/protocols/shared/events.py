"""Event rows of a round, and the log that collects them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.core.frame import Frame, concat, empty_frame, repeat_text, repeat_value
from causeway.core.vocabulary import (
    COLLECTED_MESSAGES,
    COLLECTED_SCHEMA,
    EVENTS_SCHEMA,
    FAILURES_SCHEMA,
    NO_CHAIN,
    Event,
    Via,
)


def event_rows(
    messages: Frame,
    events: Event | np.ndarray,
    *,
    chain: Any,
    on_lane: bool = False,
    index: Any = 0,
    queue_index: Any = 0,
    code: Any = 0,
    reason: str | pa.Array = "",
    via: Any = Via.NONE,
) -> Frame:
    """Return one event row a message.

    Args:
        messages: Message columns; messages with value have ``amount_high`` and ``amount_low``.
        events: The event bits, one value or a column.
        chain: The chain of the event, one value or a column.
        on_lane: True if the messages have the columns ``LANE_COLUMNS``.
        index: The position in the queue or batch, for messages without a lane.
        queue_index: The index in a queue.
        code: The reject code.
        reason: One text, or a column of texts.
        via: The path of the message.

    Returns:
        A frame of ``EVENTS_SCHEMA``.
    """
    length = len(messages)

    def column(value: Any, kind: type[np.generic]) -> Any:
        if isinstance(value, np.ndarray):
            return value.astype(kind, copy=False)
        return repeat_value(kind(value), length)

    amounts = "amount_high" in messages

    return Frame(
        {
            "chain": column(chain, np.uint32),
            "events": column(events, np.uint16),
            "kind": messages["kind"],
            "via": column(via, np.uint8),
            "source": messages["source"] if on_lane else column(NO_CHAIN, np.uint32),
            "destination": messages["destination"] if on_lane else column(NO_CHAIN, np.uint32),
            "substream": messages["substream"] if on_lane else column(0, np.uint64),
            "index": messages["index"] if on_lane else column(index, np.uint64),
            "sender": messages["sender"],
            "receiver": messages["receiver"],
            "callback": messages["callback"],
            "amount_high": messages["amount_high"] if amounts else column(0, np.uint64),
            "amount_low": messages["amount_low"] if amounts else column(0, np.uint64),
            "queue_index": column(queue_index, np.uint64),
            "code": column(code, np.uint8),
            "reason": repeat_text(reason, length) if isinstance(reason, str) else reason,
        },
        length,
    )


def names_column(names: list[str], choices: np.ndarray) -> pa.DictionaryArray:
    """Return the text column ``names[choices]``.

    Args:
        names: The texts.
        choices: The position of each row's text.
    """
    return pa.DictionaryArray.from_arrays(pa.array(choices.astype(np.int32)), pa.array(names, pa.string()))


class EventLog:
    """Collector of the event rows and collected ranges of one round."""

    def __init__(self) -> None:
        self._events: list[Frame] = []
        self._collected: list[Frame] = []
        self._failures: list[Frame] = []

    def add(self, rows: Frame) -> None:
        """Add event rows."""
        if len(rows):
            self._events.append(rows)

    def collected(self, lanes: Frame, what: int, begin: np.ndarray, end: np.ndarray) -> None:
        """Add the collected ranges ``[begin, end)`` of lanes, except empty ones.

        Args:
            lanes: The lanes.
            what: ``COLLECTED_MESSAGES`` or ``COLLECTED_SIGNALS``.
            begin: The begin of each range.
            end: The end of each range.
        """
        rows = np.flatnonzero(end > begin)
        if len(rows):
            ranges_of_lanes = lanes.select(["source", "destination", "substream"]).take(rows)
            chain = ranges_of_lanes["source" if what == COLLECTED_MESSAGES else "destination"]
            ranges = ranges_of_lanes.with_columns(chain=chain, what=np.uint8(what), begin=begin[rows], end=end[rows])
            self._collected.append(ranges.select(COLLECTED_SCHEMA.names))

    def failures(self, inputs: Frame, raised: Frame, chain: np.ndarray) -> None:
        """Add raised handler calls.

        Args:
            inputs: The inputs of the handlers.
            raised: The raised calls (``Execution.raised``).
            chain: The chain of each input's receiver.
        """
        if len(raised):
            about = inputs.select(["kind", "sender", "receiver", "callback"]).take(raised["row"])
            where = {name: raised[name] for name in ("handler", "error", "file", "line")}
            rows = about.with_columns(chain=chain[raised["row"]].astype(np.uint32), program=about["receiver"], **where)
            self._failures.append(rows.select(FAILURES_SCHEMA.names))

    def logs(self) -> dict[str, Frame]:
        """Return the rows of the ledger's log tables so far, by table."""
        return merge_logs([self])


def merge_logs(logs: Sequence[EventLog], *first: Frame) -> dict[str, Frame]:
    """Concatenate logs by ledger table; events start with ``first``."""
    return {
        "events": concat([empty_frame(EVENTS_SCHEMA), *first, *(rows for log in logs for rows in log._events)]),
        "collected": concat([empty_frame(COLLECTED_SCHEMA), *(rows for log in logs for rows in log._collected)]),
        "failures": concat([empty_frame(FAILURES_SCHEMA), *(rows for log in logs for rows in log._failures)]),
    }


LEDGER_LOGS = {"events": EVENTS_SCHEMA, "collected": COLLECTED_SCHEMA, "failures": FAILURES_SCHEMA}
"""The log tables of every protocol: those of the ledger, and failed handlers."""
