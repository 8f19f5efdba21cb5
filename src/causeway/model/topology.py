"""What a network consists of: its chains, the programs on them, and when programs move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from causeway.model.membership import Membership

CHAINS_SCHEMA = pa.schema(
    [
        pa.field("number", pa.uint64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
    ]
)
"""One row a chain; numbers are unique, names too."""

PROGRAMS_SCHEMA = pa.schema(
    [
        pa.field("number", pa.uint64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("chain", pa.uint64()),
        pa.field("program", pa.string()),
        pa.field("options", pa.string(), nullable=False),
        pa.field("balance", pa.decimal128(38, 0), nullable=False),
    ]
)
"""One row a program instance at genesis. ``chain`` null: on no chain. ``program`` null: mapped to a chain, but nothing
is installed there. ``options``: a JSON object for the program's class. ``balance``: units of value it starts with."""

MOVES_SCHEMA = pa.schema(
    [
        pa.field("tick", pa.uint64(), nullable=False),
        pa.field("program", pa.uint64(), nullable=False),
        pa.field("chain", pa.uint64()),
    ]
)
"""One row a change of the registry, in force before the round of ``tick``. ``chain`` null: on no chain from then on."""


@dataclass(frozen=True)
class Topology:
    """The chains of a network, the programs on them at genesis, and the changes that follow.

    ``external``: numbers of chains that another lake runs; this one knows their names and programs, and makes no block
    of theirs. ``roles``: what chains (by number) are among the others, where the protocol has roles. ``membership``:
    which of them are in the registry when, and their nodes; what that means for programs stands in ``programs`` and
    ``moves``.
    """

    chains: pa.Table
    programs: pa.Table
    moves: pa.Table = field(default_factory=MOVES_SCHEMA.empty_table)
    external: tuple[int, ...] = ()
    roles: Mapping[int, str] = field(default_factory=dict)
    membership: Membership = field(default_factory=Membership)
