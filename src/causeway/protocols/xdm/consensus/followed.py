"""The consensus chain of another lake, as far as it was carried here (XDM reference 2.4, 3.10, X-4, X-5).

A lake that runs domains only follows the consensus chain. It believes of it what its author has signed, in one chain
of parents from block 0 on; the leaves of the mountain range, and its roots, it computes from the headers. Which
receipts are confirmed, and what value they declare, it reads out of storage proofs under the state root of a final
block. What is so known stands in the tables that the consensus chain itself would show, at its position: ``blocks``,
``anchor``, ``anchored``, ``declared``. So all that judges, proves and derives from it is the same as where all chains
are in one lake.

The receipts of the domains' blocks are made here, too, each with the hash of the one before it; relay processes bring
them to the consensus chain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.hashing import HashFunction, digest_values
from causeway_proofs.mmr.peaks import RangeState, RangeWindow
from causeway_proofs.order import stable_order
from causeway_proofs.substrate.proof import read_entry, read_value
from causeway_proofs.xdm.envelope import ExecutionReceipt, receipt_storage_key

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import NO_CHAIN
from causeway.protocols.contract import View
from causeway.protocols.shared.digests import digests, list_digests
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus.chain import (
    ConsensusRanges,
    anchor_number,
    block_leaves,
    genesis_range,
    receipts,
    retain_blocks,
)
from causeway.protocols.xdm.consensus.commitment import anchor_rows
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import CallFailed
from causeway.protocols.xdm.events import ChainEvent
from causeway.protocols.xdm.operators import block_signing_bytes
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.state import State, replace_domain_rows, table_from_rows
from causeway.protocols.xdm.tables import (
    ANCHOR_SCHEMA,
    ANCHORED_SCHEMA,
    BLOCKS_SCHEMA,
    DECLARED_SCHEMA,
    DECLARED_UNDER_SCHEMA,
)
from causeway.protocols.xdm.transactions import BlockHeader, Blocks, Confirmed, Transaction, encode_lists
from causeway.protocols.xdm.value.books import declared_key, decode_declared

FOLLOWED, PROVED = "BlocksFollowed", "ReceiptsFollowed"
"""What notices say of headers, and of confirmed receipts, that were taken."""


@dataclass(frozen=True)
class FollowedConsensus:
    """What is known of the consensus chain after a round. ``receipts``: those that were made of domains' blocks
    (``TAKEN_SCHEMA``); ``moved``: whether there is more to prove under than before."""

    state: State
    receipts: Frame
    notices: list[ChainEvent]
    moved: bool


def genesis_following(state: State) -> State:
    """Return the state of a consensus chain of which nothing is known yet."""
    return state.with_tables(range=genesis_range())


def follow(state: State, brought: Iterable[Transaction], view: View, context: Context) -> FollowedConsensus:
    """Return what is known of the consensus chain after a round.

    ``state``: its rows; ``brought``: what was carried to it, in the order in which it came; ``context``: of the chains
    that make a block here.
    """
    taken, known = receipts(view, state, {}, context.operators)
    state = state.with_tables(receipted=known)
    before, notices = state, list[ChainEvent]()
    for transaction in brought:
        try:
            state, notice = _taken(state, transaction, context)
            notices.append(notice)
        except CallFailed as refused:
            notices.append(ChainEvent(CONSENSUS_POSITION, NO_CHAIN, refused.name, refused=True))
    moved = state["blocks"] is not before["blocks"] or state["anchored"] is not before["anchored"]
    return FollowedConsensus(_proved_under(state, context) if moved else state, taken, notices, moved)


def _taken(state: State, transaction: Transaction, context: Context) -> tuple[State, ChainEvent]:
    match transaction:
        case Blocks():
            state = take_blocks(state, transaction, context)
            number = int(state["blocks"]["number"][-1])
            return state, ChainEvent(CONSENSUS_POSITION, NO_CHAIN, FOLLOWED, index=number)
        case Confirmed():
            state = take_confirmed(state, transaction, context)
            return state, ChainEvent(CONSENSUS_POSITION, NO_CHAIN, PROVED, index=transaction.block)
    raise CallFailed("InvalidCall")


def take_blocks(state: State, brought: Blocks, context: Context) -> State:
    """Return the state with further blocks; those that are known already are passed over.

    Raises ``CallError``: BadSignature, UnknownParent, NumberNotAscending, ConsensusForked (the author has signed other
    blocks than those that are known), Stale (nothing of it is new).
    """
    headers = brought.headers
    own = [header.hash for header in headers]
    author = context.signers.public(context.network.names[CONSENSUS_POSITION])
    if not author.accepts(brought.signature, block_signing_bytes(context.network.names[CONSENSUS_POSITION], own[-1])):
        raise CallFailed("BadSignature")
    for place in range(1, len(headers)):
        if headers[place].parent != own[place - 1]:
            raise CallFailed("UnknownParent")
        if headers[place].number <= headers[place - 1].number:
            raise CallFailed("NumberNotAscending")
    known = state["blocks"]
    first = 0
    if len(known):
        best = int(known["number"][-1])
        there = dict(zip(known["number"].tolist(), list_digests(known["hash"]), strict=True))
        oldest = int(known["number"][0])
        while first < len(headers) and headers[first].number <= best:
            number = headers[first].number
            if number >= oldest and there.get(number) != own[first]:
                raise CallFailed("ConsensusForked")
            first += 1
        if first == len(headers):
            raise CallFailed("Stale")
        if headers[first].parent != there[best]:
            raise CallFailed("UnknownParent")
    elif headers[0].number or any(headers[0].parent):
        raise CallFailed("UnknownParent")  # the first block is number 0 and has none
    return _extended(state, headers[first:], own[first:], context)


def _extended(state: State, headers: tuple[BlockHeader, ...], own: list[bytes], context: Context) -> State:
    """Return the state with blocks that follow on those that are known."""
    known, count = state["blocks"], len(headers)
    following = int(known["leaf_count"][-1]) + 1 if len(known) else 0
    leaf_count = np.arange(following, following + count, dtype=np.uint64)
    added = Frame(
        {
            "chain": np.full(count, CONSENSUS_POSITION, dtype=np.uint32),
            "number": np.array([header.number for header in headers], dtype=np.uint64),
            "hash": digests(own),
            "state_root": digests([header.state_root for header in headers]),
            "extrinsics_root": digests([header.extrinsics_root for header in headers]),
            "leaf_count": leaf_count,
            "mmr_root": np.zeros((count, 32), dtype=np.uint8),
            "height": np.full(count, context.height, dtype=np.uint64),
        },
        count,
    )
    blocks = concat([known, added]).select(BLOCKS_SCHEMA.names)
    start = RangeState.decode(state["range"]["range"][0].as_py())
    window = RangeWindow(start, digest_values(HashFunction.KECCAK_256, block_leaves(blocks)))
    # The leaf of a block enters in the next; the first block has a range without leaves.
    roots = digests([window.root(leaves) if leaves else bytes(32) for leaves in leaf_count.tolist()])
    blocks = blocks.with_columns(mmr_root=np.concatenate([known["mmr_root"], roots]) if len(known) else roots)
    return retain_blocks(state, blocks.select(BLOCKS_SCHEMA.names), window, context.options)


def take_confirmed(state: State, brought: Confirmed, context: Context) -> State:
    """Return the state with what a block of the consensus chain, one that is final, has of domains: operators of a
    domain whose receipt it shows prove under it from now on, and what it has of value that is declared covers what is
    taken.

    What is known of a domain is as of the latest block of which that was brought, whatever is brought of others: who
    brings less than there is keeps nothing from anyone. Raises ``CallError``: Stale (nothing of it is new),
    BlockNotFinal (nor known), InvalidChain (a domain that is none of here, or is named twice), BadProof.
    """
    found = provable_row(state["blocks"], context.options)
    if found is None:
        raise CallFailed("BlockNotFinal")
    blocks = state["blocks"]
    rows = np.flatnonzero(blocks["number"][: found + 1] == brought.block)
    if not len(rows):
        raise CallFailed("BlockNotFinal")
    receipts, entries = _read_confirmed(blocks["state_root"][rows[0]].tobytes(), brought, context)
    anchored, under = state["anchored"], state["declared_under"]
    has, knows = _blocks_of(anchored, "block"), _blocks_of(under, "number")
    receipts = {domain: row for domain, row in receipts.items() if has.get(domain, -1) < brought.block}
    entries = {domain: rows for domain, rows in entries.items() if knows.get(domain, -1) < brought.block}
    if not receipts and not entries:
        raise CallFailed("Stale")
    declared = state["declared"]
    kept = declared.filter(~np.isin(declared["destination"], np.array(list(entries), dtype=np.uint32)))
    every = concat([kept, *(entries[domain] for domain in sorted(entries))]).select(DECLARED_SCHEMA.names)
    shown = [{"chain": CONSENSUS_POSITION, "domain": domain, "number": brought.block} for domain in entries]
    taken = state.with_tables(
        anchored=replace_domain_rows(anchored, table_from_rows(list(receipts.values()), ANCHORED_SCHEMA)),
        declared=every.take(stable_order(every["destination"], every["source"])),
        declared_under=replace_domain_rows(under, table_from_rows(shown, DECLARED_UNDER_SCHEMA)),
    )
    return _proved_under(taken, context)


def _blocks_of(rows: Frame, column: str) -> dict[int, int]:
    """Return the number of a block in a table with a row a domain, by the domain's position."""
    return dict(zip(rows["domain"].tolist(), rows[column].tolist(), strict=True))


