"""Traces of node processes: each step's input and new queues, in files that survive a kill.

```
trace.json                     protocol, options of gossip, nodes; after the run, the files' digests
node-003-life-2.trace          CBOR records with a length prefix (u32, little-endian): run, then steps
```

A step is written before its output leaves the node, so each received packet is in its sender's trace.
A kill truncates at most the last record.

Traces are untrusted: an attacker may alter a file together with its digest. ``RunRules`` therefore
rejects each step that no node process writes, and each record that contradicts an earlier one about
a block, a queue or a connection. An invalid record is one error line with file, record and field.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import cbor2
from causeway_proofs.errors import InvalidInput, OverLimit
from causeway_proofs.hashing import blake2_256
from causeway_proofs.substrate.egress import MAX_CHAIN_HEADS, GossipedQueue, decode_gossip
from causeway_proofs.substrate.errors import BadNeighborPacket, Malformed

from causeway.config.document import validate_document
from causeway.gossip.options import GossipOptions
from causeway.gossip.processes.connection import LENGTH, SESSION_BYTES, message_limit
from causeway.gossip.processes.scenario import MOST_NODES, PLAIN
from causeway.gossip.processes.step_trace import (
    NO_DIGEST,
    TOO_MANY_HEADS,
    ArrivedQueue,
    Got,
    ImportedBlock,
    NeighborDeclaration,
    StepTrace,
)

MOST_RECORD = 256 << 20
"""Maximum size of a record in bytes."""

_LONGER = 24
"""First additional-information value with an explicit length (RFC 8949 3)."""

_STRINGS = (2, 3)
"""Major types whose argument is a byte count."""

MOST_ITEMS = 1_000_000
"""Maximum number of CBOR items in a record.

An empty list is one byte on disk and dozens in memory.
"""

Read = TypeVar("Read")


@dataclass(frozen=True)
class ProcessRun:
    """Run of a node's process: start ``time`` in ms; ``life`` numbers the runs of the node."""

    node: int
    life: int
    time: int

    @property
    def file(self) -> str:
        """Name of the trace file."""
        return f"node-{self.node:03}-life-{self.life}.trace"


@dataclass(frozen=True)
class RecordedStep:
    """Step of a trace: its input, the new queues, and the packets of those from peers, by root."""

    taken: StepTrace
    got: tuple[Got, ...]
    bodies: Mapping[bytes, bytes]


class InvalidRecord(InvalidInput):
    """Invalid record; the text starts with the field."""


class RecordErrors:
    """Context manager that adds file and position to the errors of one record."""

    def __init__(self, path: Path | str, place: int) -> None:
        self._path, self._place = path, place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidRecord | cbor2.CBORError | ValueError | TypeError | RecursionError):
            text = " ".join(str(error).split())
            raise InvalidInput(f"{self._path}: record {self._place} is none of a trace: {text:.200}") from None


def encode_record(record: list[Any]) -> bytes:
    """Encode a record with its length prefix."""
    data = cbor2.dumps(record)
    return LENGTH.pack(len(data)) + data


def encode_run(life: ProcessRun) -> list[Any]:
    """Convert a process run to a record."""
    return [life.node, life.life, life.time]


def encode_step(recorded: RecordedStep) -> list[Any]:
    """Convert a step to a record."""
    inputs = recorded.taken
    blocks = [[block.hash, block.number, block.ancestors, block.unrouted] for block in inputs.blocks]
    declared = [[row.peer, row.heads, row.count, row.malformed] for row in inputs.declared]
    arrived = [
        [row.peer, row.topic, row.root, row.messages, row.size, row.found, row.malformed] for row in inputs.arrived
    ]
    steps = [inputs.time, inputs.left, inputs.came, inputs.leaves, blocks, inputs.kept, declared, arrived]
    return [*steps, [*recorded.got], dict(recorded.bodies)]


def read_records(path: Path) -> Iterator[Any]:
    """Yield the records of a file; a truncated last record is ignored.

    Raises:
        InvalidInput: A record is too long or no canonical CBOR.
    """
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
            with RecordErrors(path, place):
                _require_few_items(data)
                record = cbor2.loads(data)
                if cbor2.dumps(record) != data:
                    raise InvalidRecord("its bytes are not as a node writes them")
            yield record


