"""The state tables: the columns of each, whose its rows are, who is shown them (XDM reference 2.5; ``state`` says how
lanes are named).

The tables of value between domains of different lakes: what receipts have said of it, what chains have taken.

The tables of receipts that may be false: what bad operators claim, what honest ones have found, what was pruned, and
what bundles there were (1.4, G4, X-6).
"""

from __future__ import annotations

import pyarrow as pa

from causeway.protocols.contract import StateTable, Visibility
from causeway.protocols.shared.execution import ACCOUNTS
from causeway.protocols.shared.messages import LANE, LANE_FIELDS, MESSAGE_FIELDS


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
    "declared": StateTable(DECLARED_SCHEMA, "chain", DECLARED, DECLARED, shown=Visibility.EVERYONE),
    "declared_under": StateTable(
        DECLARED_UNDER_SCHEMA, "chain", ("chain", "domain"), ("chain", "domain"), shown=Visibility.EVERYONE
    ),
    "drawn": StateTable(DRAWN_SCHEMA, "chain", DRAWN, DRAWN),
}
"""Tables of a state by name, as ``state.STATE_TABLES``."""


NEVER_FOUND = 2**63
"""In ``found``: nobody ever proves it, against what the reference assumes (1.4)."""


_FRAUD_TABLES_U32, _FRAUD_TABLES_U64, _BYTES, _DIGEST = pa.uint32(), pa.uint64(), pa.binary(), pa.binary(32)

CLAIMS_SCHEMA = pa.schema(
    [
        _field("chain", _FRAUD_TABLES_U32),
        _field("destination", _FRAUD_TABLES_U32),
        _field("origin", _FRAUD_TABLES_U64),
        _field("number", _FRAUD_TABLES_U64),
        _field("what", pa.uint8()),
        _field("found_after", _FRAUD_TABLES_U64),
        _field("foreign", _FRAUD_TABLES_U32),
        _field("substream", _FRAUD_TABLES_U64),
        _field("index", _FRAUD_TABLES_U64),
        _field("amount", _FRAUD_TABLES_U64),
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

FORGED_SCHEMA = pa.schema(
    [_field("source", _FRAUD_TABLES_U32), _field("destination", _FRAUD_TABLES_U32), _field("envelope", _BYTES)]
)
"""One row an envelope, as on the wire, that bad operators of ``source`` prove under storage of their own."""

FRAUDS_SCHEMA = pa.schema(
    [
        _field("chain", _FRAUD_TABLES_U32),
        _field("domain", _FRAUD_TABLES_U32),
        _field("number", _FRAUD_TABLES_U64),
        _field("taken", _FRAUD_TABLES_U64),
        _field("found", _FRAUD_TABLES_U64),
    ]
)
"""One row a domain with false receipts that are not proved to be: block ``number`` is the first, whose receipt was
taken in by block ``taken``; from block ``found`` on an honest node has the proof. No root depends on it: the consensus
chain does not know."""

PRUNED_SCHEMA = pa.schema(
    [
        _field("chain", _FRAUD_TABLES_U32),
        _field("domain", _FRAUD_TABLES_U32),
        _field("first", _FRAUD_TABLES_U64),
        _field("last", _FRAUD_TABLES_U64),
        _field("taken", _FRAUD_TABLES_U64),
        _field("found", _FRAUD_TABLES_U64),
    ]
)
"""One row a fraud that was proved: the receipts of the domain's blocks ``first`` to ``last`` that blocks from ``taken``
to before ``found`` took in are pruned; block ``found`` has those that hold. The row stays until they are final."""

BUNDLES_SCHEMA = pa.schema(
    [
        _field("chain", _FRAUD_TABLES_U32),
        _field("destination", _FRAUD_TABLES_U32),
        _field("invalid", pa.uint8()),
        _field("extrinsic", _FRAUD_TABLES_U32),
        _field("root", _DIGEST),
    ]
)
"""One row a domain whose last block has a bundle with anything in it, as its receipt to ``destination``, the consensus
chain, is to say it: why it is ``invalid`` (``bundles.InvalidBundle``) and for which of its messages, and its root: a
digest of the messages, by lane, nonce and tag."""

PRUNED = ("chain", "domain", "first")

FRAUD_TABLES: dict[str, StateTable] = {
    "claims": StateTable(
        CLAIMS_SCHEMA, "chain", ("chain",), ("chain", "destination", "foreign"), shown=Visibility.DESTINATION
    ),
    "forged": StateTable(
        FORGED_SCHEMA, "source", ("source", "destination"), ("source", "destination"), shown=Visibility.DESTINATION
    ),
    "bundles": StateTable(BUNDLES_SCHEMA, "chain", ("chain",), ("chain", "destination"), shown=Visibility.DESTINATION),
    "frauds": StateTable(FRAUDS_SCHEMA, "chain", ("chain", "domain"), ("chain", "domain"), shown=Visibility.EVERYONE),
    "pruned": StateTable(PRUNED_SCHEMA, "chain", PRUNED, ("chain", "domain"), shown=Visibility.EVERYONE),
}
"""Tables of a state by name, as ``state.STATE_TABLES``."""

UNKNOWN = ("claims", "forged", "frauds", "bundles")
"""Those that no root commits to: that of ``bundles`` stands in receipts."""


U32, UINT64, BYTES, DIGEST = pa.uint32(), pa.uint64(), pa.binary(), pa.binary(32)

CHANNELS_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("foreign", U32),
        _field("channel", UINT64),
        _field("state", pa.uint8()),
        _field("next_inbox", UINT64),
        _field("next_outbox", UINT64),
        _field("next_response", UINT64),
        _field("max_outgoing", U32),
        _field("count", UINT64),
        _field("has_owner", pa.uint8()),
        _field("owner", UINT64),
        _field("reserve", UINT64),
        _field("fee_model", pa.uint8()),
        _field("relay_fee", UINT64),
    ]
)
"""One row a channel of ``chain`` with ``foreign`` (2.2). ``next_response``: one more than the nonce of the last request
whose response was received, 0 where none was. ``count``: requests without a response (``OutboxMessageCount``).
``owner``: who initiated it, a program or root (``ROOT_ACCOUNT``); ``reserve``: what was left for it, also after it was
closed. ``fee_model``: ``FeeModel``, and under ``V0`` the ``relay_fee``, in units (3.8)."""

