"""The IBC oracle as a network: blocks, relayers, hostile calls, all invariants on random networks.

Of the hazards 34 is here and, of 28, what the log says: audits read the oracle's log. The others are in
``test_ibc_hazards.py``.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.spec import ibc
from tests.spec.ibc import clients, guarantees, invariants, states
from tests.spec.ibc.record import record_of
from tests.tiers import sized


@dataclass
class Program:
    """Ingress "call" makes calls, "flush" answers pending ones. Requests are echoed, deferred, refused, forwarded."""

    held: list[ibc.RequestKey] = field(default_factory=list)
    forwarded: dict[int, ibc.RequestKey] = field(default_factory=dict)
    calls: int = 0
    seen: list[bytes] = field(default_factory=list)
    answers: list[tuple[int, int, bytes]] = field(default_factory=list)
    fault: bool = False

    def on_ingress(self, ingress: ibc.Ingress) -> Sequence[ibc.Call | ibc.Answer]:
        if ingress.method == "raise":
            self.calls = 99
            raise ValueError("no")
        if ingress.method == "flush":
            held, self.held = self.held, []
            return [ibc.Answer(to, b"late", to.cycles) for to in held]
        described = ast.literal_eval(ingress.payload.decode())
        self.calls += len(described)
        return [ibc.Call(receiver, method, payload, cycles) for receiver, method, cycles, payload in described]

    def on_request(self, request: ibc.Request) -> Sequence[ibc.Call | ibc.Answer]:
        self.seen.append(request.payload)
        to = request.key
        if request.method == "hold":
            self.held.append(to)
            return []
        if request.method == "raise":
            self.held.append(to)
            raise ValueError("half-way")
        if request.method == "refuse":
            return [ibc.Answer.reject(to, "not today")]
        if request.method.startswith("forward:"):
            self.forwarded[self.calls] = to
            self.calls += 1
            return [ibc.Call(int(request.method.removeprefix("forward:")), "echo", request.payload)]
        return [ibc.Answer(to, request.payload, to.cycles // 2)]

    def on_reply(self, reply: ibc.Reply) -> Sequence[ibc.Call | ibc.Answer]:
        if self.fault:
            raise RuntimeError("stop")
        self.answers.append((reply.callback, reply.code, reply.payload))
        waiting = self.forwarded.pop(reply.callback, None)
        return [] if waiting is None else [ibc.Answer(waiting, reply.payload)]


def call(program: int, *described: tuple[Any, ...]) -> ibc.Ingress:
    """Ingress that makes calls (receiver, method, cycles[, payload])."""
    full = [(*one, b"")[:4] for one in described]
    return ibc.Ingress("user", program, "call", repr(full).encode())


def network(zones: str = "AB", each: int = 1, **columns: Any) -> ibc.Network:
    """Zone A has programs 1, 2, ...; B has 11, 12, ...; C 21, ..."""
    programs = {zone: {10 * at + number: Program() for number in range(1, each + 1)} for at, zone in enumerate(zones)}
    columns.setdefault("relayers", [ibc.Relayer("honest")])
    return ibc.Network(programs, **columns)


def blocks(net: ibc.Network, count: int, **columns: Any) -> None:
    for _ in range(count):
        net.block(**columns)
        assert guarantees.violations(net) == []


def test_call_and_response_take_the_expected_blocks() -> None:
    net = network()
    net.block({"A": [call(1, (11, "echo", 100, b"hi"))]})
    key = ibc.key("B", "send", 0)
    envelope = "0000000000000001000000000000000b0000000000000000" + f"{100:032x}" + "04" + b"echohi".hex()
    value = "0100000004" + b"call".hex() + f"{len(envelope) // 2:08x}" + envelope
    assert net.history["A", 1][key].hex() == value
    assert net.zones["A"].app.balances[1] == 900
    net.block()
    assert net.program(11).seen == [b"hi"]
    assert net.history["B", 2][ibc.key("A", "receipt", 0)].hex() == "010000000000000012" + f"{50:032x}" + b"hi".hex()
    net.block()
    assert net.program(1).answers == [(0, 0, b"hi")]
    assert key not in net.history["A", 3]
    assert net.zones["A"].app.balances[1] == 950 and net.zones["B"].app.balances[11] == 1050
    names = [type(row).__name__ for row in net.log if not isinstance(row, ibc.Root)]
    assert names == ["Sent", "HeaderAdded", "Received", "HeaderAdded", "Acked"]
    assert net.fees == {"honest": 4}
    assert guarantees.violations(net) == [] and invariants.open_obligations(net.log) == []
    net.block()
    assert net.fees == {"honest": 4}, "nothing to do: no header either"
    assert [net.zones["A"].connections["B"].T, net.headers["A", 1].time] == [
        {(0, net.headers["B", 0]), (2, net.headers["B", 2])},
        10**9,
    ]


def test_codes_and_refunds() -> None:
    net = network(types={"A": ["odd"], "B": []}, zones="AB", each=2)
    described = [(11, "raise", 10), (11, "refuse", 10), (11, "odd", 10), (99, "echo", 10), (12, "hold", 10)]
    net.block({"A": [call(1, *described)]})
    del net.zones["B"].app.programs[12]
    blocks(net, 3)
    assert sorted(net.program(1).answers) == [
        (0, 3, b"ValueError: half-way"),
        (1, 16, b"not today"),
        (2, 1, b""),
        (3, 16, b"UnregisteredDestination"),
        (4, 17, b"no program 12"),
    ]
    assert net.program(11).held == [] and net.program(11).seen == [b""]
    assert net.zones["A"].app.balances[1] == 1000
    assert [row.error for row in net.rows(ibc.Rejected)] == ["UnregisteredDestination"]


def test_permission_and_sender_of_another_zone() -> None:
    net = network(zones="ABC", types=["odd"], permissions={"odd": {21}}, links={("A", "B"), ("B", "C")})
    net.block(
        {"A": [call(1, (11, "odd", 0), (21, "echo", 0)), call(1, (11, "echo", 2000))], "B": [call(11, (1, "x", 0))]}
    )
    assert [row.error for row in net.rows(ibc.Rejected)] == ["PermissionDenied", "UnregisteredDestination"]
    assert [row.text for row in net.rows(ibc.Failed)] == ["InsufficientFunds: balance 1000, attached 2000"]
    net.directory[11] = "C"
    blocks(net, 2)
    net.directory[11] = "B"
    assert net.program(11).answers == [(0, 4, b"PermissionDenied")]


def test_local_lane_takes_one_block_and_no_proof() -> None:
    net = network(each=2)
    net.block({"A": [call(1, (2, "echo", 10, b"x"), (2, "raise", 10), (2, "hold", 10))]})
    assert net.program(2).seen == []
    blocks(net, 1)
    assert net.program(2).seen == [b"x", b""]
    blocks(net, 1)
    assert net.program(1).answers == [(0, 0, b"x"), (1, 3, b"ValueError: half-way")]
    net.block({"A": [ibc.Ingress("user", 2, "flush"), ibc.Ingress("user", 2, "raise")]})
    blocks(net, 1)
    assert net.program(1).answers[2] == (2, 0, b"late") and net.program(2).calls == 0
    assert net.rows(ibc.Sent) == [] and net.fees == {}


def test_hazard_28_messages_to_a_halted_zone_are_refused() -> None:
    net = network()
    for _ in range(20):
        net.block({"A": [call(1, (11, "echo", 1))], "B": [call(11, (1, "x", 0))]}, halted={"B"})
    assert len(net.rows(ibc.Refused, call="ingress", error="halted")) == 20
    blocks(net, 3)
    assert len(net.program(11).seen) == len(net.program(1).answers) == 20


def test_hazard_34_log_of_one_side() -> None:
    net = network()
    net.block({"A": [call(1, (11, "echo", 8))]})
    blocks(net, 3)
    one_side = [row for row in net.log if row.chain == "A"]
    assert invariants.unchecked(net.log) == []
    assert invariants.unchecked(one_side) == ["G2: no log of B: Acked rows of A are unchecked"]
    assert invariants.g2_authenticity(one_side) == invariants.g4_atomic(one_side) == []


def test_timeouts_and_cleanups() -> None:
    late = ibc.Options(timeouts="on", cleanup="on")
    net = network(options=late, limits=lambda zone, remote: (zone.height + 3, None))
    net.block({"A": [call(1, (11, "echo", 8, b"1"), (11, "echo", 8, b"2"))]})
    blocks(net, 5, halted={"B"})
    assert [row.index for row in net.rows(ibc.TimedOut)] == [0, 1]
    assert net.program(1).answers == [(0, 2, b""), (1, 2, b"")] and net.zones["A"].app.balances[1] == 1000
    net.block({"A": [call(1, (11, "echo", 8, b"3"))]})
    blocks(net, 4)
    assert [(row.begin, row.end) for row in net.rows(ibc.Cleaned)] == [(0, 2), (2, 3)]
    assert net.program(11).seen == [b"3"] and net.program(1).answers[-1] == (2, 0, b"3")
    assert invariants.open_obligations(net.log) == []
    fees = net.fees["honest"]
    blocks(net, 2)
    assert net.fees["honest"] == fees


def test_relayer_parameters() -> None:
    net = network(relayers=[ibc.Relayer("slow", min_batch=3, max_wait=2)])
    net.block({"A": [call(1, (11, "echo", 1))]})
    heights = lambda: [row.height for row in net.rows(ibc.Received)]  # noqa: E731
    blocks(net, 2)
    assert heights() == []
    blocks(net, 1)
    assert heights() == [4]
    net = network(relayers=[ibc.Relayer("narrow", max_packets=2)])
    net.block({"A": [call(1, *[(11, "echo", 1)] * 5)]})
    blocks(net, 4)
    assert [row.height for row in net.rows(ibc.Received)] == [2, 2, 3, 3, 4]
    team = [ibc.Relayer(f"r{at}", coordination="leader", number=at, total=2) for at in range(2)]
    net = network(relayers=team)
    net.block({"A": [call(1, *[(11, "echo", 1)] * 4)]})
    blocks(net, 3)
    assert net.rows(ibc.Refused) == [] and set(net.fees) == {"r0"}
    parted = [ibc.Relayer(f"r{at}", coordination="partition", number=at, total=2) for at in range(2)]
    net = network(relayers=parted, options=ibc.Options(order="unordered"))
    net.block({"A": [call(1, *[(11, "echo", 1)] * 4)]})
    blocks(net, 3)
    assert net.rows(ibc.Refused) == [] and net.fees == {"r0": 6, "r1": 6}


def test_root_lags_by_one_block() -> None:
    net = network(options=ibc.Options(app_hash_lag=1))
    net.block({"A": [call(1, (11, "echo", 1))]})
    assert net.headers["A", 1].root == net.headers["A", 0].root
    blocks(net, 4)
    assert [row.height for row in net.rows(ibc.Received) + net.rows(ibc.Acked)] == [3, 5]


def test_forged_headers_and_forks_in_a_block() -> None:
    net = network(valid=lambda trust, header: True)
    net.block({"A": [call(1, (11, "echo", 1))]})
    fork = replace(net.headers["A", 1], root=bytes(32))
    net.block(calls=[ibc.Submission("B", "submitMisbehaviour", "A", (net.headers["A", 1], fork), "watcher")])
    assert net.zones["B"].connections["A"].frozen
    blocks(net, 2)
    assert net.rows(ibc.Received) == [] and len(net.rows(ibc.Frozen)) == 1
    assert {row.error for row in net.rows(ibc.Refused)} == {"ConnectionFrozen"}


# ---- random networks

METHODS = ["echo", "echo", "echo", "hold", "raise", "refuse", "odd", "forward:1", "forward:11", "forward:21"]


@dataclass
class Hostile:
    """Submits headers and proofs of any height, true and false ones, of this or that key, to the right and the wrong
    call. It may read all that was ever committed."""

    draw: Any
    net: ibc.Network
    name: str = "hostile"

    def calls(self, view: ibc.View, zone: ibc.Zone) -> list[ibc.Submission]:
        submitted = []
        for _ in range(self.draw(st.integers(0, 3))):
            remote = self.draw(st.sampled_from([one for one in view.order if one != zone.chain_id]))
            height = max(0, view.height - 1 - self.draw(st.sampled_from([0, 0, 1, 2, 4, 8])))
            header = self.net.headers[remote, height]
            shown = max(0, height - view.options.app_hash_lag)
            keys = [k for k in sorted(self.net.history[remote, shown]) if ibc.parse(k)[0] == zone.chain_id]
            k = self.draw(st.sampled_from([*keys, *keys, ibc.key(zone.chain_id, "receipt", 0), b"?"]))
            true = self.net.proof(remote, k, height)
            false = [ibc.encode_receipt(ibc.Receipt(bytes(16), 0)), ibc.encode_state(9), None]
            lie = self.draw(st.sampled_from([None, None, None, "value", "chain", "header"]))
            if lie == "value":
                true = replace(true, value=self.draw(st.sampled_from(false)))
            elif lie == "chain":
                true = replace(true, chain=zone.chain_id)
            elif lie == "header":
                header = replace(header, root=bytes(32))
            kind = self.draw(st.sampled_from(["IBCreceive", "IBCreceipt", "IBCtimeout", "IBCcleanup"]))
            submitted += [
                ibc.Submission(zone.chain_id, "updateHeader", remote, header, self.name),
                ibc.Submission(zone.chain_id, kind, remote, true, self.name),
            ]
        return submitted


OPTIONS = [
    ibc.Options(),
    ibc.Options(redundant="noop", cleanup="on", app_hash_lag=1),
    ibc.Options(timeouts="on", cleanup="on", expiry="inclusive", production="by_program"),
    ibc.Options(timeouts="on", cleanup="on", redundant="noop", local="by_production"),
    ibc.Options(order="unordered", cleanup="on"),
    ibc.Options(order="unordered", cleanup="on", timeouts="on", asynchronous="off", redundant="noop"),
]


@settings(
    deadline=None,
    derandomize=True,
    max_examples=sized(54, 600),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
@given(st.data())
def test_all_invariants_hold_on_random_networks(data: Any) -> None:
    options = data.draw(st.sampled_from(OPTIONS))
    zones = data.draw(st.sampled_from(["AB", "ABC"]))
    net = network(zones, each=2, options=options, types=["odd"], balance=40)
    if options.timeouts == "on":
        net.limits = lambda zone, remote: data.draw(
            st.sampled_from(
                [(None, None), (zone.height + 2, None), (zone.height + 4, None), (None, zone.time + 3 * 10**9)]
            )
        )
    lossy = {
        (height, call) for height in data.draw(st.sets(st.integers(1, 8))) for call in ("IBCreceive", "IBCreceipt")
    }
    first = ibc.Relayer("first", max_packets=data.draw(st.sampled_from([None, 1, 2])))
    second = ibc.Relayer(
        "second",
        skip=lambda height, zone, remote, call, index: (height, call) in lossy and index % 2 == 0,
        min_batch=data.draw(st.integers(1, 3)),
        max_wait=2,
    )
    honest = data.draw(st.sampled_from([[second], [first, second], [second, first]]))
    net.relayers = [Hostile(data.draw, net), *honest]
    here = [number for programs in net.programs.values() for number in programs]
    one_call = st.tuples(
        st.sampled_from([*here, 99]), st.sampled_from(METHODS), st.integers(0, 12), st.binary(max_size=1)
    )
    for _ in range(data.draw(st.integers(3, 8))):
        ingress: dict[str, list[ibc.Ingress]] = {}
        for program in data.draw(st.lists(st.sampled_from(here), max_size=3)):
            method = data.draw(st.sampled_from(["call", "call", "call", "flush", "raise"]))
            made = call(program, *data.draw(st.lists(one_call, min_size=1, max_size=3)))
            ingress.setdefault(net.directory[program], []).append(replace(made, method=method))
        halted = set(data.draw(st.lists(st.sampled_from(zones), max_size=1)))
        net.block(ingress, halted=halted)
        assert guarantees.violations(net) == []
    net.relayers = [ibc.Relayer("last")]
    for _ in range(12):
        net.block({zone: [ibc.Ingress("user", number, "flush") for number in net.programs[zone]] for zone in zones})
        assert guarantees.violations(net) == []
    waiting = [number for number in here if net.program(number).forwarded]
    assert invariants.open_obligations(net.log) == [] or (options.order == "ordered" and waiting)


@settings(
    deadline=None,
    derandomize=True,
    max_examples=sized(11, 125),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
@given(st.data())
def test_g9_relayers_change_fees_and_latency_only(data: Any) -> None:
    sent = data.draw(st.lists(st.tuples(st.sampled_from(METHODS[:6]), st.binary(max_size=2)), min_size=1, max_size=8))
    outcomes = []
    for hostile in (False, True):
        net = network(relayers=[ibc.Relayer("alone")])
        if hostile:
            net.relayers = [Hostile(data.draw, net), ibc.Relayer("r", max_packets=1), ibc.Relayer("s")]
        for method, payload in sent:
            net.block({"A": [call(1, (11, method, 3, payload))]})
        for _ in range(12):
            net.block({"B": [ibc.Ingress("user", 11, "flush")]})
        assert invariants.open_obligations(net.log) == []
        stores = [net.zones[name].store for name in "AB"]
        outcomes.append((stores, net.program(11).seen, net.program(1).answers, net.zones["A"].app.balances))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("relation", [ibc.Sent, ibc.Received, ibc.Acked])
def test_invariants_detect_faulty_logs(relation: Any) -> None:
    net = network()
    net.block({"A": [call(1, (11, "echo", 8), (11, "refuse", 8))]})
    blocks(net, 3)
    rows = [row for row in net.log if isinstance(row, relation)]
    without = [row for row in net.log if row != rows[0]]
    assert invariants.g1_exactly_once_in_order(without) != []
    assert invariants.g1_exactly_once_in_order([*net.log, rows[0]]) != []
    if relation is not ibc.Acked:
        assert invariants.g2_authenticity(without) != []
        changed = replace(rows[0], data_hash=bytes(32))
        assert invariants.g2_authenticity([changed if row == rows[0] else row for row in net.log]) != []
    else:
        changed = replace(rows[0], outcome="rollback")
        assert invariants.g4_atomic([changed if row == rows[0] else row for row in net.log]) != []
        swapped = [{rows[0]: rows[1], rows[1]: rows[0]}.get(row, row) for row in net.log]
        assert invariants.c1_to_c5_causality(swapped) != []


def test_invariants_detect_faulty_states() -> None:
    net = network()
    net.block({"A": [call(1, (11, "echo", 8), (11, "refuse", 8))]})
    blocks(net, 1)
    store = net.zones["A"].store
    first, other = ibc.key("B", "send", 0), ibc.encode_packet(ibc.Packet("call", bytes(41)))
    net.history["A", 2][first] = other
    assert states.g5_immutable(record_of(net)) != []
    good = store[first]
    store[first] = other
    assert states.g6_destination(record_of(net)) != []
    del store[first]
    assert states.g8_bounds(record_of(net)) != [] and states.g7_isolation(record_of(net)) != []
    store[first] = good
    store[ibc.key("B", "send", ibc.HEAD)] = ibc.encode_state(1)
    assert states.g8_bounds(record_of(net)) != []
    store[ibc.key("B", "send", ibc.HEAD)] = ibc.encode_state(0)
    net.zones["A"].app.balances[1] += 1
    assert states.conserved(record_of(net)) != []


def test_guarantees_detect_violated_client_and_packet_limits() -> None:
    options = ibc.Options(timeouts="on", cleanup="on", unbonding=100 * 10**9)
    net = network(options=options, limits=lambda zone, remote: (zone.height + 3, None))
    net.block({"A": [call(1, (11, "echo", 8), (11, "echo", 8))]})
    blocks(net, 3)
    net.block({"A": [call(1, (11, "echo", 8))]})
    blocks(net, 6, halted={"B"})
    (late,), (first, _) = net.rows(ibc.TimedOut), net.rows(ibc.Received)
    (sent,) = net.rows(ibc.Sent, index=0)

    def x1(row: ibc.Row, other: ibc.Row) -> list[str]:
        return clients.x1_limits([other if one == row else one for one in net.log], options)

    assert x1(first, first) == []
    assert x1(sent, replace(sent, max_height=1)) != [] and x1(first, replace(first, code=2)) != []
    assert x1(late, replace(late, proof_height=4)) != []

    def x4(row: ibc.Row, *others: ibc.Row, **other: Any) -> list[str]:
        log = [new for one in net.log for new in (others if one == row else [one])]
        return clients.x3_x4_x11_clients(log, replace(options, **other))

    assert x4(first, first) == []
    added, *_ = net.rows(ibc.HeaderAdded, chain="B")
    assert x4(added) != [] and x4(added, added, added) != []
    assert x4(added, ibc.Frozen("B", 2, 1, "A", 1, ""), added) != []
    assert x4(added, ibc.Recovered("B", 2, 1, "A", 1)) == []
    assert x4(first, first, unbonding=10**9 - 1) != [] and x4(first, first, delay=1) != []


def test_guarantees_detect_messages_pending_too_long() -> None:
    net = network(relayers=[])
    net.block({"A": [call(1, (11, "echo", 8), (11, "echo", 8))]})
    both = {("A", "B"), ("B", "A")}

    def waiting() -> int:
        return len(clients.l1_l2_bounded(record_of(net), net.height - 1, both))

    blocks(net, 1)
    assert waiting() == 2
    net.relayers = [ibc.Relayer("r", skip=lambda height, zone, remote, call, index: call == "IBCreceipt")]
    blocks(net, 2)
    assert waiting() == 1, "the receipt at the head; the other waits for that"
    net.relayers = [ibc.Relayer("r")]
    blocks(net, 2)
    assert waiting() == 0
