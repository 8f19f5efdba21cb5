"""Small random networks of any protocol, with its faults, as lakes that keep all guarantees.

A seed gives the same scenario for ever: chains, programs that call each other with value, options and faults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from tests.support.common.small_lakes import lake_of

PROTOCOLS = ("ic", "ibc", "xdm", "icmp")
NAMES = ("left", "right", "far", "near")
Fault = Callable[[Random, list[str], int], str]
"""A random fault of a network: from its chains, over a number of ticks."""


def section(name: str, /, **keys: object) -> str:
    """A section of a scenario without None values. A key with ``__`` belongs to a table in it."""
    return f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in keys.items() if value is not None)


def fault(kind: str, /, **keys: object) -> str:
    named = {("from" if key == "begin" else key): value for key, value in keys.items()}
    return section("[faults]", kind=kind, **named)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def chains_and_programs(random: Random, chains: list[str]) -> str:
    """On every chain one program that calls for users and one that answers; on some a forwarding program."""
    text = "".join(section("[chains]", name=name) for name in chains)
    for name in chains:
        text += section("[programs]", name=f"{name}_caller", chain=name, program="caller", balance=1_000_000)
        text += section("[programs]", name=f"{name}_echo", chain=name, program="echo")
    echoes = [2 * place + 1 for place in range(len(chains))]
    away = random.choice(chains)
    options = {"targets": random.sample(echoes, random.randrange(1, len(echoes) + 1))}
    text += section("[programs]", name="asks_others", chain=away, program="fan_out", options=options)
    return text + section("[programs]", name="nobody", chain=random.choice(chains), program="none")


def traffic(random: Random, chains: list[str], ticks: int) -> str:
    text = section("traffic", source="script")
    for _ in range(random.randrange(4, 12)):
        sender = random.choice(chains)
        receiver = random.choice([*2 * [f"{name}_echo" for name in chains], "asks_others", "nobody"])
        call = {
            "receiver": receiver,
            "method": "ask" if receiver == "asks_others" else "echo",
            "text": f"text {random.randrange(9)}",
            "amount": random.choice((0, 0, 1, 7, 500)),
        }
        count = random.choice((1, 1, 2, 3, 6))
        tick = random.randrange(ticks)
        text += section("[traffic.send]", tick=tick, to=f"{sender}_caller", count=count, call=call)
    return text


def span(random: Random, ticks: int, longest: int) -> dict[str, int]:
    begin = random.randrange(ticks)
    return {"begin": begin, "until": begin + random.randrange(longest)}


def ends(random: Random, chains: list[str]) -> dict[str, str]:
    source, destination = random.sample(chains, 2)
    return random.choice(
        ({}, {"source": source}, {"destination": destination}, {"source": source, "destination": destination})
    )


def carried(kinds: tuple[str, ...]) -> Fault:
    """A fault of delivered items in a tick."""

    def one(random: Random, chains: list[str], ticks: int) -> str:
        tick = random.randrange(1, ticks)
        return fault(random.choice(kinds), tick=tick, until=tick + random.randrange(3), **ends(random, chains))

    return one


def drop(random: Random, chains: list[str], ticks: int) -> str:
    return fault("drop", **span(random, ticks, 4), **ends(random, chains))


def halt(random: Random, chains: list[str], ticks: int) -> str:
    return fault("halt", chain=random.choice(chains), **span(random, ticks, 4))


def every(kind: str, **choices: tuple[object, ...]) -> Fault:
    """A fault of every n-th delivered item, under xdm."""

    def one(random: Random, chains: list[str], ticks: int) -> str:
        own = {name: random.choice(values) for name, values in choices.items()}
        return fault(kind, **span(random, ticks, 20), **ends(random, chains), **own)

    return one


def some(random: Random, faults: Sequence[Fault], chains: list[str], ticks: int) -> str:
    return "".join(random.choice(faults)(random, chains, ticks) for _ in range(random.choice((0, 1, 2, 2, 3))))


def ic(random: Random, chains: list[str], ticks: int) -> str:
    capacity = random.choice((1, 2, 500))
    certified = random.choice((False, False, False, True))
    options = section(
        "options",
        certification="bls" if certified else "off",
        index_base=random.choice((0, 1)),
        substreams=random.choice(("flat", "per_destination", "per_source")),
        vsr=random.choice(("accept_all", "deployed")),
        reject_every=random.choice((0, 0, 0, 2, 3)),
        limits=random.choice(("none", "deployed")),
        limit={"queue_capacity": capacity, "slice_messages": random.choice((0, 1, 2))},
        timeouts=random.choice(("off", "on")),
        request_lifetime_seconds=random.choice((2, 5, 300)),
        messages_per_canister=random.choice((0, 0, 1)),
    )
    return options + some(random, [drop, drop, halt, carried(("replay", "gap", "tamper"))], chains, ticks)


def ibc(random: Random, chains: list[str], ticks: int) -> str:
    timeouts = random.choice(("off", "on", "on"))
    ordered = random.choice(("ordered", "ordered", "unordered"))
    asynchronous = timeouts == "off" or ordered == "ordered"
    options = section(
        "options",
        order=ordered,
        timeouts=timeouts,
        timeout_blocks=random.choice((2, 3, 6)) if timeouts == "on" else None,
        cleanup=random.choice(("off", "on")),
        redundant=random.choice(("error", "noop")),
        expiry=random.choice(("strict", "inclusive")),
        acknowledgements=random.choice(("asynchronous", "synchronous")) if asynchronous else "synchronous",
        relayers=random.choice((["one"], ["one", "two"])),
        relay={"min_batch": random.choice((1, 1, 2)), "max_wait": 1, "max_packets": random.choice((0, 0, 2))},
    )
    options += "[options.types.ask]\n[options.types.echo]\n"

    def final(random: Random, chains: list[str], ticks: int) -> str:
        one, other = random.sample(chains, 2)
        return fault("disconnect", chain=one, counterparty=other, tick=random.randrange(1, ticks))

    def fork(random: Random, chains: list[str], ticks: int) -> str:
        one, other = random.sample(chains, 2)
        tick = random.randrange(2, ticks)
        again = fault("recover", chain=other, counterparty=one, tick=tick + random.randrange(1, 4))
        return fault("fork", chain=one, tick=tick) + random.choice(("", again))

    false = carried(("replay", "gap", "tamper", "stale", "foreign"))
    return options + some(random, [drop, drop, halt, false, false, final, fork], chains, ticks)


def xdm(random: Random, chains: list[str], ticks: int) -> str:
    depth, period = random.choice((2, 3)), random.choice((2, 4))
    options = section(
        "options",
        archiving_depth=depth,
        challenge_period=period,
        inbox=random.choice(("stored", "stored", "pool")),
        fee_model=random.choice(("v0", "v1")),
        resubmit_after=random.choice((4, 15)),
        max_outgoing_messages=random.choice((3, 10_000)),
    )

    def fraud(random: Random, chains: list[str], ticks: int) -> str:
        what = random.choice(("message", "root", "transfers", "bundle"))
        after = random.randrange(1, period + 1)
        return fault(
            "fraud", tick=random.randrange(1, ticks), chain=random.choice(chains), what=what, found_after=after
        )

    def reorg(random: Random, chains: list[str], ticks: int) -> str:
        return fault("reorg", tick=random.randrange(depth + 1, 3 * ticks), depth=random.randrange(1, depth))

    def bundle(random: Random, chains: list[str], ticks: int) -> str:
        what = random.choice(("base", "node", "nonce"))
        return fault("bundle", chain=random.choice(chains), what=what, **span(random, ticks, 20))

    def absent(random: Random, chains: list[str], ticks: int) -> str:
        operator, chance = random.randrange(1, 4), random.choice((0.5, 1.0))
        return fault("absent", chain=random.choice(chains), operator=operator, chance=chance, **span(random, ticks, 40))

    faults = [
        *(every("drop", every=(1, 2, 5)), every("delay", blocks=(1, 2, 5), every=(1, 3)), every("reorder", of=(2, 3))),
        *(
            every("replay", blocks=(0, 1, 2), every=(1, 3)),
            every("tamper", what=("node", "tag", "nonce", "source", "base")),
        ),
        *(fraud, reorg, reorg, bundle, absent, halt),
    ]
    return options + some(random, faults, chains, 2 * ticks)


def icmp(random: Random, chains: list[str], ticks: int) -> str:
    hrmp = random.random() < 0.3
    options = section(
        "options",
        channels="hrmp" if hrmp else "egress",
        ingress_upper=None if hrmp else random.choice(("exclusive", "inclusive")),
        bodies=None if hrmp else random.choice(("ideal", "drawn")),
        session_blocks=2 if hrmp else None,
    )

    def fork(random: Random, chains: list[str], ticks: int) -> str:
        tick, leaves = random.randrange(1, ticks), random.choice((2, 2, 3))
        return fault("fork", tick=tick, until=tick + random.randrange(6), leaves=leaves, kept=random.randrange(leaves))

    def candidate(random: Random, chains: list[str], ticks: int) -> str:
        both = ("partial", "skipped", "sender", "body", "ahead", "parent", "unsorted", "unknown", "watermark_back")
        own = ("no_messages", "many", "oversized") if hrmp else ("root", "no_root", "self", "empty", "duplicate")
        what = random.choice(both + own)
        return fault("candidate", tick=random.randrange(1, ticks), chain=random.choice(chains), what=what)

    faults = [halt, candidate, candidate, *([] if hrmp else [drop, fork, fork])]
    return options + some(random, faults, chains, ticks)


KINDS = {"ic": ic, "ibc": ibc, "xdm": xdm, "icmp": icmp}
"""Random options and faults of each protocol."""


def scenario(protocol: str, seed: int) -> str:
    """A random network of ``protocol`` as a scenario file."""
    return scenario_by(Random(f"{protocol} {seed}"), protocol, seed)


def faults_of(random: Random, protocol: str, chains: list[str], ticks: int) -> str:
    """Random faults of ``protocol`` as a part of a scenario file."""
    _, head, rest = KINDS[protocol](random, chains, ticks).partition("[[faults]]")
    return head + rest


def scenario_by(random: Random, protocol: str, seed: int) -> str:
    """A network of ``protocol`` as a scenario file, sampled from ``random``."""
    chains = list(NAMES[: random.choice((2, 2, 3, 4))])
    ticks = random.randrange(4, 12)
    network = section(
        "network",
        protocol=protocol,
        seed=seed,
        executor="in_process",
        commit_every=random.choice((1, 4, 4096)),
        seconds_per_tick=random.choice((1.0, 2.5, 6.0)),
        ticks=200,
    )
    transport = section("transport", skip=random.choice((0.0, 0.0, 0.1, 0.3)))
    own = KINDS[protocol](random, chains, ticks)
    return network + transport + chains_and_programs(random, chains) + traffic(random, chains, ticks) + own


def chance_lake(folder: Path, protocol: str, seed: int) -> str:
    """Run the network in ``folder``; return the path of its lake."""
    return lake_of(folder, scenario(protocol, seed))