def _require_few_items(data: bytes) -> None:
    """Reject a record with too many items before decoding it.

    Invalid CBOR is left to the decoder.

    Raises:
        InvalidRecord: The record has more than ``MOST_ITEMS`` items.
    """
    at = items = 0
    while at < len(data):
        kind, value = data[at] >> 5, data[at] & 31
        at += 1
        if value >= _LONGER:
            size = 1 << (value - _LONGER)
            value = int.from_bytes(data[at : at + size], "big")
            at += size
        if kind in _STRINGS:
            at += value
        items += 1
        if items > MOST_ITEMS:
            raise InvalidRecord(f"it has more than {MOST_ITEMS:,} items")


def decode_run(record: Any) -> ProcessRun:
    """Convert a record to a process run.

    Raises:
        InvalidRecord: The record is invalid.
    """
    return ProcessRun(*_columns(record, node=_node, life=_number, time=_number))


def decode_step(record: Any) -> RecordedStep:
    """Convert a record to a step.

    Raises:
        InvalidRecord: The record is invalid.
    """
    *inputs, got, bodies = _columns(
        record,
        time=_number,
        left=partial(_each, _node),
        came=partial(_each, _session),
        leaves=lambda item: None if item is None else _each(_bytes, item),
        blocks=partial(_each, _block),
        kept=partial(_each, lambda row: _columns(row, root=_bytes, size=_size)),
        declared=partial(_each, _declared),
        arrived=partial(_each, _arrived),
        got=partial(_each, lambda row: _columns(row, topic=_bytes, root=_bytes)),
        bodies=_bodies,
    )
    return RecordedStep(StepTrace(*inputs), got, bodies)


def _columns(record: Any, **fields: Callable[[Any], Any]) -> tuple[Any, ...]:
    if not isinstance(record, list) or len(record) != len(fields):
        raise InvalidRecord(f"{_abbreviate(record)} where a list of {', '.join(fields)} stands")
    return tuple(_decode_field(name, read, item) for (name, read), item in zip(fields.items(), record, strict=True))


def _each(read: Callable[[Any], Read], items: Any) -> tuple[Read, ...]:
    if not isinstance(items, list):
        raise InvalidRecord(f"{_abbreviate(items)} where a list stands")
    return tuple(_decode_field(str(at), read, item) for at, item in enumerate(items))


def _decode_field(name: str, read: Callable[[Any], Read], item: Any) -> Read:
    try:
        return read(item)
    except InvalidRecord as error:
        raise InvalidRecord(f"{name}: {error}") from None


def _session(row: Any) -> Any:
    return _columns(row, peer=_node, session=partial(_bytes, size=SESSION_BYTES))


def _block(row: Any) -> ImportedBlock:
    pairs = partial(_each, lambda pair: _columns(pair, issued=_bytes, root=_bytes))
    return ImportedBlock(*_columns(row, hash=_bytes, number=_node, ancestors=partial(_each, _bytes), unrouted=pairs))


def _declared(row: Any) -> NeighborDeclaration:
    return NeighborDeclaration(*_columns(row, peer=_node, heads=partial(_each, _bytes), count=_number, malformed=_flag))


def _arrived(row: Any) -> ArrivedQueue:
    sizes = {"messages": _size, "size": _size}
    return ArrivedQueue(*_columns(row, peer=_node, topic=_bytes, root=_bytes, **sizes, found=_bytes, malformed=_flag))


def _bodies(item: Any) -> Mapping[bytes, bytes]:
    if not isinstance(item, dict) or not all(isinstance(packet, bytes) for packet in item.values()):
        raise InvalidRecord(f"{_abbreviate(item)} where bodies stand, by root")
    return {_bytes(root): packet for root, packet in item.items()}


def _number(item: Any, most: int = 2**63 - 1) -> int:
    if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item <= most:
        raise InvalidRecord(f"{_abbreviate(item)} where a number up to {most} stands")
    return item


_node = partial(_number, most=2**32 - 1)

_size = partial(_number, most=MOST_RECORD)


def _flag(item: Any) -> bool:
    if not isinstance(item, bool):
        raise InvalidRecord(f"{_abbreviate(item)} where true or false stands")
    return item


