"""Movements of value by lane, asset and reason: exact sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import group_rows, stable_order

from causeway.analysis.figures.filters import MessageFilter
from causeway.audit.arrays import Array, all_valid_rows, raw_words, to_single_array
from causeway.audit.payments import WORDS_PER_SUM, sums_to_column
from causeway.ledger.encodings import rank_names
from causeway.ledger.schema import LANE, LIMBS, MESSAGE, VALUE_SCHEMA

FEE_REASON = "fee"
"""Prefix of the reasons of fees."""

ACCOUNT = "account:"
"""Prefix of the names of accounts that pay for themselves; other payers forward a payment."""

_OF = (*LANE, "asset", "why", "is_fee")

SUMS_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in (*LANE, "asset", "why")),
        *(("is_fee", pa.bool_()), ("movements", pa.int64()), ("unseen", pa.int64())),
        ("sum", pa.binary(8 * WORDS_PER_SUM)),
    ]
)
"""Movements of a lane, asset and reason: count, count without an amount, and sum."""

FEES_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in (*LANE, "asset", "why")),
        *(pa.field(name, pa.int64(), nullable=False) for name in ("movements", "unseen")),
        pa.field("amount", pa.string(), nullable=False),
        pa.field("is_fee", pa.bool_(), nullable=False),
    ]
)
"""Movements of a lane, asset and reason: count, count without an amount, and sum in decimal digits.

``is_fee``: the movement pays for messages. Either it leaves a message (``from`` is ``message``), or its reason begins
with ``fee`` and it comes from an account or an unknown payer, not from a forwarder.
"""


def sum_fees(value: pa.Table, where: MessageFilter) -> pa.Table:
    """Sum the value movements of a bucket.

    Args:
        value: rows of ``VALUE_SCHEMA``.
        where: the filter on lanes.

    Returns:
        Rows of ``SUMS_SCHEMA``.
    """
    from causeway.audit.value_loops import add_rows

    rows = value.filter(pa.array(where.rows(value))) if where.of_lanes else value
    if not rows.num_rows:
        return SUMS_SCHEMA.empty_table()
    rows = rows.select([*LANE, "asset", "why", "from", *LIMBS]).unify_dictionaries().combine_chunks()
    is_fee = _is_fee(rows)
    keys = [*(rank_names(rows[name]).astype(np.uint64) for name in (*LANE, "asset", "why")), is_fee.astype(np.uint64)]
    order = stable_order(*keys)
    groups = group_rows(*(key[order] for key in keys))
    rows = rows.take(pa.array(order))
    limbs = [to_single_array(rows[name]) for name in LIMBS]
    seen = all_valid_rows(limbs) == 1
    group = groups.spread(np.arange(len(groups)))
    sums = np.zeros((len(groups), WORDS_PER_SUM), np.uint64)
    one, two, three, four = (np.ascontiguousarray(raw_words(limb)) for limb in limbs)
    add_rows(np.where(seen, group, -1), np.zeros(len(group), np.uint8), one, two, three, four, sums, sums.copy())
    at = pa.array(groups.starts)
    content: dict[str, Any] = {name: rows[name].take(at).cast(pa.string()) for name in (*LANE, "asset", "why")}
    content |= {
        "is_fee": pa.array(is_fee[order][groups.starts]),
        "movements": pa.array(groups.counts),
        "unseen": pa.array(np.add.reduceat((~seen).astype(np.int64), groups.starts)),
        "sum": sums_to_column(sums),
    }
    return pa.table([content[name] for name in SUMS_SCHEMA.names], SUMS_SCHEMA)


def _is_fee(rows: pa.Table) -> Array:
    payer, why = rows["from"], rows["why"].cast(pa.string())
    pays = pc.fill_null(pc.or_(pc.starts_with(payer, ACCOUNT), pc.equal(why, FEE_REASON)), True)
    return np.asarray(
        pc.or_(pc.and_(pc.starts_with(why, FEE_REASON), pays), pc.fill_null(pc.equal(payer, MESSAGE), False))
    )


def merge_fees(parts: Sequence[pa.Table]) -> pa.Table:
    """Merge the sums of several buckets.

    Args:
        parts: tables of ``SUMS_SCHEMA``.

    Returns:
        Rows of ``FEES_SCHEMA``, in the order of lanes.
    """
    every = pa.concat_tables([SUMS_SCHEMA.empty_table(), *parts])
    found: dict[tuple[Any, ...], list[int]] = {}
    names = (*_OF, "movements", "unseen", "sum")
    for *names_of, movements, unseen, words in zip(*(every[name].to_pylist() for name in names), strict=True):
        own = found.setdefault(tuple(names_of), [0, 0, 0])
        for place, more in enumerate((movements, unseen, int.from_bytes(words, "little"))):
            own[place] += more
    rows = []
    for key in sorted(found, key=lambda key: [(each is not None, str(each).encode()) for each in key]):
        movements, unseen, amount = found[key]
        content = {"movements": movements, "unseen": unseen, "amount": str(amount)}
        rows.append(dict(zip(_OF, key, strict=True)) | content)
    return pa.Table.from_pylist(rows, FEES_SCHEMA)


def fees_by_lane(fees: pa.Table) -> Mapping[tuple[str | None, ...], tuple[str, str]]:
    """Return the asset and fee sum of each lane with fees in exactly one asset.

    Args:
        fees: rows of ``FEES_SCHEMA``.

    Returns:
        Asset and decimal digits, by the columns of a lane.
    """
    found: dict[tuple[str | None, ...], dict[str | None, int]] = {}
    for row in fees.to_pylist():
        if row["is_fee"]:
            own = found.setdefault(tuple(row[name] for name in LANE), {})
            own[row["asset"]] = own.get(row["asset"], 0) + int(row["amount"])
    return {
        lane: (asset, str(amount))
        for lane, own in found.items()
        if len(own) == 1
        for asset, amount in own.items()
        if asset is not None
    }


__all__ = ["FEES_SCHEMA", "SUMS_SCHEMA", "VALUE_SCHEMA", "fees_by_lane", "merge_fees", "sum_fees"]
