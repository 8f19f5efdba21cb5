"""Commit new input files to a ledger, and suggest a fix if no record could be ingested.

One call of ``commit_files`` is one commit, regardless of the task runner. The table ``state`` carries facts from
earlier commits: block bounds and lane counterparties. ``suggest_fix`` inspects the beginning of a JSON file: it is
parsed as one document first, then line by line, and the mapping's names are compared with those of the records.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.core.text import format_value, shorten_name
from causeway.ledger.commits import STATE_SCHEMA, STATE_TABLE, InputFile, LedgerCommit
from causeway.ledger.ingest.chunks import BadFile, ByteStream, open_decompressed
from causeway.ledger.ingest.columns import fold_name
from causeway.ledger.ingest.links import LaneEnd, resolve_links
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.ingest.reader import FilePart, is_appendable_text, is_divisible
from causeway.ledger.ingest.records import SIDE_TABLES
from causeway.ledger.ingest.row_sections import READINGS, EventSection, iterate_field_parts, iterate_fields
from causeway.ledger.ingest.sources import PendingInput, SourceFile
from causeway.ledger.ingest.tasks import FileSlice, IngestJob, Runner, StagedRows
from causeway.ledger.ingest.windows import ObservedWindows, build_promises
from causeway.ledger.maintenance import split_by_bucket
from causeway.ledger.schema import QUARANTINE_SCHEMA
from causeway.ledger.sorted_runs import SpooledRun, fill_columns, read_run_bucket, sort_bucket_rows
from causeway.ledger.store import LOOSE_TABLES, Ledger, LedgerWriter, StoredFile
from causeway.ledger.windows import HeightBounds

__all__ = ["CommitResult", "IngestState", "NothingIngested", "commit_files", "suggest_fix"]


@dataclass(frozen=True)
class IngestState:
    """Facts from earlier commits that later ones need.

    Attributes:
        bounds: Earliest and latest block of each chain.
        counterparties: Chain at the other end of each lane end.
    """

    bounds: HeightBounds = field(default_factory=HeightBounds)
    counterparties: Mapping[LaneEnd, str | None] = field(default_factory=dict)

    def table(self) -> pa.Table:
        """Return the state as rows (``STATE_SCHEMA``)."""
        rows: list[tuple[Any, ...]] = []
        for what, blocks in (("first_block", self.bounds.first), ("last_block", self.bounds.last)):
            rows += [(what, chain, *blocks[chain], None) for chain in sorted(blocks)]
        ends = {json.dumps(end): chain for end, chain in self.counterparties.items()}
        rows += [("counterparty", end, None, None, ends[end]) for end in sorted(ends)]
        return pa.table([[row[at] for row in rows] for at in range(len(STATE_SCHEMA))], schema=STATE_SCHEMA)

    @classmethod
    def of(cls, table: pa.Table) -> IngestState:
        """Read the state from rows."""
        blocks: dict[str, dict[str, tuple[int, int]]] = {"first_block": {}, "last_block": {}}
        counterparties: dict[LaneEnd, str | None] = {}
        for row in table.to_pylist():
            if row["what"] == "counterparty":
                protocol, role, chain, lane = json.loads(row["key"])
                counterparties[protocol, role, chain, lane] = row["value"]
            else:
                blocks[row["what"]][row["key"]] = row["time"], row["height"]
        return cls(HeightBounds(blocks["first_block"], blocks["last_block"]), counterparties)


MAX_DOCUMENT = 64 << 20
"""Maximum size of a file parsed as one JSON document, in bytes."""

_LINES, _DEPTH, _NAMED = 200, 6, 3
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def suggest_fix(stream: ByteStream, file: str, size: int, mapping: MappingDocument) -> str | None:
    """Suggest a fix for a file without any usable record.

    Args:
        stream: Its bytes, from the beginning.
        file: Its name.
        size: Its length in bytes.
        mapping: The mapping that was applied.

    Returns:
        A hint of one line, or None. Only JSON files are inspected.
    """
    if mapping.file_format(file) != "jsonl":
        return None
    content = _read_beginning(open_decompressed(stream, file, size))
    lines = [line for line in content.split(b"\n")[:_LINES] if line.strip()]
    records = [found for line in lines if isinstance(found := _parse_json(line), dict)]
    document = _parse_json(content)
    if document is not None and (len(lines) > 1 or not _is_record(document, mapping)):
        return _document_hint(document, file)
    if records:
        return _names_hint(records, file, mapping)
    if lines and b"{" in lines[0] and isinstance(_parse_json(lines[0][lines[0].index(b"{") :]), dict):
        return f"{file} has text before the JSON object of each line; cut it off"
    return f"{file} is read as JSON lines: one object a line"


def _read_beginning(stream: ByteStream) -> bytes:
    parts, remaining = [], MAX_DOCUMENT
    while remaining and (part := stream.read(min(remaining, 1 << 20))):
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _is_record(document: Any, mapping: MappingDocument) -> bool:
    """Return True if a document has a column of the mapping, or no arrays of objects."""
    if not isinstance(document, dict):
        return False
    return any(_nested_value(document, column) is not None for column in mapping.columns()) or not list(
        _arrays(document)
    )


def _document_hint(document: Any, file: str) -> str:
    """Return the hint for a file that is one JSON document, with its arrays of objects."""
    text = f"{file} is one JSON document; JSON lines have one object a line"
    arrays = sorted(_arrays(document), key=lambda each: -each[1])[:_NAMED]
    if not arrays:
        return text
    named = ", ".join(f"{shorten_name(path)} ({count:,} objects)" for path, count in arrays)
    return f"{text}; its arrays: {named}; for example: jq -c '{arrays[0][0]}[]' {file} > records.jsonl"


def _arrays(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
    """Yield the jq path and the length of each array of objects in a document."""
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        yield path or ".", len(value)
    elif isinstance(value, dict) and depth < _DEPTH:
        for key, inner in value.items():
            step = f".{key}" if _PLAIN_KEY.fullmatch(key) else f"{'' if path else '.'}[{json.dumps(key)}]"
            yield from _arrays(inner, path + step, depth + 1)


def _names_hint(records: list[dict[str, Any]], file: str, mapping: MappingDocument) -> str | None:
    """Return the hint for names of the mapping that no record has, or unmatched event values."""
    known = sorted({path for record in records for path in _paths(record)})
    available = {fold_name(path) for path in known} if mapping.names == "loose" else {*known}
    for event in map(mapping.of, mapping.rows):
        for use, columns in _required_columns(event):
            if not any((fold_name(each) if mapping.names == "loose" else each) in available for each in columns):
                return f"no record of {file} has {columns[0]} ({use}); {_nearest(columns[0], known)}"
    for event in mapping.events:
        for column, allowed in event.where.items():
            values = list(dict.fromkeys(format_value(_nested_value(record, column)) for record in records))[:_NAMED]
            if not any(str(_nested_value(record, column)) in allowed for record in records):
                return f"events of the mapping want {column} = {', '.join(allowed)}; {file} has {', '.join(values)}"
    return None


def _required_columns(event: EventSection) -> Iterator[tuple[str, list[str]]]:
    """Yield the required columns of an event with their use; any one of a list suffices."""
    for column in event.where:
        yield "where", [column]
    for name, parts in iterate_fields(event):
        for part in iterate_field_parts(parts):
            if part.column and not (part.optional or part.join or part.otherwise is not None):
                yield name, part.column


def _nearest(name: str, known: list[str]) -> str:
    lower = {path.lower(): path for path in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1) or [
        path for path in lower if path.rsplit(".", 1)[-1] == name.lower().rsplit(".", 1)[-1]
    ]
    return f"did you mean {lower[near[0]]}?" if near else f"it has {', '.join(known[:8])}"


def _paths(value: dict[str, Any], before: str = "") -> Iterable[str]:
    for key, inner in value.items():
        yield before + key
        if isinstance(inner, dict):
            yield from _paths(inner, f"{before}{key}.")


def _nested_value(record: Any, path: str) -> Any:
    for step in path.split("."):
        record = record.get(step) if isinstance(record, dict) else None
    return record


COUNT_NAMES = {"value": "movements", "headers": "headers", "watermarks": "watermarks"}
"""Names of the row counts of the tables beside ``ledger`` in commits."""

LOOSE_ROWS = 1 << 10
"""Minimum number of rows a bucket for one file a bucket; smaller commits write one file for all."""


class NothingIngested(InvalidInput):
    """No record of the input could be ingested; nothing is committed.

    Args:
        text: The first record with the most frequent reason.
        hint: A suggested fix, or None.
        reasons: Number of refused records by reason.
    """

    def __init__(self, text: str, hint: str | None, reasons: Mapping[str, int]) -> None:
        super().__init__(text)
        self.hint, self.reasons = hint, dict(reasons)


CHANGED_FILE = ("changed", "gone")
"""Reasons of a file that changed while it was read, so that its content is unknown."""

CommitProgress = Callable[[int, int], None]
"""Callback with the number of bytes read, and their total."""


@dataclass
class CommitResult:
    """Result of a commit of files.

    Attributes:
        commit: The commit, or None if nothing was new.
        files: Number of ingested files.
        rows: Number of rows of ``ledger``.
        repeated: Number of duplicate rows that were dropped.
        beside: Number of rows of each other table.
        counts: Number of records by outcome.
        reasons: Number of refused records by reason.
        failed: Reason and text of each unreadable file.
        inputs: Inputs of the commit.
    """

    commit: LedgerCommit | None
    files: int = 0
    rows: int = 0
    repeated: int = 0
    beside: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failed: dict[str, tuple[str, str]] = field(default_factory=dict)
    inputs: list[InputFile] = field(default_factory=list)


def commit_files(
    ledger: Ledger,
    takes: Sequence[PendingInput],
    mapping: MappingDocument,
    known: str,
    runner: Runner,
    *,
    strict: bool,
    patient: Collection[str] = (),
    progress: CommitProgress | None = None,
    digest: Callable[[PendingInput, int], str] | None = None,
) -> CommitResult:
    """Ingest pending input into a ledger, as one commit.

    Args:
        ledger: The ledger as of its last commit.
        takes: Pending input of each file.
        mapping: Meaning of the records.
        known: Identity of the mapping.
        runner: Runs the tasks.
        strict: Raise for an unreadable file. Otherwise it goes to the table ``quarantine``.
        patient: Names of files that may still be incomplete; they are not quarantined.
        progress: Called with the progress, from any thread.
        digest: Returns the SHA-256 of a file up to a position, for files that are ingested in part.

    Returns:
        The result; without anything new there is no commit.

    Raises:
        InvalidInput: A file is unreadable, or no record could be ingested. Nothing is committed.
        LedgerDamaged: The ledger is damaged. Nothing is committed.
        CommitLost: Another process committed.
    """
    with LedgerWriter(ledger) as writer:
        job = IngestJob(ledger.storage, mapping, ledger.buckets, writer.prefix)
        return _Committer(writer, job, known, runner, frozenset(patient), progress, digest).run(list(takes), strict)


@dataclass
class _Committer:
    writer: LedgerWriter
    job: IngestJob
    known: str
    runner: Runner
    patient: frozenset[str]
    progress: CommitProgress | None
    digest: Callable[[PendingInput, int], str] | None
    counterparties: Mapping[LaneEnd, str | None] = field(default_factory=dict)

    def run(self, takes: list[PendingInput], strict: bool) -> CommitResult:
        failed: dict[str, tuple[str, str]] = {}
        while True:
            left = [take for take in takes if take.source.name not in failed]
            staged, digests, wrong = self._stage(left)
            if not wrong:
                break
            for part in staged:
                for file in part.quarantine:
                    self.job.lake.remove(file.path)
            if strict:
                raise InvalidInput(wrong[min(wrong)][1])
            failed |= wrong  # retry without them: their rows may be among the staged ones
        bad = {name: why for name, why in failed.items() if why[0] not in CHANGED_FILE and name not in self.patient}
        inputs = [each for take in left if (each := self._input(take, staged, digests)) is not None]
        inputs += [each for take in takes if (each := self._bad_input(take, bad)) is not None]
        if not inputs and not bad:
            return CommitResult(None, 0, failed=failed)
        if strict:
            self._require_ingested(staged, left)
        return self._commit(staged, inputs, failed, bad)

    def _require_ingested(self, staged: list[StagedRows], takes: list[PendingInput]) -> None:
        """Raise ``NothingIngested`` if all records were refused."""
        counts, reasons = Counter[str](), Counter[str]()
        for part in staged:
            counts.update(part.counts)
            reasons.update(part.reasons)
        if counts["taken"] or not reasons:
            return
        most = max(reasons.values())
        reason = min(each for each, count in reasons.items() if count == most)
        aside = [table for part in staged for table in part.aside]
        for file in (file for part in staged for file in part.quarantine):
            aside.append(self.writer.ledger.read(file))
            self.job.lake.remove(file.path)
        rows = [row for table in aside for row in table.filter(pc.equal(table["reason"], reason)).to_pylist()]
        first = min(rows, key=lambda row: (row["source_file"], row["source_row"]))
        location = [
            first["source_file"],
            f"record {first['source_row']}",
            *([first["field"]] if first["field"] else []),
        ]
        value = "" if first["value"] is None else f" {format_value(first['value'])}"
        counted = ", ".join(f"{each} {count:,}" for each, count in sorted(reasons.items()))
        text = f"{': '.join(location)}: {reason}{value}; 0 of {counts['records']:,} records taken ({counted})"
        source = next(take.source for take in takes if take.source.name == first["source_file"])
        hint = READINGS.get(reason)
        if hint is None:
            with source.open() as stream, source.convert_errors():
                hint = suggest_fix(stream, source.name, source.size, self.job.mapping)
        raise NothingIngested(text, hint, reasons)

    def _stage(self, takes: list[PendingInput]) -> tuple[list[StagedRows], dict[str, str], dict[str, tuple[str, str]]]:
        """Stage the rows of files; return them, the files' digests and the unreadable files."""
        mapping, wrong = self.job.mapping, dict[str, tuple[str, str]]()
        slices: list[FileSlice] = []
        cut = [take for take in takes if not take.begin and take.final and self._is_cut(take.source)]
        slices += self.runner.slices(self.job, [take.source for take in cut])
        for take in takes:
            if take not in cut:
                part = FilePart(take.begin, take.source.size, take.first, None, take.final)
                if not is_appendable_text(take.source.path, mapping):
                    part = FilePart()
                slices.append(FileSlice(take.source, part, take.source.size - take.begin))
        wanted = [take.source for take in takes if take.digest is None and (take.final or self.digest is None)]
        staged, found = self.runner.staged(self._link(slices), slices, wanted, self._progress_counter(slices))
        for output in staged:
            wrong.update({name: (reason, text) for name, reason, text in sorted(output.failed)})
        digests = {}
        for source, digest in zip(wanted, found, strict=True):
            if isinstance(digest, str):
                digests[source.name] = digest
            else:
                wrong.setdefault(source.name, digest)
        for take in takes:
            try:
                take.source.check_unchanged(appended=is_appendable_text(take.source.path, mapping))
            except BadFile as error:
                wrong.setdefault(take.source.name, (error.reason, str(error)))
        return staged, digests, wrong

    def _link(self, slices: list[FileSlice]) -> IngestJob:
        """Return the job with links between records, if the mapping needs them."""
        before = self.counterparties = IngestState.of(self.writer.ledger.table(STATE_TABLE)).counterparties
        wanted = self.job.mapping.links
        if not wanted:
            return self.job
        links = resolve_links(wanted, self.runner.indexed(self.job, slices), before)
        self.counterparties = {**before, **links.counterparties}
        return replace(self.job, links=links)

    def _is_cut(self, source: SourceFile) -> bool:
        return source.size > self.job.part_bytes and is_divisible(source.path)

    def _progress_counter(self, slices: list[FileSlice]) -> Callable[[int], None] | None:
        progress = self.progress
        if progress is None:
            return None
        total, done = sum(each.bytes for each in slices), 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            progress(min(done, total), total)

        return advance

    def _input(self, take: PendingInput, staged: list[StagedRows], digests: dict[str, str]) -> InputFile | None:
        """Return the ingested part of a file as an input, or None if there is none yet."""
        source, name = take.source, take.source.name
        records = take.first + sum(part.records.get(name, 0) for part in staged)
        text = is_appendable_text(source.path, self.job.mapping)
        end = max([take.begin, *(part.ends.get(name, 0) for part in staged)])
        size = source.size if take.final else end
        if not take.final and size == take.begin:
            return None
        last = next((part for part in staged if part.ends.get(name, -1) == end), None)
        whole = not take.final or (text and (last is None or last.whole[name]) and _ends_line(source))
        digest = take.digest or digests.get(name) or (self.digest(take, size) if self.digest is not None else "")
        return InputFile(name, size, digest, records, self.known, whole, source.modified, take.begin)

    def _bad_input(self, take: PendingInput, bad: dict[str, tuple[str, str]]) -> InputFile | None:
        """Return an unreadable file as an input, so that it is not retried unchanged."""
        if take.source.name not in bad:
            return None
        try:
            digest = take.digest or take.source.digest().hexdigest()
        except BadFile:
            return None
        return InputFile(take.source.name, take.source.size, digest, 0, self.known, False, take.source.modified, 0)

    def _commit(
        self,
        staged: list[StagedRows],
        inputs: list[InputFile],
        failed: dict[str, tuple[str, str]],
        bad: dict[str, tuple[str, str]],
    ) -> CommitResult:
        writer, ledger = self.writer, self.writer.ledger
        files = len(inputs) - len({each.file for each in inputs} & {*bad})
        result = CommitResult(None, files, failed=failed, inputs=inputs)
        runs = [run for part in staged for run in part.runs]
        taken = sum(part.rows for part in staged)
        result.rows = self._write_sorted(runs, taken)
        result.repeated = taken - result.rows
        for table in SIDE_TABLES:
            own = [run for part in staged for run in part.beside if run.table == table]
            result.beside[table] = self._write_sorted(own, sum(part.beside_rows[table] for part in staged))
        seen = ObservedWindows(self.job.mapping)
        observed, promised = ledger.table("observed"), ledger.table("promises")
        seen.resume(observed)
        before = ledger.table(STATE_TABLE)
        seen.bounds.merge(IngestState.of(before).bounds)
        aside = [table for part in staged for table in part.aside]
        for part in staged:
            seen.merge_observed(part.seen)
            result.counts.update(part.counts)
            result.reasons.update(part.reasons)
            for file in part.quarantine:
                writer.add(file)
        if aside or bad:
            rows = pa.concat_tables([QUARANTINE_SCHEMA.empty_table(), *aside, _bad_files(bad)]).unify_dictionaries()
            writer.write("quarantine", rows)
        now = seen.observed(observed)
        if not now.equals(observed):
            writer.write("observed", now)
        now = build_promises(self.job.mapping, promised, seen.bounds.restarted())
        if not now.equals(promised):
            writer.write("promises", now)
        now = IngestState(seen.bounds, self.counterparties).table()
        if not now.equals(before):
            writer.write(STATE_TABLE, now)
        counts = {
            **result.counts,
            "rows": result.rows,
            **{COUNT_NAMES[table]: rows for table, rows in result.beside.items()},
            "repeated": result.repeated,
            "files": files,
            "failed": len(bad),
        }
        result.commit = writer.commit(inputs, {name: count for name, count in counts.items() if count})
        return result

    def _write_sorted(self, runs: list[SpooledRun], rows: int) -> int:
        """Write sorted rows as files of the ledger; return their number without duplicates."""
        return write_runs(self.writer, runs, rows, lambda buckets: self.runner.sorted(self.job, buckets, runs))


