"""What a block commits to: storage and its roots, headers, the consensus chain's block, and under what is proved from
then on (XDM reference 2.4, X-5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.substrate import EMPTY_ROOT, ordered_root, prove_storage
from causeway.proofs.xdm import receipt_storage_key
from causeway.protocols.contract import View
from causeway.protocols.digests import digests
from causeway.protocols.tabled_state import KeptTries
from causeway.protocols.xdm.chain_tries import ChainTries
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus import Ranges, anchor_number, with_blocks
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.headers import block_hash
from causeway.protocols.xdm.lane_tables import MESSAGES, LaneTable
from causeway.protocols.xdm.proof_lists import encode_lists
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.storage import changes
from causeway.protocols.xdm.tables import ANCHOR_SCHEMA, ANCHORED_SCHEMA, BLOCKS_SCHEMA, HISTORY_SCHEMA, TIPS_SCHEMA


@dataclass(frozen=True)
class Made:
    """A block that was made: the state after it, its ``headers`` (``HEADERS_SCHEMA``), and what it changed in the
    ``storage`` (``STORAGE_SCHEMA``)."""

    state: State
    headers: Frame
    storage: Frame


def commit_block(
    before: State | None,
    state: State,
    tries: ChainTries,
    taken: Mapping[str, Frame],
    view: View | None,
    context: Context,
) -> Made:
    """Return the block of the chains of ``context``.

    ``before``: the state of the block before, None at genesis; ``tries``: of that one, changed on the spot. ``taken``:
    by log table what the block took in.
    """
    chains = context.chains
    storage = changes(before, state, context, tries.sections)
    state = state.with_tables(**{name: LaneTable.of(state[name]).settled() for name in MESSAGES})
    tries.change(storage)
    roots = tries.roots(chains)
    number = context.number
    if before is None:
        parents = [bytes(DIGEST_BYTES)] * len(chains)
    else:
        known = dict(zip(before["tips"]["chain"].tolist(), before["tips"]["hash"], strict=True))
        parents = [known[chain].tobytes() for chain in chains.tolist()]
    # The root of what each chain's block has taken in: the receipts on the consensus chain.
    extrinsics = [EMPTY_ROOT] * len(chains)
    extrinsics_taken = taken.get("receipts")
    if extrinsics_taken is not None and len(extrinsics_taken) and len(chains) and int(chains[0]) == CONSENSUS_POSITION:
        extrinsics[0] = ordered_root(extrinsics_taken["receipt"].to_pylist())
    own = [
        block_hash(parent, number, root.tobytes(), extrinsic)
        for parent, root, extrinsic in zip(parents, roots, extrinsics, strict=True)
    ]
    best, best_hash = _consensus_tip(view)
    count = len(chains)
    tips = Frame(
        {
            "chain": chains,
            "number": np.full(count, number, dtype=np.uint64),
            "hash": digests(own),
            "root": roots,
            "extrinsics_root": digests(extrinsics),
            "consensus_number": np.full(count, best, dtype=np.uint64),
            "consensus_hash": digests([best_hash] * count),
        },
        count,
    )
    state = state.with_tables(tips=tips.select(TIPS_SCHEMA.names))
    if context.has_consensus:
        ranges = None if before is None else Ranges.of(before)
        # The state with the block that is made now; blocks that nothing is proved under any more go.
        root = roots[0].tobytes()
        leaf_count = 0 if ranges is None else ranges.window.leaf_count
        mmr_root = bytes(DIGEST_BYTES) if ranges is None else ranges.window.root()
        number = context.number
        row = Frame(
            {
                "chain": np.zeros(1, dtype=np.uint32),
                "number": np.array([number], dtype=np.uint64),
                "hash": digests([block_hash(parents[0], number, root, extrinsics[0])]),
                "state_root": digests([root]),
                "extrinsics_root": digests([extrinsics[0]]),
                "leaf_count": np.array([leaf_count], dtype=np.uint64),
                "mmr_root": digests([mmr_root]),
                "height": np.array([context.height], dtype=np.uint64),
            },
            1,
        )
        if ranges is None:
            state = state.with_tables(blocks=row)
        else:
            blocks = concat([state["blocks"], row]).select(BLOCKS_SCHEMA.names)
            state = with_blocks(state, blocks, ranges.window, context.options)
        state = _anchored(state, tries, context)
    # The blocks of which the storage changes, or the receipts, are still wanted, and this one.
    history = state["history"]
    history_count = len(context.chains)
    added = Frame(
        {
            "chain": context.chains,
            "number": np.full(history_count, context.number, dtype=np.uint64),
            "height": np.full(history_count, context.height, dtype=np.uint64),
        },
        history_count,
    )
    least = np.zeros(len(context.network.names), dtype=np.int64)
    for chain in context.chains.tolist():
        least[chain] = tries.number[chain]
    if context.has_consensus:
        least[CONSENSUS_POSITION] = min(least[CONSENSUS_POSITION], int(state["range"]["confirmed_to"][0]) + 1)
    kept = history.filter(history["number"].astype(np.int64) >= least[history["chain"]])
    at = np.searchsorted(kept["chain"], context.chains, side="right")
    state = state.with_tables(
        history=Frame(
            {name: np.insert(kept[name], at, added[name]) for name in HISTORY_SCHEMA.names}, len(kept) + history_count
        )
    )
    # What certifies the blocks of chains to lakes that follow them.
    names = [context.network.names[chain] for chain in chains.tolist()]
    headers = Frame(
        {
            "chain": chains,
            "number": np.full(count, number, dtype=np.uint64),
            "hash": pa.array(own, pa.binary()),
            "parent": pa.array(parents, pa.binary()),
            "root": roots,
            "certification": pa.array(
                [context.signers.block(*row) for row in zip(names, own, extrinsics, strict=True)], pa.binary()
            ),
        },
        count,
    )
    tries.keep(chains, number)
    tries.height = context.height
    return Made(replace(state, kept=KeptTries(tries)), headers, storage)


def _anchored(state: State, tries: ChainTries, context: Context) -> State:
    """Return the state with what operators prove under from the next block on (X-5)."""
    found = anchor_number(state["blocks"], context.number, context.options.archiving_depth)
    if found is None:
        return state
    final, at = found
    ranges = Ranges.of(state)
    anchor = anchor_of(ranges, at, len(ranges.blocks) - 1, final)
    domains = list(range(1, len(context.network.names)))
    keys = [receipt_storage_key(domain - 1) for domain in domains]
    trie = tries.provable[CONSENSUS_POSITION]
    held = tries.tries.get(np.full(len(keys), trie, dtype=np.int64), keys)
    there = [domain for domain, value in zip(domains, held.is_valid().to_pylist(), strict=True) if value]
    shown = [keys[domain - 1] for domain in there]
    proofs = prove_storage(tries.tries, np.full(len(shown), trie, dtype=np.int64), shown)
    numbers = [int.from_bytes(held[domain - 1].as_py()[1:5], "little") for domain in there]
    anchored = Frame(
        {
            "chain": np.zeros(len(there), dtype=np.uint32),
            "domain": np.array(there, dtype=np.uint32),
            "block": np.repeat(anchor["number"], len(there)),
            "number": np.array(numbers, dtype=np.uint64),
            "domain_proof": encode_lists([proofs.nodes_of(row) for row in range(len(there))]).cast(pa.binary()),
        },
        len(there),
    )
    return state.with_tables(anchor=anchor, anchored=anchored.select(ANCHORED_SCHEMA.names))


def anchor_of(ranges: Ranges, at: int, best: int, final: int) -> Frame:
    """Return what operators prove under (``ANCHOR_SCHEMA``), from rows of blocks: the one whose leaf they show, the
    newest, and the newest that is final."""
    blocks = ranges.blocks
    leaf_index = int(blocks["leaf_count"][at])
    final_leaves, best_leaves = int(blocks["leaf_count"][final]), int(blocks["leaf_count"][best])
    return Frame(
        {
            "chain": np.zeros(1, dtype=np.uint32),
            "number": blocks["number"][at : at + 1],
            "best": blocks["number"][best : best + 1],
            "final": blocks["number"][final : final + 1],
            "block_hash": blocks["hash"][final : final + 1],
            "leaf": pa.array([ranges.leaves[at].as_py()], pa.binary()),
            "leaf_index": np.array([leaf_index], dtype=np.uint64),
            "best_hash": blocks["hash"][best : best + 1],
            "best_leaves": np.array([best_leaves], dtype=np.uint64),
            "best_items": pa.array([b"".join(ranges.window.prove(leaf_index, best_leaves).items)], pa.binary()),
            "final_leaves": np.array([final_leaves], dtype=np.uint64),
            "final_items": pa.array([b"".join(ranges.window.prove(leaf_index, final_leaves).items)], pa.binary()),
        },
        1,
    ).select(ANCHOR_SCHEMA.names)


def _consensus_tip(view: View | None) -> tuple[int, bytes]:
    if view is None:
        return 0, bytes(DIGEST_BYTES)
    blocks = view.tables["blocks"]
    if len(blocks) == 0:
        return 0, bytes(DIGEST_BYTES)
    return int(blocks["number"][-1]), blocks["hash"][-1].tobytes()
