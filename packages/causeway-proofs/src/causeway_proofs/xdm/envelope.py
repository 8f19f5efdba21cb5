"""Envelopes of cross-domain messages: proofs, and verification down to the message.

An envelope does not contain its message. The message is read from the storage proof, under the source chain's state
root. For a domain, that root is itself read from a storage proof under the consensus chain's state root.

The trusted root is that of the consensus chain's Merkle mountain range at the block that the proof names. Under it is
the leaf of a block, in the leaf that block's state root, and under that the content that ``open_envelope`` reads.

Reference:
    XDM reference 2.4 and 3.4, steps 6 to 8.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.mmr.mountain_range import leaf_hash
from causeway_proofs.mmr.proof import LeafProof, verify_leaf_proof
from causeway_proofs.steps import Step
from causeway_proofs.substrate.errors import BadProof, InvalidCall
from causeway_proofs.substrate.proof import read_value
from causeway_proofs.substrate.storage_keys import identity, storage_key
from causeway_proofs.xdm.messages import (
    CONSENSUS,
    MAX_MESSAGE_BYTES,
    XDM_TYPES,
    ChainId,
    Message,
    WeightTag,
    chain_from_plain,
    chain_to_plain,
)

PALLET = "Messenger"
CHANNELS_ITEM = "Channels"
OUTBOX = "Outbox"
INBOX_RESPONSES = "InboxResponses"
NUMBER_BYTES = 32


@dataclass(frozen=True, slots=True)
class MmrLeaf:
    """A leaf of the consensus chain's mountain range: the block before the one that added it.

    Attributes:
        block_number: number of the block.
        block_hash: its hash.
        state_root: root of its state.
        extrinsics_root: root of its extrinsics.
    """

    block_number: int
    block_hash: bytes
    state_root: bytes
    extrinsics_root: bytes

    def encode(self) -> bytes:
        """Return the SCALE encoding, version 0.

        Returns:
            The encoding.
        """
        return XDM_TYPES.encode("MmrLeaf", {"V0": asdict(self)})

    @classmethod
    def decode(cls, data: bytes) -> MmrLeaf:
        """Decode the canonical encoding of a leaf.

        Args:
            data: the encoding.

        Returns:
            The leaf.

        Raises:
            FailedToDecode: ``data`` is not a leaf.
        """
        return cls(**XDM_TYPES.decode("MmrLeaf", data, "a leaf of the mountain range")["V0"])


@dataclass(frozen=True, slots=True)
class ConsensusChainMmrProof:
    """Proof of a leaf in the consensus chain's mountain range; empty in public fixtures.

    Attributes:
        consensus_block_number: number of the block whose mountain range it is.
        consensus_block_hash: hash of that block.
        opaque_mmr_leaf: encoded leaf.
        leaf_indices: index of the leaf.
        leaf_count: leaves of the range.
        items: nodes that the verifier cannot compute.
    """

    consensus_block_number: int
    consensus_block_hash: bytes
    opaque_mmr_leaf: bytes
    leaf_indices: tuple[int, ...]
    leaf_count: int
    items: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class EnvelopeProof:
    """Proofs in an envelope; nodes of a storage proof ascend, as in an encoded set.

    Attributes:
        consensus_chain_mmr_proof: proof of a consensus block.
        message_proof: nodes of the storage proof of the message.
        domain_proof: nodes of the storage proof of the domain's receipt; None for the kind Consensus (D-6).
    """

    consensus_chain_mmr_proof: ConsensusChainMmrProof
    message_proof: tuple[bytes, ...]
    domain_proof: tuple[bytes, ...] | None = None

    @property
    def kind(self) -> str:
        """Return the name of the variant: Consensus or Domain."""
        return "Consensus" if self.domain_proof is None else "Domain"


@dataclass(frozen=True, slots=True)
class CrossDomainMessage:
    """The envelope; no proof covers its other fields, so they are compared (D-7).

    Attributes:
        src_chain_id, dst_chain_id: sending and receiving chain.
        channel_id, nonce: 256-bit numbers.
        proof: the proofs.
        weight_tag: stated weight of the message.
    """

    src_chain_id: ChainId
    dst_chain_id: ChainId
    channel_id: int
    nonce: int
    proof: EnvelopeProof
    weight_tag: WeightTag

    def encode(self) -> bytes:
        """Return the SCALE encoding.

        Returns:
            The encoding.

        Raises:
            InvalidInput: a number or digest does not fit its type.
        """
        return XDM_TYPES.encode(
            "CrossDomainMessage",
            {
                "src_chain_id": chain_to_plain(self.src_chain_id),
                "dst_chain_id": chain_to_plain(self.dst_chain_id),
                "channel_id": self.channel_id,
                "nonce": self.nonce,
                "proof": _proof_to_plain(self.proof),
                "weight_tag": self.weight_tag.to_plain(),
            },
        )

    @classmethod
    def decode(cls, data: bytes) -> CrossDomainMessage:
        """Decode the canonical encoding of an envelope.

        Args:
            data: the encoding.

        Returns:
            The envelope.

        Raises:
            OverLimit: ``data`` exceeds 5 MiB, or a list has too many elements.
            FailedToDecode: ``data`` is not an envelope, or not canonical.
        """
        plain = XDM_TYPES.decode("CrossDomainMessage", data, "a cross-domain envelope", MAX_MESSAGE_BYTES)
        return cls(
            chain_from_plain(plain["src_chain_id"]),
            chain_from_plain(plain["dst_chain_id"]),
            plain["channel_id"],
            plain["nonce"],
            _proof_of_plain(plain["proof"]),
            WeightTag.from_plain(plain["weight_tag"]),
        )


@dataclass(frozen=True, slots=True)
class ExecutionReceipt:
    """The statement of a domain's operators about one of its blocks.

    Attributes:
        domain_block_number, domain_block_hash: the domain's block.
        consensus_block_number, consensus_block_hash: the consensus block that it derives from.
        final_state_root: the domain's state root after the block.
        fields: all fields, as decoded by ``XDM_TYPES``.
    """

    domain_block_number: int
    domain_block_hash: bytes
    consensus_block_number: int
    consensus_block_hash: bytes
    final_state_root: bytes
    fields: dict[str, Any]

    def encode(self) -> bytes:
        """Return the SCALE encoding of ``fields``, version 0.

        Returns:
            The encoding.
        """
        return XDM_TYPES.encode("ExecutionReceipt", {"V0": self.fields})

    @classmethod
    def decode(cls, data: bytes) -> ExecutionReceipt:
        """Decode the canonical encoding of a receipt.

        Args:
            data: the encoding.

        Returns:
            The receipt.

        Raises:
            FailedToDecode: ``data`` is not a receipt, or a map in it is out of order.
        """
        fields = XDM_TYPES.decode("ExecutionReceipt", data, "an execution receipt", MAX_MESSAGE_BYTES)["V0"]
        return cls(
            fields["domain_block_number"],
            fields["domain_block_hash"],
            fields["consensus_block_number"],
            fields["consensus_block_hash"],
            fields["final_state_root"],
            fields,
        )


def message_storage_key(item: str, foreign: ChainId, channel_id: int, nonce: int) -> bytes:
    """Return the storage key of a message in ``Outbox`` or ``InboxResponses``.

    Args:
        item: name of the storage item.
        foreign: chain at the other end.
        channel_id: 256-bit number.
        nonce: 256-bit number.

    Returns:
        The key.
    """
    return storage_key(
        PALLET,
        item,
        (identity, foreign.encode() + _number(channel_id) + _number(nonce)),
    )


def channel_storage_key(foreign: ChainId, channel_id: int) -> bytes:
    """Return the storage key of a channel.

    Args:
        foreign: chain at the other end.
        channel_id: 256-bit number.

    Returns:
        The key.
    """
    return storage_key(PALLET, CHANNELS_ITEM, (identity, foreign.encode()), (identity, _number(channel_id)))


def receipt_storage_key(domain: int) -> bytes:
    """Return the consensus chain's storage key of a domain's latest confirmed execution receipt.

    Args:
        domain: number of the domain.

    Returns:
        The key.
    """
    return storage_key("Domains", "LatestConfirmedDomainExecutionReceipt", (identity, XDM_TYPES.encode("u32", domain)))


def open_envelope(
    state_root: bytes, envelope: CrossDomainMessage, *, response: bool, strict_envelope: bool = True
) -> tuple[Message, tuple[Step, ...]]:
    """Verify an envelope under the consensus chain's ``state_root``, and return its message.

    Args:
        state_root: trusted state root of a consensus block, 32 bytes.
        envelope: the envelope.
        response: read a response from the source's inbox, rather than a request from its outbox.
        strict_envelope: require that the kind of proof fits the source, which the deployed chain does not check (D-7).

    Returns:
        The message, and the path to it.

    Raises:
        BadProof: the kind of proof does not fit the source, or the message is not the named one.
        InvalidCall: a request was relayed as a response, or the other way round.
        InvalidProof, MissingValue, UnusedNodesInTheProof, OverLimit: as ``read_value``, with ``strict``.
        FailedToDecode: the receipt or the message is malformed.
    """
    steps: tuple[Step, ...] = ()
    root, proof = state_root, envelope.proof
    source = envelope.src_chain_id
    if strict_envelope and (proof.domain_proof is not None) != (source.domain is not None):
        raise BadProof(f"a proof of the kind {proof.kind} does not fit the source {_name(source)}")
    if proof.domain_proof is not None:
        if source.domain is None:
            raise BadProof("a proof of the kind Domain does not fit the source Consensus")
        value, steps = read_value(root, proof.domain_proof, receipt_storage_key(source.domain), strict=True)
        root = ExecutionReceipt.decode(value).final_state_root
        steps = (Step("receipt", f"final state root of {_name(source)}", root), *steps)
    item = INBOX_RESPONSES if response else OUTBOX
    key = message_storage_key(item, envelope.dst_chain_id, envelope.channel_id, envelope.nonce)
    value, path = read_value(root, proof.message_proof, key, strict=True)
    message = Message.decode(value)
    named = (source, envelope.dst_chain_id, envelope.channel_id, envelope.nonce)
    proven = (message.src_chain_id, message.dst_chain_id, message.channel_id, message.nonce)
    if proven != named:
        raise BadProof(f"the envelope names the message {_describe(*named)}, the proof holds {_describe(*proven)}")
    if message.is_response != response:
        raise InvalidCall(f"the proof holds a {'response' if message.is_response else 'request'}, the other is due")
    return message, (Step("message", _describe(*proven), value), *path, *steps)


def _number(value: int) -> bytes:
    if not 0 <= value < 1 << 8 * NUMBER_BYTES:
        raise InvalidInput(f"channel ids and nonces are numbers of 256 bits, not {value}")
    return value.to_bytes(NUMBER_BYTES, "little")


def _name(chain: ChainId) -> str:
    return "Consensus" if chain == CONSENSUS else f"Domain {chain.domain}"


def _describe(source: ChainId, destination: ChainId, channel_id: int, nonce: int) -> str:
    return f"{_name(source)} to {_name(destination)}, channel {channel_id}, nonce {nonce}"


def _proof_to_plain(proof: EnvelopeProof) -> Any:
    mmr = proof.consensus_chain_mmr_proof
    content: dict[str, Any] = {
        "consensus_chain_mmr_proof": {
            "consensus_block_number": mmr.consensus_block_number,
            "consensus_block_hash": mmr.consensus_block_hash,
            "opaque_mmr_leaf": mmr.opaque_mmr_leaf,
            "proof": {
                "leaf_indices": list(mmr.leaf_indices),
                "leaf_count": mmr.leaf_count,
                "items": list(mmr.items),
            },
        },
        "message_proof": list(proof.message_proof),
    }
    if proof.domain_proof is not None:
        content["domain_proof"] = list(proof.domain_proof)
    return {proof.kind: content}


def _proof_of_plain(plain: Any) -> EnvelopeProof:
    ((kind, content),) = plain.items()
    mmr = content["consensus_chain_mmr_proof"]
    return EnvelopeProof(
        ConsensusChainMmrProof(
            mmr["consensus_block_number"],
            mmr["consensus_block_hash"],
            mmr["opaque_mmr_leaf"],
            tuple(mmr["proof"]["leaf_indices"]),
            mmr["proof"]["leaf_count"],
            tuple(mmr["proof"]["items"]),
        ),
        tuple(content["message_proof"]),
        tuple(content["domain_proof"]) if kind == "Domain" else None,
    )


def verify_consensus_leaf(
    mmr_root: bytes, proof: ConsensusChainMmrProof, leaf_count: int | None = None
) -> tuple[MmrLeaf, tuple[Step, ...]]:
    """Verify a carrier's mountain range proof under ``mmr_root``, and return its leaf.

    Args:
        mmr_root: trusted root of the mountain range, 32 bytes.
        proof: the proof.
        leaf_count: trusted number of leaves, if known: a root does not bind it.

    Returns:
        The leaf, and the path to it.

    Raises:
        BadProof: the proof is not of exactly one leaf, leads to another root, or its leaf is malformed.
    """
    if len(proof.leaf_indices) != 1:
        raise BadProof(f"the mountain range proof of a carrier is of {len(proof.leaf_indices)} leaves, one is due")
    leaf_proof = LeafProof(proof.leaf_indices, proof.leaf_count, proof.items)
    try:
        steps = verify_leaf_proof(leaf_proof, [leaf_hash(proof.opaque_mmr_leaf)], mmr_root, leaf_count)
        return MmrLeaf.decode(proof.opaque_mmr_leaf), steps
    except ProofError as error:
        raise BadProof(f"the consensus chain's block is not proven: {error}") from error


def verify_cross_domain_message(
    mmr_root: bytes,
    envelope: CrossDomainMessage,
    *,
    response: bool,
    strict_envelope: bool = True,
    leaf_count: int | None = None,
) -> tuple[Message, tuple[Step, ...]]:
    """Verify an envelope under a mountain range's root, and return its message.

    The caller knows the root as that of the block named by ``envelope.proof.consensus_chain_mmr_proof``.

    Args:
        mmr_root: trusted root of the mountain range, 32 bytes.
        envelope: the envelope.
        response: as for ``open_envelope``.
        strict_envelope: as for ``open_envelope``.
        leaf_count: as for ``verify_consensus_leaf``.

    Returns:
        The message, and the path to it.

    Raises:
        BadProof: the block's leaf is not under the root; or as ``open_envelope``.
        InvalidCall, InvalidProof, MissingValue, UnusedNodesInTheProof, OverLimit, FailedToDecode: as ``open_envelope``.
    """
    leaf, above = verify_consensus_leaf(mmr_root, envelope.proof.consensus_chain_mmr_proof, leaf_count)
    message, path = open_envelope(leaf.state_root, envelope, response=response, strict_envelope=strict_envelope)
    state = Step("state", f"state root of consensus block {leaf.block_number}", leaf.state_root)
    return message, (*path, state, *above)