def write_runs(
    writer: LedgerWriter, runs: list[SpooledRun], rows: int, sort: Callable[[list[int]], Iterable[StoredFile]]
) -> int:
    """Write sorted runs as files of the ledger; few rows become one file for all buckets.

    Args:
        writer: Writer of the commit.
        runs: Runs of one table.
        rows: Number of rows.
        sort: Writes the rows of buckets, the largest first, and returns the files.

    Returns:
        Number of rows without duplicates.
    """
    storage, buckets = writer.ledger.storage, writer.ledger.buckets
    if not rows:
        return 0
    table = runs[0].table
    loose = table in LOOSE_TABLES and buckets > 1 and rows < LOOSE_ROWS * buckets
    if loose and all(run.rows is not None for run in runs):
        parts = [fill_columns(read_run_bucket(storage, run, bucket), table) for run in runs for bucket in run.buckets]
        return writer.write(table, split_by_bucket(sort_bucket_rows(pa.concat_tables(parts), table), buckets, table))
    sizes: Counter[int] = Counter()
    for run in runs:
        sizes.update(dict(zip(run.buckets, run.counts, strict=True)))
    files = list(sort(sorted(sizes, key=lambda bucket: (-sizes[bucket], bucket))))
    for file in files:
        writer.add(file)
    return sum(file.rows for file in files)


def _ends_line(source: SourceFile) -> bool:
    """Return True if a text file ends with a line end."""
    if not source.size:
        return False
    with source.open() as stream, source.convert_errors():
        stream.seek(source.size - 1)
        return stream.read(1) == b"\n"


def _bad_files(bad: dict[str, tuple[str, str]]) -> pa.Table:
    """Return unreadable files as rows of the quarantine."""
    rows = [
        {"source_file": name, "source_row": None, "reason": reason, "field": None, "value": None, "row": text}
        for name, (reason, text) in sorted(bad.items())
    ]
    columns = []
    for each in QUARANTINE_SCHEMA:
        plain = pa.string() if pa.types.is_dictionary(each.type) else each.type
        columns.append(pa.array([row[each.name] for row in rows], plain).cast(each.type))
    return pa.table(columns, schema=QUARANTINE_SCHEMA)
