"""Records of a trace: how a life and its steps are written, and what is read of bytes that anybody may have altered.

Whatever is none of a record is refused in one line that names the file, the record and the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import cbor2

from causeway.model.errors import InvalidInput
from causeway.service.icmp.taken import Arrived, Block, Declared, Got, Taken
from causeway.service.icmp.wire import LENGTH, SESSION_BYTES

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
class Life:
    """A process from its start (``time``, ms) to its end; ``life`` counts those of the node."""

    node: int
    life: int
    time: int

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"node-{self.node:03}-life-{self.life}.trace"


@dataclass(frozen=True)
class Recorded:
    """A step: what was taken, the queues that the node got by it, and of those that came from peers the packets."""

    taken: Taken
    got: tuple[Got, ...]
    bodies: Mapping[bytes, bytes]


class NoRecord(InvalidInput):
    """What stands in a record is none; the text begins with the field."""


class Refusing:
    """Whatever says that a record is none, as one line that names file and record."""

    def __init__(self, path: Path | str, place: int) -> None:
        self._path, self._place = path, place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NoRecord | cbor2.CBORError | ValueError | TypeError | RecursionError):
            text = " ".join(str(error).split())
            raise InvalidInput(f"{self._path}: record {self._place} is none of a trace: {text:.200}") from None


def encoded(record: list[Any]) -> bytes:
    """Return the bytes of a record, with its length."""
    data = cbor2.dumps(record)
    return LENGTH.pack(len(data)) + data


def of_life(life: Life) -> list[Any]:
    """Return the record of a life."""
    return [life.node, life.life, life.time]


def of_step(recorded: Recorded) -> list[Any]:
    """Return the record of a step."""
    taken = recorded.taken
    blocks = [[block.hash, block.number, block.ancestors, block.unrouted] for block in taken.blocks]
    declared = [[row.peer, row.heads, row.count, row.malformed] for row in taken.declared]
    arrived = [
        [row.peer, row.topic, row.root, row.messages, row.size, row.found, row.malformed] for row in taken.arrived
    ]
    steps = [taken.time, taken.left, taken.came, taken.leaves, blocks, taken.kept, declared, arrived]
    return [*steps, [*recorded.got], dict(recorded.bodies)]


def records(path: Path) -> Iterator[Any]:
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
            with Refusing(path, place):
                _require_few_items(data)
                record = cbor2.loads(data)
                if cbor2.dumps(record) != data:
                    raise NoRecord("its bytes are not as a node writes them")
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
            raise NoRecord(f"it has more than {MOST_ITEMS:,} items")


def life_of(record: Any) -> Life:
    """Return the life of a record. Raises ``NoRecord``."""
    return Life(*_columns(record, node=_node, life=_number, time=_number))


def step_of(record: Any) -> Recorded:
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
    return Recorded(Taken(*taken), got, bodies)


def _columns(record: Any, **fields: Callable[[Any], Any]) -> tuple[Any, ...]:
    if not isinstance(record, list) or len(record) != len(fields):
        raise NoRecord(f"{_shown(record)} where a list of {', '.join(fields)} stands")
    return tuple(_named(name, read, item) for (name, read), item in zip(fields.items(), record, strict=True))


def _each(read: Callable[[Any], Read], items: Any) -> tuple[Read, ...]:
    if not isinstance(items, list):
        raise NoRecord(f"{_shown(items)} where a list stands")
    return tuple(_named(str(at), read, item) for at, item in enumerate(items))


def _named(name: str, read: Callable[[Any], Read], item: Any) -> Read:
    try:
        return read(item)
    except NoRecord as error:
        raise NoRecord(f"{name}: {error}") from None


def _session(row: Any) -> Any:
    return _columns(row, peer=_node, session=partial(_bytes, size=SESSION_BYTES))


def _block(row: Any) -> Block:
    pairs = partial(_each, lambda pair: _columns(pair, issued=_bytes, root=_bytes))
    return Block(*_columns(row, hash=_bytes, number=_node, ancestors=partial(_each, _bytes), unrouted=pairs))


def _declared(row: Any) -> Declared:
    return Declared(*_columns(row, peer=_node, heads=partial(_each, _bytes), count=_number, malformed=_flag))


def _arrived(row: Any) -> Arrived:
    sizes = {"messages": _size, "size": _size}
    return Arrived(*_columns(row, peer=_node, topic=_bytes, root=_bytes, **sizes, found=_bytes, malformed=_flag))


def _bodies(item: Any) -> Mapping[bytes, bytes]:
    if not isinstance(item, dict) or not all(isinstance(packet, bytes) for packet in item.values()):
        raise NoRecord(f"{_shown(item)} where bodies stand, by root")
    return {_bytes(root): packet for root, packet in item.items()}


def _number(item: Any, most: int = 2**63 - 1) -> int:
    if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item <= most:
        raise NoRecord(f"{_shown(item)} where a number up to {most} stands")
    return item


_node = partial(_number, most=2**32 - 1)

_size = partial(_number, most=MOST_RECORD)


def _flag(item: Any) -> bool:
    if not isinstance(item, bool):
        raise NoRecord(f"{_shown(item)} where true or false stands")
    return item


def _bytes(item: Any, size: int = 32) -> bytes:
    if not isinstance(item, bytes) or len(item) != size:
        raise NoRecord(f"{_shown(item)} where {size} bytes stand")
    return item


def _shown(item: Any) -> str:
    return f"{item!r:.40}" if not isinstance(item, list | dict) else f"{type(item).__name__} of {len(item)}"
