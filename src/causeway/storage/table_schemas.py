"""The columns of the lake's tables: declared once, in Arrow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from causeway_proofs.errors import InvariantViolation

from causeway.config.topology import CHAINS_SCHEMA, MOVES_SCHEMA, PROGRAMS_SCHEMA
from causeway.core.text import suggest_known
from causeway.protocols.contract import HEADERS_SCHEMA, AnyKernel, StateTable, Visibility
from causeway.storage.lake import Lake, LakeError

TOPOLOGY_SCHEMAS: Mapping[str, pa.Schema] = {
    "chains": CHAINS_SCHEMA,
    "programs": PROGRAMS_SCHEMA,
    "registry": MOVES_SCHEMA,
}
"""Tables that are written once, when the lake is made."""

StateReader = Callable[[int, str], Sequence[pa.Table]]
"""Returns the rows of a state table at a height of which no file has the state, a table a bucket."""

STAMP = [pa.field("height", pa.int64(), nullable=False), pa.field("tick", pa.int64(), nullable=False)]
"""What stands in front of every log row: numbers that every reader has a plain type for; kernels count unsigned."""


def stamped_schema(schema: pa.Schema) -> pa.Schema:
    """Return a log table's schema with the columns ``height`` and ``tick`` in front."""
    return pa.schema([*STAMP, *schema])


@dataclass(frozen=True)
class TableSchemas:
    """What a lake says of its tables, so that a reader needs no kernel: ``logs`` and ``state`` by name."""

    logs: Mapping[str, pa.Schema]
    state: Mapping[str, StateTable]

    @classmethod
    def of(cls, kernel: AnyKernel) -> TableSchemas:
        """Return the tables of a kernel.

        Raises:
            InvariantViolation: a log and a state table of it have one name, and would be one file.
        """
        logs, state = {"outbound": kernel.outbound, **kernel.logs, "headers": HEADERS_SCHEMA}, kernel.tables()
        both = sorted(logs.keys() & state.keys())
        if both:
            raise InvariantViolation(f"{', '.join(both)}: a log and a state table have one name")
        return cls({name: stamped_schema(schema) for name, schema in logs.items()}, state)

    def encoded(self) -> dict[str, Any]:
        """Return what ``lake.json`` holds: each table's columns with their types, and what ``StateTable`` says."""
        return {
            "logs": [{"name": name, "columns": _columns(schema)} for name, schema in self.logs.items()],
            "state": [
                {
                    "name": name,
                    "columns": _columns(table.schema),
                    "owner": table.owner,
                    "order": list(table.order),
                    "chains": list(table.chains),
                    "programs": list(table.programs),
                    "shown": table.shown.value,
                    "shown_to": table.shown_to,
                }
                for name, table in self.state.items()
            ],
        }

    @classmethod
    def decoded(cls, content: Mapping[str, Any]) -> TableSchemas:
        """Return what ``encoded`` gave."""
        state = {
            table["name"]: StateTable(
                _schema(table["columns"]),
                table["owner"],
                tuple(table["order"]),
                tuple(table["chains"]),
                tuple(table["programs"]),
                Visibility(table["shown"]),
                table["shown_to"],
            )
            for table in content["state"]
        }
        return cls({table["name"]: _schema(table["columns"]) for table in content["logs"]}, state)

    def state_table(self, name: str) -> StateTable:
        """Return the state table of that name. Raises ``LakeError``."""
        if name not in self.state:
            raise LakeError(f"table: {suggest_known('table', name, self.state)}")
        return self.state[name]


def chain_position(about: Mapping[str, Any], name: str) -> int:
    """Return the position of a chain of the network that a lake says it is of (``about``). Raises ``LakeError``."""
    names = [item["name"] for item in about["chains"]]
    if name not in names:
        raise LakeError(f"chain: {suggest_known('chain', name, names)}")
    return names.index(name)


def _columns(schema: pa.Schema) -> list[list[str]]:
    return [[item.name, type_name(item.type)] for item in schema]


def _schema(columns: Iterable[Sequence[str]]) -> pa.Schema:
    return pa.schema([pa.field(name, parse_type_name(kind)) for name, kind in columns])


def type_name(kind: pa.DataType) -> str:
    """Return how ``lake.json`` writes a column's type: Arrow's name of it, of its values for a dictionary."""
    return type_name(kind.value_type) if pa.types.is_dictionary(kind) else str(kind)


def parse_type_name(name: str) -> pa.DataType:
    """Return the type of that name. Raises ``LakeError``."""
    for pattern, made in _WITH_NUMBERS.items():
        if found := re.fullmatch(pattern, name):
            return made(*map(int, found.groups()))
    try:
        return pa.type_for_alias(name)
    except ValueError:
        raise LakeError(f"a table has a column of type {name}, which Causeway cannot read") from None


_WITH_NUMBERS: Mapping[str, Callable[..., pa.DataType]] = {
    r"decimal128\((\d+), (\d+)\)": pa.decimal128,
    r"fixed_size_binary\[(\d+)\]": pa.binary,
}


def replay_between(lake: Lake, state_at: StateReader | None, height: int, table: str) -> Sequence[pa.Table]:
    """Return the rows of a state table at a height whose state is in no file, a table a bucket. Raises ``LakeError``
    where nothing executes heights again."""
    if state_at is None:
        raise LakeError(
            f"height: {height} of {lake.storage.uri} lies within a commit: its state is in no file, and the heights up "
            "to it have to be executed again, which this reader does not do"
        )
    return state_at(height, table)


__all__ = [
    "STAMP",
    "TOPOLOGY_SCHEMAS",
    "StateReader",
    "StateTable",
    "TableSchemas",
    "chain_position",
    "replay_between",
    "stamped_schema",
]
