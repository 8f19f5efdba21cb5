from .columns import (
    commit_acknowledgements_v1,
    commit_acknowledgements_v2,
    commit_packets_v1,
    commit_packets_v2,
    hash_payloads,
)
from .keys import (
    KeyKind,
    PacketKey,
    channel_path_v1,
    client_state_path,
    connection_path,
    consensus_state_path,
    next_sequence_receive_path_v1,
    packet_acknowledgement_key_v2,
    packet_acknowledgement_path_v1,
    packet_commitment_key_v2,
    packet_commitment_path_v1,
    packet_receipt_key_v2,
    packet_receipt_path_v1,
    parse_packet_key_v2,
)
from .packets import (
    UNIVERSAL_ERROR_ACKNOWLEDGEMENT,
    PacketV2,
    Payload,
    commit_acknowledgement_v1,
    commit_acknowledgement_v2,
    commit_packet_v1,
    commit_packet_v2,
)

__all__ = [
    "UNIVERSAL_ERROR_ACKNOWLEDGEMENT", "KeyKind", "PacketKey", "PacketV2", "Payload", "channel_path_v1",
    "client_state_path", "commit_acknowledgement_v1", "commit_acknowledgement_v2", "commit_acknowledgements_v1",
    "commit_acknowledgements_v2", "commit_packet_v1", "commit_packet_v2", "commit_packets_v1", "commit_packets_v2",
    "connection_path", "consensus_state_path", "hash_payloads", "next_sequence_receive_path_v1",
    "packet_acknowledgement_key_v2", "packet_acknowledgement_path_v1", "packet_commitment_key_v2",
    "packet_commitment_path_v1", "packet_receipt_key_v2", "packet_receipt_path_v1", "parse_packet_key_v2",
]  # fmt: skip
