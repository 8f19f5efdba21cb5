"""The tables of a lake as Spark DataFrames: topology, logs and state from files, and three derived tables.

- Calls, by (caller, callee, callback): a SQL query over the log tables ``{outbound}`` and ``{events}``. A test holds
  its outcomes equal to those of the ledger (``ledger.outcomes``). 64-bit numbers are shifted into the signed range
  (``_word``), because decimals take twice the time; order and equality stay.
- Movements: the value log, with names instead of numbers.
- Ledger: one task derives the rows of a range of heights, another task the pending messages. A task depends on the
  lake's files alone, so rows and order equal those of ``ledger.lake.ingest``, however many tasks run at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from causeway.cluster.connectivity import check_readable
from causeway.cluster.types import spark_schema, to_spark_columns
from causeway.core.text import suggest_known
from causeway.core.vocabulary import (
    CHAIN_HOLDERS,
    NO_CHAIN,
    PAIR_HOLDERS,
    PROGRAM_HOLDERS,
    ROOT_OWNER,
    Asset,
    Event,
    Kind,
    ValueHolder,
    ValueReason,
    Via,
)
from causeway.dataframes.ledger_tables import table_to_dataframe, task_dataframe
from causeway.ledger.bucket_scan import prepare_worker
from causeway.ledger.lake.derivation import READ_TABLES, LedgerDerivation
from causeway.ledger.lake.ingest import lake_promises, lake_windows, to_ledger_table
from causeway.ledger.lake.names import VALUE_LOG
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA, VALUE_SCHEMA
from causeway.storage.lake import Lake, LakeError, Manifest
from causeway.storage.object_store import io_threads
from causeway.storage.reorgs import RevertedRanges, find_reverted, network_root, owner_column
from causeway.storage.seals import Seal, parse_seal
from causeway.storage.table_schemas import (
    TOPOLOGY_SCHEMAS,
    StateReader,
    StateTable,
    TableSchemas,
    chain_position,
    replay_between,
)

__all__ = ["TASK_ROWS", "lake_ledger_dataframe", "lake_value_dataframe"]

_HALF = "9223372036854775808"
NO_QUEUE = 2**63 - 1
"""The queue index, as a signed word, of a message that was in no output queue."""

FORGED = 2**63 - 2
"""The queue index, as a signed word, of a forged message."""

SENT_NOW = (
    "(sent_tick = tick and (queue_index < 18446744073709551614 or "
    f"(kind <> {int(Kind.REQUEST)} and queue_index = 18446744073709551615)))"
)
"""SQL condition: a row of ``outbound`` was sent in the tick that committed it.

No program sent a message marked as forged, nor a request that was in no output queue.
"""


def _word(name: str) -> str:
    """Return SQL that maps an unsigned 64-bit column to a signed one of the same order."""
    return f"cast(cast({name} as decimal(20,0)) - {_HALF} as bigint)"


def to_number(name: str) -> str:
    """Return SQL that maps a signed word (of ``_word``) back to its unsigned number."""
    return f"cast({name} + cast({_HALF} as decimal(20,0)) as decimal(20,0))"


def _bit(*events: Event) -> str:
    return f"(events & {sum(map(int, events))}) > 0"


def _count(condition: str) -> str:
    return f"sum(case when {condition} then 1 else 0 end)"


_WORDS = ", ".join(f"{_word(name)} as {name}" for name in ("sender", "receiver", "callback", "queue_index"))

_MOVES = f"""
select tick, {_WORDS}, cast(source as bigint) as chain, cast(kind as int) as kind, cast(code as smallint) as code,
  case when {SENT_NOW} then {int(Event.SENT | Event.COMMITTED)} else {int(Event.COMMITTED)} end as events,
  {int(Via.NONE)} as via, '' as reason
from {{outbound}}
union all
select tick, {_WORDS}, cast(chain as bigint) as chain, cast(kind as int) as kind, cast(code as smallint) as code,
  cast(events as int) as events, cast(via as int) as via, cast(reason as string) as reason
