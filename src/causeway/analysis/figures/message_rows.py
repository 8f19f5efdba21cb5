"""Messages as rows, the ages of pending messages, and the worst messages.

The age of a pending message runs from its sending to the latest time at which the input would show its arrival
(``arrivals_until`` of the observed windows, as in the audit). That is the end of the window of its destination that
contains the sending, if one is declared or the rows show several. Else it is the last time of its chains, or of the
ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.order import stable_order

from causeway.analysis.figures.latency import MEASURES, MICROSECONDS, SECONDS, TICKS, MessageDelays, measure_delays
from causeway.analysis.figures.outcomes import PENDING, MessageOutcomes, names_column
from causeway.analysis.figures.positions import NO_TICK, EventPositions
from causeway.audit.arrays import Array, Ints
from causeway.audit.columns import KINDS, NO_HEIGHT, NO_TIME
from causeway.ledger.encodings import amount_texts, rank_names
from causeway.ledger.outcomes import OUTCOMES
from causeway.ledger.schema import LANE, LIMBS
from causeway.ledger.windows import Lane, LanePromises, ObservedWindowTable

__all__ = [
    "MESSAGES_SCHEMA",
    "STEPS",
    "WORST",
    "WORST_KEYS_SCHEMA",
    "WORST_KINDS",
    "WORST_SCHEMA",
    "PendingAges",
    "find_worst",
    "merge_worst",
    "message_table",
    "select_unit",
    "worst_messages",
]

STEPS = ("sent", "received", "executed", "ended")
_TIME = pa.timestamp("us", "UTC")
_SAID = ("message_id", "answers", "journey", "sender", "receiver", "asset")

MESSAGES_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in LANE),
        *(("index", pa.uint64()), ("message_id", pa.string())),
        *((name, pa.string()) for name in ("answers", "journey")),
        *(pa.field(name, pa.string(), nullable=False) for name in ("kind", "outcome")),
        *(("code", pa.int64()), ("detail", pa.string())),
        *((name, pa.string()) for name in ("sender", "receiver", "asset", "amount")),
        *(
            (f"{step}_{name}", kind)
            for step in STEPS
            for name, kind in (("chain", pa.string()), ("height", pa.uint64()), ("tick", pa.uint64()), ("time", _TIME))
        ),
        *((f"{measure}_{unit}", pa.float64() if unit == SECONDS else pa.int64()) for measure, unit in MEASURES),
    ]
)
"""One row a message.