def _bytes(item: Any, size: int = 32) -> bytes:
    if not isinstance(item, bytes) or len(item) != size:
        raise InvalidRecord(f"{_abbreviate(item)} where {size} bytes stand")
    return item


def _abbreviate(item: Any) -> str:
    return f"{item!r:.40}" if not isinstance(item, list | dict) else f"{type(item).__name__} of {len(item)}"


@dataclass
class TraceHistory:
    """Facts of all records read so far, for the detection of contradictions.

    Attributes:
        blocks: Digest of each block's content, by hash.
        messages: Number of messages of each queue, by root.
        sizes: Size in bytes of each queue, by root.
        sessions: Pair of nodes of each connection, by session.
    """

    blocks: dict[bytes, bytes] = field(default_factory=dict)
    messages: dict[bytes, int] = field(default_factory=dict)
    sizes: dict[bytes, int] = field(default_factory=dict)
    sessions: dict[bytes, tuple[int, int]] = field(default_factory=dict)


class RunRules:
    """Validation of the steps of one process run, in order."""

    def __init__(self, life: ProcessRun, nodes: frozenset[int], options: GossipOptions, history: TraceHistory) -> None:
        self._life, self._options, self._history = life, options, history
        self._others = nodes - {life.node}
        self._time = life.time
        self._purge = life.time - life.time % options.purge_interval + options.purge_interval
        self._connected: set[int] = set()
        self._sessions: set[bytes] = set()

    def step(self, recorded: RecordedStep) -> None:
        """Validate the next step.

        Raises:
            InvalidRecord: No process writes such a step, or it contradicts another record.
        """
        inputs = recorded.taken
        self._require_time(inputs)
        self._require_peers(inputs)
        self._require_chain(inputs)
        for at, row in enumerate(inputs.declared):
            _require_declared(f"declared: {at}", row)
        for at, queue in enumerate(inputs.arrived):
            self._require_arrived(f"arrived: {at}", queue)
        self._require_bodies(recorded)

    def _require_time(self, inputs: StepTrace) -> None:
        if inputs.time < self._time:
            raise InvalidRecord(f"time: {inputs.time} ms, after one at {self._time} ms")
        self._time = inputs.time
        if inputs.time < self._purge:
            return
        if inputs != StepTrace(self._purge):
            raise InvalidRecord(
                f"time: {inputs.time} ms, without the purge at {self._purge} ms, which takes nothing else"
            )
        self._purge += self._options.purge_interval

    def _require_peers(self, inputs: StepTrace) -> None:
        came = [peer for peer, _ in inputs.came]
        senders = [*(row.peer for row in inputs.declared), *(row.peer for row in inputs.arrived)]
        for name, peers in (("left", inputs.left), ("came", came), ("declared, arrived", senders)):
            for peer in peers:
                if peer not in self._others:
                    raise InvalidRecord(f"{name}: peer {peer} is none of the other nodes of the trace")
        self._connected -= {*inputs.left}
        for peer, session in inputs.came:
            if peer in self._connected:
                raise InvalidRecord(f"came: peer {peer} was there")
            self._connected.add(peer)
            pair = min(peer, self._life.node), max(peer, self._life.node)
            if self._history.sessions.setdefault(session, pair) != pair or session in self._sessions:
                raise InvalidRecord(f"came: session {session.hex()} is that of another connection")
            self._sessions.add(session)
        for peer, count in Counter(senders).items():
            if peer not in self._connected:
                raise InvalidRecord(f"declared, arrived: peer {peer} is not there")
            if count > self._options.max_step_packets:
                raise InvalidRecord(f"declared, arrived: {count} packets of peer {peer}, which a step does not take")

    def _require_chain(self, inputs: StepTrace) -> None:
        if inputs.leaves is None:
            if inputs.blocks or inputs.kept:
                raise InvalidRecord("leaves: none, where there are blocks or queues that are kept")
            return
        if not inputs.leaves or len({*inputs.leaves}) != len(inputs.leaves):
            raise InvalidRecord("leaves: none at all, or one is there twice")
        if [block.hash for block in inputs.blocks] != [*inputs.leaves]:
            raise InvalidRecord("blocks: others than the leaves")
        for at, block in enumerate(inputs.blocks):
            self._require_block(f"blocks: {at}", block)
        if len({root for root, _ in inputs.kept}) != len(inputs.kept):
            raise InvalidRecord("kept: one is there twice")
        for at, (root, size) in enumerate(inputs.kept):
            _require_consistent(self._history.sizes, root, size, f"kept: {at}: size")

    def _require_block(self, name: str, block: ImportedBlock) -> None:
        if len(block.ancestors) > self._options.ancestors:
            raise InvalidRecord(f"{name}: ancestors: {len(block.ancestors)}; at most {self._options.ancestors}")
        digest = blake2_256(repr((block.number, block.ancestors, block.unrouted)).encode())
        if self._history.blocks.setdefault(block.hash, digest) != digest:
            raise InvalidRecord(f"{name}: {block.hash.hex()} is said to be another block elsewhere")

    def _require_arrived(self, name: str, row: ArrivedQueue) -> None:
        if row.malformed:
            if (row.topic, row.root, row.messages, row.found) != (NO_DIGEST, NO_DIGEST, 0, NO_DIGEST):
                raise InvalidRecord(f"{name}: malformed: true, of a queue that could be read")
            return
        _require_consistent(self._history.messages, row.root, row.messages, f"{name}: messages")
        _require_consistent(self._history.sizes, row.root, row.size, f"{name}: size")

    def _require_bodies(self, recorded: RecordedStep) -> None:
        """Require exactly the bodies of the queues that peers delivered, each with its own root."""
        came = {row.root for row in recorded.taken.arrived if row.found == row.root}
        new = {root for _, root in recorded.got} & came
        if recorded.bodies.keys() != new:
            raise InvalidRecord(f"bodies: of {len(recorded.bodies)} queues; {len(new)} were got of peers")
        limit = message_limit(self._options)
        for root, packet in recorded.bodies.items():
            name = f"bodies: {root.hex()}"
            try:
                queue = decode_gossip(packet, limit)
            except (Malformed, OverLimit, BadNeighborPacket) as error:
                raise InvalidRecord(f"{name}: {error}") from None
            if not isinstance(queue, GossipedQueue) or queue.root != root:
                raise InvalidRecord(f"{name}: a packet of something else")
            _require_consistent(self._history.messages, root, len(queue.messages), f"{name}: messages")
            _require_consistent(self._history.sizes, root, sum(map(len, queue.messages)), f"{name}: size")


