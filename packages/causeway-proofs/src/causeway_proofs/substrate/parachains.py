"""A relay chain's state of its parachains: keys, posted queues, message queue chains.

```
Parachains.Heads(p)               Vec<u8>, the hash of p's last included block
Parachains.Watermarks(p)          (u32 number, hash) of the relay block up to which p has consumed (ICMP reference D-11)
Parachains.UnroutedIngress(n, p)  Vec<(u32 sender, root)>: posted by relay block n to p, above p's watermark
Parachains.Blocked(x, p)          u32: the relay block since which p hears nothing from x (ICMP reference 5.1)
```

Each is an entry of the state's trie (layout V1), under ``Twox64Concat`` of its SCALE key: maps of 32-bit numbers, which
can be read back from their keys.

A message queue chain is the hash chain of an HRMP channel or a downward queue (ICMP reference, X-6):

```
head' = H(head || u32le(sent_at) || H(SCALE(data)))       SCALE(data) = Compact(length) data, first head = 32 zero bytes
```

Reference:
    ICMP reference 3.1, X-6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from causeway_proofs.errors import InvalidInput, MalformedProof, OverLimit
from causeway_proofs.hashing import DIGEST_BYTES, blake2_256
from causeway_proofs.limits import MAX_PROOF_BYTES
from causeway_proofs.steps import Step
from causeway_proofs.substrate.byte_columns import decode_compact, encode_compact
from causeway_proofs.substrate.errors import FailedToDecode, HeadMismatch, MissingValue
from causeway_proofs.substrate.node import StateVersion
from causeway_proofs.substrate.ordered_lists import ordered_key
from causeway_proofs.substrate.proof import read_value, verify_storage_proof
from causeway_proofs.substrate.storage_keys import storage_key, storage_prefix, twox_64_concat

PALLET, HEADS, WATERMARKS, UNROUTED, BLOCKED = "Parachains", "Heads", "Watermarks", "UnroutedIngress", "Blocked"

U32_BYTES = 4

_PAIR_BYTES = U32_BYTES + DIGEST_BYTES


def block_hash(parent: bytes, number: int, root: bytes, rest: bytes) -> bytes:
    """Return the hash of a SCALE header: parent, number, state root and ``rest``."""
    return blake2_256(parent + encode_compact(number) + root + rest)


def relay_rest(included: bytes, leaf: int) -> bytes:
    """Return the rest of a relay header: root of included heads, and leaf unless 0.

    The leaf number distinguishes blocks with equal receipts.
    """
    return included + (bytes([leaf]) if leaf else b"")


def heads_key(para: int) -> bytes:
    """Return the storage key of a parachain's head.

    Args:
        para: number of the parachain.

    Returns:
        The key.
    """
    return storage_key(PALLET, HEADS, (twox_64_concat, encode_u32(para)))


def watermark_key(para: int) -> bytes:
    """Return the storage key of a parachain's watermark.

    Args:
        para: number of the parachain.

    Returns:
        The key.
    """
    return storage_key(PALLET, WATERMARKS, (twox_64_concat, encode_u32(para)))


def unrouted_key(number: int, to: int) -> bytes:
    """Return the storage key of the queues that a relay block posted to a parachain.

    Args:
        number: number of the relay block.
        to: number of the receiving parachain.

    Returns:
        The key.
    """
    return storage_key(PALLET, UNROUTED, (twox_64_concat, unrouted_map_key(number, to)))


def unrouted_map_key(number: int, to: int) -> bytes:
    """Return the SCALE map key of posted queues: the relay block's number and the parachain."""
    return encode_u32(number) + encode_u32(to)


def blocked_key(source: int, to: int) -> bytes:
    """Return the key of the block since which ``to`` ignores ``source`` (ICMP reference 5.1)."""
    return storage_key(PALLET, BLOCKED, (twox_64_concat, encode_u32(source) + encode_u32(to)))


def encode_u32(number: int) -> bytes:
    """Encode a 32-bit number in SCALE.

    Raises:
        InvalidInput: the number needs more bits.
    """
    if not 0 <= number < 1 << 8 * U32_BYTES:
        raise InvalidInput(f"a ParaId or a block's number has 32 bits, {number} has not")
    return number.to_bytes(U32_BYTES, "little")


def encode_watermark(number: int, block_hash: bytes) -> bytes:
    """Encode a watermark entry (ICMP reference D-11).

    Args:
        number: number of the relay block, u32.
        block_hash: its hash, 32 bytes.

    Returns:
        The entry's value.
    """
    return encode_u32(number) + block_hash


def encode_queues(queues: Sequence[tuple[int, bytes]]) -> bytes:
    """Encode the queues posted to one parachain.

    Args:
        queues: sender and root of each queue.

    Returns:
        The entry's value.
    """
    return encode_compact(len(queues)) + b"".join([encode_u32(para) + root for para, root in queues])


