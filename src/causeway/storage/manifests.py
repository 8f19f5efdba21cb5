"""Manifests: the commits of a lake, with the files of each and their seals.

``Manifest`` is the commit in memory. ``_Stored`` is its file: JSON with a seal beside every file name, and consecutive
heights as columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from causeway.storage.commit_log import Record, decoded, parse_json
from causeway.storage.seals import DATA_FOLDERS, Seal, confine_path, parse_seal


def lake_path(path: Any) -> str:
    """Validate a path that a record of a lake may name. Raises ``ValueError``."""
    return confine_path(path, DATA_FOLDERS)


LakePath = Annotated[str, lake_path]


@dataclass(frozen=True)
class CompactedLogs:
    """Progress of compaction: the last compacted manifest number, and the digest of its record."""

    last: int = -1
    digest: str = ""


class FileSection(NamedTuple):
    """The bytes ``start`` to ``end`` - 1 of a file, with their digest."""

    start: int
    end: int
    digest: str


class ExchangeFile(NamedTuple):
    """The offers between buckets at a height: a section for everyone, then one for each bucket."""

    path: str
    sections: tuple[FileSection, ...]


class StateParts(NamedTuple):
    """The files with a bucket's rows of a state table.

    Attributes:
        rows: Files of rows.
        gone: Files of keys of removed rows.
        held: Number of rows in the files of ``rows``, if there are several.
    """

    rows: tuple[str, ...]
    gone: tuple[str, ...] = ()
    held: int = 0

    @property
    def files(self) -> tuple[str, ...]:
        """All files."""
        return self.rows + self.gone

    @property
    def whole(self) -> bool:
        """True if a single file holds exactly the table's rows."""
        return len(self.rows) == 1 and not self.gone


@dataclass(frozen=True)
class HeightLine:
    """Summary of a committed height.

    Attributes:
        height: The height.
        tick: Its tick.
        wake: Next tick with an event that needs no traffic, or None.
        quiet_since: First tick without any progress or traffic since.
        needs: Lowest height whose outbound entries may still be read.
        rows: Number of new rows by log table.
    """

    height: int
    tick: int
    wake: int | None = None
    quiet_since: int = 0
    needs: int | None = None
    rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """A commit of consecutive heights, viewed at one of them (``at``), by default the last.

    In the file every file name is followed by its seal: [file, length, digests]. The files of a state table are one
    such entry, or an object with ``rows``, ``gone`` and ``held`` (``StateParts``).

    Attributes:
        number: Number of the commit.
        lines: Its heights.
        last_state: Files of the state at the last height, by table and bucket.
        log: File of the log rows of all heights, by table and bucket.
        totals: Row count of each log table up to the last height.
        work: Work counters of all rounds so far (``causeway_proofs.work``).
        outside: File of the input recorded for the tick, by kind, in a commit of one height.
        exchange: Offers between buckets; None for one bucket.
        offers: File of a bucket's offers that did not fit into the exchange, by bucket.
        files: Seal of every file named here.
        parent: Digest of the previous manifest, or of ``lake.json``.
        epoch: Epoch of the writer's claim on the lake.
        compacted: Progress of compaction at that time.
        seen: Index of the viewed height, from the end.
    """

    number: int
    lines: tuple[HeightLine, ...]
    last_state: Mapping[str, Mapping[str, StateParts]] = field(default_factory=dict)
    log: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    work: Mapping[str, int] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)
    exchange: ExchangeFile | None = None
    offers: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Seal] = field(default_factory=dict)
    parent: str = ""
    epoch: int = 0
    compacted: CompactedLogs = field(default_factory=CompactedLogs)
    seen: int = -1

    @property
    def line(self) -> HeightLine:
        """Summary of the viewed height."""
        return self.lines[self.seen]

    @property
    def height(self) -> int:
        """The viewed height."""
        return self.line.height

    @property
    def tick(self) -> int:
        """Tick of the viewed height."""
        return self.line.tick

    @property
    def rows(self) -> Mapping[str, int]:
        """Number of new rows by log table at the viewed height."""
        return self.line.rows

    @property
    def state(self) -> Mapping[str, Mapping[str, StateParts]]:
        """Files of the state at the viewed height, which must be the last of the commit."""
        if self.height < self.last:
            raise AssertionError(f"the state at height {self.height} is in no file: it is made by a replay")
        return self.last_state

    @property
    def first(self) -> int:
        """First height of the commit."""
        return self.lines[0].height

    @property
    def last(self) -> int:
        """Last height of the commit, with stored state."""
        return self.lines[-1].height

    def at(self, height: int) -> Manifest:
        """Return the same commit viewed at another height."""
        other = replace(self, seen=height - self.last - 1)
        other.__dict__.update({name: self.__dict__[name] for name in ("content", "digest") if name in self.__dict__})
        return other

    @cached_property
    def content(self) -> bytes:
        """Content of the manifest's file: JSON."""

        def sealed(files: Mapping[str, str]) -> dict[str, _Sealed]:
            return {key: (path, *self.files[path]) for key, path in files.items()}

        def parts(files: StateParts) -> _Sealed | _SealedParts:
            rows, gone = ([(path, *self.files[path]) for path in paths] for paths in (files.rows, files.gone))
            return rows[0] if files.whole else _SealedParts(tuple(rows), tuple(gone), files.held)

        path, sections = self.exchange or ("", ())
        ends = tuple((section.end, section.digest) for section in sections)
        return _Stored(
            self.number,
            self.epoch,
            self.parent,
            (self.compacted.last, self.compacted.digest),
            _Heights.of(self.lines),
            {table: {key: parts(each) for key, each in files.items()} for table, files in self.last_state.items()},
            {table: sealed(files) for table, files in self.log.items()},
            sealed(self.outside),
            sealed(self.offers),
            self.totals,
            self.work,
            _SealedExchange((path, *self.files[path]), ends) if path else None,
        ).content()

    def state_files(self) -> list[str]:
        """Return the files of the state at the last height."""
        return [path for files in self.last_state.values() for parts in files.values() for path in parts.files]

    def exchanged(self) -> list[str]:
        """Return the files that hold only offers between buckets."""
        return [*([self.exchange.path] if self.exchange is not None else []), *self.offers.values()]

    @cached_property
    def digest(self) -> str:
        """Digest in the manifest's file, the ``parent`` of the next one."""
        return str(decoded(self.content)["digest"])

    @classmethod
    def of(cls, content: bytes) -> Manifest:
        """Parse the file of a manifest. Raises ``ValueError`` if it is corrupted."""
        found = _Stored.of(content)
        files: dict[str, Seal] = {}

        def path_of(sealed: _Sealed) -> str:
            path, *seal = sealed
            files[path] = parse_seal(seal)
            return path

        def parts(stored: _Sealed | _SealedParts) -> StateParts:
            if not isinstance(stored, _SealedParts):
                return StateParts((path_of(stored),))
            return StateParts(tuple(map(path_of, stored.rows)), tuple(map(path_of, stored.gone)), stored.held)

        def paths(sealed: Mapping[str, _Sealed]) -> dict[str, str]:
            return {key: path_of(each) for key, each in sealed.items()}

        state = {table: {key: parts(each) for key, each in stored.items()} for table, stored in found.state.items()}
        log = {table: paths(sealed) for table, sealed in found.log.items()}
        outside, offers, exchange = paths(found.outside), paths(found.offers), None
        if found.exchange is not None:
            starts = [0, *(end for end, _ in found.exchange.sections)]
            sections = zip(starts, found.exchange.sections, strict=False)
            exchange = ExchangeFile(
                path_of(found.exchange.file), tuple(FileSection(start, *end) for start, end in sections)
            )
        lines, compacted = tuple(found.heights.lines()), CompactedLogs(*found.compacted)
        totals, work, parent, epoch = found.totals, found.work, found.parent, found.epoch
        named = outside, exchange, offers, files
        manifest = cls(found.number, lines, state, log, totals, work, *named, parent, epoch, compacted)
        # Keep the file's own bytes: encoding it again might differ.
        manifest.__dict__.update(content=content, digest=found.digest)
        return manifest


