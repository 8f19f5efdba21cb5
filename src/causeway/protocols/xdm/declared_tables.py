"""The tables of value between domains of different lakes: what receipts have said of it, what chains have taken."""

from __future__ import annotations

import pyarrow as pa

from causeway.protocols.contract import Shown, StateTable


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_U32, _U64 = pa.uint32(), pa.uint64()

DECLARED_SCHEMA = pa.schema(
    [
        _field("chain", _U32),
        _field("destination", _U32),
        _field("source", _U32),
        _field("out_high", _U64),
        _field("out_low", _U64),
        _field("refused_high", _U64),
        _field("refused_low", _U64),
    ]
)
"""One row a pair of domains that different lakes run, as far as the consensus chain has confirmed receipts of
``source``: all that these say to have sent to ``destination`` (``out``), and all that they say to have refused of what
came from there (``refused``). Sums since genesis, of which the lowest 128 bits are kept. A lake that follows has those
of its own domains as ``destination``, as they were proved to it."""

DECLARED_UNDER_SCHEMA = pa.schema([_field("chain", _U32), _field("domain", _U32), _field("number", _U64)])
"""One row a domain of a lake that follows the consensus chain: the block under which was proved what is ``declared``
for it. No root depends on it."""

DRAWN_SCHEMA = pa.schema(
    [
        _field("chain", _U32),
        _field("foreign", _U32),
        _field("in_high", _U64),
        _field("in_low", _U64),
        _field("claimed_high", _U64),
        _field("claimed_low", _U64),
    ]
)
"""One row a domain ``foreign`` of another lake from which ``chain`` ever had value: all that it took or refused of what
came from there (``in``), and all that it claimed of what was refused there. Sums as those of ``declared``."""

DECLARED, DRAWN = ("chain", "destination", "source"), ("chain", "foreign")

DECLARED_TABLES: dict[str, StateTable] = {
    "declared": StateTable(DECLARED_SCHEMA, "chain", DECLARED, DECLARED, shown=Shown.EVERYONE),
    "declared_under": StateTable(
        DECLARED_UNDER_SCHEMA, "chain", ("chain", "domain"), ("chain", "domain"), shown=Shown.EVERYONE
    ),
    "drawn": StateTable(DRAWN_SCHEMA, "chain", DRAWN, DRAWN),
}
"""Tables of a state by name, as ``state.STATE_TABLES``."""
