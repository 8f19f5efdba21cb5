"""Store keys of IBC version 1: the paths of ICS-24, character by character."""

from __future__ import annotations

import pytest
from causeway_proofs import InvalidInput, ibc

PATHS = [
    (ibc.packet_commitment_path_v1("transfer", "c-9", 7), "commitments/ports/transfer/channels/c-9/sequences/7"),
    (ibc.packet_receipt_path_v1("transfer", "channel-0", 1), "receipts/ports/transfer/channels/channel-0/sequences/1"),
    (ibc.packet_acknowledgement_path_v1("p", "c", 2**64 - 1), "acks/ports/p/channels/c/sequences/18446744073709551615"),
    (ibc.next_sequence_receive_path_v1("transfer", "channel-0"), "nextSequenceRecv/ports/transfer/channels/channel-0"),
    (ibc.channel_path_v1("transfer", "channel-0"), "channelEnds/ports/transfer/channels/channel-0"),
    (ibc.connection_path("connection-0"), "connections/connection-0"),
    (ibc.client_state_path("07-tendermint-0"), "clients/07-tendermint-0/clientState"),
    (ibc.consensus_state_path("07-tendermint-0", 4, 99), "clients/07-tendermint-0/consensusStates/4-99"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "expected"), PATHS, ids=[expected for _, expected in PATHS])
def test_paths_match_the_specification(path: bytes, expected: str) -> None:
    assert path == expected.encode()


def test_invalid_path_parts_are_refused() -> None:
    with pytest.raises(InvalidInput, match="'a/b' is no identifier"):
        ibc.channel_path_v1("a/b", "channel-0")
    with pytest.raises(InvalidInput, match="sequence is 0"):
        ibc.packet_receipt_path_v1("transfer", "channel-0", 0)
    with pytest.raises(InvalidInput, match="revision_height"):
        ibc.consensus_state_path("07-tendermint-0", 0, 2**64)