from {{events}}
"""
"""All log rows, one a message, chain and height, with their set of events.

A message in a stream has the event committed, and also sent if its program sent it in that tick.
"""

_REQUEST, _RESPONSE = f"kind = {int(Kind.REQUEST)}", f"kind = {int(Kind.RESPONSE)}"
_SENT = f"{_REQUEST} and {_bit(Event.SENT)}"
_RECEIVED = f"{_REQUEST} and {_bit(Event.RECEIVED)}"
_ENDED = f"{_RESPONSE} and {_bit(Event.RECEIVED)}"
_DROPPED = _bit(Event.DROPPED)
_FORGED = f"(queue_index = {FORGED} or {_REQUEST} and queue_index = {NO_QUEUE})"

_CALLS = f"""
select caller, callee, callback,
  {_count(_SENT)} as sent,
  {_count(f"{_RECEIVED} and via in ({int(Via.LANE)}, {int(Via.LOOPBACK)})")} as delivered,
  {_count(f"{_REQUEST} and {_bit(Event.EXECUTED)}")} as executed,
  {_count(f"{_RESPONSE} and {_bit(Event.SENT, Event.COMMITTED)} and queue_index <> {FORGED}")} as returned,
  {_count(f"{_ENDED} and code = 0")} as answered,
  {_count(f"{_ENDED} and code > 0")} as rejected,
  {_count(_DROPPED)} as dropped,
  {_count(f"{_bit(Event.COMMITTED, Event.DROPPED)} and {_FORGED}")} as forged,
  {_count(_bit(Event.COMMITTED))} as routed,
  min(case when {_SENT} then tick end) as sent_tick,
  min(case when {_RECEIVED} then tick end) as delivered_tick,
  min(case when {_ENDED} then tick end) as ended_tick,
  max(case when {_DROPPED} then tick end) as dropped_tick,
  min(case when {_REQUEST} and {_bit(Event.EXECUTED)} then queue_index end) as place,
  min(case when {_SENT} then chain end) as from_chain,
  min(case when {_RECEIVED} then chain end) as to_chain,
  max(case when {_ENDED} then code end) as code,
  max(case when reason <> '' then reason end) as reason,
  max(case when {_DROPPED} then reason end) as cause
from (
  select *, case when {_REQUEST} then sender else receiver end as caller,
    case when {_REQUEST} then receiver else sender end as callee
  from moves where {_REQUEST} or {_RESPONSE}
) as of_calls
group by caller, callee, callback
"""
"""One row a call.