def _require_declared(name: str, row: NeighborDeclaration) -> None:
    if row.malformed:
        good = not row.heads and row.count == 0
    else:
        good = row.count == len(row.heads) <= MAX_CHAIN_HEADS or (not row.heads and row.count == TOO_MANY_HEADS)
    if not good:
        raise InvalidRecord(f"{name}: count: {row.count}, malformed: {row.malformed}, with {len(row.heads)} heads")


def _require_consistent(known: dict[bytes, int], root: bytes, value: int, name: str) -> None:
    if known.setdefault(root, value) != value:
        raise InvalidRecord(f"{name}: {value}, where another record has {known[root]} for {root.hex()}")


FORMAT = 2

PROTOCOL = "icmp"

MANIFEST = "trace.json"

MOST_MANIFEST = 1 << 20
"""Maximum size of the manifest in bytes."""

MOST_LIVES = 2 * MOST_NODES
"""Maximum number of process runs; a node is killed at most once. All files are open at a time."""

_NAME = re.compile(r"node-(\d{3,5})-life-(\d{1,5})\.trace")


class TraceWriter:
    """Writer of the trace of one process run.

    All methods raise ``InvalidInput`` on OS errors such as a full disk.
    """

    def __init__(self, folder: Path, life: ProcessRun) -> None:
        self._path = folder / life.file
        with self._convert_errors():
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._write(encode_run(life))

    def step(self, inputs: StepTrace, got: Sequence[Got], bodies: Mapping[bytes, bytes]) -> None:
        """Write a step through to the operating system."""
        self._write(encode_step(RecordedStep(inputs, tuple(got), bodies)))

    def _write(self, record: list[Any]) -> None:
        pending = memoryview(encode_record(record))
        with self._convert_errors():
            while pending:
                pending = pending[os.write(self._file, pending) :]

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InvalidInput(f"--trace {self._path}: cannot be written: {error.strerror or error}") from None

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@dataclass(frozen=True)
class Trace:
    """Folder of traces; ``closed`` is True if its files match the digests of the finished run."""

    folder: Path
    options: GossipOptions
    nodes: tuple[int, ...]
    closed: bool = False
    _history: TraceHistory = field(default_factory=TraceHistory)

    def lives(self) -> Iterator[tuple[ProcessRun, Iterator[RecordedStep]]]:
        """Yield each process run with its steps, to be read interleaved.

        Raises:
            InvalidInput: A file is no valid trace.
        """
        previous = 0, 0
        for node, life, path in _trace_files(self.folder):
            if node not in self.nodes or life != (previous[1] + 1 if node == previous[0] else 1):
                raise InvalidInput(f"{path}: life {life} of node {node}: there is no such node, or no life before")
            previous = node, life
            records = read_records(path)
            first = next(records, None)
            if first is None:
                continue  # killed before its first record
            with RecordErrors(path, 0):
                found = decode_run(first)
                if (found.node, found.life) != (node, life):
                    raise InvalidRecord(f"node, life: {found.node}, {found.life}")
            rules = RunRules(found, frozenset(self.nodes), self.options, self._history)
            yield found, self._steps(path, rules, records)

    @staticmethod
    def _steps(path: Path, rules: RunRules, records: Iterator[Any]) -> Iterator[RecordedStep]:
        for place, record in enumerate(records, 1):
            with RecordErrors(path, place):
                step = decode_step(record)
                rules.step(step)
            yield step


