"""What is new in files becomes one commit of a ledger, whoever runs the tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from causeway.ingest.amounts import READINGS
from causeway.ingest.chunks import BadFile
from causeway.ingest.hints import hint_for
from causeway.ingest.links import End, resolve
from causeway.ingest.mapping import MappingDocument
from causeway.ingest.reader import Part, is_divisible, is_text
from causeway.ingest.taking import BESIDE
from causeway.ingest.windows import Seen, promises
from causeway.ledger.schema import QUARANTINE_SCHEMA
from causeway.model.errors import InvalidInput
from causeway.model.text import shown
from causeway.pipeline.ledger_commits import STAGING, STATE, Input, LedgerCommit
from causeway.pipeline.ledger_runners import Runner
from causeway.pipeline.ledger_runs import Run, filled, in_order, rows_of
from causeway.pipeline.ledger_sources import Source, Take
from causeway.pipeline.ledger_state import State
from causeway.pipeline.ledger_store import LOOSE_TABLES, Ledger, LedgerWriter, StoredFile
from causeway.pipeline.ledger_taking import Job, Slice, Staged
from causeway.pipeline.ledger_upkeep import in_buckets

COUNTED = {"value": "movements", "headers": "headers", "watermarks": "watermarks"}
"""The names by which rows of the tables beside ``ledger`` are counted in commits."""

LOOSE_ROWS = 1 << 10
"""A commit of fewer rows a bucket writes one file for all buckets."""


class NothingTaken(InvalidInput):
    """No record of the input could be taken; nothing is committed.

    Args:
        text: The first record with the commonest reason.
        hint: What may be wrong with its file, if that is known.
        reasons: How many records were refused for each reason.
    """

    def __init__(self, text: str, hint: str | None, reasons: Mapping[str, int]) -> None:
        super().__init__(text)
        self.hint, self.reasons = hint, dict(reasons)


CHANGED = ("changed", "gone")
"""Reasons that a file is not read as it was: nothing is known of what it holds."""

Progress = Callable[[int, int], None]
"""Told how many bytes were read, and of how many."""


@dataclass
class Done:
    """What a commit has of files. ``beside``: how many rows of the tables beside ``ledger``; ``failed``: by file that
    cannot be read, the reason and a text."""

    commit: LedgerCommit | None
    files: int = 0
    rows: int = 0
    repeated: int = 0
    beside: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failed: dict[str, tuple[str, str]] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)


def commit_files(
    ledger: Ledger,
    takes: Sequence[Take],
    mapping: MappingDocument,
    known: str,
    runner: Runner,
    *,
    strict: bool,
    patient: Collection[str] = (),
    progress: Progress | None = None,
    digest: Callable[[Take, int], str] | None = None,
) -> Done:
    """Take what is new in files into a ledger, as one commit.

    Args:
        ledger: as of its last commit.
        takes: what is new in which files.
        mapping: what their records mean; ``known``: its identity.
        runner: runs the tasks.
        strict: whether a file that cannot be read ends it; if not, it is set aside in the table ``quarantine``, and the
            others are taken.
        patient: names of files that may be whole later: they are not set aside.
        progress: is told how far it is, from any thread.
        digest: returns the SHA-256 of a file up to a place, for files of which not all is taken.

    Without anything new there is no commit. Raises ``InvalidInput``, ``LedgerDamaged``: nothing is committed then, and
    ``CommitLost`` when another process committed.
    """
    writer = LedgerWriter(ledger)
    job = Job(ledger.storage, mapping, ledger.buckets, writer.prefix)
    try:
        return _Committing(writer, job, known, runner, frozenset(patient), progress, digest).run(list(takes), strict)
    except BaseException:
        writer.abandon()
        raise
    finally:
        if writer.prefix in ledger.storage.list(STAGING):
            ledger.storage.remove_folder(job.folder)


@dataclass
class _Committing:
    writer: LedgerWriter
    job: Job
    known: str
    runner: Runner
    patient: frozenset[str]
    progress: Progress | None
    digest: Callable[[Take, int], str] | None
    counterparties: Mapping[End, str | None] = field(default_factory=dict)

    def run(self, takes: list[Take], strict: bool) -> Done:
        failed: dict[str, tuple[str, str]] = {}
        while True:
            left = [take for take in takes if take.source.name not in failed]
            staged, digests, wrong = self._staged(left)
            if not wrong:
                break
            for part in staged:
                for file in part.quarantine:
                    self.job.lake.remove(file.path)
            if strict:
                raise InvalidInput(wrong[min(wrong)][1])
            failed |= wrong  # once more, without them: some of their rows may be among the others
        bad = {name: why for name, why in failed.items() if why[0] not in CHANGED and name not in self.patient}
        inputs = [each for take in left if (each := self._input(take, staged, digests)) is not None]
        inputs += [each for take in takes if (each := self._bad_input(take, bad)) is not None]
        if not inputs and not bad:
            return Done(None, 0, failed=failed)
        if strict:
            self._require_taken(staged, left)
        return self._committed(staged, inputs, failed, bad)

    def _require_taken(self, staged: list[Staged], takes: list[Take]) -> None:
        """Raise ``NothingTaken`` if records were refused, and none was taken."""
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
        where = [first["source_file"], f"record {first['source_row']}", *([first["field"]] if first["field"] else [])]
        value = "" if first["value"] is None else f" {shown(first['value'])}"
        counted = ", ".join(f"{each} {count:,}" for each, count in sorted(reasons.items()))
        text = f"{': '.join(where)}: {reason}{value}; 0 of {counts['records']:,} records taken ({counted})"
        source = next(take.source for take in takes if take.source.name == first["source_file"])
        hint = READINGS.get(reason)
        if hint is None:
            with source.open() as stream, source.said():
                hint = hint_for(stream, source.name, source.size, self.job.mapping)
        raise NothingTaken(text, hint, reasons)

    def _staged(self, takes: list[Take]) -> tuple[list[Staged], dict[str, str], dict[str, tuple[str, str]]]:
        """Return what was made of files, their digests, and those that cannot be read."""
        mapping, wrong = self.job.mapping, dict[str, tuple[str, str]]()
        slices: list[Slice] = []
        cut = [take for take in takes if not take.begin and take.final and self._is_cut(take.source)]
        slices += self.runner.slices(self.job, [take.source for take in cut])
        for take in takes:
            if take not in cut:
                part = Part(take.begin, take.source.size, take.first, None, take.final)
                if not is_text(take.source.path, mapping):
                    part = Part()
                slices.append(Slice(take.source, part, take.source.size - take.begin))
        wanted = [take.source for take in takes if take.digest is None and (take.final or self.digest is None)]
        staged, found = self.runner.staged(self._linked(slices), slices, wanted, self._told(slices))
        for made in staged:
            wrong.update({name: (reason, text) for name, reason, text in sorted(made.failed)})
        digests = {}
        for source, digest in zip(wanted, found, strict=True):
            if isinstance(digest, str):
                digests[source.name] = digest
            else:
                wrong.setdefault(source.name, digest)
        for take in takes:
            try:
                take.source.check_unchanged(appended=is_text(take.source.path, mapping))
            except BadFile as error:
                wrong.setdefault(take.source.name, (error.reason, str(error)))
        return staged, digests, wrong

    def _linked(self, slices: list[Slice]) -> Job:
        """Return the job with what the records of all slices tell of each other, if the mapping asks for it."""
        before = self.counterparties = State.of(self.writer.ledger.table(STATE)).counterparties
        wanted = self.job.mapping.links
        if not wanted:
            return self.job
        links = resolve(wanted, self.runner.indexed(self.job, slices), before)
        self.counterparties = {**before, **links.counterparties}
        return replace(self.job, links=links)

    def _is_cut(self, source: Source) -> bool:
        return source.size > self.job.part_bytes and is_divisible(source.path)

    def _told(self, slices: list[Slice]) -> Callable[[int], None] | None:
        progress = self.progress
        if progress is None:
            return None
        total, done = sum(each.bytes for each in slices), 0

        def told(count: int) -> None:
            nonlocal done
            done += count
            progress(min(done, total), total)

        return told

    def _input(self, take: Take, staged: list[Staged], digests: dict[str, str]) -> Input | None:
        """Return what was taken of a file, None: nothing yet."""
        source, name = take.source, take.source.name
        records = take.first + sum(part.records.get(name, 0) for part in staged)
        text = is_text(source.path, self.job.mapping)
        end = max([take.begin, *(part.ends.get(name, 0) for part in staged)])
        size = source.size if take.final else end
        if not take.final and size == take.begin:
            return None
        last = next((part for part in staged if part.ends.get(name, -1) == end), None)
        whole = not take.final or (text and (last is None or last.whole[name]) and _ends_line(source))
        digest = take.digest or digests.get(name) or (self.digest(take, size) if self.digest is not None else "")
        return Input(name, size, digest, records, self.known, whole, source.modified, take.begin)

    def _bad_input(self, take: Take, bad: dict[str, tuple[str, str]]) -> Input | None:
        """Return what is known of a file that cannot be read, so that it is not tried again as it is."""
        if take.source.name not in bad:
            return None
        try:
            digest = take.digest or take.source.digest().hexdigest()
        except BadFile:
            return None
        return Input(take.source.name, take.source.size, digest, 0, self.known, False, take.source.modified, 0)

    def _committed(
        self,
        staged: list[Staged],
        inputs: list[Input],
        failed: dict[str, tuple[str, str]],
        bad: dict[str, tuple[str, str]],
    ) -> Done:
        writer, ledger = self.writer, self.writer.ledger
        files = len(inputs) - len({each.file for each in inputs} & {*bad})
        done = Done(None, files, failed=failed, inputs=inputs)
        runs = [run for part in staged for run in part.runs]
        taken = sum(part.rows for part in staged)
        done.rows = self._sorted(runs, taken)
        done.repeated = taken - done.rows
        for table in BESIDE:
            own = [run for part in staged for run in part.beside if run.table == table]
            done.beside[table] = self._sorted(own, sum(part.beside_rows[table] for part in staged))
        seen = Seen(self.job.mapping)
        observed, promised = ledger.table("observed"), ledger.table("promises")
        seen.resume(observed)
        before = ledger.table(STATE)
        seen.bounds.merge(State.of(before).bounds)
        aside = [table for part in staged for table in part.aside]
        for part in staged:
            seen.add_seen(part.seen)
            done.counts.update(part.counts)
            done.reasons.update(part.reasons)
            for file in part.quarantine:
                writer.add(file)
        if aside or bad:
            rows = pa.concat_tables([QUARANTINE_SCHEMA.empty_table(), *aside, _bad_files(bad)]).unify_dictionaries()
            writer.write("quarantine", rows)
        now = seen.observed(observed)
        if not now.equals(observed):
            writer.write("observed", now)
        now = promises(self.job.mapping, promised, seen.bounds.restarted())
        if not now.equals(promised):
            writer.write("promises", now)
        now = State(seen.bounds, self.counterparties).table()
        if not now.equals(before):
            writer.write(STATE, now)
        counts = {
            **done.counts,
            "rows": done.rows,
            **{COUNTED[table]: rows for table, rows in done.beside.items()},
            "repeated": done.repeated,
            "files": files,
            "failed": len(bad),
        }
        done.commit = writer.commit(inputs, {name: count for name, count in counts.items() if count})
        return done

    def _sorted(self, runs: list[Run], rows: int) -> int:
        """Write the rows of runs as files of the ledger; return how many they are without repeats."""
        return write_runs(self.writer, runs, rows, lambda buckets: self.runner.sorted(self.job, buckets, runs))


def write_runs(
    writer: LedgerWriter, runs: list[Run], rows: int, sort: Callable[[list[int]], Iterable[StoredFile]]
) -> int:
    """Write the rows of runs as files of the ledger, few rows as one file for all buckets.

    Args:
        writer: Writes the commit.
        runs: Rows of one table.
        rows: How many they are.
        sort: Writes the rows of buckets, the largest first, and returns the files.

    Returns:
        How many rows there are without repeats.
    """
    storage, buckets = writer.ledger.storage, writer.ledger.buckets
    if not rows:
        return 0
    table = runs[0].table
    loose = table in LOOSE_TABLES and buckets > 1 and rows < LOOSE_ROWS * buckets
    if loose and all(run.rows is not None for run in runs):
        parts = [filled(rows_of(storage, run, bucket), table) for run in runs for bucket in run.buckets]
        return writer.write(table, in_buckets(in_order(pa.concat_tables(parts), table), buckets, table))
    sizes: Counter[int] = Counter()
    for run in runs:
        sizes.update(dict(zip(run.buckets, run.counts, strict=True)))
    files = list(sort(sorted(sizes, key=lambda bucket: (-sizes[bucket], bucket))))
    for file in files:
        writer.add(file)
    return sum(file.rows for file in files)


def _ends_line(source: Source) -> bool:
    """Return whether a text ends with the end of a line."""
    if not source.size:
        return False
    with source.open() as stream, source.said():
        stream.seek(source.size - 1)
        return stream.read(1) == b"\n"


def _bad_files(bad: dict[str, tuple[str, str]]) -> pa.Table:
    """Return files that cannot be read as rows of the quarantine."""
    rows = [
        {"source_file": name, "source_row": None, "reason": reason, "field": None, "value": None, "row": text}
        for name, (reason, text) in sorted(bad.items())
    ]
    columns = []
    for each in QUARANTINE_SCHEMA:
        plain = pa.string() if pa.types.is_dictionary(each.type) else each.type
        columns.append(pa.array([row[each.name] for row in rows], plain).cast(each.type))
    return pa.table(columns, schema=QUARANTINE_SCHEMA)


__all__ = ["Done", "NothingTaken", "commit_files"]