def _read_confirmed(
    root: bytes, brought: Confirmed, context: Context
) -> tuple[dict[int, dict[str, Any]], dict[int, Frame]]:
    """Return what is proved of domains under a state root, by their positions: rows of ``ANCHORED_SCHEMA``, and what is
    declared for them (``DECLARED_SCHEMA``). Raises ``CallError``: InvalidChain, BadProof."""
    own = {int(chain) for chain in context.network.own(np.arange(len(context.network.names), dtype=np.uint32))}
    seen = [one.domain + 1 for one in brought.domains]
    if len(set(seen)) < len(seen) or not own.issuperset(seen):
        raise CallFailed("InvalidChain")
    receipts: dict[int, dict[str, Any]] = {}
    entries: dict[int, Frame] = {}
    try:
        for position, one in zip(seen, brought.domains, strict=True):
            if one.receipt:
                receipt = ExecutionReceipt.decode(
                    read_value(root, one.receipt, receipt_storage_key(one.domain), strict=True)[0]
                )
                receipts[position] = {
                    "chain": CONSENSUS_POSITION,
                    "domain": position,
                    "block": brought.block,
                    "number": receipt.domain_block_number,
                    "domain_proof": encode_lists([one.receipt])[0].as_py(),
                }
            if one.declared:
                entries[position] = decode_declared(
                    position, read_entry(root, one.declared, declared_key(position), strict=True)
                )
    except (ProofError, InvalidInput):
        raise CallFailed("BadProof") from None
    return receipts, entries


