"""The slowest messages, and the oldest pending ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Array, Ints
from causeway.audit.columns import NO_TIME
from causeway.figures.ages import Ages
from causeway.figures.delays import MEASURES, MICROSECONDS, SECONDS, TICKS, Delay
from causeway.figures.messages import MESSAGES_SCHEMA
from causeway.figures.outcomes import PENDING, Outcomes
from causeway.figures.places import NO_TICK
from causeway.ledger.codes import name_ranks
from causeway.ledger.schema import LANE
from causeway.model.order import stable_order

WORST = 20
"""So many messages of each kind are named."""

KINDS = tuple(
    (f"slowest_{measure}", unit) if measure else ("oldest_pending", unit)
    for measure in ("delivery", "round_trip", "")
    for unit in (TICKS, SECONDS)
)
"""What messages are the worst in, and in what that is counted."""

WORST_KEYS_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in LANE),
        *(("index", pa.uint64()), ("message_id", pa.string()), ("kind", pa.int8()), ("badness", pa.uint64())),
    ]
)
"""A message (``message_id``: of one without index) that is among the worst in something (``KINDS``); the larger its
``badness`` the worse it is."""

WORST_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("why", "unit")),
        *(pa.field("rank", pa.int32(), nullable=False), pa.field("delay", pa.float64())),
        *MESSAGES_SCHEMA,
    ]
)
"""A row a message: ``why`` it is named, at which place among those (``rank``, from 1), and its ``delay`` in ``unit``:
of a pending one its age (``ages``). Pending ones are in the order of their sending."""

_SIGN = np.uint64(1 << 63)


def worst_in(outcomes: Outcomes, delays: Sequence[Delay], most: int) -> pa.Table:
    """Return the worst messages of a run (``WORST_KEYS_SCHEMA``)."""
    found: list[tuple[Ints, int, Array]] = []
    pending = outcomes.outcome == PENDING
    for kind, (why, unit) in enumerate(KINDS):
        if why == "oldest_pending":
            at = outcomes.sent.tick if unit == TICKS else outcomes.sent.time.view(np.uint64) ^ _SIGN
            seen = pending & ((at != NO_TICK) if unit == TICKS else (outcomes.sent.time != NO_TIME))
            bad = ~at
        else:
            measure = MEASURES.index((why.removeprefix("slowest_"), unit))
            seen, bad = delays[measure].seen, delays[measure].number.view(np.uint64) ^ _SIGN
        chosen = np.flatnonzero(seen)
        if len(chosen) > most:
            # Of those that are as bad the first stay: they stand in the order of the ledger.
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
        taken = columns.rows.take(("message_id",), base)["message_id"].combine_chunks()
        idents = pa.array(taken.to_pylist(), pa.string(), mask=indexed)
    content["message_id"] = idents
    content["kind"] = pa.array(np.concatenate([np.full(len(each), kind, np.int8) for each, kind, _ in found]))
    content["badness"] = pa.array(np.concatenate([bad for _, _, bad in found]))
    return pa.table([content[name] for name in WORST_KEYS_SCHEMA.names], WORST_KEYS_SCHEMA)


def worst_together(parts: Sequence[pa.Table], most: int) -> pa.Table:
    """Return the worst of several pieces, the worst first, those of each kind together."""
    every = pa.concat_tables([WORST_KEYS_SCHEMA.empty_table(), *parts]).combine_chunks()
    if not every.num_rows:
        return every
    kind, bad = every["kind"].to_numpy().astype(np.uint64), every["badness"].to_numpy()
    index = every["index"]
    keys = [kind, ~bad, *(name_ranks(every[name]).astype(np.uint64) for name in LANE)]
    keys += [np.asarray(index.is_null()).astype(np.uint64), index.fill_null(0).to_numpy()]
    keys.append(name_ranks(every["message_id"]).astype(np.uint64))
    order = stable_order(*keys)
    kind = kind[order]
    rank = np.arange(len(kind)) - np.searchsorted(kind, kind)
    return every.take(pa.array(order[rank < most]))


def worst_in_unit(keys: pa.Table, unit: str | None) -> pa.Table:
    """Return those rows of ``WORST_KEYS_SCHEMA`` whose badness is counted in a unit."""
    kinds = [kind for kind, (_, own) in enumerate(KINDS) if own == unit]
    return keys.filter(pa.array(np.isin(keys["kind"].to_numpy(), kinds)))


def worst_of(keys: pa.Table, messages: pa.Table, unit: str | None, ages: Ages) -> pa.Table:
    """Return the worst messages (``WORST_SCHEMA``).

    ``keys``: of ``worst_in_unit``; ``messages``: those that they name, and perhaps others (``MESSAGES_SCHEMA``);
    ``unit``: of delays that are shown; ``ages``: of pending messages.
    """
    place = {key: number for number, key in enumerate(_keys(messages))}
    found: list[tuple[str, int, float | None, int]] = []
    ranks = dict.fromkeys(range(len(KINDS)), 0)
    for key, kind, badness in zip(_keys(keys), keys["kind"].to_pylist(), keys["badness"].to_pylist(), strict=True):
        why, _ = KINDS[kind]
        if key in place:
            ranks[kind] += 1
            found.append((why, ranks[kind], _delay(why, badness, unit, key[:4], ages), place[key]))
    whys, numbers, delays, rows = ([row[column] for row in found] for column in range(4))
    chosen = messages.take(pa.array(rows, pa.int64()))
    units = pa.array([unit] * len(found), pa.string())
    content = [pa.array(whys, pa.string()), units, pa.array(numbers, pa.int32()), pa.array(delays, pa.float64())]
    return pa.table([*content, *chosen.columns], WORST_SCHEMA)


def _delay(why: str, badness: int, unit: str | None, lane: Any, ages: Ages) -> float | None:
    scale = MICROSECONDS if unit == SECONDS else 1
    if why != "oldest_pending":
        return (badness - (1 << 63)) / scale
    sent = ~badness & (2**64 - 1)
    age = ages.in_ticks(lane, sent) if unit == TICKS else ages.in_microseconds(lane, sent - (1 << 63))
    return None if age is None else age / scale


def _keys(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Return what names the message of each row."""
    names = [rows[name].to_pylist() for name in (*LANE, "index", "message_id")]
    return [(*lane, index, None if index is not None else ident) for *lane, index, ident in zip(*names, strict=True)]


__all__ = [
    "KINDS",
    "WORST",
    "WORST_KEYS_SCHEMA",
    "WORST_SCHEMA",
    "worst_in",
    "worst_in_unit",
    "worst_of",
    "worst_together",
]
