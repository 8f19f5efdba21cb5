"""What a relay chain's state says of its parachains, and messages of egress queues under it (ICMP reference 3.1).

```
Parachains.Heads(p)               Vec<u8>, the hash of p's last block that was included
Parachains.Watermarks(p)          (u32 number, hash) of the relay block up to which p has consumed (ICMP reference D-11)
Parachains.UnroutedIngress(n, p)  Vec<(u32 sender, root)>: what relay block n posted to p, above p's watermark
Parachains.Blocked(x, p)          u32: the relay block since which p hears nothing from x (ICMP reference 5.1)
```
Each is an entry of the state's trie (layout V1), under ``Twox64Concat`` of its SCALE key.

Items of a relay chain's storage that keys name, so that a reader sees what they are of (ICMP reference 3.1, X-6).

All are maps under ``Twox64Concat`` of numbers of 32 bits, which therefore stand in their keys.

Message queue chains: the hash chains of HRMP channels and of downward queues (ICMP reference, X-6).

```
head' = H(head || u32le(sent_at) || H(SCALE(data)))       SCALE(data) = Compact(length) data, first head = 32 zero bytes
```
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
from causeway_proofs.substrate.storage_keys import blake2_256 as storage_keys_blake2_256
from causeway_proofs.substrate.storage_keys import storage_key, storage_prefix, twox_64_concat

PALLET, HEADS, WATERMARKS, UNROUTED, BLOCKED = "Parachains", "Heads", "Watermarks", "UnroutedIngress", "Blocked"

U32_BYTES = 4

_PAIR_BYTES = U32_BYTES + DIGEST_BYTES


def block_hash(parent: bytes, number: int, root: bytes, rest: bytes) -> bytes:
    """Return the hash of a block of the relay chain or a parachain here: of its header in SCALE, parent, number, the
    root of its state, and ``rest``."""
    return blake2_256(parent + encode_compact(number) + root + rest)


def relay_rest(included: bytes, leaf: int) -> bytes:
    """Return the rest of a relay block's header: the root of the list of heads that it included, and what its author
    adds: the number of its leaf, but for 0. So blocks stay apart whose leaves have the same receipts."""
    return included + (bytes([leaf]) if leaf else b"")


def heads_key(para: int) -> bytes:
    """Return the key of a parachain's head."""
    return storage_key(PALLET, HEADS, (twox_64_concat, encode_u32(para)))


def watermark_key(para: int) -> bytes:
    """Return the key of a parachain's watermark."""
    return storage_key(PALLET, WATERMARKS, (twox_64_concat, encode_u32(para)))


def unrouted_key(number: int, to: int) -> bytes:
    """Return the key of the queues to a parachain that a relay block posted."""
    return storage_key(PALLET, UNROUTED, (twox_64_concat, unrouted_map_key(number, to)))


def unrouted_map_key(number: int, to: int) -> bytes:
    """Return what the key of posted queues is the hash of: the relay block's number and the parachain."""
    return encode_u32(number) + encode_u32(to)


def blocked_key(source: int, to: int) -> bytes:
    """Return the key of the relay block since which a parachain hears nothing from another (ICMP reference 5.1)."""
    return storage_key(PALLET, BLOCKED, (twox_64_concat, encode_u32(source) + encode_u32(to)))


def encode_u32(number: int) -> bytes:
    """Return a number of 32 bits in SCALE.

    Raises:
        InvalidInput: it has more.
    """
    if not 0 <= number < 1 << 8 * U32_BYTES:
        raise InvalidInput(f"a ParaId or a block's number has 32 bits, {number} has not")
    return number.to_bytes(U32_BYTES, "little")


def encode_watermark(number: int, block_hash: bytes) -> bytes:
    """Return a watermark as its entry has it: the relay block's number (u32) and hash (ICMP reference D-11)."""
    return encode_u32(number) + block_hash


