"""Schemas of the lake's tables, declared once in Arrow."""

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
"""Tables written once, when a lake is created."""

StateReader = Callable[[int, str], Sequence[pa.Table]]
"""Returns the rows of a state table at a height without stored state, a table a bucket."""

STAMP = [pa.field("height", pa.int64(), nullable=False), pa.field("tick", pa.int64(), nullable=False)]
"""First columns of every log row.

They are signed, since every reader has such a type; kernels use unsigned numbers.
"""


def stamped_schema(schema: pa.Schema) -> pa.Schema:
    """Add the columns ``height`` and ``tick`` in front of a log table's schema.

    Args:
        schema: Columns of the kernel.
    """
    return pa.schema([*STAMP, *schema])


@dataclass(frozen=True)
class TableSchemas:
    """Schemas of a lake's tables by name (``logs``, ``state``), so that readers need no kernel."""

    logs: Mapping[str, pa.Schema]
    state: Mapping[str, StateTable]

    @classmethod
    def of(cls, kernel: AnyKernel) -> TableSchemas:
        """Return the tables of a kernel.

        Raises:
            InvariantViolation: A log and a state table share a name, and would share a file.
        """
        logs, state = {"outbound": kernel.outbound, **kernel.logs, "headers": HEADERS_SCHEMA}, kernel.tables()
        both = sorted(logs.keys() & state.keys())
        if both:
            raise InvariantViolation(f"{', '.join(both)}: a log and a state table have one name")
        return cls({name: stamped_schema(schema) for name, schema in logs.items()}, state)

    def encoded(self) -> dict[str, Any]:
        """Encode the tables for ``lake.json``: columns with types, and the fields of ``StateTable``."""
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
        """Decode the tables of ``encoded``."""
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
        """Return a state table by name. Raises ``LakeError``."""
        if name not in self.state:
            raise LakeError(f"table: {suggest_known('table', name, self.state)}")
        return self.state[name]


def chain_position(about: Mapping[str, Any], name: str) -> int:
    """Return the position of a chain.

    Args:
        about: Description of the lake.
        name: Name of the chain.

    Raises:
        LakeError: There is no such chain.
    """
    names = [item["name"] for item in about["chains"]]
    if name not in names:
        raise LakeError(f"chain: {suggest_known('chain', name, names)}")
    return names.index(name)


def _columns(schema: pa.Schema) -> list[list[str]]:
    return [[item.name, type_name(item.type)] for item in schema]


def _schema(columns: Iterable[Sequence[str]]) -> pa.Schema:
    return pa.schema([pa.field(name, parse_type_name(kind)) for name, kind in columns])


def type_name(kind: pa.DataType) -> str:
    """Return the name of a type in ``lake.json``: Arrow's, or that of a dictionary's values.

    Args:
        kind: The type.
    """
    return type_name(kind.value_type) if pa.types.is_dictionary(kind) else str(kind)


def parse_type_name(name: str) -> pa.DataType:
    """Return a type by name. Raises ``LakeError``."""
    for pattern, create in _WITH_NUMBERS.items():
        if found := re.fullmatch(pattern, name):
            return create(*map(int, found.groups()))
    try:
        return pa.type_for_alias(name)
    except ValueError:
        raise LakeError(f"a table has a column of type {name}, which Causeway cannot read") from None


_WITH_NUMBERS: Mapping[str, Callable[..., pa.DataType]] = {
    r"decimal128\((\d+), (\d+)\)": pa.decimal128,
    r"fixed_size_binary\[(\d+)\]": pa.binary,
}


def replay_between(lake: Lake, state_at: StateReader | None, height: int, table: str) -> Sequence[pa.Table]:
    """Return the rows of a state table at a height without stored state.

    Args:
        lake: The lake.
        state_at: Executes heights again; None: unsupported.
        height: The height.
        table: Name of the table.

    Returns:
        A table a bucket.

    Raises:
        LakeError: ``state_at`` is None.
    """
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
