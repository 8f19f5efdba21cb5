"""Messages of a network under ``xdm`` with the whole chain of their proofs, taken from its lake (2.4, X-5).

    opened = open_lake("my-lake")
    shown = prove_message(opened, "left", "right", nonce=3, height=20)
    shown.envelope.encode()                 # a CrossDomainMessage: mountain range, receipt, storage
    shown.root, shown.leaf_count            # of the mountain range that it is proved under

Nothing of a proof is taken from the row of the message: its bytes are read out of the storage proof, the root of the
storage out of the confirmed receipt, that out of the state root in the leaf, and the whole is verified before it is
given out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.network.opened import OpenedLake
from causeway.pipeline.lake import LakeError
from causeway.proofs.errors import ProofError
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.substrate.errors import MissingValue
from causeway.proofs.substrate.proof import read_value
from causeway.proofs.xdm.confirmation import verify_cross_domain_message
from causeway.proofs.xdm.envelope import (
    INBOX_RESPONSES,
    OUTBOX,
    ConsensusChainMmrProof,
    CrossDomainMessage,
    ExecutionReceipt,
    MmrLeaf,
    Proof,
    message_storage_key,
    receipt_storage_key,
)
from causeway.proofs.xdm.messages import (
    ChainId,
    ChannelClose,
    ChannelOpen,
    EndpointRequest,
    EndpointResponse,
    Message,
    ProtocolResponse,
    WeightTag,
)
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus import Ranges, anchor_number
from causeway.protocols.xdm.context import block_number
from causeway.protocols.xdm.proof_lists import decode_lists
from causeway.protocols.xdm.state import Asked
from causeway.proving.prover import NotAtHeight
from causeway.proving.xdm.storage import Storage, gone_back_to, height_of, kernel_of, state_at, storage_at


@dataclass(frozen=True)
class ShownMessage:
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
class Anchor:
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
) -> ShownMessage:
    """Return a message of ``source`` to ``destination`` with its proofs, as operators make them after a height.

    Raises:
        InvalidInput: there are no such chains, nothing is final yet, or the message is not in the storage.
        LakeError: the height is not committed, or the lake is not what was written.
    """
    network = kernel_of(opened).network
    own, foreign = opened.position(source), opened.position(destination)
    if own == foreign:
        raise InvalidInput(f"counterparty: {destination}: messages of a chain to itself are not proved")
    if own in network.external:
        raise InvalidInput(f"chain: another lake runs {source}: what it sends is proved out of that one")
    last = gone_back_to(opened, opened.last_height() if height is None else height)
    if network.follows:
        anchor, receipt, domain_proof = _followed(opened, last, own, foreign == CONSENSUS_POSITION)
    else:
        anchor = _anchor(opened, last, foreign == CONSENSUS_POSITION)
        storage = storage_at(opened, CONSENSUS_POSITION, height_of(opened, anchor.number, last))
        if storage.root != anchor.state_root:
            where = opened.lake.storage.uri
            raise LakeError(f"lake: {where}: block {anchor.number} has another state root in its leaf")
        receipt, domain_proof = None, None
        if own != CONSENSUS_POSITION:
            receipt, domain_proof = _receipt(opened, storage, own, last)
    block = anchor.number
    if receipt is not None:
        block = receipt.domain_block_number
        storage = storage_at(opened, own, height_of(opened, block, last))
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
    tag = _tag(opened, message, own, foreign, channel, height_of(opened, block, last))
    proof = Proof(anchor.proof, nodes, domain_proof)
    envelope = CrossDomainMessage(_chain(own), _chain(foreign), channel, nonce, proof, tag)
    try:
        verify_cross_domain_message(anchor.root, envelope, response=response, leaf_count=anchor.proof.leaf_count)
    except ProofError as error:
        raise LakeError(
            f"lake: {opened.lake.storage.uri}: what it has proves nothing: {error.name}: {error}"
        ) from error
    return ShownMessage(envelope, message, anchor.root, anchor.proof.leaf_count, block, last)


def _anchor(opened: OpenedLake, height: int, to_consensus: bool) -> Anchor:
    """Return under what operators prove once the blocks of a height are made."""
    lake, options = opened.lake, kernel_of(opened).options
    manifest = lake.manifest(height)
    number = block_number(manifest.tick) if height else 0
    # The last state of the commit knows its earlier blocks, too, but for what a fork has taken back in between.
    for seen in (lake.numbered(manifest.number), manifest):
        ranges = Ranges.of(state_at(opened, seen, CONSENSUS_POSITION, ("blocks", "range")))
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
    return Anchor(known[at], proof, ranges.blocks["state_root"][at].tobytes(), ranges.window.root(leaf_count))


def _followed(
    opened: OpenedLake, height: int, domain: int, to_consensus: bool
) -> tuple[Anchor, ExecutionReceipt, tuple[bytes, ...]]:
    """Return under what operators prove once the blocks of a height are made, in a lake that follows the consensus
    chain, and the confirmed receipt of a domain with its proof: as far as they were carried here."""
    names = ("blocks", "anchor", "anchored")
    state = state_at(opened, opened.lake.manifest(height), CONSENSUS_POSITION, names)
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
    return Anchor(int(anchor["number"][0]), proof, state_root, root), receipt, nodes


def _receipt(
    opened: OpenedLake, consensus: Storage, domain: int, height: int
) -> tuple[ExecutionReceipt, tuple[bytes, ...]]:
    """Return the confirmed receipt of a domain in the storage of a consensus block, and its proof."""
    key = receipt_storage_key(domain - 1)
    nodes = consensus.prove(key)
    try:
        return ExecutionReceipt.decode(read_value(consensus.root, nodes, key)[0]), nodes
    except MissingValue:
        raise _unconfirmed(opened, domain, height) from None


def _unconfirmed(opened: OpenedLake, domain: int, height: int) -> InvalidInput:
    period = kernel_of(opened).options.challenge_period
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
            rows = state_at(opened, opened.lake.manifest(height), own, ("responses",))["responses"]
            mine = (rows["destination"] == foreign) & (rows["index"] == message.nonce)
            mine &= rows["substream"] == 2 * channel + 1
            row = rows.filter(mine)
            if isinstance(message.payload, EndpointResponse):
                return WeightTag("EndpointResponse", int(row["endpoint"][0]))
            opened_by = message.payload.error is None and int(row["asked"][0]) == Asked.CHANNEL_OPEN
            return WeightTag("ProtocolChannelOpen" if opened_by else "None")


def _chain(position: int) -> ChainId:
    return ChainId(None if position == CONSENSUS_POSITION else position - 1)


__all__ = ["ShownMessage", "prove_message"]
