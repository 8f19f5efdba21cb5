"""What happens in a random network for kernel and oracle: options, users, channels and allow lists that change, chains
that halt, forks, frauds, bundles, carriers that misbehave. A scene is a function of its seed and of its theme, which
says what must occur in it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.spec.xdm.options import Options
from tests.spec.xdm.values import CONSENSUS, Chain
from tests.support.xdm.properties.xdm_driven import ECHO, NOWHERE
from tests.support.xdm.properties.xdm_networks import ALICE, BOB, ROOT


class Ask(NamedTuple):
    """What a user tells the program of an account. ``place``: of the program called; ``receiver``: of a transfer."""

    chain: Chain
    by: bytes
    dst: Chain
    payload: bytes = b""
    amount: int = 0
    place: int = ECHO
    receiver: bytes | None = None


class ChannelAsk(NamedTuple):
    """A call about a channel: ``channel`` None opens one."""

    tick: int
    chain: Chain
    foreign: Chain
    by: bytes
    channel: int | None = None
    limit: int | None = None
    fees: tuple[str | None, int | None] = (None, None)


class Absence(NamedTuple):
    """An operator of a chain is absent in a share of its blocks, from one tick to another."""

    chain: Chain
    operator: int
    chance: float
    first: int
    last: int


class ListAsk(NamedTuple):
    """A call about the allow list of ``chain``, made on the chain ``at``; ``foreign`` may be no chain."""

    tick: int
    chain: Chain
    foreign: Chain
    add: bool
    by: bytes = ROOT
    at: Chain = CONSENSUS


class Fraud(NamedTuple):
    domain: Chain
    tick: int
    what: str
    robbed: Chain
    found_after: int


@dataclass
class Scene:
    """``tags``: whether carriers alter weight tags; ``strength``: of how many envelopes they deliver one otherwise."""

    seed: int
    options: Options
    domains: int
    blocks: int = 24
    lists: Mapping[Chain, set[Chain]] = field(default_factory=dict)
    open: bool = True
    waits: bool = False
    operators: int = 3
    absences: list[Absence] = field(default_factory=list)
    users: dict[int, list[Ask]] = field(default_factory=dict)
    channels: list[ChannelAsk] = field(default_factory=list)
    allowing: list[ListAsk] = field(default_factory=list)
    halts: list[tuple[Chain, int, int]] = field(default_factory=list)
    forks: dict[int, int] = field(default_factory=dict)
    frauds: list[Fraud] = field(default_factory=list)
    bundles: dict[int, Chain] = field(default_factory=dict)
    strength: float = 0.0
    turn: int = 0
    tags: bool = False

    @property
    def chains(self) -> range:
        return range(CONSENSUS, self.domains)

    def halted(self, tick: int) -> set[Chain]:
        """The chains that make no block at a tick: without the consensus chain none does."""
        found = {chain for chain, first, last in self.halts if first <= tick <= last}
        return set(self.chains) if CONSENSUS in found else found


PAYLOADS = (b"hello", b"", b"x" * 200, b"!no", b"*panic", b"#heavy", b"$third", b"$")
THEMES: dict[str, tuple[str, ...]] = {
    "fees": (),
    "forks": ("forks",),
    "halts": ("halts", "forks"),
    "frauds": ("frauds",),
    "bundles": ("bundles",),
    "lists": ("lists", "tags"),
    "closing": ("closing",),
    "waiting": ("waiting", "closing"),
    "pool": ("pool", "bundles"),
    "operators": ("operators", "forks", "frauds"),
    "exhausted": ("exhausted", "waiting", "operators"),
    "everything": ("forks", "halts", "frauds", "bundles", "lists", "closing"),
}
"""What must occur in a scene, by its theme."""


def options_of(rng: random.Random, parts: tuple[str, ...]) -> Options:
    deep = {"archiving_depth": rng.choice([3, 4]), "challenge_period": rng.choice([2, 3, 4])}
    flat = {"archiving_depth": rng.choice([1, 2, 3]), "challenge_period": rng.choice([1, 2, 4])}
    chosen: dict[str, Any] = deep if {"forks", "frauds"} & {*parts} else flat
    return Options(
        **chosen,
        fee_model=rng.choice(["v0", "v1"]),
        inbox="pool" if "pool" in parts else rng.choice(["stored", "stored", "pool"]),
        allowlist="on" if "lists" in parts else "off",
        initiate_by=rng.choice(["root", "signed"]),
        close_by=rng.choice(["root", "owner_or_root"]),
        pool_tag="without_src" if "pool" in parts else "with_src",
        trust_tag="on" if "tags" in parts else rng.choice(["off", "on"]),
        force_close=rng.choice(["off", "on"]),
        max_outgoing_messages=rng.choice([1, 2]) if "waiting" in parts else 25 if parts else rng.choice([2, 25]),
        max_messages=rng.choice([4, 9, 2**64]) if "exhausted" in parts else 2**64,
        resubmit_after=rng.choice([3, 6, 9]),
        mmr_roots=rng.choice([chosen["archiving_depth"] + 4, 1024]),
        max_future_nonces=rng.choice([1, 2, 256]),
        reserve=rng.choice([10, 13]),
        reserve_portion=rng.choice([20, 25]),
        relay_fee=rng.choice([0, 7]),
        fee_multiplier=rng.choice([3, 5]),
        weight_per_unit=rng.choice([2, 3, 7]),
        message_weight=rng.choice([11, 20]),
        response_weight=rng.choice([5, 13]),
        minimum_transfer=5,
    )


def scene(seed: int, theme: str) -> Scene:
    """The scene of a theme that a seed says."""
    rng = random.Random(f"{theme} {seed}")
    parts = THEMES[theme]
    options = options_of(rng, parts)
    domains = 3 if "pool" in parts else rng.choice([1, 2, 2, 3])
    if "frauds" in parts and domains == 1:
        domains = 2
    operators = 3 if theme == "fees" else rng.choice([1, 2, 3])
    made = Scene(seed, options, domains, operators=operators, waits="waiting" in parts)
    made.strength, made.tags = rng.choice([0.3, 0.45]), options.trust_tag == "on" or rng.random() < 0.5
    made.turn = 4 * list(THEMES).index(theme) + seed
    made.open = "waiting" not in parts and rng.random() < 0.75
    begin = 1 if made.open else 2 * (options.archiving_depth + options.challenge_period) + 10
    made.blocks = begin + 22
    who = ROOT if options.initiate_by == "root" else ALICE
    if options.allowlist == "on" and not made.open:
        made.lists = {c: {f for f in made.chains if f != c and rng.random() < 0.9} for c in made.chains}
    if not made.open:
        for a in made.chains:
            for b in made.chains:
                if a < b and rng.random() < 0.85:
                    made.channels.append(ChannelAsk(0, *rng.choice(((a, b), (b, a))), who))
                    if rng.random() < 0.15:
                        made.channels.append(ChannelAsk(0, b, a, who))
    for tick in range(begin, made.blocks):
        _channel_calls(made, rng, tick, who, "closing" in parts)
        made.users[tick] = [_ask(made, rng) for _ in range(rng.choice([0, 1, 2, 4, 6]))]
    if "operators" in parts:
        made.operators = rng.choice([2, 3, 4])
        for chain in made.chains:
            for operator in range(1, made.operators):
                first = rng.randrange(made.blocks // 2)
                chance = rng.choice([0.5, 0.5, 1.0])
                made.absences.append(Absence(chain, operator, chance, first, first + rng.randrange(5, made.blocks)))
    if "closing" in parts:  # while requests from the other side are under way
        for tick in (begin + 6, begin + 13):
            chain, foreign = rng.sample(made.chains, 2)
            made.channels.append(ChannelAsk(tick, chain, foreign, ROOT, 0))
            made.users[tick - 1] += [Ask(foreign, ALICE, chain, b"late", 40), Ask(foreign, ALICE, chain)]
    if "lists" in parts:
        _list_calls(made, rng, begin)
    if "halts" in parts:
        for chain in (rng.randrange(domains), rng.choice([CONSENSUS, *range(domains)])):
            first = begin + rng.randrange(4, 18)
            made.halts.append((chain, first, first + rng.randrange(1, 5)))
    if "forks" in parts:
        for _ in range(2):
            tick = begin + rng.randrange(5, 20)
            made.forks[tick] = rng.randrange(1, options.archiving_depth)
    if "frauds" in parts:
        for domain in range(domains):
            tick = begin + rng.randrange(3, 8)
            while tick < made.blocks:
                after = rng.randrange(1, options.challenge_period + 1)
                robbed = rng.choice([chain for chain in made.chains if chain != domain])
                what = rng.choice(["message", "root", "transfers", "bundle"])
                made.frauds.append(Fraud(domain, tick, what, robbed, after))
                tick += after + rng.randrange(4, 9)
    if "bundles" in parts:
        for tick in rng.sample(range(begin + 3, made.blocks), 6):
            made.bundles[tick] = rng.randrange(domains)
    return made


def _channel_calls(made: Scene, rng: random.Random, tick: int, who: bytes, closing: bool) -> None:
    if rng.random() < (0.3 if made.absences or made.options.max_messages < 10 else 0.12):
        chain, foreign = rng.sample(made.chains, 2)
        stranger = rng.random() < 0.2
        by = ALICE if stranger and who == ROOT else BOB if stranger else who
        foreign = chain if rng.random() < 0.05 else foreign
        fees = rng.choice([(None, None), ("v1", None), ("v0", 2), ("v0", None)])
        made.channels.append(ChannelAsk(tick, chain, foreign, by, None, rng.choice([None, None, 1, 0]), fees))
    if rng.random() < (0.3 if closing else 0.08):
        chain, foreign = rng.sample(made.chains, 2)
        channel = rng.choice([0, 0, 0, 1, 2])
        made.channels.append(ChannelAsk(tick, chain, foreign, rng.choice([ROOT, ROOT, ALICE, BOB]), channel))


def _list_calls(made: Scene, rng: random.Random, begin: int) -> None:
    for _ in range(12):
        tick, chain = begin + rng.randrange(20), rng.choice(made.chains)
        foreign = rng.choice([*made.chains, *made.chains, made.domains + 3])
        by = rng.choice([ROOT, ROOT, ROOT, ROOT, ALICE])
        at = CONSENSUS if rng.random() < 0.85 else rng.choice(made.chains)
        made.allowing.append(ListAsk(tick, chain, foreign, rng.random() < 0.5, by, at))
    made.allowing.sort(key=lambda call: call.tick)


def _ask(made: Scene, rng: random.Random) -> Ask:
    chain, dst = rng.sample(made.chains, 2)
    by = rng.choice([ALICE, ALICE, BOB])
    if rng.random() < 0.35:
        receiver = rng.choice((BOB, BOB, BOB, bytes(32), b"short", b"y" * 20, b"n" * 32))
        return Ask(chain, by, dst, amount=rng.randrange(3, 120), receiver=receiver)
    place = NOWHERE if rng.random() < 0.1 else ECHO
    return Ask(chain, by, dst, rng.choice(PAYLOADS), rng.choice([0, 0, 40, 90]), place)