``sent``, ``delivered``, ``executed``, ``returned``, ``answered``, ``rejected``, ``dropped``, ``forged``, ``routed``:
number of such events of its messages. ``returned``: a response was created. ``forged``: dropped or committed by the
chain that forged it, with the queue index ``FORGED`` (a request also with ``NO_QUEUE``).
``sent_tick``, ``delivered_tick``, ``ended_tick``: first tick of the event; ``dropped_tick``: last tick.
``place``: position of its request in the callee's input queue, if the callee executed it. (Requests enqueued on a
chain that does not host the callee are in separate queues and never executed.)
``from_chain``, ``to_chain``: chains of sending and delivery. ``code``: code of the answer. ``reason``: reason of a
refusal. ``cause``: cause of a dropped message.
"""

_OUTCOME = """case when answered > 0 then 'answered' when rejected > 0 then 'rejected' when sent = 0 then 'forged'
  when dropped > forged then 'dropped' else 'pending' end"""
"""The outcome of a call: ``answered``, ``rejected``, ``dropped``, ``pending`` or, never sent, ``forged``."""

CALLS_QUERY = f"with moves as ({_MOVES}), calls as ({_CALLS}) select *, {_OUTCOME} as outcome from calls"
"""The query of all calls, with their ``outcome``."""


MOVEMENT_COLUMNS: Mapping[str, str] = {
    "height": "the height that committed it",
    "tick": "the tick of the scenario",
    "chain": "name of the chain on which it happened",
    "asset": "what moves: the unit of the protocol, or `booked`: what a chain has in its books about the others' units",
    "why": "why it moves: a name of the list above",
    "from": "who had it: a name of the list above",
    "from_name": "which program, chain, or operator: its name, or number; `SOURCE>DESTINATION` of transfers booked",
    "to": "who has it from then on",
    "to_name": "which one",
    "amount": "how much: decimal digits, because 128 bits are more than any number of Spark holds; "
    "`cast(amount as decimal(38,0))` adds up below 10^38",
    "source": "name of the chain that the message comes from; null where no message moves it",
    "destination": "name of the chain that the message goes to; null where no message moves it",
    "lane": "the substream in which the message travels; null without one",
    "index": "its index in that substream; null without one",
}
"""The columns of the view of value movements, with their descriptions."""

_NO_INDEX = "18446744073709551615BD"


def value_movements(asset: str, rows: DataFrame, chains: DataFrame, programs: DataFrame) -> DataFrame:
    """Resolve the names in the rows of the value log (``MOVEMENT_COLUMNS``).

    Args:
        asset: name of the protocol's unit.
        rows: rows of the value log.
        chains: columns ``position`` and ``name``.
        programs: columns ``number`` and ``name``.

    Returns:
        One row a movement, with the columns ``MOVEMENT_COLUMNS``.
    """
    for side in ("from", "to"):
        number = F.col(f"{side}_number")
        rows = rows.withColumn(f"{side}_upper", F.expr(f"cast({side}_number div 4294967296BD as bigint)"))
        rows = rows.withColumn(f"{side}_lower", F.expr(f"cast({side}_number % 4294967296BD as bigint)"))
        program = programs.select(F.col("number").alias(f"{side}_known"), F.col("name").alias(f"{side}_program"))
        rows = rows.join(program, number == F.col(f"{side}_known"), "left")
        for part in ("upper", "lower"):
            rows = _with_name(rows, chains, f"{side}_{part}")
    for column in ("chain", "source", "destination"):
        rows = _with_name(rows, chains, column)
    of_message = F.col("index") < F.expr(_NO_INDEX)
    values = {
        "chain": F.col("chain_name"),
        "asset": F.when(F.col("asset") == int(Asset.UNITS), F.lit(asset)).otherwise(F.lit(Asset.BOOKED.name.lower())),
        "why": _named(F.col("why"), ValueReason),
        "amount": format_digits("amount_high", "amount_low"),
        "source": F.when(F.col("source") != NO_CHAIN, F.col("source_name")),
        "destination": F.when(F.col("destination") != NO_CHAIN, F.col("destination_name")),
        "lane": F.when(of_message, F.col("substream")),
        "index": F.when(of_message, F.col("index")),
    }
    for side in ("from", "to"):
        values[side] = _named(F.col(f"{side}_holder"), ValueHolder)
        values[f"{side}_name"] = _name(side)
    return rows.select(*(values.get(name, F.col(name)).alias(name) for name in MOVEMENT_COLUMNS))


def _with_name(rows: DataFrame, chains: DataFrame, column: str) -> DataFrame:
    names = chains.select(F.col("position").alias(f"{column}_at"), F.col("name").alias(f"{column}_name"))
    return rows.join(F.broadcast(names), F.col(column) == F.col(f"{column}_at"), "left")


def _name(side: str) -> Column:
    """Return the name of a side's program, chain or pair of chains; null if there is none."""
    holder, number = F.col(f"{side}_holder"), F.col(f"{side}_number").cast("string")
    pair = F.concat(F.col(f"{side}_upper_name"), F.lit(">"), F.col(f"{side}_lower_name"))
    return (
        F.when(
            (holder == int(ValueHolder.DEPOSITS)) & (F.col(f"{side}_number") == F.expr(f"{ROOT_OWNER}BD")),
            F.lit("root"),
        )
        .when(holder.isin(*map(int, PROGRAM_HOLDERS)), F.coalesce(F.col(f"{side}_program"), number))
        .when(holder.isin(*map(int, CHAIN_HOLDERS)), F.col(f"{side}_lower_name"))
        .when(holder.isin(*map(int, PAIR_HOLDERS)), pair)
        .when(holder == int(ValueHolder.OPERATOR), number)
    )


