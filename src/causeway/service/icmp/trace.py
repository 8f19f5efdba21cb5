"""Traces of node processes: what each took in each step, and what it got by that, in files that a killed process leaves
whole but for its last record.

```
trace.json                     the protocol, the options of gossip, the nodes
node-003-life-2.trace          records in CBOR, each behind its length (u32, little-endian): first the life, then steps
```

A step is recorded before anything of it goes out: what a peer received is in the trace of who sent it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cbor2

from causeway.model.errors import InvalidInput
from causeway.network.document import validated
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.service.icmp.taken import Arrived, Block, Declared, Got, Taken
from causeway.service.icmp.wire import LENGTH

FORMAT = 1

PROTOCOL = "icmp"

MANIFEST = "trace.json"

MOST_RECORD = 256 << 20
"""Bytes of one record."""

MOST_MANIFEST = 1 << 20
"""Bytes of the manifest that are read."""

_NAME = re.compile(r"node-(\d{3,5})-life-(\d+)\.trace")


@dataclass(frozen=True)
class Life:
    """A process from its start (``time``, ms) to its end; ``life`` counts those of the node."""

    node: int
    life: int
    time: int


@dataclass(frozen=True)
class Recorded:
    """A step: what was taken, the queues that the node got by it, and of those that came from peers the packets."""

    taken: Taken
    got: tuple[Got, ...]
    bodies: Mapping[bytes, bytes]


class TraceWriter:
    """Writes the trace of one life."""

    def __init__(self, folder: Path, life: Life) -> None:
        path = folder / f"node-{life.node:03}-life-{life.life}.trace"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._write([life.node, life.life, life.time])

    def step(self, taken: Taken, got: Sequence[Got], bodies: Mapping[bytes, bytes]) -> None:
        """Write a step; it is with the system when this returns."""
        blocks = [[block.hash, block.number, block.ancestors, block.unrouted] for block in taken.blocks]
        declared = [[row.peer, row.heads, row.count, row.malformed] for row in taken.declared]
        arrived = [
            [row.peer, row.topic, row.root, row.messages, row.size, row.found, row.malformed] for row in taken.arrived
        ]
        steps = [taken.time, taken.left, taken.came, taken.leaves, blocks, taken.kept, declared, arrived]
        self._write([*steps, [*got], dict(bodies)])

    def _write(self, record: list[Any]) -> None:
        data = cbor2.dumps(record)
        left = memoryview(LENGTH.pack(len(data)) + data)
        while left:
            left = left[os.write(self._file, left) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@dataclass(frozen=True)
class Trace:
    """A folder of traces."""

    folder: Path
    options: GossipOptions
    nodes: tuple[int, ...]

    def lives(self) -> Iterator[tuple[Life, Iterator[Recorded]]]:
        """Yield each life with its steps, to be read in turn. Raises ``InvalidInput``: a file is no trace."""
        for path in sorted(self.folder.glob("node-*.trace")):
            if not path.is_file():
                raise InvalidInput(f"{path}: not a regular file")
            records = _records(path)
            first = next(records, None)
            if first is None:
                continue  # killed before it had written whose life it is
            name = _NAME.fullmatch(path.name)
            with _as_bad(path, 0):
                node, life, time = (_number(item) for item in first)
                if name is None or (node, life) != (int(name[1]), int(name[2])) or node not in self.nodes:
                    raise ValueError(f"life {life} of node {node}")
            yield Life(node, life, time), self._steps(path, time, records)

    @staticmethod
    def _steps(path: Path, time: int, records: Iterator[Any]) -> Iterator[Recorded]:
        for place, record in enumerate(records, 1):
            with _as_bad(path, place):
                step = _recorded(record)
                if step.taken.time < time:
                    raise ValueError(f"at {step.taken.time} ms, after one at {time} ms")
            time = step.taken.time
            yield step


def create_trace(folder: Path, options: GossipOptions, nodes: Sequence[int]) -> None:
    """Begin a trace in a folder, which is new or empty. Raises ``InvalidInput``: it is not, or cannot be had."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InvalidInput(f"--trace {folder}: the folder is not empty; a trace begins in a new or empty one")
        content = {"format": FORMAT, "protocol": PROTOCOL, "options": options.model_dump(), "nodes": [*nodes]}
        (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise InvalidInput(f"--trace {folder}: {error.strerror or error}") from None


def open_trace(folder: Path) -> Trace:
    """Return the trace in a folder. Raises ``InvalidInput``: there is none, or of another format."""
    content = _manifest(folder)
    path = folder / MANIFEST
    options = validated(GossipOptions, content.get("options", {}), str(path), ("options",))
    with _as_bad(path, 0):
        nodes = tuple(_node(node) for node in content["nodes"])
    return Trace(folder, options, nodes)


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


def _records(path: Path) -> Iterator[Any]:
    """Yield the records of a file; the last may be cut off, as a killed process leaves it."""
    with path.open("rb") as file:
        for place in range(1 << 62):
            head = file.read(LENGTH.size)
            if len(head) < LENGTH.size:
                return
            (length,) = LENGTH.unpack(head)
            if length > MOST_RECORD:
                raise InvalidInput(f"{path}: record {place} has {length} bytes; at most {MOST_RECORD} are read")
            data = file.read(length)
            if len(data) < length:
                return
            with _as_bad(path, place):
                record = cbor2.loads(data)
            yield record


class _as_bad:  # noqa: N801
    """What a record that is none raises, as ``InvalidInput``."""

    def __init__(self, path: Path, place: int) -> None:
        self._path, self._place = path, place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, cbor2.CBORError | ValueError | TypeError | KeyError | RecursionError):
            raise InvalidInput(f"{self._path}: record {self._place} is none of a trace: {error}") from None


