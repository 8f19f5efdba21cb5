"""Errors of calls without an answer: the first raising handler, then the rest of the network."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import causeway as cw
from causeway.protocols.registry import protocol_names

QUICK: dict[str, dict[str, Any]] = {"xdm": {"archiving_depth": 1, "challenge_period": 1}}


class Asks(cw.Program):
    """Program that forwards requests and fails at the answers."""

    def on_request(self, request: cw.Request, context: cw.Context) -> None:
        context.call(self.options["friend"], "echo", note=request.ref)

    def on_reply(self, reply: cw.Reply, context: cw.Context) -> None:
        raise KeyError("x" * 300)


def line_of(text: str) -> int:
    lines, first = inspect.getsourcelines(Asks)
    return first + next(place for place, line in enumerate(lines) if text in line)


def network(protocol: cw.ProtocolName) -> cw.Network:
    programs = [
        cw.Deploy(Asks, chain="left", options={"friend": cw.ref("friend")}),
        cw.Deploy("echo", name="friend", chain="right"),
    ]
    return cw.Network(["left", "right"], programs, protocol=protocol, options=QUICK.get(protocol, {}))


@pytest.mark.parametrize("protocol", protocol_names())
def test_raising_handler_is_named_first(protocol: cw.ProtocolName) -> None:
    net = network(protocol)
    call = net.call("asks", "go", sender="caller/right")
    where = rf"\(.*test_no_answer\.py, line {line_of('raise KeyError')}, in on_reply\)"
    begins = r"caller/right -> asks go\(\): asks raised KeyError: 'x+\.\.\. \d+ characters "
    with pytest.raises(cw.NoAnswer, match=rf"(?m)^{begins}{where}; (the network is at rest|no answer within)"):
        call.result(ticks=60)
    with pytest.raises(cw.NoAnswer, match=rf"await_all: asks raised .* {where}; "):
        net.await_all(ticks=60)
    assert "in on_reply" in call.cause()


def test_no_handler_is_named_if_none_raised() -> None:
    net = network("ic")
    net.inject("halt", chain="left")
    call = net.call("asks", "go", sender="caller/right")
    with pytest.raises(cw.NoAnswer, match=r"asks go\(\): (no answer within 9 rounds|the network is at rest)"):
        call.result(ticks=9)
    assert call.cause() == ""
