"""Messages of a network under ``xdm`` with the whole chain of their proofs, taken from its lake (2.4, X-5).

    opened = open_lake("my-lake")
    shown = prove_message(opened, "left", "right", nonce=3, height=20)
    shown.envelope.encode()                 # a CrossDomainMessage: mountain range, receipt, storage
    shown.root, shown.leaf_count            # of the mountain range that it is proved under

Nothing of a proof is taken from the row of the message: its bytes are read out of the storage proof, the root of the
storage out of the confirmed receipt, that out of the state root in the leaf, and the whole is verified before it is
given out.

The storage of the chains of a network under ``xdm``, read from its lake at the blocks that proofs are made under.

Storage is that of the last state in a file, moved on by the log of its changes; nothing is executed for it.
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

KEPT_LAKES = 16

KEPT_BYTES = 128 << 20
"""So much storage is kept in memory, of all lakes together; one chain's at least."""


@dataclass(frozen=True, eq=False)
class ChainStorage:
    """The storage of a chain after some of its blocks: the trie of a number, which has a root."""

    tries: Tries
    number: int
    root: bytes

    def prove(self, key: bytes) -> tuple[bytes, ...]:
        """Return the nodes that say what is stored under a key, or that nothing is, ascending."""
        return tuple(sorted(set(self.proofs(pa.array([key], pa.large_binary())).nodes_of(0))))

    def proofs(self, keys: pa.LargeBinaryArray) -> StorageProofs:
        """Return a proof of what is stored under each key."""
        return prove_storage(self.tries, np.full(len(keys), self.number, dtype=np.int64), keys)


@dataclass(frozen=True)
class _Block:
    """The block of the chain at a position at a height. Blocks after which the storage has the same root are one."""

    root: bytes
    opened: OpenedLake = field(compare=False)
    position: int = field(compare=False)
    height: int = field(compare=False)


@lru_cache(maxsize=KEPT_LAKES)
def build_kernel(opened: OpenedLake) -> XdmKernel:
    """Return the state machine of a network under ``xdm``; no program can be run by it.

    Raises:
        InvalidInput: the network has another protocol.
    """
    if opened.protocol != "xdm":
        where = opened.lake.storage.uri
        raise InvalidInput(f"lake: {where} is of the protocol {opened.protocol}; only one of xdm has domains")
    nothing = Programs(replace(opened.topology, programs=opened.topology.programs.slice(0, 0)))
    # A reader has no secret keys, and signs nothing.
    options = {name: value for name, value in opened.options.items() if name != LISTED}
    return XdmKernel(opened.topology, nothing, XdmOptions(**options), opened.seed, opened.tick_ns)


def read_state(opened: OpenedLake, manifest: Manifest, position: int, names: Sequence[str] | None = None) -> State:
    """Return the state of one chain, or the tables ``names`` of it; raises as ``OpenedLake.state_rows``."""
    host_of = build_kernel(opened).network.host_of
    tables = opened.tables.state if names is None else names
    return state_of_frames({name: opened.state_rows(manifest, name, position, host_of) for name in tables}, {})


def read_storage(opened: OpenedLake, position: int, height: int) -> ChainStorage:
    """Return the storage of the chain at a position after the block of a height: one that is kept in memory, or that of
    an earlier state in a file, moved on by what changed since, but for what forks took back in between.

    Raises:
        LakeError: the height is not committed, its state was freed, or it is not that of the header.
    """
    shown = _rows(opened, "headers", height, position, ["chain", "root"])
    if len(shown) != 1:
        raise LakeError(f"lake: {opened.lake.storage.uri}: {opened.names[position]} has no header at height {height}")
    return _made(_Block(shown["root"][0].tobytes(), opened, position, height))


def _storage(block: _Block) -> ChainStorage:
    opened, position, height = block.opened, block.position, block.height
    kernel, lake = build_kernel(opened), opened.lake
    manifest, path = lake.manifest(height), list[int]()
    forks = _forks(opened, position, height)
    # Back along the fork, to the next height whose state is in a file.
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
        tries.change(_rows(opened, "storage", later, position, STORAGE_SCHEMA.names))
    root = tries.roots(chains)[0].tobytes()
    if root != block.root:
        raise LakeError(
            f"lake: {lake.storage.uri}: the storage of {opened.names[position]} at height {height} has the root "
            f"{root.hex()}; its header has another"
        )
    return ChainStorage(tries.tries, tries.present[position], root)


_made = cache_results(_storage, KEPT_BYTES, lambda storage: storage.tries.live_bytes)