NEXT_CHANNELS_SCHEMA = pa.schema([_field("chain", U32), _field("foreign", U32), _field("next_channel", UINT64)])

OUTBOX_SCHEMA = pa.schema(
    [
        *LANE_FIELDS,
        _field("index", UINT64),
        _field("sent", UINT64),
        _field("asked", pa.uint8()),
        _field("max_outgoing", U32),
        _field("src_endpoint", UINT64),
        _field("dst_endpoint", UINT64),
        _field("payload", BYTES),
        _field("src_fee", UINT64),
        _field("dst_fee", UINT64),
        _field("next_response", UINT64),
        _field("sender", UINT64),
        _field("receiver", UINT64),
        _field("callback", UINT64),
        _field("amount_high", UINT64),
        _field("amount_low", UINT64),
    ]
)
"""One row a request without a response. ``sent``: the number of the block that made it; ``asked``: ``Asked``;
``max_outgoing``: what an open request carries; ``payload``: that of an endpoint's request; ``next_response``: one more
than the nonce that it acknowledges, 0 for none. The last columns say for whom the response is, and what comes back to
it if it is refused; they are not taken from any response."""

RESPONSES_SCHEMA = pa.schema(
    [
        *LANE_FIELDS,
        _field("index", UINT64),
        _field("sent", UINT64),
        _field("layer", pa.uint8()),
        _field("asked", pa.uint8()),
        _field("error", pa.uint8()),
        _field("endpoint", UINT64),
        _field("payload", BYTES),
        _field("fee", UINT64),
    ]
)
"""One row a response that the other chain has not acknowledged (``InboxResponses``). ``layer``: 0 of the protocol, 1 of
an endpoint; ``asked``, ``endpoint``: what the request asked, and of which endpoint; ``error``: 0 where it is Ok
(``payload``), else what ``errors`` numbers; ``fee``: what was minted for the request, which is held until the
acknowledgement (``InboxFee``)."""

