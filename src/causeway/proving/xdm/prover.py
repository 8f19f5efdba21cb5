"""Implementation of ``causeway prove`` under ``xdm``: requests in an outbox, and responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from causeway_proofs.errors import InvalidInput

from causeway.protocols.shared.command_options import CHAIN, COUNTERPARTY, INDEX, TRUST_OUT, CommandOption

if TYPE_CHECKING:
    from causeway.network.opened_lake import OpenedLake
    from causeway.proving.prover import Document, ProofOffer, ProofResult, ProvableMessage
    from causeway.proving.xdm.messages import ProvenMessage


class XdmProver:
    """Prover for lakes of domains."""

    about = """Under xdm: prove a request (--index, its nonce) that a chain has for another, or a response (--response).

    The proof is the envelope that operators bring: the leaf of a consensus block in the mountain range, the confirmed
    receipt of the domain under it, and the message in the domain's storage. Trusted is the mountain range's root.

    [bold]Example[/bold]: causeway prove my-lake --chain left --counterparty right --index 3 --height 20 --out p.json
    """
    options = (
        CommandOption("chain", CHAIN, required=True),
        CommandOption("counterparty", COUNTERPARTY, required=True),
        CommandOption("channel", "The channel between the two chains; 0 if it is not given.", int, metavar="N"),
        CommandOption("index", INDEX, int, metavar="N"),
        CommandOption("response", "Prove the response to the counterparty's request with this index.", bool),
    )
    files = (TRUST_OUT,)

    def prove(self, opened: OpenedLake, height: int | None, given: Mapping[str, Any]) -> ProofResult:
        """Prove a request or a response; see ``proving.prover.Prover``."""
        from causeway_proofs.documents.xdm import U256_MAX

        from causeway.proving.prover import ProofResult
        from causeway.proving.xdm.messages import prove_message

        for name in ("chain", "counterparty", "index"):
            if given[name] is None:
                raise InvalidInput(f"--{name}: missing")
        channel = given["channel"] or 0
        for name, number in (("channel", channel), ("index", given["index"])):
            if not 0 <= number <= U256_MAX:
                raise InvalidInput(f"--{name}: {number}: allowed are 0 to 2**256 - 1")
        proven = prove_message(
            opened,
            given["chain"],
            given["counterparty"],
            nonce=given["index"],
            channel=channel,
            response=bool(given["response"]),
            height=height,
        )
        beside = {} if given["trust_out"] is None else {"trust_out": trust_document(proven)}
        return ProofResult(message_document(proven), _proof_lines(proven, given), beside)

    def offers(self, opened: OpenedLake, message: ProvableMessage) -> Sequence[ProofOffer]:
        """Return the envelope of a message, provable shortly before its receipt."""
        from causeway.protocols.xdm.state import RESPONSE
        from causeway.proving.prover import ProofOffer

        response = bool(message.substream & RESPONSE)
        given = {
            "chain": message.source,
            "counterparty": message.destination,
            "channel": message.substream >> 1,
            "index": message.index,
            "response": response,
        }
        # A message is final just before its receipt; without a receipt the last height is tried.
        candidates = [height + off for height in message.heights.get("received", ()) for off in (-1, -2, 0, 1)]
        statement = (
            f"envelope: the {'response' if response else 'request'} of {message.source} to {message.destination}"
        )
        return [ProofOffer(statement, given, [*candidates, None])]


PROVER = XdmProver()


def message_document(proven: ProvenMessage) -> Document:
    """Build the document (``xdm_message``) of a message with its proofs."""
    from causeway_proofs.documents.xdm import CONSENSUS_NAME

    envelope, message = proven.envelope, proven.message
    mmr = envelope.proof.consensus_chain_mmr_proof
    source, destination = (
        CONSENSUS_NAME if chain.domain is None else chain.domain
        for chain in (envelope.src_chain_id, envelope.dst_chain_id)
    )
    return {
        "kind": "xdm_message",
        "source": source,
        "destination": destination,
        "channel_id": envelope.channel_id,
        "nonce": envelope.nonce,
        "response": message.is_response,
        "message": message.encode().hex(),
        "weight_tag": str(envelope.weight_tag),
        "consensus_block": {"number": mmr.consensus_block_number, "hash": mmr.consensus_block_hash.hex()},
        "proof": envelope.encode().hex(),
    }


def trust_document(proven: ProvenMessage) -> Document:
    """Build the trust document of the mountain range's root."""
    return {"kind": "root", "root": proven.root.hex(), "leaf_count": proven.leaf_count}


def _proof_lines(proven: ProvenMessage, given: Mapping[str, Any]) -> list[str]:
    envelope = proven.envelope
    kind = "response" if proven.message.is_response else "request"
    way = f"from {given['chain']} to {given['counterparty']}"
    mmr = envelope.proof.consensus_chain_mmr_proof
    size, root = len(envelope.encode()), proven.root.hex()
    return [
        f"{given['chain']} at its block {proven.block}: {kind} {envelope.nonce} {way}, channel {envelope.channel_id}",
        f"  proof     envelope with the weight tag {envelope.weight_tag}, {size:,} bytes, as of height {proven.height}",
        f"  root      {root} of {proven.leaf_count} leaves, at consensus block {mmr.consensus_block_number}",
    ]
