"""In-memory networks: sends, calls, faults, changes and copies of a test, under every protocol."""

from __future__ import annotations

import shutil
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import pytest

import causeway as cw
from causeway.network.network import LakeNetwork as OnLake
from causeway.network.opened_lake import open_lake
from causeway.network.recheck import LakeRecheck
from causeway.programs.user_modules import ModuleSources
from causeway.protocols.registry import find_protocol, protocol_names
from causeway.scenarios.settings import ChangeSection, MovedSection, MoveSection

QUICK: dict[str, dict[str, Any]] = {"xdm": {"archiving_depth": 3, "challenge_period": 5}}
"""Options with which a call is answered within few blocks."""


class Shop(cw.Program):
    """Program that sells for at least 10, asks its bank first, and fails on request."""

    def initial_state(self) -> dict[str, Any]:
        return {"sold": 0, "told": []}

    def on_ingress(self, message: cw.Ingress, context: cw.Context) -> None:
        if message.method == "fail":
            raise ValueError("asked to")
        context.call(message.method, "buy", message.payload, amount=7)

    def on_request(self, request: cw.Request, context: cw.Context) -> tuple[bytes, int]:
        if request.method == "fail":
            raise ValueError("asked to")
        if request.amount < 10:
            raise cw.Reject(f"{request.amount} is too little")
        self.state["sold"] += 1
        return b"sold " + request.payload, 10

    def on_reply(self, reply: cw.Reply, context: cw.Context) -> None:
        self.state["told"].append(reply.reject.name if reply.reject else reply.payload.decode())


class Cheap(Shop):
    """Program that sells for any price."""

    def on_request(self, request: cw.Request, context: cw.Context) -> tuple[bytes, int]:
        return b"cheap " + request.payload, request.amount


class Silent(cw.Program):
    """Program that answers later, and then never."""

    def on_request(self, request: cw.Request, context: cw.Context) -> None:
        self.state["last"] = request.ref


def network(name: cw.ProtocolName, **more: Any) -> cw.Network:
    programs = [
        cw.Deploy(Shop, chain="left", balance=100),
        cw.Deploy(Shop, chain="right", name="other", balance=100),
        cw.Deploy("caller", chain="right", name="alice", balance=500),
    ]
    return cw.Network(["left", "right"], programs, protocol=name, options=QUICK.get(name, {}), **more)


def recheck(net: cw.Network, folder: Path) -> None:
    """Check that a network's lake re-executes to its contents, and that its scenario reproduces them."""
    lake = net.export(folder / "lake")
    opened = open_lake(lake)
    assert LakeRecheck(opened, ModuleSources.of("tests.network")).execute(0, opened.last_height()) is None
    net.write_scenario(folder / "again.toml")
    with OnLake.from_scenario(folder / "again.toml", {"network.executor": "in_process"}) as again:
        again.run(net.now)
        assert (again.height, again.root()) == (net.height, net.root())
    shutil.rmtree(lake)


@pytest.mark.parametrize("name", protocol_names())
def test_calls_are_answered_and_user_messages_are_handled(name: cw.ProtocolName) -> None:
    net = network(name)
    assert net.chains[-2:] == ["left", "right"] and net.programs[:3] == ["shop", "other", "alice"]
    sent, asked = net.send("shop", "other", "tea", sender=5), net.call("shop", "buy", "tea", amount=15, sender="alice")
    assert (sent.status, asked.status, asked.answer) == ("waiting", "waiting", None)
    assert asked.result() == b"sold tea"
    assert asked.answer is not None and asked.answer.refund == 5 and asked.answer.ok
    net.await_all()
    assert (sent.status, asked.status, sent.done) == ("executed", "answered", True)
    net.until(lambda net: net.state_of("shop")["told"])
    assert net.state_of("shop") == {"sold": 1, "told": ["REFUSED"]}
    assert 0 < net.balance("shop") - net.balance("other") <= 10  # a chain may take fees
    (row,) = net.messages(sender="alice", kind="request")
    assert (row.receiver, row.method, row.payload, row.amount, row.status) == ("shop", "buy", b"tea", 15, "answered")
    (other,) = net.messages(sender="shop", status="rejected")
    (reply,) = net.messages(receiver="shop", kind="response")
    assert (other.method, reply.reject, reply.payload) == ("buy", "REFUSED", b"7 is too little")
    assert len(net.messages()) == 5 and net.messages().arrow().num_rows == 5
    assert "sold tea" in repr(net.messages()) and "<td>alice</td>" in net.messages()._repr_html_()
    assert {key: count for key, count in net.summary().items() if key in ("sent", "answered", "rejected")} == {
        "sent": 2,
        "answered": 1,
        "rejected": 1,
    }


