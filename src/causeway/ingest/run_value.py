"""From the log of value of a run to the table ``value``: who had what, and who has it then, by names."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.ingest.run_names import RunNames, coded, joined, lane_names, masked, same
from causeway.ledger.schema import STATED_BY, VALUE_SCHEMA
from causeway.model.frame import Frame
from causeway.model.order import U64
from causeway.model.value import NO_INDEX, OF_CHAINS, OF_PAIRS, OF_PROGRAMS, ROOT_OWNER, Asset, Holder, Why

LOG = "value"

TAKEN_BACK = "reverted"
"""Why value moves the other way that a fork's blocks moved, which it took back."""

_WHY = [*(why.name.lower() for why in Why), TAKEN_BACK]


def value_rows(rows: Frame, names: RunNames, *, at: tuple[int, int] | None = None) -> pa.Table:
    """Return movements (``VALUE_SCHEMA``). ``rows``: of the log of value, with ``height``, ``tick`` and ``number``.

    ``at``: height and tick of a fork that took them back: then each moves the other way, there. Who has something is
    ``holder`` or ``holder:name``, such as ``account:alice`` and ``unconfirmed:left>right``.
    """
    count = len(rows)
    of_message = rows["index"] != np.uint64(NO_INDEX)
    sides = [_holders(rows[f"{side}_holder"], rows[f"{side}_number"], names) for side in ("from", "to")]
    why, height, tick = rows["why"].astype(np.int64), rows["height"], rows["tick"]
    if at is not None:
        sides.reverse()
        why = np.full(count, _WHY.index(TAKEN_BACK), dtype=np.int64)
        height, tick = np.full(count, at[0], dtype=np.uint64), np.full(count, at[1], dtype=np.int64)
    lanes = lane_names(rows["source"], rows["destination"], rows["substream"], of_message)
    assets = [names.asset, *(asset.name.lower() for asset in Asset if asset != Asset.UNITS)]
    nothing = np.zeros(count, dtype=bool)
    columns = {
        "protocol": same(names.protocol, count),
        "source": names.chain_column(rows["source"]),
        "destination": names.chain_column(rows["destination"]),
        "lane": lanes,
        "index": masked(rows["index"], ~of_message),
        "chain": names.chain_column(rows["chain"]),
        "height": pa.array(np.ascontiguousarray(height)),
        "tick": pa.array(tick.astype(np.uint64)),
        "time": names.times(tick),
        "asset": coded(rows["asset"].astype(np.int64), len(assets), assets),
        "amount_0": masked(rows["amount_low"], nothing),
        "amount_1": masked(rows["amount_high"], nothing),
        "amount_2": masked(np.zeros(count, dtype=np.uint64), nothing),
        "amount_3": masked(np.zeros(count, dtype=np.uint64), nothing),
        "why": coded(why, len(_WHY), _WHY),
        "from": sides[0],
        "to": sides[1],
        "stated_by": same(STATED_BY, count),
        "source_file": same(LOG, count),
        "source_row": pa.array(np.ascontiguousarray(rows["number"])),
    }
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in VALUE_SCHEMA]
    typed = [array.cast(field.type) for array, field in zip(arrays, VALUE_SCHEMA, strict=True)]
    return pa.Table.from_arrays(typed, schema=VALUE_SCHEMA)


def _holders(holders: npt.NDArray[np.uint8], numbers: U64, names: RunNames) -> pa.Array:
    """Return who has something: the holder, and behind a colon the program, chain, two chains or number, if any."""
    kinds = [f"{holder.name.lower()}" for holder in Holder]
    texts = pa.array(kinds, pa.string()).take(pa.array(holders.astype(np.int64)))
    upper, lower = (numbers >> np.uint64(32)).astype(np.uint32), (numbers & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    chain = _text(names.chain_column(lower))
    pair = joined(_text(names.chain_column(upper)), ">", chain)
    digits = pa.array(np.ascontiguousarray(numbers)).cast(pa.string())
    program = names.programs_column(numbers)
    root = (holders == Holder.DEPOSITS) & (numbers == np.uint64(ROOT_OWNER))
    which = pa.nulls(len(numbers), pa.string())
    for chosen, column in (
        (np.isin(holders, OF_PROGRAMS), program),
        (np.isin(holders, OF_CHAINS), chain),
        (np.isin(holders, OF_PAIRS), pair),
        (holders == Holder.OPERATOR, digits),
        (root, pa.array(["root"], pa.string()).take(pa.array(np.zeros(len(numbers), dtype=np.int64)))),
    ):
        if chosen.any():
            which = pc.if_else(pa.array(chosen), column, which)
    return pc.coalesce(joined(texts, ":", which), texts)


def _text(column: pa.DictionaryArray) -> pa.Array:
    return column.cast(pa.string()).fill_null("?")


__all__ = ["LOG", "TAKEN_BACK", "value_rows"]
