"""The relay chain that a run of parachains made, out of its lake: what a simulation of gossip then carries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame, from_table
from causeway.model.order import groups_of, stable_order
from causeway.network.opened import OpenedLake, open_lake, select
from causeway.pipeline.lake import LakeError
from causeway.programs.sources import NOWHERE, Sources
from causeway.protocols.contents import encode_contents
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.egress import queue_roots
from causeway.protocols.icmp.simulation.relay_table import INTERVAL, PARACHAINS, RELAY_TABLE_SCHEMA
from causeway.protocols.messages import LANE, OUTBOUND_SCHEMA
from causeway.proving.icmp.relay import relay_leaves, rows_of

NANOSECONDS = 1_000_000
"""Of a millisecond."""


def write_chain(uri: str, sources: Sources, out: Path) -> dict[str, int]:
    """Write the relay chain of a lake to a file, and return how many blocks it has, on how many numbers, with how many
    queues of how many bytes, and the ``interval`` (ms). Raises ``InvalidInput``, ``LakeError``."""
    table = made_chain(uri, sources)
    try:
        with out.open("wb") as file:
            pq.write_table(table, file)
    except OSError as error:
        raise InvalidInput(f"--out {out}: cannot be written: {error.strerror}") from None
    posted = pa.concat_arrays([chunk.flatten() for chunk in table["posted"].chunks])
    return {
        "blocks": table.num_rows - 1,
        "numbers": pc.max(table["number"]).as_py(),
        "parachains": int(table.schema.metadata[PARACHAINS]),
        "queues": len(posted),
        "bytes": pc.sum(posted.field("size")).as_py() or 0,
        "interval": int(table.schema.metadata[INTERVAL]),
    }


def made_chain(uri: str, sources: Sources = NOWHERE) -> pa.Table:
    """Return the relay chain of a lake as a table (``RELAY_TABLE_SCHEMA``): the blocks of all leaves, the queues that
    they posted with the sizes of their bodies, and what was unrouted at each.

    ``sources``: where programs of one's own come from: states that are in no file are
    made by executing heights again. A block is ``tick + 1`` ticks after genesis. Raises ``InvalidInput``,
    ``LakeError``.
    """
    opened = open_lake(uri, sources)
    relay_leaves(opened)
    interval, rest = divmod(opened.tick_ns, NANOSECONDS)
    if rest or not interval:
        raise InvalidInput(f"lake: {uri}: a tick has {opened.tick_ns:,} ns; allowed: whole milliseconds")
    sizes, inclusive = _sizes(opened), opened.options.get("ingress_upper") == "inclusive"
    numbers: dict[bytes, int] = {}
    entries: dict[tuple[bytes, int, int], int] = {}
    blocks: list[dict[str, Any]] = []
    for height in range(opened.last_height() + 1):
        manifest = opened.manifest(height)
        tables = {name: rows_of(opened, manifest, name, RELAY_POSITION) for name in ("blocks", "unrouted")}
        leaves = tables["blocks"]
        for row, leaf in enumerate(leaves["leaf"].tolist()):
            if leaves["hash"][row].tobytes() in numbers:
                continue
            mine = tables["unrouted"].filter(tables["unrouted"]["leaf"] == np.uint8(leaf))
            blocks.append(_block(leaves.slice(row, row + 1), mine, numbers, entries, sizes, interval, inclusive))
    names = {PARACHAINS: str(len(opened.names) - 1).encode(), INTERVAL: str(interval).encode()}
    return pa.Table.from_pylist(blocks, schema=RELAY_TABLE_SCHEMA.with_metadata(names))


def _block(
    block: Frame,
    unrouted: Frame,
    numbers: dict[bytes, int],
    entries: dict[tuple[bytes, int, int], int],
    sizes: Mapping[bytes, tuple[int, int]],
    interval: int,
    inclusive: bool,
) -> dict[str, Any]:
    """Return a relay block (one row) that is not known yet, and note it and what it posted."""
    name, number = block["hash"][0].tobytes(), int(block["number"][0])
    parent = numbers.get(block["parent"][0].tobytes(), -1)
    if (parent < 0) != (number == 0):
        raise LakeError(f"lake: the parent of relay block {number} is not in it")
    numbers[name] = len(numbers)
    rows = unrouted.take(stable_order(*(unrouted[column] for column in ("to", "number", "source"))))
    posted, listed = [], []
    for row in range(len(rows)):
        at = rows["hash"][row].tobytes()
        key = (at, int(rows["source"][row]), int(rows["to"][row]))
        root = rows["root"][row].tobytes()
        if root not in sizes:
            # A root that was posted for nothing: nobody has such a body.
            continue
        if at == name:
            entries[key] = len(entries)
            size, messages = sizes[root]
            ends = {"source": key[1] - 1, "destination": key[2] - 1}
            posted.append({**ends, "root": root, "size": size, "messages": messages})
        if at != name or inclusive:
            listed.append(entries[key])
    time = 0 if number == 0 else int(block["next_tick"][0]) * interval
    return {"hash": name, "number": number, "parent": parent, "time": time, "posted": posted, "unrouted": listed}


def _sizes(opened: OpenedLake) -> dict[bytes, tuple[int, int]]:
    """Return the bytes and the number of the messages of every queue that parachains sent, by its root."""
    found: dict[bytes, tuple[int, int]] = {}
    names = [*OUTBOUND_SCHEMA.names, "height"]
    for path, seal in opened.lake.log_files("outbound").items():
        rows = from_table(select(opened.lake, path, seal, names, lambda batch: np.ones(len(batch), dtype=bool)))
        rows = rows.filter(rows["source"] != rows["destination"])
        if len(rows) == 0:
            continue
        # What one block of a chain sends another chain is one queue, and a chain makes one block a height.
        rows = rows.take(stable_order(*(rows[name] for name in (*LANE, "height", "index"))))
        rows = rows.with_columns(first=rows["height"])
        roots, starts = queue_roots(rows)
        counts = groups_of(*(rows[name] for name in (*LANE, "first"))).counts
        lengths = np.asarray(pc.binary_length(encode_contents(rows)), dtype=np.int64)
        size = np.add.reduceat(lengths, starts)
        for root, own, count in zip(roots, size.tolist(), counts.tolist(), strict=True):
            found[root.tobytes()] = (own, count)
    return found


__all__ = ["made_chain", "write_chain"]
