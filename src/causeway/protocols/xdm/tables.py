"""The state tables of cross-domain messaging: columns, owner, order and visibility.

``state`` describes the names of lanes. The tables of declared value serve transfers between domains of different lakes.
The tables of frauds hold false receipts, their forged messages, and invalid bundles.

Reference: XDM, sections 1.4 and 2.5; G4, X-6.
"""

from __future__ import annotations

import pyarrow as pa

from causeway.protocols.contract import BYTES, DIGEST, UINT8, UINT32, UINT64, StateTable, Visibility, table_schema
from causeway.protocols.shared.execution import ACCOUNTS
from causeway.protocols.shared.messages import LANE, LANE_FIELDS, MESSAGE_FIELDS

DECLARED_SCHEMA = table_schema(
    chain=UINT32,
    destination=UINT32,
    source=UINT32,
    out_high=UINT64,
    out_low=UINT64,
    refused_high=UINT64,
    refused_low=UINT64,
)
"""One row a pair of domains of different lakes: value in confirmed receipts of ``source``.

``out`` is the value sent to ``destination``, ``refused`` the refused value of transfers from ``destination``. Both are
sums since genesis modulo 2**128. A following lake has the proved rows of its own domains as ``destination``.
"""

DECLARED_UNDER_SCHEMA = table_schema(chain=UINT32, domain=UINT32, number=UINT64)
"""One row a domain of a following lake: the block of its proved ``declared`` rows.

No root commits to it.
"""

DRAWN_SCHEMA = table_schema(
    chain=UINT32, foreign=UINT32, in_high=UINT64, in_low=UINT64, claimed_high=UINT64, claimed_low=UINT64
)
"""One row a domain ``foreign`` of another lake that ever sent value to ``chain``.

``in`` is the value that ``chain`` accepted or refused, ``claimed`` the refused value that it claimed back. Sums as in
``declared``.
"""

DECLARED, DRAWN = ("chain", "destination", "source"), ("chain", "foreign")

DECLARED_TABLES: dict[str, StateTable] = {
    "declared": StateTable(DECLARED_SCHEMA, "chain", DECLARED, DECLARED, shown=Visibility.EVERYONE),
    "declared_under": StateTable(
        DECLARED_UNDER_SCHEMA, "chain", ("chain", "domain"), ("chain", "domain"), shown=Visibility.EVERYONE
    ),
    "drawn": StateTable(DRAWN_SCHEMA, "chain", DRAWN, DRAWN),
}
"""Tables of declared value by name."""


NEVER_FOUND = 2**63
"""Value of ``found`` for a fraud without a proof, against the assumption of 1.4."""


CLAIMS_SCHEMA = table_schema(
    chain=UINT32,
    destination=UINT32,
    origin=UINT64,
    number=UINT64,
    what=UINT8,
    found_after=UINT64,
    foreign=UINT32,
    substream=UINT64,
    index=UINT64,
    amount=UINT64,
    key=BYTES,
    value=BYTES,
    root=DIGEST,
)
"""One row a domain with a bad operator: false receipts of ``origin`` to ``number``.

Their storage is the domain's with ``value`` under ``key`` (no key: unchanged), with root ``root`` after the last block.
``what`` is the kind of fraud (``FraudKind``); a forged message has the lane and nonce ``foreign``, ``substream``,
``index``. The proof follows ``found_after`` blocks after the first false receipt, or never (``NEVER_FOUND``). No root
commits to it.
"""

FORGED_SCHEMA = table_schema(source=UINT32, destination=UINT32, envelope=BYTES)
"""One row a wire envelope that bad operators of ``source`` prove under forged storage."""

FRAUDS_SCHEMA = table_schema(chain=UINT32, domain=UINT32, number=UINT64, taken=UINT64, found=UINT64)
"""One row a domain with false receipts and no fraud proof yet.

Block ``number`` is the first false one; block ``taken`` of the consensus chain accepted its receipt. Honest nodes have
the proof from block ``found`` on. No root commits to it, since the consensus chain does not know it.
"""

PRUNED_SCHEMA = table_schema(chain=UINT32, domain=UINT32, first=UINT64, last=UINT64, taken=UINT64, found=UINT64)
"""One row a proved fraud: receipts of the domain's blocks ``first`` to ``last`` are pruned.

The consensus chain accepted them in blocks from ``taken`` to before ``found``; block ``found`` has the valid ones. The
row remains until these are final.
"""

