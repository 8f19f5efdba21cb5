"""The relay chain's state after a block, read from a lake of parachains, as the trie that its header commits to.

    (relay,) = relay_leaves(open_lake("my-lake"), height=7)
    relay.number, relay.root                # of the relay block, and of the state after it
    relay.prove([watermark_key(3)])         # nodes of a storage proof

While a fork lasts there are several blocks, each with a state of its own (G9).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame
from causeway.model.text import readable
from causeway.network.opened import Mask, OpenedLake
from causeway.pipeline.lake import LakeError, Manifest
from causeway.proofs.substrate import Trie, ordered_root, prove
from causeway.proofs.substrate.parachains import block_hash, relay_rest
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.leaves import OF_LEAVES, Leaf, leaves_of
from causeway.protocols.icmp.storage import relay_changes

PROTOCOL = "icmp"

_LEAF = re.compile(r"[0-9]{1,3}|[0-9a-fA-F]{64}")


@dataclass(frozen=True, eq=False)
class RelayState:
    """The relay chain after a block: its tables, and its state as a trie under ``root``.

    ``height``: of the lake, which was asked for; the block is the last of its leaf that was made up to there.
    """

    height: int
    leaf: Leaf
    root: bytes
    trie: Trie

    @property
    def place(self) -> int:
        """Return the number of the leaf."""
        return int(self.leaf.blocks["leaf"][0])

    def called(self, leaf: str | None) -> bool:
        """Return whether ``leaf`` names it: its number, or the hash of its block as hexadecimal digits; None: any."""
        return leaf is None or leaf.lower() in (str(self.place), self.leaf.hash.hex())

    @property
    def included(self) -> bytes:
        """Return the root of the list of heads that the block included."""
        paras = self.leaf.paras
        heads = paras["head"][(paras["included"] == np.uint64(self.number)) & (paras["included"] > 0)]
        return ordered_root([head.tobytes() for head in heads])

    @property
    def parent(self) -> bytes:
        """Return the hash of the block before."""
        return bytes(self.leaf.blocks["parent"][0].tobytes())

    @property
    def number(self) -> int:
        """Return the number of the relay block."""
        return self.leaf.number

    def prove(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the nodes that say what is stored under keys, or that nothing is, ascending."""
        return prove(self.trie, keys)


def relay_leaves(opened: OpenedLake, height: int | None = None) -> list[RelayState]:
    """Return the relay chain after the blocks of a height, by default the last: one state a leaf.

    Raises:
        InvalidInput: the lake is of another protocol.
        LakeError: the height is not committed, its state was freed, or it is not that of a block's header.
    """
    if opened.protocol != PROTOCOL:
        where = opened.lake.storage.uri
        raise InvalidInput(f"lake: {where} is of the protocol {opened.protocol}; only one of icmp has a relay chain")
    if opened.options.get("channels") == "hrmp":
        where = opened.lake.storage.uri
        raise InvalidInput(f'lake: {where} is of a network with channels = "hrmp", which has no egress queues')
    manifest = opened.manifest(height)
    tables = {name: rows_of(opened, manifest, name, RELAY_POSITION) for name in OF_LEAVES}
    return [_relay_state(opened, manifest.height, leaf) for leaf in leaves_of(tables)]


def _relay_state(opened: OpenedLake, height: int, leaf: Leaf) -> RelayState:
    entries = {key: value for key, value in relay_changes(None, leaf).items() if value is not None}
    trie = Trie.build([*entries], [*entries.values()])
    if trie.root != header_root(opened, height, leaf.number, leaf.hash):
        where, root = opened.lake.storage.uri, trie.root.hex()
        raise LakeError(f"lake: {where}: the state after relay block {leaf.number} has the root {root}; its header not")
    found = RelayState(height, leaf, trie.root, trie)
    rest = relay_rest(found.included, found.place)
    if found.number and block_hash(found.parent, found.number, trie.root, rest) != leaf.hash:
        raise LakeError(f"lake: {opened.lake.storage.uri}: relay block {leaf.number} has another hash than its header")
    return found


def require_leaf(leaf: str | None) -> None:
    """Raise ``InvalidInput`` for what can name no leaf: it is neither a number nor the hash of a block."""
    if leaf is not None and not _LEAF.fullmatch(leaf):
        raise InvalidInput(f"leaf: {readable(leaf[:80])}: allowed: its number, or the hash of its block (64 digits)")


def of_leaf(leaves: Sequence[RelayState], leaf: str | None) -> RelayState:
    """Return of some leaves the one that ``leaf`` names (``RelayState.called``); None: the first.

    Raises:
        InvalidInput: it names none.
    """
    require_leaf(leaf)
    found = [one for one in leaves if one.called(leaf)]
    if not found:
        there = ", ".join(f"{one.place} (relay block {one.number}, {one.leaf.hash.hex()})" for one in leaves)
        raise InvalidInput(f"leaf: {leaf}: allowed at height {leaves[0].height}, by number or hash: {there}")
    return found[0]


def rows_of(opened: OpenedLake, manifest: Manifest, table: str, position: int) -> Frame:
    """Return the rows of a state table, in which no program has any, that are of the chain at a position."""

    def no_program(numbers: object) -> npt.NDArray[np.int64]:
        raise AssertionError(f"rows of {table} are of chains, not of programs")

    return opened.state_rows(manifest, table, position, no_program)


def header_root(opened: OpenedLake, last: int, number: int, own: bytes) -> bytes:
    """Return the root in the header of the relay block ``number`` with the hash ``own``, which was made up to the
    height ``last``. Raises ``LakeError`` where there is none."""

    def mine(batch: pa.RecordBatch) -> Mask:
        mask: Mask = (batch["chain"].to_numpy() == RELAY_POSITION) & (batch["number"].to_numpy() == number)
        return mask

    for height in range(last, -1, -1):
        rows = opened.log_rows("headers", height, RELAY_POSITION, ["chain", "number", "hash", "root"], mine)
        for row in [] if rows is None else rows.to_pylist():
            if row["hash"] == own:
                root: bytes = row["root"]
                return root
    raise LakeError(f"lake: {opened.lake.storage.uri} has no header of relay block {number} up to height {last}")


__all__ = ["RelayState", "header_root", "of_leaf", "relay_leaves", "require_leaf", "rows_of"]
