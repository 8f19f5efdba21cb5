"""Scenarios for the comparison of kernel and oracle, as Hypothesis draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import cbor2
import pyarrow as pa
from hypothesis import strategies as st

from causeway.config.faults import FOR_EVER
from causeway.core.ingress_call import encode_calls
from tests.support.ic.ic_harness import Call, Forgery, Scenario
from tests.support.ic.ic_programs import ACTOR, SCALAR_CALLER, ops
from tests.support.properties.random_scenarios import SPLITTING

SUBNET_NUMBERS = [0, 1, 2, 255, 256, 257, 65_536, 2**40]
"""Ascending id bytes are not ascending numbers: 256 is 00 01, 1 is 01 00."""

CANISTER_NUMBERS = [0, 1, 2, 3, 7, 300, 2**24 + 1, 2**32 + 5, 2**63, 2**64 - 1]
PROGRAMS = [ACTOR, ACTOR, "echo", "caller", SCALAR_CALLER, "ping_pong", "scalar_echo", None]
PAYLOADS = [b"", b"x", b"\x03\x02\x01", bytes(300)]
METHODS = ["echo", "echo", "take", "take", "hold", "hold", "refuse", "raise", "early", "spend", "loud"]
CYCLES = [*[0] * 10, *[1, 3, 40] * 3, 2**64 - 1, 2**64, 2**70 + 5, 10**38 - 2]
BALANCES = [0, 5, *[1_000] * 4, *[2**63, 2**64 + 7, 2**80, 2**100] * 2, *[10**38 - 1] * 3]


def options() -> st.SearchStrategy[dict[str, Any]]:
    """Every option that the kernel has, each at its default half of the time."""

    def one_of(default: Any, *others: Any) -> st.SearchStrategy[Any]:
        return st.sampled_from([default] * len(others) + list(others))

    limit = st.fixed_dictionaries(
        {
            "stream_messages": st.sampled_from([1, 2, 3, 10_000, 10_000]),
            "stream_bytes": st.sampled_from([1, 300, 700, 10_485_760, 10_485_760]),
            "queue_capacity": st.sampled_from([1, 1, 2, 500]),
            "slice_messages": st.sampled_from([0, 0, 1, 2]),
            "max_signals": st.sampled_from([1, 2, 5, 10_000]),
            "message_bytes": st.sampled_from([1, 4, 8, 299, 300, 2 * 1024 * 1024, 2 * 1024 * 1024]),
            "system_stream_messages": st.sampled_from([1, 2, 200]),
            "system_slice_messages": st.sampled_from([1, 2, 100]),
        }
    )
    return st.fixed_dictionaries(
        {
            "index_base": st.sampled_from([0, 1]),
            "substreams": one_of("flat", "per_destination", "per_source"),
            "vsr": one_of("accept_all", "deployed"),
            "reject_every": st.sampled_from([0, 0, 0, 0, 1, 2, 3]),
            "sender_mismatch": one_of("drop_accept", "deployed"),
            "receiver_check": one_of("on", "off"),
            "loopback": st.sampled_from(["stream", "stream", "stream", "seed_literal"]),
            "dead_destination": one_of("requests_only", "seed_literal"),
            "validate_signals": st.sampled_from(["on", "on", "on", "off"]),
            "empty_slice": one_of("reject", "allow"),
            "limits": st.sampled_from(["none", "deployed"]),
            "limit": limit,
            "timeouts": one_of("off", "on"),
            "request_lifetime_seconds": st.sampled_from([0, 1, 2, 5]),
            "migrations": one_of("off", "on"),
            "messages_per_canister": one_of(0, 1, 2, 3),
        }
    )


@st.composite
def actor_payloads(draw: st.DrawFn, canisters: list[int]) -> bytes:
    """What an actor is told to do."""
    told: list[tuple[Any, ...]] = []
    for _ in range(draw(st.sampled_from([1, 2, 3, 5]))):
        kind = draw(st.sampled_from(["call"] * 14 + ["flush", "flush", "refuse", "raise"]))
        if kind == "call":
            method = draw(st.sampled_from([*METHODS, "relay"]))
            payload = draw(st.sampled_from(PAYLOADS))
            if method == "relay":
                inner = [draw(st.sampled_from(canisters)), draw(st.sampled_from(METHODS)), payload]
                payload = cbor2.dumps(inner)
            cycles = draw(st.sampled_from(CYCLES))
            note = draw(st.sampled_from([None, None, None, "boom"]))
            told.append(("call", draw(st.sampled_from(canisters)), method, payload, cycles, note))
        elif kind == "flush":
            told.append(("flush", draw(st.sampled_from([1, 2, 3]))))
        else:
            told.append((kind,))
    if ("raise",) in told:
        # A call beyond the balance raises too, and the oracle does not say which of the two came first.
        told = [(*one[:4], 0, one[5]) if one[0] == "call" else one for one in told]
    return ops(*told)


def caller_payload(receiver: int, cycles: int, method: str, body: bytes) -> bytes:
    """The payload of ingress method ``call``."""
    column = pa.array([receiver], pa.uint64()).to_numpy()
    high, low = pa.array([cycles >> 64], pa.uint64()).to_numpy(), pa.array([cycles % 2**64], pa.uint64()).to_numpy()
    encoded: bytes = encode_calls(column, high, low, method, pa.array([body], pa.binary()))[0].as_py()
    return encoded


@st.composite
def ingress_calls(draw: st.DrawFn, subnets: list[int], canisters: dict[int, Any], home: dict[int, int | None]) -> Call:
    """One ingress message; mostly where its canister is."""
    receiver = draw(st.sampled_from(list(canisters)))
    host = home.get(receiver)
    astray = host is None or draw(st.sampled_from([True] + [False] * 14))
    chain = draw(st.sampled_from(subnets)) if astray or host is None else host
    user = draw(st.sampled_from([0, 5, 2**64 - 1]))
    if canisters[receiver][1] == ACTOR:
        return Call(chain, receiver, user, "do", draw(actor_payloads(list(canisters))))
    payload = b"malformed"
    if draw(st.sampled_from([False] + [True] * 9)):
        peer, cycles = draw(st.sampled_from(list(canisters))), draw(st.sampled_from(CYCLES))
        payload = caller_payload(peer, cycles, draw(st.sampled_from(METHODS)), draw(st.sampled_from(PAYLOADS)))
    return Call(chain, receiver, user, draw(st.sampled_from([*["call"] * 9, "other"])), payload)


def forgeries(
    ticks: st.SearchStrategy[int],
    chains: st.SearchStrategy[int],
    numbers: list[int],
    home: Mapping[int, int | None],
) -> st.SearchStrategy[Forgery]:
    """What byzantine subnets make up: requests, answers to calls that were made, answered or never made. A ``guess`` is
    an answer of a canister that lives where it is forged, perhaps the very one that is waited for."""
    canisters, cycles = st.sampled_from(numbers), st.sampled_from([0, 0, 1, 2**64 + 3])
    deadlines = st.sampled_from([0, 0, 0, 7])
    request = st.builds(
        Forgery,
        tick=ticks,
        chain=chains,
        sender=canisters,
        receiver=canisters,
        payload=st.sampled_from(PAYLOADS),
        callback=st.sampled_from([0, 0, 1, 90]),
        cycles=cycles,
        deadline=deadlines,
    )
    answer = st.builds(
        lambda made, code, text: replace(made, answer=True, code=code, payload=text if code else made.payload),
        request,
        st.sampled_from([0, 0, 2, 4]),
        st.sampled_from([b"", b"no"]),
    )

    def at_home(made: Forgery, callback: int, deadline: int) -> Forgery:
        host = home.get(made.sender)
        chain = made.chain if host is None else host
        return replace(made, chain=chain, callback=callback, deadline=deadline)

    guess = st.builds(at_home, answer, st.sampled_from([0, 0, 1, 2]), st.sampled_from([0, 0, 0, 0, 7]))
    return st.one_of(request, answer, guess, guess)


def repeated(forged: tuple[Forgery, ...], times: int) -> tuple[Forgery, ...]:
    """Each forgery ``times`` times, later ones a tick later."""
    return tuple(replace(one, tick=one.tick + later) for one in forged for later in range(times))


def _some(pool: list[int], size: int) -> st.SearchStrategy[list[int]]:
    return st.permutations(pool).map(lambda order: order[:size])


Move = tuple[int, int, int | None]


@st.composite
def journeys(draw: st.DrawFn, rounds: int, numbers: list[int], subnets: list[int]) -> list[Move]:
    """Canisters that move, go away and come back, end and are added again; several at the same time."""
    moves: list[Move] = []
    start = draw(st.integers(1, rounds))
    for canister in draw(_some(numbers, draw(st.sampled_from([1, 2, 2, 3])))):
        at = start if draw(st.booleans()) else draw(st.integers(1, rounds))
        away, further = draw(st.sampled_from(subnets)), draw(st.sampled_from(subnets))
        ways: dict[str, list[int | None]] = {
            "away": [away],
            "there and back": [away, further, away],
            "end": [None],
            "again": [None, away],
            "tour": [away, further, None],
        }
        for host in ways[draw(st.sampled_from([*ways, "there and back"]))]:
            moves.append((at, canister, host))
            at += draw(st.sampled_from([1, 1, 2, 3]))
    return sorted((move for move in moves if move[0] <= rounds), key=lambda move: move[0])


@st.composite
def memberships(draw: st.DrawFn, rounds: int, subnets: list[int]) -> dict[int, tuple[int, int | None]]:
    """When subnets are in the registry, of those that are not always there: some come, some go, some do both."""
    spans: dict[int, tuple[int, int | None]] = {}
    for subnet in subnets:
        first = draw(st.sampled_from([0, 0, 0, 0, 1, 2, 3]))
        last = draw(st.sampled_from([None, None, *range(max(first, 2), rounds)]))
        if first or last is not None:
            spans[subnet] = (first, last)
    return spans


@st.composite
def some_roles(draw: st.DrawFn, subnets: list[int]) -> dict[int, str]:
    """Which subnets are system subnets, and which of them governs."""
    roles = {subnet: "system" for subnet in subnets if draw(st.booleans())}
    return roles | ({subnets[0]: "nns"} if draw(st.booleans()) else {})


MOST_SUBNETS = 4
"""The oracle draws a word for each subnet from one block of random numbers."""


def with_splits(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """The same network, of which one subnet is split, or each once: some of its canisters go to a new subnet."""
    if draw(st.sampled_from([True, True, False])):
        scenario = with_calls_over_a_split(scenario)
    unsplit = [subnet for subnet in scenario.subnets if not any(subnet in split for split in scenario.splits)]
    every = draw(st.booleans())
    for subnet in unsplit if every or not unsplit else [draw(st.sampled_from(unsplit))]:
        tick = draw(st.integers(1, max(scenario.rounds // 2, 2)))
        known = subnet in scenario.members(tick - 1) & scenario.members(tick)
        there = [canister for canister, host in _hosts_before(scenario, tick).items() if host == subnet]
        if known and there and len(scenario.subnets) < MOST_SUBNETS:
            scenario = split(scenario, tick, subnet, draw(st.lists(st.sampled_from(there), unique=True)))
    return scenario


def _hosts_before(scenario: Scenario, tick: int) -> dict[int, int | None]:
    hosts = {canister: host for canister, (host, _, _) in scenario.canisters.items()}
    return hosts | {canister: host for at, canister, host in scenario.all_moves() if at < tick}


def split(scenario: Scenario, tick: int, subnet: int, going: list[int]) -> Scenario:
    """The same network, of which ``subnet`` is split before a tick: ``going`` go to a new subnet, the others stay."""
    new = next(number for number in (*SUBNET_NUMBERS, *range(3, 9)) if number not in scenario.subnets)
    there = {canister for canister, host in _hosts_before(scenario, tick).items() if host == subnet}
    # With the split no canister of the subnet goes to a third one.
    others = [move for move in scenario.moves if move[0] != tick or move[1] not in there]
    return replace(
        scenario,
        subnets=(*scenario.subnets, new),
        spans={**scenario.spans, new: (tick, None)},
        splits=(*scenario.splits, (tick, subnet, new)),
        moves=sorted([*others, *((tick, canister, new) for canister in going)], key=_tick),
    )


def with_calls_over_a_split(scenario: Scenario) -> Scenario:
    """The same network, in which the second canister goes to a new subnet while a request to it, and an answer to it,
    are under way. Where the first two live, or who moves otherwise, may spoil it."""
    (first, (one, *_)), (second, (other, *_)) = list(scenario.canisters.items())[:2]
    if one is None or other is None or one == other or {one, other} & scenario.spans.keys():
        return scenario
    asks = Call(one, first, 5, "do", ops(("call", second, "echo", b"", 1, None)))
    asked = Call(other, second, 5, "do", ops(("call", first, "echo", b"", 1, None)))
    ingress = {tick: list(calls) for tick, calls in scenario.ingress.items() if tick > 3} | {1: [asked], 2: [asks]}
    moves = [move for move in scenario.moves if move[0] > 5 or move[1] not in (first, second)]
    return split(replace(scenario, ingress=ingress, moves=moves), 3, other, [second])


def crowd(draw: st.DrawFn, canisters: dict[int, Any], home: Mapping[int, int | None]) -> list[Call]:
    """Everybody calls one canister, which also gets a user's message."""
    target = next(iter(canisters))
    calls = []
    for number, (_, program, _) in canisters.items():
        host = home[number]
        if host is None or program != ACTOR:
            continue
        many = draw(st.sampled_from([0, 1, 1, 2, 4]))
        told = [("call", target, draw(st.sampled_from(["echo", "take", "hold"])), b"", 1, None)] * many
        calls.append(Call(host, number, 5, "do", ops(*told)))
    return calls