BUNDLES_SCHEMA = table_schema(chain=UINT32, destination=UINT32, invalid=UINT8, extrinsic=UINT32, root=DIGEST)
"""One row a domain whose last block has a bundle with messages, as its receipt reports it.

``invalid`` is the reason (``bundles.InvalidBundle``), ``extrinsic`` the message concerned, ``root`` a digest of the
messages by lane, nonce and tag.
"""

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
"""Tables of frauds by name."""

UNCOMMITTED_FRAUDS = ("claims", "forged", "frauds", "bundles")
"""Fraud tables without a commitment; receipts contain the content of ``bundles``."""


CHANNELS_SCHEMA = table_schema(
    chain=UINT32,
    foreign=UINT32,
    channel=UINT64,
    state=UINT8,
    next_inbox=UINT64,
    next_outbox=UINT64,
    next_response=UINT64,
    max_outgoing=UINT32,
    count=UINT64,
    has_owner=UINT8,
    owner=UINT64,
    reserve=UINT64,
    fee_model=UINT8,
    relay_fee=UINT64,
)
"""One row a channel of ``chain`` with ``foreign`` (2.2).

``next_response`` is the nonce after the last request with a response, 0 for none. ``count`` is the number of requests
without a response (``OutboxMessageCount``). ``owner`` is the initiator, a program or root (``ROOT_ACCOUNT``).
``reserve`` is its deposit, also after the close. ``fee_model`` is a ``FeeModel``; ``V0`` adds ``relay_fee`` (units)
(3.8).
"""

NEXT_CHANNELS_SCHEMA = table_schema(chain=UINT32, foreign=UINT32, next_channel=UINT64)

OUTBOX_SCHEMA = table_schema(
    *LANE_FIELDS,
    index=UINT64,
    sent=UINT64,
    asked=UINT8,
    max_outgoing=UINT32,
    src_endpoint=UINT64,
    dst_endpoint=UINT64,
    payload=BYTES,
    src_fee=UINT64,
    dst_fee=UINT64,
    next_response=UINT64,
    sender=UINT64,
    receiver=UINT64,
    callback=UINT64,
    amount_high=UINT64,
    amount_low=UINT64,
)
"""One row a request without a response.

``sent`` is the number of the sending block, ``asked`` the ``RequestKind``, ``max_outgoing`` the limit of an open
request, ``payload`` that of an endpoint request. ``next_response`` is the nonce after the acknowledged one, 0 for none.
The last columns name the recipient of the response and the refund of a refused request; no response supplies them.
"""

RESPONSES_SCHEMA = table_schema(
    *LANE_FIELDS,
    index=UINT64,
    sent=UINT64,
    layer=UINT8,
    asked=UINT8,
    error=UINT8,
    endpoint=UINT64,
    payload=BYTES,
    fee=UINT64,
)
"""One row a response without an acknowledgement (``InboxResponses``).

``layer`` is 0 for the protocol, 1 for an endpoint. ``asked`` and ``endpoint`` describe the request. ``error`` is 0 with
a ``payload``, else a number of ``errors``. ``fee`` is the minted fee of the request, on hold until the acknowledgement
(``InboxFee``).
"""

EARLY_SCHEMA = table_schema(*LANE_FIELDS, index=UINT64, body=BYTES, tag=UINT64)
"""One row a proved message that arrived before its predecessors.

``body`` is the value in the other chain's storage, ``tag`` the weight tag of its envelope (``tags``).
"""

WAITING_SCHEMA = pa.schema([*table_schema(source=UINT32, destination=UINT32, index=UINT64), *MESSAGE_FIELDS])
"""One row a program's call that waits for a channel with capacity, in order of creation."""

OPEN_CALLS_SCHEMA = table_schema(
    chain=UINT32, sender=UINT64, receiver=UINT64, callback=UINT64, amount_high=UINT64, amount_low=UINT64, answered=UINT8
)
"""One row an accepted call of ``sender`` on ``chain`` with a later answer.

``answered`` is 1 if the answer arrived before the response, until the response arrives.
"""

ALLOWLIST_SCHEMA = table_schema(chain=UINT32, foreign=UINT32)
"""One row a chain ``foreign`` on the allow list of ``chain`` (``ChainAllowlist``)."""