def _named(column: Column, names: type[IntEnum]) -> Column:
    """Return the stable lowercase name of each number."""
    chosen = F.lit(None).cast("string")
    for item in names:
        chosen = F.when(column == int(item), F.lit(item.name.lower())).otherwise(chosen)
    return chosen


def format_digits(high: str, low: str) -> Column:
    """Return the decimal digits of a 128-bit number given as two 64-bit columns.

    Such a number has up to 39 digits and Spark's decimals have 38, so it is computed in two parts, the lower of ten
    digits.
    """
    upper = f"cast({high} div 10000000000BD as decimal(10,0))"
    rest = f"({high} % 10000000000BD * 18446744073709551616BD + {low})"
    carried = f"cast(({rest} - {rest} % 10000000000BD) / 10000000000BD as decimal(30,0))"
    first = f"cast({upper} * 18446744073709551616BD + {carried} as decimal(30,0))"
    last = f"lpad(cast(cast({rest} % 10000000000BD as decimal(10,0)) as string), 10, '0')"
    return F.expr(f"case when {high} = 0 then cast({low} as string) else concat(cast({first} as string), {last}) end")


TASK_ROWS = 1 << 18
"""Approximate number of log rows a task derives; a height is never split."""

DeriveRange = Callable[[LedgerDerivation, int, int], Iterable[pa.Table]]


def lake_ledger_dataframe(session: SparkSession, lake: Lake, heights: range, task_rows: int = TASK_ROWS) -> DataFrame:
    """Derive the ledger rows of some committed heights, as known at the last of these heights.

    Args:
        session: the Spark session.
        lake: the lake.
        heights: consecutive committed heights.
        task_rows: approximate number of log rows a task.

    Returns:
        Rows of ``LEDGER_SCHEMA`` in Spark's types.
    """
    return _frame(session, lake, heights, LEDGER_SCHEMA, READ_TABLES, task_rows, _rows, _pending_rows)


def lake_value_dataframe(session: SparkSession, lake: Lake, heights: range, task_rows: int = TASK_ROWS) -> DataFrame:
    """Derive the value movements of some committed heights; empty without a value log.

    Args:
        session: the Spark session.
        lake: the lake.
        heights: consecutive committed heights.
        task_rows: approximate number of log rows a task.

    Returns:
        Rows of ``VALUE_SCHEMA`` in Spark's types.
    """
    logged = VALUE_LOG in LedgerDerivation(lake).logs.schemas
    return _frame(session, lake, heights if logged else range(0), VALUE_SCHEMA, (VALUE_LOG,), task_rows, _movements)


def _rows(derived: LedgerDerivation, first: int, end: int) -> Iterator[pa.Table]:
    for part in derived.rows(first, end):
        yield part.rows


def _pending_rows(derived: LedgerDerivation, first: int, end: int) -> Iterator[pa.Table]:
    yield derived.drafts_to_rows(derived.pending_drafts(first, end))


def _movements(derived: LedgerDerivation, first: int, end: int) -> Iterator[pa.Table]:
    yield from derived.movements(first, end)