@pytest.mark.parametrize("name", protocol_names())
def test_timeline_lists_events_by_chain_and_tick(name: cw.ProtocolName) -> None:
    net = network(name)
    sent, asked = net.send("shop", "other", "tea"), net.call("shop", "fail", amount=15, sender="alice")
    assert sent.trace() == "user 0 -> shop other(b'tea'): waits for tick 0"
    with pytest.raises(cw.Rejected) as caught:
        asked.result()
    assert caught.value.reject is cw.RejectCode.FAILED and "asked to" in caught.value.text
    net.await_all()
    lines = asked.trace().splitlines()
    assert len(lines) == 4 and lines[0].startswith("tick") and "alice -> shop fail(amount 15)" in lines[0]
    assert "received, raised ValueError: asked to" in lines[1] and "test_testing.py, line" in lines[1]
    assert "  alice <- shop FAILED (code" in lines[2] and lines[3].endswith("answered")
    assert [line.split()[2] for line in lines] == ["right", "left", "left", "right"]
    net.until(lambda net: net.state_of("shop")["told"])
    assert sent.trace().splitlines()[1].split()[3:6] == ["shop", "->", "other"]
    assert len(net.trace().splitlines()) == len(lines) + len(sent.trace().splitlines())
    assert "alice -> shop fail" in net.trace() and "call(b" not in net.trace()


@pytest.mark.parametrize("name", protocol_names())
def test_reason_of_a_failed_call_is_equal_under_all_protocols(name: cw.ProtocolName) -> None:
    net = network(name)
    refused, failed = (net.call("shop", method, amount=1, sender="alice") for method in ("buy", "fail"))
    nobody, here = net.call(99, "buy", sender="alice"), net.call("alice", "buy", sender="caller/right")
    poor = net.call("shop", "buy", amount=10**30, sender="alice")
    user, gone = net.send("shop", "fail"), net.send(99, "hello")
    net.await_all()
    assert refused.wait().reject is cw.RejectCode.REFUSED and refused.reason == "1 is too little"
    assert failed.wait().reject is cw.RejectCode.FAILED
    assert nobody.wait().reject is cw.RejectCode.NOT_FOUND
    assert here.wait().ok
    assert (poor.status, user.status, gone.status) == ("failed", "failed", "refused")
    assert "InsufficientFunds" in poor.reason and "asked to" in user.reason and gone.reason
    with pytest.raises(cw.NoAnswer, match=r"alice -> shop buy\(amount 10+\): failed: InsufficientFunds") as caught:
        poor.result()
    assert caught.value.status == "failed"


BREAKS: dict[str, tuple[cw.FaultKind, dict[str, Any]]] = {
    "ibc": ("tamper", {}),
    "ic": ("stale", {"age": 2}),
    "icmp": ("fork", {"leaves": 2}),
    "xdm": ("reorg", {"depth": 2}),
}
"""By protocol: a fault that it alone has, or that needs what was before."""


