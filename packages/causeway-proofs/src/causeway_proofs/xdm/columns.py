"""Column codecs of cross-domain messages, channels and proofs (XDM reference 2.1 to 2.4).

Schemas follow the types (``substrate.scale_columns``); both payload layouts of a message share columns. A chain is its
domain's number, uint32, null for the consensus chain; 256-bit numbers are fixed_size_binary[32].
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
"""Codec of messages.

- ``version``: layout of the payload.
- ``layer``: 0 Protocol, 1 Endpoint.
- ``direction``: 0 Request, 1 Response.
- ``request``: 0 ChannelOpen, 1 ChannelClose.
- ``result`` of a response: 0 Ok, with an endpoint's bytes ``response``; 1 Err, with the variant ``error`` of a
  DispatchError and its content.
"""

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
"""Codec of envelopes.

- ``proof``: 0 Consensus, 1 Domain; ``domain_proof`` is null for the former.
- ``weight_tag``: index of the variant, with ``weight_tag_endpoint`` if it has one.
"""

CHANNELS = {
    (version, account_bytes): ScaleColumns(
        XDM_TYPES, f"ChannelV{version}" + ("Account20" if account_bytes == 20 else ""), "a channel", names={"fee": ""}
    )
    for version in (0, 1)
    for account_bytes in (20, 32)
}
"""Codecs of channels by layout (0, with ``relay_fee``, or 1) and bytes of an account."""

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
"""Codec of execution receipts, version 0."""

LEAVES = ScaleColumns(XDM_TYPES, "MmrLeaf", "a leaf of the mountain range")
"""Codec of leaves of the consensus chain's mountain range, version 0."""

_MESSAGE_KEYS = ScaleColumns(XDM_TYPES, "MessageKey", "the key of a message")
_CHANNEL_KEYS = ScaleColumns(XDM_TYPES, "ChannelKey", "the key of a channel")
_CHAIN_KEYS = ScaleColumns(XDM_TYPES, "ChainId", "a chain")


def message_map_keys(foreign: pa.Array, channel_ids: pa.Array, nonces: pa.Array) -> pa.LargeBinaryArray:
    """Return the map keys of messages, the suffixes of their storage keys.

    Args:
        foreign: number of the domain at the other end, uint32, null for the consensus chain; n rows.
        channel_ids: 256-bit numbers, fixed_size_binary[32].
        nonces: 256-bit numbers, fixed_size_binary[32].

    Returns:
        n map keys.

    Raises:
        InvalidInput: a column has another type or length, or a null number.
    """
    return _MESSAGE_KEYS.encode({"chain_id": foreign, "channel_id": channel_ids, "nonce": nonces})


def channel_map_keys(foreign: pa.Array, channel_ids: pa.Array) -> pa.LargeBinaryArray:
    """Return the map keys of channels, the suffixes of their storage keys.

    Args:
        foreign: number of the domain at the other end, null for the consensus chain.
        channel_ids: 256-bit numbers, fixed_size_binary[32].

    Returns:
        One map key a row.
    """
    return _CHANNEL_KEYS.encode({"chain_id": foreign, "channel_id": channel_ids})


def chain_map_keys(foreign: pa.Array) -> pa.LargeBinaryArray:
    """Return the map keys of chains, the suffixes of their storage keys.

    Args:
        foreign: number of the domain, null for the consensus chain.

    Returns:
        One map key a row.
    """
    return _CHAIN_KEYS.encode({"value": foreign})


def messenger_keys(item: str, map_keys: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Return the storage keys of a map of the messenger pallet, with Identity hashers.

    Args:
        item: name of the map.
        map_keys: map keys, one a row.

    Returns:
        The storage keys.
    """
    return storage_key_column(storage_prefix(PALLET, item), map_keys)
