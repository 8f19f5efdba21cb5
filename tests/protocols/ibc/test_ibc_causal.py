"""Rules C1 to C5 under reordering relayers, forks and lagging clients, and findings of the audit.

The table of docs/reference/audit/causal_order.md is built from these scenarios.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.config.faults import FaultRule
from causeway.protocols.ibc.client import build_evidence
from tests.support.ibc.ibc_causal import A, B, C, Zones, named
from tests.support.properties.audit_ledgers import Case

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "audit" / "causal_order.md").read_text()
RULES = ("C1", "C2", "C3", "C4", "C5")
IN_ORDER = ("ordered_receives", "ordered_acknowledgements")

LAST = 9
"""The last tick in which carriers misbehave."""


def carrier(kind: str, source: int | None = None, to: int | None = None, relayer: str | None = None) -> FaultRule:
    return FaultRule(kind, source, to, 0, LAST, {} if relayer is None else {"relayer": relayer})


REST = 12
"""Blocks behind those in which something is sent."""


@dataclass(frozen=True)
class Scene:
    """Row of the page: faults, options, and violated rules.

    ``believed``: a zone forks, and another believes the false block. ``shown``: both headers are submitted two blocks
    later.
    """

    about: str
    faults: tuple[FaultRule, ...] = ()
    skip: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    believed: bool = False
    shown: bool = False


ONE_LIES: dict[str, Any] = {"relayers": ("honest", "mallory")}
UNORDERED: dict[str, Any] = {"order": "unordered"}
WITH_SPONSOR = {"users": {"user": ["p0", "p1", "p2"]}, "sponsored": {"public": {"min_age": 6}}}
SHARED: dict[str, Any] = {"relayers": ("user", "public"), "relay": WITH_SPONSOR}

LIES = (carrier("gap", relayer="mallory"), carrier("replay"))
FALSE = (carrier("stale", relayer="mallory"), carrier("foreign", B, A))
COMPETE: dict[str, Any] = {"relayers": ("one", "two", "three"), "relay": {"coordination": "partition"}}
LATE: dict[str, Any] = {"timeouts": "on", "timeout_blocks": 3, "cleanup": "on"}
CHANGES: dict[str, Any] = {"validators": 3, "rotation": {"every": 1, "replace": 1}}
DELAY: dict[str, Any] = {"delay_seconds": 3.0}
DROPPED = (carrier("drop", A, B),)

SCENES = (
    Scene("packets before their turn, old packets again", LIES, options=ONE_LIES),
    Scene("proofs under other headers and of other zones", FALSE, options=ONE_LIES),
    Scene("relayers that share entries, none knows of the others", options=COMPETE),
    Scene("users and a sponsored relayer", options=SHARED),
    Scene("relayers that do not come, and clients that lag", DROPPED, skip=0.4),
    Scene("headers with a delay of three blocks", (carrier("drop", C, A),), options=DELAY),
    Scene("validator sets that change while no header comes", (carrier("drop", A, None),), options=CHANGES),
    Scene("a zone that is halted", (FaultRule("halt", B, None, 3, 9),)),
    Scene("packets that time out, and cleanups", DROPPED, skip=0.2, options=LATE),
    Scene("a zone that forks, and relayers that show both headers", (FaultRule("fork", A, None, 8, 8),)),
    Scene("unordered queues, nothing goes wrong", options=UNORDERED),
    Scene("unordered queues, packets before their turn", (carrier("gap"),), options=UNORDERED, broken=("C4", "C5")),
    Scene("unordered queues, users and a sponsored relayer", options=UNORDERED | SHARED, broken=("C4", "C5")),
    Scene("a zone that forks, and a client that believes the false block", believed=True, broken=("C1",)),
    Scene("the same with a delay of three blocks", options=DELAY, believed=True, broken=("C1",)),
    Scene("the same with a delay, and somebody shows both headers", options=DELAY, believed=True, shown=True),
)


def play(scene: Scene) -> Zones:
    """Play a scene: every zone calls the two others in many blocks."""
    net = Zones(*scene.faults, skip=scene.skip, apart=scene.believed, **scene.options)
    for height in range(1, 15):
        for chain in (A, B, C):
            silent = scene.believed and chain == A and height > 6
            if (height + chain) % 3 == 0 and not silent:
                net.ask(chain, (chain + 1) % 3, height // 3 % 2, times=3)
                net.ask(chain, (chain + 2) % 3, height // 2 % 2)
        if scene.believed and height == 6:
            believe(net, scene)
        else:
            net.block()
    if scene.believed:
        net.block(6)
        net.ask(A, B)  # received by B long ago
    net.block(REST)
    return net


def believe(net: Zones, scene: Scene) -> None:
    """Let A fork and B believe the false block, with a packet that A really sends later."""
    false = net.fork(A, B)
    true = dict(zip(net.headers["chain"].tolist(), net.headers["certification"].to_pylist(), strict=True))[A]
    if scene.shown:
        net.block(2)
        shown = wire.SubmitMisbehaviour(remote="A", misbehaviour=build_evidence(false, true))
        net.carry(B, wire.Transaction(calls=[wire.Call(misbehaviour=shown)]).SerializeToString(), carrier=9)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.about)
def test_rule_holds_or_the_audit_finds_exactly_its_violations(scene: Scene) -> None:
    net = play(scene)
    broken = net.broken()
    assert tuple(sorted(broken)) == scene.broken
    received = [one for one in net.packets.values() if one.received is not None]
    assert len(received) >= 25 and len({one.sent for one in received}) >= 4, "there is something to compare"
    promised = () if scene.options.get("order") == "unordered" else IN_ORDER
    reasons = {"received_in_causal_cycle": "C1", "acknowledged_in_causal_cycle": "C2",
               "received_out_of_causal_order": "C4", "acknowledged_out_of_causal_order": "C5"}  # fmt: skip
    found = {reasons[reason]: packets for reason, packets in named(net.audit(*promised)).items()}
    assert found == broken


def test_unsent_packet_of_a_false_block_is_not_sent_rather_than_cyclic() -> None:
    """A missing send proves no order; the authenticity check reports it."""
    net = Zones(apart=True)
    net.ask(A, B)
    net.block(4)
    net.fork(A, B)
    net.block(6)
    false = {("A", "B", 1)}
    assert net.broken() == {"C1": false} and named(net.audit(*IN_ORDER)) == {}
    found = Case(net.rows(timed=True), net.observed(), [{"promise": "causal"}]).audit()
    assert named(found, "authenticity")["not_sent"] == false and named(found) == {}


def test_page_lists_which_rules_hold() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \| .+ \|$", PAGE, re.M)
    shown = [row for row in rows if set(row[1:]) <= {"holds", "broken"}]
    marks = {True: "broken", False: "holds"}
    assert shown == [(one.about, *(marks[rule in one.broken] for rule in RULES)) for one in SCENES]