def play_actions(net: cw.Network) -> list[cw.Network]:
    """Perform every action of a test; return copies from intermediate states."""
    name, copies = net.protocol, []
    net.call("shop", "buy", "one", amount=10, sender="alice").result()
    kind, keys = BREAKS[name]
    ends = {"until": net.now + 4} if kind == "fork" else {"tick": net.now} if kind == "reorg" else {}
    strange = net.inject(kind, **keys, **ends)
    net.call("shop", "buy", "two", amount=10, sender="alice").wait()
    copies.append(net.fork())
    net.heal(strange)
    halt = net.inject("halt", chain="left")
    waits = net.call("shop", "buy", "three", amount=10, sender="alice")
    net.tick(9)
    assert waits.status == "pending"
    net.heal(halt)
    assert waits.result() == b"sold three"
    net.install(Shop, chain="right", name="late")
    net.upgrade("shop", Cheap)
    assert net.call("shop", "buy", "four", amount=1, sender="alice").result() == b"cheap four"
    assert net.call("late", "buy", amount=10, sender="alice").result() == b"sold "
    if find_protocol(name).moves:
        net.move("shop", "right")
        assert net.call("shop", "buy", "five", amount=1, sender="alice").result() == b"cheap five"
        assert net.state_of("shop")["sold"] == 3
        net.move("shop", "left")
        assert net.call("shop", "buy", "six", amount=1, sender="alice").result() == b"cheap six"
        net.remove("late")
        assert net.call("late", "buy", amount=10, sender="alice").wait().reject is cw.RejectCode.NOT_FOUND
    return copies


@pytest.mark.parametrize("name", protocol_names())
def test_equal_calls_give_equal_roots_and_reexecute(name: cw.ProtocolName, tmp_path: Path) -> None:
    net = network(name)
    (fork,) = play_actions(net)
    assert fork.root() != net.root()
    recheck(net, tmp_path)


@pytest.mark.parametrize("name", [name for name, (kind, _) in BREAKS.items() if kind in ("fork", "reorg")])
def test_fork_does_not_mix_up_messages(name: cw.ProtocolName) -> None:
    net = network(name)
    net.tick(4)
    calls = []
    for word in "abcd":
        calls.append((word, net.call("shop", "buy", word, amount=10, sender="alice")))
        if word == "b":
            kind, keys = BREAKS[name]
            net.inject(kind, **keys, **({"until": net.now + 4} if kind == "fork" else {"tick": net.now + 1}))
        net.tick()
    assert [call.result().decode() for _, call in calls] == [f"sold {word}" for word, _ in calls]
    assert net.state_of("shop")["sold"] == 4


@pytest.mark.parametrize("name", protocol_names())
def test_copies_run_independently_and_a_network_can_be_restored(name: cw.ProtocolName) -> None:
    net = network(name)
    before = net.call("shop", "buy", "tea", amount=10, sender="alice")
    net.tick(2)
    snapshot, fork = net.snapshot(), net.fork()
    root = net.root()
    after = net.call("shop", "buy", "milk", amount=10, sender="alice")
    assert after.result() == b"sold milk" and fork.root() == root and fork.height < net.height
    assert fork.of(before).result() == before.result() == b"sold tea" and fork.state_of("shop")["sold"] == 1
    with pytest.raises(cw.InvalidInput, match=r"of: alice -> shop buy\(b'milk', amount 10\): this network has no such"):
        fork.of(after)
    net.restore(snapshot)
    assert (net.root(), net.now) == (root, 2)
    with pytest.raises(cw.Undone, match="was sent after the snapshot"):
        after.result()
    assert before.result() == b"sold tea"
    assert net.root() == fork.root() and net.trace() == fork.trace()


def test_fault_healed_before_its_start_never_applies() -> None:
    net, other = network("ic"), network("ic")
    first, second = net.inject("halt", chain="left"), net.inject("halt", chain="right")
    net.heal(first)
    waits = net.call("shop", "buy", amount=10, sender="alice")
    net.tick(9)
    assert waits.status == "refused" and "ChainHalted" in waits.reason
    net.heal(second)
    net.heal()
    assert net.call("shop", "buy", amount=10, sender="alice").result() == b"sold "
    drop = other.inject("drop", source="left")
    other.heal()
    other.tick(3)
    assert other.scenario().count("[[changes]]") == 0
    with pytest.raises(cw.InvalidInput, match=r"heal: Fault\(.*\) is no fault of this network"):
        other.heal(drop)


