"""Outcomes of messages by the code and the reason that were said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.columns import KINDS, REQUEST
from causeway.figures.outcomes import Outcomes, strings
from causeway.ledger.codes import name_ranks
from causeway.ledger.outcomes import OUTCOMES, Outcome
from causeway.model.order import U64, groups_of, stable_order

FROM_USERS, FORGED_KIND = "from_users", "forged"
"""Kinds of what is no message between programs, and counted apart; the third is ``control``."""

NO_CAUSE = "no cause recorded"
"""The cause of a dropped call of which no row of the ledger has one."""

_KINDS = (*KINDS, FROM_USERS, FORGED_KIND)
_OF = ("protocol", "kind", "outcome", "code", "detail")
_EXAMPLE = ("source", "destination", "lane", "index", "message_id")

CODES_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("protocol", "kind", "outcome")),
        *(("code", pa.int64()), ("detail", pa.string()), pa.field("messages", pa.int64(), nullable=False)),
        pa.field("received", pa.int64(), nullable=False),
        *((name, pa.string()) for name in ("source", "destination", "lane")),
        *(("index", pa.uint64()), ("message_id", pa.string())),
    ]
)
"""So many messages of a protocol and kind came to an outcome with a code and a reason, and so many of them were
``received``; and the first of them, in the order of lanes. Among the kinds are those of what is counted apart
(``lanes.APART``): ``from_users``, ``control``, ``forged``."""


def codes_in(outcomes: Outcomes) -> pa.Table:
    """Return the outcomes of a run's messages (``CODES_SCHEMA``)."""
    if not len(outcomes):
        return CODES_SCHEMA.empty_table()
    columns = outcomes.columns
    names: dict[str | None, int] = {}
    protocol = np.array([names.setdefault(lane[0], len(names)) for lane in columns.lanes], np.int64)[outcomes.lane]
    has_code, code = outcomes.codes
    details, detail = outcomes.details
    kind = np.where(outcomes.of_users, _KINDS.index(FROM_USERS), outcomes.kind.astype(np.int64))
    kind[outcomes.forged & ~outcomes.is_control] = _KINDS.index(FORGED_KIND)
    keys: list[Any] = [protocol, kind, outcomes.outcome, has_code, np.where(has_code, code, 0), detail + 1]
    order = stable_order(*(np.ascontiguousarray(key, np.int64).view(np.uint64) for key in keys))
    groups = groups_of(*(key[order] for key in keys))
    first = order[groups.starts]  # messages stand in the order of their lanes
    base = outcomes.base[first]
    lanes = pa.array(outcomes.lane[first])
    content = {name: of.take(lanes) for name, of in columns.lane_names.items()}
    content |= {
        "kind": strings(_KINDS, kind[first]),
        "outcome": strings(OUTCOMES, outcomes.outcome[first]),
        "code": pa.array(code[first], mask=~has_code[first]),
        "detail": strings(details, detail[first]),
        "messages": pa.array(groups.counts),
        "received": pa.array(np.add.reduceat(outcomes.received.happened[order], groups.starts, dtype=np.int64)),
        "index": pa.array(columns.index[base], mask=columns.indexed[base] == 0),
        "message_id": columns.rows.take(("message_id",), base)["message_id"].combine_chunks().cast(pa.string()),
    }
    return pa.table([content[name] for name in CODES_SCHEMA.names], CODES_SCHEMA)


def codes_together(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the outcomes of several pieces as one table; what most messages came to is first."""
    every = pa.concat_tables([CODES_SCHEMA.empty_table(), *parts]).combine_chunks()
    if not every.num_rows:
        return every
    groups = [_order_of(every[name]) for name in _OF]
    places = [_order_of(every[name]) for name in ("source", "destination", "lane")]
    missing = np.asarray(every["index"].is_null()).astype(np.uint64)
    places += [missing, every["index"].fill_null(0).to_numpy(), _order_of(every["message_id"])]
    order = stable_order(*groups, *places)
    found = groups_of(*(key[order] for key in groups))
    rows = every.take(pa.array(order[found.starts]))
    for name in ("received", "messages"):
        many = np.add.reduceat(every[name].to_numpy()[order], found.starts)
        rows = rows.set_column(rows.schema.get_field_index(name), CODES_SCHEMA.field(name), pa.array(many))
    return rows.take(pa.array(np.argsort(-many, kind="stable")))


def of_kind(codes: pa.Table, kind: str) -> pa.Table:
    """Return the rows of one kind."""
    return codes.filter(pc.equal(codes["kind"], kind))


def calls_by_outcome(codes: pa.Table) -> dict[str, int]:
    """Return the number of calls by outcome."""
    rows = of_kind(codes, KINDS[REQUEST]).group_by("outcome").aggregate([("messages", "sum")]).sort_by("outcome")
    return dict(zip(rows["outcome"].to_pylist(), rows["messages_sum"].to_pylist(), strict=True))


def dropped_calls(codes: pa.Table) -> dict[str, int]:
    """Return the causes of dropped calls with the number of calls of each, the most frequent first."""
    rows = of_kind(codes, KINDS[REQUEST])
    rows = rows.filter(pc.equal(rows["outcome"], Outcome.DROPPED.value))
    found: dict[str, int] = {}
    for cause, count in zip(rows["detail"].to_pylist(), rows["messages"].to_pylist(), strict=True):
        found[cause or NO_CAUSE] = found.get(cause or NO_CAUSE, 0) + count
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _order_of(column: pa.ChunkedArray) -> U64:
    """Return numbers of the order of a column, null first."""
    if pa.types.is_string(column.type):
        return name_ranks(column).astype(np.uint64)
    words = column.fill_null(0).to_numpy().view(np.uint64) ^ np.uint64(1 << 63)
    _, ranks = np.unique(words, return_inverse=True)
    return np.where(np.asarray(column.is_valid()), ranks.reshape(-1).astype(np.uint64) + np.uint64(1), np.uint64(0))


__all__ = [
    "CODES_SCHEMA", "FORGED_KIND", "FROM_USERS", "NO_CAUSE", "calls_by_outcome", "codes_in", "codes_together",
    "dropped_calls", "of_kind",
]  # fmt: skip
