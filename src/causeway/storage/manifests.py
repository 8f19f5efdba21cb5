"""Manifests: the commits of a lake, and the files that each names with their seals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from causeway.storage.commit_log import Record, decoded, parse_json
from causeway.storage.paths import DATA_FOLDERS, confine_path
from causeway.storage.seals import Seal, parse_seal


def lake_path(path: Any) -> str:
    """Return the path of a file that records of a lake may name. Raises ``ValueError`` for any other."""
    return confine_path(path, DATA_FOLDERS)


LakePath = Annotated[str, lake_path]


@dataclass(frozen=True)
class CompactedLogs:
    """How far the log tables are compacted: to the manifest number ``last``, by a record of that ``digest``."""

    last: int = -1
    digest: str = ""


class FileSection(NamedTuple):
    """The bytes ``start`` to ``end`` - 1 of a file, with a digest of their own."""

    start: int
    end: int
    digest: str


class ExchangeFile(NamedTuple):
    """The file with what the buckets offer each other at a height (``offers``): a section for everyone, then one for
    each bucket."""

    path: str
    sections: tuple[FileSection, ...]


class StateParts(NamedTuple):
    """The files with a bucket's rows of a state table: those in ``rows``, but for rows whose keys stand in ``gone``.

    ``held``: how many rows the files of ``rows`` have, where there are several.
    """

    rows: tuple[str, ...]
    gone: tuple[str, ...] = ()
    held: int = 0

    @property
    def files(self) -> tuple[str, ...]:
        """Return all of them."""
        return self.rows + self.gone

    @property
    def whole(self) -> bool:
        """Return whether one file has just the table's rows."""
        return len(self.rows) == 1 and not self.gone


@dataclass(frozen=True)
class HeightLine:
    """What is known of one committed height.

    ``wake``: the next tick at which something happens of itself, None when nothing will. ``quiet_since``: the first
    tick from which on nothing has moved, and after which nothing has come from outside. ``needs``: the lowest height
    whose outbound entries may still be read. ``rows``: how many rows each log table got.
    """

    height: int
    tick: int
    wake: int | None = None
    quiet_since: int = 0
    needs: int | None = None
    rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """What one commit consists of: one height, or many that follow each other. It is looked at from one of them
    (``at``), by default the last.

    ``number``: counts the commits of a lake. ``lines``: its heights. ``last_state``: table -> bucket -> files, at the
    last of them. ``log``: log table -> bucket -> file with the rows of all of them. ``totals``: how many rows each
    log table has by the last. ``work``: what was counted of the rounds' work by then (``proofs.work``).
    ``outside``: kind -> file of what was recorded for the tick, of a commit of one height. ``exchange``: what the
    buckets offer each other, None where there is one. ``offers``: bucket -> file of what it offers and had no room
    for there. ``files``: file -> its seal, for all files that are named here. ``parent``: the digest of the
    manifest before, of ``lake.json`` for the first. ``epoch``: which claim on the lake it was written under.
    ``compacted``: how far the log tables were compacted by then. ``seen``: which of its heights is looked at.

    In the file every name of a file has its seal behind it: [file, length, digests]. The files of a state table are
    one such, or an object with ``rows``, ``gone`` and ``held`` (``Parts``).
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
        """Return what is known of the height that is looked at."""
        return self.lines[self.seen]

    @property
    def height(self) -> int:
        """Return the height that is looked at."""
        return self.line.height

    @property
    def tick(self) -> int:
        """Return its tick."""
        return self.line.tick

    @property
    def rows(self) -> Mapping[str, int]:
        """Return how many rows each log table got at it."""
        return self.line.rows

    @property
    def state(self) -> Mapping[str, Mapping[str, StateParts]]:
        """Return the files of the state at the height that is looked at, which must be the last of the commit."""
        if self.height < self.last:
            raise AssertionError(f"the state at height {self.height} is in no file: it is made by a replay")
        return self.last_state

    @property
    def first(self) -> int:
        """Return the first height of the commit."""
        return self.lines[0].height

    @property
    def last(self) -> int:
        """Return the last height of the commit, of which it has the state."""
        return self.lines[-1].height

    def at(self, height: int) -> Manifest:
        """Return the same commit, looked at from another of its heights."""
        other = replace(self, seen=height - self.last - 1)
        other.__dict__.update({name: self.__dict__[name] for name in ("content", "digest") if name in self.__dict__})
        return other

    @cached_property
    def content(self) -> bytes:
        """Return the manifest as its file has it: JSON."""

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
        """Return the files with what the buckets offer each other, and nothing else."""
        return [*([self.exchange.path] if self.exchange is not None else []), *self.offers.values()]

    @cached_property
    def digest(self) -> str:
        """Return the digest that its file carries, and the manifest after it as ``parent``."""
        return str(decoded(self.content)["digest"])

    @classmethod
    def of(cls, content: bytes) -> Manifest:
        """Return the manifest in a file. Raises ``ValueError`` when the file is not what was written."""
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
        # As it was written, not as it would be written.
        manifest.__dict__.update(content=content, digest=found.digest)
        return manifest


_Sealed = tuple[LakePath, int, str]
"""A file as records name it: path, length, digests."""


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
    """The exchange of a commit; its sections by their end and digest."""

    file: _Sealed
    sections: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class _Heights:
    """What is known of heights that follow each other, as columns; ``rows``: of each log table."""

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
    """A manifest as its file has it: every file with its seal."""

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
