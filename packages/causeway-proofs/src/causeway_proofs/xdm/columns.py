"""Cross-domain messages, channels, envelopes, receipts and leaves by whole columns (XDM reference 2.1 to 2.4).

The schemas are those of the types (``substrate.scale_columns``); both payload layouts of a message share their columns.
A chain is the number of its domain, uint32, null for Consensus; numbers of 256 bits are fixed_size_binary[32].
"""

from __future__ import annotations

import pyarrow as pa

from causeway_proofs.substrate.scale_columns import ScaleColumns
from causeway_proofs.substrate.storage_keys import storage_key_column, storage_prefix
from causeway_proofs.xdm.envelope import PALLET
from causeway_proofs.xdm.messages import MAX_MESSAGE_BYTES, XDM_TYPES

MESSAGES = ScaleColumns(
    XDM_TYPES,
    "Message",
    "a cross-domain message",
    MAX_MESSAGE_BYTES,
    names={
        "Message.payload": "",
        **dict.fromkeys(
            ("V0", "V1", "Protocol", "Endpoint", "Request", "Response", "ChannelOpen", "fee_model", "req"), ""
        ),
        "collected_fee": "",
        "Ok": "response",
        "Err": "error",
    },
    tags={
        "VersionedPayload": "version",
        "ProtocolResult": "result",
        "EndpointResult": "result",
        **{
            f"{name}V{version}": column
            for version in (0, 1)
            for name, column in (
                ("Payload", "layer"),
                ("Protocol", "direction"),
                ("Endpoint", "direction"),
                ("ProtocolRequest", "request"),
            )
        },
    },
)
"""Messages. ``version`` is the payload's; ``layer`` is 0 Protocol or 1 Endpoint; ``direction`` 0 Request or 1 Response;
``request`` 0 ChannelOpen or 1 ChannelClose; ``result`` of a response 0 Ok, with the bytes ``response`` of an endpoint,
or 1 Err, with the variant ``error`` of a DispatchError and its content. A chain is the domain's number, null for
Consensus."""

ENVELOPES = ScaleColumns(
    XDM_TYPES,
    "CrossDomainMessage",
    "a cross-domain envelope",
    MAX_MESSAGE_BYTES,
    names={
        **dict.fromkeys(("CrossDomainMessage.proof", "Proof.Consensus", "Proof.Domain"), ""),
        **dict.fromkeys(("consensus_chain_mmr_proof", "ConsensusChainMmrLeafProof.proof"), ""),
        "EndpointRequest": "endpoint",
        "EndpointResponse": "endpoint",
    },
    tags={"Proof": "proof"},
)
"""Envelopes. ``proof`` is 0 Consensus or 1 Domain, ``domain_proof`` null for the former; ``weight_tag`` is the index of
the variant, with ``weight_tag_endpoint`` where that has one."""

CHANNELS = {
    (version, account_bytes): ScaleColumns(
        XDM_TYPES, f"ChannelV{version}" + ("Account20" if account_bytes == 20 else ""), "a channel", names={"fee": ""}
    )
    for version in (0, 1)
    for account_bytes in (20, 32)
}
"""Channels by layout (0, with ``relay_fee``, or 1) and bytes of an account."""

RECEIPTS = ScaleColumns(
    XDM_TYPES,
    "ExecutionReceipt",
    "an execution receipt",
    MAX_MESSAGE_BYTES,
    names={
        "block_fees": "",
        "transfers": "",
        **dict.fromkeys(("UndecodableTx", "OutOfRangeTx", "IllegalTx", "InvalidXDM", "InherentExtrinsic"), "extrinsic"),
    },
)
"""Execution receipts, version 0."""

LEAVES = ScaleColumns(XDM_TYPES, "MmrLeaf", "a leaf of the mountain range")
"""Leaves of the consensus chain's mountain range, version 0."""

_MESSAGE_KEYS = ScaleColumns(XDM_TYPES, "MessageKey", "the key of a message")
_CHANNEL_KEYS = ScaleColumns(XDM_TYPES, "ChannelKey", "the key of a channel")
_CHAIN_KEYS = ScaleColumns(XDM_TYPES, "ChainId", "a chain")


def message_map_keys(foreign: pa.Array, channel_ids: pa.Array, nonces: pa.Array) -> pa.LargeBinaryArray:
    """Return what the keys of maps by message end with; columns and errors are those of ``message_storage_keys``."""
    return _MESSAGE_KEYS.encode({"chain_id": foreign, "channel_id": channel_ids, "nonce": nonces})


def channel_map_keys(foreign: pa.Array, channel_ids: pa.Array) -> pa.LargeBinaryArray:
    """Return what the keys of maps by channel end with; the columns are as for messages."""
    return _CHANNEL_KEYS.encode({"chain_id": foreign, "channel_id": channel_ids})


def chain_map_keys(foreign: pa.Array) -> pa.LargeBinaryArray:
    """Return what the keys of maps by chain end with; the column is as for messages."""
    return _CHAIN_KEYS.encode({"value": foreign})


def messenger_keys(item: str, map_keys: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Return the storage keys of a map of the messenger, whose hashers are all Identity."""
    return storage_key_column(storage_prefix(PALLET, item), map_keys)
