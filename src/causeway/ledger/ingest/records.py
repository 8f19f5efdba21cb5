"""Convert records to ledger rows as a mapping says.

Unreadable records get a reason and go to the quarantine.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.core.frame import repeat_text
from causeway.core.text import suggest_known
from causeway.ledger.encodings import drop_unused_names, valid_mask
from causeway.ledger.ingest.chunks import MAX_EXCERPT, BadFile, decompressed_name
from causeway.ledger.ingest.columns import BrokenRecord, RecordColumns
from causeway.ledger.ingest.fields import FieldRows, is_one_of
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.ingest.row_sections import (
    FILE,
    AmountSection,
    EventSection,
    NumberSection,
    TimeSection,
    iterate_field_parts,
    iterate_fields,
)
from causeway.ledger.row_order import LAYOUTS
from causeway.ledger.row_rules import find_large_heights, find_unknown_words
from causeway.ledger.schema import (
    LEDGER_SCHEMA,
    LIMBS,
    QUARANTINE_SCHEMA,
    TABLES,
)

_OF_HEIGHTS = {"height": "revision", "timeout_height": "timeout_revision"}
"""Height columns, and the columns of the revisions that may precede them."""

SIDE_TABLES = tuple(LAYOUTS)
"""Tables beside ``ledger`` that a record may produce."""


@dataclass
class IngestedRecords:
    """Rows of the ledger made of some records, and quarantined records.

    Attributes:
        ledger: Rows of ``ledger``.
        quarantine: One row for each unreadable record.
        records: Number of records.
        taken: Number of records that gave rows.
        ignored: Number of records that the mapping ignores.
        blank: Number of blank lines.
        end: End of the records in their file, in bytes, for uncompressed text.
        beside: Rows of the tables ``SIDE_TABLES``.
        buckets: Bucket numbers and their row counts if ``ledger`` is ordered by bucket; None: in record order.
    """

    ledger: pa.Table
    quarantine: pa.Table
    records: int
    taken: int
    ignored: int
    blank: int
    end: int = 0
    beside: Mapping[str, pa.Table] = dataclasses.field(default_factory=dict)
    buckets: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def moved(self, first: int) -> IngestedRecords:
        """Return the records with their numbers shifted by ``first``."""
        if not first:
            return self
        by = pa.scalar(first, pa.uint64())

        def later(table: pa.Table) -> pa.Table:
            place = table.schema.get_field_index("source_row")
            return table.set_column(place, table.schema.field(place), pc.add(table["source_row"], by))

        beside = {name: later(rows) for name, rows in self.beside.items()}
        return replace(self, ledger=later(self.ledger), quarantine=later(self.quarantine), beside=beside)

    def reasons(self) -> Counter[str]:
        """Return the number of quarantined records by reason."""
        return Counter(self.quarantine["reason"].to_pylist())


@dataclass(frozen=True)
class ReadPlan:
    """Plan to read one file: the sections of its rows, and the required columns."""

    mapping: MappingDocument
    file: str
    events: tuple[EventSection, ...]
    columns: frozenset[str]

    def take(self, records: RecordColumns) -> IngestedRecords:
        """Convert records to rows."""
        return _ingest_records(self, records)


def plan_reading(mapping: MappingDocument, file: str, names: Collection[str] | None) -> ReadPlan:
    """Plan how to read a file.

    Args:
        mapping: Meaning of the records.
        file: Name of the file.
        names: Its columns; None for JSON lines.

    Returns:
        The plan.

    Raises:
        BadFile: The mapping has no event for the file, or a required column is missing.
    """
    name = decompressed_name(file.rsplit("/", 1)[-1])
    every = mapping.rows
    events = tuple(mapping.of(event) for event in every if _is_named(name, event.file))
    if not events:
        allowed = ", ".join(dict.fromkeys(event.file for event in every))
        text = f"{file}: the mapping has no event for a file of this name; it has for: {allowed}"
        raise BadFile(text, "no_event")
    if names is not None:
        events = tuple(event for event in events if not event.optional or _has_columns(event, names)) or events
    events = tuple(_of_columns(_named_by_file(event, name, names or ()), names) for event in events)
    columns: set[str] = set()
    for event in events:
        for field, section in iterate_fields(event):
            for part in iterate_field_parts(section):
                present = [column for column in part.column if names is None or column in names]
                replaceable = part.optional or part.otherwise is not None or bool(part.join)
                if part.column and not present and not replaceable:
                    raise _missing(file, part.column, names or (), f"for {field}")
                columns.update(present)
        columns.update(column for several in event.absent for column in several if names is None or column in names)
        for wanted in ([[each] for each in event.where], event.present):
            for several in wanted:
                if names is not None and not any(column in names for column in several):
                    raise _missing(file, several, names, "to tell events apart")
                columns.update(column for column in several if names is None or column in names)
        for several in event.content:
            present = [column for column in several if names is None or column in names]
            if not present:
                raise _missing(file, several, names or (), "for content")
            columns.update(present)
    columns.update(column for condition in mapping.ignore for column in condition)
    return ReadPlan(mapping, file, events, frozenset(columns))


def _is_named(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name.lower(), pattern.lower())


def _has_columns(event: EventSection, names: Collection[str]) -> bool:
    """Return True if the columns that select an event are present."""
    return all(
        any(column in names for column in several) for several in (*event.present, *([each] for each in event.where))
    )


def _named_by_file(event: EventSection, name: str, names: Collection[str]) -> EventSection:
    """Replace missing columns of an event that default to the file name by the name."""
    stem = name.rsplit(".", 1)[0] or name
    changed = {
        "from_" if field == "from" else field: section.model_copy(
            update={"otherwise": stem}
            if not any(column in names for column in section.column)
            else {"otherwise": None, "optional": True}
        )
        for field, section in iterate_fields(event)
        if section.otherwise == FILE
    }
    return event.model_copy(update=changed) if changed else event


def _of_columns(event: EventSection, names: Collection[str] | None) -> EventSection:
    """Drop the fields of an event whose columns are missing."""
    if names is None:
        return event
    idle = [
        "from_" if field == "from" else field
        for field, section in iterate_fields(event)
        if section.optional and not section.join and section.otherwise is None
        if field not in (*event.needed, "kind")
        if not any(column in names for column in section.column)
    ]
    return event.model_copy(update=dict.fromkeys(idle)) if idle else event


def dictionary_columns(mapping: MappingDocument) -> frozenset[str]:
    """Return the columns that the mapping reads only as names, with few distinct values.

    Args:
        mapping: Meaning of the records.

    Returns:
        Names of columns.
    """
    names: set[str] = set()
    others: set[str] = set()
    for whole in map(mapping.of, mapping.rows):
        names.update(whole.where)
        for field, section in iterate_fields(whole):
            schema = TABLES[whole.table]
            kind = schema.field(field).type if field in schema.names else None
            columns = (column for part in iterate_field_parts(section) for column in part.column)
            (names if kind is not None and pa.types.is_dictionary(kind) else others).update(columns)
    names.update(column for condition in mapping.ignore for column in condition)
    return frozenset(names - others)


def _missing(file: str, wanted: Iterable[str], names: Collection[str], why: str) -> BadFile:
    first, *others = wanted
    also = f" (or {', '.join(others)})" if others else ""
    return BadFile(f"{file}: column{also} {why}: {suggest_known('column', first, sorted(names))}", "column_missing")


def _ingest_records(plan: ReadPlan, records: RecordColumns) -> IngestedRecords:
    count = len(records.rows)
    why = np.zeros(count, dtype=np.uint16)
    reasons: list[tuple[str, str, str]] = []
    known, every = np.zeros(count, dtype=bool), np.ones(count, dtype=bool)
    tables: dict[str, list[tuple[np.ndarray, pa.Table]]] = {event.table: [] for event in plan.events}
    for event in plan.events:
        chosen = np.flatnonzero(
            _matches(event.where, records.values, count)
            & np.logical_and.reduce([_has_value(several, plan, records) for several in event.present] or [every])
            & ~np.logical_or.reduce([_has_value(several, plan, records) for several in event.absent] or [~every])
        )
        if not len(chosen):
            continue
        known[chosen] = True
        values = records.values
        if len(chosen) < count:
            values = {name: column.take(pa.array(chosen)) for name, column in values.items()}
        rows = FieldRows(values, len(chosen), np.zeros(len(chosen), dtype=np.uint16), reasons, plan.mapping.nulls)
        tables[event.table].append((chosen, _event_rows(plan, event, rows, records.rows[chosen])))
        why[chosen] = np.where(why[chosen] == 0, rows.why, why[chosen])
    ignored = np.zeros(count, dtype=bool)
    if not known.all():
        for condition in plan.mapping.ignore:
            ignored |= ~known & _matches(condition, records.values, count)
        reasons.append(("no_event", "", ""))
        why[~known & ~ignored] = len(reasons)
    bad = why != 0
    ledger = _concat_rows(tables.pop("ledger", []), bad, LEDGER_SCHEMA)
    beside = {table: _concat_rows(parts, bad, TABLES[table]) for table, parts in tables.items()}
    broken = [*records.broken, *(_broken(records, row, reasons[why[row] - 1]) for row in np.flatnonzero(bad).tolist())]
    quarantine = _quarantine(plan.file, sorted(broken, key=lambda found: found.row))
    ignored_count = int(ignored.sum())
    good = count - int(bad.sum()) - ignored_count
    if good + len(broken) + ignored_count + records.blank != records.records:
        raise AssertionError(f"{plan.file}: records that are neither taken nor in quarantine")
    return IngestedRecords(ledger, quarantine, records.records, good, ignored_count, records.blank, beside=beside)


def _concat_rows(tables: list[tuple[np.ndarray, pa.Table]], bad: np.ndarray, schema: pa.Schema) -> pa.Table:
    """Concatenate the rows of all events without quarantined records and unused names."""
    parts = [
        _with_own_names(rows.filter(pa.array(~bad[chosen])) if bad[chosen].any() else rows) for chosen, rows in tables
    ]
    whole = pa.concat_tables(parts) if parts else schema.empty_table()
    return pa.Table.from_arrays(whole.columns, schema=schema)


def _with_own_names(rows: pa.Table) -> pa.Table:
    """Return rows without unused dictionary names."""
    columns = [
        pa.chunked_array([drop_unused_names(chunk) for chunk in column.chunks], column.type)
        if pa.types.is_dictionary(column.type)
        else column
        for column in rows.columns
    ]
    return pa.table(columns, schema=rows.schema)


def _matches(condition: Mapping[str, list[str]], values: Mapping[str, pa.Array], count: int) -> np.ndarray:
    found = np.ones(count, dtype=bool)
    for name, allowed in condition.items():
        if name not in values:
            return np.zeros(count, dtype=bool)
        found &= is_one_of(values[name], allowed)
    return found


def _has_value(names: Iterable[str], plan: ReadPlan, records: RecordColumns) -> np.ndarray:
    """Return a mask of records with a value in one of some columns."""
    found = np.zeros(len(records.rows), dtype=bool)
    for name in names:
        if name in records.values:
            column = records.values[name]
            found |= valid_mask(column) & ~_is_empty(column, plan.mapping.nulls)
    return found


def _is_empty(column: pa.Array, nulls: list[str]) -> np.ndarray:
    """Return a mask of texts that mean "no value"."""
    if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
        return is_one_of(column, ["", *nulls])
    return np.zeros(len(column), dtype=bool)


def _event_rows(plan: ReadPlan, event: EventSection, rows: FieldRows, numbers: np.ndarray) -> pa.Table:
    """Build the rows of a section from some records."""
    columns_by_name: dict[str, pa.Array] = {}
    for name, section in iterate_fields(event):
        if isinstance(section, TimeSection):
            columns_by_name[name] = rows.time(name, section)
        elif name in _OF_HEIGHTS:
            columns_by_name[name], read = rows.heights(name, section)
            if read is not None:
                revision = _OF_HEIGHTS[name]
                columns_by_name[revision] = (
                    pc.coalesce(columns_by_name[revision], read) if revision in columns_by_name else read
                )
        elif isinstance(section, AmountSection):
            columns_by_name.update(zip(LIMBS, rows.amount(section), strict=True))
        elif name == "code":
            columns_by_name[name] = rows.code(name, section)
        elif isinstance(section, NumberSection):
            columns_by_name[name] = rows.u64(name, section)
        else:
            columns_by_name[name] = rows.texts(name, section, needed=name in (*event.needed, "kind"))
        if name in event.needed and isinstance(section, NumberSection):
            rows.refuse(~valid_mask(columns_by_name[name]), "missing", name, (section.column or ["text"])[0])
    _check_revisions(rows, event, columns_by_name)
    _drop_no_timeouts(columns_by_name)
    _check_words(rows, columns_by_name, event)
    if event.table == "ledger":
        _check_names(rows, columns_by_name)
    if event.content:
        # Leading zeros are significant in amounts that are not decimal.
        amount = event.amount.column if event.amount is not None and event.amount.base in (None, 10) else []
        columns_by_name["payload_hash"] = rows.payload_hash(event.content, {*amount}, plan.mapping.hex)
    columns_by_name["stated_by"] = repeat_text(plan.mapping.stated_by, rows.count)
    columns_by_name["source_file"] = repeat_text(plan.file, rows.count)
    columns_by_name["source_row"] = pa.array(numbers)
    if "kind" not in columns_by_name:
        columns_by_name["kind"] = repeat_text("request", rows.count)
    columns = []
    schema = TABLES[event.table]
    for field in schema:
        column = columns_by_name.get(field.name)
        if column is None:
            column = pa.nulls(rows.count, field.type)
        elif pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        elif column.type != field.type:
            column = column.cast(field.type)
        columns.append(column)
    # Rows with a forbidden null are quarantined later, so the columns stay nullable here.
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    return pa.table(columns, schema=nullable)


def _check_revisions(rows: FieldRows, event: EventSection, columns: Mapping[str, pa.Array]) -> None:
    """Refuse rows whose height or revision is too large to compare across revisions."""
    for column, large, _ in find_large_heights(columns):
        # A revision may be a part of the height.
        section = getattr(event, column) or getattr(event, column.replace("revision", "height"))
        rows.refuse(large, "too_large", column, (section.column or ["text"])[0])


def _drop_no_timeouts(by_name: dict[str, pa.Array]) -> None:
    """Replace time-outs that mean "none" with nulls: height 0 of revision 0, and time 0."""
    for names in (("timeout_height", "timeout_revision"), ("timeout_time",)):
        columns = {name: by_name[name] for name in names if name in by_name}
        zeros = [pc.fill_null(pc.equal(each, pa.scalar(0, each.type)), True) for each in columns.values()]
        zero = np.logical_and.reduce([np.asarray(each) for each in zeros]) if zeros else np.zeros(0, dtype=bool)
        if zero.any():
            for name, column in columns.items():
                by_name[name] = pc.if_else(pa.array(zero), pa.scalar(None, column.type), column)


def _check_words(rows: FieldRows, columns: Mapping[str, pa.Array], event: EventSection) -> None:
    """Refuse rows with an unknown event, kind or status, and reverted rows that name no event."""
    for name, unknown, _ in find_unknown_words(columns):
        section = getattr(event, name)
        origin = section.column[0] if section is not None and section.column else "text"
        rows.refuse(unknown, "not_allowed" if name in ("kind", "status") else "not_an_event", name, origin)


def _check_names(rows: FieldRows, columns: Mapping[str, pa.Array]) -> None:
    """Refuse rows without index and ``message_id``."""
    seen = np.zeros(rows.count, dtype=bool)
    for name in ("index", "message_id"):
        column = columns.get(name)
        if column is not None:
            seen |= np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
    rows.refuse(~seen, "missing", "index", "")


def _broken(records: RecordColumns, row: int, reason: tuple[str, str, str]) -> BrokenRecord:
    texts = {name: _text_of(column[row]) for name, column in records.values.items()}
    kind, field, column = reason
    value = texts.get(column)
    text = json.dumps(texts, ensure_ascii=False)[:MAX_EXCERPT]
    return BrokenRecord(
        int(records.rows[row]), kind, text, field or None, None if value is None else value[:MAX_EXCERPT]
    )


def _text_of(value: pa.Scalar) -> str | None:
    """Return a value as a truncated text; a time outside the calendar as a number."""
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(value.type):
        try:
            return str(value.as_py())
        except (OverflowError, ValueError):
            return str(value.value)
    return str(value.as_py())[:MAX_EXCERPT]


def _quarantine(file: str, broken: list[BrokenRecord]) -> pa.Table:
    rows = {
        "source_file": [file] * len(broken),
        "source_row": [found.row for found in broken],
        "reason": [found.reason for found in broken],
        "field": [found.field for found in broken],
        "value": [found.value for found in broken],
        "row": [found.text for found in broken],
    }
    columns = []
    for field in QUARANTINE_SCHEMA:
        plainly = pa.string() if pa.types.is_dictionary(field.type) else field.type
        columns.append(pa.array(rows[field.name], plainly).cast(field.type))
    return pa.table(columns, schema=QUARANTINE_SCHEMA)


__all__ = ["SIDE_TABLES", "IngestedRecords", "ReadPlan", "dictionary_columns", "plan_reading"]