def test_waiting_is_bounded_and_reports_its_target() -> None:
    net = network("ic")
    net.inject("halt", chain="left", until=19)
    waits = net.call("shop", "buy", amount=10, sender="alice")
    with pytest.raises(cw.NoAnswer, match="no answer within 10 rounds") as caught:
        waits.result(ticks=10)
    assert caught.value.status == "pending" and net.height == 10
    with pytest.raises(cw.NoAnswer, match=r"5 rounds have run, and there is no end of alice -> shop buy\(amount 10\)"):
        net.await_all(ticks=5)
    with pytest.raises(cw.NoAnswer, match="the condition is not true at tick 18, and 3 rounds have run"):
        net.until(lambda net: False, ticks=3)
    assert waits.result() == b"sold "
    net.install(Silent, chain="right")
    with pytest.raises(cw.NoAnswer, match="the network is at rest without an answer"):
        net.call("silent", "buy").result()


NO_DEPLOYS: Any = [Shop]

MISTAKES: list[tuple[Any, str]] = [
    (lambda net: net.call("shp", "buy"), 'call.to: "shp": no such program; did you mean shop?'),
    (lambda net: net.call("shop", "buy", amount=-1), "call: amount: -1: must be from 0 to 2**128 - 1"),
    (
        lambda net: net.call("shop", "buy", sender="other"),
        'call.sender: "other" runs "tests.network.test_testing:Shop";',
    ),
    (lambda net: net.call("shop", "buy", sender="bob"), 'call.sender: "bob": no such program'),
    (lambda net: net.send("shop", ""), 'send: method: "": must be a name of 1 to 255 bytes'),
    (lambda net: net.send("shop", "m", 5), "send.payload: 5: must be bytes or text"),
    (lambda net: net.send("shop", "m", sender=-1), "send: sender: -1: must be greater than or equal to 0"),
    (lambda net: net.state_of("shp"), 'program: "shp": no such program'),
    (lambda net: net.tick(-1), "tick: -1: must be from 0"),
    (lambda net: net.inject("dorp"), 'inject: "dorp": no such fault; did you mean drop?'),
    (lambda net: net.inject("halt", chain="lef"), 'inject: chain: "lef": no such chain; did you mean left?'),
    (lambda net: net.inject("halt"), "inject: chain: missing"),
    (lambda net: net.inject("halt", chain="left", untill=3), "inject: untill: unknown key; did you mean until?"),
    (lambda net: net.install(Shop, chain="lef"), 'install: chain: "lef": no such chain; did you mean left?'),
    (lambda net: net.install(Shop), 'install: the name "shop" is taken'),
    (lambda net: net.install("no:Such", name="x"), 'install: program: program "no:Such" cannot be loaded'),
    (lambda net: net.install(int, name="x"), "program <class 'int'> is not a subclass of Program or VectorProgram"),
    (lambda net: net.upgrade("shp", Cheap), 'upgrade: program: "shp": no such program'),
    (lambda net: net.upgrade("shop", "echo"), 'upgrade: program "echo" is a vectorised program, and takes over from'),
    (lambda net: net.move("shp", "left"), 'move: program: "shp": no such program'),
    (lambda net: net.move("shop", "lef"), 'move: chain: "lef": no such chain; did you mean left?'),
    (lambda net: net.remove("shp"), 'remove: "shp": no such program'),
    (lambda net: cw.Network(0), "chains: 0: must be at least 1"),
    (lambda net: cw.Network("left"), 'chains: "left": must be a number of chains, or a list of names or tables'),
    (lambda net: cw.Network(["a", "a"]), 'cw.Network: chains[1]: the name "a" is taken'),
    (
        lambda net: cw.Network(protocol="icp"),  # type: ignore[arg-type]
        'cw.Network: network.protocol: "icp": no such protocol; did you mean',
    ),
    (lambda net: cw.Network(options={"x": 1}), "cw.Network: options.x: unknown key"),
    (lambda net: cw.Network(2, NO_DEPLOYS), "must be a cw.Deploy(Class, chain=..., ...)"),
    (lambda net: cw.Network(2, [cw.Deploy(Shop, chain="x")]), 'cw.Network: programs[0].chain: "x": no such chain'),
    (
        lambda net: cw.Network(2, [cw.Deploy(Shop, options={"a": cw.ref("b")})]),
        'cw.Network: programs[0].options.a: "b": no such program',
    ),
]


