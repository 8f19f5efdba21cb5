"""In-memory networks: errors of tests, endless activity, and failure reports."""

from __future__ import annotations

import copy
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import causeway as cw
from causeway.protocols.registry import protocol_names
from tests.network.test_testing import QUICK, recheck


class Open(cw.Program):
    """Program that executes its requests."""

    entered: Event | None = None
    waits: Event | None = None

    def on_request(self, request: cw.Request, context: cw.Context) -> tuple[bytes, int] | None:
        if request.method == "loop":
            context.call("open", "loop", b"")
        if request.method == "long":
            raise cw.Reject("\x1b[31m" + "x" * 6_000)
        if request.method == "change":
            self.options["list"].append(1)
        if request.method == "keep":
            self.state["kept"] = self.options["list"]
        if request.method == "wait" and self.waits is not None and self.entered is not None:
            self.entered.set()
            self.waits.wait(30)
        return None if request.method == "hold" else (b"ok", request.amount)

    def on_ingress(self, message: cw.Ingress, context: cw.Context) -> None:
        """Handle the message."""


class Broken(Open):
    """Class that discards its previous state."""

    def upgraded(self, state: Any) -> Any:
        raise KeyError("nope")

    def initial_state(self) -> Any:
        raise KeyError("nothing")


def network(name: cw.ProtocolName = "ic", **more: Any) -> cw.Network:
    deploy = cw.Deploy(Open, chain="left", balance=5, options={"list": [1, {"a": 2}]})
    return cw.Network(["left", "right"], [deploy], protocol=name, options=QUICK.get(name), **more)


@pytest.mark.parametrize("name", protocol_names())
def test_balances_and_rejections_are_equal_under_all_protocols(name: cw.ProtocolName) -> None:
    net = network(name)
    assert net.balance("open") == 5
    user, nobody, poor = net.send(99, "x"), net.call(99, "x"), net.send("open", "x", amount=10**13)
    paid = net.send("open", "x", amount=7, sender="caller/right")
    net.run()
    assert (user.status, user.reject) == ("refused", cw.RejectCode.NOT_FOUND)
    assert (nobody.status, nobody.reject) == ("rejected", cw.RejectCode.NOT_FOUND)
    assert (poor.status, poor.reject, paid.status) == ("failed", cw.RejectCode.NO_FUNDS, "answered")
    assert (net.balance("open"), net.balance("caller/right")) == (12, 10**12 - 7)
    assert net.account("caller/right") - net.balance("caller/right") == net.account("open") - 12 - net.fees(
        "caller/right"
    )
    (asked,) = net.messages(kind="request", reject=cw.RejectCode.NOT_FOUND)
    (refused,) = net.messages(kind="ingress", status="refused", reject="NOT_FOUND")
    assert (asked.receiver, asked.status, refused.sender) == ("program 99", "rejected", "user 0")
    lines = net.trace().splitlines()
    (request,) = (place for place, line in enumerate(lines) if "caller/left -> program 99 x()" in line)
    assert "  caller/left <- program 99 NOT_FOUND" in lines[request + 1], "the answer stands below its request"
    assert any("user 0 -> program 99 x()" in line and "rejected" in line for line in lines)
    assert "caller/left <- program 99" in nobody.trace()
    assert poor.trace().count("\n") == 0 and "balance" in poor.trace() and ".py" not in poor.trace()
    assert "18446744073709551615" not in net.trace() + repr(net.messages())


def test_endless_activity_is_reported_with_its_active_messages() -> None:
    net = network()
    net.send("open", "loop", sender="caller/left")
    with pytest.raises(cw.NoAnswer, match=r"run: 30 rounds have run, and .* not at rest: .*open -> open loop\(\)"):
        net.run(rounds=30)
    assert net.height == 30
    net.run(5)
    assert net.height == 30  # it is past tick 5
    halted = net.inject("halt", chain="left")
    waits = net.call("open", "x", sender="caller/right")
    with pytest.raises(cw.NoAnswer, match=r"last at tick 30 on right: sent; faults that act: halt chain=\"left\""):
        waits.result(ticks=3)
    net.heal(halted)
    assert waits.result() == b"ok"
    text = net.trace()
    assert "inject halt chain=" in text and "tick 33" in text and "heal" in text


