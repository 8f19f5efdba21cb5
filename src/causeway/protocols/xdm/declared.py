"""Value that comes from domains of other lakes: no more of it is taken than their receipts say (XDM reference 3.4 step
14, 3.8, X-3; G7, G8).

Nobody here executes those domains, so a message of theirs may bring value that no receipt of theirs speaks of. The
consensus chain sums up what the receipts of each have said when it confirms them (``declared``); the chain that takes
value sums up what it took (``drawn``). The difference is what it may still take. A message is proved under a confirmed
receipt, and what that receipt and those before it say is summed up by then, so value of a domain that keeps the rules
is never missing.

A lake that follows the consensus chain is shown the entry of each of its domains (``declared_key``) by storage proof,
and takes no message that is proved under a later block than the entry: so what it knows covers what it takes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame
from causeway.proofs.substrate import storage_prefix
from causeway.protocols.sections import OWN_PALLET
from causeway.protocols.xdm.books import MAX_BALANCE, WORD, Moved
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.declared_tables import DECLARED_SCHEMA, DRAWN_SCHEMA

_DOMAIN_BYTES, _SUM_BYTES = 4, 16
_LAST = 2**32 - 1

MODULUS = MAX_BALANCE + 1
"""Sums are kept modulo this. What is declared and not drawn is on its way, and that never passes 128 bits."""


class Sums(NamedTuple):
    """What went from a domain to a chain, and what was refused by it, or claimed of what it refused."""

    out: int = 0
    back: int = 0

    def plus(self, out: int, back: int) -> Sums:
        """Return the sums with something more."""
        return Sums((self.out + out) % MODULUS, (self.back + back) % MODULUS)


Pair = tuple[int, int]


class Cover:
    """What chains here may still take of what domains of other lakes (``beyond``, with the consensus chain or without)
    sent, or refused."""

    def __init__(self, declared: Frame, drawn: Frame, beyond: Container[int]) -> None:
        self._beyond = beyond
        self._declared = sums_of(declared, ("destination", "source"), ("out", "refused"))
        self._drawn = sums_of(drawn, ("chain", "foreign"), ("in", "claimed"))

    def is_limited(self, chain: int, foreign: int) -> bool:
        """Return whether ``chain`` takes value from ``foreign`` as far as receipts speak of it. The consensus chain has
        books for that, and itself books what it sends at once."""
        return foreign in self._beyond and CONSENSUS_POSITION not in (chain, foreign)

    def left(self, chain: int, foreign: int, what: Moved) -> int:
        """Return how much ``chain`` may still take, or claim, from ``foreign``."""
        said, had = self._declared.get((chain, foreign), Sums()), self._drawn.get((chain, foreign), Sums())
        return (said.back - had.back if what == Moved.CLAIMED else said.out - had.out) % MODULUS

    def after(self, made: Mapping[tuple[int, int, int], int]) -> Frame | None:
        """Return what was drawn after a block (``DRAWN_SCHEMA``), None where nothing was. ``made``: amounts by the
        chain, what it did (``Moved``), and the other chain."""
        drawn = dict(self._drawn)
        for (chain, what, foreign), amount in made.items():
            if what in (Moved.IN, Moved.REJECTED, Moved.CLAIMED) and self.is_limited(chain, foreign):
                parts = (0, amount) if what == Moved.CLAIMED else (amount, 0)
                drawn[chain, foreign] = drawn.get((chain, foreign), Sums()).plus(*parts)
        return None if drawn == self._drawn else _frame(drawn, DRAWN_SCHEMA, {})


class Declared:
    """What confirmed receipts have said, on the consensus chain, of value between its domains and those of other lakes
    (``beyond``)."""

    def __init__(self, declared: Frame, beyond: Container[int]) -> None:
        self._sums = sums_of(declared, ("destination", "source"), ("out", "refused"))
        self._beyond = beyond
        self.changed = False

    def note(self, domain: int, moves: list[tuple[Moved, int, int]]) -> None:
        """Note what the receipt of a block of ``domain`` says: what, with which other chain, and how much."""
        for what, foreign, amount in moves:
            apart = (domain in self._beyond or foreign in self._beyond) and foreign != CONSENSUS_POSITION
            if apart and what in (Moved.OUT, Moved.REJECTED):
                parts = (amount, 0) if what == Moved.OUT else (0, amount)
                self._sums[foreign, domain] = self._sums.get((foreign, domain), Sums()).plus(*parts)
                self.changed = True

    def frame(self) -> Frame:
        """Return the rows (``DECLARED_SCHEMA``)."""
        return _frame(self._sums, DECLARED_SCHEMA, {"chain": CONSENSUS_POSITION})


def declared_key(domain: int) -> bytes:
    """Return where the consensus chain's storage has what was declared for the domain at a position."""
    return storage_prefix(OWN_PALLET, "DeclaredTransfers") + (domain - 1).to_bytes(_DOMAIN_BYTES, "little")


