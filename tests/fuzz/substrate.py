"""Trie nodes, storage proofs, compact integers and SCALE types of XDM under arbitrary bytes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from causeway_proofs.errors import ProofError
from causeway_proofs.mmr.mountain_range import leaf_hash
from causeway_proofs.substrate.byte_columns import decode_compact, encode_compact
from causeway_proofs.substrate.egress import (
    GossipedQueue,
    NeighborPacket,
    decode_gossip,
    egress_root,
    verify_gossiped_queue,
)
from causeway_proofs.substrate.node import StateVersion, decode_node
from causeway_proofs.substrate.proof import read_storage_proof, verify_storage_proof
from causeway_proofs.substrate.storage_keys import blake2_256
from causeway_proofs.substrate.trie import Trie, prove
from causeway_proofs.xdm.envelope import (
    OUTBOX,
    ConsensusChainMmrProof,
    CrossDomainMessage,
    EnvelopeProof,
    ExecutionReceipt,
    MmrLeaf,
    message_storage_key,
    open_envelope,
    verify_cross_domain_message,
)
from causeway_proofs.xdm.messages import (
    CONSENSUS,
    ChainId,
    ChannelOpen,
    CollectedFee,
    DispatchError,
    EndpointRequest,
    Message,
    ProtocolResponse,
    WeightTag,
)

from tests.oracles.mmr import MountainRange, prove_leaves
from tests.oracles.xdm.channels import Channel
from tests.support.properties.storage_both_ways import Case, require_same

KEYS = [b"a", b"ab", b"abc", b"b" * 40, bytes(33)]
STATE = Trie.build(KEYS, [b"1", b"2" * 31, b"3" * 40, b"", b"5" * 300], StateVersion.V1)
OPEN = Message(ChainId(1), CONSENSUS, 0, 0, ChannelOpen(25))
OUTBOX_STATE = Trie.build([message_storage_key(OUTBOX, CONSENSUS, 0, 0), b"other"], [OPEN.encode(), b"x" * 50])
ENVELOPE = CrossDomainMessage(
    ChainId(1),
    CONSENSUS,
    0,
    0,
    EnvelopeProof(
        ConsensusChainMmrProof(1, bytes(32), b"leaf", (1, 2), 3, (bytes(32), b"\x01" * 32)),
        tuple(prove(OUTBOX_STATE, [message_storage_key(OUTBOX, CONSENSUS, 0, 0)])),
    ),
    WeightTag("EndpointRequest", 7),
)
RECEIPT = bytes(256)
QUEUE = (b"one", b"two" * 30, b"")
QUEUE_ROOT = egress_root(QUEUE)


def confirmed() -> tuple[bytes, CrossDomainMessage]:
    """Return a root of a mountain range, and the envelope with the proof of its state's block under it."""
    leaves = [MmrLeaf(block, bytes(32), OUTBOX_STATE.root, bytes(32)).encode() for block in range(5)]
    mountains = MountainRange()
    for leaf in leaves:
        mountains.append(leaf_hash(leaf))
    made = prove_leaves(mountains, [2])
    mmr = ConsensusChainMmrProof(1, bytes(32), leaves[2], made.leaf_indices, made.leaf_count, made.items)
    return mountains.root(), replace(ENVELOPE, proof=replace(ENVELOPE.proof, consensus_chain_mmr_proof=mmr))


MMR_ROOT, CARRIER = confirmed()


def joined(parts: list[bytes]) -> bytes:
    """Return nodes as one string, each after its length in two bytes."""
    return b"".join([len(part).to_bytes(2, "little") + part for part in parts])


def parted(data: bytes) -> list[bytes]:
    """Return the nodes of such a string; the last one may be truncated."""
    parts, offset = [], 0
    while offset + 2 <= len(data):
        length = int.from_bytes(data[offset : offset + 2], "little")
        parts.append(data[offset + 2 : offset + 2 + length])
        offset += 2 + length
    return parts


def nodes(data: bytes) -> None:
    with suppress(ProofError):
        decode_node(data)


def compact(data: bytes) -> None:
    try:
        number, end = decode_compact(data, 0, "the input")
    except ProofError:
        return
    assert encode_compact(number) == data[:end]


def proofs(data: bytes) -> None:
    given = parted(data)
    try:
        reads = read_storage_proof(STATE.root, given, [*KEYS, b"absent", b""])
    except ProofError:
        return
    for read in reads:
        assert read.value is None or read.value == STATE.get(read.key)
    try:
        verify_storage_proof(STATE.root, given, {b"absent": b"forged"})
    except ProofError:
        return
    raise AssertionError("a proof of what is not there was accepted")


