"""Traces of node processes: what each took in each step, and what it got by that, in files that a killed process leaves
whole but for its last record.

```
trace.json                     the protocol, the options of gossip, the nodes; when all has ended, the files' digests
node-003-life-2.trace          records in CBOR, each behind its length (u32, little-endian): first the life, then steps
```

A step is recorded before anything of it goes out: what a peer received is in the trace of who sent it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from causeway.model.document import validated
from causeway.model.errors import InvalidInput
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.service.icmp.scenario import MOST_NODES, PLAIN
from causeway.service.icmp.taken import Got, Taken
from causeway.service.icmp.trace_records import (
    Life,
    NoRecord,
    Recorded,
    Refusing,
    encoded,
    life_of,
    of_life,
    of_step,
    records,
    step_of,
)
from causeway.service.icmp.trace_rules import LifeRules, Said

FORMAT = 2

PROTOCOL = "icmp"

MANIFEST = "trace.json"

MOST_MANIFEST = 1 << 20
"""Bytes of the manifest that are read."""

MOST_LIVES = 2 * MOST_NODES
"""Of a network each node is killed once at most. All are read at a time."""

_NAME = re.compile(r"node-(\d{3,5})-life-(\d{1,5})\.trace")


class TraceWriter:
    """Writes the trace of one life. All raise ``InvalidInput`` where that cannot be done (a full disk, say)."""

    def __init__(self, folder: Path, life: Life) -> None:
        self._path = folder / life.file
        with self._said():
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._write(of_life(life))

    def step(self, taken: Taken, got: Sequence[Got], bodies: Mapping[bytes, bytes]) -> None:
        """Write a step; it is with the system when this returns."""
        self._write(of_step(Recorded(taken, tuple(got), bodies)))

    def _write(self, record: list[Any]) -> None:
        left = memoryview(encoded(record))
        with self._said():
            while left:
                left = left[os.write(self._file, left) :]

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InvalidInput(f"--trace {self._path}: cannot be written: {error.strerror or error}") from None

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@dataclass(frozen=True)
class Trace:
    """A folder of traces. ``closed``: whether its files have the digests that were noted when all had ended."""

    folder: Path
    options: GossipOptions
    nodes: tuple[int, ...]
    closed: bool = False
    _said: Said = field(default_factory=Said)

    def lives(self) -> Iterator[tuple[Life, Iterator[Recorded]]]:
        """Yield each life with its steps, to be read in turn. Raises ``InvalidInput``: a file is no trace."""
        before = 0, 0
        for node, life, path in _files(self.folder):
            if node not in self.nodes or life != (before[1] + 1 if node == before[0] else 1):
                raise InvalidInput(f"{path}: life {life} of node {node}: there is no such node, or no life before")
            before = node, life
            read = records(path)
            first = next(read, None)
            if first is None:
                continue  # killed before it had written whose life it is
            with Refusing(path, 0):
                found = life_of(first)
                if (found.node, found.life) != (node, life):
                    raise NoRecord(f"node, life: {found.node}, {found.life}")
            rules = LifeRules(found, frozenset(self.nodes), self.options, self._said)
            yield found, self._steps(path, rules, read)

    @staticmethod
    def _steps(path: Path, rules: LifeRules, read: Iterator[Any]) -> Iterator[Recorded]:
        for place, record in enumerate(read, 1):
            with Refusing(path, place):
                step = step_of(record)
                rules.step(step)
            yield step


def _files(folder: Path) -> list[tuple[int, int, Path]]:
    """Return the files of lives: node, life, path. Raises ``InvalidInput``: one is none, or there are too many."""
    found = []
    for path in sorted(folder.glob("node-*")):
        name = _NAME.fullmatch(path.name)
        if name is None or not path.is_file():
            raise InvalidInput(f"{path}: not a regular file that is named as a life is")
        found.append((int(name[1]), int(name[2]), path))
    if len(found) > MOST_LIVES:
        raise InvalidInput(f"{folder}: {len(found)} lives; at most {MOST_LIVES} are read")
    return sorted(found)


def create_trace(folder: Path, options: GossipOptions, nodes: Sequence[int]) -> None:
    """Begin a trace in a folder, which is new or empty. Raises ``InvalidInput``: it is not, or cannot be had."""
    try:
        if folder.exists() and not folder.is_dir():
            raise InvalidInput(f"--trace {folder}: is no folder; a trace begins in a new or empty one")
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InvalidInput(f"--trace {folder}: the folder is not empty; a trace begins in a new or empty one")
        content = {"format": FORMAT, "protocol": PROTOCOL, "options": options.model_dump(), "nodes": [*nodes]}
        (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise InvalidInput(f"--trace {folder}: {error.strerror or error}") from None


def close_trace(folder: Path) -> None:
    """Note the digests of all files, when nobody writes them any more. Raises ``InvalidInput``: that cannot be done."""
    path = folder / MANIFEST
    new = path.with_suffix(".new")
    try:
        content = _manifest(folder)
        content["files"] = {one.name: _digest(one) for _, _, one in _files(folder)}
        content["digest"] = _own_digest(content)
        new.write_text(json.dumps(content, indent=1) + "\n")
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise InvalidInput(f"--trace {folder}: cannot be closed: {error.strerror or error}") from None


def open_trace(folder: Path) -> Trace:
    """Return the trace in a folder. Raises ``InvalidInput``: there is none, or of another format, or it was altered."""
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder}: is no folder; a trace is the folder that was named when it was recorded")
    content = _manifest(folder)
    path = folder / MANIFEST
    if unknown := content.keys() - {"format", "protocol", "options", "nodes", "files", "digest"}:
        raise InvalidInput(f"{path}: {min(unknown)!r:.40}: no such key")
    options = validated(GossipOptions, content.get("options", {}), str(path), ("options",))
    for key, value in PLAIN.items():
        if getattr(options, key) != value:
            raise InvalidInput(f'{path}: options.{key}: {getattr(options, key)!r}; processes have only "{value}"')
    nodes = content.get("nodes")
    if not isinstance(nodes, list) or not all(type(node) is int and 0 <= node < MOST_NODES for node in nodes):
        raise InvalidInput(f"{path}: nodes: must be a list of numbers below {MOST_NODES}")
    if not nodes or nodes != sorted({*nodes}):
        raise InvalidInput(f"{path}: nodes: must ascend, each once, at least one")
    _require_files(folder, content)
    return Trace(folder, options, tuple(nodes), closed="files" in content)


def _require_files(folder: Path, content: Mapping[str, Any]) -> None:
    """Refuse files that are not as they were when the trace was closed. Raises ``InvalidInput``."""
    path = folder / MANIFEST
    if "files" not in content and "digest" not in content:
        return  # what started the processes was killed
    if content.get("digest") != _own_digest(content):
        raise InvalidInput(f"{path}: digest: not that of its content: it was altered")
    files, there = content.get("files"), {one.name: one for _, _, one in _files(folder)}
    if not isinstance(files, dict) or files.keys() != there.keys():
        raise InvalidInput(f"{path}: files: others than the files of lives that are there")
    for name, one in there.items():
        if files[name] != _digest(one):
            raise InvalidInput(f"{one}: does not have the digest that {MANIFEST} says: it was altered")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def _own_digest(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.blake2b(json.dumps(rest, sort_keys=True).encode(), digest_size=32).hexdigest()


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        if path.exists() and not path.is_file():
            raise InvalidInput(f"{path}: not a regular file")
        with path.open("rb") as file:
            content = json.loads(file.read(MOST_MANIFEST))
    except FileNotFoundError:
        raise InvalidInput(f"{folder}: no trace here: there is no {MANIFEST}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}: cannot be read: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InvalidInput(f"{path}: not a trace of format {FORMAT}")
    if content.get("protocol") != PROTOCOL:
        raise InvalidInput(f'{path}: protocol: {content.get("protocol")!r:.40}; must be "{PROTOCOL}"')
    return content