def decode_queues(data: bytes) -> list[tuple[int, bytes]]:
    """Decode the queues posted to one parachain.

    Args:
        data: the entry's value.

    Returns:
        Sender and root of each queue.

    Raises:
        FailedToDecode: ``data`` is not a list of queues, or its senders do not ascend.
    """
    count, start = decode_compact(data, 0, "a list of posted queues")
    if len(data) - start != count * _PAIR_BYTES:
        raise FailedToDecode(f"a list of {count} posted queues has {len(data) - start} bytes behind its count")
    found: list[tuple[int, bytes]] = []
    for at in range(start, len(data), _PAIR_BYTES):
        sender = int.from_bytes(data[at : at + U32_BYTES], "little")
        if found and sender <= found[-1][0]:
            raise FailedToDecode("the senders of posted queues do not ascend")
        found.append((sender, data[at + U32_BYTES : at + _PAIR_BYTES]))
    return found


def verify_posted_queue(
    state_root: bytes, nodes: Sequence[bytes], block: int, sender: int, recipient: int
) -> tuple[bytes, tuple[Step, ...]]:
    """Verify that a relay block posted a queue, and return the queue's root.

    Args:
        state_root: root of a relay block's state, 32 bytes.
        nodes: nodes of the storage proof.
        block: number of the posting relay block.
        sender: number of the sending parachain.
        recipient: number of the receiving parachain.

    Returns:
        The root of the queue, and the path to the state root.

    Raises:
        MissingValue: the block posted no such queue, or it was consumed.
        InvalidProof, UnusedNodesInTheProof, OverLimit, FailedToDecode: the proof is invalid.
    """
    value, path = read_value(state_root, nodes, unrouted_key(block, recipient))
    found = dict(decode_queues(value))
    if sender not in found:
        senders = ", ".join(str(other) for other in found)
        raise MissingValue(f"relay block {block} posted queues to {recipient} of {senders}, none of {sender}")
    posted = Step("queue", f"of {sender} to {recipient}, posted by relay block {block}", found[sender])
    return found[sender], (posted, *path)


def verify_queued_message(root: bytes, nodes: Sequence[bytes], index: int, message: bytes) -> tuple[Step, ...]:
    """Verify the message at ``index`` of an egress queue (ICMP reference 2.3).

    Args:
        root: root of the queue, 32 bytes.
        nodes: nodes of the queue's trie.
        index: position in the queue, from 0.
        message: the claimed message.

    Returns:
        The path to the queue's root.

    Raises:
        MissingValue: the queue is shorter.
        NotProven: the queue holds another message there.
        InvalidProof, UnusedNodesInTheProof, OverLimit: the proof is invalid.
    """
    return verify_storage_proof(root, nodes, {ordered_key(index): message}, StateVersion.V0)


HRMP, PARAS = "Hrmp", "Paras"

HRMP_WATERMARKS, INGRESS_INDEX, DIGESTS = "HrmpWatermarks", "HrmpIngressChannelsIndex", "HrmpChannelDigests"
CHANNELS, CONTENTS = "HrmpChannels", "HrmpChannelContents"

_NUMBERS = {
    (PALLET, HEADS): 1,
    (PALLET, WATERMARKS): 1,
    (PALLET, UNROUTED): 2,
    (PALLET, BLOCKED): 2,
    (PARAS, HEADS): 1,
    (PARAS, "ParaLifecycles"): 1,
    (HRMP, HRMP_WATERMARKS): 1,
    (HRMP, INGRESS_INDEX): 1,
    (HRMP, "HrmpEgressChannelsIndex"): 1,
    (HRMP, DIGESTS): 1,
    (HRMP, CHANNELS): 2,
    (HRMP, CONTENTS): 2,
    (HRMP, "HrmpOpenChannelRequests"): 2,
    (HRMP, "HrmpCloseChannelRequests"): 2,
    (HRMP, "HrmpOpenChannelRequestCount"): 1,
    (HRMP, "HrmpAcceptedChannelRequestCount"): 1,
}
"""Count of numbers in a key, by pallet and item."""

PREFIX_BYTES = 32
_U32_BYTES, _HASH_BYTES = 4, 8


@cache
def _items() -> dict[bytes, tuple[str, str]]:
    return {storage_prefix(pallet, item): (pallet, item) for pallet, item in _NUMBERS}