EARLY_SCHEMA = pa.schema([*LANE_FIELDS, _field("index", UINT64), _field("body", BYTES), _field("tag", UINT64)])
"""One row a message that came before its predecessors, proved: ``body`` is what stood in the other chain's state, and
``tag`` the weight tag of its envelope (``tags``)."""

WAITING_SCHEMA = pa.schema(
    [_field("source", U32), _field("destination", U32), _field("index", UINT64), *MESSAGE_FIELDS]
)
"""One row a call of a program for which no open channel has had room, in the order in which they were made."""

OPEN_CALLS_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("sender", UINT64),
        _field("receiver", UINT64),
        _field("callback", UINT64),
        _field("amount_high", UINT64),
        _field("amount_low", UINT64),
        _field("answered", pa.uint8()),
    ]
)
"""One row a call of ``sender`` on ``chain`` that the other chain has taken and whose answer comes later; ``answered`` 1
where it came before the response that says that the call was taken, until that comes."""

ALLOWLIST_SCHEMA = pa.schema([_field("chain", U32), _field("foreign", U32)])
"""One row a chain ``foreign`` with which ``chain`` exchanges messages (``ChainAllowlist``)."""

ALLOW_UPDATES_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("domain", U32),
        _field("height", UINT64),
        _field("allow", BYTES),
        _field("remove", BYTES),
    ]
)
"""One row a domain whose allow list was ever to be changed (``DomainChainAllowlistUpdate``): the sets (``encode_set``)
of chains that it is to add and to remove in its next block, and the ``height`` of the last call about them. The row
stays when there are none."""

RUNS_SCHEMA = pa.schema([*LANE_FIELDS, _field("height", UINT64), _field("first", UINT64), _field("count", UINT64)])
"""One row a run of local messages that were appended at one height, where they lie in the lake."""

QUEUES_SCHEMA = pa.schema([*LANE_FIELDS, _field("begin", UINT64), _field("next_index", UINT64)])
"""One row a local lane: its head and tail."""

HISTORY_SCHEMA = pa.schema([_field("chain", U32), _field("number", UINT64), _field("height", UINT64)])
"""One row a block of a chain whose storage changes may still be asked for: its number and the height that has it."""

RELAYING_SCHEMA = pa.schema(
    [*LANE_FIELDS, *(_field(name, UINT64) for name in ("proved", "expected", "since", "until"))]
)
"""What the operators of ``source`` remember of a lane: messages below ``proved`` were proved to its destination, which
has said since block ``since`` that it expects the nonce ``expected`` next; those below ``until`` were last proved in
that block or before. ``since`` is also the block in which they began to prove again. No root depends on it."""

ENVELOPES_SCHEMA = pa.schema([*LANE_FIELDS, _field("index", UINT64), _field("tag", UINT64), _field("members", BYTES)])
"""One row a message that operators of ``source`` prove to ``destination`` at this height. ``tag``: the weight tag;
``members``: the nodes of its storage proof, as numbers of ``nodes``, 4 bytes each, little-endian."""

NODES_SCHEMA = pa.schema(
    [_field("source", U32), _field("destination", U32), _field("number", U32), _field("node", BYTES)]
)
"""The nodes of the storage proofs of ``envelopes``, each once a destination, numbered from 0."""

BASES_SCHEMA = pa.schema(
    [
        _field("source", U32),
        _field("destination", U32),
        _field("block", UINT64),
        _field("block_hash", DIGEST),
        _field("leaf", BYTES),
        _field("leaf_index", UINT64),
        _field("leaf_count", UINT64),
        _field("items", BYTES),
        _field("domain_proof", BYTES),
    ]
)
"""What all envelopes from ``source`` to ``destination`` of this height have in common: the proof, under the mountain
range of the consensus chain at ``block``, of the ``leaf`` that has the state root, with its ``items`` of 32 bytes one
after the other; and the nodes of the proof of the domain's confirmed receipt under it, ``Vec<Vec<u8>>`` in SCALE, empty
where the consensus chain itself is the source."""

