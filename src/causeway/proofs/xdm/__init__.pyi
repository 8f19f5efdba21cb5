from .columns import (
    CHANNELS,
    ENVELOPES,
    LEAVES,
    MESSAGES,
    RECEIPTS,
    chain_map_keys,
    channel_map_keys,
    message_map_keys,
    messenger_keys,
)
from .confirmation import verify_consensus_leaf, verify_cross_domain_message
from .envelope import (
    INBOX_RESPONSES,
    OUTBOX,
    ConsensusChainMmrProof,
    CrossDomainMessage,
    ExecutionReceipt,
    MmrLeaf,
    Proof,
    channel_storage_key,
    message_storage_key,
    open_envelope,
    receipt_storage_key,
)
from .messages import (
    CONSENSUS,
    ChainId,
    ChannelClose,
    ChannelOpen,
    CollectedFee,
    DispatchError,
    EndpointRequest,
    EndpointResponse,
    Message,
    Payload,
    ProtocolResponse,
    WeightTag,
)

__all__ = [
    "CHANNELS", "CONSENSUS", "ENVELOPES", "INBOX_RESPONSES", "LEAVES", "MESSAGES", "OUTBOX", "RECEIPTS", "ChainId",
    "ChannelClose", "ChannelOpen", "CollectedFee", "ConsensusChainMmrProof", "CrossDomainMessage", "DispatchError",
    "EndpointRequest", "EndpointResponse", "ExecutionReceipt", "Message", "MmrLeaf", "Payload", "Proof",
    "ProtocolResponse", "WeightTag", "chain_map_keys", "channel_map_keys", "channel_storage_key",
    "message_map_keys", "message_storage_key", "messenger_keys", "open_envelope", "receipt_storage_key",
    "verify_consensus_leaf", "verify_cross_domain_message",
]  # fmt: skip
