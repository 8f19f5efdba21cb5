"""The audit of a ledger that is a Spark DataFrame, in anyone's session: in buckets, sorted, a task a bucket.

Rows go through Spark with their names as strings, and unsigned numbers as signed ones of the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.along import Before, PieceKey
from causeway.audit.auditing import Audit, Check, Runs, audit_by
from causeway.audit.candidates import Met
from causeway.audit.checks import Known
from causeway.audit.meeting import RECORDS, Meeting, Waiting, rows_at
from causeway.audit.parts import PART_ROWS, Part, TablePart
from causeway.audit.passing import LIMIT, Passed, pass_over
from causeway.audit.stated import Stated, stated_in
from causeway.audit.windows import Windows
from causeway.ledger.order import EVENTS, MOST_BUCKETS, buckets_of
from causeway.ledger.schema import (
    HEADERS_SCHEMA,
    LANE,
    LEDGER_SCHEMA,
    OBSERVED_SCHEMA,
    PROMISES_SCHEMA,
    WATERMARKS_SCHEMA,
)
from causeway.model.errors import CausewayError, InvalidInput
from causeway.pipeline.executors import TaskFailed, python_error
from causeway.pipeline.ledger_columns import as_table, chosen_columns, given_table
from causeway.pipeline.ledger_tasks import ARROW_SCHEMA, TASK_SCHEMA, Tables, prepare_worker, rows_of, shown_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]
_FLIP = np.uint64(1 << 63)
"""What unsigned numbers are xored with, so that as signed ones they have the same order."""

_PARTS_A_CORE = 2


@dataclass(frozen=True)
class FrameAudit:
    """What came of an audit of DataFrames: ``audit``, and its tables as DataFrames of the same session, in which
    unsigned numbers are decimals."""

    audit: Audit
    session: SparkSession

    @property
    def checks(self) -> dict[str, Check]:
        """Return the checks by name."""
        return self.audit.checks

    @property
    def holds(self) -> bool:
        """Return whether no check is violated."""
        return self.audit.holds

    @property
    def violations(self) -> DataFrame:
        """Return the findings."""
        return self._frame(self.audit.violations)

    @property
    def completeness(self) -> DataFrame:
        """Return what the input covers."""
        return self._frame(self.audit.completeness)

    @property
    def lanes(self) -> DataFrame:
        """Return the figures of each lane."""
        return self._frame(self.audit.lanes)

    @property
    def sums(self) -> DataFrame:
        """Return the sums of each lane and asset."""
        return self._frame(self.audit.sums)

    def _frame(self, table: pa.Table) -> DataFrame:
        kinds = [pa.decimal128(20, 0) if kind == pa.uint64() else kind for kind in table.schema.types]
        fields = [field.with_type(kind) for field, kind in zip(table.schema, kinds, strict=True)]
        return self.session.createDataFrame(table.cast(pa.schema(fields)))


def audit_frame(
    ledger: DataFrame,
    observed: DataFrame | pa.Table | None = None,
    promises: DataFrame | pa.Table | None = None,
    *,
    headers: DataFrame | None = None,
    watermarks: DataFrame | None = None,
    buckets: int | None = None,
    limit: int = LIMIT,
) -> FrameAudit:
    """Check a ledger that is a DataFrame, wherever it came from, in its own session.

    Rows are taken as they are: one that says again what another one says counts as another event.

    Args:
        ledger: the columns of ``LEDGER_SCHEMA`` by their names, in any order; those that can be null may be missing.
            Names are strings, numbers any whole ones (decimals without fraction too), ``time`` a timestamp (one without
            time zone is UTC), ``payload_hash`` 32 bytes. Other columns are not looked at.
        observed: windows that the input covers (``OBSERVED_SCHEMA``), in the same way; None: none is known.
        promises: what lanes promise (``PROMISES_SCHEMA``); None: nothing.
        headers, watermarks: what chains state of themselves (``HEADERS_SCHEMA``, ``WATERMARKS_SCHEMA``).
        buckets: into how many tasks the rows are dealt out; default: two a core. The result does not depend on it.
        limit: how many findings of one lane, check and reason are named; all are counted.

    Raises:
        InvalidInput: a column is missing, has another type or a value that does not fit.
        TaskFailed: a Spark task failed.
    """
    session = ledger.sparkSession
    if buckets is None:
        buckets = min(MOST_BUCKETS, _PARTS_A_CORE * session.sparkContext.defaultParallelism)
    if not 1 <= buckets <= MOST_BUCKETS:
        raise InvalidInput(f"buckets: {buckets}: must be from 1 to {MOST_BUCKETS}")
    windows = given_table(observed, OBSERVED_SCHEMA, "observed")
    promised = given_table(promises, PROMISES_SCHEMA, "promises")
    carried = chosen_columns(ledger, LEDGER_SCHEMA, "ledger").mapInArrow(_carry(buckets), _carried_ddl())

    def look(known: Known, before: dict[PieceKey, Before], only: Runs | None) -> Mapping[tuple[int, int], Passed]:
        return _look(carried, buckets, _Pass(known, before, only, limit))

    stating = {
        schema: chosen_columns(frame, schema, what)
        for schema, frame, what in ((HEADERS_SCHEMA, headers, "headers"), (WATERMARKS_SCHEMA, watermarks, "watermarks"))
        if frame is not None
    }

    def look_at_chains(windows: Windows) -> Iterable[Stated]:
        for schema, frame in stating.items():
            task = _State(schema, windows, limit)
            # A chain's headers, or a lane's watermarks, are one task's.
            whole = (
                frame.repartition(buckets, "chain") if schema is HEADERS_SCHEMA else frame.repartition(buckets, *LANE)
            )
            yield from _collected(whole.mapInArrow(task, TASK_SCHEMA), Stated).values()

    meet = _Meet(carried, buckets)
    return FrameAudit(audit_by(look, windows, promised, limit, look_at_chains, meet), session)


def _look(carried: DataFrame, buckets: int, task: _Pass) -> dict[tuple[int, int], Passed]:
    query = _in_buckets(carried, buckets, None if task.only is None else sorted(task.only))
    return _collected(query.mapInArrow(task, TASK_SCHEMA), Passed)


def _in_buckets(carried: DataFrame, buckets: int, only: list[int] | None) -> DataFrame:
    from pyspark.sql import functions as F

    rows = carried if only is None else carried.filter(F.col("bucket").isin(only))
    return rows.repartitionById(buckets, F.col("bucket")).sortWithinPartitions(*_order())


@dataclass(frozen=True)
class _Meet:
    """Lets rows of buckets meet: tasks give their records, this process joins them a part at a time."""

    carried: DataFrame
    buckets: int

    def met(self, meeting: Meeting) -> list[Met]:
        """Return what meets, a part each."""
        query = _in_buckets(self.carried, self.buckets, sorted(meeting.runs)).mapInArrow(_Give(meeting), TASK_SCHEMA)
        kinds = [*RECORDS]
        with Waiting() as waiting:
            for row in _rows_of(query):
                waiting.add((row["bucket"], kinds[row["run"]], pa.ipc.open_stream(row["shown"]).read_all()))
            return [meeting.met(waiting.of(part)) for part in range(meeting.parts)]

    def rows(self, wanted: Mapping[int, npt.NDArray[np.int64]]) -> Mapping[int, pa.Table]:
        """Return rows of buckets by where they stand there, ascending."""
        query = _in_buckets(self.carried, self.buckets, sorted(wanted)).mapInArrow(_Take(wanted), TASK_SCHEMA)
        return {row["bucket"]: pa.ipc.open_stream(row["shown"]).read_all() for row in _rows_of(query)}


@dataclass(frozen=True)
class _Give:
    """Gives the records of buckets in a task: a row a piece, ``bucket`` its part, ``run`` its kind."""

    meeting: Meeting

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        kinds = [*RECORDS]
        for bucket, parts in _by_bucket(batches):
            for part, kind, records in self.meeting.pieces(bucket, parts):
                yield _blob(part, kinds.index(kind), records)


@dataclass(frozen=True)
class _Take:
    """Takes rows of buckets in a task."""

    wanted: Mapping[int, npt.NDArray[np.int64]]

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        for bucket, parts in _by_bucket(batches):
            every = [*parts]
            yield _blob(bucket, 0, rows_at(every, self.wanted[bucket]))


def _blob(bucket: int, run: int, rows: pa.Table) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    row = {"bucket": bucket, "run": run, "error": None, "shown": sink.getvalue().to_pybytes()}
    return pa.RecordBatch.from_pylist([row], ARROW_SCHEMA)


def _rows_of(query: DataFrame) -> Iterator[dict[str, Any]]:
    """Yield rows of ``TASK_SCHEMA``, a batch of them at a time in memory."""
    from pyspark.errors import PySparkException

    try:
        for row in query.toLocalIterator():
            yield row.asDict()
    except PySparkException as error:
        raise TaskFailed(f"a task failed: {python_error(str(error))}") from None


def _collected(query: DataFrame, kind: type[Tables]) -> dict[tuple[int, int], Tables]:
    from pyspark.errors import PySparkException

    try:
        found = query.toArrow()
    except PySparkException as error:
        raise TaskFailed(f"a task failed: {python_error(str(error))}") from None
    return shown_in(found, kind)


@dataclass(frozen=True)
class _Pass:
    """Passes over the buckets in a task, whose rows are sorted."""

    known: Known
    before: dict[PieceKey, Before]
    only: Runs | None
    limit: int

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        for bucket, parts in _by_bucket(batches):
            yield from rows_of(bucket, lambda number, parts=parts: self._passed(number, parts))  # type: ignore[misc]

    def _passed(self, bucket: int, parts: Iterator[Part]) -> Iterator[tuple[int, Passed]]:
        only = None if self.only is None else sorted(self.only[bucket])
        passed = pass_over(parts, self.known, self.before, self.limit, only)
        yield from zip(range(len(passed)) if only is None else only, passed, strict=True)


@dataclass(frozen=True)
class _State:
    """Looks at headers, or at watermarks, in a task that has all of some chains or lanes."""

    schema: pa.Schema
    windows: Windows
    limit: int

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import TaskContext

        prepare_worker()
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        yield from rows_of(number, lambda _: self._stated([*batches]))

    def _stated(self, batches: list[pa.RecordBatch]) -> Iterator[tuple[int, Stated]]:
        what = "headers" if self.schema == HEADERS_SCHEMA else "watermarks"
        given = pa.Table.from_batches(batches) if batches else self.schema.empty_table()
        rows = {schema: schema.empty_table() for schema in (HEADERS_SCHEMA, WATERMARKS_SCHEMA)}
        rows[self.schema] = as_table(given, self.schema, what)
        yield 0, stated_in(rows[HEADERS_SCHEMA], rows[WATERMARKS_SCHEMA], self.windows, self.limit)


def _by_bucket(batches: Batches) -> Iterator[tuple[int, Iterator[Part]]]:
    """Yield each bucket's rows as parts of ``PART_ROWS`` rows; those of one bucket before the next is asked for."""
    waiting: list[pa.RecordBatch] = []

    def following() -> pa.RecordBatch | None:
        while not waiting:
            batch = next(batches, None)
            if batch is None:
                return None
            bucket = batch["bucket"].to_numpy()
            cuts = [0, *(np.flatnonzero(bucket[1:] != bucket[:-1]) + 1).tolist(), len(bucket)]
            waiting.extend(batch.slice(a, b - a) for a, b in itertools.pairwise(cuts) if a < b)
        return waiting.pop(0)

    def parts(bucket: int) -> Iterator[Part]:
        held: list[pa.RecordBatch] = []
        rows = 0
        while (batch := following()) is not None and batch["bucket"][0].as_py() == bucket:
            while rows + batch.num_rows >= PART_ROWS:
                room = PART_ROWS - rows
                yield TablePart(_taken_back([*held, batch.slice(0, room)]))
                held, rows, batch = [], 0, batch.slice(room)
            if batch.num_rows:
                held.append(batch)
                rows += batch.num_rows
        if batch is not None:
            waiting.insert(0, batch)
        if held:
            yield TablePart(_taken_back(held))

    while (batch := following()) is not None:
        waiting.insert(0, batch)
        yield (bucket := int(batch["bucket"][0].as_py())), parts(bucket)


