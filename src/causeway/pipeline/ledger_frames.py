"""The audit of a ledger that is a Spark DataFrame, in anyone's session: in buckets, sorted, a task a bucket.

Rows go through Spark with their names as strings, and unsigned numbers as signed ones of the same order.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.along import Before, PieceKey
from causeway.audit.auditing import NOTICED, Audit, Check, Runs, audit_by, last_time
from causeway.audit.candidates import Met
from causeway.audit.known import Known
from causeway.audit.meeting import RECORDS, Meeting, Waiting, rows_at
from causeway.audit.parts import PART_ROWS, Part, TablePart
from causeway.audit.passing import LIMIT, Passed, pass_over
from causeway.audit.stated import Stated, stated_in
from causeway.audit.windows import Windows
from causeway.ledger.order import MOST_BUCKETS
from causeway.ledger.restarts import HeightBounds, with_restarts
from causeway.ledger.schema import (
    HEADERS_SCHEMA,
    LANE,
    LEDGER_SCHEMA,
    OBSERVED_SCHEMA,
    PROMISES_SCHEMA,
    VALUE_SCHEMA,
    WATERMARKS_SCHEMA,
)
from causeway.model.errors import InvalidInput
from causeway.pipeline.ledger_carried import OF_VALUE, carried_ddl, carry, row_order, taken_back, value_back
from causeway.pipeline.ledger_columns import as_table, chosen_columns, given_table
from causeway.pipeline.ledger_tasks import ARROW_SCHEMA, TASK_SCHEMA, Tables, prepare_worker, rows_of, shown_in
from causeway.pipeline.task_errors import spark_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]
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

    @property
    def abroad(self) -> DataFrame:
        """Return what of each asset left chains for others, and came back."""
        return self._frame(self.audit.abroad)

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
    value: DataFrame | None = None,
    buckets: int | None = None,
    limit: int = LIMIT,
) -> FrameAudit:
    """Check a ledger that is a DataFrame, wherever it came from, in its own session.

    Rows are taken as they are: one that says again what another one says counts as another event. Chains whose heights
    began anew are noticed.

    Args:
        ledger: the columns of ``LEDGER_SCHEMA`` by their names, in any order; those that can be null may be missing.
            Names are strings, numbers any whole ones (decimals without fraction too), ``time`` a timestamp (one without
            time zone is UTC), ``payload_hash`` 32 bytes. Other columns are not looked at.
        observed: windows that the input covers (``OBSERVED_SCHEMA``), in the same way; None: none is known.
        promises: what lanes promise (``PROMISES_SCHEMA``); None: nothing.
        headers, watermarks: what chains state of themselves (``HEADERS_SCHEMA``, ``WATERMARKS_SCHEMA``).
        value: movements of value (``VALUE_SCHEMA``).
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
    given = chosen_columns(ledger, LEDGER_SCHEMA, "ledger")
    carried = given.mapInArrow(carry(buckets), carried_ddl())

    moved = None if value is None else chosen_columns(value, VALUE_SCHEMA, "value")
    whole = carried
    if moved is not None:
        whole = carried.unionAll(moved.mapInArrow(carry(buckets, VALUE_SCHEMA), carried_ddl()))

    def look(known: Known, before: dict[PieceKey, Before], only: Runs | None) -> Mapping[tuple[int, int], Passed]:
        return _look(whole, buckets, _Pass(known, before, only, limit))

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
    end, bounds = _bounds_of(given)
    promised = with_restarts(promised, bounds.restarted(), NOTICED)
    return FrameAudit(audit_by(look, windows, promised, limit, look_at_chains, meet, end=end), session)


_BLOCKS = ("chain", "event", "revision", "height", "time")
"""Columns that say where a row happened."""

_BOUNDS_DDL = "chain string, first_time bigint, first_height binary, last_time bigint, last_height binary"


def _bounds_of(rows: DataFrame) -> tuple[int | None, HeightBounds]:
    """Return the last time of any row, in microseconds (None: none has a time), and the first and last blocks of
    chains."""
    if "time" not in rows.columns:
        return None, HeightBounds()
    columns = [name for name in _BLOCKS if name in rows.columns]
    with spark_tasks():
        found = rows.select(*columns).mapInArrow(_batch_bounds, _BOUNDS_DDL).collect()
    bounds = HeightBounds()
    for row in found:
        if row["chain"] is not None:
            first, last = ((row[f"{end}_time"], int.from_bytes(row[f"{end}_height"])) for end in ("first", "last"))
            bounds.merge(HeightBounds({row["chain"]: first}, {row["chain"]: last}))
    return max((row["last_time"] for row in found if row["chain"] is None), default=None), bounds