def encode_queues(queues: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the posted queues (sender, root) to one parachain as their entry has them."""
    return encode_compact(len(queues)) + b"".join([encode_u32(para) + root for para, root in queues])


def decode_queues(data: bytes) -> list[tuple[int, bytes]]:
    """Return the posted queues (sender, root) that an entry has.

    Raises:
        FailedToDecode: it is no list of queues, or its senders do not ascend.
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
    """Return the root of the queue of ``sender`` to ``recipient`` that the relay block number ``block`` posted, and
    the path to the state root.

    Raises:
        MissingValue: the block posted none, or it has been consumed.
        InvalidProof, UnusedNodesInTheProof, OverLimit, FailedToDecode: the proof shows nothing of that kind.
    """
    value, path = read_value(state_root, nodes, unrouted_key(block, recipient))
    found = dict(decode_queues(value))
    if sender not in found:
        senders = ", ".join(str(other) for other in found)
        raise MissingValue(f"relay block {block} posted queues to {recipient} of {senders}, none of {sender}")
    posted = Step("queue", f"of {sender} to {recipient}, posted by relay block {block}", found[sender])
    return found[sender], (posted, *path)


def verify_queued_message(root: bytes, nodes: Sequence[bytes], index: int, message: bytes) -> tuple[Step, ...]:
    """Return the path of the message at place ``index`` of an egress queue to the queue's root (ICMP reference 2.3).

    Raises:
        MissingValue: the queue is shorter.
        NotProven: another message is there.
        InvalidProof, UnusedNodesInTheProof, OverLimit: the proof shows nothing of that kind.
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
"""By pallet and item, of how many numbers a key is."""

PREFIX_BYTES = 32
_U32_BYTES, _HASH_BYTES = 4, 8


@cache
def _items() -> dict[bytes, tuple[str, str]]:
    return {storage_prefix(pallet, item): (pallet, item) for pallet, item in _NUMBERS}


def describe_storage_key(key: bytes) -> tuple[str, str, tuple[int, ...]] | None:
    """Return the pallet, the item and the numbers that a storage key is of; None: it is of no item that is known."""
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
"""The head of a channel in which no message was sent yet."""

_BLOCK_NUMBER_BYTES = 4


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message of a channel: the relay block in which it was sent (u32), and its bytes."""

    sent_at: int
    data: bytes


def extend_head(head: bytes, message: QueuedMessage) -> bytes:
    """Return the head after ``message``.

    Raises:
        InvalidInput: ``sent_at`` does not fit 32 bits, or the head has not 32 bytes.
    """
    if len(head) != DIGEST_BYTES:
        raise InvalidInput(f"a head has {DIGEST_BYTES} bytes, not {len(head)}")
    if not 0 <= message.sent_at < 1 << 8 * _BLOCK_NUMBER_BYTES:
        raise InvalidInput(f"sent_at is a block number of 32 bits, not {message.sent_at}")
    content = storage_keys_blake2_256(encode_compact(len(message.data)) + message.data)
    return storage_keys_blake2_256(head + message.sent_at.to_bytes(_BLOCK_NUMBER_BYTES, "little") + content)


def chain_heads(messages: Iterable[QueuedMessage], head: bytes = FIRST_HEAD) -> list[bytes]:
    """Return the head after each of ``messages``, starting from ``head``."""
    found = []
    for message in messages:
        head = extend_head(head, message)
        found.append(head)
    return found


def verify_message_queue_chain(previous: bytes, messages: Sequence[QueuedMessage], head: bytes) -> tuple[Step, ...]:
    """Return the links that lead from the head ``previous`` over ``messages``, all and in order, to ``head``.

    Raises:
        HeadMismatch: they lead somewhere else.
        MalformedProof: a head has not 32 bytes, or a ``sent_at`` does not fit 32 bits.
        OverLimit: the messages have more than 8 MiB.
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
    """Return the links of all channels of one receiver, merged by block and sender (ICMP reference, X-6).

    ``previous`` are the heads that the receiver last saw, by sender; ``received`` its new messages with their senders;
    ``proven`` the heads that the relay chain's state proves now, of every channel, also those without messages.

    Raises:
        HeadMismatch: a channel's messages do not lead to its proven head, or a message came over no channel.
        MalformedProof: messages are not ascending by block and, in a block, by sender; or as for one channel.
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
