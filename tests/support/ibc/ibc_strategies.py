"""Scenarios for the comparison of the IBC kernel and its oracle, as Hypothesis draws them."""

from __future__ import annotations

from math import ceil
from typing import Any

import cbor2
from hypothesis import strategies as st

from tests.support.ibc.ibc_harness import Call, Scenario
from tests.support.ibc.ibc_outside import EVIDENCE_LIES, HEADER_LIES, PROOF_LIES, Told, Visit
from tests.support.ibc.ibc_programs import ACTOR, ops
from tests.support.properties.caller_payloads import caller_payload

NAMES = ["A", "B", "a", "A.b", "A-2", "cosmoshub-4", "z" * 64]
"""Their order as keys is not that of their letters alone: "A" comes after "A-2" and "A.b"."""

NUMBERS = [0, 1, 2, 3, 7, 300, 2**32 + 5, 2**64 - 2]
PROGRAMS = [ACTOR, ACTOR, ACTOR, "echo", "caller", None]
PAYLOADS = [b"", b"x", b"\x03\x02\x01", bytes(100)]
TYPES = ["alpha", "beta"]
METHODS = ["echo", "echo", "take", "hold", "hold", "refuse", "raise", "early", "spend", "alpha", "beta"]
CYCLES = [0, 0, 0, 1, 40, 999, 5000]

ROTATING: list[dict[str, Any]] = [
    {"validators": members, "rotation": {"every": every, "replace": replaced}}
    for members, every, replaced in ((3, 1, 1), (4, 2, 1))
]
"""Sets that change: a header that is skipped for so long that it cannot be trusted at once."""


DELAYS = [0.0] * 8 + [1.0, 2.5]
"""Seconds after which a header can be used."""


def options(
    zones: list[str], numbers: list[int], relayers: int, delays: list[float]
) -> st.SearchStrategy[dict[str, Any]]:
    """Every option that the kernel has and the oracle knows. ``delays``: to choose from."""
    some_zones = st.lists(st.sampled_from(zones), min_size=1, unique=True)
    modules = st.lists(st.sampled_from([f"p{number}" for number in numbers]), max_size=2, unique=True)
    kind = st.fixed_dictionaries({}, optional={"chains": some_zones, "modules": modules})
    relay = st.fixed_dictionaries(
        {
            "min_batch": st.sampled_from([1, 1, 1, 2, 3]),
            "max_wait": st.sampled_from([0, 1, 2]),
            "max_packets": st.sampled_from([0, 0, 0, 1, 2]),
            "proofs": st.sampled_from(["range", "single"]),
            "coordination": st.sampled_from(["none", "none", "leader", "partition"]),
        }
    )
    drawn = st.fixed_dictionaries(
        {
            "redundant": st.sampled_from(["error", "noop"]),
            "expiry": st.sampled_from(["strict", "inclusive"]),
            "order": st.sampled_from(["ordered", "ordered", "unordered"]),
            "timeouts": st.sampled_from(["off", "on", "on"]),
            "timeout_blocks": st.sampled_from([0, 1, 2, 3]),
            "timeout_seconds": st.sampled_from([0.0, 0.0, 1.0, 2.5]),
            "cleanup": st.sampled_from(["off", "on"]),
            "acknowledgements": st.sampled_from(["asynchronous", "asynchronous", "synchronous"]),
            "types": st.fixed_dictionaries({}, optional=dict.fromkeys(TYPES, kind)),
            "max_data_bytes": st.sampled_from([262_144, 262_144, 60]),
            "relay": relay,
        }
    )
    pairs = st.lists(st.sampled_from([(a, b) for a in zones for b in zones if a < b]), unique=True, max_size=4)
    connections = st.one_of(st.none(), st.none(), pairs)

    sets = st.sampled_from([{"validators": 1}] * 8 + ROTATING)
    periods = st.sampled_from([{}] * 8 + [{"unbonding_seconds": seconds} for seconds in (2.5, 3.0, 4.0, 7.5)])

    def whole(one: dict[str, Any], links: Any, validators: Any, period: Any, delay: float) -> dict[str, Any]:
        # A header has to be young enough after its delay.
        period = {name: seconds + ceil(delay) for name, seconds in period.items()}
        return {
            **one,
            **validators,
            **period,
            **({"delay_seconds": delay} if delay else {}),
            "connections": links,
            "relayers": tuple(f"r{n}" for n in range(relayers)),
        }

    return st.builds(whole, drawn, connections, sets, periods, st.sampled_from(delays))


