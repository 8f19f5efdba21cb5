"""Egress queues: their roots, and the topics they are gossiped under (ICMP reference 2.1, 2.3 and 2.4).

```
R(E(B, x, y))                     root of the queue that x's block, included in B, issued to y (layout V0)
R(Ingress(B, p)) = { y -> R(E(B, y, p)) }
queueTopic(h) = H(h || "message_queue")        h: the relay block of the queue, or the queue's root (topic_mode)
attestation topic = H(relay parent || "attestations")
from topic = H(block || "from" || x), to topic = H(block || "to" || y)        per sender and recipient (5.1, 3)
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.order import U64, groups_of, stable_order
from causeway.proofs.errors import OverLimit
from causeway.proofs.hashing import Digests
from causeway.proofs.limits import MAX_PROOF_BYTES
from causeway.proofs.steps import Step
from causeway.proofs.substrate.byte_columns import byte_column
from causeway.proofs.substrate.errors import RootMismatch
from causeway.proofs.substrate.hashing import blake2_256
from causeway.proofs.substrate.node import EMPTY_ROOT, StateVersion
from causeway.proofs.substrate.ordered import ordered_root, ordered_roots

_QUEUE = b"message_queue"
_ATTESTATIONS = b"attestations"
_PARA_ID_BYTES = 4


def egress_root(messages: Sequence[bytes], version: StateVersion = StateVersion.V0) -> bytes:
    """Return R(L) of the messages of one queue, in order: 32 bytes."""
    return ordered_root(messages, version)


def egress_queue_roots(outgoing: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Return what a candidate receipt posts: one root per recipient with messages, ascending (ICMP 2.2 and 3.4).

    ``outgoing`` are the recipient and bytes of each message in the order of sending, which stays within a queue.
    """
    queues: dict[int, list[bytes]] = {}
    for recipient, message in outgoing:
        queues.setdefault(recipient, []).append(message)
    return [(recipient, egress_root(queues[recipient])) for recipient in sorted(queues)]


def posted_queue_roots(
    senders: U64, recipients: U64, messages: pa.Array | Iterable[bytes], version: StateVersion = StateVersion.V0
) -> tuple[U64, U64, Digests]:
    """Return what the candidate receipts of many senders post: ``egress_queue_roots`` of each, in columns.

    Args:
        senders, recipients: of each message, in the order of sending, which stays within a queue.
        messages: their bytes.
        version: the layout of the queues' tries.

    Returns:
        Sender and recipient of each queue, ascending, and its root, shape (queues, 32).

    Raises:
        InvalidInput: a message is null or no byte string, or there are not as many of each.
    """
    column = byte_column(messages)
    if not len(senders) == len(recipients) == len(column):
        raise InvalidInput(
            f"{len(senders)} senders and {len(recipients)} recipients are given with {len(column)} messages"
        )
    order = stable_order(senders, recipients)
    senders, recipients = senders[order], recipients[order]
    queues = groups_of(senders, recipients)
    roots = ordered_roots(column.take(pa.array(order)), queues, version)
    return senders[queues.starts], recipients[queues.starts], roots


def block_ingress_roots(posted: Mapping[int, Sequence[tuple[int, bytes]]], recipient: int) -> list[tuple[int, bytes]]:
    """Return R(Ingress(B, p)): sender and root of each queue to ``recipient``, ascending by sender, no empty ones.

    ``posted`` are the egress queue roots of each sender's receipt in the block.
    """
    return [
        (sender, root)
        for sender in sorted(posted)
        if sender != recipient
        for to, root in posted[sender]
        if to == recipient and root != EMPTY_ROOT
    ]


def verify_queue(
    root: bytes,
    messages: Sequence[bytes],
    version: StateVersion = StateVersion.V0,
    limit: int = MAX_PROOF_BYTES,
) -> tuple[Step, ...]:
    """Return the step that shows that ``messages`` are the queue of ``root``.

    Raises:
        RootMismatch: they are not: one is changed, moved, missing or repeated, or there is one more.
        OverLimit: they have more than ``limit`` bytes.
    """
    require_size(messages, limit)
    found = egress_root(messages, version)
    if found != root:
        raise RootMismatch(f"{len(messages)} messages hash to the root {found.hex()}, not to {root.hex()}")
    return (Step("root", f"{len(messages)} messages in order", found),)


def require_size(messages: Iterable[bytes], limit: int) -> None:
    """Refuse messages of together more than ``limit`` bytes before anything is hashed.

    Raises:
        OverLimit: they have more.
    """
    size = sum(map(len, messages))
    if size > limit:
        raise OverLimit(f"the messages of a queue have {size} bytes, at most {limit} are read")


def queue_topic(block_hash_or_root: bytes) -> bytes:
    """Return queueTopic(h): H(h || "message_queue")."""
    return blake2_256(block_hash_or_root + _QUEUE)


def attestation_topic(relay_parent: bytes) -> bytes:
    """Return the topic of attestations on a relay parent: H(hash || "attestations")."""
    return blake2_256(relay_parent + _ATTESTATIONS)


def from_topic(block_hash: bytes, sender: int) -> bytes:
    """Return the topic of what a parachain sends in a block: H(hash || "from" || u32le(x))."""
    return _parachain_topic(block_hash, b"from", sender)


def to_topic(block_hash: bytes, recipient: int) -> bytes:
    """Return the topic of what a parachain receives in a block: H(hash || "to" || u32le(y))."""
    return _parachain_topic(block_hash, b"to", recipient)


def _parachain_topic(block_hash: bytes, side: bytes, parachain: int) -> bytes:
    if not 0 <= parachain < 1 << 8 * _PARA_ID_BYTES:
        raise InvalidInput(f"a ParaId is a number of 32 bits, not {parachain}")
    return blake2_256(block_hash + side + parachain.to_bytes(_PARA_ID_BYTES, "little"))
