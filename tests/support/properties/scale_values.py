"""Values of SCALE types drawn from their definitions, and what the columns of XDM's types hold of a value."""

from __future__ import annotations

from random import Random
from typing import Any

from causeway_proofs.substrate.scale import ScaleTypes
from causeway_proofs.xdm.envelope import CrossDomainMessage, ExecutionReceipt, MmrLeaf
from causeway_proofs.xdm.messages import (
    XDM_TYPES,
    ChannelClose,
    ChannelOpen,
    DispatchError,
    EndpointRequest,
    EndpointResponse,
    Message,
    ProtocolResponse,
)

from tests.oracles.xdm.channels import STATES, Channel

Row = dict[str, Any]

LENGTHS = (0, 1, 5, 63, 64, 70)
"""Lengths of byte strings: on both sides of a compact length of another form."""


def plain(types: ScaleTypes, name: str, chance: Random) -> Any:
    """Return a value of a type as ``ScaleTypes`` writes it."""
    if name[0] == "u":
        bits = int(name[1:])
        return chance.choice((0, 1, (1 << bits) - 1, chance.getrandbits(bits), chance.getrandbits(bits // 2)))
    if name.startswith("Compact<u"):
        return plain(types, name[8:-1], chance) >> chance.randrange(8)
    if name == "Null":
        return None
    if name == "H256":
        return chance.randbytes(32)
    if name.startswith("[u8; "):
        return chance.randbytes(int(name[5:-1]))
    if name == "Vec<u8>":
        return chance.randbytes(chance.choice(LENGTHS))
    if name == "BTreeSet<Vec<u8>>":
        return sorted({chance.randbytes(chance.choice(LENGTHS)) for _ in range(chance.randrange(4))})
    if name.startswith("Option<"):
        return chance.choice((None, plain(types, name[7:-1], chance)))
    if name.startswith("Vec<"):
        return [plain(types, name[4:-1], chance) for _ in range(chance.choice((0, 1, 2, 3)))]
    if name.startswith("SortedVec<"):
        domains = sorted({chance.choice((-1, 0, 255, 256, chance.getrandbits(32))) for _ in range(chance.randrange(5))})
        keys = ["Consensus" if domain < 0 else {"Domain": domain} for domain in domains]
        return [{"chain_id": key, "amount": plain(types, "u128", chance)} for key in keys]
    definition = types.definitions[name]
    if definition["type"] == "struct":
        return {field: plain(types, part, chance) for field, part in definition["type_mapping"]}
    variant, part = chance.choice(definition["type_mapping"])
    return variant if part == "Null" else {variant: plain(types, part, chance)}


def variants(name: str) -> list[str]:
    """Return the names of an enum's variants, by index."""
    return [variant for variant, _ in XDM_TYPES.definitions[name]["type_mapping"]]


def wide(number: int | None, width: int = 32) -> bytes | None:
    """Return a number as its column holds it."""
    return None if number is None else number.to_bytes(width, "little")


def of_error(error: DispatchError) -> Row:
    """Return the columns of why a call failed."""
    row: Row = {"error": variants("DispatchError").index(error.kind)}
    if isinstance(error.detail, bytes):
        return row | {"error_module_index": error.detail[0], "error_module_error": error.detail[1:]}
    if error.detail is not None:
        row[f"error_{error.kind.lower()}"] = variants(f"{error.kind}Error").index(error.detail)
    return row


def of_message(message: Message) -> Row:
    """Return the columns of a message that are not null."""
    row: Row = {
        "src_chain_id": message.src_chain_id.domain,
        "dst_chain_id": message.dst_chain_id.domain,
        "channel_id": wide(message.channel_id),
        "nonce": wide(message.nonce),
        "version": message.version,
        "last_delivered_message_response_nonce": wide(message.last_delivered_message_response_nonce),
    }
    match message.payload:
        case ChannelOpen(most, fee):
            row |= {"layer": 0, "direction": 0, "request": 0, "max_outgoing_messages": most}
            row["relay_fee"] = wide(fee, 16)
        case ChannelClose():
            row |= {"layer": 0, "direction": 0, "request": 1}
        case ProtocolResponse(error):
            row |= {"layer": 0, "direction": 1, "result": int(error is not None)}
            row |= {} if error is None else of_error(error)
        case EndpointRequest(source, destination, payload, fee):
            row |= {"layer": 1, "direction": 0, "payload": payload}
            row |= {"src_endpoint": source, "dst_endpoint": destination}
            if fee is not None:
                row |= {"src_chain_fee": wide(fee.src_chain_fee, 16), "dst_chain_fee": wide(fee.dst_chain_fee, 16)}
        case EndpointResponse(bytes() as result):
            row |= {"layer": 1, "direction": 1, "result": 0, "response": result}
        case EndpointResponse(DispatchError() as error):
            row |= {"layer": 1, "direction": 1, "result": 1, **of_error(error)}
    return row


def of_channel(channel: Channel) -> Row:
    """Return the columns of a channel that are not null."""
    return {
        "channel_id": wide(channel.channel_id),
        "state": STATES.index(channel.state),
        "next_inbox_nonce": wide(channel.next_inbox_nonce),
        "next_outbox_nonce": wide(channel.next_outbox_nonce),
        "latest_response_received_message_nonce": wide(channel.latest_response_received_message_nonce),
        "max_outgoing_messages": channel.max_outgoing_messages,
        "relay_fee": wide(channel.relay_fee, 16),
        "maybe_owner": channel.maybe_owner,
        "channel_reserve_fee": wide(channel.channel_reserve_fee, 16),
    }


def of_envelope(envelope: CrossDomainMessage) -> Row:
    """Return the columns of an envelope that are not null."""
    proof = envelope.proof
    mmr = proof.consensus_chain_mmr_proof
    return {
        "src_chain_id": envelope.src_chain_id.domain,
        "dst_chain_id": envelope.dst_chain_id.domain,
        "channel_id": wide(envelope.channel_id),
        "nonce": wide(envelope.nonce),
        "proof": variants("Proof").index(proof.kind),
        "consensus_block_number": mmr.consensus_block_number,
        "consensus_block_hash": mmr.consensus_block_hash,
        "opaque_mmr_leaf": mmr.opaque_mmr_leaf,
        "leaf_indices": list(mmr.leaf_indices),
        "leaf_count": mmr.leaf_count,
        "items": list(mmr.items),
        "message_proof": list(proof.message_proof),
        "domain_proof": None if proof.domain_proof is None else list(proof.domain_proof),
        "weight_tag": variants("MessageWeightTag").index(envelope.weight_tag.kind),
        "weight_tag_endpoint": envelope.weight_tag.endpoint,
    }


def of_leaf(leaf: MmrLeaf) -> Row:
    """Return the columns of a leaf."""
    hashes = {name: getattr(leaf, name) for name in ("block_hash", "state_root", "extrinsics_root")}
    return {"block_number": leaf.block_number, **hashes}


def of_receipt(receipt: ExecutionReceipt) -> Row:
    """Return the columns of a receipt."""
    row = dict(receipt.fields)
    fees, transfers = row.pop("block_fees"), row.pop("transfers")
    for name, chains in [("chain_rewards", fees.pop("chain_rewards")), *transfers.items()]:
        row[name] = [
            {
                "chain_id": None if entry["chain_id"] == "Consensus" else entry["chain_id"]["Domain"],
                "amount": wide(entry["amount"], 16),
            }
            for entry in chains
        ]
    row |= {name: wide(fee, 16) for name, fee in fees.items()}
    row["inboxed_bundles"] = [_bundle(bundle) for bundle in row["inboxed_bundles"]]
    return row


def _bundle(bundle: Any) -> Row:
    ((validity, content),) = bundle["bundle"].items()
    row: Row = {"bundle": variants("BundleValidity").index(validity), "extrinsics_root": bundle["extrinsics_root"]}
    if validity == "Valid":
        row["bundle_valid"] = content
    else:
        kind, extrinsic = (content, None) if isinstance(content, str) else next(iter(content.items()))
        row |= {"bundle_invalid": variants("InvalidBundleType").index(kind), "bundle_invalid_extrinsic": extrinsic}
    return row
