"""The few SCALE forms that proofs over mountain ranges are made of, read strictly."""

from __future__ import annotations

from causeway.proofs.errors import MalformedProof
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.limits import require_length
from causeway.proofs.substrate.compact import decode_compact

_U64 = 8


def encode_u64(value: int) -> bytes:
    """Return a fixed-width u64, little endian."""
    return value.to_bytes(_U64, "little")


class Reader:
    """Reads values from the start of bytes to their end; ``what`` names the whole in messages.

    Raises:
        OverLimit: on making it: the bytes are more than any proof has.
        MalformedProof: on reading: the bytes end early, or a length is not in its shortest form.
    """

    def __init__(self, data: bytes, what: str) -> None:
        require_length(data, what)
        self._data = data
        self._what = what
        self._place = 0

    def take(self, length: int) -> bytes:
        """Return the next ``length`` bytes."""
        end = self._place + length
        if end > len(self._data):
            raise MalformedProof(f"{self._what} ends at byte {len(self._data)}, {end} are wanted")
        taken = self._data[self._place : end]
        self._place = end
        return taken

    def u64(self) -> int:
        """Return the next u64."""
        return int.from_bytes(self.take(_U64), "little")

    def length(self, width: int) -> int:
        """Return the length of a list whose elements have ``width`` bytes each; they must all be there."""
        start = self._place
        value, self._place = decode_compact(self._data, start, self._what)
        if value * width > len(self._data) - self._place:
            raise MalformedProof(f"{self._what} has at byte {start} a list of {value}, longer than what is left")
        return value

    def u64_list(self) -> tuple[int, ...]:
        """Return a list of u64."""
        count = self.length(_U64)
        data = self.take(count * _U64)
        return tuple(int.from_bytes(data[at : at + _U64], "little") for at in range(0, len(data), _U64))

    def digest_list(self) -> tuple[bytes, ...]:
        """Return a list of digests."""
        count = self.length(DIGEST_BYTES)
        data = self.take(count * DIGEST_BYTES)
        return tuple(data[at : at + DIGEST_BYTES] for at in range(0, len(data), DIGEST_BYTES))

    def end(self) -> None:
        """Refuse bytes after the last value."""
        if self._place != len(self._data):
            raise MalformedProof(f"{self._what} has {len(self._data) - self._place} bytes after its end")
