"""Between Causeway's lake and the comparators' folders: the tables of a height, and whether two heights are equal."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.comparators.common import HOSTS_SCHEMA, KEYS, SCHEMAS, TABLES, path, write
from benchmarks.workload import Workload
from causeway.storage.lake import Lake, Manifest

HOSTS = "hosts"

ORDER: dict[str, list[str]] = {
    "outbound": ["destination", "source", "index"],
    "events": ["destination", "source", "index"],
    **{name: list(keys) for name, keys in KEYS.items()},
    "lanes": ["source", "destination"],
    "accounts": ["program"],
    "roots": ["source", "destination"],
}
"""The key of each table, by which two are compared; outbound messages lie in it in the files, too."""


def lake_table(lake: Lake, height: int, table: str) -> pa.Table:
    """Return a table of a height as the comparators have it, sorted by its key."""
    manifest = lake.manifest(height)
    schema = SCHEMAS[table]
    if table == "roots":
        runs = pa.concat_tables(lake.state(manifest, "runs")).select([*schema.names, "height"])
        content = runs.filter(pc.equal(runs["height"], pa.scalar(height, pa.uint64()))).select(schema.names)
    else:
        parts = lake.log_rows(table, manifest) if table in manifest.log else lake.state(manifest, table)
        content = pa.concat_tables([part.select(schema.names) for part in parts], promote_options="none")
    return content.cast(schema).sort_by([(key, "ascending") for key in ORDER[table]])


def extract(uri: str, height: int, folder: str, workload: Workload) -> None:
    """Write the tables of a committed height, and where the canisters live, for the comparators."""
    lake = Lake.at(uri)
    os.makedirs(folder, exist_ok=True)
    for table in TABLES:
        write(folder, table, lake_table(lake, height, table))
    canisters = np.arange(workload.canisters, dtype=np.uint64)
    hosts = [canisters, workload.subnet_of(canisters).astype(np.uint32)]
    write(folder, HOSTS, pa.Table.from_arrays([pa.array(column) for column in hosts], schema=HOSTS_SCHEMA))


def differences(uri: str, height: int, folder: str) -> list[str]:
    """Return the tables in which a comparator's folder differs from a height of the lake."""
    lake = Lake.at(uri)
    different = []
    for table, schema in SCHEMAS.items():
        theirs = pq.read_table(path(folder, table)).select(schema.names).cast(schema)
        theirs = theirs.sort_by([(key, "ascending") for key in ORDER[table]])
        if not theirs.equals(lake_table(lake, height, table)):
            different.append(table)
    return different


__all__ = ["HOSTS", "Manifest", "differences", "extract", "lake_table"]
