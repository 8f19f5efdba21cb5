"""A followed consensus chain: the local copy of another lake's consensus chain.

A lake with domains only follows the consensus chain. It trusts headers signed by the author in one chain of parents
from block 0. It computes the leaves and roots of the mountain range from these headers. Confirmed receipts and declared
value come from storage proofs under the state root of a final block. The results are in the tables of the consensus
chain itself: ``blocks``, ``anchor``, ``anchored``, ``declared``. All consumers of these tables therefore work as with a
local consensus chain.

The receipts of local domains are also created here, each with the hash of its predecessor. Relay processes deliver them
to the consensus chain.

Reference: XDM, sections 2.4 and 3.10; X-4, X-5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.order import stable_order
from causeway_proofs.substrate.proof import read_entry, read_value
from causeway_proofs.xdm.envelope import ExecutionReceipt, receipt_storage_key

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import NO_CHAIN
from causeway.protocols.contract import View
from causeway.protocols.shared.digests import digests, list_digests
from causeway.protocols.shared.state_tables import blank_rows
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus.chain import (
    ConsensusRanges,
    anchor_number,
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
"""Event names of accepted headers and of confirmed receipts."""


@dataclass(frozen=True)
class FollowedConsensus:
    """The local copy of the consensus chain after a round.

    Attributes:
        state: Its tables.
        receipts: New receipts of local domains (``TAKEN_SCHEMA``).
        notices: Events.
        moved: More is provable than before.
    """

    state: State
    receipts: Frame
    notices: list[ChainEvent]
    moved: bool


def genesis_following(state: State) -> State:
    """Return the state of a followed consensus chain before the first header."""
    return state.with_tables(range=genesis_range())


def follow(state: State, delivered: Iterable[Transaction], view: View, context: Context) -> FollowedConsensus:
    """Apply deliveries to the local copy of the consensus chain.

    Args:
        state: Tables of the consensus chain.
        delivered: Delivered headers and confirmed receipts, in order.
        view: Tables that chains published at the previous height.
        context: Context of the local chains.
    """
    accepted, known = receipts(view, state, {}, context.operators)
    state = state.with_tables(receipted=known)
    before, notices = state, list[ChainEvent]()
    for transaction in delivered:
        try:
            state, notice = _apply(state, transaction, context)
            notices.append(notice)
        except CallFailed as refused:
            notices.append(ChainEvent(CONSENSUS_POSITION, NO_CHAIN, refused.name, refused=True))
    moved = state["blocks"] is not before["blocks"] or state["anchored"] is not before["anchored"]
    return FollowedConsensus(_update_anchors(state, context) if moved else state, accepted, notices, moved)


def _apply(state: State, transaction: Transaction, context: Context) -> tuple[State, ChainEvent]:
    match transaction:
        case Blocks():
            state = take_blocks(state, transaction, context)
            number = int(state["blocks"]["number"][-1])
            return state, ChainEvent(CONSENSUS_POSITION, NO_CHAIN, FOLLOWED, index=number)
        case Confirmed():
            state = take_confirmed(state, transaction, context)
            return state, ChainEvent(CONSENSUS_POSITION, NO_CHAIN, PROVED, index=transaction.block)
    raise CallFailed("InvalidCall")


def take_blocks(state: State, delivered: Blocks, context: Context) -> State:
    """Append delivered blocks; known ones are skipped.

    Args:
        state: Tables of the consensus chain.
        delivered: Signed headers.
        context: Context of the local chains.

    Raises:
        CallFailed: BadSignature, UnknownParent, NumberNotAscending, ConsensusForked (the author signed other blocks
            than the known ones), or Stale (no new block).
    """
    headers = delivered.headers
    hashes = [header.hash for header in headers]
    author = context.signers.public(context.network.names[CONSENSUS_POSITION])
    if not author.accepts(
        delivered.signature, block_signing_bytes(context.network.names[CONSENSUS_POSITION], hashes[-1])
    ):
        raise CallFailed("BadSignature")
    for position in range(1, len(headers)):
        if headers[position].parent != hashes[position - 1]:
            raise CallFailed("UnknownParent")
        if headers[position].number <= headers[position - 1].number:
            raise CallFailed("NumberNotAscending")
    known = state["blocks"]
    first = 0
    if len(known):
        best = int(known["number"][-1])
        known_hashes = dict(zip(known["number"].tolist(), list_digests(known["hash"]), strict=True))
        oldest = int(known["number"][0])
        while first < len(headers) and headers[first].number <= best:
            number = headers[first].number
            if number >= oldest and known_hashes.get(number) != hashes[first]:
                raise CallFailed("ConsensusForked")
            first += 1
        if first == len(headers):
            raise CallFailed("Stale")
        if headers[first].parent != known_hashes[best]:
            raise CallFailed("UnknownParent")
    elif headers[0].number or any(headers[0].parent):
        raise CallFailed("UnknownParent")  # block 0 has no parent
    return _append_blocks(state, headers[first:], hashes[first:], context)


def _append_blocks(state: State, headers: tuple[BlockHeader, ...], own: list[bytes], context: Context) -> State:
    """Append successors of the known blocks."""
    known, count = state["blocks"], len(headers)
    following = int(known["leaf_count"][-1]) + 1 if len(known) else 0
    leaf_count = np.arange(following, following + count, dtype=np.uint64)
    added = blank_rows(
        BLOCKS_SCHEMA,
        count,
        chain=CONSENSUS_POSITION,
        number=np.array([header.number for header in headers], dtype=np.uint64),
        hash=digests(own),
        state_root=digests([header.state_root for header in headers]),
        extrinsics_root=digests([header.extrinsics_root for header in headers]),
        leaf_count=leaf_count,
        mmr_root=np.zeros((count, 32), dtype=np.uint8),
        height=context.height,
    )
    blocks = concat([known, added]).select(BLOCKS_SCHEMA.names)
    window = ConsensusRanges.of(state.with_tables(blocks=blocks)).window
    # The leaf of a block enters in the next; the first block has a range without leaves.
    roots = digests([window.root(leaves) if leaves else bytes(32) for leaves in leaf_count.tolist()])
    blocks = blocks.with_columns(mmr_root=np.concatenate([known["mmr_root"], roots]) if len(known) else roots)
    return retain_blocks(state, blocks.select(BLOCKS_SCHEMA.names), window, context.options)


def take_confirmed(state: State, delivered: Confirmed, context: Context) -> State:
    """Accept confirmed receipts and declared value of domains under a final block.

    Operators of a domain then prove under its receipt, and its declared value covers accepted value. Each domain keeps
    the data of the latest delivered block, so a partial delivery loses nothing.

    Args:
        state: Tables of the consensus chain.
        delivered: Storage proofs under one block.
        context: Context of the local chains.

    Raises:
        CallFailed: Stale (nothing new), BlockNotFinal (or unknown), InvalidChain (not a local domain, or a duplicate),
            or BadProof.
    """
    found = provable_row(state["blocks"], context.options)
    if found is None:
        raise CallFailed("BlockNotFinal")
    blocks = state["blocks"]
    rows = np.flatnonzero(blocks["number"][: found + 1] == delivered.block)
    if not len(rows):
        raise CallFailed("BlockNotFinal")
    receipts, entries = _read_confirmed(blocks["state_root"][rows[0]].tobytes(), delivered, context)
    anchored, under = state["anchored"], state["declared_under"]
    receipt_blocks, declared_blocks = _blocks_of(anchored, "block"), _blocks_of(under, "number")
    receipts = {domain: row for domain, row in receipts.items() if receipt_blocks.get(domain, -1) < delivered.block}
    entries = {domain: rows for domain, rows in entries.items() if declared_blocks.get(domain, -1) < delivered.block}
    if not receipts and not entries:
        raise CallFailed("Stale")
    declared = state["declared"]
    others = declared.filter(~np.isin(declared["destination"], np.array(list(entries), dtype=np.uint32)))
    every = concat([others, *(entries[domain] for domain in sorted(entries))]).select(DECLARED_SCHEMA.names)
    declared_rows = [{"chain": CONSENSUS_POSITION, "domain": domain, "number": delivered.block} for domain in entries]
    updated = state.with_tables(
        anchored=replace_domain_rows(anchored, table_from_rows(list(receipts.values()), ANCHORED_SCHEMA)),
        declared=every.take(stable_order(every["destination"], every["source"])),
        declared_under=replace_domain_rows(under, table_from_rows(declared_rows, DECLARED_UNDER_SCHEMA)),
    )
    return _update_anchors(updated, context)


def _blocks_of(rows: Frame, column: str) -> dict[int, int]:
    """Return a block number a domain, by the domain's position."""
    return dict(zip(rows["domain"].tolist(), rows[column].tolist(), strict=True))