def with_set_piece(scenario: Scenario, piece: str) -> Scenario:
    """The same network, in which the first two canisters (actors) also do what chance rarely makes them do.

    ``back``: the second moves away and back while a request of the first waits; ``sender``: the first does.
    ``ends``: the second ends with a request in hand and another in its queue. ``answered``: somebody forges the very
    answer that is waited for, or (``late``) one of the other class. ``stale``: the other's subnet is offered an older
    slice that brings the first of three calls, and later one that has nothing new. Where they live, or who moves
    otherwise, may spoil it."""
    (asking, (one, *_)), (asked, (other, *_)) = list(scenario.canisters.items())[:2]
    if one is None or other is None or one == other:
        return scenario
    methods = ("hold", "hold") if piece == "ends" else ("echo",)
    told = [("call", asked, method, b"", 1, None) for method in methods]
    call = Call(one, asking, 5, "do", ops(*told))
    ingress = {tick: list(calls) for tick, calls in scenario.ingress.items() if tick > 1} | {1: [call]}
    moves = [move for move in scenario.moves if move[0] > 5 or move[1] not in (asking, asked)]
    if piece in ("back", "sender"):
        mover, home = (asked, other) if piece == "back" else (asking, one)
        away = next((subnet for subnet in scenario.subnets if subnet != home), home)
        moves += [(2, mover, away), (3, mover, home)]
        late = {(tick, one, other) for tick in (2, 3)}
        return replace(scenario, ingress=ingress, moves=sorted(moves, key=_tick), withheld=scenario.withheld | late)
    if piece == "ends":
        return replace(scenario, ingress=ingress, moves=sorted([*moves, (4, asked, None)], key=_tick))
    if piece == "stale":
        ingress = {tick: list(calls) for tick, calls in scenario.ingress.items() if tick > 3}
        older = [("stale", one, other, 2, 3, {"age": 1}), ("stale", one, other, 5, 5, {"age": 3})]
        calls = {tick: [call] for tick in (1, 2, 3)}
        return replace(scenario, ingress=ingress | calls, moves=moves, carriers=(*scenario.carriers, *older))
    deadline = 7 if piece == "late" else 0
    forgery = Forgery(1, other, asked, asking, b"forged", answer=True, callback=0, cycles=3, deadline=deadline)
    return replace(scenario, ingress=ingress, forged=(forgery, *scenario.forged))