def own_roots(data: bytes) -> None:
    """Walk from a root chosen by the input: anything may hang below it."""
    given = parted(data)
    if not given:
        return
    with suppress(ProofError):
        read_storage_proof(blake2_256(given[0]), given, [*KEYS, b"", bytes(100)])


def proofs_in_columns(data: bytes) -> None:
    """Several proofs at once, one of them under a root chosen by the input: verdicts equal those of each alone."""
    given = parted(data)
    claims = tuple((key, STATE.get(key)) for key in (*KEYS, b"absent", b"", bytes(100)))
    halves = given[: len(given) // 2], given[len(given) // 2 :]
    cases = [Case(STATE.root, tuple(given), claims), Case(STATE.root, tuple(halves[0]), claims[:1], StateVersion.V0)]
    cases += [Case(blake2_256(part), tuple(given), claims) for part in given[:3]]
    require_same([*cases, Case(STATE.root, tuple(halves[1]), claims[1:3])])


def messages(data: bytes) -> None:
    try:
        message = Message.decode(data)
    except ProofError:
        return
    assert message.encode() == data


def envelopes(data: bytes) -> None:
    try:
        envelope = CrossDomainMessage.decode(data)
        assert envelope.encode() == data
        message, _ = open_envelope(OUTBOX_STATE.root, envelope, response=False, strict_envelope=False)
    except ProofError:
        return
    assert message == OPEN


def carriers(data: bytes) -> None:
    try:
        envelope = CrossDomainMessage.decode(data)
        message, _ = verify_cross_domain_message(MMR_ROOT, envelope, response=False, strict_envelope=False)
    except ProofError:
        return
    assert message == OPEN


def gossip(data: bytes) -> None:
    try:
        heard = decode_gossip(data)
        assert heard.encode() == data
        if isinstance(heard, GossipedQueue):
            verify_gossiped_queue(heard, {QUEUE_ROOT})
            assert heard.messages == QUEUE
    except ProofError:
        return


def receipts(data: bytes) -> None:
    try:
        receipt = ExecutionReceipt.decode(data)
    except ProofError:
        return
    assert receipt.encode() == data


def channels(data: bytes) -> None:
    for version in (0, 1):
        try:
            channel = Channel.decode(data, version=version)
        except ProofError:
            continue
        assert channel.encode() == data


def leaves(data: bytes) -> None:
    try:
        leaf = MmrLeaf.decode(data)
    except ProofError:
        return
    assert leaf.encode() == data


TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "substrate_nodes": (nodes, [part for key in KEYS for part in prove(STATE, [key])]),
    "substrate_compact": (compact, [encode_compact(1 << exponent) for exponent in (0, 6, 14, 30, 32, 64, 535)]),
    "substrate_proofs": (proofs, [joined(prove(STATE, [key])) for key in KEYS] + [joined(prove(STATE, KEYS))]),
    "substrate_own_roots": (own_roots, [joined(prove(STATE, [key])[::-1]) for key in KEYS]),
    "substrate_proofs_in_columns": (
        proofs_in_columns,
        [joined(prove(STATE, [key])[::-1]) for key in KEYS] + [joined(prove(STATE, KEYS))],
    ),
    "xdm_messages": (
        messages,
        [
            OPEN.encode(),
            Message(
                ChainId(1), ChainId(2), 1, 1 << 70, EndpointRequest(1, 2, b"payload", CollectedFee(3, 4)), 5
            ).encode(),
            Message(CONSENSUS, ChainId(0), 0, 0, ProtocolResponse(DispatchError("Module", bytes(5)))).encode(),
        ],
    ),
    "xdm_envelopes": (envelopes, [ENVELOPE.encode()]),
    "xdm_carriers": (carriers, [CARRIER.encode()]),
    "icmp_gossip": (
        gossip,
        [NeighborPacket((bytes(32), b"\x01" * 32)).encode(), GossipedQueue(QUEUE_ROOT, QUEUE).encode()],
    ),
    "xdm_receipts": (receipts, [RECEIPT]),
    "xdm_channels": (channels, [Channel(0).encode(), Channel(1, relay_fee=2, maybe_owner=bytes(32)).encode()]),
    "xdm_leaves": (leaves, [MmrLeaf(1, bytes(32), bytes(32), bytes(32)).encode()]),
}
"""By name: a function that passes only genuine errors, and the seeds to start from."""
