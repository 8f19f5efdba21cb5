"""What a relay chain's state says of its parachains, and messages of egress queues under it (ICMP reference 3.1).

```
Parachains.Heads(p)               Vec<u8>, the hash of p's last block that was included
Parachains.Watermarks(p)          (u32 number, hash) of the relay block up to which p has consumed (ICMP reference D-11)
Parachains.UnroutedIngress(n, p)  Vec<(u32 sender, root)>: what relay block n posted to p, above p's watermark
Parachains.Blocked(x, p)          u32: the relay block since which p hears nothing from x (ICMP reference 5.1)
```
Each is an entry of the state's trie (layout V1), under ``Twox64Concat`` of its SCALE key.
"""

from __future__ import annotations

from collections.abc import Sequence

from causeway.model.errors import InvalidInput
from causeway.proofs.hashing import DIGEST_BYTES, blake2_256
from causeway.proofs.steps import Step
from causeway.proofs.substrate.compact import decode_compact, encode_compact
from causeway.proofs.substrate.errors import FailedToDecode, MissingValue
from causeway.proofs.substrate.hashing import twox_64_concat
from causeway.proofs.substrate.node import StateVersion
from causeway.proofs.substrate.ordered import ordered_key
from causeway.proofs.substrate.proof import read_value, verify_storage_proof
from causeway.proofs.substrate.storage_keys import storage_key

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
