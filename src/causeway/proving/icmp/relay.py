"""The relay chain's state after a block, read from a lake of parachains, as the trie that its header commits to.

relay = relay_at(open_lake("my-lake"), height=7)
relay.number, relay.root                # of the relay block, and of the state after it
relay.prove([watermark_key(3)])         # nodes of a storage proof
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame
from causeway.network.opened import Mask, OpenedLake
from causeway.pipeline.lake import LakeError, Manifest
from causeway.proofs.substrate import Tries, prove_storage
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.leaves import OF_LEAVES, Leaf, leaves_of
from causeway.protocols.icmp.storage import LeafTries

PROTOCOL = "icmp"


@dataclass(frozen=True, eq=False)
class RelayState:
    """The relay chain after its block ``number`` with ``hash``: its rows, and its state as a trie under ``root``. Of
    several leaves that a fork has at the height it is the first.

    ``height``: of the lake, which was asked for; the block is the last that was made up to there.
    """

    height: int
    number: int
    hash: bytes
    root: bytes
    leaf: Leaf
    tries: Tries

    def prove(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the nodes that say what is stored under keys, or that nothing is, ascending."""
        one = np.zeros(1, dtype=np.int64)
        return prove_storage(self.tries, one, list(keys), np.zeros(len(keys), dtype=np.int64)).nodes_of(0)


def relay_at(opened: OpenedLake, height: int | None = None) -> RelayState:
    """Return the relay chain after the blocks of a height, by default the last.

    Raises:
        InvalidInput: the lake is of another protocol.
        LakeError: the height is not committed, its state was freed, or it is not that of the block's header.
    """
    if opened.protocol != PROTOCOL:
        where = opened.lake.storage.uri
        raise InvalidInput(f"lake: {where} is of the protocol {opened.protocol}; only one of icmp has a relay chain")
    manifest = opened.manifest(height)
    leaf = leaves_of({name: rows_of(opened, manifest, name, RELAY_POSITION) for name in OF_LEAVES})[0]
    number, block_hash = leaf.number, leaf.hash
    tries = LeafTries.of([leaf]).tries
    root = tries.roots(np.zeros(1, dtype=np.int64))[0].tobytes()
    if root != _header_root(opened, manifest.height, number, block_hash):
        where = opened.lake.storage.uri
        raise LakeError(
            f"lake: {where}: the state after relay block {number} has the root {root.hex()}; its header not"
        )
    return RelayState(manifest.height, number, block_hash, root, leaf, tries)


def rows_of(opened: OpenedLake, manifest: Manifest, table: str, position: int) -> Frame:
    """Return the rows of a state table, in which no program has any, that are of the chain at a position."""

    def no_program(numbers: object) -> npt.NDArray[np.int64]:
        raise AssertionError(f"rows of {table} are of chains, not of programs")

    return opened.state_rows(manifest, table, position, no_program)


def _header_root(opened: OpenedLake, last: int, number: int, block_hash: bytes) -> bytes:
    """Return the root in the header of a relay block that was made up to the height ``last``."""

    def mine(batch: pa.RecordBatch) -> Mask:
        mask: Mask = (batch["chain"].to_numpy() == RELAY_POSITION) & (batch["number"].to_numpy() == number)
        return mask

    for height in range(last, -1, -1):
        rows = opened.log_rows("headers", height, RELAY_POSITION, ["chain", "number", "hash", "root"], mine)
        for row in [] if rows is None else rows.to_pylist():
            if row["hash"] == block_hash:
                root: bytes = row["root"]
                return root
    raise LakeError(f"lake: {opened.lake.storage.uri} has no header of relay block {number} up to height {last}")


__all__ = ["RelayState", "relay_at", "rows_of"]