def _trace_files(folder: Path) -> list[tuple[int, int, Path]]:
    """List the trace files: node, life, path.

    Raises:
        InvalidInput: A name is invalid, or there are too many files.
    """
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
    """Create a trace in a new or empty folder.

    Args:
        folder: The folder.
        options: Options of gossip.
        nodes: Numbers of the nodes.

    Raises:
        InvalidInput: The folder is not empty or not writable.
    """
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
    """Record the digests of all files once no process writes them.

    Raises:
        InvalidInput: The manifest cannot be read or written.
    """
    path = folder / MANIFEST
    new = path.with_suffix(".new")
    try:
        content = _read_manifest(folder)
        content["files"] = {one.name: _file_digest(one) for _, _, one in _trace_files(folder)}
        content["digest"] = _manifest_digest(content)
        new.write_text(json.dumps(content, indent=1) + "\n")
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise InvalidInput(f"--trace {folder}: cannot be closed: {error.strerror or error}") from None


def open_trace(folder: Path) -> Trace:
    """Open the trace in a folder.

    Raises:
        InvalidInput: There is no trace, its format is unknown, or it was altered.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder}: is no folder; a trace is the folder that was named when it was recorded")
    content = _read_manifest(folder)
    path = folder / MANIFEST
    if unknown := content.keys() - {"format", "protocol", "options", "nodes", "files", "digest"}:
        raise InvalidInput(f"{path}: {min(unknown)!r:.40}: no such key")
    options = validate_document(GossipOptions, content.get("options", {}), str(path), ("options",))
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
    """Verify the files against the digests of the closed trace.

    Raises:
        InvalidInput: A file was altered, added or removed.
    """
    path = folder / MANIFEST
    if "files" not in content and "digest" not in content:
        return  # the parent was killed before it closed the trace
    if content.get("digest") != _manifest_digest(content):
        raise InvalidInput(f"{path}: digest: not that of its content: it was altered")
    files, present = content.get("files"), {one.name: one for _, _, one in _trace_files(folder)}
    if not isinstance(files, dict) or files.keys() != present.keys():
        raise InvalidInput(f"{path}: files: others than the files of lives that are there")
    for name, one in present.items():
        if files[name] != _file_digest(one):
            raise InvalidInput(f"{one}: does not have the digest that {MANIFEST} says: it was altered")


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def _manifest_digest(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.blake2b(json.dumps(rest, sort_keys=True).encode(), digest_size=32).hexdigest()


def _read_manifest(folder: Path) -> dict[str, Any]:
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
