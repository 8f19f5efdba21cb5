"""The tables of receipts that may be false: what bad operators claim, what honest ones have found, what was pruned, and
what bundles there were (1.4, G4, X-6)."""

from __future__ import annotations

import pyarrow as pa

from causeway.protocols.contract import Shown, StateTable

NEVER_FOUND = 2**63
"""In ``found``: nobody ever proves it, against what the reference assumes (1.4)."""


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_U32, _U64, _BYTES, _DIGEST = pa.uint32(), pa.uint64(), pa.binary(), pa.binary(32)

CLAIMS_SCHEMA = pa.schema(
    [
        _field("chain", _U32),
        _field("destination", _U32),
        _field("origin", _U64),
        _field("number", _U64),
        _field("what", pa.uint8()),
        _field("found_after", _U64),
        _field("foreign", _U32),
        _field("substream", _U64),
        _field("index", _U64),
        _field("amount", _U64),
        _field("key", _BYTES),
        _field("value", _BYTES),
        _field("root", _DIGEST),
    ]
)
"""One row a domain of whose blocks, from ``origin`` to the last one, ``number``, a bad operator submits false receipts
to ``destination``, the consensus chain: their storage is the domain's with ``value`` under ``key`` (no key: with
nothing changed), and after the last block it has the root ``root``. ``what`` is false (``claims.Lie``); the message
that is forged has the lane and nonce that ``foreign``, ``substream``, ``index`` name. ``found_after``: how many blocks
after the first is taken in it is found, ``NEVER_FOUND`` for never. No root depends on it."""

FORGED_SCHEMA = pa.schema([_field("source", _U32), _field("destination", _U32), _field("envelope", _BYTES)])
"""One row an envelope, as on the wire, that bad operators of ``source`` prove under storage of their own."""

FRAUDS_SCHEMA = pa.schema(
    [
        _field("chain", _U32),
        _field("domain", _U32),
        _field("number", _U64),
        _field("taken", _U64),
        _field("found", _U64),
    ]
)
"""One row a domain with false receipts that are not proved to be: block ``number`` is the first, whose receipt was
taken in by block ``taken``; from block ``found`` on an honest node has the proof. No root depends on it: the consensus
chain does not know."""

PRUNED_SCHEMA = pa.schema(
    [
        _field("chain", _U32),
        _field("domain", _U32),
        _field("first", _U64),
        _field("last", _U64),
        _field("taken", _U64),
        _field("found", _U64),
    ]
)
"""One row a fraud that was proved: the receipts of the domain's blocks ``first`` to ``last`` that blocks from ``taken``
to before ``found`` took in are pruned; block ``found`` has those that hold. The row stays until they are final."""

BUNDLES_SCHEMA = pa.schema(
    [
        _field("chain", _U32),
        _field("destination", _U32),
        _field("invalid", pa.uint8()),
        _field("extrinsic", _U32),
        _field("root", _DIGEST),
    ]
)
"""One row a domain whose last block has a bundle with anything in it, as its receipt to ``destination``, the consensus
chain, is to say it: why it is ``invalid`` (``bundles.InvalidBundle``) and for which of its messages, and its root: a
digest of the messages, by lane, nonce and tag."""

PRUNED = ("chain", "domain", "first")

FRAUD_TABLES: dict[str, StateTable] = {
    "claims": StateTable(
        CLAIMS_SCHEMA, "chain", ("chain",), ("chain", "destination", "foreign"), shown=Shown.DESTINATION
    ),
    "forged": StateTable(
        FORGED_SCHEMA, "source", ("source", "destination"), ("source", "destination"), shown=Shown.DESTINATION
    ),
    "bundles": StateTable(BUNDLES_SCHEMA, "chain", ("chain",), ("chain", "destination"), shown=Shown.DESTINATION),
    "frauds": StateTable(FRAUDS_SCHEMA, "chain", ("chain", "domain"), ("chain", "domain"), shown=Shown.EVERYONE),
    "pruned": StateTable(PRUNED_SCHEMA, "chain", PRUNED, ("chain", "domain"), shown=Shown.EVERYONE),
}
"""Tables of a state by name, as ``state.STATE_TABLES``."""

UNKNOWN = ("claims", "forged", "frauds", "bundles")
"""Those that no root commits to: that of ``bundles`` stands in receipts."""
