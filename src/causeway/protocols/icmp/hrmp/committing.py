"""What blocks commit to under HRMP: roots, hashes and headers of relay blocks and of parachains' blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.order import stable_order
from causeway.proofs.hashing import Digests, blake2_256
from causeway.proofs.substrate import StateVersion, Tries, ordered_root
from causeway.proofs.substrate.parachains import block_hash
from causeway.protocols.contract import Chains
from causeway.protocols.digests import digests
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.committing import headers
from causeway.protocols.icmp.hrmp.storage import changes
from causeway.protocols.icmp.hrmp.tables import (
    ALL_TABLES,
    BLOCKS_SCHEMA,
    CANDIDATES_SCHEMA,
    TIPS_SCHEMA,
)
from causeway.protocols.icmp.state import State
from causeway.protocols.tabled_state import KeptTries


def relay_trie(before: State | None, after: State) -> Tries:
    """Return the relay chain's trie after a block, which changes the one before on the spot."""
    tries = None if before is None else before.kept.tries
    entries = changes(None if tries is None else before, after)
    if tries is None:
        tries = Tries()
        tries.open(1, StateVersion.V1)
    assert isinstance(tries, Tries)
    if entries:
        keys = sorted(entries)
        tries.update(0, keys, [entries[key] for key in keys])
    return tries


def commit_relay(before: State, after: State, heads: list[bytes], tick: int) -> tuple[State, Frame]:
    """Return the state after a relay block of a tick that included ``heads``, and its header."""
    tries = relay_trie(before, after)
    root = tries.roots(np.zeros(1, dtype=np.int64))
    number, parent = int(before["blocks"]["number"][-1]) + 1, before["blocks"]["hash"][-1].tobytes()
    own = block_hash(parent, number, root[0].tobytes(), ordered_root(heads))
    made = Frame(
        {
            "chain": np.array([RELAY_POSITION], dtype=np.uint32),
            "number": np.array([number], dtype=np.uint64),
            "hash": digests([own]),
            "parent": digests([parent]),
            "next_tick": np.array([tick + 1], dtype=np.uint64),
        },
        1,
    )
    after = after.with_tables(blocks=made.select(BLOCKS_SCHEMA.names))
    return State(after.tables, after.programs, KeptTries(tries)), headers(made, root)


def commit_paras(
    state: State,
    tips: Frame,
    roots: Digests,
    sent: Frame,
    calls: Frame,
    watermark: npt.NDArray[np.uint64],
    relay_parent: int,
    next_tick: npt.NDArray[np.uint64],
) -> tuple[State, Frame]:
    """Return the state after blocks of the parachains of ``tips``, with their receipts, and the headers.

    A block's hash is of its parent, its number, its state's root, the watermark, the messages and the calls: of the
    bytes that the relay chain reads.
    """
    chains, count = tips["chain"], len(tips)
    number = tips["number"] + np.uint64(1)
    rest = [int(mark).to_bytes(4, "little") for mark in watermark]
    at = lookup(tips, Frame({"chain": sent["source"]}, len(sent)), ("chain",))
    for row, to, data in zip(at.tolist(), sent["to"].tolist(), sent["data"].to_pylist(), strict=True):
        rest[row] += to.to_bytes(4, "little") + blake2_256(data)
    at = lookup(tips, Frame({"chain": calls["source"]}, len(calls)), ("chain",))
    for row, data in zip(at.tolist(), calls["data"].to_pylist(), strict=True):
        rest[row] += blake2_256(data)
    parents = [head.tobytes() for head in tips["head"]]
    made_of = zip(parents, number.tolist(), roots, rest, strict=True)
    heads = digests([block_hash(parent, n, root.tobytes(), more) for parent, n, root, more in made_of])
    made = Frame(
        {
            "chain": chains,
            "source": chains,
            "destination": np.full(count, RELAY_POSITION, dtype=np.uint32),
            "parent": tips["head"],
            "number": number,
            "head": heads,
            "hash": heads,
            "watermark": watermark,
            "relay_parent": np.full(count, relay_parent, dtype=np.uint64),
            "next_tick": next_tick,
        },
        count,
    )
    tables = {
        "tips": _replaced(state, "tips", chains, made.select(TIPS_SCHEMA.names)),
        "candidates": _replaced(state, "candidates", chains, made.select(CANDIDATES_SCHEMA.names)),
        "sent": _replaced(state, "sent", chains, sent),
        "calls": _replaced(state, "calls", chains, calls),
    }
    return state.with_tables(**tables), headers(made, roots)


def _replaced(state: State, name: str, chains: Chains, rows: Frame) -> Frame:
    """Return a table with the rows of some chains replaced."""
    table = ALL_TABLES[name]
    joined = concat([state[name].filter(~np.isin(state[name][table.owner], chains)), rows])
    return joined.take(stable_order(*(joined[key] for key in table.order)))
