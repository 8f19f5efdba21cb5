"""Messages in egress queues with the whole chain of their proofs, taken from a lake (ICMP reference 2.1, 3.1).

    shown = prove_message(open_lake("my-lake"), "left", "right", index=3)
    shown.state_proof, shown.queue_proof    # from the relay chain's state root to the queue's, and on to the message

The body of the queue is read from the sending chain's outbound entries, and must have the root that the relay chain
lists. The whole is verified before it is given out.

The relay chain's state after a block, read from a lake of parachains, as the trie that its header commits to.

    (relay,) = relay_leaves(open_lake("my-lake"), height=7)
    relay.number, relay.root                # of the relay block, and of the state after it
    relay.prove([watermark_key(3)])         # nodes of a storage proof

While a fork lasts there are several blocks, each with a state of its own (G9).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.substrate import (
    StateVersion,
    Trie,
    ordered_root,
    prove,
    unrouted_key,
    verify_posted_queue,
    verify_queued_message,
)
from causeway_proofs.substrate.ordered_lists import ordered_key
from causeway_proofs.substrate.parachains import block_hash, relay_rest

from causeway.core.frame import Frame, from_table
from causeway.core.text import to_one_line
from causeway.network.opened_lake import Mask, OpenedLake, select_rows
from causeway.protocols.relay_chain.commitment import relay_changes
from causeway.protocols.relay_chain.network import RELAY_POSITION
from causeway.protocols.relay_chain.state import OF_LEAVES, RelayLeaf, read_leaves
from causeway.protocols.shared.contents import encode_contents
from causeway.protocols.shared.messages import LANE_COLUMNS, OUTBOUND_SCHEMA
from causeway.proving.prover import NotAtHeight
from causeway.storage.lake import LakeError, Manifest

__all__ = [
    "HEIGHTS_TRIED",
    "ProvenEgressMessage",
    "RelayState",
    "header_root",
    "heights_sent",
    "program_free_rows",
    "prove_message",
    "relay_leaves",
    "require_leaf",
    "select_leaf",
]

PROTOCOL = "icmp"

_LEAF = re.compile(r"[0-9]{1,3}|[0-9a-fA-F]{64}")


@dataclass(frozen=True, eq=False)
class RelayState:
    """The relay chain after a block: its tables, and its state as a trie under ``root``.

    ``height``: of the lake, which was asked for; the block is the last of its leaf that was made up to there.
    """

    height: int
    leaf: RelayLeaf
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
    tables = {name: program_free_rows(opened, manifest, name, RELAY_POSITION) for name in OF_LEAVES}
    return [_relay_state(opened, manifest.height, leaf) for leaf in read_leaves(tables)]


def _relay_state(opened: OpenedLake, height: int, leaf: RelayLeaf) -> RelayState:
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
        raise InvalidInput(f"leaf: {to_one_line(leaf[:80])}: allowed: its number, or the hash of its block (64 digits)")


def select_leaf(leaves: Sequence[RelayState], leaf: str | None) -> RelayState:
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


def program_free_rows(opened: OpenedLake, manifest: Manifest, table: str, position: int) -> Frame:
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


Leaves = Callable[[int], Sequence[RelayState]]
"""Gives the relay chain after a height: one state a leaf."""

HEIGHTS_TRIED = 1_024
"""After the height that sent a message so many are looked at for one at which the relay chain lists its queue."""


@dataclass(frozen=True)
class ProvenEgressMessage:
    """A message that was proved: of the parachain ``source`` to ``destination``.

    ``block``: the relay block that posted its queue, with the root ``queue_root``; ``place``: in the queue. ``relay``:
    the relay chain's state under which it is proved.
    """

    source: int
    destination: int
    block: int
    place: int
    message: bytes
    queue_root: bytes
    queue_length: int
    state_proof: list[bytes]
    queue_proof: list[bytes]
    relay: RelayState


def prove_message(
    opened: OpenedLake,
    source: str,
    destination: str,
    *,
    index: int,
    height: int | None = None,
    leaf: str | None = None,
    leaves: Leaves | None = None,
) -> ProvenEgressMessage:
    """Return the message number ``index`` of ``source`` to ``destination`` with its proofs.

    ``height``: a height after which a leaf of the relay chain lists the message's queue as unrouted; without it, the
    first one since it was sent; since it was sent again, if a fork took it back. ``leaf``: by number or hash of its
    block; without it, the first that does.
    ``leaves``: gives the relay chain after a height; without it, the lake does.

    Raises:
        InvalidInput: there are no such chains, no leaf is named so, or the message was not posted (``NotAtHeight``: it
            is in no queue that the relay chain lists after that height).
        LakeError: the height is not committed, or the lake is not what was written.
    """
    require_leaf(leaf)
    own, to = opened.position(source), opened.position(destination)
    for name, position in ((source, own), (destination, to)):
        if position == RELAY_POSITION:
            raise InvalidInput(f"chain: {name}: is the relay chain; egress queues are between parachains")
    if own == to:
        raise InvalidInput(f"counterparty: {destination}: what a chain sends itself is in no egress queue")
    where = f"index: {index}: no message {index} from {source} to {destination}"
    leaves = leaves or partial(relay_leaves, opened)
    who = "the relay chain" if leaf is None else f"leaf {leaf} of the relay chain"
    if height is not None:
        found = _shown(opened, own, to, index, leaves(height), leaf)
        if found is None:
            raise NotAtHeight(
                f"{where} is in a queue that {who} lists after height {height}; it is there from the relay "
                "block that posted it until the one that its recipient's watermark passes it in"
            )
        return found
    sent = heights_sent(opened, own, to, index)
    if not sent:
        raise InvalidInput(f"{where} was sent")
    last = opened.last_height()
    for first in sent:
        for at in range(first, min(last, first + HEIGHTS_TRIED) + 1):
            found = _shown(opened, own, to, index, leaves(at), leaf)
            if found is not None:
                return found
    raise InvalidInput(f"{where} was posted by {who} yet; it was sent at height {sent[0]}, the last is {last}")


def _shown(
    opened: OpenedLake, own: int, to: int, index: int, leaves: Sequence[RelayState], leaf: str | None
) -> ProvenEgressMessage | None:
    """Return the message with its proofs under the first of the leaves of a height that lists its queue, or the one
    that is asked for; None where none does."""
    runs = program_free_rows(opened, opened.manifest(leaves[0].height), "runs", own)
    asked = np.uint64(index)
    runs = runs.filter((runs["destination"] == to) & (runs["first"] <= asked) & (asked - runs["first"] < runs["count"]))
    if len(runs) == 0:
        return None
    for relay in leaves:
        if not relay.called(leaf):
            continue
        listed = relay.leaf.unrouted
        listed = listed.filter((listed["to"] == to) & (listed["source"] == own))
        listed = listed.filter(listed["issued"] == runs["number"][0])
        if len(listed):
            return _under(opened, own, to, index, relay, runs, listed)
    return None


def _under(
    opened: OpenedLake, own: int, to: int, index: int, relay: RelayState, queue: Frame, listed: Frame
) -> ProvenEgressMessage:
    """Return the message with its proofs; ``queue``: the segment that has it (one row), ``listed``: how it is posted
    (one row)."""
    block, root = int(listed["number"][0]), queue["root"][0].tobytes()
    first, count = int(queue["first"][0]), int(queue["count"][0])
    bodies = encode_contents(_entries(opened, own, to, int(queue["height"][0]), first, count))
    place, keys = index - first, [ordered_key(number) for number in range(count)]
    message = bytes(bodies[place].as_py())
    queue_proof = prove(Trie.build(keys, bodies, StateVersion.V0), [keys[place]])
    state_proof = relay.prove([unrouted_key(block, to)])
    try:
        found, _ = verify_posted_queue(relay.root, state_proof, block, own, to)
        verify_queued_message(found, queue_proof, place, message)
    except ProofError as error:
        uri = opened.lake.storage.uri
        raise LakeError(f"lake: {uri}: what it has proves nothing: {error.name}: {error}") from error
    return ProvenEgressMessage(own, to, block, place, message, root, count, state_proof, queue_proof, relay)


def _entries(opened: OpenedLake, own: int, to: int, height: int, first: int, count: int) -> Frame:
    """Return the messages of a queue, in order."""

    def mine(batch: pa.RecordBatch) -> Mask:
        index = batch["index"].to_numpy()
        mask: Mask = _lane(batch, own, to) & (index >= first) & (index - np.uint64(first) < count)
        return mask

    rows = opened.log_rows("outbound", height, own, OUTBOUND_SCHEMA.names, mine, destination=to, most=count)
    if rows is None or rows.num_rows != count:
        names = opened.names
        raise LakeError(
            f"lake: {opened.lake.storage.uri} has not the {count} outbound entries from {first} on of {names[own]} for "
            f"{names[to]} at height {height}"
        )
    frame = from_table(rows)
    return frame.take(np.argsort(frame["index"], kind="stable"))


def heights_sent(opened: OpenedLake, own: int, to: int, index: int) -> list[int]:
    """Return the heights at which a message was sent, the last first: forks let a chain send its number again."""

    def mine(batch: pa.RecordBatch) -> Mask:
        mask: Mask = _lane(batch, own, to) & (batch["index"].to_numpy() == index)
        return mask

    found: set[int] = set()
    for path, seal in opened.lake.log_files("outbound").items():
        rows = select_rows(opened.lake, path, seal, [*LANE_COLUMNS, "height"], mine, destination=to)
        found.update(rows["height"].to_pylist())
    return sorted(found, reverse=True)


def _lane(batch: pa.RecordBatch, own: int, to: int) -> Mask:
    mask: Mask = batch["substream"].to_numpy() == 0
    for name, position in (("source", own), ("destination", to)):
        mask &= batch[name].to_numpy() == position
    return mask