_BASE_FIELD = _field("base", UINT64)

LATE_SCHEMA = pa.schema([*ENVELOPES_SCHEMA, _BASE_FIELD, _field("due", UINT64)])
"""One row a message that carriers bring to ``destination`` late, on purpose: not before its block ``due``, with the
base and nodes of the number ``base`` between the two chains. No root depends on these tables."""

LATE_NODES_SCHEMA = pa.schema([*NODES_SCHEMA, _BASE_FIELD])

LATE_BASES_SCHEMA = pa.schema([*BASES_SCHEMA, _BASE_FIELD])

BLOCKS_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("number", UINT64),
        _field("hash", DIGEST),
        _field("state_root", DIGEST),
        _field("extrinsics_root", DIGEST),
        _field("leaf_count", UINT64),
        _field("mmr_root", DIGEST),
        _field("height", UINT64),
    ]
)
"""The last blocks of the consensus chain, and the heights that made them. ``leaf_count``, ``mmr_root``: of the mountain
range with the leaves of all blocks before this one (``MmrRootHashes``); the leaf of a block enters in the next."""

RANGE_SCHEMA = pa.schema([_field("chain", U32), _field("range", BYTES), _field("confirmed_to", UINT64)])
"""The mountain range of the consensus chain as it was before the first of ``blocks`` entered (``RangeState``), and the
number of the block below which all receipts are confirmed."""

TIPS_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("number", UINT64),
        _field("hash", DIGEST),
        _field("root", DIGEST),
        _field("extrinsics_root", DIGEST),
        _field("consensus_number", UINT64),
        _field("consensus_hash", DIGEST),
    ]
)
"""The last block of each chain, the root of its storage, and the consensus block that it was derived from: what a
receipt says of it."""

RECEIPTED_SCHEMA = pa.schema(
    [_field("chain", U32), _field("domain", U32), _field("number", UINT64), _field("hash", DIGEST)]
)
"""The last receipt of each domain that the consensus chain has taken in: the number of its block, and its hash."""

CONFIRMED_SCHEMA = pa.schema(
    [_field("chain", U32), _field("domain", U32), _field("number", UINT64), _field("receipt", BYTES)]
)
"""The latest confirmed receipt of each domain on the consensus chain: the domain's position, and the number of its
block."""

UNBOOKED_SCHEMA = pa.schema([_field("chain", U32), _field("domain", U32), _field("number", UINT64)])
"""One row a domain whose receipt of block ``number`` the books of the consensus chain refused: neither that one nor a
later one is confirmed."""

ANCHOR_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("number", UINT64),
        _field("best", UINT64),
        _field("final", UINT64),
        _field("block_hash", DIGEST),
        _field("leaf", BYTES),
        _field("leaf_index", UINT64),
        _field("best_hash", DIGEST),
        _field("best_leaves", UINT64),
        _field("best_items", BYTES),
        _field("final_leaves", UINT64),
        _field("final_items", BYTES),
    ]
)
"""What operators prove under from the next block on (X-5): the consensus block ``number``, which is final, and its leaf
under the mountain range of ``best``, the newest block, and of ``final``, the newest that is final, and the hash of each
of the two. No row as long as no block is final; one, but where another lake runs the consensus chain: there one a block
that the receipts in ``anchored`` are of."""

ANCHORED_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("domain", U32),
        _field("block", UINT64),
        _field("number", UINT64),
        _field("domain_proof", BYTES),
    ]
)
"""The receipt that is confirmed in the state of the consensus block ``block``, of each domain: the number of its block,
and the proof of it. ``anchor`` has that block."""

MONEY_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        *(
            _field(f"{name}_{half}", UINT64)
            for name in ("issuance", "inbox_held", "outbox_held", "reserved", "burned", "root")
            for half in ("high", "low")
        ),
    ]
)
"""Sums of a chain: everything issued; fees held until an acknowledgement, and until a response; reserves of channels;
what was burned for good; and what root's account has."""

