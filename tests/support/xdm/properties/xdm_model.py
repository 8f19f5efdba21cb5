"""The oracle with what this network has beside the reference: its order of a block, halts, forks, bundles, planned
calls; what its programs do is in ``xdm_calling`` (docs/decisions/0030-xdm-calls-and-late-answers.md).

Nothing of the kernel is in it; what operators prove it is given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.spec.xdm.channels import (
    close_channel,
    initiate_channel,
    initiate_domain_update_chain_allowlist,
    update_consensus_chain_allowlist,
)
from tests.spec.xdm.endpoints import TRANSPORTER
from tests.spec.xdm.errors import XdmError
from tests.spec.xdm.network import Pooled
from tests.spec.xdm.options import Options
from tests.spec.xdm.programs import PROGRAMS, account
from tests.spec.xdm.proofs import verify_mmr
from tests.spec.xdm.relay import refuse, submit, validate
from tests.spec.xdm.state import Account, ChainNode, Channel, ChannelState, View
from tests.spec.xdm.values import CONSENSUS, Bundle, Chain, CrossDomainMessage, Receipt, decode_xdm
from tests.support.xdm.properties.xdm_calling import CallingNetwork
from tests.support.xdm.properties.xdm_driven import ACCOUNTS, ECHO, WIDTH, number_of
from tests.support.xdm.properties.xdm_kernel_rows import position_of
from tests.support.xdm.properties.xdm_networks import FUNDS, ROOT
from tests.support.xdm.properties.xdm_scene_programs import Programs, Transfers, credit_known
from tests.support.xdm.properties.xdm_scenes import ChannelAsk, ListAsk, Scene

ROOT_ACCOUNT = account(2**64 - 1)
UPDATED = "updated"
INVALID_XDM, ILLEGAL_TX = 3, 2


class Seen(View):
    """Chains know of the consensus chain what it was at the height before."""

    newest: int = 0

    def proves(self, number: int, chain: Chain, options: Options) -> bool:
        last = self.newest - (0 if chain == CONSENSUS else options.archiving_depth)
        return number in self.roots and self.newest - options.mmr_roots < number <= last


class Model(CallingNetwork):
    def __init__(self, scene: Scene) -> None:
        self.running: list[Chain] = list(scene.chains)
        self.made: list[Chain] = []
        """The chains that made a block in the last tick."""
        self.recalled: dict[Chain, frozenset[int]] = {}
        """Of chains the ticks whose planned calls a fork took back, and their next blocks make."""
        self._kept: dict[int, tuple[dict[Chain, tuple[int, ...]], dict[Chain, frozenset[int]]]] = {0: ({}, {})}
        """What waited for the next blocks, by the number of the tick that it was after."""
        self.forked: set[int] = set()
        """The ticks' numbers of forks: what was brought then comes to the next block of its chain."""
        super().__init__(scene)
        for c in self.chains.values():  # whose owner is known everywhere
            c.domains = dict.fromkeys(range(scene.domains), ROOT_ACCOUNT)
        for relayer in self.relayers:
            relayer.working = False
        for fraud in scene.frauds:
            if fraud.domain not in scene.halted(fraud.tick):
                block = fraud.domain, fraud.tick + 1
                self.frauds[block], self.found_after[block] = false_root, fraud.found_after

    def _lies(self, domain: Chain, number: int) -> bool:
        """A fraud that begins while another of the domain is seen to stand is part of that one."""
        before = next(s for s in reversed(self.history[CONSENSUS]) if s.number < number)
        return super()._lies(domain, number) and not self.false_receipts(domain, before.state)

    def _view(self) -> View:
        return Seen()

    def _add(self, chain: Chain) -> None:
        super()._add(chain)
        c, scene = self.chains[chain], self.scene
        first = WIDTH * position_of(chain)
        c.root = ROOT_ACCOUNT
        c.operators = [f"operator {n}".encode() for n in range(scene.operators)]
        c.state.balances = {account(number_of(chain, name)): FUNDS[name] for name in (b"alice", b"bob")}
        c.state.balances[c.root] = FUNDS[b"root"]
        weights = (self.options.message_weight, self.options.response_weight)
        here = {first + place for place in (*range(len(ACCOUNTS)), ECHO)}
        programs = c.handlers[PROGRAMS] = Programs(*weights, here=here)
        known = credit_known({account(number) for number in here})
        c.handlers[TRANSPORTER] = Transfers(*weights, credit=known, programs=programs)
        if not scene.open:
            return
        fee = self.options.relay_fee if self.options.fee_model == "v0" else None
        for foreign in scene.chains:
            if foreign != chain:
                own = Channel(0, ChannelState.OPEN, 0, 0, None, fee, self.options.max_outgoing_messages, None, 0)
                c.state.channels[foreign, 0] = own
                c.state.next_channel_id[foreign] = 1
                c.state.allowlist.add(foreign)
                for event in ("ChannelInitiated", "ChannelOpen"):
                    c.log(event, foreign=foreign, channel_id=0, limit=own.max_outgoing_messages)

    # ---- ticks

    def tick(self, tick: int) -> None:
        """Everything of one tick: what users ask for, a fork, or a block of each chain that is not halted."""
        number, scene = tick + 1, self.scene
        halted = scene.halted(tick)
        self.running = [chain for chain in scene.chains if chain not in halted]
        for ask in scene.users.get(tick, ()):
            self.journal.append((number, ask))
            if ask.chain in self.running:
                self.queued[ask.chain].append(len(self.journal) - 1)
        self.air = [item for item in self.air if item[0] > number or item[1] in self.running or item[0] in self.forked]
        depth = scene.forks.get(tick)
        if depth and self.running:
            self._fork(depth, tick)
            self.made = []
            self.forked.add(number)
        else:
            if self.running:
                self._blocks(number)
            self.made = self.running
        self._kept[number] = {chain: tuple(asks) for chain, asks in self.queued.items()}, dict(self.recalled)

    def _blocks(self, number: int) -> None:
        assert isinstance(self.view, Seen)
        self.view.newest = self.view.best
        self._consensus_block(number)
        for domain in range(self.domains):
            if domain in self.running:
                self._domain_block(domain)
        self._sample()

    def _fork(self, depth: int, tick: int) -> None:
        """No chain makes a block; what users sent since is sent again, also what was refused by a chain at rest."""
        self.reorganise(depth)
        self._hold(tick + 1)
        best = self.view.best
        waited, recalled = self._kept[best]
        for chain in self.scene.chains:
            last = tick + 1 if chain in self.running else tick
            since = [n for n, (at, ask) in enumerate(self.journal) if best < at <= last and ask.chain == chain]
            self.queued[chain] = [*waited.get(chain, ()), *since]
            ran = {at for at in range(best, tick + 1) if chain not in self.scene.halted(at)}
            self.recalled[chain] = recalled.get(chain, frozenset()) | ran

    def _hold(self, number: int) -> None:
        """Carriers bring to the next blocks what they have; of copies under one proof they keep the first."""
        kept, known = [], set()
        for item in self.air:
            x = decode_xdm(item[3])
            copy = (item[1], item[2], x.src, x.channel_id, x.nonce, x.proof.consensus, x.proof.domain_proof)
            if item[0] > number:
                kept.append(item)
            elif copy not in known:
                kept.append(item)
                known.add(copy)
        self.air = kept

    def _derived_from(self) -> int:
        assert isinstance(self.view, Seen)
        return self.view.newest

    def _derived(self) -> list[Chain]:
        """Domains whose blocks of the height before have applied all that was pending there."""
        before, state = self.history[CONSENSUS][-1].number, self.consensus.state
        return [d for d in range(self.domains) if d in self.made and state.notes.get((UPDATED, d), 0) < before]

    def _pending(self, domain: Chain) -> tuple[frozenset[Chain], frozenset[Chain]]:
        return self.history[CONSENSUS][-2].state.domain_updates[domain]

    # ---- what is brought

    def _arrive(self) -> None:
        due = [item for item in self.air if item[0] <= self.view.best and item[1] in self.running]
        self.air = [item for item in self.air if item[0] > self.view.best or item[1] not in self.running]
        for at, dst, kind, data, relayer in due:
            self.pools[dst].append(Pooled(decode_xdm(data), kind, relayer, at))

    def _relayed(self, c: ChainNode) -> None:
        self._list_calls(c)
        self._channel_calls(c)
        pool, self.pools[c.chain_id] = self._placed(self.pools[c.chain_id]), []
        if self.scene.bundles.get(self.view.best - 1) == c.chain_id:
            pool = self._unchecked(c, pool)
        elif c.chain_id != CONSENSUS:
            self.bundles[c.chain_id] = (Bundle(None, bytes(32), bytes(32)),)
        if self.options.pool_tag == "without_src":
            pool = self._first_sources(c, pool)
        valid = []
        for item in sorted(pool, key=Pooled.order):  # the pool looks at the state that the block begins with
            verdict = self._verdict(c, item)
            if verdict:
                self._refuse(c, item, verdict)
            else:
                valid.append(item)
        for item in valid:
            if submit(c, item.x, item.kind, item.relayer) == "Future":
                if any(self._tag(p.x, p.kind) == self._tag(item.x, item.kind) for p in self.pools[c.chain_id]):
                    self._refuse(c, item, "Stale")
                elif self.view.best - item.since < self.options.longevity:
                    self.pools[c.chain_id].append(item)
                else:
                    self._refuse(c, item, "Future")

    def _placed(self, pool: list[Pooled]) -> list[Pooled]:
        """What was there before comes first, by lane and nonce; what comes new, in its order."""

        def order(item: Pooled) -> tuple[int, ...]:
            x = item.x
            if item.since == self.view.best:
                return (1,)
            lane = x.src, x.channel_id, int(item.kind == "response"), x.nonce
            return (0, *lane, x.proof.consensus.consensus_block_number)

        return sorted(pool, key=order)

    def _refuse(self, c: ChainNode, item: Pooled, error: str) -> None:
        refuse(c, item.kind, item.x.src, item.x.channel_id, item.x.nonce, error, item.relayer)

    def _verdict(self, c: ChainNode, item: Pooled) -> str | None:
        try:
            validate(c, item.x, item.kind)
        except XdmError as error:
            return error.name
        return None

    def _unchecked(self, c: ChainNode, pool: list[Pooled]) -> list[Pooled]:
        """An operator put all of it into the bundle: if anything is invalid, nothing of it is executed (X-6)."""
        verdicts = [self._verdict(c, item) for item in pool]
        wrong = [i for i, verdict in enumerate(verdicts) if verdict]
        if not wrong:
            self.bundles[c.chain_id] = (Bundle(None, bytes(32), bytes(32)),)
            return pool
        kind = INVALID_XDM if self._bad_leaf(c, pool[wrong[0]].x) else ILLEGAL_TX
        self.bundles[c.chain_id] = (Bundle((kind, wrong[0]), b"", bytes(32)),)
        c.log("InvalidBundle", error={INVALID_XDM: "InvalidXDM", ILLEGAL_TX: "IllegalTx"}[kind])
        for item, verdict in zip(pool, verdicts, strict=True):
            self._refuse(c, item, verdict or "InvalidBundle")
        return []

    def _bad_leaf(self, c: ChainNode, x: CrossDomainMessage) -> bool:
        try:
            verify_mmr(c, x.proof.consensus)
        except XdmError:
            return True
        return False

    def _first_sources(self, c: ChainNode, pool: list[Pooled]) -> list[Pooled]:
        """D-8: of valid messages of several sources with one identity those of the first source are taken."""
        first: dict[tuple[Any, ...], Chain] = {}
        valid = [item for item in pool if self._verdict(c, item) is None]
        for item in valid:
            tag = self._tag(item.x, item.kind)
            first[tag] = min(first.get(tag, item.x.src), item.x.src)
        kept = []
        for item in pool:
            if item in valid and first[self._tag(item.x, item.kind)] != item.x.src:
                self._refuse(c, item, "Stale")
            else:
                kept.append(item)
        return kept

    # ---- planned calls

    def _due(self, c: ChainNode) -> list[int]:
        """The ticks whose planned calls a chain makes now: those that a fork took back, and this one."""
        tick = self.view.best - 1
        return [*sorted(at for at in self.recalled.get(c.chain_id, ()) if at < tick), tick]

    def _list_calls(self, c: ChainNode) -> None:
        for tick in self._due(c):
            for call in self.scene.allowing:
                if call.tick == tick and call.at == c.chain_id:
                    self._called_by_name(c, *self._list_call(call))

    def _list_call(self, call: ListAsk) -> tuple[Any, ...]:
        operation = "Add" if call.add else "Remove"
        by = ROOT_ACCOUNT if call.by == ROOT else account(number_of(call.chain, call.by))
        if call.chain == CONSENSUS:
            return (update_consensus_chain_allowlist, by, operation, call.foreign)
        return (self._update, by, call.chain, operation, call.foreign)

    def _update(self, c: ChainNode, by: Account, domain: Chain, operation: str, foreign: Chain) -> None:
        initiate_domain_update_chain_allowlist(c, by, domain, operation, foreign)
        c.state.notes[UPDATED, domain] = c.block

    def _channel_calls(self, c: ChainNode) -> None:
        for tick in self._due(c):
            for call in self.scene.channels:
                if call.tick == tick and call.chain == c.chain_id:
                    by = ROOT_ACCOUNT if call.by == ROOT else account(number_of(call.chain, call.by))
                    self._called_by_name(c, *self._channel_call(call, by))
        self.recalled.pop(c.chain_id, None)

    def _channel_call(self, call: ChannelAsk, by: Account) -> tuple[Any, ...]:
        if call.channel is None:
            return (initiate_channel, by, call.foreign, call.limit, call.fees)
        return (close_channel, by, call.foreign, call.channel)

    def _called_by_name(self, c: ChainNode, function: Any, *arguments: Any) -> None:
        try:
            function(c, *arguments)
        except XdmError as error:
            c.log("Refused", call="planned", error=error.name)


def false_root(er: Receipt) -> Receipt:
    """What a bad operator's receipt says. Only that it is another one matters: it is pruned before anything of it is
    booked or proved."""
    return replace(er, final_state_root=bytes(31) + b"f")
