"""Faults healed by a change equal faults that end by themselves in the tick before.

A network with healed faults has the roots of the network in which the same faults end by themselves, also when it is
resumed at any tick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput

import causeway as cw
from causeway.network.network import LakeNetwork
from causeway.scenarios.scenario import scenario_from
from tests.tiers import generated_lakes

Section = dict[str, Any]

LAKES = max(1, generated_lakes() // 40)
"""Number of generated networks: each is run three times."""

MODULE = "tests.network.test_healed_faults"


class Counting(cw.Program):
    """Program that answers every request with the number of requests so far."""

    def initial_state(self) -> Any:
        return {"requests": 0}

    def on_request(self, request: cw.Request, context: cw.Context) -> Any:
        self.state["requests"] += 1
        return b"%d" % self.state["requests"]


class Upgraded(Counting):
    """Replacement class with the same state."""


CHAINS = ("left", "right")


def network(
    protocol: str,
    faults: Sequence[Section],
    changes: Sequence[Section],
    options: Section | None = None,
    ticks: Iterable[int] = range(0, 30, 3),
    callers: Sequence[str] = CHAINS,
) -> Section:
    """Return a scenario of two chains with a caller and a called program each.

    In each of ``ticks`` the callers on the chains ``callers`` call the program on the other chain.
    """
    programs = [
        {"name": f"{chain}-{name}", "chain": chain, "program": program}
        for chain in CHAINS
        for name, program in (("caller", "caller"), ("called", f"{MODULE}:Counting"))
    ]
    sends = [
        {
            "tick": tick,
            "to": f"{chain}-caller",
            "call": {"receiver": f"{other}-called", "method": "ask", "text": str(tick)},
        }
        for tick in ticks
        for chain, other in (CHAINS, CHAINS[::-1])
        if chain in callers
    ]
    role = {"icmp": "relay", "xdm": "consensus"}.get(protocol)
    return {
        "network": {"protocol": protocol, "executor": "in_process", "ticks": 90},
        "options": options or {},
        "chains": [*({"name": name} for name in CHAINS), *([{"name": role, "role": role}] if role else [])],
        "programs": programs,
        "traffic": {"source": "script", "send": sends},
        "faults": list(faults),
        "changes": list(changes),
    }


def run(document: Section, lake: Path, cuts: Sequence[int] = ()) -> tuple[str, Mapping[str, Any]]:
    """Run a scenario, resumed after each of the ticks ``cuts``; return its root and its counts."""
    for place, until in enumerate([*cuts, None]):
        with LakeNetwork(scenario_from(document, "scenario.toml"), str(lake), resume=place > 0) as net:
            net.run(until)
            if until is None:
                return net.root(), net.summary()
    raise AssertionError("the last cut is the end")


def first_tick(fault: Section) -> int:
    tick: int = fault["tick"] if "tick" in fault else fault["from"]
    return tick


def with_ending_faults(document: Section) -> Section:
    """Return the scenario with all faults from the start, with healed faults ending in time.

    The ticks of changes stay: each installs an unused name in both.
    """
    faults, ends = [dict(fault) for fault in document["faults"]], dict[int, int]()
    for change in document["changes"]:
        healed = change.get("heal", ())
        for position in range(len(faults)) if healed is True else healed:
            ends.setdefault(position, change["tick"])
        faults += [dict(fault) for fault in change.get("inject", ())]
    found = []
    for position, fault in enumerate(faults):
        end = ends.get(position)
        if end is not None and first_tick(fault) >= end:
            continue
        if end is not None and ("until" in fault or "from" in fault):
            fault["until"] = min(fault.get("until", end), end - 1)
        found.append(fault)
    rest = [{key: change[key] for key in change.keys() - {"heal", "inject"}} for change in document["changes"]]
    return {**document, "faults": found, "changes": rest}


def change(tick: int, **rest: Any) -> Section:
    """Return a change that also installs an unused name."""
    return {"tick": tick, "install": [{"name": f"unused-{tick}", "chain": "left", "program": "none"}], **rest}


def fork(tick: int, until: int, kept: int = 1, **rest: Any) -> Section:
    return {"kind": "fork", "tick": tick, "until": until, "leaves": 2, "kept": kept, **rest}


def halt(chain: str, begin: int, until: int | None = None) -> Section:
    return {"kind": "halt", "chain": chain, "from": begin} | ({} if until is None else {"until": until})


UPGRADE = {"upgrade": [{"program": "right-called", "to": f"{MODULE}:Upgraded"}]}

HEALED_FORKS: dict[str, tuple[list[Section], list[Section]]] = {
    "in the tick after its last": ([fork(3, 5)], [change(6, heal=True)]),
    "long after its end": ([fork(3, 5)], [change(14, heal=True)]),
    "in the middle": ([fork(3, 20)], [change(6, heal=[0])]),
    "before it begins": ([fork(9, 20)], [change(6, heal=[0])]),
    "while the relay chain is halted": ([fork(3, 20), halt("relay", 5, 12)], [change(8, heal=[0])]),
    "while a halt delays its beginning": ([fork(6, 20), halt("relay", 5, 12)], [change(8, heal=[0])]),
    "of which the halt is healed that delays its beginning": (
        [halt("relay", 3, 8), fork(4, 10)],
        [change(6, heal=[0])],
    ),
    "of which the halt is healed that delays its end": ([halt("relay", 5), fork(3, 8)], [change(20, heal=[0])]),
    "the outer of two": ([fork(3, 20, kept=0), fork(5, 18, of=1)], [change(8, heal=[0])]),
    "the inner of two": ([fork(3, 20), fork(5, 18, of=1)], [change(8, heal=[1])]),
    "with an upgrade": ([fork(3, 20)], [change(6, heal=True, **UPGRADE)]),
    "after an upgrade": ([fork(3, 20)], [change(6, **UPGRADE), change(9, heal=True)]),
    "that was injected": ([], [change(4, inject=[fork(5, 30)]), change(9, heal=True)]),
    "and another one": ([fork(3, 20)], [change(6, heal=True, inject=[fork(6, 12, kept=0)]), change(9, heal=True)]),
}


@pytest.mark.parametrize("when", HEALED_FORKS)
def test_healed_fork_of_the_relay_chain(when: str, tmp_path: Path) -> None:
    document = network("icmp", *HEALED_FORKS[when])
    root, counts = run(document, tmp_path / "whole")
    assert counts["sent"] == counts["answered"] == 20 and counts["duplicates"] == 0
    assert run(with_ending_faults(document), tmp_path / "ended")[0] == root
    assert run(document, tmp_path / "parts", cuts=(5, 7, 10))[0] == root


QUICK = {"archiving_depth": 5, "challenge_period": 2}


def test_operators_prove_no_abandoned_heights_after_a_healed_reorganisation(tmp_path: Path) -> None:
    faults = [{"kind": "reorg", "tick": tick, "depth": 4} for tick in (10, 17)]
    document = network("xdm", faults, [change(18, heal=True)], QUICK, (0, 5, 8, 12, 15, 22, 24), ["left"])
    assert run(document, tmp_path / "healed") == run(with_ending_faults(document), tmp_path / "ended")


def test_call_missed_by_a_halted_chain_stays_missed_after_a_reorganisation(tmp_path: Path) -> None:
    call = {"tick": 12, "chain": "left", "foreign": "right", "max_outgoing": 3}
    faults = [halt("left", 11, 13), {"kind": "reorg", "tick": 15, "depth": 4}]
    document = network("xdm", faults, [change(14, heal=[0])], {**QUICK, "channel_calls": [call]})
    assert run(document, tmp_path / "healed") == run(with_ending_faults(document), tmp_path / "ended")


def test_disconnection_healed_in_time_can_be_injected_again(tmp_path: Path) -> None:
    final = {"kind": "disconnect", "chain": "left", "counterparty": "right"}
    changes = [{"tick": 5, "heal": [0], "inject": [{**final, "tick": 12}]}]
    root, counts = run(network("ibc", [{**final, "tick": 9}], changes), tmp_path / "again")
    assert counts["rejected"] and run(network("ibc", [{**final, "tick": 12}], []), tmp_path / "plain")[0] == root


# ---- generated networks


def span(random: Random) -> tuple[int, int]:
    first = random.randrange(1, 20)
    return first, first + random.randrange(12)


def some_fork(random: Random) -> Section:
    leaves = random.choice((2, 2, 3))
    rest: Section = {"of": random.randrange(3)} if random.random() < 0.4 else {}
    rest |= {"elder": [random.randrange(leaves)]} if random.random() < 0.2 else {}
    return {**fork(*span(random), kept=random.randrange(leaves), **rest), "leaves": leaves}


def some_halt(random: Random) -> Section:
    first, last = span(random)
    chain = random.choice(("relay", "relay", "left", "right"))
    return halt(chain, first, last if random.random() < 0.7 else None)


def some_drop(random: Random) -> Section:
    first, last = span(random)
    return {"kind": "drop", "source": "left", "from": first, "until": last}


FAULTS: tuple[Callable[[Random], Section], ...] = (some_fork, some_fork, some_halt, some_drop)


def generate_network(seed: int) -> Section:
    """Return a network of parachains whose faults are injected and healed in any order."""
    random = Random(seed)

    def some(most: int) -> list[Section]:
        return [random.choice(FAULTS)(random) for _ in range(random.randrange(most))]

    faults = some(5)
    known, changes = len(faults), list[Section]()
    for tick in sorted(random.sample(range(26), random.randrange(1, 5))):
        inject = [fault for fault in some(3) if first_tick(fault) >= tick]
        heal = random.choice(([], sorted(random.sample(range(known), random.randrange(known + 1))), True))
        upgrade = UPGRADE if not any("upgrade" in one for one in changes) and random.random() < 0.3 else {}
        changes.append(change(tick, heal=heal, inject=inject, **upgrade))
        known += len(inject)
    return network("icmp", faults, changes)


def first_valid_network(seed: int) -> Section:
    """Return the first generated network from a seed on which all forks can begin."""
    while True:
        document = generate_network(seed)
        try:
            for one in (document, with_ending_faults(document)):
                with LakeNetwork(scenario_from(one, "scenario.toml")):
                    return document
        except InvalidInput:
            seed += 1_000_000


@pytest.mark.parametrize("seed", range(LAKES))
def test_any_order_of_forks_halts_and_changes(seed: int, tmp_path: Path) -> None:
    document = first_valid_network(seed)
    root, counts = run(document, tmp_path / "whole")
    assert counts["duplicates"] == counts["out_of_order"] == counts["dropped"] == 0
    assert run(with_ending_faults(document), tmp_path / "ended")[0] == root
    cuts = sorted(Random(seed).sample(range(1, 50), 3))
    assert run(document, tmp_path / "parts", cuts)[0] == root
