"""How high destinations were, and when, as receipts of messages with a limit by height show it.

The receipts that show that the limit of a time-out was not yet reached may be in other runs and buckets. So the heights
are gathered in the first look, and the runs with time-outs by height are looked at again where there are any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from causeway.audit.bucket import Bucket
from causeway.audit.columns import NO_HEIGHT, NO_TIME
from causeway.audit.known import Reached
from causeway.ledger.schema import Event
from causeway.model.order import groups_of

REACHED_SCHEMA = pa.schema([("chain", pa.string()), ("height", pa.uint64()), ("time", pa.int64())])
"""The last time, in microseconds, of a receipt at a height of a chain. A row of nulls stands for more rows than
``MOST_HEIGHTS``."""

MOST_HEIGHTS = 1 << 22
"""Maximum number of heights of a ledger. With more, no time-out is compared with them."""


def reached_in(bucket: Bucket) -> pa.Table:
    """Return the heights at which a run received messages with a limit by height (``REACHED_SCHEMA``)."""
    columns = bucket.columns
    rows = bucket.first(Event.RECEIVED)[bucket.timeouts.height != NO_HEIGHT].astype(np.int64)
    rows = rows[rows >= 0]
    rows = rows[(columns.height[rows] != NO_HEIGHT) & (columns.time[rows] != NO_TIME)]
    rows = np.setdiff1d(rows, columns.elsewhere)
    if not len(rows):
        return REACHED_SCHEMA.empty_table()
    names = [lane[2] for lane in columns.lanes]
    chains = sorted({name for name in names if name is not None and not bucket.known.promises.restarts(name)})
    numbers = {name: number for number, name in enumerate(chains)}
    chain = np.array([-1 if name is None else numbers.get(name, -1) for name in names], np.int64)[columns.lane[rows]]
    rows, chain = rows[chain >= 0], chain[chain >= 0]
    height, time = columns.height[rows], columns.time[rows]
    order = np.lexsort((time, height, chain))
    groups = groups_of(chain[order], height[order])
    last = order[groups.starts + groups.counts - 1]
    shown = [pa.array(chains, pa.string()).take(pa.array(chain[last])), pa.array(height[last]), pa.array(time[last])]
    return pa.table(shown, REACHED_SCHEMA)


def are_too_many_heights(heights: int) -> bool:
    """Return whether these are more heights than are compared."""
    return heights > MOST_HEIGHTS


def heights_reached(tables: Iterable[pa.Table]) -> Mapping[str, Reached] | None:
    """Return the heights of each chain by time, None if there are too many to compare."""
    every = pa.concat_tables([REACHED_SCHEMA.empty_table(), *tables])
    if every["chain"].null_count or are_too_many_heights(every.num_rows):
        return None
    every = every.sort_by([("chain", "ascending"), ("time", "ascending")])
    chains = np.asarray(every["chain"].to_numpy(zero_copy_only=False))
    times, heights = every["time"].to_numpy(), every["height"].to_numpy()
    found, groups = {}, groups_of(chains)
    for begin, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        own = slice(begin, begin + count)
        found[str(chains[begin])] = Reached(times[own], np.minimum.accumulate(heights[own][::-1])[::-1])
    return found


__all__ = ["REACHED_SCHEMA", "are_too_many_heights", "heights_reached", "reached_in"]