ALLOW_UPDATES_SCHEMA = table_schema(chain=UINT32, domain=UINT32, height=UINT64, allow=BYTES, remove=BYTES)
"""One row a domain with any allow-list update (``DomainChainAllowlistUpdate``).

``allow`` and ``remove`` are the sets (``encode_set``) of chains to add and to remove in its next block; ``height`` is
that of the last call. The row remains when both are empty.
"""

RUNS_SCHEMA = table_schema(*LANE_FIELDS, height=UINT64, first=UINT64, count=UINT64)
"""One row a segment of local messages of one height: their location in the lake."""

QUEUES_SCHEMA = table_schema(*LANE_FIELDS, begin=UINT64, next_index=UINT64)
"""One row a local lane: its head and tail."""

HISTORY_SCHEMA = table_schema(chain=UINT32, number=UINT64, height=UINT64)
"""One row a block with storage changes that may still be read: its number and height."""

RELAYING_SCHEMA = table_schema(*LANE_FIELDS, proved=UINT64, expected=UINT64, since=UINT64, until=UINT64)
"""One row a lane: the relay state of the operators of ``source``.

Messages below ``proved`` were proved. The destination has expected the nonce ``expected`` since block ``since``, which
is also the block of the last resubmission. The proofs of messages below ``until`` are not younger than that. No root
commits to it.
"""

ENVELOPES_SCHEMA = table_schema(*LANE_FIELDS, index=UINT64, tag=UINT64, members=BYTES)
"""One row a message that operators of ``source`` prove to ``destination`` at this height.

``tag`` is the weight tag. ``members`` are the nodes of its storage proof: positions in ``nodes``, 4 bytes each,
little-endian.
"""

NODES_SCHEMA = table_schema(source=UINT32, destination=UINT32, number=UINT32, node=BYTES)
"""Nodes of the storage proofs of ``envelopes``, unique per destination, numbered from 0."""

BASES_SCHEMA = table_schema(
    source=UINT32,
    destination=UINT32,
    block=UINT64,
    block_hash=DIGEST,
    leaf=BYTES,
    leaf_index=UINT64,
    leaf_count=UINT64,
    items=BYTES,
    domain_proof=BYTES,
)
"""The common part of all envelopes from ``source`` to ``destination`` of this height.

It proves the ``leaf`` with the state root under the mountain range of the consensus chain at ``block``; ``items`` are
concatenated digests of 32 bytes. ``domain_proof`` proves the domain's confirmed receipt, ``Vec<Vec<u8>>`` in SCALE; it
is empty for the consensus chain.
"""

LATE_SCHEMA = table_schema(*ENVELOPES_SCHEMA, base=UINT64, due=UINT64)
"""One row a message that a carrier fault delays until block ``due`` of ``destination``.

``base`` names its base and nodes between the two chains. No root commits to these tables.
"""

LATE_NODES_SCHEMA = table_schema(*NODES_SCHEMA, base=UINT64)

LATE_BASES_SCHEMA = table_schema(*BASES_SCHEMA, base=UINT64)

BLOCKS_SCHEMA = table_schema(
    chain=UINT32,
    number=UINT64,
    hash=DIGEST,
    state_root=DIGEST,
    extrinsics_root=DIGEST,
    leaf_count=UINT64,
    mmr_root=DIGEST,
    height=UINT64,
)
"""Recent blocks of the consensus chain with their heights.

``leaf_count`` and ``mmr_root`` describe the mountain range of all earlier blocks (``MmrRootHashes``); a block's own
leaf enters with the next block.
"""

RANGE_SCHEMA = table_schema(chain=UINT32, range=BYTES, confirmed_to=UINT64)
"""The mountain range before the first of ``blocks`` (``RangeState``).

All receipts accepted by block ``confirmed_to`` are confirmed.
"""

TIPS_SCHEMA = table_schema(
    chain=UINT32,
    number=UINT64,
    hash=DIGEST,
    root=DIGEST,
    extrinsics_root=DIGEST,
    consensus_number=UINT64,
    consensus_hash=DIGEST,
)
"""The last block of each chain: the content of its receipt.

It has the storage root, and the consensus block of its derivation.
"""

RECEIPTED_SCHEMA = table_schema(chain=UINT32, domain=UINT32, number=UINT64, hash=DIGEST)
"""The last accepted receipt of each domain: block number and receipt hash."""

CONFIRMED_SCHEMA = table_schema(chain=UINT32, domain=UINT32, number=UINT64, receipt=BYTES)
"""The last confirmed receipt of each domain: position of the domain, block number, receipt."""

