"""Cross-domain messages with all their proofs, from a lake under ``xdm`` (2.4, X-5).

    opened = open_lake("my-lake")
    proven = prove_message(opened, "left", "right", nonce=3, height=20)
    proven.envelope.encode()            # a CrossDomainMessage: mountain range, receipt, storage
    proven.root, proven.leaf_count      # of the mountain range

No part of a proof comes from the message's row: its bytes are read from the storage proof, the storage
root from the confirmed receipt, and that from the state root in the leaf. The whole proof is verified
before it is returned.

A chain's storage is the last state in a file plus the logged changes; nothing is executed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.substrate import StorageProofs, Tries, prove_storage
from causeway_proofs.substrate.errors import MissingValue
from causeway_proofs.substrate.proof import read_value
from causeway_proofs.xdm.envelope import (
    INBOX_RESPONSES,
    OUTBOX,
    ConsensusChainMmrProof,
    CrossDomainMessage,
    EnvelopeProof,
    ExecutionReceipt,
    MmrLeaf,
    message_storage_key,
    receipt_storage_key,
    verify_cross_domain_message,
)
from causeway_proofs.xdm.messages import (
    ChainId,
    ChannelClose,
    ChannelOpen,
    EndpointRequest,
    EndpointResponse,
    Message,
    ProtocolResponse,
    WeightTag,
)

from causeway.core.caches import cache_results
from causeway.core.frame import Frame, from_table
from causeway.core.vocabulary import REVERTED
from causeway.network.opened_lake import Mask, OpenedLake
from causeway.programs.runner import Programs
from causeway.protocols.contract import Tick
from causeway.protocols.shared.secrets import LISTED
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus.chain import ConsensusRanges, anchor_number
from causeway.protocols.xdm.context import block_number
from causeway.protocols.xdm.kernel import XdmKernel
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.state import RequestKind, State, state_of_frames
from causeway.protocols.xdm.storage import STORAGE_SCHEMA, ChainTries, storage_changes
from causeway.protocols.xdm.transactions import decode_lists
from causeway.proving.prover import NotAtHeight
from causeway.storage.lake import LakeError, Manifest

__all__ = [
    "ChainStorage",
    "ProvenMessage",
    "build_kernel",
    "find_height",
    "prove_message",
    "read_state",
    "read_storage",
    "rolled_back_height",
]

CACHED_LAKES = 16

KEPT_BYTES = 128 << 20
"""Cache size in bytes for storage of all lakes; at least one chain's is cached."""


@dataclass(frozen=True, eq=False)
class ChainStorage:
    """Storage of a chain after a block: trie ``number`` of ``tries``, with its root."""

    tries: Tries
    number: int
    root: bytes

    def prove(self, key: bytes) -> tuple[bytes, ...]:
        """Return the nodes that prove the value, or the absence, of a key, ascending."""
        return tuple(sorted(set(self.proofs(pa.array([key], pa.large_binary())).nodes_of(0))))

    def proofs(self, keys: pa.LargeBinaryArray) -> StorageProofs:
        """Build a proof for each key."""
        return prove_storage(self.tries, np.full(len(keys), self.number, dtype=np.int64), keys)


@dataclass(frozen=True)
class _Block:
    """Block of a chain at a height; blocks with equal storage roots compare equal."""

    root: bytes
    opened: OpenedLake = field(compare=False)
    position: int = field(compare=False)
    height: int = field(compare=False)


@lru_cache(maxsize=CACHED_LAKES)
def build_kernel(opened: OpenedLake) -> XdmKernel:
    """Build the kernel of a network under ``xdm``; it cannot run programs.

    Args:
        opened: The lake.

    Raises:
        InvalidInput: The network has another protocol.
    """
    if opened.protocol != "xdm":
        uri = opened.lake.storage.uri
        raise InvalidInput(f"lake: {uri} is of the protocol {opened.protocol}; only one of xdm has domains")
    no_programs = Programs(replace(opened.topology, programs=opened.topology.programs.slice(0, 0)))
    # A reader has no secret keys.
    options = {name: value for name, value in opened.options.items() if name != LISTED}
    return XdmKernel(opened.topology, no_programs, XdmOptions(**options), opened.seed, opened.tick_ns)


def read_state(opened: OpenedLake, manifest: Manifest, position: int, names: Sequence[str] | None = None) -> State:
    """Return a chain's state, or some of its tables; errors as of ``OpenedLake.state_rows``.

    Args:
        opened: The lake.
        manifest: Manifest of the height.
        position: Position of the chain.
        names: Names of the tables, by default all.
    """
    host_of = build_kernel(opened).network.host_of
    tables = opened.tables.state if names is None else names
    return state_of_frames({name: opened.state_rows(manifest, name, position, host_of) for name in tables}, {})