_Sealed = tuple[LakePath, int, str]
"""A file in a record: path, length, digests."""


@dataclass(frozen=True)
class _SealedParts:
    rows: tuple[_Sealed, ...]
    gone: tuple[_Sealed, ...]
    held: int


def _parts_from(value: Any) -> _Sealed | _SealedParts:
    found: _Sealed | _SealedParts = parse_json(_Sealed if isinstance(value, list) else _SealedParts, value)
    return found


@dataclass(frozen=True)
class _SealedExchange:
    """The exchange of a commit; sections are given by end and digest."""

    file: _Sealed
    sections: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class _Heights:
    """Summaries of consecutive heights as columns; ``rows``: by log table."""

    first: int
    tick: tuple[int, ...]
    wake: tuple[int | None, ...]
    quiet_since: tuple[int, ...]
    needs: tuple[int | None, ...]
    rows: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, lines: Sequence[HeightLine]) -> _Heights:
        tick, wake = tuple(line.tick for line in lines), tuple(line.wake for line in lines)
        quiet_since, needs = tuple(line.quiet_since for line in lines), tuple(line.needs for line in lines)
        tables = {table for line in lines for table in line.rows}
        rows = {table: tuple(line.rows.get(table, 0) for line in lines) for table in tables}
        return cls(lines[0].height, tick, wake, quiet_since, needs, rows)

    def lines(self) -> Iterable[HeightLine]:
        if not self.tick:
            raise ValueError("heights has no ticks")
        each = zip(self.tick, self.wake, self.quiet_since, self.needs, strict=True)
        for place, values in enumerate(each):
            rows = {table: counts[place] for table, counts in self.rows.items() if counts[place]}
            yield HeightLine(self.first + place, *values, rows)


@dataclass(frozen=True)
class _Stored(Record):
    """The file of a manifest."""

    number: int
    epoch: int
    parent: str
    compacted: tuple[int, str]
    heights: _Heights
    state: Mapping[str, Mapping[str, Annotated[_Sealed | _SealedParts, _parts_from]]]
    log: Mapping[str, Mapping[str, _Sealed]]
    outside: Mapping[str, _Sealed]
    offers: Mapping[str, _Sealed]
    totals: Mapping[str, int]
    work: Mapping[str, int]
    exchange: _SealedExchange | None
    digest: str = ""
