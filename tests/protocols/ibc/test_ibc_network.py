"""In-memory driver of IBC kernels: joint and per-zone calls are equal, and completed messages are dropped."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.ingress_call import encode_calls
from causeway.protocols.ibc.program_inputs import ReceiptCode
from tests.support.ibc.ibc_network import Network, Placed

ZONES: dict[str, Placed] = {
    "A": {0: "caller", 1: "caller"},
    "B": {10: "echo", 11: "caller"},
    "C": {20: ("echo", {}), 21: None},
}


def call_payload(receiver: int, method: str = "echo") -> bytes:
    receivers = np.array([receiver], dtype=np.uint64)
    payload: bytes = encode_calls(receivers, 0, 0, method, pa.array([b"x"]))[0].as_py()
    return payload


def test_calls_answers_and_rejections() -> None:
    net = Network(ZONES)
    for receiver in (10, 20, 21, 99):
        net.tell(0, "call", call_payload(receiver), user=3)
    net.block()
    assert net.refusals() == [("A", "UnregisteredDestination")]
    net.block()
    assert net.receipts() == {(0, 0, 10): 0, (0, 1, 20): 0, (0, 2, 21): ReceiptCode.NO_PROGRAM}
    assert net.settle() == 1
    state = net.program_state(0)
    assert (state["answered"], state["rejected"], state["malformed"]) == (2, 2, 0)
    assert net.settle(3) == 1, "nothing is left"


def test_partitioned_and_joint_runs_are_equal() -> None:
    nets = [Network(ZONES, apart=apart) for apart in (False, True)]
    for net in nets:
        for height in range(6):
            rows = [(0, 0, height, "call", call_payload(10)), (1, 11, height, "call", call_payload(20))] * 3
            columns = [list(column) for column in zip(*rows, strict=True)]
            net.tell_all(pa.table(columns, schema=INGRESS_SCHEMA))
            net.block()
    together, apart = nets
    assert together.roots() == apart.roots()
    assert together.program_state(11) == apart.program_state(11)
    for net in nets:
        net.settle()
        net.block(4)
        assert sum(len(frame) for frames in net.outbox._frames.values() for frame in frames) == 0