def read_storage(opened: OpenedLake, position: int, height: int) -> ChainStorage:
    """Return the storage of a chain after the block of a height.

    It is cached, or computed from an earlier state in a file and the logged changes on the same fork.

    Args:
        opened: The lake.
        position: Position of the chain.
        height: The height.

    Raises:
        LakeError: The height is not committed, its state was removed, or it contradicts the header.
    """
    header = _log_rows(opened, "headers", height, position, ["chain", "root"])
    if len(header) != 1:
        raise LakeError(f"lake: {opened.lake.storage.uri}: {opened.names[position]} has no header at height {height}")
    return _cached_storage(_Block(header["root"][0].tobytes(), opened, position, height))


def _compute_storage(block: _Block) -> ChainStorage:
    opened, position, height = block.opened, block.position, block.height
    kernel, lake = build_kernel(opened), opened.lake
    manifest, path = lake.manifest(height), list[int]()
    forks = _restored_heights(opened, position, height)
    # Walk back along the fork to a height whose state is in a file.
    while manifest.height < manifest.last:
        path.append(manifest.height)
        before = forks.get(manifest.height, manifest.height - 1)
        inside = manifest.first <= before
        manifest = manifest.at(before) if inside else lake.manifest(before)
    chains = np.array([position], dtype=np.uint32)
    tries = ChainTries.of(chains)
    state = read_state(opened, manifest, position)
    tries.change(storage_changes(None, state, kernel.context(chains, Tick(manifest.height, manifest.tick))))
    for later in reversed(path):
        tries.change(_log_rows(opened, "storage", later, position, STORAGE_SCHEMA.names))
    root = tries.roots(chains)[0].tobytes()
    if root != block.root:
        raise LakeError(
            f"lake: {lake.storage.uri}: the storage of {opened.names[position]} at height {height} has the root "
            f"{root.hex()}; its header has another"
        )
    return ChainStorage(tries.tries, tries.present[position], root)


_cached_storage = cache_results(_compute_storage, KEPT_BYTES, lambda storage: storage.tries.live_bytes)


def rolled_back_height(opened: OpenedLake, height: int) -> int:
    """Return the height whose state is current after a height: earlier if a fork restored it.

    Args:
        opened: The lake.
        height: The height.
    """
    return _restored_heights(opened, CONSENSUS_POSITION, height).get(height, height)


def _restored_heights(opened: OpenedLake, position: int, last: int) -> dict[int, int]:
    """Return the reverting heights of a chain up to ``last``, each with the height it restored."""
    lake = opened.lake
    if not lake.manifest(last).totals.get(REVERTED, 0):
        return {}
    rows = [row for path, seal in lake.log_files(REVERTED).items() for row in lake.sealed_table(path, seal).to_pylist()]
    return {row["height"]: row["first"] - 1 for row in rows if row["chain"] == position and row["height"] <= last}


def find_height(opened: OpenedLake, number: int, last: int) -> int:
    """Return the height, up to ``last``, of a block number.

    Args:
        opened: The lake.
        number: Number of the block.
        last: Last height to search.

    Raises:
        LakeError: There is none.
    """
    if number == 0:
        return 0
    lake = opened.lake
    height = bisect_left(range(last + 1), number, 1, key=lambda at: block_number(lake.manifest(at).tick))
    if height > last or block_number(lake.manifest(height).tick) != number:
        raise LakeError(f"lake: {lake.storage.uri} has no block {number} up to height {last}")
    return height


def _log_rows(opened: OpenedLake, table: str, height: int, position: int, columns: Sequence[str]) -> Frame:
    """Return a chain's rows of a log table at a height."""

    def select(batch: pa.RecordBatch) -> Mask:
        mask: Mask = batch["chain"].to_numpy() == position
        return mask

    found = opened.log_rows(table, height, position, columns, select)
    schema = opened.tables.logs[table]
    rows = pa.schema([schema.field(name) for name in columns]).empty_table() if found is None else found
    return from_table(rows)


@dataclass(frozen=True)
class ProvenMessage:
    """Proven message.

    Attributes:
        envelope: The envelope with all proofs.
        message: The message decoded from the envelope.
        root: Root of the mountain range at the envelope's block.
        leaf_count: Leaf count of the mountain range.
        block: Block of the source whose storage has the message.
        height: Height of the lake.
    """

    envelope: CrossDomainMessage
    message: Message
    root: bytes
    leaf_count: int
    block: int
    height: int


@dataclass(frozen=True)
class ProofAnchor:
    """Anchor of a proof: consensus block, MMR proof of its leaf, its state root, MMR root."""

    number: int
    proof: ConsensusChainMmrProof
    state_root: bytes
    root: bytes