def rolled_back_height(opened: OpenedLake, height: int) -> int:
    """Return the height whose state chains have after a height: an earlier one where a fork put them back to it."""
    return _forks(opened, CONSENSUS_POSITION, height).get(height, height)


def _forks(opened: OpenedLake, position: int, last: int) -> dict[int, int]:
    """Return the heights up to ``last`` at which forks put a chain back, each with the height that it was put back
    to."""
    lake = opened.lake
    if not lake.manifest(last).totals.get(REVERTED, 0):
        return {}
    rows = [row for path, seal in lake.log_files(REVERTED).items() for row in lake.sealed_table(path, seal).to_pylist()]
    return {row["height"]: row["first"] - 1 for row in rows if row["chain"] == position and row["height"] <= last}


def find_height(opened: OpenedLake, number: int, last: int) -> int:
    """Return the height, up to ``last``, at which chains made their block of a number.

    Raises:
        LakeError: there is none.
    """
    if number == 0:
        return 0
    lake = opened.lake
    height = bisect_left(range(last + 1), number, 1, key=lambda at: block_number(lake.manifest(at).tick))
    if height > last or block_number(lake.manifest(height).tick) != number:
        raise LakeError(f"lake: {lake.storage.uri} has no block {number} up to height {last}")
    return height


def _rows(opened: OpenedLake, table: str, height: int, position: int, columns: Sequence[str]) -> Frame:
    """Return the rows of a log table at a height that are of one chain."""

    def mine(batch: pa.RecordBatch) -> Mask:
        mask: Mask = batch["chain"].to_numpy() == position
        return mask

    found = opened.log_rows(table, height, position, columns, mine)
    schema = opened.tables.logs[table]
    rows = pa.schema([schema.field(name) for name in columns]).empty_table() if found is None else found
    return from_table(rows)


@dataclass(frozen=True)
class ProvenMessage:
    """A message that was proved.

    ``envelope``: with all its proofs; ``message``: what comes out of it. ``root``, ``leaf_count``: of the mountain
    range at the block that the envelope names. ``block``: of the source, in whose storage the message is.
    """

    envelope: CrossDomainMessage
    message: Message
    root: bytes
    leaf_count: int
    block: int
    height: int


@dataclass(frozen=True)
class ProofAnchor:
    """Under what is proved: the block's leaf and its proof, and the mountain range's root."""

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
    """Return a message of ``source`` to ``destination`` with its proofs, as operators make them after a height.

    Raises:
        InvalidInput: there are no such chains, nothing is final yet, or the message is not in the storage.
        LakeError: the height is not committed, or the lake is not what was written.
    """
    network = build_kernel(opened).network
    own, foreign = opened.position(source), opened.position(destination)
    if own == foreign:
        raise InvalidInput(f"counterparty: {destination}: messages of a chain to itself are not proved")
    if own in network.external:
        raise InvalidInput(f"chain: another lake runs {source}: what it sends is proved out of that one")
    last = rolled_back_height(opened, opened.last_height() if height is None else height)
    if network.follows:
        anchor, receipt, domain_proof = _followed(opened, last, own, foreign == CONSENSUS_POSITION)
    else:
        anchor = _anchor(opened, last, foreign == CONSENSUS_POSITION)
        storage = read_storage(opened, CONSENSUS_POSITION, find_height(opened, anchor.number, last))
        if storage.root != anchor.state_root:
            where = opened.lake.storage.uri
            raise LakeError(f"lake: {where}: block {anchor.number} has another state root in its leaf")
        receipt, domain_proof = None, None
        if own != CONSENSUS_POSITION:
            receipt, domain_proof = _receipt(opened, storage, own, last)
    block = anchor.number
    if receipt is not None:
        block = receipt.domain_block_number
        storage = read_storage(opened, own, find_height(opened, block, last))
        if storage.root != receipt.final_state_root:
            raise LakeError(f"lake: {opened.lake.storage.uri}: block {block} of {source} is not that of its receipt")
    item = INBOX_RESPONSES if response else OUTBOX
    key = message_storage_key(item, _chain(foreign), channel, nonce)
    nodes = storage.prove(key)
    try:
        message = Message.decode(read_value(storage.root, nodes, key)[0])
    except MissingValue:
        what = "response" if response else "request"
        since = "from when it is made until it is acknowledged" if response else "from when it is sent until its answer"
        raise NotAtHeight(
            f"index: {nonce}: block {block} of {source}, which is confirmed for {destination} at height {last}, has no "
            f"{what} {nonce} in channel {channel}; it is there {since}"
        ) from None
    tag = _tag(opened, message, own, foreign, channel, find_height(opened, block, last))
    proof = EnvelopeProof(anchor.proof, nodes, domain_proof)
    envelope = CrossDomainMessage(_chain(own), _chain(foreign), channel, nonce, proof, tag)
    try:
        verify_cross_domain_message(anchor.root, envelope, response=response, leaf_count=anchor.proof.leaf_count)
    except ProofError as error:
        raise LakeError(
            f"lake: {opened.lake.storage.uri}: what it has proves nothing: {error.name}: {error}"
        ) from error
    return ProvenMessage(envelope, message, anchor.root, anchor.proof.leaf_count, block, last)


