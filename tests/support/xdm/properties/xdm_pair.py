"""Kernel and oracle side by side: the same scene, the same envelopes on their way with the same faults, and after every
tick the same storage, queues, books, balances, events and refusals.

What operators bring is what the kernel's prove (``xdm_proving`` holds it against what they must); the oracle makes its
own proof of the same message as of the same blocks, under its own roots. So every copy that is brought late, twice or
altered comes to both in the same block.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

from tests.spec.xdm.endpoints import encode_account
from tests.spec.xdm.keys import outbox_key, responses_key
from tests.spec.xdm.programs import account
from tests.spec.xdm.proofs import Kind
from tests.spec.xdm.relayers import prove
from tests.spec.xdm.trie import Trie
from tests.spec.xdm.values import CONSENSUS, Chain, CrossDomainMessage, Tag, decode_leaf, decode_xdm, encode_xdm
from tests.support.properties.caller_payloads import caller_payload
from tests.support.xdm.properties.xdm_carriers import Copies, Faults, honest, unused_node
from tests.support.xdm.properties.xdm_driven import (
    ACCOUNTS,
    ECHO,
    FORGER,
    NOWHERE,
    WIDTH,
    Driven,
    kernel_options,
    number_of,
)
from tests.support.xdm.properties.xdm_kernel_log import KernelLog
from tests.support.xdm.properties.xdm_kernel_rows import position_of
from tests.support.xdm.properties.xdm_model import Model
from tests.support.xdm.properties.xdm_networks import FUNDS, ROOT
from tests.support.xdm.properties.xdm_proving import Proving, lanes_given_up
from tests.support.xdm.properties.xdm_same import Sides
from tests.support.xdm.properties.xdm_scene_programs import VARIOUS
from tests.support.xdm.properties.xdm_scenes import Ask, Scene

METHOD = "transporter.transfer"


class Pair:
    """``seen``: how often what occurred (``xdm_same``)."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.names = ["consensus", *(f"d{domain}" for domain in range(scene.domains))]
        self.model = Model(scene)
        self.net = Driven(self._placed(), options=self._options(), balances=self._balances(), faults=self._faults())
        if scene.lists:
            self.net.set_allowlists(scene.lists)
        self.net.gossip = self._carried
        self.net.bundled = {tick: position_of(chain) for tick, chain in scene.bundles.items()}
        for chain, c in self.model.chains.items():  # who is online is drawn, as what carriers do
            c.submitters = partial(self.net.kernel.operators.submitters, position_of(chain))
        self.log = KernelLog(self.net)
        self.proving = Proving(self.model)
        self.seen: Counter[str] = Counter()
        self.shows: dict[tuple[Kind, Chain], list[tuple[int, int, Tag]]] = {}
        """What is brought after the next honest request or response of a chain: channel, nonce, tag."""
        self.faults: Any = Faults(random.Random(scene.seed), scene.strength, scene.tags, scene.turn)
        self.sides = Sides(self.model, self.net, self.log, self.seen)
        self.sides.compare()

    def _placed(self) -> dict[str, Any]:
        chains = {}
        for chain, name in zip(self.scene.chains, self.names, strict=True):
            first = WIDTH * position_of(chain)
            placed: dict[int, Any] = {first + place: "caller" for place in range(len(ACCOUNTS))}
            chains[name] = {**placed, first + ECHO: VARIOUS, first + NOWHERE: None}
        return chains

    def _balances(self) -> dict[int, int]:
        funded = (b"alice", b"bob")
        return {number_of(chain, name): FUNDS[name] for chain in self.scene.chains for name in funded}

    def _options(self) -> dict[str, Any]:
        scene = self.scene
        return {
            **kernel_options(scene.options, {}, self.names),
            "channels": "open" if scene.open else "initiate",
            "calls_wait": "on" if scene.waits else "off",
            "operators": scene.operators,
            "channel_calls": [
                {
                    **{"tick": ask.tick, "chain": self._name(ask.chain), "foreign": self._name(ask.foreign)},
                    **({"do": "initiate"} if ask.channel is None else {"do": "close", "channel": ask.channel}),
                    **{"by": self._caller(ask.chain, ask.by), "max_outgoing": ask.limit},
                    **dict(zip(("fee_model", "relay_fee"), ask.fees, strict=True)),
                }
                for ask in scene.channels
            ],
            "allowlist_calls": [
                {
                    **{"tick": ask.tick, "chain": self._name(ask.chain), "do": "add" if ask.add else "remove"},
                    **{"foreign": self._name(ask.foreign) if ask.foreign in scene.chains else ask.foreign},
                    **{"at": self._name(ask.at), "by": self._caller(ask.chain, ask.by)},
                }
                for ask in scene.allowing
            ],
        }

    def _name(self, chain: Chain) -> str:
        return self.names[position_of(chain)]

    def _caller(self, chain: Chain, by: bytes) -> str | int:
        return "root" if by == ROOT else number_of(chain, by)

    def _faults(self) -> list[tuple[Any, ...]]:
        scene = self.scene
        found: list[tuple[Any, ...]] = [("halt", self._name(c), None, a, b, {}) for c, a, b in scene.halts]
        found += [("reorg", None, None, tick, tick, {"depth": depth}) for tick, depth in scene.forks.items()]
        for absent in scene.absences:
            args: dict[str, Any] = {"operator": absent.operator, "chance": absent.chance}
            found.append(("absent", self._name(absent.chain), None, absent.first, absent.last, args))
        for fraud in scene.frauds:
            args = {"what": fraud.what, "amount": 5, "chance": 1.0, "found_after": fraud.found_after}
            ends = self._name(fraud.domain), self._name(fraud.robbed)
            found.append(("fraud", *ends, fraud.tick, fraud.tick, args))
        return found

    # ---- envelopes

    def _carried(self, data: bytes, kind: Kind, dst: Chain, relayer: str) -> list[tuple[int, bytes]]:
        x, now = decode_xdm(data), self.net.tick + 1
        described = decode_leaf(x.proof.consensus.opaque_mmr_leaf).block_number
        made_at = x.proof.consensus.consensus_block_number
        own = prove(self.model, kind, x.src, dst, x.channel_id, x.nonce, described, made_at, x.tag)
        copies: Copies = self.faults(x)
        if relayer == FORGER:  # what it shows is under a root that no receipt says
            own, copies = unused_node(own), honest(x)
            self.seen["forged"] += 1
        else:
            self.proving.check_form(x, own, kind, described)
            self.show(x, kind, described, 3)
        found = []
        for delay, alter in copies:
            self.model.air.append((now + delay, dst, kind, encode_xdm(alter(own)), "carrier"))
            found.append((delay, encode_xdm(alter(x))))
        return found

    def lie(self, chain: Chain, key: bytes, value: bytes) -> None:
        """Let a chain's runtime put an entry into its storage, before its next block."""
        self.net.raw.append((position_of(chain), key, value))
        self.net.apply_rogue()
        self.model.chains[chain].state.raw[key] = value

    def show(self, x: CrossDomainMessage, kind: Kind, described: int, delay: int) -> None:
        """Bring what the source's storage has under other keys than that of an envelope, with its proof (``shows``)."""
        now, made_at = self.net.tick + 1, x.proof.consensus.consensus_block_number
        wanted, self.shows[kind, x.src] = self.shows.get((kind, x.src), []), []
        block = described
        if x.src != CONSENSUS:
            block = self.model.snapshot(CONSENSUS, described).state.confirmed[x.src].domain_block_number
        trie = Trie(self.net.storage_at(position_of(x.src), block)) if wanted else None
        for channel, nonce, tag in wanted:
            assert trie is not None
            own = prove(self.model, kind, x.src, x.dst, channel, nonce, described, made_at, tag)
            key = (outbox_key if kind == "request" else responses_key)(x.dst, channel, nonce)
            proof = replace(x.proof, message_proof=trie.prove(key))
            theirs = replace(x, channel_id=channel, nonce=nonce, proof=proof, tag=tag)
            self.model.air.append((now + delay, x.dst, kind, encode_xdm(own), "carrier"))
            self.net.air.append((now + delay, kind, encode_xdm(theirs)))

    # ---- ticks

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self._step()

    def _step(self) -> None:
        net, tick = self.net, self.net.tick + 1
        for ask in self.scene.users.get(tick, ()):
            self._tell(ask)
        net.unread = []
        self.proving.before(tick)
        self.model.given_up = lanes_given_up(net)  # what programs send comes before what operators prove
        net.block()
        self.log.check()
        net.end_block()
        self.model.tick(tick)
        self.proving.check(net, tick)
        self.sides.compare()
        self._count(tick)

    def _tell(self, ask: Ask) -> None:
        net, caller = self.net, number_of(ask.chain, ask.by)
        receiver = WIDTH * position_of(ask.dst) + ask.place
        if ask.receiver is None:
            net.call(caller, receiver, ask.payload, amount=ask.amount)
            return
        known = ask.receiver.rstrip() in FUNDS
        named = encode_account(account(number_of(ask.dst, ask.receiver)) if known else ask.receiver)
        net.tell(caller, caller_payload(receiver, ask.amount, METHOD, named))

    def _count(self, tick: int) -> None:
        halted = self.scene.halted(tick)
        self.seen["halt"] += bool(halted)
        self.seen["consensus halt"] += CONSENSUS in halted
        self.seen["fork"] += self.net.gone_back_to() is not None
        self.seen["waits"] += bool(len(self.net.state["waiting"]))
        self.seen["early"] += bool(len(self.net.state["early"]))
        self.seen["pool"] += any(self.model.pools.values())

    def rests(self) -> bool:
        return self.net.idle() and not self.net.air