def prove_message(
    opened: OpenedLake,
    source: str,
    destination: str,
    *,
    nonce: int,
    channel: int = 0,
    response: bool = False,
    height: int | None = None,
) -> ProvenMessage:
    """Prove a message of ``source`` to ``destination``, as operators do after a height.

    Args:
        opened: The lake.
        source: Name of the sender.
        destination: Name of the recipient.
        nonce: Nonce of the message.
        channel: Number of the channel.
        response: True for the response to the destination's request.
        height: A committed height, by default the last.

    Raises:
        NotAtHeight: The message is not in the storage.
        InvalidInput: There are no such chains, or nothing is final yet.
        LakeError: The height is not committed, or the lake is corrupted.
    """
    network = build_kernel(opened).network
    own, foreign = opened.position(source), opened.position(destination)
    if own == foreign:
        raise InvalidInput(f"counterparty: {destination}: messages of a chain to itself are not proved")
    if own in network.external:
        raise InvalidInput(f"chain: another lake runs {source}: extract proofs of its messages from that lake")
    last = rolled_back_height(opened, opened.last_height() if height is None else height)
    if network.follows:
        anchor, receipt, domain_proof = _imported_anchor(opened, last, own, foreign == CONSENSUS_POSITION)
    else:
        anchor = _anchor(opened, last, foreign == CONSENSUS_POSITION)
        storage = read_storage(opened, CONSENSUS_POSITION, find_height(opened, anchor.number, last))
        if storage.root != anchor.state_root:
            uri = opened.lake.storage.uri
            raise LakeError(f"lake: {uri}: block {anchor.number} has another state root in its leaf")
        receipt, domain_proof = None, None
        if own != CONSENSUS_POSITION:
            receipt, domain_proof = _confirmed_receipt(opened, storage, own, last)
    block = anchor.number
    if receipt is not None:
        block = receipt.domain_block_number
        storage = read_storage(opened, own, find_height(opened, block, last))
        if storage.root != receipt.final_state_root:
            raise LakeError(f"lake: {opened.lake.storage.uri}: block {block} of {source} is not that of its receipt")
    item = INBOX_RESPONSES if response else OUTBOX
    key = message_storage_key(item, _chain_id(foreign), channel, nonce)
    nodes = storage.prove(key)
    try:
        message = Message.decode(read_value(storage.root, nodes, key)[0])
    except MissingValue:
        kind = "response" if response else "request"
        lifetime = (
            "from when it is made until it is acknowledged" if response else "from when it is sent until its answer"
        )
        raise NotAtHeight(
            f"index: {nonce}: block {block} of {source}, which is confirmed for {destination} at height {last}, has no "
            f"{kind} {nonce} in channel {channel}; it is there {lifetime}"
        ) from None
    tag = _weight_tag(opened, message, own, foreign, channel, find_height(opened, block, last))
    proof = EnvelopeProof(anchor.proof, nodes, domain_proof)
    envelope = CrossDomainMessage(_chain_id(own), _chain_id(foreign), channel, nonce, proof, tag)
    try:
        verify_cross_domain_message(anchor.root, envelope, response=response, leaf_count=anchor.proof.leaf_count)
    except ProofError as error:
        raise LakeError(
            f"lake: {opened.lake.storage.uri}: its data gives no valid proof: {error.name}: {error}"
        ) from error
    return ProvenMessage(envelope, message, anchor.root, anchor.proof.leaf_count, block, last)


def _anchor(opened: OpenedLake, height: int, to_consensus: bool) -> ProofAnchor:
    """Return the anchor that operators use after the blocks of a height."""
    lake, options = opened.lake, build_kernel(opened).options
    manifest = lake.manifest(height)
    number = block_number(manifest.tick) if height else 0
    # The commit's last state also has its earlier blocks, unless a fork reverted them.
    for candidate in (lake.numbered(manifest.number), manifest):
        ranges = ConsensusRanges.of(read_state(opened, candidate, CONSENSUS_POSITION, ("blocks", "range")))
        known = ranges.blocks["number"].tolist()
        if number in known:
            break
    if number not in known:
        raise LakeError(f"lake: {lake.storage.uri} does not know the consensus block of height {height} any more")
    best = known.index(number)
    found = anchor_number(ranges.blocks.slice(0, best + 1), number, options.archiving_depth)
    if found is None:
        depth = options.archiving_depth
        raise InvalidInput(f"height: {height}: no block is {depth} deep yet (archiving_depth), so no proof exists")
    final, leaf_row = found
    named_row = best if to_consensus else final
    leaf_count = int(ranges.blocks["leaf_count"][named_row])
    range_proof = ranges.window.prove(int(ranges.blocks["leaf_count"][leaf_row]), leaf_count)
    proof = ConsensusChainMmrProof(
        known[named_row],
        ranges.blocks["hash"][named_row].tobytes(),
        ranges.leaves[leaf_row].as_py(),
        range_proof.leaf_indices,
        range_proof.leaf_count,
        range_proof.items,
    )
    return ProofAnchor(
        known[leaf_row], proof, ranges.blocks["state_root"][leaf_row].tobytes(), ranges.window.root(leaf_count)
    )