def test_options_are_unaffected_by_programs_and_tests() -> None:
    mine: dict[str, Any] = {"list": [1]}
    net = cw.Network(1, [cw.Deploy(Open, options=mine)])
    mine["list"].append(2)
    net.install(Open, name="late", options=mine)
    mine["list"].append(3)
    fork = net.fork()
    tried = net.call("open", "change").wait()
    assert tried.reject is cw.RejectCode.FAILED and b"options are read-only" in tried.payload
    for each, name in ((net, "open"), (net, "late"), (fork, "open"), (fork, "late")):
        each.call(name, "keep").result()
        assert each.state_of(name) == {"kept": [1] if name == "open" else [1, 2]}
    trial = cw.Trial(Open, {"list": [1]})
    trial.request(1, "change")
    trial.request(1, "keep")
    assert trial.state == {"kept": [1]}


def test_incompatible_upgrade_is_rejected_and_the_program_remains() -> None:
    net, same = network(), network()
    for change in (lambda: net.upgrade("open", Broken), lambda: net.install(Broken, name="new")):
        with pytest.raises(cw.InvalidInput, match=r"(upgrade|install): .*KeyError"):
            change()
    assert net.scenario() == same.scenario() and net.call("open", "x").result() == b"ok"
    net.install(Open, name="gone", options={})
    net.tick(2)
    net.remove("gone")
    net.tick(2)
    with pytest.raises(cw.InvalidInput, match='remove: "gone" was removed at tick'):
        net.remove("gone")


def test_deeply_nested_calls_fit_the_screen() -> None:
    net = cw.Network(1, [cw.Deploy(Open, balance=5)])
    net.call("open", "loop")
    net.tick(60)
    lines = net.trace().splitlines()
    assert len(lines) > 100 and max(map(len, lines)) < 160
    assert any(re.search(r"  \[5\d\] open -> open loop", line) for line in lines)


def test_long_text_is_truncated_in_output_and_stored_whole() -> None:
    net = network()
    asked = net.call("open", "long")
    with pytest.raises(cw.Rejected) as caught:
        asked.result()
    assert len(str(caught.value)) < 400 and "\x1b" not in str(caught.value) and "6,005 characters" in str(caught.value)
    assert len(caught.value.text) == len(asked.reason) == 6_005
    assert len(net.trace()) < 2_000 and len(asked.trace()) < 2_000


def test_copies_are_forks_and_concurrent_threads_are_reported() -> None:
    net = network()
    other = copy.deepcopy(net)
    assert other.call("open", "x").result() == copy.copy(net).call("open", "x").result() == b"ok" and net.height == 0
    Open.entered, Open.waits = Event(), Event()
    try:
        with ThreadPoolExecutor(1) as threads:
            answer = threads.submit(lambda: net.call("open", "wait").result())
            assert Open.entered.wait(30)
            with pytest.raises(cw.InvalidInput, match="another thread runs this network"):
                net.send("open", "x")
            Open.waits.set()
            assert answer.result(30) == b"ok"
    finally:
        Open.entered = Open.waits = None


def program(answer: bytes) -> type[cw.Program]:
    class Made(cw.Program):
        def on_request(self, request: cw.Request, context: cw.Context) -> bytes:
            return answer

    return Made


def test_each_program_runs_its_own_class_despite_equal_names() -> None:
    one, two = program(b"1"), program(b"2")
    net = cw.Network(1, [cw.Deploy(one, name="one"), cw.Deploy(two, name="two"), cw.Deploy(one, name="again")])
    assert [net.call(name, "x").result() for name in ("one", "two", "again")] == [b"1", b"2", b"1"]
    older = cw.Network(1, [cw.Deploy(one, name="one")])
    cw.Network(1, [cw.Deploy(two)])
    older.install("echo", name="other")
    assert older.call("one", "x").result() == b"1"
    fork = older.fork()
    fork.upgrade("one", two)
    assert (fork.call("one", "x").result(), older.call("one", "x").result()) == (b"2", b"1")


def test_network_is_restored_to_its_own_snapshot() -> None:
    net, other = network(), network()
    before = net.snapshot()
    assert net.call("open", "x").result() == b"ok"
    fork = net.fork()
    fork.restore(before)
    assert fork.height == 0 and len(fork.messages()) == 0
    sent = [net.send("open", "x") for _ in range(3)]
    assert len({each.record.place for each in sent}) == 3
    log = net.fork()
    net.run()
    assert [each.status for each in sent] == ["executed"] * 3 and log.of(sent[0]).status == "waiting"
    log.run()
    assert log.root() == net.root() and log.trace() == net.trace()
    for wrong in (other.snapshot(), None):
        with pytest.raises(cw.InvalidInput, match="restore: "):
            net.restore(wrong)  # type: ignore[arg-type]


