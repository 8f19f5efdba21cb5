"""Size limits: each covers the preceding ones, and allowed messages arrive."""

from __future__ import annotations

from pathlib import Path

import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.limits import MAX_MESSAGE_BYTES
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.network.network import program_state
from causeway.programs.scalar import Context, Program, Request
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.packets import ANSWER_BYTES, CALL_BYTES
from causeway.protocols.shared import limits
from causeway.service.ibc.relay_plan import RelaySettings
from causeway.service.node.mempool import MempoolLimits
from tests.service.test_processes import check, ended, served
from tests.support.common.lakes import Lakes, both

METHOD = "hello"
LONGEST = limits.MAX_DATA_BYTES - CALL_BYTES - len(METHOD)
"""Bytes of the longest text that a call to another lake carries."""


def test_limits_are_mutually_consistent() -> None:
    submission = limits.VALUE_COPIES * limits.MAX_VALUE_BYTES + limits.MAX_PATH_BYTES
    assert submission <= limits.MAX_TRANSACTION_BYTES <= MAX_MESSAGE_BYTES
    assert limits.MAX_DATA_BYTES + limits.MAX_ENVELOPE_BYTES <= limits.MAX_VALUE_BYTES
    assert IbcOptions().max_data_bytes <= limits.MAX_DATA_BYTES
    assert limits.MAX_TRANSACTION_BYTES <= limits.MAX_BLOCK_BYTES
    assert limits.MAX_CALLS <= limits.MAX_BLOCK_CALLS
    assert limits.DIGITS * submission < limits.MAX_ANSWER_BYTES
    assert limits.DIGITS * limits.MAX_DATA_BYTES < limits.MAX_JSON_BYTES
    assert RelaySettings().max_bytes == limits.MAX_TRANSACTION_BYTES
    assert RelaySettings().max_calls <= limits.MAX_CALLS
    assert RelaySettings().chunk <= limits.MAX_ITEMS
    waiting = MempoolLimits()
    assert limits.MAX_TRANSACTION_BYTES < waiting.sender_size <= waiting.user_size < waiting.size
    assert waiting.size >= limits.MAX_BLOCK_BYTES


def test_longest_packet_makes_a_round_trip_and_one_more_byte_is_rejected(tmp_path: Path) -> None:
    options = f"max_data_bytes = {limits.MAX_DATA_BYTES}"
    with both(tmp_path, calls=0, options=options) as lakes:
        call = {"receiver": "echo-right", "method": METHOD, "text": "x" * LONGEST}
        lakes.send("left", {"to": "caller-left", "call": call})
        with pytest.raises(InvalidInput, match=f"at most {LONGEST} are allowed"):
            lakes.send("left", {"to": "caller-left", "call": {**call, "text": "x" * (LONGEST + 1)}})
        lakes.settle()
        assert lakes.lane("left")["send"]["tail"] == 1
        lakes.until_idle()
        assert lakes.received("right") == lakes.answered("left") == [0]
        state = caller_state(lakes)
        assert (state["answered"], state["rejected"]) == (1, 0)
        longest = max(len(one.transaction) for one in lakes.submitted)
        assert longest <= limits.MAX_TRANSACTION_BYTES
        assert longest > limits.VALUE_COPIES * limits.MAX_DATA_BYTES


def test_network_with_packets_too_long_to_relay_is_rejected(tmp_path: Path) -> None:
    options = f"max_data_bytes = {limits.MAX_DATA_BYTES + 1}"
    with (
        pytest.raises(InvalidInput, match=f"at most {limits.MAX_DATA_BYTES} can be carried"),
        both(tmp_path, calls=0, options=options),
    ):
        raise AssertionError("not reached")


class Talkative(Program):
    """Program that answers with the number of bytes in the request's text."""

    def on_request(self, request: Request, context: Context) -> bytes:
        """Return the bytes."""
        return bytes(int(request.payload))


@pytest.mark.parametrize("more", [0, 1])
def test_answer_too_long_to_relay_becomes_an_error(tmp_path: Path, more: int) -> None:
    length = limits.MAX_DATA_BYTES - ANSWER_BYTES + more
    with both(tmp_path, calls=1, text=str(length), echo="tests.service.test_limits:Talkative") as lakes:
        lakes.until_idle()
        lakes.check(1)
        assert caller_state(lakes)["rejected"] == more
        largest = max(len(wire.Transaction.FromString(one.transaction).SerializeToString()) for one in lakes.submitted)
        assert (largest > limits.MAX_DATA_BYTES) == (not more)


def caller_state(lakes: Lakes) -> dict[str, int]:
    network = lakes.nodes["left"].network
    found: dict[str, int] = program_state(network.lake, network.manifest, network.topology, "caller-left")
    return found


@pytest.mark.slow
def test_eight_large_packets_and_one_of_maximum_size_pass_over_sockets(tmp_path: Path) -> None:
    options = f"max_data_bytes = {limits.MAX_DATA_BYTES}"
    with served(tmp_path, 8, "--on-demand", "--block-seconds", "0", text="x" * 200_000, options=options) as lakes:
        for own, other in (("left", "right"), ("right", "left")):
            call = {"receiver": f"echo-{other}", "method": METHOD, "text": "y" * LONGEST}
            lakes.send(own, {"to": f"caller-{own}", "call": call})
        relay = lakes.relay("--once")
        code, log = ended(relay)
        assert code == 0, log
        lakes.wait_until(9)
        lakes.stop()
    check(tmp_path, 9)
