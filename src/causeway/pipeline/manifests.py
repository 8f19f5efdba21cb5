"""Small files of the lake that say which others count: each carries its own digest, and that of the one before."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from causeway.model.json_text import loads
from causeway.pipeline.confined import DATA_FOLDERS, confined
from causeway.pipeline.sealed import Seal, seal_from

_FORMS = ((b',"digest":"', b'"}'), (b',\n "digest": "', b'"\n}'))
"""What stands before and after the digest, in one line and in lines for people."""


def encoded(content: Mapping[str, Any], *, in_lines: bool = False) -> bytes:
    """Return a JSON object with its own digest as the last key: SHA-256 over all before it.

    ``in_lines``: for people.
    """
    before, after = _FORMS[in_lines]
    text = json.dumps(content, sort_keys=True, **({"indent": 1} if in_lines else {"separators": (",", ":")}))
    body = text.encode()[: -2 if in_lines else -1]
    return body + before + hashlib.sha256(body).hexdigest().encode() + after


def decoded(content: bytes) -> dict[str, Any]:
    """Return what ``encoded`` was given, and ``digest``. Raises ``ValueError`` when it is not what was written."""
    for before, after in _FORMS:
        body, separator, rest = content.rpartition(before)
        if separator and rest == hashlib.sha256(body).hexdigest().encode() + after:
            found: dict[str, Any] = loads(content)
            return found
    raise ValueError("its content does not fit its digest")


Head = TypeVar("Head")

HEAD_BYTES = 512
"""The length of a head: it is written in place, which no disk tears at this size."""

_HEAD_TRIES = 5
"""How often a head is read before it counts as damaged: it may just be being written."""


def head_content(fields: Mapping[str, Any]) -> bytes:
    """Return the content of a head: a small file that says how far the commits beside it have come.

    It is written after the commit that it names, so it is a lower bound.
    """
    return encoded(fields).ljust(HEAD_BYTES)


def head_fields(content: bytes, **kinds: type) -> dict[str, Any]:
    """Return the fields of a head. ``kinds``: the types of those that it must have.

    Raises ``ValueError`` when the file is not what was written.
    """
    if len(content) != HEAD_BYTES:
        raise ValueError(f"{len(content)} bytes, not {HEAD_BYTES}")
    found = decoded(content.rstrip(b" "))
    for name, kind in kinds.items():
        if type(found.get(name)) is not kind:
            raise ValueError(f"{name}: {found.get(name)!r:.80} is no {kind.__name__}")
    return found


def read_head(read: Callable[[], bytes], parse: Callable[[bytes], Head]) -> Head:
    """Read a head, which may just be being written.

    Args:
        read: Reads the file.
        parse: Makes a head of its content. Raises ``ValueError``.

    Returns:
        What ``parse`` makes of it.

    Raises:
        ValueError: It is not what was written.
    """
    for _ in range(_HEAD_TRIES - 1):
        with contextlib.suppress(ValueError):
            return parse(read())
    return parse(read())


@dataclass(frozen=True)
class Compacted:
    """How far the log tables are compacted: to the manifest number ``last``, by a record of that ``digest``."""

    last: int = -1
    digest: str = ""


class Section(NamedTuple):
    """The bytes ``start`` to ``end`` - 1 of a file, with a digest of their own."""

    start: int
    end: int
    digest: str


class Exchange(NamedTuple):
    """The file with what the buckets offer each other at a height (``offers``): a section for everyone, then one for
    each bucket."""

    path: str
    sections: tuple[Section, ...]


class Parts(NamedTuple):
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


def parts_from(content: Sequence[Any]) -> Parts:
    """Return parts from what JSON has of them."""
    rows, gone, held = content
    return Parts(tuple(rows), tuple(gone), held)


@dataclass(frozen=True)
class Line:
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
    lines: tuple[Line, ...]
    last_state: Mapping[str, Mapping[str, Parts]] = field(default_factory=dict)
    log: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    work: Mapping[str, int] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)
    exchange: Exchange | None = None
    offers: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Seal] = field(default_factory=dict)
    parent: str = ""
    epoch: int = 0
    compacted: Compacted = field(default_factory=Compacted)
    seen: int = -1

    @property
    def line(self) -> Line:
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
    def state(self) -> Mapping[str, Mapping[str, Parts]]:
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
        left_out = ("files", "lines", "seen")
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in left_out}
        fields["heights"], fields["state"] = _columns(self.lines), fields.pop("last_state")
        fields["compacted"] = [self.compacted.last, self.compacted.digest]
        fields["state"] = {
            table: {key: self._sealed_parts(parts) for key, parts in files.items()}
            for table, files in fields["state"].items()
        }
        fields["log"] = {table: self._sealed(files) for table, files in fields["log"].items()}
        for name in ("outside", "offers"):
            fields[name] = self._sealed(fields[name])
        if self.exchange is not None:
            path, sections = self.exchange
            ends = [[section.end, section.digest] for section in sections]
            fields["exchange"] = {"file": [path, *self.files[path]], "sections": ends}
        return encoded(fields)

    def state_files(self) -> list[str]:
        """Return the files of the state at the last height."""
        return [path for files in self.last_state.values() for parts in files.values() for path in parts.files]

    def exchanged(self) -> list[str]:
        """Return the files with what the buckets offer each other, and nothing else."""
        return [*([self.exchange.path] if self.exchange is not None else []), *self.offers.values()]

    def _sealed(self, files: Mapping[str, str]) -> dict[str, list[Any]]:
        return {key: [path, *self.files[path]] for key, path in files.items()}

    def _sealed_parts(self, parts: Parts) -> Any:
        rows, gone = ([[path, *self.files[path]] for path in paths] for paths in (parts.rows, parts.gone))
        return rows[0] if parts.whole else {"rows": rows, "gone": gone, "held": parts.held}

    @cached_property
    def digest(self) -> str:
        """Return the digest that its file carries, and the manifest after it as ``parent``."""
        return str(decoded(self.content)["digest"])

    @classmethod
    def of(cls, content: bytes) -> Manifest:
        """Return the manifest in a file. Raises ``ValueError`` when the file is not what was written."""
        found = decoded(content)
        digest = found.pop("digest")
        _check_shape(found)
        files: dict[str, Seal] = {}

        def named(sealed: Mapping[Any, Sequence[Any]]) -> dict[Any, str]:
            files.update({confined(path, DATA_FOLDERS): seal_from(seal) for path, *seal in sealed.values()})
            return {key: path for key, (path, _, _) in sealed.items()}

        def parts(sealed: Any) -> Parts:
            if isinstance(sealed, list):
                return Parts(tuple(named({"": sealed}).values()))
            rows, gone = (tuple(named(dict(enumerate(sealed[name]))).values()) for name in ("rows", "gone"))
            return Parts(rows, gone, sealed["held"])

        found["state"] = {
            table: {key: parts(sealed) for key, sealed in files.items()} for table, files in found["state"].items()
        }
        found["log"] = {table: named(sealed) for table, sealed in found["log"].items()}
        for name in ("outside", "offers"):
            found[name] = named(found[name])
        if (exchange := found["exchange"]) is not None:
            found["exchange"] = Exchange(named({"": exchange["file"]})[""], _sections(exchange["sections"]))
        found["files"], found["last_state"] = files, found.pop("state")
        found["lines"] = _lines(found.pop("heights"))
        found["compacted"] = Compacted(*found["compacted"])
        manifest = cls(**found)
        # As it was written, not as it would be written.
        manifest.__dict__.update(content=content, digest=digest)
        return manifest


def _check_shape(found: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` where what a manifest has is of another kind than what is written."""
    kinds = {
        **{"number": int, "epoch": int, "parent": str, "compacted": list, "heights": dict},
        **dict.fromkeys(("state", "log", "outside", "offers", "totals", "work"), dict),
    }
    for name, kind in kinds.items():
        if type(found.get(name)) is not kind:
            raise ValueError(f"{name} is no {kind.__name__}")
    if [type(each) for each in found["compacted"]] != [int, str]:
        raise ValueError("compacted is no number with a digest")
    heights = found["heights"]
    if type(heights.get("first")) is not int or type(heights.get("rows")) is not dict:
        raise ValueError("heights has no first one, or no rows")
    columns = [*(heights.get(name) for name in ("tick", "wake", "quiet_since", "needs")), *heights["rows"].values()]
    if not all(type(column) is list and set(map(type, column)) <= {int, type(None)} for column in columns):
        raise ValueError("heights has a column that is no list of whole numbers")
    if not heights["tick"] or None in heights["tick"]:
        raise ValueError("heights has no ticks")
    if not {type(each) for name in ("totals", "work") for each in found[name].values()} <= {int}:
        raise ValueError("totals or work has what is no whole number")


def _columns(lines: Sequence[Line]) -> dict[str, Any]:
    """Return what is known of heights that follow each other as columns."""
    tables = sorted({table for line in lines for table in line.rows})
    named = ("tick", "wake", "quiet_since", "needs")
    columns: dict[str, Any] = {name: [getattr(line, name) for line in lines] for name in named}
    rows = {table: [line.rows.get(table, 0) for line in lines] for table in tables}
    return {"first": lines[0].height, **columns, "rows": rows}


def _lines(columns: Mapping[str, Any]) -> tuple[Line, ...]:
    rows: Mapping[str, Sequence[int]] = columns["rows"]
    each = zip(columns["tick"], columns["wake"], columns["quiet_since"], columns["needs"], strict=True)
    return tuple(
        Line(columns["first"] + place, *values, {table: of[place] for table, of in rows.items() if of[place]})
        for place, values in enumerate(each)
    )


def _sections(ends: Sequence[Sequence[Any]]) -> tuple[Section, ...]:
    """Return sections that follow each other, each given by its end and digest."""
    starts = [0, *(end for end, _ in ends)]
    return tuple(Section(start, end, digest) for start, (end, digest) in zip(starts, ends, strict=False))
