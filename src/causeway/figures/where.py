"""Which messages are looked at: those of some lanes, of some kinds, outcomes, names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.columns import KINDS, Bools
from causeway.audit.parts import Part, TablePart
from causeway.figures.outcomes import OUTCOMES, Outcomes
from causeway.ledger.schema import LANE, LEDGER_SCHEMA
from causeway.model.errors import InvalidInput
from causeway.model.text import readable, shown

TEXTS = ("sender", "receiver", "message_id", "answers", "journey")
"""Columns of which a message has the first that its rows have."""

NAMES = (*LANE, "kind", "outcome", "index", *TEXTS)
"""What messages are chosen by."""

_ALLOWED = {"kind": KINDS, "outcome": OUTCOMES}
_MOST_INDEX = (1 << 64) - 1

Values = tuple[str | int | None, ...]


@dataclass(frozen=True)
class Where:
    """Which messages are looked at: those that have one of some values in each of some columns (``NAMES``). None among
    the values: what was not seen. ``calls``: only requests that a chain sent, none of users."""

    values: Mapping[str, Values] = field(default_factory=dict)
    calls: bool = False

    @classmethod
    def of(cls, **values: Any) -> Where:
        """Return what is asked for: of each column a value, or several. Raises ``InvalidInput``."""
        found: dict[str, Values] = {}
        for name, given in values.items():
            if name not in NAMES:
                raise InvalidInput(f"{name}: must be one of {', '.join(NAMES)}")
            several = isinstance(given, Sequence | set | frozenset) and not isinstance(given, str | bytes)
            every = tuple(dict.fromkeys(given)) if several else (given,)
            for value in every:
                _check(name, value)
            found[name] = every
        return cls(found)

    def and_(self, other: Where) -> Where:
        """Return what both ask for."""
        both = dict(self.values)
        for name, values in other.values.items():
            both[name] = tuple(value for value in both[name] if value in values) if name in both else values
        return Where(both, self.calls or other.calls)

    @property
    def lanes(self) -> dict[str, Values]:
        """Return what is asked of lanes."""
        return {name: self.values[name] for name in LANE if name in self.values}

    @property
    def texts(self) -> dict[str, Values]:
        """Return what is asked of texts of messages."""
        return {name: self.values[name] for name in TEXTS if name in self.values}

    def __bool__(self) -> bool:
        return bool(self.values) or self.calls

    def __str__(self) -> str:
        said = ["calls"] if self.calls else []
        for name, values in self.values.items():
            said.append(f"{name} {' or '.join('null' if value is None else readable(str(value)) for value in values)}")
        return ", ".join(said)

    def part(self, part: Part) -> Part | None:
        """Return those rows of a part that are in lanes asked for, None: there are none."""
        if not self.lanes or not part.num_rows:
            return part
        rows = self.rows(part.read([*self.lanes]))
        if rows.all():
            return part
        if not rows.any():
            return None
        return TablePart(part.take(LEDGER_SCHEMA.names, np.flatnonzero(rows)))

    def rows(self, table: pa.Table) -> Bools:
        """Return which rows of a table are in lanes asked for."""
        found = np.ones(table.num_rows, bool)
        for name, values in self.lanes.items():
            found &= is_in(table[name], values)
        return found

    def messages(self, outcomes: Outcomes) -> Outcomes:
        """Return those of some messages that are asked for, beside their lanes."""
        chosen = outcomes.is_call.copy() if self.calls else np.ones(len(outcomes), bool)
        if "kind" in self.values:
            chosen &= np.isin(outcomes.kind, [KINDS.index(str(kind)) for kind in self.values["kind"]])
        if "index" in self.values:
            columns, base = outcomes.columns, outcomes.base
            numbers = [value for value in self.values["index"] if isinstance(value, int)]
            indexed = columns.indexed[base] == 1
            own = indexed & np.isin(columns.index[base], np.array(numbers, np.uint64))
            chosen &= own | (~indexed if None in self.values["index"] else False)
        if "outcome" in self.values:
            chosen &= np.isin(outcomes.outcome, [OUTCOMES.index(str(name)) for name in self.values["outcome"]])
        for name, values in self.texts.items():
            chosen &= is_in(outcomes.first_seen(name), values)
        return outcomes if chosen.all() else outcomes.only(chosen)


EVERYTHING = Where()


def is_in(column: pa.Array | pa.ChunkedArray, values: Values) -> Bools:
    """Return which rows of a column have one of some values; None: which are null."""
    kind = column.type
    texts = pa.array([value for value in values if value is not None], _plain(kind))
    if pa.types.is_dictionary(kind):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        found = [_coded(chunk, texts) for chunk in chunks]
        hits = np.concatenate([np.zeros(0, bool), *found])
    else:
        hits = np.asarray(pc.fill_null(pc.is_in(column, texts), False))
    return hits | np.asarray(column.is_null()) if None in values else hits


def _coded(chunk: pa.DictionaryArray, texts: pa.Array) -> Bools:
    among = np.append(np.asarray(pc.fill_null(pc.is_in(chunk.dictionary, texts), False), bool), False)
    found: Bools = among[chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return found


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _check(name: str, value: Any) -> None:
    if name == "index":
        if value is not None and not (type(value) is int and 0 <= value <= _MOST_INDEX):
            raise InvalidInput(f"index: {shown(value)}: must be a whole number from 0 to {_MOST_INDEX}")
    elif name in _ALLOWED:
        if value not in _ALLOWED[name]:
            raise InvalidInput(f"{name}: {shown(value)}: must be one of {', '.join(_ALLOWED[name])}")
    elif value is not None and not isinstance(value, str):
        raise InvalidInput(f"{name}: {shown(value)}: must be a text")


__all__ = ["EVERYTHING", "NAMES", "TEXTS", "Where", "is_in"]
