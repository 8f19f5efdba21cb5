"""SCALE as far as the messages need it (2.1): integers, Compact, Option, Vec; a reader that refuses what is left."""

from collections.abc import Callable
from typing import TypeVar

from tests.spec.xdm.errors import XdmError

T = TypeVar("T")


def little(value: int, size: int) -> bytes:
    """An unsigned integer of `size` bytes."""
    return value.to_bytes(size, "little")


def u256(value: int) -> bytes:
    return little(value, 32)


def u128(value: int) -> bytes:
    return little(value, 16)


def compact(value: int) -> bytes:
    if value < 2**6:
        return little(value << 2, 1)
    if value < 2**14:
        return little(value << 2 | 1, 2)
    if value < 2**30:
        return little(value << 2 | 2, 4)
    size = (value.bit_length() + 7) // 8
    return little((size - 4) << 2 | 3, 1) + little(value, size)


def blob(data: bytes) -> bytes:
    """Vec<u8>."""
    return compact(len(data)) + data


def vec(items: list[bytes]) -> bytes:
    """A Vec of items that are encoded already."""
    return compact(len(items)) + b"".join(items)


def option(data: bytes | None) -> bytes:
    return b"\0" if data is None else b"\1" + data


class Reader:
    """Reads a value from the front; every malformed byte is FailedToDecode."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if self.position + size > len(self.data):
            raise XdmError("FailedToDecode")
        self.position += size
        return self.data[self.position - size : self.position]

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def index(self, count: int) -> int:
        """The index of an enum of `count` variants."""
        found = self.integer(1)
        if found >= count:
            raise XdmError("FailedToDecode")
        return found

    def compact(self) -> int:
        """Only the shortest form is taken, as the deployed codec does."""
        start, first = self.position, self.integer(1)
        mode = first & 3
        if mode == 3:
            value = self.integer((first >> 2) + 4)
        else:
            self.position -= 1
            value = self.integer((1, 2, 4)[mode]) >> 2
        if compact(value) != self.data[start : self.position]:
            raise XdmError("FailedToDecode")
        return value

    def blob(self) -> bytes:
        return self.take(self.compact())

    def vec(self, item: Callable[[], T]) -> list[T]:
        count = self.compact()
        if count > len(self.data):  # every item has a byte at least
            raise XdmError("FailedToDecode")
        return [item() for _ in range(count)]

    def option(self, item: Callable[[], T]) -> T | None:
        return item() if self.index(2) else None

    def end(self) -> None:
        if self.position != len(self.data):
            raise XdmError("FailedToDecode")
