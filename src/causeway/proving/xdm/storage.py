"""The storage of the chains of a network under ``xdm``, read from its lake at the blocks that proofs are made under.

Storage is that of the last state in a file, moved on by the log of its changes; nothing is executed for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame, from_table
from causeway.model.kept import remembering
from causeway.model.ledger import REVERTED
from causeway.network.opened import Mask, OpenedLake
from causeway.pipeline.lake import LakeError, Manifest
from causeway.programs.runner import Programs
from causeway.proofs.substrate import StorageProofs, Tries, prove_storage
from causeway.protocols.contract import Tick
from causeway.protocols.secrets import LISTED
from causeway.protocols.xdm.chain_tries import ChainTries
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.context import block_number
from causeway.protocols.xdm.kernel import XdmKernel
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.state import State, state_of_frames
from causeway.protocols.xdm.storage import STORAGE_SCHEMA, changes

KEPT_LAKES = 16

KEPT_BYTES = 128 << 20
"""So much storage is kept in memory, of all lakes together; one chain's at least."""


@dataclass(frozen=True, eq=False)
class Storage:
    """The storage of a chain after some of its blocks: the trie of a number, which has a root."""

    tries: Tries
    number: int
    root: bytes

    def prove(self, key: bytes) -> tuple[bytes, ...]:
        """Return the nodes that say what is stored under a key, or that nothing is, ascending."""
        return tuple(sorted(set(self.proofs(pa.array([key], pa.large_binary())).nodes_of(0))))

    def proofs(self, keys: pa.LargeBinaryArray) -> StorageProofs:
        """Return a proof of what is stored under each key."""
        return prove_storage(self.tries, np.full(len(keys), self.number, dtype=np.int64), keys)


@dataclass(frozen=True)
class _Block:
    """The block of the chain at a position at a height. Blocks after which the storage has the same root are one."""

    root: bytes
    opened: OpenedLake = field(compare=False)
    position: int = field(compare=False)
    height: int = field(compare=False)


@lru_cache(maxsize=KEPT_LAKES)
def kernel_of(opened: OpenedLake) -> XdmKernel:
    """Return the state machine of a network under ``xdm``; no program can be run by it.

    Raises:
        InvalidInput: the network has another protocol.
    """
    if opened.protocol != "xdm":
        where = opened.lake.storage.uri
        raise InvalidInput(f"lake: {where} is of the protocol {opened.protocol}; only one of xdm has domains")
    nothing = Programs(replace(opened.topology, programs=opened.topology.programs.slice(0, 0)))
    # A reader has no secret keys, and signs nothing.
    options = {name: value for name, value in opened.options.items() if name != LISTED}
    return XdmKernel(opened.topology, nothing, XdmOptions(**options), opened.seed, opened.tick_ns)


def state_at(opened: OpenedLake, manifest: Manifest, position: int, names: Sequence[str] | None = None) -> State:
    """Return the state of one chain, or the tables ``names`` of it; raises as ``OpenedLake.state_rows``."""
    host_of = kernel_of(opened).network.host_of
    tables = opened.tables.state if names is None else names
    return state_of_frames({name: opened.state_rows(manifest, name, position, host_of) for name in tables}, {})


def storage_at(opened: OpenedLake, position: int, height: int) -> Storage:
    """Return the storage of the chain at a position after the block of a height: one that is kept in memory, or that of
    an earlier state in a file, moved on by what changed since, but for what forks took back in between.

    Raises:
        LakeError: the height is not committed, its state was freed, or it is not that of the header.
    """
    shown = _rows(opened, "headers", height, position, ["chain", "root"])
    if len(shown) != 1:
        raise LakeError(f"lake: {opened.lake.storage.uri}: {opened.names[position]} has no header at height {height}")
    return _made(_Block(shown["root"][0].tobytes(), opened, position, height))


def _storage(block: _Block) -> Storage:
    opened, position, height = block.opened, block.position, block.height
    kernel, lake = kernel_of(opened), opened.lake
    manifest, path = lake.manifest(height), list[int]()
    forks = _forks(opened, position, height)
    # Back along the fork, to the next height whose state is in a file.
    while manifest.height < manifest.last:
        path.append(manifest.height)
        before = forks.get(manifest.height, manifest.height - 1)
        inside = manifest.first <= before
        manifest = manifest.at(before) if inside else lake.manifest(before)
    chains = np.array([position], dtype=np.uint32)
    tries = ChainTries.of(chains)
    state = state_at(opened, manifest, position)
    tries.change(changes(None, state, kernel.context(chains, Tick(manifest.height, manifest.tick))))
    for later in reversed(path):
        tries.change(_rows(opened, "storage", later, position, STORAGE_SCHEMA.names))
    root = tries.roots(chains)[0].tobytes()
    if root != block.root:
        raise LakeError(
            f"lake: {lake.storage.uri}: the storage of {opened.names[position]} at height {height} has the root "
            f"{root.hex()}; its header has another"
        )
    return Storage(tries.tries, tries.present[position], root)


_made = remembering(_storage, KEPT_BYTES, lambda storage: storage.tries.live_bytes)


def gone_back_to(opened: OpenedLake, height: int) -> int:
    """Return the height whose state chains have after a height: an earlier one where a fork put them back to it."""
    return _forks(opened, CONSENSUS_POSITION, height).get(height, height)


def _forks(opened: OpenedLake, position: int, last: int) -> dict[int, int]:
    """Return the heights up to ``last`` at which forks put a chain back, each with the height that it was put back
    to."""
    lake = opened.lake
    if not lake.manifest(last).totals.get(REVERTED, 0):
        return {}
    rows = [row for path, seal in lake.log_files(REVERTED).items() for row in lake.sealed_table(path, seal).to_pylist()]
    return {row["height"]: row["first"] - 1 for row in rows if row["chain"] == position and row["height"] <= last}


def height_of(opened: OpenedLake, number: int, last: int) -> int:
    """Return the height, up to ``last``, at which chains made their block of a number.

    Raises:
        LakeError: there is none.
    """
    if number == 0:
        return 0
    lake = opened.lake
    height = bisect_left(range(last + 1), number, 1, key=lambda at: block_number(lake.manifest(at).tick))
    if height > last or block_number(lake.manifest(height).tick) != number:
        raise LakeError(f"lake: {lake.storage.uri} has no block {number} up to height {last}")
    return height


def _rows(opened: OpenedLake, table: str, height: int, position: int, columns: Sequence[str]) -> Frame:
    """Return the rows of a log table at a height that are of one chain."""

    def mine(batch: pa.RecordBatch) -> Mask:
        mask: Mask = batch["chain"].to_numpy() == position
        return mask

    found = opened.log_rows(table, height, position, columns, mine)
    schema = opened.tables.logs[table]
    rows = pa.schema([schema.field(name) for name in columns]).empty_table() if found is None else found
    return from_table(rows)


__all__ = ["Storage", "gone_back_to", "height_of", "kernel_of", "state_at", "storage_at"]