def encode_declared(rows: Frame) -> bytes:
    """Return what was declared for one domain (``DECLARED_SCHEMA``) as its entry: of each source, ascending, the number
    of the domain and both sums, little-endian."""
    found = sums_of(rows, ("destination", "source"), ("out", "refused"))
    return b"".join(
        (source - 1).to_bytes(_DOMAIN_BYTES, "little") + b"".join(part.to_bytes(_SUM_BYTES, "little") for part in sums)
        for (_, source), sums in sorted(found.items())
    )


def decode_declared(destination: int, entry: bytes | None) -> Frame:
    """Return the rows (``DECLARED_SCHEMA``) of the domain at a position that an entry of ``encode_declared`` has; None:
    there is none.

    Raises:
        InvalidInput: it is no such entry.
    """
    width = _DOMAIN_BYTES + 2 * _SUM_BYTES
    data = entry or b""
    parts = [data[at : at + width] for at in range(0, len(data), width)]
    sources = [int.from_bytes(part[:_DOMAIN_BYTES], "little") + 1 for part in parts]
    ascending = all(first < later for first, later in pairwise(sources))
    if len(data) % width or not ascending or max(sources, default=0) > _LAST:
        raise InvalidInput(f"declared: {len(data)} bytes: sums of {width} bytes each, by ascending domains, are due")
    found = {}
    for source, part in zip(sources, parts, strict=True):
        words = (part[_DOMAIN_BYTES : _DOMAIN_BYTES + _SUM_BYTES], part[_DOMAIN_BYTES + _SUM_BYTES :])
        found[destination, source] = Sums(*(int.from_bytes(word, "little") for word in words))
    return _frame(found, DECLARED_SCHEMA, {"chain": CONSENSUS_POSITION})


def sums_of(frame: Frame, pair: tuple[str, str], names: tuple[str, str]) -> dict[Pair, Sums]:
    """Return the sums of each pair of chains."""
    ends = (frame[name].tolist() for name in pair)
    words = (frame[f"{name}_{half}"].tolist() for name in names for half in ("high", "low"))
    rows = zip(*ends, *words, strict=True)
    return {
        (first, second): Sums(out_high * WORD + out_low, back_high * WORD + back_low)
        for first, second, out_high, out_low, back_high, back_low in rows
    }


def _frame(sums: Mapping[Pair, Sums], schema: pa.Schema, fixed: Mapping[str, int]) -> Frame:
    keys = sorted(sums)
    rows = [(*key, *(word for amount in sums[key] for word in divmod(amount, WORD))) for key in keys]
    columns = {name: np.full(len(rows), value, dtype=np.uint32) for name, value in fixed.items()}
    names = [name for name in schema.names if name not in fixed]
    for at, name in enumerate(names):
        columns[name] = np.array([row[at] for row in rows], dtype=schema.field(name).type.to_pandas_dtype())
    return Frame(columns, len(rows))
