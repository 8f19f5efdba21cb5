"""Egress queue messages with all their proofs, from a lake (ICMP reference 2.1, 3.1).

    message = prove_message(open_lake("my-lake"), "left", "right", index=3)
    message.state_proof, message.queue_proof    # from the state root to the queue's root, and to the message

The queue's body is read from the sender's outbound entries and must have the root that the relay chain
lists. The whole proof is verified before it is returned.

The relay chain's state after a block is a trie under the root of the block's header:

    (relay,) = relay_leaves(open_lake("my-lake"), height=7)
    relay.number, relay.root              # of the relay block, and of the state after it
    relay.prove([watermark_key(3)])       # nodes of a storage proof

During a fork there are several leaves, each with its own state (G9).
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
from causeway.protocols.relay_chain.options import RELAY_POSITION
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
    """Relay chain after a block: its tables, and its state as a trie.

    Attributes:
        height: Height of the lake; the block is the last of its leaf up to it.
        leaf: Tables of the leaf.
        root: Root of the state.
        trie: Trie of the state.
    """

    height: int
    leaf: RelayLeaf
    root: bytes
    trie: Trie

    @property
    def place(self) -> int:
        """Number of the leaf."""
        return int(self.leaf.blocks["leaf"][0])

    def called(self, leaf: str | None) -> bool:
        """Return True if ``leaf`` is its number or its block's hash (hexadecimal), or None."""
        return leaf is None or leaf.lower() in (str(self.place), self.leaf.hash.hex())

    @property
    def included(self) -> bytes:
        """Root of the list of heads that the block included."""
        paras = self.leaf.paras
        heads = paras["head"][(paras["included"] == np.uint64(self.number)) & (paras["included"] > 0)]
        return ordered_root([head.tobytes() for head in heads])

    @property
    def parent(self) -> bytes:
        """Hash of the parent block."""
        return bytes(self.leaf.blocks["parent"][0].tobytes())

    @property
    def number(self) -> int:
        """Number of the relay block."""
        return self.leaf.number

    def prove(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the nodes that prove the values, or the absence, of keys, ascending."""
        return prove(self.trie, keys)


def relay_leaves(opened: OpenedLake, height: int | None = None) -> list[RelayState]:
    """Return the relay chain after the blocks of a height, one state a leaf.

    Args:
        opened: The lake.
        height: A committed height, by default the last.

    Raises:
        InvalidInput: The lake has another protocol, or HRMP channels.
        LakeError: The height is not committed, its state was removed, or it contradicts a header.
    """
    if opened.protocol != PROTOCOL:
        uri = opened.lake.storage.uri
        raise InvalidInput(f"lake: {uri} is of the protocol {opened.protocol}; only one of icmp has a relay chain")
    if opened.options.get("channels") == "hrmp":
        uri = opened.lake.storage.uri
        raise InvalidInput(f'lake: {uri} is of a network with channels = "hrmp", which has no egress queues')
    manifest = opened.manifest(height)
    tables = {name: program_free_rows(opened, manifest, name, RELAY_POSITION) for name in OF_LEAVES}
    return [_relay_state(opened, manifest.height, leaf) for leaf in read_leaves(tables)]


def _relay_state(opened: OpenedLake, height: int, leaf: RelayLeaf) -> RelayState:
    entries = {key: value for key, value in relay_changes(None, leaf).items() if value is not None}
    trie = Trie.build([*entries], [*entries.values()])
    if trie.root != header_root(opened, height, leaf.number, leaf.hash):
        uri, root = opened.lake.storage.uri, trie.root.hex()
        raise LakeError(f"lake: {uri}: the state after relay block {leaf.number} has the root {root}; its header not")
    found = RelayState(height, leaf, trie.root, trie)
    rest = relay_rest(found.included, found.place)
    if found.number and block_hash(found.parent, found.number, trie.root, rest) != leaf.hash:
        raise LakeError(f"lake: {opened.lake.storage.uri}: relay block {leaf.number} has another hash than its header")
    return found


def require_leaf(leaf: str | None) -> None:
    """Validate the syntax of a leaf's name: a number or a block hash.

    Args:
        leaf: Name of the leaf; None for any.

    Raises:
        InvalidInput: The name is neither.
    """
    if leaf is not None and not _LEAF.fullmatch(leaf):
        raise InvalidInput(f"leaf: {to_one_line(leaf[:80])}: allowed: its number, or the hash of its block (64 digits)")


def select_leaf(leaves: Sequence[RelayState], leaf: str | None) -> RelayState:
    """Select a leaf by name (``RelayState.called``).

    Args:
        leaves: The leaves.
        leaf: Name of the leaf; None for the first.

    Raises:
        InvalidInput: There is no such leaf.
    """
    require_leaf(leaf)
    found = [one for one in leaves if one.called(leaf)]
    if not found:
        names = ", ".join(f"{one.place} (relay block {one.number}, {one.leaf.hash.hex()})" for one in leaves)
        raise InvalidInput(f"leaf: {leaf}: allowed at height {leaves[0].height}, by number or hash: {names}")
    return found[0]


def program_free_rows(opened: OpenedLake, manifest: Manifest, table: str, position: int) -> Frame:
    """Return a chain's rows of a state table that has no program rows.

    Args:
        opened: The lake.
        manifest: Manifest of the height.
        table: Name of the table.
        position: Position of the chain.
    """

    def no_program(numbers: object) -> npt.NDArray[np.int64]:
        raise AssertionError(f"rows of {table} are of chains, not of programs")

    return opened.state_rows(manifest, table, position, no_program)


def header_root(opened: OpenedLake, last: int, number: int, own: bytes) -> bytes:
    """Return the root in the header of a relay block.

    Args:
        opened: The lake.
        last: Last height to search.
        number: Number of the relay block.
        own: Hash of the relay block.

    Raises:
        LakeError: There is no such header.
    """

    def select(batch: pa.RecordBatch) -> Mask:
        mask: Mask = (batch["chain"].to_numpy() == RELAY_POSITION) & (batch["number"].to_numpy() == number)
        return mask

    for height in range(last, -1, -1):
        rows = opened.log_rows("headers", height, RELAY_POSITION, ["chain", "number", "hash", "root"], select)
        for row in [] if rows is None else rows.to_pylist():
            if row["hash"] == own:
                root: bytes = row["root"]
                return root
    raise LakeError(f"lake: {opened.lake.storage.uri} has no header of relay block {number} up to height {last}")


Leaves = Callable[[int], Sequence[RelayState]]
"""Source of the relay chain after a height: one state a leaf."""

HEIGHTS_TRIED = 1_024
"""Heights searched after a message's sending for one at which the relay chain lists its queue."""


@dataclass(frozen=True)
class ProvenEgressMessage:
    """Proven message between parachains.

    Attributes:
        source: Position of the sender.
        destination: Position of the recipient.
        block: Relay block that posted the queue.
        place: Position in the queue.
        message: The message.
        queue_root: Root of the queue.
        queue_length: Number of messages in the queue.
        state_proof: Nodes from the state root to the posted queue.
        queue_proof: Nodes from the queue's root to the message.
        relay: State of the relay chain.
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
    """Prove a message of ``source`` to ``destination``.

    Args:
        opened: The lake.
        source: Name of the sender.
        destination: Name of the recipient.
        index: Number of the message.
        height: A height whose relay chain lists the message's queue; by default the first since it was
            sent, or sent again after a fork.
        leaf: Number or block hash of the leaf; by default the first that lists the queue.
        leaves: Source of the relay chain; by default the lake.

    Raises:
        NotAtHeight: No queue listed after ``height`` has the message.
        InvalidInput: There are no such chains or leaf, or the message was not sent or posted.
        LakeError: The height is not committed, or the lake is corrupted.
    """
    require_leaf(leaf)
    own, to = opened.position(source), opened.position(destination)
    for name, position in ((source, own), (destination, to)):
        if position == RELAY_POSITION:
            raise InvalidInput(f"chain: {name}: is the relay chain; egress queues are between parachains")
    if own == to:
        raise InvalidInput(f"counterparty: {destination}: messages of a chain to itself are in no egress queue")
    problem = f"index: {index}: no message {index} from {source} to {destination}"
    leaves = leaves or partial(relay_leaves, opened)
    listing_chain = "the relay chain" if leaf is None else f"leaf {leaf} of the relay chain"
    if height is not None:
        found = _prove_at_height(opened, own, to, index, leaves(height), leaf)
        if found is None:
            raise NotAtHeight(
                f"{problem} is in a queue that {listing_chain} lists after height {height}; it is there from the relay "
                "block that posted it until the one that its recipient's watermark passes it in"
            )
        return found
    sent = heights_sent(opened, own, to, index)
    if not sent:
        raise InvalidInput(f"{problem} was sent")
    last = opened.last_height()
    for first in sent:
        for at in range(first, min(last, first + HEIGHTS_TRIED) + 1):
            found = _prove_at_height(opened, own, to, index, leaves(at), leaf)
            if found is not None:
                return found
    raise InvalidInput(
        f"{problem} was posted by {listing_chain} yet; it was sent at height {sent[0]}, the last is {last}"
    )


def _prove_at_height(
    opened: OpenedLake, own: int, to: int, index: int, leaves: Sequence[RelayState], leaf: str | None
) -> ProvenEgressMessage | None:
    """Prove a message under the first leaf, or the named one, that lists its queue, or None."""
    runs = program_free_rows(opened, opened.manifest(leaves[0].height), "runs", own)
    number = np.uint64(index)
    runs = runs.filter(
        (runs["destination"] == to) & (runs["first"] <= number) & (number - runs["first"] < runs["count"])
    )
    if len(runs) == 0:
        return None
    for relay in leaves:
        if not relay.called(leaf):
            continue
        listed = relay.leaf.unrouted
        listed = listed.filter((listed["to"] == to) & (listed["source"] == own))
        listed = listed.filter(listed["issued"] == runs["number"][0])
        if len(listed):
            return _prove_under(opened, own, to, index, relay, runs, listed)
    return None


def _prove_under(
    opened: OpenedLake, own: int, to: int, index: int, relay: RelayState, queue: Frame, listed: Frame
) -> ProvenEgressMessage:
    """Prove a message; ``queue`` is its segment, ``listed`` its queue's posting (one row each)."""
    block, root = int(listed["number"][0]), queue["root"][0].tobytes()
    first, count = int(queue["first"][0]), int(queue["count"][0])
    bodies = encode_contents(_queue_messages(opened, own, to, int(queue["height"][0]), first, count))
    place, keys = index - first, [ordered_key(number) for number in range(count)]
    message = bytes(bodies[place].as_py())
    queue_proof = prove(Trie.build(keys, bodies, StateVersion.V0), [keys[place]])
    state_proof = relay.prove([unrouted_key(block, to)])
    try:
        found, _ = verify_posted_queue(relay.root, state_proof, block, own, to)
        verify_queued_message(found, queue_proof, place, message)
    except ProofError as error:
        uri = opened.lake.storage.uri
        raise LakeError(f"lake: {uri}: its data gives no valid proof: {error.name}: {error}") from error
    return ProvenEgressMessage(own, to, block, place, message, root, count, state_proof, queue_proof, relay)


def _queue_messages(opened: OpenedLake, own: int, to: int, height: int, first: int, count: int) -> Frame:
    """Return the messages of a queue, in order."""

    def select(batch: pa.RecordBatch) -> Mask:
        index = batch["index"].to_numpy()
        mask: Mask = _in_lane(batch, own, to) & (index >= first) & (index - np.uint64(first) < count)
        return mask

    rows = opened.log_rows("outbound", height, own, OUTBOUND_SCHEMA.names, select, destination=to, most=count)
    if rows is None or rows.num_rows != count:
        names = opened.names
        raise LakeError(
            f"lake: {opened.lake.storage.uri} has not the {count} outbound entries from {first} on of {names[own]} for "
            f"{names[to]} at height {height}"
        )
    frame = from_table(rows)
    return frame.take(np.argsort(frame["index"], kind="stable"))


def heights_sent(opened: OpenedLake, own: int, to: int, index: int) -> list[int]:
    """Return the heights at which a message was sent, the last first.

    Forks let a chain send a number again.

    Args:
        opened: The lake.
        own: Position of the sender.
        to: Position of the recipient.
        index: Number of the message.
    """

    def select(batch: pa.RecordBatch) -> Mask:
        mask: Mask = _in_lane(batch, own, to) & (batch["index"].to_numpy() == index)
        return mask

    found: set[int] = set()
    for path, seal in opened.lake.log_files("outbound").items():
        rows = select_rows(opened.lake, path, seal, [*LANE_COLUMNS, "height"], select, destination=to)
        found.update(rows["height"].to_pylist())
    return sorted(found, reverse=True)


def _in_lane(batch: pa.RecordBatch, own: int, to: int) -> Mask:
    mask: Mask = batch["substream"].to_numpy() == 0
    for name, position in (("source", own), ("destination", to)):
        mask &= batch[name].to_numpy() == position
    return mask