def _anchor(opened: OpenedLake, height: int, to_consensus: bool) -> ProofAnchor:
    """Return under what operators prove once the blocks of a height are made."""
    lake, options = opened.lake, build_kernel(opened).options
    manifest = lake.manifest(height)
    number = block_number(manifest.tick) if height else 0
    # The last state of the commit knows its earlier blocks, too, but for what a fork has taken back in between.
    for seen in (lake.numbered(manifest.number), manifest):
        ranges = ConsensusRanges.of(read_state(opened, seen, CONSENSUS_POSITION, ("blocks", "range")))
        known = ranges.blocks["number"].tolist()
        if number in known:
            break
    if number not in known:
        raise LakeError(f"lake: {lake.storage.uri} does not know the consensus block of height {height} any more")
    best = known.index(number)
    found = anchor_number(ranges.blocks.slice(0, best + 1), number, options.archiving_depth)
    if found is None:
        depth = options.archiving_depth
        raise InvalidInput(f"height: {height}: no block is {depth} deep yet (archiving_depth): nothing is proved there")
    final, at = found
    named = best if to_consensus else final
    leaf_count = int(ranges.blocks["leaf_count"][named])
    made = ranges.window.prove(int(ranges.blocks["leaf_count"][at]), leaf_count)
    proof = ConsensusChainMmrProof(
        known[named],
        ranges.blocks["hash"][named].tobytes(),
        ranges.leaves[at].as_py(),
        made.leaf_indices,
        made.leaf_count,
        made.items,
    )
    return ProofAnchor(known[at], proof, ranges.blocks["state_root"][at].tobytes(), ranges.window.root(leaf_count))


def _followed(
    opened: OpenedLake, height: int, domain: int, to_consensus: bool
) -> tuple[ProofAnchor, ExecutionReceipt, tuple[bytes, ...]]:
    """Return under what operators prove once the blocks of a height are made, in a lake that follows the consensus
    chain, and the confirmed receipt of a domain with its proof: as far as they were carried here."""
    names = ("blocks", "anchor", "anchored")
    state = read_state(opened, opened.lake.manifest(height), CONSENSUS_POSITION, names)
    blocks, consensus = state["blocks"], opened.names[CONSENSUS_POSITION]
    if len(state["anchor"]) == 0:
        text = f"no block of {consensus} that is final was carried to this lake with what it has of its domains"
        raise InvalidInput(f"height: {height}: {text}: nothing is proved there")
    receipts = state["anchored"].filter(state["anchored"]["domain"] == domain)
    if len(receipts) == 0:
        raise _unconfirmed(opened, domain, height)
    anchor = state["anchor"].filter(state["anchor"]["number"] == receipts["block"][0])
    which, digest = ("best", "best_hash") if to_consensus else ("final", "block_hash")
    number, leaf_count = int(anchor[which][0]), int(anchor[f"{which}_leaves"][0])
    leaf, items = anchor["leaf"][0].as_py(), anchor[f"{which}_items"][0].as_py()
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


def _receipt(
    opened: OpenedLake, consensus: ChainStorage, domain: int, height: int
) -> tuple[ExecutionReceipt, tuple[bytes, ...]]:
    """Return the confirmed receipt of a domain in the storage of a consensus block, and its proof."""
    key = receipt_storage_key(domain - 1)
    nodes = consensus.prove(key)
    try:
        return ExecutionReceipt.decode(read_value(consensus.root, nodes, key)[0]), nodes
    except MissingValue:
        raise _unconfirmed(opened, domain, height) from None


def _unconfirmed(opened: OpenedLake, domain: int, height: int) -> InvalidInput:
    period = build_kernel(opened).options.challenge_period
    return InvalidInput(
        f"height: {height}: no receipt of {opened.names[domain]} is confirmed yet (challenge_period {period}) in a "
        "block that is final: nothing of it is proved there"
    )


def _tag(opened: OpenedLake, message: Message, own: int, foreign: int, channel: int, height: int) -> WeightTag:
    """Return the weight tag that honest operators give a message; of a response it says what the request was."""
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


def _chain(position: int) -> ChainId:
    return ChainId(None if position == CONSENSUS_POSITION else position - 1)
