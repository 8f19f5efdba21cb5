"""The interface of an engine for the hazard tests of cross-domain messaging, and the oracle as an engine."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from tests.spec.xdm.channels import close_channel, initiate_channel, send_message
from tests.spec.xdm.endpoints import transfer
from tests.spec.xdm.events import Event
from tests.spec.xdm.guarantees import Record
from tests.spec.xdm.keys import outbox_key
from tests.spec.xdm.network import PROGRAM, Gossip
from tests.spec.xdm.options import Options
from tests.spec.xdm.proofs import Kind
from tests.spec.xdm.relayers import prove
from tests.spec.xdm.responses import acknowledge
from tests.spec.xdm.state import ChainNode, Channel, ChannelState
from tests.spec.xdm.values import CONSENSUS, TAG_NONE, Chain, CrossDomainMessage, EndpointRequest, encode_xdm
from tests.support.xdm.properties.xdm_kernel_engine import Kernel
from tests.support.xdm.properties.xdm_networks import ALICE, ROOT, fraudulent, network


class Engine(Protocol):
    """A network of consensus chain and domains, driven from outside. `call`s are part of the next block.

    `deliver` puts relayed items into the pools (of `to`, else of the named destination) before the next block and
    makes that block; it gives the errors of the items that were refused in it. `proof` is made now, as by an honest
    relayer; `unconfirmed` ones show the domain's newest block, whatever consensus knows. What begins with `rogue` is
    done by a runtime that does not keep to the rules.
    """

    weighs: bool
    """Whether handlers have a weight that a message may be too heavy for."""
    last_nonce: int | None
    """The last nonce of a channel, None for that of 256 bits."""
    misdelivers: bool
    """Whether an envelope can come to a chain that it does not name."""

    def initiate(self, chain: Chain, dst: Chain, by: bytes = ROOT, limit: int | None = None) -> None: ...
    def close(self, chain: Chain, foreign: Chain, channel: int, by: bytes = ROOT) -> None: ...
    def send(self, chain: Chain, dst: Chain, payload: bytes, by: bytes = ALICE, endpoint: int = PROGRAM) -> None: ...
    def transfer(self, chain: Chain, dst: Chain, receiver: bytes, amount: int, by: bytes = ALICE) -> None: ...
    def step(self, count: int = 1) -> None: ...
    def reorganise(self, depth: int) -> None: ...
    def relaying(self, on: bool) -> None: ...
    def gossip(self, hook: Gossip) -> None: ...
    def fraud(self, domain: Chain) -> None: ...
    def proof(
        self, kind: Kind, src: Chain, dst: Chain, channel: int, nonce: int, unconfirmed: bool = False
    ) -> CrossDomainMessage: ...
    def deliver(self, kind: Kind, *items: CrossDomainMessage, to: Chain | None = None) -> list[str]: ...
    def events(self) -> list[Event]: ...
    def record(self) -> Record: ...
    def channel(self, chain: Chain, foreign: Chain, channel: int) -> Channel: ...
    def balance(self, chain: Chain, account: bytes) -> int: ...
    def cancelled(self, f: Chain, t: Chain) -> int: ...
    def rogue_state(self, chain: Chain, foreign: Chain, channel: int, state: ChannelState) -> None: ...
    def rogue_nonce(self, src: Chain, dst: Chain, channel: int, nonce: int) -> None: ...
    def rogue_mint(self, chain: Chain, account: bytes, amount: int) -> None: ...
    def rogue_books(self, f: Chain, t: Chain) -> None: ...
    def rogue_acknowledge(self, chain: Chain, src: Chain, channel: int, nonce: int) -> None: ...


class Oracle:
    """The oracle as an engine."""

    weighs, misdelivers = True, True
    last_nonce: int | None = None

    def __init__(self, options: Options | None = None, domains: int = 2, **rest) -> None:
        self.net = network(options, domains, **rest)

    def initiate(self, chain: Chain, dst: Chain, by: bytes = ROOT, limit: int | None = None) -> None:
        self.net.call(chain, initiate_channel, by, dst, limit)

    def close(self, chain: Chain, foreign: Chain, channel: int, by: bytes = ROOT) -> None:
        self.net.call(chain, close_channel, by, foreign, channel)

    def send(self, chain: Chain, dst: Chain, payload: bytes, by: bytes = ALICE, endpoint: int = PROGRAM) -> None:
        self.net.call(chain, send_message, by, dst, EndpointRequest(PROGRAM, endpoint, payload))

    def transfer(self, chain: Chain, dst: Chain, receiver: bytes, amount: int, by: bytes = ALICE) -> None:
        self.net.call(chain, transfer, by, dst, receiver, amount)

    def step(self, count: int = 1) -> None:
        self.net.step(count)

    def reorganise(self, depth: int) -> None:
        self.net.reorganise(depth)

    def relaying(self, on: bool) -> None:
        for relayer in self.net.relayers:
            relayer.working = on

    def gossip(self, hook: Gossip) -> None:
        self.net.gossip = hook

    def fraud(self, domain: Chain) -> None:
        self.net.frauds[domain, self.net.chains[domain].block + 1] = fraudulent

    def proof(
        self, kind: Kind, src: Chain, dst: Chain, channel: int, nonce: int, unconfirmed: bool = False
    ) -> CrossDomainMessage:
        confirmed = self.net.view.best - self.net.options.archiving_depth
        made_at = self.net.view.best if dst == CONSENSUS else confirmed
        if not unconfirmed:
            return prove(self.net, kind, src, dst, channel, nonce, confirmed - 1, made_at, TAG_NONE)
        x = prove(self.net, "request", src, dst, channel, 2**255, confirmed - 1, made_at, TAG_NONE)
        newest = self.net.history[src][-1]
        shown = newest.trie.prove(outbox_key(dst, channel, nonce))
        return replace(x, nonce=nonce, proof=replace(x.proof, message_proof=shown))

    def deliver(self, kind: Kind, *items: CrossDomainMessage, to: Chain | None = None) -> list[str]:
        before = self._refusals()
        for x in items:
            self.net.air.append((self.net.view.best + 1, x.dst if to is None else to, kind, encode_xdm(x), "test"))
        self.net.step()
        return self._refusals()[len(before) :]

    def _refusals(self) -> list[str]:
        return [e.error or "" for e in self.net.events() if e.event == "Refused" and e.relayer == "test"]

    def events(self) -> list[Event]:
        return self.net.events()

    def record(self) -> Record:
        return self.net.record()

    def channel(self, chain: Chain, foreign: Chain, channel: int) -> Channel:
        return self.net.chains[chain].state.channels[foreign, channel]

    def balance(self, chain: Chain, account: bytes) -> int:
        return self.net.chains[chain].state.balances.get(account, 0)

    def cancelled(self, f: Chain, t: Chain) -> int:
        return self.net.consensus.state.cancelled.get((f, t), 0)

    def _rogue(self, chain: Chain, change: Callable[[ChainNode], None]) -> None:
        self.net.call(chain, change)

    def rogue_state(self, chain: Chain, foreign: Chain, channel: int, state: ChannelState) -> None:
        def change(c: ChainNode) -> None:
            c.state.channels[foreign, channel] = replace(c.state.channels[foreign, channel], state=state)

        self._rogue(chain, change)

    def rogue_nonce(self, src: Chain, dst: Chain, channel: int, nonce: int) -> None:
        """Both sides are as if `nonce` messages had gone from src to dst and were answered."""

        def at_src(c: ChainNode) -> None:
            ch = c.state.channels[dst, channel]
            c.state.channels[dst, channel] = replace(ch, next_outbox_nonce=nonce, latest_response=nonce - 1)

        def at_dst(c: ChainNode) -> None:
            ch = c.state.channels[src, channel]
            c.state.channels[src, channel] = replace(ch, next_inbox_nonce=nonce)

        self._rogue(src, at_src)
        self._rogue(dst, at_dst)

    def rogue_mint(self, chain: Chain, account: bytes, amount: int) -> None:
        def change(c: ChainNode) -> None:
            c.state.balances[account] = c.state.balances.get(account, 0) + amount

        self._rogue(chain, change)

    def rogue_books(self, f: Chain, t: Chain) -> None:
        """The consensus chain forgets what is unconfirmed from f to t."""

        def change(c: ChainNode) -> None:
            c.state.unconfirmed.pop((f, t), None)

        self._rogue(CONSENSUS, change)

    def rogue_acknowledge(self, chain: Chain, src: Chain, channel: int, nonce: int) -> None:
        def change(c: ChainNode) -> None:
            acknowledge(c, src, channel, nonce)

        self._rogue(chain, change)


ENGINES: dict[str, Callable[..., Engine]] = {"oracle": Oracle, "kernel": Kernel}
"""Engines by name."""
