"""Topics of gossip, one by one (ICMP reference 2.4, 5.1): the kernel has them by columns."""

from __future__ import annotations

from causeway_proofs.errors import InvalidInput
from causeway_proofs.substrate.storage_keys import blake2_256

_QUEUE = b"message_queue"


_ATTESTATIONS = b"attestations"


_PARA_ID_BYTES = 4


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