# ---- what goes through Spark


def _carried_type(kind: pa.DataType) -> tuple[str, pa.DataType]:
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind):
        return "string", pa.string()
    if pa.types.is_fixed_size_binary(kind):
        return "binary", pa.binary()
    return "bigint", pa.int64()


def _carried_ddl() -> str:
    own = [f"`{field.name}` {_carried_type(field.type)[0]}" for field in LEDGER_SCHEMA]
    return ", ".join(["bucket int", "error string", "event_rank int", *own])


def _carried_schema() -> pa.Schema:
    own = [pa.field(field.name, _carried_type(field.type)[1]) for field in LEDGER_SCHEMA]
    return pa.schema([("bucket", pa.int32()), ("error", pa.string()), ("event_rank", pa.int32()), *own])


def _order() -> list[Column]:
    """Return what rows are sorted by: errors first, then in the order of the ledger, then by all other columns, so that
    chance decides nothing."""
    from pyspark.sql import functions as F

    named = F.when(F.col("index").isNull(), F.col("message_id"))
    first = list(LANE)
    then = ["event_rank", "chain", "height", "position", "time"]
    rest = [name for name in LEDGER_SCHEMA.names if name not in (*first, *then, "index", "event")]
    return [
        *(F.col("bucket"), F.col("error").asc_nulls_last()),
        *(F.col(name).asc_nulls_first() for name in first),
        F.col("index").asc_nulls_last(),
        named.asc_nulls_first(),
        *(F.col(name).asc_nulls_first() for name in (*then, *rest)),
    ]