``kind``: ``Kind``; ``outcome``: ``Outcome``, with its ``code`` and ``detail``. ``sent``, ``received``, ``executed``:
position of the first such event. ``ended``: position at which the source chain knew the outcome. ``delivery``: sending
to receipt. ``service``: receipt to execution. ``round_trip``: sending to the answer at the sender; in heights if that
is one chain. ``amount``: decimal digits.
"""


def message_table(outcomes: MessageOutcomes) -> pa.Table:
    """Build the table of messages.

    Args:
        outcomes: the messages of a run.

    Returns:
        Rows of ``MESSAGES_SCHEMA``, in the order of the ledger.
    """
    columns, base = outcomes.columns, outcomes.base
    lanes = pa.array(outcomes.lane)
    content: dict[str, Any] = {name: names.take(lanes) for name, names in columns.lane_names.items()}
    content["index"] = pa.array(columns.index[base], mask=columns.indexed[base] == 0)
    content |= {name: outcomes.first_seen(name).cast(pa.string()) for name in _SAID}
    content["kind"] = names_column(KINDS, outcomes.kind)
    content["outcome"] = names_column(OUTCOMES, outcomes.outcome)
    has_code, code = outcomes.codes
    content["code"] = pa.array(code, mask=~has_code)
    content["detail"] = names_column(*outcomes.details)
    content["amount"] = amount_texts([outcomes.first_seen(name) for name in LIMBS])
    for step in STEPS:
        content |= _step(step, getattr(outcomes, step), outcomes.chains)
    for (measure, unit), (seen, number) in zip(MEASURES, measure_delays(outcomes), strict=True):
        values = number / MICROSECONDS if unit == SECONDS else number
        content[f"{measure}_{unit}"] = pa.array(values, mask=~seen)
    return pa.table([content[name] for name in MESSAGES_SCHEMA.names], MESSAGES_SCHEMA)


def _step(step: str, places: EventPositions, chains: list[str]) -> dict[str, pa.Array]:
    return {
        f"{step}_chain": names_column(chains, places.chain),
        f"{step}_height": pa.array(places.height, mask=places.height == NO_HEIGHT),
        f"{step}_tick": pa.array(places.tick, mask=places.tick == NO_TICK),
        f"{step}_time": pa.array(places.time, mask=places.time == NO_TIME).cast(_TIME),
    }


_MAXIMUM = (1 << 63) - 1


class PendingAges:
    """Computes the ages of pending messages at the end of the input's coverage.

    Args:
        span: the ends of the rows: ``first_tick``, ``last_tick``, ``first_time``, ``last_time`` (microseconds), each
            None if no row has one.
        observed: the windows of the ledger; None: unknown, and messages age until the last row.
        promises: the guarantees of its lanes.
    """

    def __init__(
        self, span: dict[str, Any], observed: pa.Table | None = None, promises: pa.Table | None = None
    ) -> None:
        self._last_tick: int | None = span["last_tick"]
        self._last_time: int | None = span["last_time"]
        self._windows = None if observed is None else ObservedWindowTable(observed, self._last_time)
        self._promises = None if promises is None else LanePromises(promises)
        self._tick_length = _tick_length(span)

    def age_in_ticks(self, lane: Lane, tick: int) -> int | None:
        """Return the age in ticks of a message of a lane sent at a tick; None if unknown."""
        if self._last_tick is None:
            return None
        last, length = self._last_tick, self._tick_length
        if length is not None and (until := self._until(lane, tick * length)) is not None:
            last = until // length
        return min(max(last - tick, 0), _MAXIMUM)

    def age_in_microseconds(self, lane: Lane, time: int) -> int | None:
        """Return the age in microseconds of a message of a lane sent at a time; None if unknown."""
        until = self._until(lane, time)
        return None if until is None else min(max(until - time, 0), _MAXIMUM)

    def _until(self, lane: Lane, time: int) -> int | None:
        """Return the end of coverage for a message of a lane, in microseconds; None if unknown."""
        if self._windows is None or not -_MAXIMUM <= time <= _MAXIMUM:
            return self._last_time
        within = None if self._promises is None else self._promises.deadline(lane)[0]
        end = int(self._windows.arrivals_until(lane, np.array([time], np.int64), within or 0).end[0])
        return self._last_time if end == NO_TIME else end


def _tick_length(span: dict[str, Any]) -> int | None:
    """Return the microseconds of a tick if times are ticks since 1970 (runs), else None."""
    if None in span.values() or span["last_tick"] < 1 or span["last_time"] < 1:
        return None
    length, rest = divmod(span["last_time"], span["last_tick"])
    return None if rest or span["first_time"] != span["first_tick"] * length else int(length)


WORST = 20
"""Default number of worst messages of each kind."""

WORST_KINDS = tuple(
    (f"slowest_{measure}", unit) if measure else ("oldest_pending", unit)
    for measure in ("delivery", "round_trip", "")
    for unit in (TICKS, SECONDS)
)
"""The rankings of worst messages, with the unit of each."""

WORST_KEYS_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in LANE),
        *(("index", pa.uint64()), ("message_id", pa.string()), ("kind", pa.int8()), ("badness", pa.uint64())),
    ]
)
"""Key of a message among the worst of a ranking (``WORST_KINDS``); a larger ``badness`` is worse.

``message_id`` is set for messages without index only.
"""

WORST_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("why", "unit")),
        *(pa.field("rank", pa.int32(), nullable=False), pa.field("delay", pa.float64())),
        *MESSAGES_SCHEMA,
    ]
)
"""One row a worst message: the ranking (``why``), its ``rank`` (from 1), and its ``delay`` in ``unit``.

