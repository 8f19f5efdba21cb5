"""Messages that no block could execute: rejection by field before queueing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.protocols.ibc.packets import CALL_BYTES
from causeway.service.node.api import create_application
from tests.service.test_api import Http
from tests.support.common.lakes import Lakes, both, key_of

MOST = 1_000
METHOD = "greet"
LONGEST = MOST - CALL_BYTES - len(METHOD)

OPTIONS = f"""
connections = [["left", "right"]]
max_data_bytes = {MOST}
[options.types.mint]
chains = ["right"]
[options.types.burn]
modules = ["echo-left"]
"""
MORE = """
[[chains]]
name = "far"
external = true
[[programs]]
name = "echo-far"
chain = "far"
program = "echo"
[[programs]]
name = "nobody"
chain = "left"
program = "none"
[[programs]]
name = "nowhere"
program = "echo"
"""


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakes]:
    with both(tmp_path_factory.mktemp("possible"), calls=0, options=OPTIONS, more=MORE) as found:
        yield found


def call(receiver: str | int = "echo-right", method: str = METHOD, **more: Any) -> dict[str, Any]:
    return {"to": "caller-left", "call": {"receiver": receiver, "method": method, **more}}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (call(text="x" * (LONGEST + 1)), f"{LONGEST + 1} bytes; to another chain at most {LONGEST} are allowed"),
        (call(hex="00" * (LONGEST + 1)), f"call.text, call.hex: {LONGEST + 1} bytes"),
        (call("echo-far"), "call.receiver: left and far are not connected"),
        (call("nowhere"), r"call.receiver: no program \d+ is on any chain"),
        (call(987_654), "call.receiver: no program 987654 is on any chain"),
        (call("nobody"), r"call.receiver: no program is installed as number \d+"),
        (call(method="mint"), "call.method: left has no packets of type mint"),
        (call(method="burn"), r"call.method: program \d+ may not send packets of type burn"),
        ({"to": "nobody", "method": "x"}, r"to: no program is installed as number \d+"),
        ({"to": "echo-right", "method": "x"}, "to: echo-right is on a chain that another lake runs"),
        ({"to": "echo-left", "method": "x", "chain": "right"}, "another lake runs"),
        ({"to": 987_654, "method": "x", "chain": "left"}, "to: no program 987654 is on left"),
    ],
)
def test_impossible_messages_are_rejected(lakes: Lakes, content: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=f"^content: .*{text}"):
        lakes.send("left", content)
    assert len(lakes.nodes["left"].pool) == 0


def test_possible_messages_are_accepted(tmp_path: Path) -> None:
    with both(tmp_path, calls=0, options=OPTIONS, more=MORE) as lakes:
        for content in (
            call(text="x" * LONGEST),
            call("echo-left", text="x" * (2 * MOST)),  # on its own chain nothing is a packet
            call("caller-right", method=METHOD),
            {"to": "caller-left", "method": "call", "hex": "00"},  # no call: the program determines it
            {"to": "echo-left", "method": "x"},
        ):
            lakes.send("left", content)
        lakes.settle()
        assert lakes.lane("left")["send"]["tail"] == 2


def test_sender_learns_of_block_rejections_and_program_failures(tmp_path: Path) -> None:
    with both(tmp_path, calls=0, options="unbonding_seconds = 5.0", echo="faulty") as lakes:
        node = lakes.nodes["left"]
        http = Http(create_application(node))
        good, late, dear, wrong, other = (
            call(),
            {**call(), "count": 2},
            call(amount=5),
            {"to": "echo-left", "method": "x"},
            {"to": "echo-left", "method": "y"},
        )
        first = lakes.send("left", good).hash
        assert http.get(f"/v1/messages/{first}/outcome").status_code == 404
        node.produce()
        for _ in range(8):
            node.produce()
        names = [lakes.send("left", content).hash for content in (late, wrong)]
        lakes.send("left", other, key_of(9))
        node.produce()
        costly = lakes.send("left", dear).hash
        node.produce()
        answers = [http.get(f"/v1/messages/{name}/outcome").json() for name in (first, *names, costly)]
    assert answers[0] == {"hash": first, "height": 1, "faults": []}
    expired = {"program": "caller-left", "what": "refused", "why": "ClientExpired", "count": 2, "where": "left"}
    error = "ValueError: method x with 0 bytes is no call"
    failed = {"program": "echo-left", "what": "failed", "why": error, "count": 1, "where": "left"}
    assert answers[1]["faults"] == answers[2]["faults"] == [expired, failed]
    why = "InsufficientFunds: balance 0, attached 5"
    assert answers[3]["faults"] == [{**failed, "program": "caller-left", "why": why}]