UNBOOKED_SCHEMA = table_schema(chain=UINT32, domain=UINT32, number=UINT64)
"""One row a domain with a receipt, of block ``number``, that the books refused.

The consensus chain confirms neither that receipt nor a later one.
"""

ANCHOR_SCHEMA = table_schema(
    chain=UINT32,
    number=UINT64,
    best=UINT64,
    final=UINT64,
    block_hash=DIGEST,
    leaf=BYTES,
    leaf_index=UINT64,
    best_hash=DIGEST,
    best_leaves=UINT64,
    best_items=BYTES,
    final_leaves=UINT64,
    final_items=BYTES,
)
"""The consensus block that operators prove under from the next block on (X-5).

Block ``number`` is final. Its leaf is proved under the mountain range of ``best``, the latest block, and of ``final``,
the latest final block. The table is empty before the first final block and has one row after it. A following lake has
one row a block of ``anchored``.
"""

ANCHORED_SCHEMA = table_schema(chain=UINT32, domain=UINT32, block=UINT64, number=UINT64, domain_proof=BYTES)
"""The confirmed receipt of each domain in a consensus block, with its proof.

``number`` is the domain's block, ``block`` the consensus block, a row of ``anchor``.
"""

_SUMS = ("issuance", "inbox_held", "outbox_held", "reserved", "burned", "root")
MONEY_SCHEMA = table_schema(chain=UINT32, **{f"{name}_{half}": UINT64 for name in _SUMS for half in ("high", "low")})
"""Sums of a chain.

Issuance; fees on hold until an acknowledgement (``inbox_held``) and until a response (``outbox_held``); channel
reserves; burned value; root's balance.
"""

OPERATORS_SCHEMA = table_schema(chain=UINT32, operator=UINT32, balance_high=UINT64, balance_low=UINT64)

SUBMITTERS_SCHEMA = table_schema(chain=UINT32, number=UINT64, unpaid=UINT64, operators=BYTES)
"""One row a block with an absent operator.

``operators`` submitted its receipt, or authored it on the consensus chain (``encode_set``). ``unpaid`` is the number of
its messages with a fee on hold, at least 1. A block without a row has none, or all operators were present.
"""

COSTS_SCHEMA = table_schema(program=UINT64, amount_high=UINT64, amount_low=UINT64)
"""Fees and deposits paid by each program with an endowment."""

MADE_SCHEMA = table_schema(
    chain=UINT32, destination=UINT32, what=UINT8, foreign=UINT32, amount_high=UINT64, amount_low=UINT64
)
"""Transfers of a domain's block according to its receipt (2.4).

``what`` is 0 in, 1 out, 2 rejected and claimed, 3 rejected, 4 burnt. ``destination`` is the consensus chain, the
reader.
"""

BOOKS_SCHEMA = table_schema(
    chain=UINT32, what=UINT8, source=UINT32, foreign=UINT32, amount_high=UINT64, amount_low=UINT64
)
"""The books of the consensus chain (X-3).

``what`` is 0 the balance of the domain ``source``, 1 unconfirmed and 2 cancelled transfers from ``source`` to
``foreign``.
"""

POOL_SCHEMA = table_schema(
    chain=UINT32,
    position=UINT64,
    sender=UINT64,
    receiver=UINT64,
    method=pa.dictionary(pa.int32(), pa.string()),
    payload=BYTES,
)
"""One row a message from a user that a fork returned to the pool of ``chain``.

The next block consumes it. No root commits to it.
"""

RECALLED_SCHEMA = table_schema(chain=UINT32, tick=UINT64)
"""One row a reverted tick with planned calls of ``chain``; the next block repeats them."""

COUNTED_SCHEMA = table_schema(chain=UINT32, what=UINT8, error=pa.uint16(), count=UINT64, old=UINT64)
"""One row a kind of check on a chain (``check_counters.CheckCounters``) with its count.

``error`` is the reason of refused envelopes (``MessageValidity``), else 0. ``old`` counts proofs under a root other
than the latest.
"""

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
"""State tables by name; each program class adds ``program_<class>`` with its own schema."""

UNCOMMITTED = (
    *("runs", "history", "relaying", "envelopes", "nodes", "bases", "late", "late_nodes", "late_bases"),
    *("anchor", "anchored", "declared_under", "tips", "range", "pool", "recalled", "counted"),
    *UNCOMMITTED_FRAUDS,
)
"""Tables without a commitment: relay state, deliveries, pools, locations."""