OPERATORS_SCHEMA = pa.schema(
    [_field("chain", U32), _field("operator", U32), _field("balance_high", UINT64), _field("balance_low", UINT64)]
)

SUBMITTERS_SCHEMA = pa.schema(
    [_field("chain", U32), _field("number", UINT64), _field("unpaid", UINT64), _field("operators", BYTES)]
)
"""One row a block in which an operator was absent: the ``operators`` who submitted its receipt, or of the consensus
chain its author (``encode_set``), and for how many messages that the block includes the fee is still held
(``unpaid``, at least 1). A block without a row has no such message, or nobody was absent."""

COSTS_SCHEMA = pa.schema([_field("program", UINT64), _field("amount_high", UINT64), _field("amount_low", UINT64)])
"""What each program that has an endowment has paid in fees and holds as deposits."""

MADE_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("destination", U32),
        _field("what", pa.uint8()),
        _field("foreign", U32),
        _field("amount_high", UINT64),
        _field("amount_low", UINT64),
    ]
)
"""What the receipt of a domain's block says of transfers (2.4): ``what`` 0 in, 1 out, 2 rejected and claimed,
3 rejected, 4 burnt; ``destination``: the consensus chain, which reads it."""

BOOKS_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("what", pa.uint8()),
        _field("source", U32),
        _field("foreign", U32),
        _field("amount_high", UINT64),
        _field("amount_low", UINT64),
    ]
)
"""The books of the consensus chain (X-3): ``what`` 0 the balance of the domain ``source``; 1 unconfirmed and 2
cancelled transfers from ``source`` to ``foreign``."""

POOL_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("position", UINT64),
        _field("sender", UINT64),
        _field("receiver", UINT64),
        _field("method", pa.dictionary(pa.int32(), pa.string())),
        _field("payload", BYTES),
    ]
)
"""One row a message from a user that a fork gave back to the pool of ``chain``, whose next block takes it. No root
depends on it."""

RECALLED_SCHEMA = pa.schema([_field("chain", U32), _field("tick", UINT64)])
"""One row a tick for which calls of ``chain`` are planned, that a fork took back: its next block makes them again."""

COUNTED_SCHEMA = pa.schema(
    [
        _field("chain", U32),
        _field("what", pa.uint8()),
        _field("error", pa.uint16()),
        _field("count", UINT64),
        _field("old", UINT64),
    ]
)
"""One row a kind of what was checked on a chain so far (``counted.Counted``). ``error``: for what envelopes were
refused (``Validity``), 0 for others; ``old``: how many of the proofs were under a root that was not the newest."""

CHANNEL = ("chain", "foreign", "channel")
ENDS = ("source", "destination")
INDEXED = (*LANE, "index")
BASE = (*ENDS, "base")

