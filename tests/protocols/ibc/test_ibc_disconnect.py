"""Disconnection by a zone (IBC reference X-5): a final packet, and no new packets on either side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.config.faults import FaultRule
from causeway.protocols.ibc.keys import QueuePurpose, index_key
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.packets import Packet, Receipt, decode_receipt
from causeway.scenarios.scenario import load_scenario
from tests.protocols.ibc.test_ibc_kernel import assert_equal, assert_same_events
from tests.support.ibc.ibc_calls import SILENT, A, B, C, Net
from tests.support.ibc.ibc_harness import OracleRun

DISCONNECT = (("A", "B", 1),)
"""At tick 1, the second block."""

ASK_BACK = ("call", A, "echo", b"y", 0, None)


class ComparedNetwork(Net):
    """Network compared with the oracle after every block."""

    def __init__(self, options: Any = None, **more: Any) -> None:
        super().__init__(options, **more)
        self.oracle = OracleRun(self.scenario, self.application())

    def play(self, height: int) -> None:
        super().play(height)
        self.oracle.play(height, self.application())
        assert_equal(self.view(), self.oracle.view(), height)
        assert_same_events(self, self.oracle, height)


def disconnecting(net: Net) -> set[tuple[str, str]]:
    """Return the disconnecting connections."""
    return {(name, remote) for name, zone in net.view().items() for remote in zone["disconnecting"]}


@pytest.mark.parametrize("order", ["ordered", "unordered"])
@pytest.mark.parametrize("relay", [{}, {"proofs": "single"}])
def test_final_packet_and_later_ones(order: str, relay: dict[str, str]) -> None:
    net = ComparedNetwork({"order": order, "relay": relay}, disconnects=DISCONNECT).next()
    # In the second block: a packet before the final one, and one of the other zone, still unaware.
    net.ask().say("B", B, ASK_BACK).next()
    assert disconnecting(net) == {("A", "B")} and net.queue("A", "B", QueuePurpose.SEND) == (0, 2)
    assert net.entries()["A"][index_key("B", QueuePurpose.SEND, 1)] == Packet("disconnect", b"").encode()
    net.ask().say("B", B, ASK_BACK).next()
    assert disconnecting(net) == {("A", "B"), ("B", "A")}
    refused = [row for row in net.refusals() if row[1] == "ConnectionFrozen"]
    assert refused == [("A", "ConnectionFrozen"), ("B", "ConnectionFrozen")], "no new sends, not in that block either"
    assert net.codes("A", "B") == [1] and net.seen(A) == [], "what comes is answered with an error"
    assert net.codes("B", "A") == [0, 0] and len(net.seen(B)) == 1
    last = decode_receipt(net.entries()["B"][index_key("A", QueuePurpose.RECEIPT, 1)])
    assert last == Receipt(0, b"")
    net.next()
    assert net.queue("A", "B", QueuePurpose.SEND) == (2, 2) and net.queue("B", "A", QueuePurpose.SEND) == (1, 1)
    assert [0, 0, b"x", 0] in net.seen(A), "the receipt that was outstanding has come"
    assert [0, 1, b"", 0] in net.seen(B)
    assert net.kernel.idle(net.next().state)
    net.ask(C).next(3)
    assert [1 for row in net.seen(A) if row[1:3] == [0, b"x"]] == [1, 1], "other connections are open"


def test_late_answers_are_awaited() -> None:
    net = ComparedNetwork(disconnects=DISCONNECT).ask(method="hold").next(4)
    assert disconnecting(net) == {("A", "B"), ("B", "A")} and net.queue("A", "B", QueuePurpose.SEND) == (0, 2)
    net.say("B", B, ("flush", 1)).next(2)
    assert net.queue("A", "B", QueuePurpose.SEND) == (2, 2) and len(net.seen(A)) == 1


def test_forged_packets_behind_the_final_one_have_code_1() -> None:
    net = ComparedNetwork(disconnects=DISCONNECT, forged=((2, "A", A, B, b"f"), (3, "A", A, B, b"g"))).ask().next(5)
    assert net.codes("B", "A") == [0, 0, 1, 1] and len(net.seen(B)) == 1


def test_simultaneous_and_repeated_disconnection() -> None:
    net = ComparedNetwork(disconnects=(("A", "B", 1), ("B", "A", 1), ("C", "A", 2), ("A", "C", 6))).next(8)
    assert net.codes("A", "B") == net.codes("B", "A") == [0] and net.codes("A", "C") == [0]
    assert net.queue("A", "C", QueuePurpose.SEND) == (0, 0), "C has ended it before"
    assert all(net.kernel.idle(state) for state in net.states)


def test_later_fork_freezes_the_connection() -> None:
    net = ComparedNetwork(disconnects=DISCONNECT, forks=(("A", 2),)).ask().next(5)
    assert net.view()["B"]["frozen"] == {"A"} and net.queue("A", "B", QueuePurpose.SEND)[1] == 2


def test_final_packet_has_ordinary_packet_limits() -> None:
    limited = {"timeouts": "on", "timeout_blocks": 3, "cleanup": "on"}
    net = ComparedNetwork(limited, disconnects=DISCONNECT, carriers=(("drop", "A", "B", 0, 9, None),)).ask().next(8)
    assert net.queue("A", "B", QueuePurpose.SEND) == (2, 2) and disconnecting(net) == {("A", "B")}
    assert net.seen(A) == [[0, 2, b"", 0]]


def test_halted_zone_disconnects_nothing() -> None:
    net = ComparedNetwork(disconnects=DISCONNECT, halts=(("A", 1, 1),)).ask().next(4)
    assert disconnecting(net) == set()


def test_disconnection_by_external_messages() -> None:
    net = Net(carriers=SILENT, disconnects=DISCONNECT).ask().next(2).say("B", B, ASK_BACK).next()
    assert net.bring("B", net.update("A"), net.packet(0), net.packet(1)) == []
    assert net.codes("B", "A") == [0, 0] and net.view()["B"]["disconnecting"] == {"A"}
    assert net.bring("A", net.update("B"), net.receipt(0), net.receipt(1), net.packet(0, "B", "A")) == []
    assert net.queue("A", "B", QueuePurpose.SEND) == (2, 2) and net.codes("A", "B") == [1]


def test_disconnect_type_is_reserved() -> None:
    with pytest.raises(ValueError, match="no type of its own"):
        IbcOptions.model_validate({"types": {"disconnect": {}}})


def test_unconnected_zones_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="A and B are not connected"):
        Net({"connections": (("A", "C"),)}, disconnects=DISCONNECT)


SCENARIO = """
[network]
protocol = "ibc"
seed = 1
[[chains]]
name = "left"
[[chains]]
name = "right"
[traffic]
source = "none"
"""
FAULT = '[[faults]]\nkind = "disconnect"\nchain = "left"\ncounterparty = "{}"\ntick = 3\n'


def test_disconnection_in_a_scenario(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"

    def disconnects(text: str) -> list[FaultRule]:
        path.write_text(SCENARIO + text)
        scenario = load_scenario(path)
        return scenario.faults(scenario.topology(scenario.traffic())).rows

    assert disconnects(FAULT.format("right")) == [FaultRule("disconnect", 0, 1, 3, 3)]
    for text, line in (
        (FAULT.format("left"), r"faults\[0\].counterparty: \"left\": must differ from chain"),
        (2 * FAULT.format("right"), r"faults\[1\]: a second disconnect between the same chains"),
        (FAULT.format("rihgt"), r"faults\[0\].counterparty: .*did you mean right\?"),
    ):
        with pytest.raises(InvalidInput, match=line):
            disconnects(text)
