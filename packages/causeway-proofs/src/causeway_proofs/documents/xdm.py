"""Proof documents of messages between Autonomys domains: envelopes with their proofs."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from causeway_proofs.documents.document import ProofDocument, ProofPath, format_bytes, range_root
from causeway_proofs.documents.trust import Trust
from causeway_proofs.documents.validation import ClaimMismatch
from causeway_proofs.documents.values import Bytes, Digest, DocumentSection, Number, parse_number
from causeway_proofs.errors import ProofError
from causeway_proofs.mmr.mountain_range import leaf_hash
from causeway_proofs.mmr.proof import LeafProof, leaf_proof_root
from causeway_proofs.steps import Step
from causeway_proofs.xdm.envelope import (
    ConsensusChainMmrProof,
    CrossDomainMessage,
    MmrLeaf,
    open_envelope,
    verify_cross_domain_message,
)

CONSENSUS_NAME = "consensus"

U32_MAX = 2**32 - 1
U256_MAX = 2**256 - 1

_DIGITS = re.compile(r"0|[1-9][0-9]{0,77}", re.ASCII)
_CHAIN_RULE = f'must be "{CONSENSUS_NAME}" or the number of a domain, from 0 to 2**32 - 1'


def _chain_of(value: object) -> int | None:
    """Return the number of a domain, None for the consensus chain."""
    if value == CONSENSUS_NAME:
        return None
    try:
        number = parse_number(value)
    except ValueError:
        raise ValueError(_CHAIN_RULE) from None
    if number > U32_MAX:
        raise ValueError(_CHAIN_RULE)
    return number


def _u256_of(value: object) -> int:
    """Parse a 256-bit number from a JSON number or decimal digits."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= U256_MAX:
        raise ValueError("must be a whole number from 0 to 2**256 - 1")
    return value


Chain = Annotated[int | None, BeforeValidator(_chain_of)]
U256 = Annotated[int, BeforeValidator(_u256_of)]


class ConsensusBlock(DocumentSection):
    """A block of the consensus chain."""

    number: Annotated[Number, Field(le=U32_MAX)]
    hash: Digest


class XdmMessage(ProofDocument):
    """A message from one chain to another, proven by its envelope.

    Trusted is the root of the consensus chain's mountain range at the block that the envelope names;
    ``consensus_block``, if given, identifies that block. ``weight_tag``, as in ``EndpointRequest(2)``, is the
    envelope's statement of the message's weight. No proof covers it, so it is only compared with the claim.

    Attributes:
        message: SCALE encoding of the message; without it, any message is accepted.
        response: True for the response of that channel and nonce, False for the request.
        proof: SCALE encoding of the envelope.
    """

    kind: Literal["xdm_message"]
    source: Chain
    destination: Chain
    channel_id: U256
    nonce: U256
    response: bool = False
    message: Bytes | None = None
    weight_tag: str | None = None
    consensus_block: ConsensusBlock | None = None
    proof: Bytes

    def claim(self) -> str:
        """Return the claim in one line."""
        kind_name = "response" if self.response else "request"
        way = f"from {_domain_name(self.source)} to {_domain_name(self.destination)}"
        text = f"the {kind_name} {way} in channel {self.channel_id} with nonce {self.nonce}"
        return f"{text} was made" if self.message is None else f"{text} is {format_bytes(self.message)}"

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path from the message to the root.

        Args:
            trust: the trusted root of the mountain range.

        Returns:
            One path.

        Raises:
            ClaimMismatch: the envelope holds another message, or names another block.
            ProofError: as ``verify_cross_domain_message``.
        """
        root, envelope = range_root(trust), CrossDomainMessage.decode(self.proof)
        self._require_named(envelope)
        message, steps = verify_cross_domain_message(
            root.root, envelope, response=self.response, leaf_count=root.leaf_count
        )
        encoded = message.encode()
        if self.message not in (None, encoded):
            raise ClaimMismatch(
                f"the proof shows the message {format_bytes(encoded)}, claimed is {format_bytes(self.message or b'')}"
            )
        return (ProofPath(self.claim(), steps),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the computable path: from the message if readable, else from its block."""
        envelope = CrossDomainMessage.decode(self.proof)
        proof = envelope.proof.consensus_chain_mmr_proof
        leaf = MmrLeaf.decode(proof.opaque_mmr_leaf)
        try:
            _, path = open_envelope(leaf.state_root, envelope, response=self.response)
        except ProofError:
            path = ()
        state = Step("state", f"state root of consensus block {leaf.block_number}", leaf.state_root)
        return (ProofPath(self.claim(), (*path, state, *_above(proof))),)

    def _require_named(self, envelope: CrossDomainMessage) -> None:
        """Reject an envelope of another message or another block than claimed."""
        proof, block = envelope.proof.consensus_chain_mmr_proof, self.consensus_block
        claims: list[tuple[str, object, object]] = [
            ("source", _domain_name(envelope.src_chain_id.domain), _domain_name(self.source)),
            ("destination", _domain_name(envelope.dst_chain_id.domain), _domain_name(self.destination)),
            ("channel_id", envelope.channel_id, self.channel_id),
            ("nonce", envelope.nonce, self.nonce),
        ]
        if self.weight_tag is not None:
            claims.append(("weight_tag", str(envelope.weight_tag), self.weight_tag))
        if block is not None:
            claims += [
                ("consensus_block: number", proof.consensus_block_number, block.number),
                ("consensus_block: hash", proof.consensus_block_hash.hex(), block.hash.hex()),
            ]
        for name, found, claimed in claims:
            if found != claimed:
                raise ClaimMismatch(f"{name}: the envelope names {found}, claimed is {claimed}")


def _above(proof: ConsensusChainMmrProof) -> tuple[Step, ...]:
    """Return the path from a block's leaf to the computed root; empty if not computable."""
    leaf_proof = LeafProof(proof.leaf_indices, proof.leaf_count, proof.items)
    try:
        root, steps = leaf_proof_root(leaf_proof, [leaf_hash(proof.opaque_mmr_leaf)])
    except ProofError:
        return ()
    return (*steps, Step("root", f"of {proof.leaf_count} leaves", root))


def _domain_name(domain: int | None) -> str:
    return CONSENSUS_NAME if domain is None else f"domain {domain}"
