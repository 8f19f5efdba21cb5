"""Message queue chains: the hash chains of HRMP channels and of downward queues (ICMP reference, X-6).

```
head' = H(head || u32le(sent_at) || H(SCALE(data)))       SCALE(data) = Compact(length) data, first head = 32 zero bytes
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import MalformedProof, OverLimit
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.limits import MAX_PROOF_BYTES
from causeway.proofs.steps import Step
from causeway.proofs.substrate.compact import encode_compact
from causeway.proofs.substrate.errors import HeadMismatch
from causeway.proofs.substrate.hashing import blake2_256

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
    content = blake2_256(encode_compact(len(message.data)) + message.data)
    return blake2_256(head + message.sent_at.to_bytes(_BLOCK_NUMBER_BYTES, "little") + content)


def heads(messages: Iterable[QueuedMessage], head: bytes = FIRST_HEAD) -> list[bytes]:
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
        found = heads(messages, previous)
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
