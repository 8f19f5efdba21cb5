"""Small files of the lake that say which others count: each carries its own digest, and that of the one before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

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


@dataclass(frozen=True)
class Manifest:
    """What one committed height consists of.

    ``state``: table -> bucket -> file. ``log``: log table -> bucket -> file of this height. ``row_groups``: file of
    outbound entries -> bucket of their destinations -> its row group. ``wake``: the next tick at which something
    happens of itself, None when nothing will. ``quiet_since``: the first tick from which on nothing has moved, and
    after which nothing has come from outside. ``needs``: the lowest height whose outbound entries may still be read.
    ``outside``: kind -> file of what was recorded for the tick. ``files``: file -> its seal, for all files that are
    named here. ``parent``: the digest of the manifest before, of ``lake.json`` for the first. ``epoch``: which claim on
    the lake it was written under. ``compacted``: how far the log tables were compacted by then.
    """

    height: int
    tick: int
    state: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    log: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    row_groups: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    wake: int | None = None
    quiet_since: int = 0
    needs: int | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Seal] = field(default_factory=dict)
    parent: str = ""
    epoch: int = 0
    compacted: Compacted = field(default_factory=Compacted)

    @cached_property
    def content(self) -> bytes:
        """Return the manifest as its file has it: JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return encoded(fields | {"compacted": [self.compacted.last, self.compacted.digest]})

    @cached_property
    def digest(self) -> str:
        """Return the digest that its file carries, and the manifest after it as ``parent``."""
        return str(decoded(self.content)["digest"])

    @classmethod
    def of(cls, content: bytes) -> Manifest:
        """Return the manifest in a file. Raises ``ValueError`` when the file is not what was written."""
        found = decoded(content)
        found.pop("digest")
        found["files"] = {path: seal_from(seal) for path, seal in found["files"].items()}
        found["compacted"] = Compacted(*found["compacted"])
        manifest = cls(**found)
        manifest.__dict__["content"] = content  # as it was written, not as it would be written
        return manifest

    def named(self) -> set[str]:
        """Return all files that are named here."""
        tables = [*self.state.values(), *self.log.values()]
        return {path for files in tables for path in files.values()} | set(self.outside.values())