@st.composite
def actor_payloads(draw: st.DrawFn, programs: list[int]) -> bytes:
    """What an actor is told to do."""
    told: list[tuple[Any, ...]] = []
    for _ in range(draw(st.sampled_from([1, 2, 3, 5]))):
        kind = draw(st.sampled_from(["call"] * 14 + ["flush", "flush", "refuse", "raise", "calm"]))
        if kind == "call":
            method = draw(st.sampled_from([*METHODS, "relay"]))
            payload = draw(st.sampled_from(PAYLOADS))
            if method == "relay":
                inner = [draw(st.sampled_from(programs)), draw(st.sampled_from(METHODS)), payload]
                payload = cbor2.dumps(inner)
            note = draw(st.sampled_from([None] * 9 + ["boom"]))
            told.append(("call", draw(st.sampled_from(programs)), method, payload, draw(st.sampled_from(CYCLES)), note))
        elif kind == "flush":
            told.append(("flush", draw(st.sampled_from([1, 2, 3]))))
        else:
            told.append((kind,))
    if ("raise",) in told:
        # A call beyond the balance raises too, and the oracle does not say which of the two came first.
        told = [(*one[:4], 0, one[5]) if one[0] == "call" else one for one in told]
    return ops(*told)


@st.composite
def ingress_calls(draw: st.DrawFn, zones: dict[str, dict[int, str | None]]) -> Call:
    """One ingress message; mostly where its program is."""
    home = {number: zone for zone, here in zones.items() for number in here}
    programs = {number: name for here in zones.values() for number, name in here.items()}
    receiver = draw(
        st.sampled_from([number for number in programs for _ in range(3 if programs[number] == ACTOR else 1)])
    )
    zone = draw(st.sampled_from([home[receiver]] * 14 + list(zones)))
    user = draw(st.sampled_from([0, 5, 2**64 - 1]))
    known = [*programs, 12345]
    if programs[receiver] == ACTOR:
        return Call(zone, receiver, user, "do", draw(actor_payloads(known)))
    payload = b"malformed"
    if draw(st.sampled_from([False] + [True] * 9)):
        peer, cycles = draw(st.sampled_from(known)), draw(st.sampled_from(CYCLES))
        payload = caller_payload(peer, cycles, draw(st.sampled_from(METHODS)), draw(st.sampled_from(PAYLOADS)))
    return Call(zone, receiver, user, draw(st.sampled_from([*["call"] * 9, "other"])), payload)


USERS = [0, 1, 7, 2**31 + 7, 2**64 - 1]
"""Strangers; the third and the fourth have one fee account."""


@st.composite
def visits(draw: st.DrawFn, zones: list[str], pairs: list[tuple[str, str]]) -> Visit:
    """A transaction of a stranger: all that a relayer would bring, or something of it, under an older header, repeated,
    cut or altered."""
    zone, remote = draw(st.sampled_from(pairs)) if pairs else (zones[0], zones[1])
    user = draw(st.sampled_from(USERS))
    if draw(st.sampled_from([True] * 3 + [False] * 2)):
        order = ["receive", "receive", "receipt", "receipt", "timeout", "cleanup"]
        offsets = [0, 1, 0, 1, 0, 0]
        chosen = draw(st.lists(st.sampled_from(range(6)), max_size=6, unique=True).map(sorted))
        calls = [Told(order[one], remote, 0, offsets[one]) for one in chosen or range(6)]
        return Visit(zone, user, (Told("update", remote), *calls))
    remote = draw(st.sampled_from([remote] * 18 + [zone, "nowhere"]))
    age = draw(st.sampled_from([0, 0, 0, 0, 1, 2, 4, -1]))
    calls = []
    if draw(st.sampled_from([True, True, True, False])):
        lie = draw(st.sampled_from([""] * 7 + list(HEADER_LIES)))
        calls.append(Told("update", remote, draw(st.sampled_from([age] * 6 + [0, 3])), 0, lie))
    for _ in range(draw(st.sampled_from([0, 1, 2, 3]))):
        kind = draw(st.sampled_from(["receive", "receive", "receipt", "receipt", "timeout", "cleanup"]))
        lie = draw(st.sampled_from([""] * 4 + list(PROOF_LIES)))
        calls.append(Told(kind, remote, age, draw(st.sampled_from([0, 0, 0, 0, 1, 1, 2, -1, 2**64])), lie))
    if draw(st.sampled_from([False] * 5 + [True])):
        calls.append(Told("misbehaviour", remote, age, 0, draw(st.sampled_from(["fork", "fork", *EVIDENCE_LIES]))))
    again = draw(st.sampled_from([0, 0, 0, 1]))
    return Visit(zone, user, (*calls, *calls[:again]), draw(st.sampled_from([False] * 19 + [True])))