STATE_TABLES: dict[str, StateTable] = {
    "channels": StateTable(
        CHANNELS_SCHEMA, "chain", CHANNEL, CHANNEL[:2], ("owner",), Visibility.DESTINATION, "foreign"
    ),
    "next_channels": StateTable(NEXT_CHANNELS_SCHEMA, "chain", CHANNEL[:2], CHANNEL[:2]),
    "outbox": StateTable(OUTBOX_SCHEMA, "source", INDEXED, ENDS, ("sender", "receiver")),
    "responses": StateTable(RESPONSES_SCHEMA, "source", INDEXED, ENDS),
    "early": StateTable(EARLY_SCHEMA, "destination", ("destination", "source", "substream", "index"), ENDS),
    "waiting": StateTable(WAITING_SCHEMA, "source", (*ENDS, "index"), ENDS, ("sender", "receiver")),
    "open_calls": StateTable(
        OPEN_CALLS_SCHEMA, "chain", ("chain", "sender", "callback"), ("chain",), ("sender", "receiver")
    ),
    "allowlist": StateTable(ALLOWLIST_SCHEMA, "chain", CHANNEL[:2], CHANNEL[:2]),
    "allow_updates": StateTable(
        ALLOW_UPDATES_SCHEMA, "chain", ("chain", "domain"), ("chain", "domain"), shown=Visibility.EVERYONE
    ),
    "queues": StateTable(QUEUES_SCHEMA, "source", LANE, ENDS),
    "runs": StateTable(RUNS_SCHEMA, "source", (*LANE, "first"), ENDS),
    "history": StateTable(HISTORY_SCHEMA, "chain", ("chain", "number"), ("chain",)),
    "relaying": StateTable(RELAYING_SCHEMA, "source", LANE, ENDS),
    "envelopes": StateTable(ENVELOPES_SCHEMA, "source", INDEXED, ENDS, shown=Visibility.DESTINATION),
    "nodes": StateTable(NODES_SCHEMA, "source", (*ENDS, "number"), ENDS, shown=Visibility.DESTINATION),
    "bases": StateTable(BASES_SCHEMA, "source", ENDS, ENDS, shown=Visibility.DESTINATION),
    "late": StateTable(
        LATE_SCHEMA, "destination", ("destination", "source", "substream", "index", "base", "due"), ENDS
    ),
    "late_nodes": StateTable(LATE_NODES_SCHEMA, "destination", (*BASE, "number"), ENDS),
    "late_bases": StateTable(LATE_BASES_SCHEMA, "destination", BASE, ENDS),
    "blocks": StateTable(BLOCKS_SCHEMA, "chain", ("chain", "number"), ("chain",), shown=Visibility.EVERYONE),
    "range": StateTable(RANGE_SCHEMA, "chain", ("chain",), ("chain",)),
    "tips": StateTable(TIPS_SCHEMA, "chain", ("chain",), ("chain",), shown=Visibility.EVERYONE),
    "receipted": StateTable(
        RECEIPTED_SCHEMA, "chain", ("chain", "domain"), ("chain", "domain"), shown=Visibility.EVERYONE
    ),
    "confirmed": StateTable(CONFIRMED_SCHEMA, "chain", ("chain", "domain"), ("chain", "domain")),
    "unbooked": StateTable(
        UNBOOKED_SCHEMA, "chain", ("chain", "domain"), ("chain", "domain"), shown=Visibility.EVERYONE
    ),
    "anchor": StateTable(ANCHOR_SCHEMA, "chain", ("chain", "number"), ("chain",), shown=Visibility.EVERYONE),
    "anchored": StateTable(
        ANCHORED_SCHEMA, "chain", ("chain", "domain"), ("chain", "domain"), shown=Visibility.EVERYONE
    ),
    "money": StateTable(MONEY_SCHEMA, "chain", ("chain",), ("chain",)),
    "operators": StateTable(OPERATORS_SCHEMA, "chain", ("chain", "operator"), ("chain",)),
    "submitters": StateTable(SUBMITTERS_SCHEMA, "chain", ("chain", "number"), ("chain",)),
    "made": StateTable(
        MADE_SCHEMA, "chain", ("chain", "what", "foreign"), ("chain", "foreign"), shown=Visibility.DESTINATION
    ),
    "books": StateTable(BOOKS_SCHEMA, "chain", ("chain", "what", "source", "foreign"), ("chain", "source", "foreign")),
    "pool": StateTable(POOL_SCHEMA, "chain", ("chain", "position"), ("chain",), ("receiver",)),
    "recalled": StateTable(RECALLED_SCHEMA, "chain", ("chain", "tick"), ("chain",), shown=Visibility.EVERYONE),
    "accounts": ACCOUNTS,
    "costs": StateTable(COSTS_SCHEMA, "program", ("program",), programs=("program",)),
    "counted": StateTable(COUNTED_SCHEMA, "chain", ("chain", "what", "error"), ("chain",)),
    **DECLARED_TABLES,
    **FRAUD_TABLES,
}
"""Tables of a state by name; every program class adds one named ``program_<class>`` with a schema of its own."""

UNCOMMITTED = (
    *("runs", "history", "relaying", "envelopes", "nodes", "bases", "late", "late_nodes", "late_bases"),
    *("anchor", "anchored", "declared_under", "tips", "range", "pool", "recalled", "counted"),
    *UNKNOWN,
)
"""Tables that no root commits to: what operators know and bring, what waits in pools, and where things lie."""
