"""Carriers of cross-domain messages: the envelope, its proofs, and the way from a confirmed state to the message.

An envelope has no message in it: the message is read out of the storage proof, under the source chain's root, which for
a domain is itself read out of a storage proof under the consensus chain's root. Sources: XDM reference 2.4 and 3.4,
steps 6 to 8; the Merkle mountain range that leads to the consensus chain's root is verified in
``confirmation``.

Cross-domain messages from the consensus chain's mountain range to the message (XDM reference 2.4 and 3.4).

The trusted root is the one that the consensus chain's Merkle mountain range had at the block that the proof names.
Under it lies the leaf of a block, in the leaf that block's state root, and under that what ``open_envelope`` reads.
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
    """A leaf of the consensus chain's mountain range: the block before the one that added it."""

    block_number: int
    block_hash: bytes
    state_root: bytes
    extrinsics_root: bytes

    def encode(self) -> bytes:
        """Return the SCALE encoding, version 0."""
        return XDM_TYPES.encode("MmrLeaf", {"V0": asdict(self)})

    @classmethod
    def decode(cls, data: bytes) -> MmrLeaf:
        """Return the leaf that ``data`` is the canonical encoding of.

        Raises:
            FailedToDecode: it is not one.
        """
        return cls(**XDM_TYPES.decode("MmrLeaf", data, "a leaf of the mountain range")["V0"])


@dataclass(frozen=True, slots=True)
class ConsensusChainMmrProof:
    """Proof that a leaf belongs to the consensus chain's mountain range at a block (empty in the public fixtures)."""

    consensus_block_number: int
    consensus_block_hash: bytes
    opaque_mmr_leaf: bytes
    leaf_indices: tuple[int, ...]
    leaf_count: int
    items: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class EnvelopeProof:
    """What an envelope proves its message with; ``domain_proof`` is None for the kind Consensus (D-6).

    The nodes of either storage proof are ascending, as a set of byte strings is encoded.
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
    """The envelope. All but the proof is outside every proof, and is compared with the message that comes out (D-7)."""

    src_chain_id: ChainId
    dst_chain_id: ChainId
    channel_id: int
    nonce: int
    proof: EnvelopeProof
    weight_tag: WeightTag

    def encode(self) -> bytes:
        """Return the SCALE encoding.

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
        """Return the envelope that ``data`` is the canonical encoding of.

        Raises:
            OverLimit: it has more than 5 MiB, or a list too many elements.
            FailedToDecode: it is no envelope, or not in canonical form.
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
    """What a domain's operators state about one of its blocks; ``fields`` are all that ``XDM_TYPES`` reads."""

    domain_block_number: int
    domain_block_hash: bytes
    consensus_block_number: int
    consensus_block_hash: bytes
    final_state_root: bytes
    fields: dict[str, Any]

    def encode(self) -> bytes:
        """Return the SCALE encoding of ``fields``, version 0."""
        return XDM_TYPES.encode("ExecutionReceipt", {"V0": self.fields})

    @classmethod
    def decode(cls, data: bytes) -> ExecutionReceipt:
        """Return the receipt that ``data`` is the canonical encoding of.

        Raises:
            FailedToDecode: it is not one, or a map in it is out of order.
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
    """Return the key of a message in ``Outbox`` or ``InboxResponses``; ``foreign`` is the chain at the other end."""
    return storage_key(
        PALLET,
        item,
        (identity, foreign.encode() + _number(channel_id) + _number(nonce)),
    )


def channel_storage_key(foreign: ChainId, channel_id: int) -> bytes:
    """Return the key of a channel with the chain ``foreign``."""
    return storage_key(PALLET, CHANNELS_ITEM, (identity, foreign.encode()), (identity, _number(channel_id)))


def receipt_storage_key(domain: int) -> bytes:
    """Return the key under which the consensus chain keeps a domain's latest confirmed execution receipt."""
    return storage_key("Domains", "LatestConfirmedDomainExecutionReceipt", (identity, XDM_TYPES.encode("u32", domain)))


def open_envelope(
    state_root: bytes, envelope: CrossDomainMessage, *, response: bool, strict_envelope: bool = True
) -> tuple[Message, tuple[Step, ...]]:
    """Return the message that an envelope proves under the consensus chain's ``state_root``, and the path to it.

    ``response`` says which call relays it: a request is read from the source's outbox, a response from its inbox.
    ``strict_envelope`` off leaves out what the deployed chain does not check (D-7): that the kind of proof fits the
    source.

    Raises:
        BadProof: the kind of proof does not fit the source, or the message is not the one that the envelope names.
        InvalidCall: it is a request where a response is due, or the other way round.
        InvalidProof, MissingValue, UnusedNodesInTheProof, OverLimit: as for ``read_value``, which is strict here.
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
    """Return the leaf that a carrier's mountain range proof shows under ``mmr_root``, and the path to it.

    ``leaf_count`` is the number of leaves under that root, where it is known: a root does not say it.

    Raises:
        BadProof: it is no proof of exactly one leaf, it leads to another root, or the leaf is malformed.
    """
    if len(proof.leaf_indices) != 1:
        raise BadProof(f"the mountain range proof of a carrier is of {len(proof.leaf_indices)} leaves, one is due")
    shown = LeafProof(proof.leaf_indices, proof.leaf_count, proof.items)
    try:
        steps = verify_leaf_proof(shown, [leaf_hash(proof.opaque_mmr_leaf)], mmr_root, leaf_count)
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
    """Return the message that an envelope proves under a root of the consensus chain's mountain range, and the path.

    The caller knows the root as that of the block ``envelope.proof.consensus_chain_mmr_proof`` names; the other
    arguments are those of ``verify_consensus_leaf`` and ``open_envelope``.

    Raises:
        BadProof: the leaf of the block is not under the root; or as for ``open_envelope``.
        InvalidCall, InvalidProof, MissingValue, UnusedNodesInTheProof, OverLimit, FailedToDecode: as there.
    """
    leaf, above = verify_consensus_leaf(mmr_root, envelope.proof.consensus_chain_mmr_proof, leaf_count)
    message, path = open_envelope(leaf.state_root, envelope, response=response, strict_envelope=strict_envelope)
    state = Step("state", f"state root of consensus block {leaf.block_number}", leaf.state_root)
    return message, (*path, state, *above)