def _recorded(record: Any) -> Recorded:
    time, left, came, leaves, blocks, kept, declared, arrived, got, bodies = record
    taken = Taken(
        _number(time),
        tuple(_node(peer) for peer in left),
        tuple((_node(peer), _bytes(session, 8)) for peer, session in came),
        None if leaves is None else tuple(_bytes(leaf) for leaf in leaves),
        tuple(
            Block(
                _bytes(name),
                _number(number),
                tuple(_bytes(item) for item in ancestors),
                tuple((_bytes(issued), _bytes(root)) for issued, root in unrouted),
            )
            for name, number, ancestors, unrouted in blocks
        ),
        tuple((_bytes(root), _number(size)) for root, size in kept),
        tuple(
            Declared(_node(peer), tuple(_bytes(head) for head in heads), _number(count), _flag(malformed))
            for peer, heads, count, malformed in declared
        ),
        tuple(
            Arrived(
                _node(peer),
                _bytes(topic),
                _bytes(root),
                _number(messages),
                _number(size),
                _bytes(found),
                _flag(malformed),
            )
            for peer, topic, root, messages, size, found, malformed in arrived
        ),
    )
    if not isinstance(bodies, dict) or not all(isinstance(packet, bytes) for packet in bodies.values()):
        raise ValueError(f"{bodies!r:.40} where bodies stand, by root")
    found = {_bytes(root): packet for root, packet in bodies.items()}
    return Recorded(taken, tuple((_bytes(topic), _bytes(root)) for topic, root in got), found)


def _number(item: Any) -> int:
    if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item < 2**63:
        raise ValueError(f"{item!r:.40} where a number stands")
    return item


def _node(item: Any) -> int:
    if _number(item) >= 2**32:
        raise ValueError(f"{item} where a node stands, below 2**32")
    return int(item)


def _flag(item: Any) -> bool:
    if not isinstance(item, bool):
        raise ValueError(f"{item!r:.40} where true or false stands")
    return item


def _bytes(item: Any, size: int = 32) -> bytes:
    if not isinstance(item, bytes) or len(item) != size:
        raise ValueError(f"{item!r:.40} where {size} bytes stand")
    return item