def provable_row(blocks: Frame, options: XdmOptions) -> int | None:
    """Return the row of the newest block whose leaf the newest final one has, None as long as there is none."""
    if len(blocks) == 0:
        return None
    found = anchor_number(blocks, int(blocks["number"][-1]), options.archiving_depth)
    return None if found is None else found[1]


def _proved_under(state: State, context: Context) -> State:
    """Return the state with the blocks that domains' receipts are of under the newest blocks; without receipts whose
    block is not remembered any more."""
    anchored, blocks = state["anchored"], state["blocks"]
    if len(anchored) == 0:
        return state.with_tables(anchor=state["anchor"].slice(0, 0)) if len(state["anchor"]) else state
    found = provable_row(blocks, context.options)
    row = lookup_rows(blocks, Frame({"number": anchored["block"]}, len(anchored)), ["number"])
    there = row >= 0 if found is not None else np.zeros(len(row), dtype=bool)
    ranges, final = ConsensusRanges.of(state), 0 if found is None else found + 1
    anchors = [anchor_rows(ranges, at, len(blocks) - 1, final) for at in np.unique(row[there]).tolist()]
    anchor = concat([empty_frame(ANCHOR_SCHEMA), *anchors])
    return state.with_tables(anchor=anchor, anchored=anchored.filter(there))
