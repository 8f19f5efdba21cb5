"""Traces of node processes: what each took in each step, and what it got by that, in files that a killed process leaves
whole but for its last record.

```
trace.json                     the protocol, the options of gossip, the nodes; when all has ended, the files' digests
node-003-life-2.trace          records in CBOR, each behind its length (u32, little-endian): first the life, then steps
```

A step is recorded before anything of it goes out: what a peer received is in the trace of who sent it.

Records of a trace: how a life and its steps are written, and what is read of bytes that anybody may have altered.

Whatever is none of a record is refused in one line that names the file, the record and the field.

What the records of a trace must keep to, whatever they say: the rules by which a node process writes them, and what
several of them say of one thing.

Whoever can write files can alter what a trace says, and its digests with it. So a record is believed only as far as
others, or the bytes beside it, bear it out: a step is refused that no process would have written, and one that says of
a block, a queue or a connection something else than a record before it.
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
    ArrivedQueue,
    Got,
    ImportedBlock,
    NeighborDeclaration,
    StepTrace,
)

MOST_RECORD = 256 << 20
"""Bytes of one record."""

_LONGER = 24
"""From here on the first byte of an item says how long its number is (RFC 8949 3)."""

_STRINGS = (2, 3)
"""The kinds of items whose number is that of the bytes behind it."""

MOST_ITEMS = 1_000_000
"""Items of one record: numbers, byte strings, and the lists that they are in. An empty list has one byte, and takes
dozens in memory."""

Read = TypeVar("Read")


@dataclass(frozen=True)
class ProcessRun:
    """A process from its start (``time``, ms) to its end; ``life`` counts those of the node."""

    node: int
    life: int
    time: int

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"node-{self.node:03}-life-{self.life}.trace"


@dataclass(frozen=True)
class RecordedStep:
    """A step: what was taken, the queues that the node got by it, and of those that came from peers the packets."""

    taken: StepTrace
    got: tuple[Got, ...]
    bodies: Mapping[bytes, bytes]


class InvalidRecord(InvalidInput):
    """What stands in a record is none; the text begins with the field."""


class RecordErrors:
    """Whatever says that a record is none, as one line that names file and record."""

    def __init__(self, path: Path | str, place: int) -> None:
        self._path, self._place = path, place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidRecord | cbor2.CBORError | ValueError | TypeError | RecursionError):
            text = " ".join(str(error).split())
            raise InvalidInput(f"{self._path}: record {self._place} is none of a trace: {text:.200}") from None


def encode_record(record: list[Any]) -> bytes:
    """Return the bytes of a record, with its length."""
    data = cbor2.dumps(record)
    return LENGTH.pack(len(data)) + data


def encode_run(life: ProcessRun) -> list[Any]:
    """Return the record of a life."""
    return [life.node, life.life, life.time]


def encode_step(recorded: RecordedStep) -> list[Any]:
    """Return the record of a step."""
    taken = recorded.taken
    blocks = [[block.hash, block.number, block.ancestors, block.unrouted] for block in taken.blocks]
    declared = [[row.peer, row.heads, row.count, row.malformed] for row in taken.declared]
    arrived = [
        [row.peer, row.topic, row.root, row.messages, row.size, row.found, row.malformed] for row in taken.arrived
    ]
    steps = [taken.time, taken.left, taken.came, taken.leaves, blocks, taken.kept, declared, arrived]
    return [*steps, [*recorded.got], dict(recorded.bodies)]


def read_records(path: Path) -> Iterator[Any]:
    """Yield the records of a file; the last may be cut off, as a killed process leaves it. Raises ``InvalidInput``."""
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
    """Refuse a record of more than ``MOST_ITEMS`` items before it is taken apart; what is no CBOR is not judged here.
    Raises ``NoRecord``."""
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
    """Return the life of a record. Raises ``NoRecord``."""
    return ProcessRun(*_columns(record, node=_node, life=_number, time=_number))


def decode_step(record: Any) -> RecordedStep:
    """Return the step of a record. Raises ``NoRecord``."""
    *taken, got, bodies = _columns(
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
    return RecordedStep(StepTrace(*taken), got, bodies)


def _columns(record: Any, **fields: Callable[[Any], Any]) -> tuple[Any, ...]:
    if not isinstance(record, list) or len(record) != len(fields):
        raise InvalidRecord(f"{_shown(record)} where a list of {', '.join(fields)} stands")
    return tuple(_named(name, read, item) for (name, read), item in zip(fields.items(), record, strict=True))


def _each(read: Callable[[Any], Read], items: Any) -> tuple[Read, ...]:
    if not isinstance(items, list):
        raise InvalidRecord(f"{_shown(items)} where a list stands")
    return tuple(_named(str(at), read, item) for at, item in enumerate(items))


def _named(name: str, read: Callable[[Any], Read], item: Any) -> Read:
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
        raise InvalidRecord(f"{_shown(item)} where bodies stand, by root")
    return {_bytes(root): packet for root, packet in item.items()}


def _number(item: Any, most: int = 2**63 - 1) -> int:
    if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item <= most:
        raise InvalidRecord(f"{_shown(item)} where a number up to {most} stands")
    return item


_node = partial(_number, most=2**32 - 1)

_size = partial(_number, most=MOST_RECORD)


def _flag(item: Any) -> bool:
    if not isinstance(item, bool):
        raise InvalidRecord(f"{_shown(item)} where true or false stands")
    return item


def _bytes(item: Any, size: int = 32) -> bytes:
    if not isinstance(item, bytes) or len(item) != size:
        raise InvalidRecord(f"{_shown(item)} where {size} bytes stand")
    return item


def _shown(item: Any) -> str:
    return f"{item!r:.40}" if not isinstance(item, list | dict) else f"{type(item).__name__} of {len(item)}"


TOO_MANY_HEADS = MAX_CHAIN_HEADS + 1


@dataclass
class TraceHistory:
    """What all lives of a trace have said so far: of blocks, by hash; of queues, by root, how many messages and bytes;
    of connections, by session, which nodes."""

    blocks: dict[bytes, bytes] = field(default_factory=dict)
    messages: dict[bytes, int] = field(default_factory=dict)
    sizes: dict[bytes, int] = field(default_factory=dict)
    sessions: dict[bytes, tuple[int, int]] = field(default_factory=dict)


class RunRules:
    """The rules that the steps of one life keep to, one after the other."""

    def __init__(self, life: ProcessRun, nodes: frozenset[int], options: GossipOptions, said: TraceHistory) -> None:
        self._life, self._options, self._said = life, options, said
        self._others = nodes - {life.node}
        self._time = life.time
        self._purge = life.time - life.time % options.purge_interval + options.purge_interval
        self._there: set[int] = set()
        self._sessions: set[bytes] = set()

    def step(self, recorded: RecordedStep) -> None:
        """Take the next step. Raises ``NoRecord``: a process does not write it, or another record says otherwise."""
        taken = recorded.taken
        self._time_of(taken)
        self._peers(taken)
        self._chain(taken)
        for at, row in enumerate(taken.declared):
            _require_declared(f"declared: {at}", row)
        for at, queue in enumerate(taken.arrived):
            self._require_arrived(f"arrived: {at}", queue)
        self._bodies(recorded)

    def _time_of(self, taken: StepTrace) -> None:
        if taken.time < self._time:
            raise InvalidRecord(f"time: {taken.time} ms, after one at {self._time} ms")
        self._time = taken.time
        if taken.time < self._purge:
            return
        if taken != StepTrace(self._purge):
            raise InvalidRecord(
                f"time: {taken.time} ms, without the purge at {self._purge} ms, which takes nothing else"
            )
        self._purge += self._options.purge_interval

    def _peers(self, taken: StepTrace) -> None:
        came = [peer for peer, _ in taken.came]
        senders = [*(row.peer for row in taken.declared), *(row.peer for row in taken.arrived)]
        for name, peers in (("left", taken.left), ("came", came), ("declared, arrived", senders)):
            for peer in peers:
                if peer not in self._others:
                    raise InvalidRecord(f"{name}: peer {peer} is none of the other nodes of the trace")
        self._there -= {*taken.left}
        for peer, session in taken.came:
            if peer in self._there:
                raise InvalidRecord(f"came: peer {peer} was there")
            self._there.add(peer)
            pair = min(peer, self._life.node), max(peer, self._life.node)
            if self._said.sessions.setdefault(session, pair) != pair or session in self._sessions:
                raise InvalidRecord(f"came: session {session.hex()} is that of another connection")
            self._sessions.add(session)
        for peer, count in Counter(senders).items():
            if peer not in self._there:
                raise InvalidRecord(f"declared, arrived: peer {peer} is not there")
            if count > self._options.max_step_packets:
                raise InvalidRecord(f"declared, arrived: {count} packets of peer {peer}, which a step does not take")

    def _chain(self, taken: StepTrace) -> None:
        if taken.leaves is None:
            if taken.blocks or taken.kept:
                raise InvalidRecord("leaves: none, where there are blocks or queues that are kept")
            return
        if not taken.leaves or len({*taken.leaves}) != len(taken.leaves):
            raise InvalidRecord("leaves: none at all, or one is there twice")
        if [block.hash for block in taken.blocks] != [*taken.leaves]:
            raise InvalidRecord("blocks: others than the leaves")
        for at, block in enumerate(taken.blocks):
            self._require_block(f"blocks: {at}", block)
        if len({root for root, _ in taken.kept}) != len(taken.kept):
            raise InvalidRecord("kept: one is there twice")
        for at, (root, size) in enumerate(taken.kept):
            _agree(self._said.sizes, root, size, f"kept: {at}: size")

    def _require_block(self, name: str, block: ImportedBlock) -> None:
        if len(block.ancestors) > self._options.ancestors:
            raise InvalidRecord(f"{name}: ancestors: {len(block.ancestors)}; at most {self._options.ancestors}")
        said = blake2_256(repr((block.number, block.ancestors, block.unrouted)).encode())
        if self._said.blocks.setdefault(block.hash, said) != said:
            raise InvalidRecord(f"{name}: {block.hash.hex()} is said to be another block elsewhere")

    def _require_arrived(self, name: str, row: ArrivedQueue) -> None:
        if row.malformed:
            if (row.topic, row.root, row.messages, row.found) != (NO_DIGEST, NO_DIGEST, 0, NO_DIGEST):
                raise InvalidRecord(f"{name}: malformed: true, of a queue that could be read")
            return
        _agree(self._said.messages, row.root, row.messages, f"{name}: messages")
        _agree(self._said.sizes, row.root, row.size, f"{name}: size")

    def _bodies(self, recorded: RecordedStep) -> None:
        """The bodies of a step are those of the queues that were got of peers, each with its own root."""
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
            _agree(self._said.messages, root, len(queue.messages), f"{name}: messages")
            _agree(self._said.sizes, root, sum(map(len, queue.messages)), f"{name}: size")


def _require_declared(name: str, row: NeighborDeclaration) -> None:
    if row.malformed:
        good = not row.heads and row.count == 0
    else:
        good = row.count == len(row.heads) <= MAX_CHAIN_HEADS or (not row.heads and row.count == TOO_MANY_HEADS)
    if not good:
        raise InvalidRecord(f"{name}: count: {row.count}, malformed: {row.malformed}, with {len(row.heads)} heads")


def _agree(known: dict[bytes, int], root: bytes, value: int, name: str) -> None:
    if known.setdefault(root, value) != value:
        raise InvalidRecord(f"{name}: {value}, where another record has {known[root]} for {root.hex()}")


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

    def __init__(self, folder: Path, life: ProcessRun) -> None:
        self._path = folder / life.file
        with self._said():
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._write(encode_run(life))

    def step(self, taken: StepTrace, got: Sequence[Got], bodies: Mapping[bytes, bytes]) -> None:
        """Write a step; it is with the system when this returns."""
        self._write(encode_step(RecordedStep(taken, tuple(got), bodies)))

    def _write(self, record: list[Any]) -> None:
        left = memoryview(encode_record(record))
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
    _said: TraceHistory = field(default_factory=TraceHistory)

    def lives(self) -> Iterator[tuple[ProcessRun, Iterator[RecordedStep]]]:
        """Yield each life with its steps, to be read in turn. Raises ``InvalidInput``: a file is no trace."""
        before = 0, 0
        for node, life, path in _files(self.folder):
            if node not in self.nodes or life != (before[1] + 1 if node == before[0] else 1):
                raise InvalidInput(f"{path}: life {life} of node {node}: there is no such node, or no life before")
            before = node, life
            read = read_records(path)
            first = next(read, None)
            if first is None:
                continue  # killed before it had written whose life it is
            with RecordErrors(path, 0):
                found = decode_run(first)
                if (found.node, found.life) != (node, life):
                    raise InvalidRecord(f"node, life: {found.node}, {found.life}")
            rules = RunRules(found, frozenset(self.nodes), self.options, self._said)
            yield found, self._steps(path, rules, read)

    @staticmethod
    def _steps(path: Path, rules: RunRules, read: Iterator[Any]) -> Iterator[RecordedStep]:
        for place, record in enumerate(read, 1):
            with RecordErrors(path, place):
                step = decode_step(record)
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