def _read_confirmed(
    root: bytes, delivered: Confirmed, context: Context
) -> tuple[dict[int, dict[str, Any]], dict[int, Frame]]:
    """Verify storage proofs of domains.

    Returns rows of ``ANCHORED_SCHEMA`` and declared value, both by position of the domain.

    Raises:
        CallFailed: InvalidChain or BadProof.
    """
    own = {int(chain) for chain in context.network.own(np.arange(len(context.network.names), dtype=np.uint32))}
    positions = [proofs.domain + 1 for proofs in delivered.domains]
    if len(set(positions)) < len(positions) or not own.issuperset(positions):
        raise CallFailed("InvalidChain")
    receipts: dict[int, dict[str, Any]] = {}
    entries: dict[int, Frame] = {}
    try:
        for position, proofs in zip(positions, delivered.domains, strict=True):
            if proofs.receipt:
                receipt = ExecutionReceipt.decode(
                    read_value(root, proofs.receipt, receipt_storage_key(proofs.domain), strict=True)[0]
                )
                receipts[position] = {
                    "chain": CONSENSUS_POSITION,
                    "domain": position,
                    "block": delivered.block,
                    "number": receipt.domain_block_number,
                    "domain_proof": encode_lists([proofs.receipt])[0].as_py(),
                }
            if proofs.declared:
                entries[position] = decode_declared(
                    position, read_entry(root, proofs.declared, declared_key(position), strict=True)
                )
    except (ProofError, InvalidInput):
        raise CallFailed("BadProof") from None
    return receipts, entries