The delay of a pending message is its age (``PendingAges``); pending messages are in the order of sending.
"""

_SIGN = np.uint64(1 << 63)


def find_worst(outcomes: MessageOutcomes, delays: Sequence[MessageDelays], most: int) -> pa.Table:
    """Find the worst messages of a run.

    Args:
        outcomes: the messages.
        delays: their delays, one entry a measure.
        most: number of messages of each ranking.

    Returns:
        Rows of ``WORST_KEYS_SCHEMA``.
    """
    found: list[tuple[Ints, int, Array]] = []
    pending = outcomes.outcome == PENDING
    for kind, (why, unit) in enumerate(WORST_KINDS):
        if why == "oldest_pending":
            at = outcomes.sent.tick if unit == TICKS else outcomes.sent.time.view(np.uint64) ^ _SIGN
            seen = pending & ((at != NO_TICK) if unit == TICKS else (outcomes.sent.time != NO_TIME))
            bad = ~at
        else:
            measure = MEASURES.index((why.removeprefix("slowest_"), unit))
            seen, bad = delays[measure].seen, delays[measure].number.view(np.uint64) ^ _SIGN
        chosen = np.flatnonzero(seen)
        if len(chosen) > most:
            # Of equally bad messages keep the first ones: they are in the order of the ledger.
            least = np.partition(bad[chosen], len(chosen) - most)[len(chosen) - most]
            above, even = chosen[bad[chosen] > least], chosen[bad[chosen] == least]
            chosen = np.sort(np.concatenate([above, even[: most - len(above)]]))
        found.append((chosen, kind, bad[chosen]))
    messages = np.concatenate([each for each, _, _ in found])
    if not len(messages):
        return WORST_KEYS_SCHEMA.empty_table()
    columns, base = outcomes.columns, outcomes.base[messages]
    indexed = columns.indexed[base] == 1
    lanes = pa.array(outcomes.lane[messages])
    content = {name: names.take(lanes) for name, names in columns.lane_names.items()}
    content["index"] = pa.array(columns.index[base], mask=~indexed)
    idents = pa.nulls(len(base), pa.string())
    if not indexed.all():
        message_ids = columns.rows.take(("message_id",), base)["message_id"].combine_chunks()
        idents = pa.array(message_ids.to_pylist(), pa.string(), mask=indexed)
    content["message_id"] = idents
    content["kind"] = pa.array(np.concatenate([np.full(len(each), kind, np.int8) for each, kind, _ in found]))
    content["badness"] = pa.array(np.concatenate([bad for _, _, bad in found]))
    return pa.table([content[name] for name in WORST_KEYS_SCHEMA.names], WORST_KEYS_SCHEMA)


def merge_worst(parts: Sequence[pa.Table], most: int) -> pa.Table:
    """Merge the worst messages of several parts.

    Args:
        parts: tables of ``WORST_KEYS_SCHEMA``.
        most: number of messages of each ranking.

    Returns:
        Rows of ``WORST_KEYS_SCHEMA`` by ranking, the worst first.
    """
    every = pa.concat_tables([WORST_KEYS_SCHEMA.empty_table(), *parts]).combine_chunks()
    if not every.num_rows:
        return every
    kind, bad = every["kind"].to_numpy().astype(np.uint64), every["badness"].to_numpy()
    index = every["index"]
    keys = [kind, ~bad, *(rank_names(every[name]).astype(np.uint64) for name in LANE)]
    keys += [np.asarray(index.is_null()).astype(np.uint64), index.fill_null(0).to_numpy()]
    keys.append(rank_names(every["message_id"]).astype(np.uint64))
    order = stable_order(*keys)
    kind = kind[order]
    rank = np.arange(len(kind)) - np.searchsorted(kind, kind)
    return every.take(pa.array(order[rank < most]))


def select_unit(keys: pa.Table, unit: str | None) -> pa.Table:
    """Select the rows of rankings counted in a unit.

    Args:
        keys: rows of ``WORST_KEYS_SCHEMA``.
        unit: the unit, or None.

    Returns:
        The selected rows.
    """
    kinds = [kind for kind, (_, own) in enumerate(WORST_KINDS) if own == unit]
    return keys.filter(pa.array(np.isin(keys["kind"].to_numpy(), kinds)))


def worst_messages(keys: pa.Table, messages: pa.Table, unit: str | None, ages: PendingAges) -> pa.Table:
    """Build the table of worst messages.

    Args:
        keys: of ``select_unit``.
        messages: rows of ``MESSAGES_SCHEMA`` with these messages, possibly others.
        unit: the unit of delays.
        ages: the ages of pending messages.

    Returns:
        Rows of ``WORST_SCHEMA``.
    """
    place = {key: number for number, key in enumerate(_keys(messages))}
    found: list[tuple[str, int, float | None, int]] = []
    ranks = dict.fromkeys(range(len(WORST_KINDS)), 0)
    for key, kind, badness in zip(_keys(keys), keys["kind"].to_pylist(), keys["badness"].to_pylist(), strict=True):
        why, _ = WORST_KINDS[kind]
        if key in place:
            ranks[kind] += 1
            found.append((why, ranks[kind], _delay(why, badness, unit, key[:4], ages), place[key]))
    whys, numbers, delays, rows = ([row[column] for row in found] for column in range(4))
    chosen = messages.take(pa.array(rows, pa.int64()))
    units = pa.array([unit] * len(found), pa.string())
    content = [pa.array(whys, pa.string()), units, pa.array(numbers, pa.int32()), pa.array(delays, pa.float64())]
    return pa.table([*content, *chosen.columns], WORST_SCHEMA)


def _delay(why: str, badness: int, unit: str | None, lane: Any, ages: PendingAges) -> float | None:
    scale = MICROSECONDS if unit == SECONDS else 1
    if why != "oldest_pending":
        return (badness - (1 << 63)) / scale
    sent = ~badness & (2**64 - 1)
    age = ages.age_in_ticks(lane, sent) if unit == TICKS else ages.age_in_microseconds(lane, sent - (1 << 63))
    return None if age is None else age / scale


def _keys(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Return the key of the message of each row."""
    names = [rows[name].to_pylist() for name in (*LANE, "index", "message_id")]
    return [(*lane, index, None if index is not None else ident) for *lane, index, ident in zip(*names, strict=True)]