NONE, HALF, ONES, FAULTS, DEPLOY = None, 2.5, [1], ["halt"], cw.Deploy(Open)
Wrong: Any = cw.Network
AnyTrial: Any = cw.Trial

MISTAKES: list[tuple[Any, str]] = [
    (lambda net: net.tick(1.5), "tick: 1.5: must be a whole number"),
    (lambda net: net.tick(10**30), "tick: 1000000000000000000000000000000: must be from 0 to"),
    (lambda net: net.run(rounds=0), "run: rounds: 0: must be from 1 to"),
    (lambda net: net.until(True), "until: true: must be a function of the network"),
    (lambda net: net.call("open", "x").result(ticks=-1), "ticks: -1: must be from 0 to"),
    (lambda net: net.messages(kind="reqest"), 'messages: kind: "reqest": no such kind; did you mean request?'),
    (lambda net: net.messages(status="reject"), 'messages: status: "reject": no such status; did you mean rejected?'),
    (lambda net: net.messages(sender="opne"), 'messages: sender: "opne": no such program; did you mean open?'),
    (lambda net: net.messages(since="a"), 'messages: since: "a": must be a whole number'),
    (lambda net: net.messages(reject="NOTFOUND"), "no such reject; did you mean NOT_FOUND?"),
    (lambda net: net.send("open", "x", amount=5, sender=7), "send.sender: 7: a user has no account"),
    (lambda net: net.send("open", "x", sender="open"), 'send.sender: "open" runs'),
    (lambda net: net.send("open", "x", "\ud800"), "half of a surrogate pair is no text"),
    (lambda net: cw.Trial(Open, balance=-1), "balance: -1: must be from 0 to 2**128 - 1"),
    (lambda net: cw.Trial(Open).request(1, "x", amount=2**128), "must be from 0 to 2**128 - 1"),
    (lambda net: AnyTrial("echo"), 'program: "echo": must be a subclass of cw.Program or cw.VectorProgram'),
    (lambda net: AnyTrial(Open).reply(NONE), "reply: null: must be a call that the program made"),
    (lambda net: Wrong(HALF), "chains: 2.5: must be a number of chains, or a list of names or tables"),
    (lambda net: Wrong(ONES), "chains[0]: 1: must be the name of a chain, or a table of its keys"),
    (lambda net: cw.Network(["\ud800"]), "half of a surrogate pair is no text"),
    (lambda net: Wrong(1, DEPLOY), "programs: "),
    (lambda net: Wrong(1, NONE), "programs: null: must be a list of cw.Deploy"),
    (lambda net: Wrong(options=ONES), "options: [1]: must be a table (a dict)"),
    (lambda net: Wrong(faults=FAULTS), 'faults[0]: "halt": must be a table (a dict)'),
]


@pytest.mark.parametrize(("do", "line"), MISTAKES, ids=[line for _, line in MISTAKES])
def test_error_is_one_line(do: Any, line: str) -> None:
    with pytest.raises(cw.InvalidInput) as caught:
        do(network())
    assert line in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["ic", "ibc"])
def test_rejected_action_leaves_earlier_actions_of_its_tick(name: cw.ProtocolName, tmp_path: Path) -> None:
    programs = [cw.Deploy(Open, chain="left", name=each) for each in ("one", "two", "three")]
    net = cw.Network(["left", "right"], programs, protocol=name)
    net.inject("halt", chain="left")
    net.install(Open, name="four", chain="right")
    net.upgrade("three", Open)
    mistakes: list[tuple[Any, ...]] = [
        (net.inject, "halt", {"chain": "lefft"}),
        (net.install, Open, {"name": "five", "chain": "lefft"}),
        (net.upgrade, "threee", {"program": Open}),
        *([(net.remove, "twwo", {})] if name == "ic" else []),
    ]
    if name == "ic":
        net.remove("one")
    before = net.scenario()
    for do, what, keys in mistakes:
        with pytest.raises(cw.InvalidInput):
            do(what, **keys)
        assert net.scenario() == before
    net.inject("halt", chain="right")
    net.heal()
    net.install(Open, name="five", chain="left")
    net.write_scenario(tmp_path / "done.toml")
    assert cw.Network.in_memory(tmp_path / "done.toml").programs[-2:] == ["four", "five"]


