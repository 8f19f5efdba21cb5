"""Egress queues between parachains: roots, verification and gossip messages.

An egress queue holds the messages from one parachain to another in a block; its root is R of the list (ICMP reference
2.1, 2.3). Nodes gossip about queues in these forms (ICMP reference 2.5, X-3):

```
neighbour packet   01 01 Vec<Hash>              version 1: the chain heads that the sender considers, at most five
queue              03 root Vec<Vec<u8>>         an egress queue under its root
```
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from causeway_proofs.errors import OverLimit, RootMismatch
from causeway_proofs.limits import MAX_PROOF_BYTES
from causeway_proofs.steps import Step
from causeway_proofs.substrate.errors import BadNeighborPacket, FailedToDecode, Malformed, UnexpectedQueue
from causeway_proofs.substrate.node import StateVersion
from causeway_proofs.substrate.ordered_lists import ordered_root
from causeway_proofs.substrate.scale import ScaleTypes, struct


def egress_root(messages: Sequence[bytes], version: StateVersion = StateVersion.V0) -> bytes:
    """Return R(L) of the messages of one queue.

    Args:
        messages: the messages in order.
        version: layout of the trie.

    Returns:
        The root, 32 bytes.
    """
    return ordered_root(messages, version)


def verify_queue(
    root: bytes,
    messages: Sequence[bytes],
    version: StateVersion = StateVersion.V0,
    limit: int = MAX_PROOF_BYTES,
) -> tuple[Step, ...]:
    """Verify that ``messages`` are the complete queue of ``root``.

    Args:
        root: the trusted root, 32 bytes.
        messages: the messages in order.
        version: layout of the trie.
        limit: most bytes of all messages.

    Returns:
        One step, from the messages to the root.

    Raises:
        RootMismatch: a message is changed, moved, missing, duplicated or added.
        OverLimit: the messages exceed ``limit`` bytes.
    """
    require_size(messages, limit)
    found = egress_root(messages, version)
    if found != root:
        raise RootMismatch(f"{len(messages)} messages hash to the root {found.hex()}, not to {root.hex()}")
    return (Step("root", f"{len(messages)} messages in order", found),)


def require_size(messages: Iterable[bytes], limit: int) -> None:
    """Reject messages of more than ``limit`` bytes in total before any hashing.

    Raises:
        OverLimit: the messages exceed ``limit``.
    """
    size = sum(map(len, messages))
    if size > limit:
        raise OverLimit(f"the messages of a queue have {size} bytes, at most {limit} are read")


MAX_CHAIN_HEADS = 5
"""Most heads of the block DAG that a node considers, its own or a peer's."""

_NEIGHBOR, _QUEUE = b"\x01\x01", b"\x03"
_TYPES = ScaleTypes(
    {
        "NeighborPacket": struct(("chain_heads", "Vec<H256>")),
        "ParachainMessages": struct(("queue_root", "H256"), ("messages", "Vec<Vec<u8>>")),
    }
)


@dataclass(frozen=True, slots=True)
class NeighborPacket:
    """The chain heads declared by a peer.

    Attributes:
        chain_heads: hashes of 32 bytes.
    """

    chain_heads: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Return the bytes of the packet.

        Returns:
            The encoding.

        Raises:
            InvalidInput: a head is not 32 bytes long.
        """
        return _NEIGHBOR + _TYPES.encode("NeighborPacket", {"chain_heads": self.chain_heads})


@dataclass(frozen=True, slots=True)
class GossipedQueue:
    """The messages of an egress queue, with a claimed root."""

    root: bytes
    messages: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Return the bytes of the message.

        Returns:
            The encoding.

        Raises:
            InvalidInput: the root is not 32 bytes long.
        """
        plain = {"queue_root": self.root, "messages": self.messages}
        return _QUEUE + _TYPES.encode("ParachainMessages", plain)


def decode_gossip(data: bytes, limit: int = MAX_PROOF_BYTES) -> NeighborPacket | GossipedQueue:
    """Decode the canonical encoding of a neighbor packet or a queue.

    Args:
        data: the encoding.
        limit: most bytes.

    Returns:
        The packet or the queue.

    Raises:
        OverLimit: ``data`` exceeds ``limit`` bytes, or 65,536 messages.
        BadNeighborPacket: the packet declares more than five heads.
        Malformed: ``data`` is neither, or not canonical.
    """
    try:
        if data[: len(_NEIGHBOR)] == _NEIGHBOR:
            plain = _TYPES.decode("NeighborPacket", data[len(_NEIGHBOR) :], "a neighbour packet", limit)
            heads = tuple(plain["chain_heads"])
            if len(heads) > MAX_CHAIN_HEADS:
                raise BadNeighborPacket(f"a neighbour declares {len(heads)} heads, at most {MAX_CHAIN_HEADS} are kept")
            return NeighborPacket(heads)
        if data[: len(_QUEUE)] == _QUEUE:
            plain = _TYPES.decode("ParachainMessages", data[len(_QUEUE) :], "a gossiped queue", limit)
            return GossipedQueue(plain["queue_root"], tuple(plain["messages"]))
    except FailedToDecode as error:
        raise Malformed(str(error)) from error
    raise Malformed(f"a gossip message starts with {data[:2].hex() or 'nothing'}, known are 0101 and 03")


def verify_gossiped_queue(
    queue: GossipedQueue, expected: Container[bytes], limit: int = MAX_PROOF_BYTES
) -> tuple[Step, ...]:
    """Verify a gossiped queue: expected root, matching messages (ICMP reference 3.7).

    Args:
        queue: the queue.
        expected: roots listed as unrouted.
        limit: most bytes of all messages.

    Returns:
        One step, from the messages to the root.

    Raises:
        UnexpectedQueue: the root is not in ``expected``; checked before any hashing.
        RootMismatch: the messages hash to another root.
        OverLimit: the messages exceed ``limit`` bytes.
    """
    if queue.root not in expected:
        raise UnexpectedQueue(f"no leaf lists the queue root {queue.root.hex()} as unrouted")
    return verify_queue(queue.root, queue.messages, limit=limit)