def _batch_bounds(batches: Batches) -> Batches:
    """Yield the last time of each batch, without a chain, and the first and last block of each chain. Values that do
    not fit are errors of the audit's pass."""
    prepare_worker()
    schema = pa.schema([LEDGER_SCHEMA.field(name).with_nullable(True) for name in _BLOCKS])
    for batch in batches:
        with contextlib.suppress(InvalidInput):
            rows = as_table(pa.Table.from_batches([batch]), schema, "ledger")
            bounds = HeightBounds()
            bounds.add(rows)
            found: list[tuple[Any, ...]] = [
                (chain, first[0], first[1].to_bytes(8), bounds.last[chain][0], bounds.last[chain][1].to_bytes(8))
                for chain, first in bounds.first.items()
            ]
            end = last_time(rows["time"])
            found += [] if end is None else [(None, None, None, end, None)]
            columns = [[row[place] for row in found] for place in range(5)]
            kinds = (pa.string(), pa.int64(), pa.binary(), pa.int64(), pa.binary())
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, [each.split()[0] for each in _BOUNDS_DDL.split(", ")])


def _look(carried: DataFrame, buckets: int, task: _Pass) -> dict[tuple[int, int], Passed]:
    query = _in_buckets(carried, buckets, None if task.only is None else sorted(task.only))
    return _collected(query.mapInArrow(task, TASK_SCHEMA), Passed)


def _in_buckets(carried: DataFrame, buckets: int, only: list[int] | None) -> DataFrame:
    from pyspark.sql import functions as F

    rows = carried if only is None else carried.filter(F.col("bucket").isin(only))
    return rows.repartitionById(buckets, F.col("bucket")).sortWithinPartitions(*row_order())


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
    with spark_tasks():
        for row in query.toLocalIterator():
            yield row.asDict()


def _collected(query: DataFrame, kind: type[Tables]) -> dict[tuple[int, int], Tables]:
    with spark_tasks():
        found = query.toArrow()
    return dict(shown_in(found, kind))


@dataclass(frozen=True)
class _Pass:
    """Passes over the buckets in a task, whose rows are sorted."""

    known: Known
    before: dict[PieceKey, Before]
    only: Runs | None
    limit: int

    def __call__(self, batches: Batches) -> Batches:
        prepare_worker()
        moved: dict[int, list[pa.RecordBatch]] = {}
        for bucket, parts in _by_bucket(_beside_value(batches, moved)):
            # Those of a bucket come before its rows.
            value = moved.pop(bucket, [])
            yield from rows_of(bucket, lambda number, own=(parts, value): self._passed(number, *own))  # type: ignore[misc]
        for bucket, value in moved.items():
            yield from rows_of(bucket, lambda number, own=value: self._passed(number, iter(()), own))  # type: ignore[misc]

    def _passed(
        self, bucket: int, parts: Iterator[Part], moved: Sequence[pa.RecordBatch]
    ) -> Iterator[tuple[int, Passed]]:
        only = None if self.only is None else sorted(self.only[bucket])
        value = value_back(moved) if moved else None
        passed = pass_over(parts, self.known, self.before, self.limit, only, value)
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


def _beside_value(batches: Batches, moved: dict[int, list[pa.RecordBatch]]) -> Batches:
    """Yield rows of the ledger; movements of value are put aside by their buckets."""
    for batch in batches:
        own = pc.fill_null(pc.equal(batch["event_rank"], OF_VALUE), False)
        if not pc.any(own).as_py():
            yield batch
            continue
        value, rest = batch.filter(own), batch.filter(pc.invert(own))
        for bucket in value["bucket"].unique().to_pylist():
            moved.setdefault(bucket, []).append(value.filter(pc.equal(value["bucket"], bucket)))
        if rest.num_rows:
            yield rest


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
                yield TablePart(taken_back([*held, batch.slice(0, room)]))
                held, rows, batch = [], 0, batch.slice(room)
            if batch.num_rows:
                held.append(batch)
                rows += batch.num_rows
        if batch is not None:
            waiting.insert(0, batch)
        if held:
            yield TablePart(taken_back(held))

    while (batch := following()) is not None:
        waiting.insert(0, batch)
        yield (bucket := int(batch["bucket"][0].as_py())), parts(bucket)


__all__ = ["FrameAudit", "audit_frame"]