def test_lost_and_oversized_calls_are_explained_under_ic() -> None:
    net = cw.Network(["left", "right"], [cw.Deploy(Open, chain="left")])
    call = net.call("open", "x", sender="caller/right", amount=7)
    net.tick(1)
    net.remove("open")
    with pytest.raises(cw.NoAnswer, match=r"(?m): lost; last at tick \d+ on left: dropped: receiver_mismatch$"):
        call.wait()
    net = cw.Network(2, [cw.Deploy(Open)], options={"limits": "deployed"})
    large = net.call("open", "x", b"x" * 2_100_000, sender="caller/chain-1").wait()
    assert large.reject is cw.RejectCode.TOO_LARGE


def test_external_names_and_objects_are_printed_on_one_line(tmp_path: Path) -> None:
    net = cw.Network(["\x1b[31mred"], [cw.Deploy(Open)])
    net.call("open", "x\x1b[31m").wait()
    for text in (repr(net.messages()), net.trace()):
        assert "\x1b" not in text and "\\x1b[31m" in text
    assert repr(net.snapshot()) == "<Snapshot at tick 3, height 3>"
    assert repr(cw.Trial(Open, balance=3)) == "<Trial of Open: state {}, balance 3>"
    with pytest.raises(cw.InvalidInput, match=r"^write_scenario: .*nowhere"):
        net.write_scenario(tmp_path / "nowhere" / "x.toml")


class Deaf(cw.Program):
    """Class that cannot handle answers to its calls at first."""

    def on_ingress(self, message: cw.Ingress, context: cw.Context) -> None:
        context.call("open", "take", b"", amount=5)

    def on_reply(self, reply: cw.Reply, context: cw.Context) -> None:
        raise KeyError("deaf")


class Hearing(Deaf):
    """Class that handles them."""

    def on_reply(self, reply: cw.Reply, context: cw.Context) -> None:
        self.state["heard"] = reply.payload


def test_answer_rejected_by_its_chain_is_shown_with_its_reason_until_accepted() -> None:
    programs = [cw.Deploy(Deaf, chain="left", balance=9), cw.Deploy(Open, chain="right")]
    net = cw.Network(["left", "right"], programs, protocol="ibc")
    net.send("deaf", "go")
    net.tick(12)
    lines = [line for line in net.trace().splitlines() if "refused" in line]
    assert len(lines) == 1 and re.search(
        r"^tick +2  left .* refused, \d times up to tick \d+: raised KeyError: 'deaf'", lines[0]
    )
    answer, request = net.messages(kind="response")[0], net.messages(kind="request")[0]
    assert (answer.status, answer.ended, request.status, request.code) == ("failed", None, "executed", 0)
    net.upgrade("deaf", Hearing)
    net.until(lambda own: own.state_of("deaf").get("heard") == b"ok", ticks=40)
    assert net.messages(kind="request")[0].status == "answered"
    assert net.messages(kind="response")[0].status == "executed"


def test_actions_of_a_test_precede_later_scenario_changes(tmp_path: Path) -> None:
    path = tmp_path / "planned.toml"
    path.write_text(
        """
        chains = [{ name = "left" }, { name = "right" }]
        [[programs]]
        name = "echo"
        chain = "left"
        program = "echo"
        [[changes]]
        tick = 50
        inject = [{ kind = "halt", chain = "left", from = 50 }]
        [[changes]]
        tick = 70
        heal = true
        """
    )
    net = cw.Network.in_memory(path)
    assert net.call("echo", "x", "a", amount=5).result() == b"a"
    net.install("echo", name="late", chain="right")
    assert net.call("late", "x", "d").result() == b"d"
    net.tick(52 - net.now)
    halted = net.call("late", "x", "b", sender="caller/left")
    net.tick(10)
    assert halted.status == "refused" and net.call("late", "x", "c", sender="caller/right").result() == b"c"
    net.run()
    recheck(net, tmp_path)
    path.write_text(path.read_text().replace("heal = true", "heal = [0]"))
    net = cw.Network.in_memory(path)
    with pytest.raises(cw.InvalidInput, match=r"inject: .*planned for tick 70 that heals faults by their numbers"):
        net.inject("halt", chain="right")


def test_names_used_by_examples_are_public() -> None:
    examples = sorted((Path(__file__).parents[3] / "examples").glob("*.py"))
    assert examples
    for each in examples:
        lines = [line for line in each.read_text().splitlines() if re.match(r"\s*(from|import) causeway", line)]
        assert lines in ([], ["import causeway as cw"]), each
    assert set(cw.__all__) <= set(dir(cw)) and all(getattr(cw, name) is not None for name in cw.__all__)