def _carry(buckets: int) -> Callable[[Batches], Batches]:
    """Return a task that checks rows and says in which bucket each lies."""

    def run(batches: Batches) -> Batches:
        prepare_worker()
        schema = _carried_schema()
        for batch in batches:
            try:
                rows = as_table(pa.Table.from_batches([batch]), LEDGER_SCHEMA, "ledger")
                table = carried_rows(rows, buckets)
            except CausewayError as error:
                # It goes the way of the rows, so that it is one line in the end, and no trace of a failed task.
                nothing = {**dict.fromkeys(schema.names), "bucket": 0, "error": f"{error.name} {error}"}
                table = pa.Table.from_pylist([nothing], schema)
            yield from table.to_batches()

    return run


def carried_rows(rows: pa.Table, buckets: int) -> pa.Table:
    """Return rows of the ledger as they go through Spark. Raises ``InvalidInput`` for an event that has no name."""
    ranks = pc.index_in(rows["event"].cast(pa.string()), pa.array(EVENTS))
    if ranks.null_count:
        bad = rows["event"].filter(ranks.is_null())[0].as_py()
        raise InvalidInput(f"event {bad!r}: must be one of {', '.join(EVENTS)}")
    columns = [pa.array(buckets_of(rows, buckets).astype(np.int32)), pa.nulls(rows.num_rows, pa.string()), ranks]
    for field in LEDGER_SCHEMA:
        column = rows[field.name]
        if field.type == pa.uint64():
            column = _flipped(column, np.uint64, np.int64)
        columns.append(column.cast(_carried_type(field.type)[1]))
    return pa.table(columns, _carried_schema())


def _taken_back(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return rows of the ledger from what came through Spark. Raises ``InvalidInput`` where an error came with them."""
    rows = pa.Table.from_batches(batches).combine_chunks()
    if rows["error"].null_count < rows.num_rows:
        name, _, text = rows["error"].drop_null()[0].as_py().partition(" ")
        raise InvalidInput(text if name == "InvalidInput" else f"{name}: {text}")
    columns = []
    for field in LEDGER_SCHEMA:
        column = rows[field.name]
        if field.type == pa.uint64():
            column = _flipped(column, np.int64, np.uint64)
        elif pa.types.is_dictionary(field.type):
            column = column.dictionary_encode()
        columns.append(column.cast(field.type))
    return pa.table(columns, LEDGER_SCHEMA)


def _flipped(column: pa.ChunkedArray, kind: Any, wanted: Any) -> pa.ChunkedArray:
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], column.type)
    words = np.asarray(whole.fill_null(0)).astype(kind, copy=False).view(np.uint64) ^ _FLIP
    missing = np.asarray(whole.is_null()) if whole.null_count else None
    return pa.chunked_array([pa.array(words.view(wanted), mask=missing)])


__all__ = ["FrameAudit", "audit_frame"]