def provable_row(blocks: Frame, options: XdmOptions) -> int | None:
    """Return the row of the latest block with a leaf in a final block's range, or None.

    Args:
        blocks: ``BLOCKS_SCHEMA``.
        options: Options of the protocol.
    """
    if len(blocks) == 0:
        return None
    found = anchor_number(blocks, int(blocks["number"][-1]), options.archiving_depth)
    return None if found is None else found[1]


def _update_anchors(state: State, context: Context) -> State:
    """Return the state with the anchors of confirmed receipts.

    Receipts of forgotten blocks are removed.
    """
    anchored, blocks = state["anchored"], state["blocks"]
    if len(anchored) == 0:
        return state.with_tables(anchor=state["anchor"].slice(0, 0)) if len(state["anchor"]) else state
    found = provable_row(blocks, context.options)
    row = lookup_rows(blocks, Frame({"number": anchored["block"]}, len(anchored)), ["number"])
    known = row >= 0 if found is not None else np.zeros(len(row), dtype=bool)
    ranges, final = ConsensusRanges.of(state), 0 if found is None else found + 1
    anchors = [anchor_rows(ranges, at, len(blocks) - 1, final) for at in np.unique(row[known]).tolist()]
    anchor = concat([empty_frame(ANCHOR_SCHEMA), *anchors])
    return state.with_tables(anchor=anchor, anchored=anchored.filter(known))
