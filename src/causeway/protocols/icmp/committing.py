"""What blocks commit to: roots, hashes and headers of relay blocks and of parachains' blocks (ICMP reference 2.2)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.joins import lookup
from causeway.model.order import stable_order
from causeway.proofs.hashing import blake2_256
from causeway.proofs.substrate import Tries, encode_compact, ordered_root
from causeway.proofs.substrate.parachains import encode_watermark
from causeway.protocols.contract import HEADERS_SCHEMA, Chains
from causeway.protocols.digests import digests
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.context import Context
from causeway.protocols.icmp.runtime import posted_in
from causeway.protocols.icmp.state import State
from causeway.protocols.icmp.storage import changed_trie, para_roots, relay_changes
from causeway.protocols.icmp.tables import (
    ANCESTRY_SCHEMA,
    BLOCKS_SCHEMA,
    CANDIDATES_SCHEMA,
    EGRESS_SCHEMA,
    STATE_TABLES,
    TIPS_SCHEMA,
)
from causeway.protocols.tabled_state import KeptTries

MOST_ANCESTORS = 4_096
"""A watermark may be moved to one of so many last relay blocks, and to any that posted queues for its parachain."""


def genesis_hash(name: str) -> bytes:
    """Return the hash of block 0 of a chain, which commits to no state: all know it by the chain's name."""
    return blake2_256(b"genesis of " + name.encode())


def block_hash(parent: bytes, number: int, root: bytes, rest: bytes) -> bytes:
    """Return the hash of a block: of its header in SCALE, parent, number, the root of its state, and ``rest``."""
    return blake2_256(parent + encode_compact(number) + root + rest)


def relay_trie(before: State | None, after: State) -> Tries:
    """Return the relay chain's trie after a block, which changes the one before on the spot."""
    tries = None if before is None else before.kept.tries
    assert tries is None or isinstance(tries, Tries)
    return changed_trie(tries, relay_changes(None if tries is None else before, after))


def commit_relay(before: State, after: State, number: int, receipts: Frame, context: Context) -> tuple[State, Frame]:
    """Return the state after the relay block ``number``, and its header; ``receipts``: the heads it included."""
    tries = relay_trie(before, after)
    root = tries.roots(np.zeros(1, dtype=np.int64))[0].tobytes()
    parent = before["blocks"]["hash"][-1].tobytes()
    heads = [head.tobytes() for head in receipts["head"]]
    own = block_hash(parent, number, root, ordered_root(heads))
    after = posted_in(after, number, own)
    blocks = Frame(
        {
            "chain": np.array([RELAY_POSITION], dtype=np.uint32),
            "number": np.array([number], dtype=np.uint64),
            "hash": digests([own]),
            "parent": digests([parent]),
        },
        1,
    )
    last = before["blocks"].select(ANCESTRY_SCHEMA.names)
    ancestry = concat([before["ancestry"], last])
    ancestry = ancestry.slice(max(0, len(ancestry) - MOST_ANCESTORS), len(ancestry))
    after = after.with_tables(blocks=blocks.select(BLOCKS_SCHEMA.names), ancestry=ancestry)
    return State(after.tables, after.programs, KeptTries(tries)), _headers(blocks, digests([root]))


def _headers(blocks: Frame, roots: np.ndarray) -> Frame:
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


def commit_paras(state: State, chains: Chains, entries: Frame, hosts: dict[str, np.ndarray]) -> tuple[State, Frame]:
    """Return the state after blocks of parachains (all of ``chains`` made one), with their receipts, and the headers.

    ``entries``: what they consumed, by (destination, number, source).
    """
    tips = state["tips"]
    at = lookup(tips, Frame({"chain": chains}, len(chains)), ("chain",))
    roots = para_roots(state, chains, hosts)
    runs = state["runs"]
    number = tips["number"][at] + np.uint64(1)
    watermark, marked = _watermarks(tips.take(at), entries, chains)
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
        rest += encode_watermark(int(watermark[row]), marked[row].tobytes())
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
    return state.with_tables(**tables), _headers(made, roots)


def _watermarks(tips: Frame, entries: Frame, chains: Chains) -> tuple[np.ndarray, np.ndarray]:
    """Return the watermark of each chain after what it consumed, and that block's hash: the block of the last entry,
    the old one if there is none (3.4)."""
    watermark, marked = tips["watermark"].copy(), tips["watermark_hash"].copy()
    if len(entries):
        stops = entries["destination"].searchsorted(chains, side="right")
        starts = entries["destination"].searchsorted(chains)
        rows = np.flatnonzero(stops > starts)
        last = stops[rows] - 1
        watermark[rows], marked[rows] = entries["number"][last], entries["hash"][last]
    return watermark, marked


def _replaced(state: State, name: str, owner: str, chains: Chains, rows: Frame) -> Frame:
    """Return a table with the rows of some chains replaced."""
    kept = state[name].filter(~np.isin(state[name][owner], chains))
    joined = concat([kept, rows]) if len(kept) or len(rows) else empty_frame(STATE_TABLES[name].schema)
    return joined.take(stable_order(*(joined[key] for key in STATE_TABLES[name].order)))
