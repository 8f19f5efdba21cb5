"""Scenarios for the comparison of kernel and oracle, as Hypothesis draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import cbor2
import pyarrow as pa
from hypothesis import strategies as st

from causeway.model.ingress_call import encode_calls
from tests.property.ic_harness import Call, Forgery, Scenario
from tests.property.ic_programs import ACTOR, SCALAR_CALLER, ops

SUBNET_NUMBERS = [0, 1, 2, 255, 256, 257, 65_536, 2**40]
"""Ascending id bytes are not ascending numbers: 256 is 00 01, 1 is 01 00."""

CANISTER_NUMBERS = [0, 1, 2, 3, 7, 300, 2**24 + 1, 2**32 + 5, 2**63, 2**64 - 1]
PROGRAMS = [ACTOR, ACTOR, "echo", "caller", SCALAR_CALLER, "ping_pong", "scalar_echo", None]
PAYLOADS = [b"", b"x", b"\x03\x02\x01", bytes(300)]
METHODS = ["echo", "echo", "take", "take", "hold", "hold", "refuse", "raise", "early", "spend"]
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
        }
    )
    return st.fixed_dictionaries(
        {
            "index_base": st.sampled_from([0, 1]),
            "substreams": one_of("flat", "per_destination"),
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


@st.composite
def scenarios(
    draw: st.DrawFn, /, max_rounds: int = 12, moving: bool = False, faulty: bool = False, **fixed: Any
) -> Scenario:
    """A network of up to 4 subnets and 6 canisters, and what happens to it.

    ``moving``: canisters move, start and end. ``faulty``: carriers, halts and forgeries. ``fixed``: options.
    """
    subnets = draw(st.sampled_from([1, 2, 2, 3, 3, 4, 4]).flatmap(lambda size: _some(SUBNET_NUMBERS, size)))
    numbers = draw(st.sampled_from([2, 3, 4, 5, 6]).flatmap(lambda size: _some(CANISTER_NUMBERS, size)))
    canisters = {}
    for place, number in enumerate(numbers):
        host = draw(st.sampled_from([subnets[place % len(subnets)]] * 6 + [*subnets, None]))
        program = ACTOR if place < 2 else draw(st.sampled_from(PROGRAMS))
        canisters[number] = (host, program, draw(st.sampled_from(BALANCES)))
    rounds = draw(st.sampled_from(range(4, max_rounds + 1)))
    ticks = st.sampled_from(range(1, rounds + 1))
    chain, anywhere = st.sampled_from(subnets), st.sampled_from([None, *subnets])
    moved = st.tuples(ticks, st.sampled_from(numbers), st.sampled_from([*subnets, *subnets, None]))
    how_many = draw(st.sampled_from([1, 2, 4])) if moving else 0
    moves = sorted(draw(st.lists(moved, min_size=how_many, max_size=how_many)), key=lambda move: move[0])
    home: dict[int, int | None] = {number: host for number, (host, _, _) in canisters.items()}
    ingress: dict[int, list[Call]] = {}
    for tick in range(1, rounds + 1):
        home |= {canister: host for at, canister, host in moves if at == tick}
        how_many = draw(st.sampled_from([2, 3, 4] if tick == 1 else [0, 0, 1, 3]))
        calls = ingress_calls(subnets, canisters, dict(home))
        ingress[tick] = draw(st.lists(calls, min_size=how_many, max_size=how_many))
    spans = st.tuples(ticks, ticks).map(sorted)
    kinds = st.sampled_from(["drop", "replay", "replay", "gap", "gap", "tamper"])
    carriers = st.tuples(kinds, anywhere, anywhere, spans).map(lambda row: (*row[:3], *row[3]))
    forged = forgeries(ticks, chain, numbers, {number: host for number, (host, _, _) in canisters.items()})
    halts = st.tuples(chain, spans).map(lambda row: (row[0], *row[1]))

    def some(of: st.SearchStrategy[Any], most: int) -> tuple[Any, ...]:
        how_many = draw(st.sampled_from(range(most + 1))) if faulty else 0
        return tuple(draw(st.lists(of, min_size=how_many, max_size=how_many)))

    return Scenario(
        subnets=tuple(subnets),
        canisters=canisters,
        options=draw(options().map(lambda drawn: drawn | fixed)),
        rounds=rounds,
        ingress=ingress,
        moves=tuple(moves),
        withheld=frozenset(some(st.tuples(ticks, chain, chain), 6)),
        carriers=some(carriers, 3),
        halts=some(halts, 1),
        forged=repeated(some(forged, 3), draw(st.sampled_from([1, 1, 2]))),
        skip=draw(st.sampled_from([0.0, 0.0, 0.3])) if faulty else 0.0,
        seed=draw(st.sampled_from([0, 1, 2**64 - 1])),
    )
