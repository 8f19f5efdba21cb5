"""Compaction: the log tables of many small heights become one file a table, so that reading a long history stays
fast."""

from __future__ import annotations

import json

import pyarrow as pa

from causeway.pipeline.lake import COMPACTED, Lake, Manifest, height_name

RUN = 32
"""How many heights are compacted together."""

ROWS = 1 << 20
"""A run stops growing when a log table has this many rows: files of that size are read well as they are."""


def compact(lake: Lake, last: Manifest) -> None:
    """Compact the next run of heights, if there is one whose outbound entries nobody needs any more.

    The merged files are written first, then the record that names them, so a reader finds every row once, whenever it
    looks. The small files stay as long as the run lasts, for queries planned before; ``Lake.tidy`` removes them.
    """
    if last.height % RUN:
        return
    done = lake.compactions()
    first = done[-1]["last"] + 1 if done else 0
    safe = last.height if last.needs is None else min(last.height, last.needs)
    while first + RUN <= safe:
        manifests = [lake.manifest(height) for height in range(first, first + RUN)]
        _compact_run(lake, manifests)
        first += RUN


def _compact_run(lake: Lake, manifests: list[Manifest]) -> None:
    first, last = manifests[0].height, manifests[-1].height
    log: dict[str, list[str]] = {}
    for table in sorted({table for manifest in manifests for table in manifest.log}):
        files = [path for manifest in manifests for path in manifest.log.get(table, {}).values()]
        if sum(manifest.rows.get(table, 0) for manifest in manifests) > ROWS or len(files) < 2:
            log[table] = files
            continue
        target = f"{COMPACTED}/{table}-{height_name(first)}-{height_name(last)}.parquet"
        with lake.storage.open_parquet(files[0]) as file:
            schema = file.schema_arrow
        with lake.storage.parquet_writer(target, schema) as writer:
            writer.write_table(_joined(lake, files))
        log[table] = [target]
    record = {"first": first, "last": last, "log": log}
    lake.storage.create(f"{COMPACTED}/{height_name(first)}.json", json.dumps(record, sort_keys=True).encode())


def _joined(lake: Lake, files: list[str]) -> pa.Table:
    return pa.concat_tables([lake.storage.read_table(path) for path in files]).unify_dictionaries().combine_chunks()