def _frame(
    session: SparkSession,
    lake: Lake,
    heights: range,
    schema: pa.Schema,
    tables: tuple[str, ...],
    task_rows: int,
    derive: DeriveRange,
    of_all: DeriveRange | None = None,
) -> DataFrame:
    """Apply a function to each range of heights, and another one to all heights."""
    derived = LedgerDerivation(lake)
    ranges = [*derived.logs.ranges(heights.start, heights.stop, task_rows, tables)] if len(heights) else []
    tasks = [(derive, each) for each in ranges]
    if of_all is not None and ranges:
        tasks.append((of_all, heights))

    def read(number: int) -> Iterator[pa.Table]:
        prepare_worker()
        work, span = tasks[number]
        for rows in work(LedgerDerivation(lake), span.start, span.stop):
            # A message that waited for a lane was sent before it entered the lane.
            yield rows.filter(pc.greater_equal(rows["height"], heights.start)) if heights.start else rows

    return task_dataframe(session, schema, len(tasks), read)


_CHAINS = pa.schema([("position", pa.int64()), ("number", pa.decimal128(20, 0)), ("name", pa.string())])


class LakeTables:
    """The tables of a lake as DataFrames; committed heights only."""

    def __init__(self, session: SparkSession, lake: Lake, state_at: StateReader | None = None) -> None:
        """Open a lake for reading.

        Args:
            session: the Spark session.
            lake: the lake.
            state_at: re-executes heights without stored state; None: such state cannot be read.
        """
        self._session, self._lake, self._state_at = session, lake, state_at
        check_readable(session, lake.storage)
        self.about = lake.about()
        self._schemas = TableSchemas.decoded(self.about["tables"])

    def _read(self, files: Mapping[str, Seal], schema: pa.Schema) -> DataFrame:
        """Read sealed Parquet files under a given schema.

        Given the schema, Spark opens no file before the query runs. Files are compared with their seals (large ones by
        length
        and footer), and their columns with the schema, before the query is planned. Spark verifies the checksum of
        every page.

        Raises:
            LakeDamaged: a file differs from its seal.
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

        for _ in io_threads(os.getpid()).map(verify, files.items()):
            pass

    def heights(self) -> list[int]:
        """Return the committed heights.

        Raises:
            LakeError: nothing is committed.
        """
        return list(range(self._lake.last_manifest().height + 1))

    def manifest(self, height: int | None = None) -> Manifest:
        """Return the manifest of a height, by default the last.

        Raises:
            LakeError: the height is not committed.
        """
        return self._lake.last_manifest() if height is None else self._lake.manifest(height)

    def log(self, table: str, heights: range | None = None) -> DataFrame:
        """Read a log table: ``outbound``, ``events``, ``collected``, ``failures`` or ``headers``.

        Args:
            table: name of the table.
            heights: consecutive committed heights; only their files are opened. Default: all.

        Returns:
            The rows of the table.

        Raises:
            LakeError: the table or a height does not exist.
        """
        schemas = self._schemas.logs
        if table not in schemas:
            raise LakeError(f"table: {suggest_known('table', table, schemas)}")
        if heights is None:
            return self._read(self._lake.log_files(table), schemas[table])
        known = self._checked(heights)
        rows = self._read(self._lake.log_files(table, known), schemas[table])
        return rows.where(F.col("height").between(known.start, known.stop - 1))

    def remaining(self, table: str, heights: range | None = None) -> DataFrame:
        """Read a log table without the rows reverted by forks as of the last of these heights."""
        rows = self.log(table, heights)
        undone = find_reverted(self._lake, self.manifest(), None if heights is None else heights.stop - 1)
        return rows if undone is None else join_reverted(rows, table, undone, "leftanti")

    def _checked(self, heights: range) -> range:
        """Return the committed heights of a range.

        Raises:
            LakeError: they are not consecutive.
        """
        if heights.step != 1 or heights.start < 0:
            raise LakeError(f"heights: {heights}; allowed: range(first, end), from 0")
        return range(heights.start, min(heights.stop, self.manifest().height + 1))

    def topology(self, table: str) -> DataFrame:
        """Read ``chains``, ``programs`` or ``registry`` as of the creation of the lake."""
        path = f"{table}.parquet"
        return self._read({path: parse_seal(self.about["files"][path])}, TOPOLOGY_SCHEMAS[table])

    def chains(self) -> DataFrame:
        """Return the chains: ``position`` (the number in chain columns), ``number``, ``name``."""
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
        """Return the hosting chain of each program at a height: ``program``, ``chain`` (position).

        Programs without a hosting chain are omitted.
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
        """Read a state table (``docs/reference/lake.md`` lists them) at a committed height.

        Args:
            table: name of the table.
            height: the height, by default the last.
            chain: name of a chain; only its rows and those of the programs it hosted at that height. Default: all
                chains.

        Returns:
            The rows of the table.

        Raises:
            LakeError: the table, height or chain does not exist.
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
        if not declared.belongs_to_program:
            return rows.where(F.col(owner) == position)
        hosted = self.hosts(manifest.height).where(F.col("chain") == position).select(F.col("program").alias(owner))
        return rows.join(hosted, owner, "leftsemi").select(*declared.schema.names)

    def _state(self, manifest: Manifest, table: str, schema: pa.Schema, bucket: int | None = None) -> DataFrame:
        """Read a state table of all buckets, or of one."""
        if manifest.height == manifest.last:
            files = manifest.state.get(table, {})
            found = [parts for key, parts in files.items() if bucket is None or key == str(bucket)]
            rows, removed = (
                {path: manifest.files[path] for paths in of_buckets for path in paths}
                for of_buckets in ([parts.rows for parts in found], [parts.gone for parts in found])
            )
            if not removed:
                return self._read(rows, schema)
            keys = list(self._schemas.state_table(table).order)
            left = self._read(removed, pa.schema([schema.field(key) for key in keys]))
            return self._read(rows, schema).join(left, keys, "leftanti").select(*schema.names)
        parts = replay_between(self._lake, self._state_at, manifest.height, table)
        entries = pa.concat_tables(parts if bucket is None else [parts[bucket]])
        if not entries.num_rows:
            return self._read({}, schema)
        typed = spark_schema(schema)
        return self._session.createDataFrame(to_spark_columns(entries, to_arrow_schema(typed)), typed)

    def position(self, chain: str) -> int:
        """Return the position of the chain of that name.

        Raises:
            LakeError: there is no such chain.
        """
        return chain_position(self.about, chain)

    def _bucket(self, position: int) -> int:
        ends = np.array([end for _, end in self.about["buckets"]])
        return int(np.searchsorted(ends, position, side="right"))

    def ledger(self, heights: range | None = None) -> DataFrame:
        """Return the rows of the ledger (``docs/reference/ledger.md``), one an event of a message.

        The rows equal those of ``causeway ingest lake``; unsigned numbers are decimals.

        Args:
            heights: consecutive heights; only their events, as known at the last of them. Other heights are scanned for
                the
                messages of these events. Default: all.

        Returns:
            Rows of ``LEDGER_SCHEMA`` in Spark's types.

        Raises:
            LakeError: the heights are not committed.
            LakeDamaged: a file is corrupted.
            InvalidInput: the protocol cannot be derived.
        """
        return lake_ledger_dataframe(self._session, self._lake, self._verified(READ_TABLES, heights))

    def value(self, heights: range | None = None) -> DataFrame:
        """Return the value movements of the ledger at some heights, by default all.

        Args:
            heights: as of ``ledger``.

        Returns:
            Rows of ``VALUE_SCHEMA`` in Spark's types.
        """
        return lake_value_dataframe(self._session, self._lake, self._verified([VALUE_LOG], heights))

    def observed(self) -> DataFrame:
        """Return the observed windows of the ledger: all heights of the chains that the lake runs."""
        rows = lake_windows(LedgerDerivation(self._lake), self.manifest().height + 1)
        return table_to_dataframe(self._session, to_ledger_table(rows, OBSERVED_SCHEMA))

    def promises(self) -> DataFrame:
        """Return the guarantees of the lanes in use (table ``promises`` of the ledger)."""
        derived, last = LedgerDerivation(self._lake), self.manifest()
        derived.add_used_lanes(0, last.height + 1)
        return table_to_dataframe(self._session, to_ledger_table(lake_promises(derived, last), PROMISES_SCHEMA))

    def _verified(self, tables: Sequence[str], heights: range | None) -> range:
        """Return the committed heights of a range (default: all), after a check of the log files."""
        known = self._checked(range(self.manifest().height + 1) if heights is None else heights)
        for table in tables:
            if table in self._schemas.logs:
                self._verify(self._lake.log_files(table, known), self._schemas.logs[table])
        return known

    def movements(self, heights: range | None = None) -> DataFrame:
        """Return one row a value movement, with names, without rows reverted by forks.

        ``docs/reference/lake.md`` describes the columns.

        Args:
            heights: consecutive committed heights. Default: all.

        Returns:
            Rows with the columns ``MOVEMENT_COLUMNS``.

        Raises:
            LakeError: the protocol has no value log.
        """
        rows = self.remaining("value", heights)
        return value_movements(self.about["asset"], rows, self.chains(), self.programs())

    def calls(self, as_of: int | None = None) -> DataFrame:
        """Return one row a call with its outcome and ticks; names instead of numbers.

        ``docs/reference/lake.md`` describes the columns.

        Args:
            as_of: the height of the outcomes, by default the last.

        Returns:
            One row a call.

        Raises:
            LakeError: the height is not committed.
        """
        rows = self._calls(as_of)
        names = self.programs().select("number", "name")
        for column in ("caller", "callee"):
            name = names.select(F.col("number").alias(column), F.col("name").alias(f"{column}_name"))
            rows = rows.withColumn(column, F.expr(to_number(column))).join(name, column, "left")
        chains = self.chains()
        for column in ("from_chain", "to_chain"):
            name = chains.select(F.col("position").alias(column), F.col("name").alias(f"{column}_name"))
            rows = rows.join(F.broadcast(name), column, "left")
        return rows.select(
            F.col("from_chain_name").alias("source"),
            F.col("to_chain_name").alias("destination"),
            F.coalesce("caller_name", F.col("caller").cast("string")).alias("sender"),
            F.coalesce("callee_name", F.col("callee").cast("string")).alias("receiver"),
            F.expr(to_number("callback")).alias("callback"),
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
        return run_spark_query(CALLS_QUERY, self.remaining("outbound", heights), self.remaining("events", heights))

    def root(self) -> str:
        """Return one digest over the last roots of all chains (``network_root``)."""
        return network_root(self._lake, self.manifest())


def run_spark_query(query: str, outbound: DataFrame, events: DataFrame) -> DataFrame:
    """Run a query like ``CALLS_QUERY`` over the log tables of a lake.

    Args:
        query: SQL with the placeholders ``{outbound}`` and ``{events}``.
        outbound: rows of the log ``outbound``.
        events: rows of the log ``events``.

    Returns:
        The rows of the result.
    """
    return outbound.sparkSession.sql(query, outbound=outbound, events=events)


def reverted_spans(session: SparkSession, undone: RevertedRanges) -> DataFrame:
    """Return the reverted ranges as a small DataFrame: ``of``, ``from_height``, ``to_height``."""
    columns = [pa.array(column) for column in (undone.chains, undone.first, undone.last)]
    return F.broadcast(session.createDataFrame(pa.Table.from_arrays(columns, names=["of", "from_height", "to_height"])))


def join_reverted(rows: DataFrame, table: str, undone: RevertedRanges, how: str) -> DataFrame:
    """Join log rows with the ranges reverted by forks.

    ``how``: ``leftanti`` for the remaining rows, ``leftsemi`` for the reverted ones, ``left`` for all.
    """
    hit = (F.col(owner_column(table)) == F.col("of")) & F.col("height").between(
        F.col("from_height"), F.col("to_height")
    )
    return rows.join(reverted_spans(rows.sparkSession, undone), hit, how)
