"""Counters for tests of cost: hashes, hashed bytes, gathered and joined rows. Never time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

from causeway.core import frame
from causeway.core import frame as deferred
from causeway.storage.files import Storage


@contextmanager
def counted(hashing: Sequence[ModuleType], *more: tuple[Any, str, str]) -> Iterator[Counter[str]]:
    """Count in the body of a ``with`` statement the ``hashes`` that some modules make, and the ``bytes`` of them, and
    ``rows`` that frames gather and join. ``more``: owner, name and what the lengths of its results count as."""
    found: Counter[str] = Counter()

    def counting(owner: Any, name: str, what: str) -> Any:
        real = getattr(owner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            made = real(*arguments, **named)
            found[what] += len(made)
            return made

        return patch.object(owner, name, call)

    class Hashes:
        """``hashlib`` with a counter."""

        @staticmethod
        def sha256(data: Any = b"") -> Any:
            found["hashes"] += 1
            found["bytes"] += memoryview(data).nbytes
            return hashlib.sha256(data)

    with ExitStack() as stack:
        for module in hashing:
            stack.enter_context(patch.object(module, "hashlib", Hashes))
        for owner, name, what in ((deferred, "_gather", "rows"), (frame, "_join", "rows"), *more):
            stack.enter_context(counting(owner, name, what))
        yield found


@contextmanager
def counted_reads() -> Iterator[Counter[str]]:
    """Count the files that are completely read from a lake, by folder."""
    reads: Counter[str] = Counter()
    real = Storage.read_bytes

    def read_bytes(storage: Storage, path: str) -> bytes:
        reads[path.split("/")[0]] += 1
        return real(storage, path)

    with patch.object(Storage, "read_bytes", read_bytes):
        yield reads