def _imported_anchor(
    opened: OpenedLake, height: int, domain: int, to_consensus: bool
) -> tuple[ProofAnchor, ExecutionReceipt, tuple[bytes, ...]]:
    """Return the imported anchor and the confirmed receipt of a domain with its proof.

    This applies to a lake that follows the consensus chain of another lake.
    """
    names = ("blocks", "anchor", "anchored")
    state = read_state(opened, opened.lake.manifest(height), CONSENSUS_POSITION, names)
    blocks, consensus = state["blocks"], opened.names[CONSENSUS_POSITION]
    if len(state["anchor"]) == 0:
        text = f"no block of {consensus} that is final was carried to this lake with what it has of its domains"
        raise InvalidInput(f"height: {height}: {text}, so no proof exists")
    receipts = state["anchored"].filter(state["anchored"]["domain"] == domain)
    if len(receipts) == 0:
        raise _unconfirmed_error(opened, domain, height)
    anchor = state["anchor"].filter(state["anchor"]["number"] == receipts["block"][0])
    column, digest = ("best", "best_hash") if to_consensus else ("final", "block_hash")
    number, leaf_count = int(anchor[column][0]), int(anchor[f"{column}_leaves"][0])
    leaf, items = anchor["leaf"][0].as_py(), anchor[f"{column}_items"][0].as_py()
    parts = tuple(items[at : at + DIGEST_BYTES] for at in range(0, len(items), DIGEST_BYTES))
    proof = ConsensusChainMmrProof(
        number, anchor[digest][0].tobytes(), leaf, (int(anchor["leaf_index"][0]),), leaf_count, parts
    )
    root = blocks["mmr_root"][np.flatnonzero(blocks["number"] == number)[0]].tobytes()
    state_root = MmrLeaf.decode(leaf).state_root
    lists, _ = decode_lists(receipts["domain_proof"].cast(pa.large_binary()))
    nodes = tuple(lists[0].as_py())
    receipt = ExecutionReceipt.decode(read_value(state_root, nodes, receipt_storage_key(domain - 1))[0])
    return ProofAnchor(int(anchor["number"][0]), proof, state_root, root), receipt, nodes


def _confirmed_receipt(
    opened: OpenedLake, consensus: ChainStorage, domain: int, height: int
) -> tuple[ExecutionReceipt, tuple[bytes, ...]]:
    """Return a domain's confirmed receipt in a consensus block's storage, and its proof."""
    key = receipt_storage_key(domain - 1)
    nodes = consensus.prove(key)
    try:
        return ExecutionReceipt.decode(read_value(consensus.root, nodes, key)[0]), nodes
    except MissingValue:
        raise _unconfirmed_error(opened, domain, height) from None


def _unconfirmed_error(opened: OpenedLake, domain: int, height: int) -> InvalidInput:
    period = build_kernel(opened).options.challenge_period
    return InvalidInput(
        f"height: {height}: no receipt of {opened.names[domain]} is confirmed yet (challenge_period {period}) in a "
        "block that is final: nothing of it is proved there"
    )


def _weight_tag(opened: OpenedLake, message: Message, own: int, foreign: int, channel: int, height: int) -> WeightTag:
    """Return an honest operator's weight tag; a response's follows from its request."""
    match message.payload:
        case ChannelOpen():
            return WeightTag("ProtocolChannelOpen")
        case ChannelClose():
            return WeightTag("ProtocolChannelClose")
        case EndpointRequest():
            return WeightTag("EndpointRequest", message.payload.dst_endpoint)
        case ProtocolResponse() | EndpointResponse():
            rows = read_state(opened, opened.lake.manifest(height), own, ("responses",))["responses"]
            mine = (rows["destination"] == foreign) & (rows["index"] == message.nonce)
            mine &= rows["substream"] == 2 * channel + 1
            row = rows.filter(mine)
            if isinstance(message.payload, EndpointResponse):
                return WeightTag("EndpointResponse", int(row["endpoint"][0]))
            opened_by = message.payload.error is None and int(row["asked"][0]) == RequestKind.CHANNEL_OPEN
            return WeightTag("ProtocolChannelOpen" if opened_by else "None")


def _chain_id(position: int) -> ChainId:
    return ChainId(None if position == CONSENSUS_POSITION else position - 1)
