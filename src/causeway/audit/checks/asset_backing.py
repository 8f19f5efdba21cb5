"""Check asset backing: between two chains, no more of an asset comes back than has left.

A bucket gives the sums of each chain, other chain and asset, and the last movements of each. The sums of all buckets
are then checked together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import group_rows, stable_order

from causeway.audit.arrays import Array, all_valid_rows, order_preserving_times, raw_words, to_single_array
from causeway.audit.columns import Bools
from causeway.audit.findings import COUNTS_SCHEMA, UNKNOWN, VIOLATED, VIOLATIONS_SCHEMA, to_findings_table
from causeway.audit.payments import BACKING_SCHEMA, WORDS_PER_SUM, sums_to_column
from causeway.ledger.encodings import rank_names, valid_mask
from causeway.ledger.schema import ABROAD, LIMBS, VALUE
from causeway.ledger.windows import EVERY_CHAIN_OR_LANE, ObservedWindowTable

CHECK = "conservation"

ABROAD_SCHEMA = pa.schema([(name, pa.string()) for name in ("chain", "other", "asset", "left", "back", "difference")])
"""Amounts that left ``chain`` for the ``other`` one and came back, and ``difference``: total departures of both minus
total arrivals of both; as decimal digits."""

ALL, CAME, UNSEEN = "all", "came", "unseen"
"""Kinds of movements between two chains: all, arrivals, those with unknown amount or asset."""

_PLACE = ("height", "position", "stated_by", "source_file", "source_row")


def bucket_backing(value: pa.Table) -> pa.Table:
    """Sum the movements of a bucket (``VALUE_SCHEMA``) between chains (``BACKING_SCHEMA``).

    Args:
        value: Movements of a bucket (``VALUE_SCHEMA``).

    Returns:
        Rows of ``BACKING_SCHEMA``: the last movement of each kind (``ALL``, ``CAME``, ``UNSEEN``).
    """
    from causeway.audit.value_loops import add_rows

    rows, other, is_arrival = _cross_chain_movements(value)
    if not rows.num_rows:
        return BACKING_SCHEMA.empty_table()
    keys = [rank_names(rows["chain"]), rank_names(other), rank_names(rows["asset"])]
    time = rows["time"].cast(pa.int64())
    places: list[Any] = [valid_mask(time).view(np.uint8), order_preserving_times(time.fill_null(0).to_numpy())]
    for name in _PLACE:
        column = rows[name]
        if pa.types.is_integer(column.type):
            places += [valid_mask(column).view(np.uint8), column.fill_null(0).to_numpy()]
        else:
            places.append(rank_names(column))
    order = stable_order(*keys, *places)
    rows, other, is_arrival = rows.take(pa.array(order)), other.take(pa.array(order)), is_arrival[order]
    limbs = [to_single_array(rows[name]) for name in LIMBS]
    groups = group_rows(*(key[order] for key in keys))
    group = groups.spread(np.arange(len(groups)))
    amounts = all_valid_rows(limbs) == 1
    sums = [np.zeros((len(groups), WORDS_PER_SUM), np.uint64) for _ in range(2)]
    one, two, three, four = (raw_words(limb) for limb in limbs)
    add_rows(np.where(amounts, group, -1), is_arrival.view(np.uint8), one, two, three, four, *sums)
    timeless = np.zeros(len(groups), bool)
    timeless[group[~valid_mask(rows["time"])]] = True
    tables = [_last_rows(rows, other, group, np.ones(len(group), bool), ALL, (*sums, timeless))]
    tables.append(_last_rows(rows, other, group, is_arrival, CAME, None))
    unseen = ~amounts | ~valid_mask(rows["asset"])
    tables.append(_last_rows(rows, other, group, unseen, UNSEEN, None))
    return pa.concat_tables(tables)


def _cross_chain_movements(value: pa.Table) -> tuple[pa.Table, pa.Array, Bools]:
    """Return movements from and to other chains, the other chain, and a mask of arrivals."""
    tables, others, is_arrival = [value.slice(0, 0)], [pa.array([], pa.string())], [np.zeros(0, bool)]
    for side, back in (("to", False), ("from", True)):
        holder = value[side].cast(pa.string())
        rows = np.flatnonzero(np.asarray(pc.fill_null(pc.starts_with(holder, ABROAD), False)))
        tables.append(value.take(pa.array(rows)))
        names = pc.utf8_slice_codeunits(holder.take(pa.array(rows)), len(ABROAD))
        others.append(to_single_array(names))
        is_arrival.append(np.full(len(rows), back))
    rows = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    return rows, pa.concat_arrays(others), np.concatenate(is_arrival)


def _last_rows(rows: pa.Table, other: pa.Array, group: Array, mask: Bools, of: str, sums: Any) -> pa.Table:
    """Return the last chosen row of each group."""
    chosen = np.flatnonzero(mask)
    at = chosen[np.flatnonzero(np.diff(group[chosen], append=-1))]
    last_rows = rows.take(pa.array(at))
    count = len(at)
    content: dict[str, Any] = {name: last_rows[name].cast(pa.string()) for name in ("chain", "asset", "stated_by")}
    content |= {"source_file": last_rows["source_file"].cast(pa.string()), "other": other.take(pa.array(at))}
    content |= {"of": pa.array([of] * count, pa.string()), "time": last_rows["time"].cast(pa.int64())}
    content |= {name: last_rows[name] for name in ("height", "position", "source_row")}
    if sums is None:
        content |= {name: pa.nulls(count, pa.binary(8 * WORDS_PER_SUM)) for name in ("left", "back")}
        content["timeless"] = pa.nulls(count, pa.bool_())
    else:
        content |= {"left": sums_to_column(sums[0]), "back": sums_to_column(sums[1]), "timeless": pa.array(sums[2])}
    return pa.table({name: content[name] for name in BACKING_SCHEMA.names}, BACKING_SCHEMA)


@dataclass
class _Side:
    """Movements of an asset between a chain and another one.

    Attributes:
        left: Departed amount.
        back: Returned amount.
        timeless: A time is unknown.
        last: Last movement of each kind.
    """

    left: int = 0
    back: int = 0
    timeless: bool = False
    last: dict[str, tuple[Any, ...]] = field(default_factory=dict)


Key = tuple[str | None, str, str | None]
"""A chain, the other chain, and an asset."""


@dataclass(frozen=True)
class BackingResult:
    """Result of all buckets.

    Attributes:
        findings: Findings, as of ``RunResult``, with the two chains as source and destination.
        counts: Number of findings, as of ``RunResult``.
        examined: Number of examined pairs, as of ``RunResult``.
        abroad: Amounts abroad (``ABROAD_SCHEMA``).
    """

    findings: pa.Table
    counts: pa.Table
    examined: pa.Table
    abroad: pa.Table


def check_backing(parts: pa.Table, windows: ObservedWindowTable) -> BackingResult:
    """Check the sums of all buckets.

    Args:
        parts: Results of ``bucket_backing``, in any order.
        windows: Windows that the input covers.

    Returns:
        The result.
    """
    sides = _sides(parts)
    pairs: dict[tuple[str | None, str, str | None], list[Key]] = {}
    for key in sorted(sides, key=_sort_key):
        chain, other, asset = key
        one, two = (chain, other) if chain is None or chain <= other else (other, chain)
        pairs.setdefault((one, two, asset), []).append(key)
    placeless = {other for chain, other, _ in sides if chain is None}
    nameless = {(one, two) for one, two, asset in pairs if asset is None}
    found: list[dict[str, Any]] = []
    rest: dict[Key, int] = {}
    for (one, two, asset), keys in pairs.items():
        own = {key: sides[key] for key in keys}
        left = sum(side.left - side.back for side in own.values())
        rest.update(dict.fromkeys(keys, left))
        finding = {"check": CHECK, "source": one, "destination": two, "verdict": UNKNOWN}
        last = {of: max((side.last[of] for side in own.values() if of in side.last), default=None) for of in _KINDS}
        if one is None:
            found.append(finding | {"reason": "chain_unseen"} | _place(last[ALL]))
        elif last[UNSEEN] is not None:
            found.append(finding | {"reason": "amount_unseen"} | _place(last[UNSEEN]))
        elif left < 0 and (one, two) in nameless:
            found.append(finding | {"reason": "amount_unseen"} | _place(last[CAME]))
        elif left < 0:
            is_covered = not {one, two} & placeless and _covered(own, windows)
            size = {"magnitude": float(-left), "size": str(-left), "unit": asset} | _place(last[CAME])
            verdict, reason = (VIOLATED, "more_came_than_left") if is_covered else (UNKNOWN, "departures_not_covered")
            found.append(finding | {"verdict": verdict, "reason": reason} | size)
    rows = [
        (chain, other, asset, str(sides[key].left), str(sides[key].back), str(rest[key]))
        for key in sorted(sides, key=_sort_key)
        for chain, other, asset in [key]
    ]
    columns = [pa.array([row[place] for row in rows], pa.string()) for place in range(len(ABROAD_SCHEMA))]
    counts, examined = _counted(found, pairs)
    return BackingResult(_findings(found), counts, examined, pa.table(columns, ABROAD_SCHEMA))


_KINDS = (ALL, CAME, UNSEEN)


def _sides(parts: pa.Table) -> dict[Key, _Side]:
    sides: dict[Key, _Side] = {}
    for row in parts.to_pylist():
        side = sides.setdefault((row["chain"], row["other"], row["asset"]), _Side())
        if row["of"] == ALL:
            side.left += int.from_bytes(row["left"], "little")
            side.back += int.from_bytes(row["back"], "little")
            side.timeless |= row["timeless"]
        names = ("time", "height", "position", "chain", "stated_by", "source_file", "source_row")
        place = tuple((row[name] is not None, row[name]) if row[name] is not None else (False, 0) for name in names)
        side.last[row["of"]] = max(place, side.last.get(row["of"], place))
    return sides


def _sort_key(key: Key) -> tuple[Any, ...]:
    return tuple((name is not None, name or "") for name in key)


def _place(last: tuple[Any, ...] | None) -> dict[str, Any]:
    if last is None:
        return {}
    time, height, _, chain, stated_by, source_file, source_row = (value if seen else None for seen, value in last)
    found = {"chain": chain, "height": height, "stated_by": stated_by, "source_file": source_file}
    return found | {"source_row": source_row, "time": time}


def _covered(sides: dict[Key, _Side], windows: ObservedWindowTable) -> bool:
    """Return True if the input covers all departures up to the last arrival from each chain."""
    for (_, other, _), side in sides.items():
        until = windows.of(other, EVERY_CHAIN_OR_LANE, VALUE).all_until
        seen, last = side.last[ALL][0]
        if side.timeless or not seen or until is None or last > until:
            return False
    return True


def _findings(found: Iterable[dict[str, Any]]) -> pa.Table:
    rows = [*found]
    content = {}
    for schema_field in VIOLATIONS_SCHEMA:
        if schema_field.name == "example":
            continue
        kind = pa.int64() if schema_field.name == "time" else schema_field.type
        content[schema_field.name] = pa.array([row.get(schema_field.name) for row in rows], kind)
    return to_findings_table(content)


def _counted(found: list[dict[str, Any]], pairs: Iterable[Key]) -> Iterator[pa.Table]:
    """Yield the counts of findings, and of examined pairs and assets."""
    one = [(row["verdict"], row["reason"], row["source"], row["destination"]) for row in found]
    for rows in (one, [("", "", one, two) for one, two, _ in pairs]):
        names = {"check": [CHECK] * len(rows), "protocol": [None] * len(rows), "lane": [None] * len(rows)}
        for place, name in enumerate(("verdict", "reason", "source", "destination")):
            names[name] = [row[place] for row in rows]
        names["count"] = [1] * len(rows)
        yield pa.table({each.name: pa.array(names[each.name], each.type) for each in COUNTS_SCHEMA}, COUNTS_SCHEMA)


__all__ = ["ABROAD_SCHEMA", "BackingResult", "bucket_backing", "check_backing"]