@pytest.mark.parametrize(("do", "line"), MISTAKES, ids=[line for _, line in MISTAKES])
def test_errors_are_one_line_and_change_nothing(do: Any, line: str) -> None:
    net, same = network("ic"), network("ic")
    with pytest.raises(cw.InvalidInput) as caught:
        do(net)
    assert line in str(caught.value) and "\n" not in str(caught.value)
    assert net.scenario() == same.scenario()
    assert net.call("shop", "buy", amount=10, sender="alice").result() == b"sold "


def test_remove_and_move_are_rejected_where_the_protocol_forbids_them() -> None:
    name = next(name for name in get_args(cw.ProtocolName) if not find_protocol(name).moves)
    with pytest.raises(cw.InvalidInput, match=f"remove: under {name} programs stay on their chain"):
        network(name).remove("shop")
    with pytest.raises(cw.InvalidInput, match=f"move: under {name} programs stay on their chain; those of ic may"):
        network(name).move("shop", "right")


def test_program_moves_once_per_tick() -> None:
    net = network("ic")
    net.move("shop", "right")
    with pytest.raises(cw.InvalidInput, match=r"move: .*shop moves twice before the round of tick"):
        net.move("shop", "left")
    assert net.call("shop", "buy", amount=10, sender="alice").result() == b"sold "


def test_tests_can_make_every_scenario_change() -> None:
    keys = {*ChangeSection.model_fields} - {"tick"}
    assert keys == {"inject", "heal", "install", "upgrade", "move", "remove"}
    for key in keys:
        assert callable(getattr(cw.Network, key))
    assert {*MovedSection.model_fields} == {*MoveSection.model_fields} - {"tick"}
    assert [*signature(cw.Network.move).parameters][1:] == ["name", "chain"]


def test_local_classes_and_class_names_are_programs() -> None:
    class Local(Shop):
        pass

    net = cw.Network(1, [cw.Deploy(Local), cw.Deploy("echo"), cw.Deploy("tests.network.test_testing:Cheap")])
    assert net.programs == ["local", "echo", "cheap", "caller/chain-0"]
    assert net.call("local", "buy", amount=10).result() == b"sold "
    assert net.call("echo", "any", "same").result() == b"same"
    assert repr(net) == "<Network ic: 1 chains, 3 programs, height 6, next tick 6>"


SCENARIO = """
[network]
seed = 3
[[chains]]
name = "left"
[[programs]]
name = "shop"
chain = "left"
program = "tests.network.test_testing:Shop"
balance = 100
[traffic]
source = "script"
send = [{ tick = 3, to = "shop", method = "shop", text = "self" }]
"""


def test_in_memory_scenario_takes_test_messages_after_its_own(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    path.write_text(SCENARIO)
    net = cw.Network.in_memory(path, {"network.seed": "4"})
    net.tick(3)
    first = net.send("shop", "fail")
    answered = net.call("shop", "buy", amount=0)
    net.run()
    assert (first.status, answered.status) == ("failed", "rejected")
    assert net.state_of("shop")["told"] == ["REFUSED"]
    recheck(net, tmp_path)
    path.write_text(SCENARIO.replace('"script"', '"generated"\nmessages = 5').partition("send")[0])
    with pytest.raises(cw.InvalidInput, match=r"shop.toml: traffic.source: generated: a network in memory has none"):
        cw.Network.in_memory(path)
