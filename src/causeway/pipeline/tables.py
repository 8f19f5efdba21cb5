"""The lake's tables as Spark DataFrames: topology, logs, state at a height, the ledger, and calls."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from causeway.ingest.run_value import LOG
from causeway.ledger.schema import OBSERVED_SCHEMA, PROMISES_SCHEMA
from causeway.model.text import unknown
from causeway.pipeline import calls
from causeway.pipeline.lake import Lake, LakeError, Manifest
from causeway.pipeline.lake_frames import ledger_frame, value_frame
from causeway.pipeline.lake_ledger import READ, LakeLedger
from causeway.pipeline.lake_taking import promises_of, stated_table, windows_of
from causeway.pipeline.places import workers
from causeway.pipeline.reach import check_readable
from causeway.pipeline.reverted import Reverted, owner_of, reverted
from causeway.pipeline.roots import root_of
from causeway.pipeline.schemas import TOPOLOGY_SCHEMAS, StateAt, StateTable, TableSchemas, between, chain_position
from causeway.pipeline.sealed import Seal, seal_from
from causeway.pipeline.spark_types import as_spark, spark_schema
from causeway.pipeline.stored_frames import frame_of
from causeway.pipeline.value import movements

_CHAINS = pa.schema([("position", pa.int64()), ("number", pa.decimal128(20, 0)), ("name", pa.string())])


class LakeTables:
    """Reads a lake with Spark; sees committed heights only."""

    def __init__(self, session: SparkSession, lake: Lake, state_at: StateAt | None = None) -> None:
        """``state_at``: executes heights again whose state is in no file; without it, it cannot be read."""
        self._session, self._lake, self._state_at = session, lake, state_at
        check_readable(session, lake.storage)
        self.about = lake.about()
        self._schemas = TableSchemas.decoded(self.about["tables"])

    def _read(self, files: Mapping[str, Seal], schema: pa.Schema) -> DataFrame:
        """Return the rows of sealed Parquet files. The schema is given, so that Spark opens no file before the query
        runs.

        Before the query is planned the files are compared with their seals (of large ones the length and what they say
        of themselves), and their columns with the schema; Spark compares the checksum of every page that it reads.
        Raises ``LakeDamaged``.
        """
        if not files:
            return self._session.createDataFrame([], spark_schema(schema))
        self._verify(files, schema)
        paths = (self._lake.storage.absolute(path) for path in files)
        reader = self._session.read.schema(spark_schema(schema)).option("__globPaths__", "false")
        return reader.option("parquet.page.verify-checksum.enabled", "true").parquet(*paths)

    def _verify(self, files: Mapping[str, Seal], schema: pa.Schema) -> None:
        def verify(file: tuple[str, Seal]) -> None:
            with self._lake.open_parquet(*file) as opened:
                opened.require(schema)

        for _ in workers(os.getpid()).map(verify, files.items()):
            pass

    def heights(self) -> list[int]:
        """Return the committed heights. Raises ``LakeError`` when there is none."""
        return list(range(self._lake.last_manifest().height + 1))

    def manifest(self, height: int | None = None) -> Manifest:
        """Return the manifest of a height, by default the last. Raises ``LakeError``."""
        return self._lake.last_manifest() if height is None else self._lake.manifest(height)

    def log(self, table: str, heights: range | None = None) -> DataFrame:
        """Return a log table (``outbound``, ``events``, ``collected``, ``failures``, ``headers``) over all committed
        heights, or over some that follow each other: only the files with these are opened. Raises ``LakeError``.
        """
        schemas = self._schemas.logs
        if table not in schemas:
            raise LakeError(f"table: {unknown('table', table, schemas)}")
        if heights is None:
            return self._read(self._lake.log_files(table), schemas[table])
        known = self._checked(heights)
        rows = self._read(self._lake.log_files(table, known), schemas[table])
        return rows.where(F.col("height").between(known.start, known.stop - 1))

    def remaining(self, table: str, heights: range | None = None) -> DataFrame:
        """Return what ``log`` does without the rows that forks have taken back by the last of these heights."""
        rows = self.log(table, heights)
        undone = reverted(self._lake, self.manifest(), None if heights is None else heights.stop - 1)
        return rows if undone is None else taken_back(rows, table, undone, "leftanti")

    def _checked(self, heights: range) -> range:
        """Return the heights of a range that are committed. Raises ``LakeError`` if they do not follow each other."""
        if heights.step != 1 or heights.start < 0:
            raise LakeError(f"heights: {heights}; allowed: range(first, end), from 0")
        return range(heights.start, min(heights.stop, self.manifest().height + 1))

    def topology(self, table: str) -> DataFrame:
        """Return ``chains``, ``programs`` or ``registry`` as they were written when the lake was made."""
        path = f"{table}.parquet"
        return self._read({path: seal_from(self.about["files"][path])}, TOPOLOGY_SCHEMAS[table])

    def chains(self) -> DataFrame:
        """Return the chains: ``position`` (the number in columns that name chains), ``number``, ``name``."""
        chains = self.about["chains"]
        columns = [range(len(chains)), [item["number"] for item in chains], [item["name"] for item in chains]]
        return self._session.createDataFrame(
            pa.Table.from_arrays(
                [pa.array(column, kind) for column, kind in zip(columns, _CHAINS.types, strict=True)], schema=_CHAINS
            )
        )

    def programs(self) -> DataFrame:
        """Return the program instances at genesis."""
        return self.topology("programs")

    def hosts(self, height: int | None = None) -> DataFrame:
        """Return which chain each program is on at a height: ``program``, ``chain`` (position; programs on none are
        left out).
        """
        tick = self.manifest(height).tick
        last = (
            self.topology("registry")
            .where(F.col("tick") <= tick)
            .groupBy("program")
            .agg(F.max_by("chain", "tick").alias("moved_to"), F.lit(True).alias("moved"))
        )
        chains = self.chains().select(F.col("position"), F.col("number").alias("chain_number"))
        return (
            self.programs()
            .select(F.col("number").alias("program"), F.col("chain").alias("first"))
            .join(last, "program", "left")
            .withColumn("chain_number", F.when(F.col("moved"), F.col("moved_to")).otherwise(F.col("first")))
            .join(F.broadcast(chains), "chain_number")
            .select("program", F.col("position").alias("chain"))
        )

    def state_tables(self) -> dict[str, StateTable]:
        """Return the state tables by name: those of the protocol and those of the programs in use."""
        return dict(self._schemas.state)

    def state(self, table: str, height: int | None = None, chain: str | None = None) -> DataFrame:
        """Return a state table (``docs/lake.md`` lists them) at a committed height, by default the last.

        ``chain``: only the rows of the chain of that name, and of the programs that it hosted at that height. Raises
        ``LakeError``.
        """
        manifest = self.manifest(height)
        declared = self._schemas.state_table(table)
        if freed := self._lake.freed(manifest.height):
            raise freed
        if chain is None:
            return self._state(manifest, table, declared.schema)
        position = self.position(chain)
        rows = self._state(manifest, table, declared.schema, self._bucket(position))
        owner = declared.owner
        if not declared.owned_by_program:
            return rows.where(F.col(owner) == position)
        hosted = self.hosts(manifest.height).where(F.col("chain") == position).select(F.col("program").alias(owner))
        return rows.join(hosted, owner, "leftsemi").select(*declared.schema.names)

    def _state(self, manifest: Manifest, table: str, schema: pa.Schema, bucket: int | None = None) -> DataFrame:
        """Return the rows of a state table, of all buckets or of one."""
        if manifest.height == manifest.last:
            files = manifest.state.get(table, {})
            found = [parts for key, parts in files.items() if bucket is None or key == str(bucket)]
            rows, gone = (
                {path: manifest.files[path] for paths in of_buckets for path in paths}
                for of_buckets in ([parts.rows for parts in found], [parts.gone for parts in found])
            )
            if not gone:
                return self._read(rows, schema)
            keys = list(self._schemas.state_table(table).order)
            left = self._read(gone, pa.schema([schema.field(key) for key in keys]))
            return self._read(rows, schema).join(left, keys, "leftanti").select(*schema.names)
        parts = between(self._lake, self._state_at, manifest.height, table)
        made = pa.concat_tables(parts if bucket is None else [parts[bucket]])
        if not made.num_rows:
            return self._read({}, schema)
        typed = spark_schema(schema)
        return self._session.createDataFrame(as_spark(made, to_arrow_schema(typed)), typed)

    def position(self, chain: str) -> int:
        """Return the position of the chain of that name. Raises ``LakeError``."""
        return chain_position(self.about, chain)

    def _bucket(self, position: int) -> int:
        ends = np.array([end for _, end in self.about["buckets"]])
        return int(np.searchsorted(ends, position, side="right"))

    def ledger(self, heights: range | None = None) -> DataFrame:
        """Return the rows of the ledger (``docs/ledger.md``): one an event of a message, as ``causeway ingest lake``
        derives them; unsigned numbers are decimals.

        ``heights``: only what happened at these, which follow each other, as it was known at the last of them; other
        heights are looked into for the messages that these speak of. Raises ``LakeError``, ``LakeDamaged``,
        ``InvalidInput``.
        """
        return ledger_frame(self._session, self._lake, self._verified(READ, heights))

    def value(self, heights: range | None = None) -> DataFrame:
        """Return the movements of value of the ledger (its table ``value``), in the same way."""
        return value_frame(self._session, self._lake, self._verified([LOG], heights))

    def observed(self) -> DataFrame:
        """Return the windows of the ledger (its table ``observed``): all heights of the chains that the lake runs."""
        rows = windows_of(LakeLedger(self._lake), self.manifest().height + 1)
        return frame_of(self._session, stated_table(rows, OBSERVED_SCHEMA))

    def promises(self) -> DataFrame:
        """Return what the lanes that messages used promise (the table ``promises`` of the ledger)."""
        derived, last = LakeLedger(self._lake), self.manifest()
        derived.see_lanes(0, last.height + 1)
        return frame_of(self._session, stated_table(promises_of(derived, last), PROMISES_SCHEMA))

    def _verified(self, tables: Sequence[str], heights: range | None) -> range:
        """Return the committed heights of a range, or all, of which the log files are as long as they should be, and
        have the columns that they should."""
        known = self._checked(range(self.manifest().height + 1) if heights is None else heights)
        for table in tables:
            if table in self._schemas.logs:
                self._verify(self._lake.log_files(table, known), self._schemas.logs[table])
        return known

    def movements(self, heights: range | None = None) -> DataFrame:
        """Return one row a movement of value (``docs/lake.md``), with names, without those that forks have taken back.

        Raises ``LakeError`` for a lake whose protocol has no log of value.
        """
        rows = self.remaining("value", heights)
        return movements(self.about["asset"], rows, self.chains(), self.programs())

    def calls(self, as_of: int | None = None) -> DataFrame:
        """Return one row a call: what became of it, and when (``docs/lake.md``). Names instead of numbers, ticks of
        the scenario.

        ``as_of``: as it was at this height; by default the last. Raises ``LakeError``.
        """
        rows = self._calls(as_of)
        names = self.programs().select("number", "name")
        for column in ("caller", "callee"):
            name = names.select(F.col("number").alias(column), F.col("name").alias(f"{column}_name"))
            rows = rows.withColumn(column, F.expr(calls.number(column))).join(name, column, "left")
        chains = self.chains()
        for column in ("from_chain", "to_chain"):
            name = chains.select(F.col("position").alias(column), F.col("name").alias(f"{column}_name"))
            rows = rows.join(F.broadcast(name), column, "left")
        return rows.select(
            F.col("from_chain_name").alias("source"),
            F.col("to_chain_name").alias("destination"),
            F.coalesce("caller_name", F.col("caller").cast("string")).alias("sender"),
            F.coalesce("callee_name", F.col("callee").cast("string")).alias("receiver"),
            F.expr(calls.number("callback")).alias("callback"),
            "outcome",
            "code",
            F.col("reason").alias("detail"),
            "sent_tick",
            F.col("delivered_tick").alias("received_tick"),
            "ended_tick",
            F.col("delivered").alias("times_received"),
            (F.col("answered") + F.col("rejected")).alias("times_answered"),
            F.col("routed").alias("messages"),
        )

    def _calls(self, as_of: int | None = None) -> DataFrame:
        heights = None if as_of is None else range(self.manifest(as_of).height + 1)
        return query_spark(calls.CALLS, self.remaining("outbound", heights), self.remaining("events", heights))

    def root(self) -> str:
        """Return one digest over the last roots of all chains (``roots.root_of``)."""
        return root_of(self._lake, self.manifest())


def query_spark(query: str, outbound: DataFrame, events: DataFrame) -> DataFrame:
    """Return the rows of a query of ``calls`` over the log tables of a lake, by Spark."""
    return outbound.sparkSession.sql(query, outbound=outbound, events=events)


def spans(session: SparkSession, undone: Reverted) -> DataFrame:
    """Return what forks took back as a small DataFrame: ``of``, ``from_height``, ``to_height``."""
    columns = [pa.array(column) for column in (undone.chains, undone.first, undone.last)]
    return F.broadcast(session.createDataFrame(pa.Table.from_arrays(columns, names=["of", "from_height", "to_height"])))


def taken_back(rows: DataFrame, table: str, undone: Reverted, how: str) -> DataFrame:
    """Return rows of a log joined with what forks took back: ``leftanti`` for those that were not, ``leftsemi`` for
    those that were, ``left`` for all of them."""
    hit = (F.col(owner_of(table)) == F.col("of")) & F.col("height").between(F.col("from_height"), F.col("to_height"))
    return rows.join(spans(rows.sparkSession, undone), hit, how)
