"""Deliberately failing module in a network of zones: callers recover, and no failure persists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from causeway.core.ingress_call import encode_calls
from causeway.programs.bundled.messaging import Faulty
from causeway.programs.trial import Trial
from causeway.protocols.ibc.program_inputs import ReceiptCode
from tests.support.ibc.ibc_network import Network, Placed

CALLER, FAULTY = 0, 10


def call_payload(receiver: int, body: bytes = b"x") -> bytes:
    receivers = np.array([receiver], dtype=np.uint64)
    payload: bytes = encode_calls(receivers, 0, 0, "echo", pa.array([body], pa.binary()))[0].as_py()
    return payload


def network(options: dict[str, Any] | None = None, **faults: int) -> Network:
    zones: dict[str, Placed] = {"A": {CALLER: "caller"}, "B": {FAULTY: ("faulty", faults)}}
    return Network(zones, options=options)


def test_faulty_program_raises_rejects_and_delays_at_its_intervals() -> None:
    net = network(raise_every=3, reject_every=4, late_every=5, late_by=3)
    for _ in range(12):
        net.tell(CALLER, "call", call_payload(FAULTY))
    codes: dict[int, int] = {}
    blocks = []
    while len(codes) < 12:
        net.block()
        new = {callback: code for (caller, callback, _), code in net.receipts().items() if caller == CALLER}
        codes |= new
        blocks.append(sorted(callback + 1 for callback in new))
    raised, rejected = {3, 6, 9, 12}, {4, 8}
    assert {callback + 1 for callback, code in codes.items() if code == ReceiptCode.HANDLER_FAILED} == raised
    assert {callback + 1 for callback, code in codes.items() if code == ReceiptCode.REJECTED} == rejected
    assert blocks == [[], [1, 2, 3, 4, 6, 7, 8, 9, 11, 12], [], [], [5, 10]]
    net.settle()
    faulty = net.program_state(FAULTY)
    assert (faulty["served"], faulty["late"], faulty["undone"], faulty["waiting"]) == (6, 2, 0, {})
    caller = net.program_state(CALLER)
    assert (caller["answered"], caller["rejected"]) == (6, 6)


def test_failing_reply_handler_retains_the_packet_until_repaired() -> None:
    zones: dict[str, Placed] = {"A": {0: ("faulty", {"raise_in_reply_every": 2})}, "B": {10: "echo"}}
    net = Network(zones)
    for _ in range(4):
        net.tell(0, "call", call_payload(10))
    net.block(5)
    assert ("A", "HandlerFault") in net.refusals()
    assert net.program_state(0)["answered"] == 1, "in order: what is behind the fault waits"
    net.tell(0, "mend")
    net.settle()
    state = net.program_state(0)
    assert (state["answered"], state["rejected"], state["undone"]) == (4, 0, 0)


def test_faulty_program_on_trial() -> None:
    faulty = Trial(Faulty, {"late_every": 1, "late_by": 2}, number=5)
    (wait,) = faulty.request(1, "echo", b"later")
    assert (wait.receiver, wait.method) == (5, "wait")  # type: ignore[union-attr]
    (done, again) = faulty.request(5, "wait", wait.payload)
    assert done.payload == b""
    answers = faulty.request(5, "wait", again.payload)
    assert sorted(answer.payload for answer in answers) == [b"", b"later"]
    (echo,) = Trial(Faulty, number=5).request(1, "wait", b"not mine")
    assert echo.payload == b"not mine", "only its own waits are waits"