def _tick(move: Move) -> int:
    return move[0]


@st.composite
def scenarios(
    draw: st.DrawFn,
    /,
    max_rounds: int = 12,
    moving: bool = False,
    faulty: bool = False,
    crowded: bool = False,
    settling: bool = False,
    changing: bool = False,
    splitting: bool = False,
    **fixed: Any,
) -> Scenario:
    """A network of up to 4 subnets and 6 canisters, and what happens to it.

    ``moving``: canisters move, start and end, while slices are late. ``faulty``: carriers, halts and forgeries.
    ``crowded``: many senders call one canister that takes few messages a round. ``settling``: nothing goes on for ever.
    ``changing``: subnets come and go, and some are system subnets. ``splitting``: subnets are split.
    ``fixed``: options.
    """
    if splitting:
        fixed |= SPLITTING
    if crowded:
        fixed["messages_per_canister"] = draw(st.sampled_from([1, 1, 2, 3]))
    sizes = [1, 2, 2, 3, 3] if splitting else [1, 2, 2, 3, 3, 4, 4]
    subnets = draw(st.sampled_from(sizes).flatmap(lambda size: _some(SUBNET_NUMBERS, size)))
    numbers = draw(st.sampled_from([2, 3, 4, 5, 6]).flatmap(lambda size: _some(CANISTER_NUMBERS, size)))
    canisters = {}
    for place, number in enumerate(numbers):
        host = draw(st.sampled_from([subnets[place % len(subnets)]] * 6 + [*subnets, None]))
        program = ACTOR if place < 2 or crowded else draw(st.sampled_from(PROGRAMS))
        if settling and program == "ping_pong":
            program = "caller"  # the other never comes to rest
        canisters[number] = (host, program, draw(st.sampled_from(BALANCES)))
    rounds = draw(st.sampled_from(range(4, max_rounds + 1)))
    ticks = st.sampled_from(range(1, rounds + 1))
    chain, anywhere = st.sampled_from(subnets), st.sampled_from([None, None, *subnets])
    spans = draw(memberships(rounds, subnets)) if changing else {}
    moves = draw(journeys(rounds, numbers, subnets)) if moving else []
    home: dict[int, int | None] = {number: host for number, (host, _, _) in canisters.items()}
    ingress: dict[int, list[Call]] = {}
    for tick in range(1, rounds + 1):
        home |= {canister: host for at, canister, host in moves if at == tick}
        how_many = draw(st.sampled_from([2, 3, 4] if tick == 1 else [0, 0, 1, 3]))
        calls = ingress_calls(subnets, canisters, dict(home))
        ingress[tick] = draw(st.lists(calls, min_size=how_many, max_size=how_many))
        ingress[tick] += crowd(draw, canisters, home) if crowded and tick <= rounds // 2 else []
    periods = st.tuples(ticks, ticks).map(sorted)
    kinds = st.sampled_from(["drop", "replay", "replay", "gap", "gap", "tamper", *["stale"] * 3])
    ages = st.sampled_from([1, 1, 1, 2, 3, 4])
    carriers = st.tuples(kinds, anywhere, anywhere, periods, ages).map(
        lambda row: (*row[:3], *row[3], *([{"age": row[4]}] if row[0] == "stale" else []))
    )
    forged = forgeries(ticks, chain, numbers, {number: host for number, (host, _, _) in canisters.items()})
    for_ever = st.just(False) if settling else st.sampled_from([False, False, True])
    halts = st.tuples(chain, periods, for_ever).map(lambda row: (row[0], row[1][0], FOR_EVER if row[2] else row[1][1]))
    late = st.tuples(chain, chain, ticks, st.integers(0, 3))

    def some(of: st.SearchStrategy[Any], most: int, where: bool = faulty) -> tuple[Any, ...]:
        how_many = draw(st.sampled_from(range(most + 1))) if where else 0
        return tuple(draw(st.lists(of, min_size=how_many, max_size=how_many)))

    withheld = {
        (tick, source, destination)
        for source, destination, first, more in some(late, 3, faulty or moving)
        for tick in range(first, min(first + more, rounds) + 1)
    }

    of_moves, of_faults = ["back", "sender", "ends"] if moving else [], ["answered", "late", "stale"] if faulty else []
    pieces = [None, None, *of_moves, *of_faults]
    scenario = Scenario(
        subnets=tuple(subnets),
        canisters=canisters,
        options=draw(options().map(lambda drawn: drawn | fixed)),
        rounds=rounds,
        ingress=ingress,
        moves=tuple(moves),
        spans=spans,
        roles=draw(some_roles(subnets)) if changing else {},
        withheld=frozenset(withheld),
        carriers=some(carriers, 3),
        halts=some(halts, 2),
        forged=repeated(some(forged, 3), draw(st.sampled_from([1, 1, 2]))),
        skip=draw(st.sampled_from([0.0, 0.0, 0.3])) if faulty and not settling else 0.0,
        seed=draw(st.sampled_from([0, 1, 2**64 - 1])),
    )
    piece = draw(st.sampled_from(pieces))
    scenario = scenario if piece is None else with_set_piece(scenario, piece)
    possible = [move for move in scenario.moves if move[2] is None or move[2] in scenario.members(move[0])]
    scenario = replace(scenario, moves=possible)
    return with_splits(draw, scenario) if splitting else scenario
