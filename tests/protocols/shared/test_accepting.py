"""Programs that accept a request's amount before they answer it (``Context.accept``)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import causeway as cw
from causeway.protocols.registry import protocol_names

QUICK: dict[str, dict[str, Any]] = {"xdm": {"archiving_depth": 1, "challenge_period": 1}}


class Escrow(cw.Program):
    """Accept the buyer's money, pay the seller, and answer the buyer after the payment.

    Methods: ``buy`` accepts first; ``hope`` does not; ``much`` accepts more than is attached; ``twice`` in two parts;
    ``trap`` raises after accepting; ``keep`` stays open, and ingress ``take`` accepts a part of it.
    """

    def initial_state(self) -> dict[str, Any]:
        return {"held": None, "seen": []}

    def on_request(self, request: cw.Request, context: cw.Context) -> bytes | None:
        if request.method == "much":
            context.accept(request.amount + 1)
        if request.method == "twice":
            context.accept(request.amount // 2)
            context.accept(request.amount - request.amount // 2)
        if request.method in ("buy", "trap"):
            context.accept(request.amount)
        if request.method == "keep":
            self.state["held"] = request.ref
            context.accept(1)
            return None
        context.call(self.options["seller"], "pay", amount=request.amount, note=request.ref)
        if request.method == "trap":
            raise RuntimeError("after accepting")
        return None

    def on_reply(self, reply: cw.Reply, context: cw.Context) -> None:
        if reply.ok:
            context.answer(reply.note, b"sold")
        else:
            context.reject(reply.note, "the seller does not take it")

    def on_ingress(self, message: cw.Ingress, context: cw.Context) -> None:
        self.state["seen"].append(context.attached(self.state["held"]))
        context.accept(int(message.payload), self.state["held"])
        if message.method == "finish":
            context.answer(self.state["held"], b"finished", accept=1)


class Seller(cw.Program):
    def on_request(self, request: cw.Request, context: cw.Context) -> tuple[bytes, int]:
        if not self.options.get("takes", True):
            raise cw.Reject("no")
        return b"", request.amount


def network(protocol: cw.ProtocolName, takes: bool = True, **more: Any) -> cw.Network:
    programs = [
        cw.Deploy(Escrow, chain="left", options={"seller": cw.ref("seller")}),
        cw.Deploy(Seller, chain="right", options={"takes": takes}),
        cw.Deploy("caller", name="buyer", chain="right", balance=100),
    ]
    options = {**QUICK.get(protocol, {}), **more}
    return cw.Network(["left", "right"], programs, protocol=protocol, options=options)


def balances(net: cw.Network) -> list[int]:
    return [net.balance(name) for name in ("buyer", "escrow", "seller")]


def status(net: cw.Network, sent: cw.SentMessage) -> str:
    net.until(lambda each: sent.done)
    return sent.status


every_protocol = pytest.mark.parametrize("protocol", protocol_names())


@every_protocol
@pytest.mark.parametrize("method", ["buy", "twice"])
def test_escrow_pays_the_seller_before_answering_the_buyer(protocol: cw.ProtocolName, method: str) -> None:
    net = network(protocol)
    call = net.call("escrow", method, amount=60, sender="buyer")
    net.until(lambda each: each.balance("seller") == 60)
    assert call.status == "pending"
    assert call.wait().refund == 0 and call.result() == b"sold"
    net.run()
    assert balances(net) == [40, 0, 60]


@every_protocol
def test_unaccepted_amount_pays_nobody(protocol: cw.ProtocolName) -> None:
    net = network(protocol)
    result = net.call("escrow", "hope", amount=60, sender="buyer").wait()
    assert result.reject is cw.RejectCode.FAILED and result.refund == 60
    assert result.payload == b"InsufficientFunds: balance 0, attached 60"
    net.run()
    assert balances(net) == [100, 0, 0]


@every_protocol
def test_amount_beyond_the_attached_is_not_accepted(protocol: cw.ProtocolName) -> None:
    net = network(protocol)
    result = net.call("escrow", "much", amount=60, sender="buyer").wait()
    assert result.reject is cw.RejectCode.FAILED and result.refund == 60
    assert result.payload == b"ExceedsAttached: accept 61 is not between 0 and the attached 60"
    net.run()
    assert balances(net) == [100, 0, 0]


@every_protocol
def test_amount_accepted_by_a_raising_handler_is_returned(protocol: cw.ProtocolName) -> None:
    net = network(protocol)
    result = net.call("escrow", "trap", amount=60, sender="buyer").wait()
    assert result.reject is cw.RejectCode.FAILED and result.refund == 60
    net.run()
    assert balances(net) == [100, 0, 0]
    assert not net.messages(receiver="seller")


@every_protocol
def test_accepted_amount_remains_when_the_seller_rejects(protocol: cw.ProtocolName) -> None:
    net = network(protocol, takes=False)
    result = net.call("escrow", "buy", amount=60, sender="buyer").wait()
    assert result.reject is cw.RejectCode.REFUSED and result.refund == 0
    net.run()
    assert balances(net) == [40, 60, 0]


@every_protocol
def test_other_handlers_accept_from_a_named_request(protocol: cw.ProtocolName) -> None:
    net = network(protocol)
    call = net.call("escrow", "keep", amount=60, sender="buyer")
    net.until(lambda each: each.balance("escrow") == 1)
    for amount, left in ((10, 49), (20, 29)):
        sent = net.send("escrow", "take", str(amount))
        assert status(net, sent) == "executed"
        assert net.balance("escrow") == 60 - left
    over = net.send("escrow", "take", "30")
    assert status(net, over) == "failed" and "ExceedsAttached: accept 30 is not between 0 and 29" in over.reason
    net.send("escrow", "finish", "4")
    result = call.wait()
    assert (result.payload, result.refund) == (b"finished", 24)
    net.run()
    assert balances(net) == [64, 36, 0]
    assert net.state_of("escrow")["seen"] == [59, 49, 29]


def test_handler_without_a_request_must_name_one() -> None:
    class Takes(cw.Program):
        def on_ingress(self, message: cw.Ingress, context: cw.Context) -> None:
            context.accept(1)

    with pytest.raises(cw.HandlerFailed, match=r"NoOpenRequest: .* name an open one by its ref"):
        cw.Trial(Takes).ingress("take")


def typed_program(kind: Any, keep: list[cw.Context]) -> type[cw.Program]:
    """Create a program that passes the context numbers of another type than ``int``."""

    class Numbers(cw.Program):
        def on_request(self, request: cw.Request, context: cw.Context) -> None:
            context.call(0, "m", amount=kind(5))
            context.accept(kind(1))
            context.answer([kind(number) for number in request.ref], b"", accept=kind(request.amount - 3))
            assert type(context.balance) is int
            keep.append(context)

    return Numbers


@pytest.mark.parametrize("kind", [np.int64, np.uint64, int, float])
def test_amounts_are_integers_of_any_type(kind: Any) -> None:
    trial = cw.Trial(typed_program(kind, []), balance=10)
    answer = trial.request("buyer", "m", amount=2**63 - 1)[0]
    assert isinstance(answer, cw.Answer) and type(answer.refund) is int
    assert answer.code == (5 if kind is float else 0)  # a float is no integer, and lacks digits
    assert trial.balance + answer.refund + (0 if kind is float else 5) == 10 + 2**63 - 1


def test_ref_fields_are_integers() -> None:
    class Floats(cw.Program):
        def on_request(self, request: cw.Request, context: cw.Context) -> None:
            context.accept(1)
            context.answer([float(number) for number in request.ref], b"")  # type: ignore[misc]

    trial = cw.Trial(Floats)
    (answer,) = trial.request("buyer", "m", amount=2**100)
    assert isinstance(answer, cw.Answer) and (answer.refund, trial.balance, answer.code) == (2**100, 0, 5)


def test_context_is_inert_after_its_handler_returns() -> None:
    kept: list[tuple[cw.Context, list[int]]] = []

    class Keeps(cw.Program):
        def on_request(self, request: cw.Request, context: cw.Context) -> None:
            kept.append((context, request.ref))

    trial = cw.Trial(Keeps)
    trial.request("buyer", "m", amount=9)
    context, ref = kept[0]
    for act in (
        lambda: context.accept(5),
        lambda: context.answer(ref, b"late"),
        lambda: context.call(0, "m"),
        lambda: context.attached(ref),
    ):
        with pytest.raises(RuntimeError, match="has returned"):
            act()
    with pytest.raises(AttributeError):
        context.balance = 10**9  # type: ignore[misc]


def test_program_of_the_page_runs() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "pay-before-you-answer.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    names_of_page: dict[str, Any] = {"cw": cw}
    exec(compile(block, page.name, "exec"), names_of_page)
    programs = [cw.Deploy(names_of_page["Escrow"], name="escrow"), cw.Deploy(Seller, name="seller")]
    net = cw.Network(1, programs)
    result = net.call("escrow", "buy", amount=9).wait()
    assert (result.payload, result.refund, net.balance("seller")) == (b"sold", 0, 9)
