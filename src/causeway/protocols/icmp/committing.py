"""What blocks commit to: roots, hashes and headers of relay blocks and of parachains' blocks (ICMP reference 2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.joins import lookup
from causeway.model.order import stable_order
from causeway.proofs.hashing import blake2_256
from causeway.proofs.substrate import ordered_root
from causeway.proofs.substrate.parachains import block_hash, encode_watermark, relay_rest
from causeway.protocols.contract import HEADERS_SCHEMA, Chains
from causeway.protocols.digests import digests
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.leaves import Leaf, with_ancestor
from causeway.protocols.icmp.runtime import posted_in
from causeway.protocols.icmp.state import State
from causeway.protocols.icmp.storage import LeafTries, para_roots, relay_changes
from causeway.protocols.icmp.tables import (
    CANDIDATES_SCHEMA,
    EGRESS_SCHEMA,
    STATE_TABLES,
    TIPS_SCHEMA,
)


def genesis_hash(name: str) -> bytes:
    """Return the hash of block 0 of a chain, which commits to no state: all know it by the chain's name."""
    return blake2_256(b"genesis of " + name.encode())


def commit_relay(
    before: Leaf, after: Leaf, place: int, tries: LeafTries, heads: list[bytes], tick: int
) -> tuple[Leaf, Frame]:
    """Return a leaf after a block, and the header of the block.

    ``before``, ``after``: what the block changed; ``place``: the leaf's place among the leaves; ``heads``: the
    heads that the block included.
    """
    number = before.number + 1
    tries.change(place, relay_changes(before, after))
    root = tries.roots()[place].tobytes()
    leaf = before.blocks["leaf"]
    own = block_hash(before.hash, number, root, relay_rest(ordered_root(heads), int(leaf[0])))
    blocks = Frame(
        {
            "chain": np.array([RELAY_POSITION], dtype=np.uint32),
            "leaf": leaf,
            "number": np.array([number], dtype=np.uint64),
            "hash": digests([own]),
            "parent": digests([before.hash]),
            "next_tick": np.array([tick + 1], dtype=np.uint64),
        },
        1,
    )
    after = replace(posted_in(with_ancestor(after), number, own), blocks=blocks)
    return after, headers(blocks, digests([root]))


def headers(blocks: Frame, roots: np.ndarray) -> Frame:
    """Return the headers of blocks (``chain``, ``number``, ``hash``, ``parent``) with these roots."""
    count = len(blocks)
    columns = {
        "chain": blocks["chain"],
        "number": blocks["number"],
        "hash": pa.array([row.tobytes() for row in blocks["hash"]], pa.binary()),
        "parent": pa.array([row.tobytes() for row in blocks["parent"]], pa.binary()),
        "root": roots,
        "certification": pa.array([b""] * count, pa.binary()),
    }
    return Frame(columns, count).select(HEADERS_SCHEMA.names)


def genesis_headers(names: Sequence[str], chains: Chains, roots: np.ndarray) -> Frame:
    """Return the headers of block 0 of ``chains``, which has no parent; ``names``: of all chains."""
    hashes = [genesis_hash(names[chain]) for chain in chains.tolist()]
    columns = {
        "chain": chains,
        "number": np.zeros(len(chains), dtype=np.uint64),
        "hash": pa.array(hashes, pa.binary()),
        "parent": pa.array([b""] * len(chains), pa.binary()),
        "root": roots,
        "certification": pa.array([b""] * len(chains), pa.binary()),
    }
    return Frame(columns, len(chains))


def commit_paras(
    state: State, bases: Frame, entries: Frame, hosts: dict[str, np.ndarray], height: int
) -> tuple[State, Frame]:
    """Return the state after blocks of parachains (all of ``bases`` made one), with their receipts, and the headers.

    ``bases``: what they are built on (``following.bases``); ``entries``: what they consumed, by (to, number, source).
    """
    chains = bases["chain"]
    tips = state["tips"]
    at = lookup(tips, Frame({"chain": chains}, len(chains)), ("chain",))
    roots = para_roots(state, chains, hosts)
    runs = state["runs"]
    number = tips["number"][at] + np.uint64(1)
    watermark, marked = watermarks(bases, entries)
    at_run = lookup(Frame({"source": chains}, len(chains)), runs, ("source",))
    fresh = (at_run >= 0) & (runs["source"] != runs["destination"])
    fresh[fresh] = runs["number"][fresh] == number[at_run[fresh]]
    posted = runs.filter(fresh)
    count = len(posted)
    egress = Frame(
        {
            "source": posted["source"],
            "destination": np.full(count, RELAY_POSITION, dtype=np.uint32),
            "place": posted["destination"],
            "to": posted["destination"],
            "root": posted["root"],
        },
        count,
    )
    heads, parents = [], []
    starts, stops = posted["source"].searchsorted(chains), posted["source"].searchsorted(chains, side="right")
    for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        parent = tips["head"][at[row]].tobytes()
        pairs = zip(posted["destination"][start:stop].tolist(), posted["root"][start:stop], strict=True)
        rest = b"".join([para.to_bytes(4, "little") + root.tobytes() for para, root in pairs])
        rest += encode_watermark(int(watermark[row]), marked[row].tobytes()) + bases["relay_hash"][row].tobytes()
        heads.append(block_hash(parent, int(number[row]), roots[row].tobytes(), rest))
        parents.append(parent)
    made = Frame(
        {
            "chain": chains,
            "source": chains,
            "destination": np.full(len(chains), RELAY_POSITION, dtype=np.uint32),
            "number": number,
            "parent": digests(parents),
            "head": digests(heads),
            "hash": digests(heads),
            "height": np.full(len(chains), height, dtype=np.uint64),
            "relay_number": bases["relay_number"],
            "relay_hash": bases["relay_hash"],
            "watermark": watermark,
            "watermark_hash": marked,
        },
        len(chains),
    )
    tables = {
        "tips": _replaced(state, "tips", "chain", chains, made.select(TIPS_SCHEMA.names)),
        "candidates": _replaced(state, "candidates", "source", chains, made.select(CANDIDATES_SCHEMA.names)),
        "egress": _replaced(state, "egress", "source", chains, egress.select(EGRESS_SCHEMA.names)),
    }
    return state.with_tables(**tables), headers(made, roots)


def watermarks(bases: Frame, entries: Frame) -> tuple[np.ndarray, np.ndarray]:
    """Return the watermark of each chain after what it consumed, and that block's hash: the block of the last entry,
    the old one if there is none (3.4)."""
    watermark, marked = bases["watermark"].copy(), bases["watermark_hash"].copy()
    if len(entries):
        stops = entries["to"].searchsorted(bases["chain"], side="right")
        starts = entries["to"].searchsorted(bases["chain"])
        rows = np.flatnonzero(stops > starts)
        last = stops[rows] - 1
        watermark[rows], marked[rows] = entries["number"][last], entries["hash"][last]
    return watermark, marked


def _replaced(state: State, name: str, owner: str, chains: Chains, rows: Frame) -> Frame:
    """Return a table with the rows of some chains replaced."""
    kept = state[name].filter(~np.isin(state[name][owner], chains))
    joined = concat([kept, rows]) if len(kept) or len(rows) else empty_frame(STATE_TABLES[name].schema)
    return joined.take(stable_order(*(joined[key] for key in STATE_TABLES[name].order)))