@st.composite
def scenarios(
    draw: st.DrawFn,
    /,
    max_blocks: int = 14,
    calm: int = 0,
    faulty: bool = False,
    forks: bool = False,
    delays: list[float] = DELAYS,
    strangers: bool = False,
    **fixed: Any,
) -> Scenario:
    """A network of 2 to 4 zones and up to 7 programs, and what happens to it. ``strangers``: they bring things, and
    the relayers leave them something to bring. ``fixed``: options."""
    names = draw(st.permutations(NAMES))[: draw(st.sampled_from([2, 2, 3, 3, 4]))]
    numbers = draw(st.permutations(NUMBERS))[: draw(st.sampled_from([3, 4, 5, 7]))]
    zones: dict[str, dict[int, str | None]] = {name: {} for name in names}
    for place, number in enumerate(numbers):
        zones[names[place % len(names)]][number] = ACTOR if place < 2 else draw(st.sampled_from(PROGRAMS))
    relayers = draw(st.sampled_from([1, 1, 2, 3]))
    chosen = draw(options(names, numbers, relayers, delays)) | fixed
    calm += 4 * ceil(chosen.get("delay_seconds", 0)) if calm else 0
    if (chosen["order"], chosen["timeouts"]) == ("unordered", "on"):
        chosen["acknowledgements"] = "synchronous"
    blocks = draw(st.sampled_from(range(6, max_blocks + 1)))
    jumps = draw(st.lists(st.sampled_from([1, 1, 1, 1, 2, 5]), min_size=blocks, max_size=blocks))
    ticks = tuple(sum(jumps[: place + 1]) - 1 for place in range(blocks))
    ingress: dict[int, list[Call]] = {}
    for height in range(1, blocks + 1):
        how_many = draw(st.sampled_from([2, 3, 4] if height == 1 else [0, 0, 1, 3]))
        ingress[height] = draw(st.lists(ingress_calls(zones), min_size=how_many, max_size=how_many))
    at, zone = st.sampled_from(ticks), st.sampled_from(names)
    anywhere = st.sampled_from([None, *names])
    spans = st.tuples(at, at).map(sorted)
    lies = [] if calm else ["gap", "tamper", "stale", "stale", "foreign"]
    kinds = st.sampled_from(["drop", "replay", "replay", *lies])
    who = st.sampled_from([None, *chosen["relayers"]])
    carriers = st.tuples(kinds, anywhere, anywhere, spans, who).map(lambda row: (*row[:3], *row[3], row[4]))
    halts = st.tuples(zone, spans).map(lambda row: (row[0], *row[1]))

    def some(of: st.SearchStrategy[Any], most: int, wanted: bool = faulty) -> tuple[Any, ...]:
        how_many = draw(st.sampled_from(range(most + 1))) if wanted else 0
        return tuple(draw(st.lists(of, min_size=how_many, max_size=how_many)))

    @st.composite
    def forgeries(draw: st.DrawFn) -> tuple[int, str, int, int, bytes]:
        """By a program that lives elsewhere, or to one that answers at once: whose answer it is, is clear then."""
        source, receiver = draw(zone), draw(st.sampled_from(numbers))
        elsewhere = [number for number in numbers if number not in zones[source]]
        at_once = any(here.get(receiver) in ("echo", None) for here in zones.values() if receiver in here)
        callers = [n for n, name in zones[source].items() if name in ("echo", "caller", None)] if at_once else []
        return (
            draw(at),
            source,
            draw(st.sampled_from([*elsewhere, *callers, 54321])),
            receiver,
            draw(st.sampled_from(PAYLOADS)),
        )

    links = chosen["connections"]
    pairs = [
        (one, other)
        for one in names
        for other in names
        if one != other and (links is None or {(one, other), (other, one)} & set(links))
    ]
    decisions = st.tuples(st.sampled_from(pairs), at).map(lambda row: (*row[0], row[1])) if pairs else st.nothing()
    outside: dict[int, list[Visit]] = {}
    silent: tuple[Any, ...] = ()
    if strangers:
        for height in range(1, blocks + 1):
            how_many = draw(st.sampled_from([0, 1, 2, 3] if pairs else [0, 0, 0, 1]))
            outside[height] = draw(st.lists(visits(names, pairs), min_size=how_many, max_size=how_many))
        silent = draw(st.sampled_from([(), (("drop", None, None, ticks[0], ticks[-1], None),)]))
    doubles = some(zone, 1, forks and strangers)
    for here, remote in [pair for pair in pairs if pair[1] in doubles][:1]:
        # Valid evidence is rare among the drawn visits.
        shown = Told("update", remote), Told("misbehaviour", remote, 0, 0, "fork")
        outside[draw(st.sampled_from(range(3, blocks + 1)))].append(Visit(here, USERS[1], shown))
    return Scenario(
        zones=zones,
        options=chosen,
        balance=draw(st.sampled_from([0, 1000, 2**70])),
        ticks=(*ticks, *range(ticks[-1] + 1, ticks[-1] + 1 + calm)),
        calm=calm,
        ingress=ingress,
        outside=outside,
        carriers=(*some(carriers, 3), *silent),
        halts=some(halts, 1),
        forged=some(forgeries(), 2),
        doubles=doubles,
        forks=tuple(dict.fromkeys(some(st.tuples(zone, at), 2, forks))),
        recoveries=some(decisions, 3, forks and bool(pairs)),
        skip=draw(st.sampled_from([0.0, 0.0, 0.3])) if faulty and not calm else 0.0,
        seed=draw(st.sampled_from([0, 1, 2**64 - 1])),
    )
