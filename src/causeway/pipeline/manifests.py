"""Small files of the lake that say which others count: each carries its own digest, and that of the one before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

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
            found: dict[str, Any] = json.loads(content)
            return found
    raise ValueError("its content does not fit its digest")


@dataclass(frozen=True)
class Compacted:
    """How far the log tables are compacted: to the height ``last``, by a record of that ``digest``."""

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


@dataclass(frozen=True)
class Manifest:
    """What one committed height consists of.

    ``state``: table -> bucket -> file. ``log``: log table -> bucket -> file of this height. ``wake``: the next tick at
    which something happens of itself, None when nothing will. ``quiet_since``: the first tick from which on nothing has
    moved, and after which nothing has come from outside. ``needs``: the lowest height whose outbound entries may still
    be read. ``rows``: how many rows each log table got; ``totals``: how many it has by then. ``outside``: kind -> file
    of what was recorded for the tick. ``exchange``: what the buckets offer each other, None where there is one.
    ``offers``: bucket -> file of what it offers and had no room for there. ``files``: file -> its seal, for all files
    that are named here. ``parent``: the digest of the manifest before, of ``lake.json`` for the first. ``epoch``: which
    claim on the lake it was written under. ``compacted``: how far the log tables were compacted by then.

    In the file every name of a file has its seal behind it: [file, length, digests].
    """

    height: int
    tick: int
    state: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    log: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    wake: int | None = None
    quiet_since: int = 0
    needs: int | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)
    exchange: Exchange | None = None
    offers: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Seal] = field(default_factory=dict)
    parent: str = ""
    epoch: int = 0
    compacted: Compacted = field(default_factory=Compacted)

    @cached_property
    def content(self) -> bytes:
        """Return the manifest as its file has it: JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "files"}
        fields["compacted"] = [self.compacted.last, self.compacted.digest]
        for name in ("state", "log"):
            fields[name] = {table: self._sealed(files) for table, files in fields[name].items()}
        for name in ("outside", "offers"):
            fields[name] = self._sealed(fields[name])
        if self.exchange is not None:
            path, sections = self.exchange
            ends = [[section.end, section.digest] for section in sections]
            fields["exchange"] = {"file": [path, *self.files[path]], "sections": ends}
        return encoded(fields)

    def exchanged(self) -> list[str]:
        """Return the files with what the buckets offer each other, and nothing else."""
        return [*([self.exchange.path] if self.exchange is not None else []), *self.offers.values()]

    def _sealed(self, files: Mapping[str, str]) -> dict[str, list[Any]]:
        return {key: [path, *self.files[path]] for key, path in files.items()}

    @cached_property
    def digest(self) -> str:
        """Return the digest that its file carries, and the manifest after it as ``parent``."""
        return str(decoded(self.content)["digest"])

    @classmethod
    def of(cls, content: bytes) -> Manifest:
        """Return the manifest in a file. Raises ``ValueError`` when the file is not what was written."""
        found = decoded(content)
        found.pop("digest")
        files: dict[str, Seal] = {}

        def named(sealed: Mapping[str, Sequence[Any]]) -> dict[str, str]:
            files.update({path: seal_from(seal) for path, *seal in sealed.values()})
            return {key: path for key, (path, _, _) in sealed.items()}

        for name in ("state", "log"):
            found[name] = {table: named(sealed) for table, sealed in found[name].items()}
        for name in ("outside", "offers"):
            found[name] = named(found[name])
        if (exchange := found["exchange"]) is not None:
            found["exchange"] = Exchange(named({"": exchange["file"]})[""], _sections(exchange["sections"]))
        found["files"] = files
        found["compacted"] = Compacted(*found["compacted"])
        manifest = cls(**found)
        manifest.__dict__["content"] = content  # as it was written, not as it would be written
        return manifest


def _sections(ends: Sequence[Sequence[Any]]) -> tuple[Section, ...]:
    """Return sections that follow each other, each given by its end and digest."""
    starts = [0, *(end for end, _ in ends)]
    return tuple(Section(start, end, digest) for start, (end, digest) in zip(starts, ends, strict=False))