def describe_storage_key(key: bytes) -> tuple[str, str, tuple[int, ...]] | None:
    """Return the pallet, item and numbers of a storage key, or None for an unknown item."""
    found = _items().get(key[:PREFIX_BYTES])
    if found is None:
        return None
    hashed = key[PREFIX_BYTES:]
    plain = hashed[_HASH_BYTES:]
    if len(plain) != _U32_BYTES * _NUMBERS[found] or twox_64_concat(plain) != hashed:
        return None
    numbers = [plain[at : at + _U32_BYTES] for at in range(0, len(plain), _U32_BYTES)]
    return (*found, tuple(int.from_bytes(number, "little") for number in numbers))


FIRST_HEAD = bytes(DIGEST_BYTES)
"""Head of a channel without messages."""

_BLOCK_NUMBER_BYTES = 4


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message of a channel.

    Attributes:
        sent_at: number of the relay block that carried it, u32.
        data: its bytes.
    """

    sent_at: int
    data: bytes


def extend_head(head: bytes, message: QueuedMessage) -> bytes:
    """Return the head after ``message``.

    Args:
        head: the previous head, 32 bytes.
        message: the appended message.

    Returns:
        The new head, 32 bytes.

    Raises:
        InvalidInput: ``sent_at`` does not fit 32 bits, or the head is not 32 bytes long.
    """
    if len(head) != DIGEST_BYTES:
        raise InvalidInput(f"a head has {DIGEST_BYTES} bytes, not {len(head)}")
    if not 0 <= message.sent_at < 1 << 8 * _BLOCK_NUMBER_BYTES:
        raise InvalidInput(f"sent_at is a block number of 32 bits, not {message.sent_at}")
    content = blake2_256(encode_compact(len(message.data)) + message.data)
    return blake2_256(head + message.sent_at.to_bytes(_BLOCK_NUMBER_BYTES, "little") + content)


def chain_heads(messages: Iterable[QueuedMessage], head: bytes = FIRST_HEAD) -> list[bytes]:
    """Return the head after each of ``messages``.

    Args:
        messages: messages in order.
        head: the head before the first one.

    Returns:
        One head a message.
    """
    found = []
    for message in messages:
        head = extend_head(head, message)
        found.append(head)
    return found


def verify_message_queue_chain(previous: bytes, messages: Sequence[QueuedMessage], head: bytes) -> tuple[Step, ...]:
    """Verify that ``messages``, complete and in order, link the head ``previous`` to ``head``.

    Args:
        previous: the earlier head, 32 bytes.
        messages: the messages between the heads.
        head: the trusted later head, 32 bytes.

    Returns:
        One step a link.

    Raises:
        HeadMismatch: the messages lead to another head.
        MalformedProof: a head is not 32 bytes long, or a ``sent_at`` does not fit 32 bits.
        OverLimit: the messages exceed 8 MiB.
    """
    size = sum(len(message.data) for message in messages)
    if size > MAX_PROOF_BYTES:
        raise OverLimit(f"the messages of a channel have {size} bytes, at most {MAX_PROOF_BYTES} are read")
    if len(head) != DIGEST_BYTES:
        raise MalformedProof(f"a head has {DIGEST_BYTES} bytes, not {len(head)}")
    try:
        found = chain_heads(messages, previous)
    except InvalidInput as error:
        raise MalformedProof(str(error)) from error
    last = found[-1] if found else previous
    if last != head:
        raise HeadMismatch(f"{len(messages)} messages lead to the head {last.hex()}, not to {head.hex()}")
    return tuple(
        Step("link", f"sent at block {message.sent_at}, {len(message.data)} bytes", reached)
        for message, reached in zip(messages, found, strict=True)
    )


def verify_channels(
    previous: Mapping[int, bytes], received: Iterable[tuple[int, QueuedMessage]], proven: Mapping[int, bytes]
) -> tuple[Step, ...]:
    """Verify all channels of one receiver, merged by block and sender (ICMP reference, X-6).

    Args:
        previous: last known head of each sender's channel.
        received: sender and message, ascending by block and sender.
        proven: head of every channel, proven by the relay chain's state, also of channels without new messages.

    Returns:
        The links of all channels.

    Raises:
        HeadMismatch: a channel's messages do not lead to its proven head, or a message has no channel.
        MalformedProof: messages do not ascend by block and sender; or as for one channel.
    """
    order = -1, -1
    channels: dict[int, list[QueuedMessage]] = {sender: [] for sender in proven}
    for sender, message in received:
        if (message.sent_at, sender) < order:
            raise MalformedProof(f"a message sent at block {message.sent_at} by {sender} comes after a later one")
        order = message.sent_at, sender
        if sender not in channels:
            raise HeadMismatch(f"a message from {sender} came over no channel that the state knows")
        channels[sender].append(message)
    return tuple(
        step
        for sender in sorted(channels)
        for step in verify_message_queue_chain(previous.get(sender, FIRST_HEAD), channels[sender], proven[sender])
    )
