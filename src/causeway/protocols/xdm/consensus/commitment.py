"""Block commitments: storage roots, headers, consensus blocks, and the anchor of proofs.

Operators prove under the storage of final blocks. The trie of a provable block was retained with the block. Otherwise
an earlier trie advances by the log of storage changes. Without one, the trie is rebuilt from the tables of that height,
or from those of an earlier height and the log.

Reference: XDM, section 2.4; X-4, X-5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.substrate import EMPTY_ROOT, ordered_root, prove_storage
from causeway_proofs.xdm import receipt_storage_key

from causeway.core.frame import Frame, concat, empty_frame
from causeway.protocols.contract import AnyKernel, Chains, Inputs, View
from causeway.protocols.shared.digests import digests
from causeway.protocols.shared.state_tables import TrieCache, blank_rows, select_chains
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus.chain import (
    ConsensusRanges,
    anchor_number,
    height_of,
    heights_frame,
    is_recorded,
    retain_blocks,
    spans_between,
)
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.lane_tables import MESSAGES, LaneTable
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.storage import NOWHERE, STORAGE_SCHEMA, ChainTries, chain_tries, storage_changes
from causeway.protocols.xdm.tables import ANCHOR_SCHEMA, ANCHORED_SCHEMA, BLOCKS_SCHEMA, HISTORY_SCHEMA, TIPS_SCHEMA
from causeway.protocols.xdm.transactions import block_hash, encode_lists


@dataclass(frozen=True)
class CommittedBlock:
    """A committed block.

    Attributes:
        state: State after the block.
        headers: ``HEADERS_SCHEMA``.
        storage: Storage changes (``STORAGE_SCHEMA``).
    """

    state: State
    headers: Frame
    storage: Frame


def commit_block(
    before: State | None,
    state: State,
    tries: ChainTries,
    inputs: Mapping[str, Frame],
    view: View | None,
    context: Context,
) -> CommittedBlock:
    """Commit a block of the chains of ``context``.

    Args:
        before: State before the block, or None at genesis.
        state: State after the block's messages.
        tries: Storage before the block, changed in place.
        inputs: Log tables with the block's inputs.
        view: Tables that chains published at the previous height, or None at genesis.
        context: Context of the block.
    """
    chains = context.chains
    storage = storage_changes(before, state, context, tries.sections)
    state = state.with_tables(**{name: LaneTable.of(state[name]).settled() for name in MESSAGES})
    tries.change(storage)
    roots = tries.roots(chains)
    number = context.number
    if before is None:
        parents = [bytes(DIGEST_BYTES)] * len(chains)
    else:
        known = dict(zip(before["tips"]["chain"].tolist(), before["tips"]["hash"], strict=True))
        parents = [known[chain].tobytes() for chain in chains.tolist()]
    # The extrinsics of the consensus chain are the receipts; other chains have the empty root.
    extrinsics = [EMPTY_ROOT] * len(chains)
    extrinsics_taken = inputs.get("receipts")
    if extrinsics_taken is not None and len(extrinsics_taken) and context.has_consensus:
        extrinsics[0] = ordered_root(extrinsics_taken["receipt"].to_pylist())
    block_hashes = [
        block_hash(parent, number, root.tobytes(), extrinsic)
        for parent, root, extrinsic in zip(parents, roots, extrinsics, strict=True)
    ]
    known_blocks = state["blocks"].slice(0, 0) if view is None else view.tables["blocks"]
    best, best_hash = 0, bytes(DIGEST_BYTES)
    if len(known_blocks):
        best, best_hash = int(known_blocks["number"][-1]), known_blocks["hash"][-1].tobytes()
    count = len(chains)
    tips = blank_rows(
        TIPS_SCHEMA,
        count,
        chain=chains,
        number=number,
        hash=digests(block_hashes),
        root=roots,
        extrinsics_root=digests(extrinsics),
        consensus_number=best,
        consensus_hash=digests([best_hash] * count),
    )
    state = state.with_tables(tips=tips)
    if context.has_consensus:
        ranges = None if before is None else ConsensusRanges.of(before)
        root = roots[0].tobytes()
        leaf_count = 0 if ranges is None else ranges.window.leaf_count
        mmr_root = bytes(DIGEST_BYTES) if ranges is None else ranges.window.root()
        row = blank_rows(
            BLOCKS_SCHEMA,
            1,
            chain=CONSENSUS_POSITION,
            number=number,
            hash=digests(block_hashes[:1]),
            state_root=digests([root]),
            extrinsics_root=digests([extrinsics[0]]),
            leaf_count=leaf_count,
            mmr_root=digests([mmr_root]),
            height=context.height,
        )
        if ranges is None:
            state = state.with_tables(blocks=row)
        else:
            blocks = concat([state["blocks"], row]).select(BLOCKS_SCHEMA.names)
            state = retain_blocks(state, blocks, ranges.window, context.options)
        state = _anchored(state, tries, context)
    # Retain the history of blocks with storage changes or receipts still to read.
    history = state["history"]
    least = np.zeros(len(context.network.names), dtype=np.int64)
    for chain in chains.tolist():
        least[chain] = tries.number[chain]
    if context.has_consensus:
        least[CONSENSUS_POSITION] = min(least[CONSENSUS_POSITION], int(state["range"]["confirmed_to"][0]) + 1)
    retained = history.filter(history["number"].astype(np.int64) >= least[history["chain"]])
    at = np.searchsorted(retained["chain"], chains, side="right")
    added: dict[str, Any] = {"chain": chains, "number": np.uint64(number), "height": np.uint64(context.height)}
    columns = {name: np.insert(retained[name], at, added[name]) for name in HISTORY_SCHEMA.names}
    state = state.with_tables(history=Frame(columns, len(retained) + count))
    certifications = [b""] * count
    if context.signers.needed:
        names = [context.network.names[chain] for chain in chains.tolist()]
        certifications = [context.signers.block(*row) for row in zip(names, block_hashes, extrinsics, strict=True)]
    headers = Frame(
        {
            "chain": chains,
            "number": np.full(count, number, dtype=np.uint64),
            "hash": pa.array(block_hashes, pa.binary()),
            "parent": pa.array(parents, pa.binary()),
            "root": roots,
            "certification": pa.array(certifications, pa.binary()),
        },
        count,
    )
    tries.keep(chains, number)
    tries.height = context.height
    return CommittedBlock(replace(state, kept=TrieCache(tries)), headers, storage)


def _anchored(state: State, tries: ChainTries, context: Context) -> State:
    """Return the state with the anchor of proofs from the next block on (X-5)."""
    found = anchor_number(state["blocks"], context.number, context.options.archiving_depth)
    if found is None:
        return state
    final, at = found
    ranges = ConsensusRanges.of(state)
    anchor = anchor_rows(ranges, at, len(ranges.blocks) - 1, final)
    domains = list(range(1, len(context.network.names)))
    keys = [receipt_storage_key(domain - 1) for domain in domains]
    trie = tries.provable[CONSENSUS_POSITION]
    receipts = tries.tries.get(np.full(len(keys), trie, dtype=np.int64), keys)
    confirmed = [domain for domain, value in zip(domains, receipts.is_valid().to_pylist(), strict=True) if value]
    proof_keys = [keys[domain - 1] for domain in confirmed]
    proofs = prove_storage(tries.tries, np.full(len(proof_keys), trie, dtype=np.int64), proof_keys)
    numbers = [int.from_bytes(receipts[domain - 1].as_py()[1:5], "little") for domain in confirmed]
    anchored = blank_rows(
        ANCHORED_SCHEMA,
        len(confirmed),
        chain=CONSENSUS_POSITION,
        domain=np.array(confirmed, dtype=np.uint32),
        block=np.repeat(anchor["number"], len(confirmed)),
        number=np.array(numbers, dtype=np.uint64),
        domain_proof=encode_lists([proofs.nodes_of(row) for row in range(len(confirmed))]).cast(pa.binary()),
    )
    return state.with_tables(anchor=anchor, anchored=anchored)


def anchor_rows(ranges: ConsensusRanges, at: int, best: int, final: int) -> Frame:
    """Return the anchor of proofs (``ANCHOR_SCHEMA``).

    Args:
        ranges: Blocks and mountain range of the consensus chain.
        at: Row of the block with the proved leaf.
        best: Row of the latest block.
        final: Row of the latest final block.
    """
    blocks = ranges.blocks
    leaf_index = int(blocks["leaf_count"][at])
    final_leaves, best_leaves = int(blocks["leaf_count"][final]), int(blocks["leaf_count"][best])
    return blank_rows(
        ANCHOR_SCHEMA,
        1,
        chain=CONSENSUS_POSITION,
        number=blocks["number"][at : at + 1],
        best=blocks["number"][best : best + 1],
        final=blocks["number"][final : final + 1],
        block_hash=blocks["hash"][final : final + 1],
        leaf=pa.array([ranges.leaves[at].as_py()], pa.binary()),
        leaf_index=leaf_index,
        best_hash=blocks["hash"][best : best + 1],
        best_leaves=best_leaves,
        best_items=pa.array([b"".join(ranges.window.prove(leaf_index, best_leaves).items)], pa.binary()),
        final_leaves=final_leaves,
        final_items=pa.array([b"".join(ranges.window.prove(leaf_index, final_leaves).items)], pa.binary()),
    )


@dataclass(frozen=True)
class ProvableBlocks:
    """The blocks that operators prove under in a block.

    Attributes:
        numbers: Provable block of each chain.
        following: Consensus block of the next anchor; its storage has the receipts for that anchor. Proofs of the
            consensus chain itself use the previous anchor.
        rebuilt: Height of the provable block, for chains with a trie to rebuild. An earlier state with the log since
            then also serves.
    """

    numbers: Mapping[int, int]
    following: int | None
    rebuilt: Mapping[int, int]


NOTHING = ProvableBlocks({}, None, {})


def find_provable_blocks(
    state: State, chains: Chains, view: View, context: Context, *, forks: bool
) -> tuple[ProvableBlocks, dict[str, Frame]]:
    """Return the blocks that operators of ``chains`` prove under.

    Args:
        state: State before the block.
        chains: Positions of the chains, ascending.
        view: Tables that chains published at the previous height.
        context: Context of the block.
        forks: The log may contain abandoned heights.

    Returns:
        The blocks, and by log table the ranges of heights that advance the tries.
    """
    tries = chain_tries(state, context)
    if not context.has_consensus:
        following = None
    else:
        found = anchor_number(state["blocks"], context.number, context.options.archiving_depth)
        following = None if found is None else int(state["blocks"]["number"][found[1]])
    anchor, anchored = view.tables["anchor"], view.tables["anchored"]
    confirmed = dict(zip(anchored["domain"].tolist(), anchored["number"].tolist(), strict=True))
    if len(anchor):
        confirmed[CONSENSUS_POSITION] = int(anchor["number"][0])
    numbers: dict[int, int] = {}
    rebuilt: dict[int, int] = {}
    spans: list[tuple[int, int, int]] = []
    for chain in chains.tolist():
        number = confirmed.get(chain) if len(anchor) else None
        next_anchor = following if chain == CONSENSUS_POSITION else None
        first = next_anchor if number is None else number
        if first is None:
            continue
        known = -1 if tries is None else tries.number[chain]
        if context.network.follows and (first < known or not is_recorded(state, chain, first)):
            continue  # the other lake's consensus chain names an unknown block of this one
        if tries is None or tries.nearest(chain, first) < 0:
            rebuilt[chain] = height_of(state, chain, first)
            known = first
        numbers[chain] = first
        last = first if next_anchor is None else next_anchor
        known = known if tries is None else max(known, tries.nearest(chain, last))
        if last > known:
            spans += spans_between(state, chain, known, last, forks=forks)
    return ProvableBlocks(numbers, following, rebuilt), {"storage": heights_frame(spans)} if spans else {}


def advance_tries(
    kernel: AnyKernel, state: State, provable: ProvableBlocks, inputs: Inputs[State], context: Context
) -> ChainTries:
    """Return the tries of a block's chains, with the provable ones advanced.

    Args:
        kernel: The kernel, for the tables of chains with a trie to rebuild.
        state: State before the block.
        provable: Blocks to prove under.
        inputs: States and rows that ``find_provable_blocks`` requested.
        context: Context of the block.
    """
    tries = chain_tries(state, context)
    if tries is None:
        tries = ChainTries.of(context.chains)
        tries.change(storage_changes(None, state, context))
    tries.height = NOWHERE
    for chain, number in provable.numbers.items():
        tries.show(chain, number)
    for chain, height in provable.rebuilt.items():
        then, alone = inputs.nearest["storage"][height], np.array([chain], dtype=np.uint32)
        state_then = select_chains(kernel, then.state, alone, 0)
        tries.move(storage_changes(None, state_then, replace(context, chains=alone)), {})
        tries.move(then.rows.filter(then.rows["chain"] == chain), {})
    if "storage" in inputs.rows:
        rows = inputs.rows["storage"]
        tries.move(rows.filter(rows["chain"] != CONSENSUS_POSITION), {})
    tries.number |= provable.numbers
    return tries


def move_anchor(tries: ChainTries, provable: ProvableBlocks, logged: Mapping[str, Frame]) -> None:
    """Advance the provable storage of the consensus chain to the next anchor."""
    if provable.following is None:
        return
    tries.show(CONSENSUS_POSITION, provable.following)
    rows = logged.get("storage", empty_frame(STORAGE_SCHEMA))
    tries.move(rows.filter(rows["chain"] == CONSENSUS_POSITION), {CONSENSUS_POSITION: provable.following})
