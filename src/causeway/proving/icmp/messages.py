"""Messages in egress queues with the whole chain of their proofs, taken from a lake (ICMP reference 2.1, 3.1).

    shown = prove_message(open_lake("my-lake"), "left", "right", index=3)
    shown.state_proof, shown.queue_proof    # from the relay chain's state root to the queue's, and on to the message

The body of the queue is read from the sending chain's outbound entries, and must have the root that the relay chain
lists. The whole is verified before it is given out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame, from_table
from causeway.network.opened import Mask, OpenedLake, select
from causeway.pipeline.lake import LakeError
from causeway.proofs.errors import ProofError
from causeway.proofs.substrate import (
    StateVersion,
    Trie,
    prove,
    unrouted_key,
    verify_posted_queue,
    verify_queued_message,
)
from causeway.proofs.substrate.ordered import ordered_key
from causeway.protocols.contents import encode_contents
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.messages import LANE_COLUMNS, OUTBOUND_SCHEMA
from causeway.proving.icmp.relay import RelayState, relay_leaves, require_leaf, rows_of
from causeway.proving.prover import NotAtHeight

Leaves = Callable[[int], Sequence[RelayState]]
"""Gives the relay chain after a height: one state a leaf."""

HEIGHTS_TRIED = 1_024
"""After the height that sent a message so many are looked at for one at which the relay chain lists its queue."""


@dataclass(frozen=True)
class ShownMessage:
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
) -> ShownMessage:
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
) -> ShownMessage | None:
    """Return the message with its proofs under the first of the leaves of a height that lists its queue, or the one
    that is asked for; None where none does."""
    runs = rows_of(opened, opened.manifest(leaves[0].height), "runs", own)
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
) -> ShownMessage:
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
    return ShownMessage(own, to, block, place, message, root, count, state_proof, queue_proof, relay)


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
        rows = select(opened.lake, path, seal, [*LANE_COLUMNS, "height"], mine, destination=to)
        found.update(rows["height"].to_pylist())
    return sorted(found, reverse=True)


def _lane(batch: pa.RecordBatch, own: int, to: int) -> Mask:
    mask: Mask = batch["substream"].to_numpy() == 0
    for name, position in (("source", own), ("destination", to)):
        mask &= batch[name].to_numpy() == position
    return mask


__all__ = ["HEIGHTS_TRIED", "ShownMessage", "heights_sent", "prove_message"]
