"""A whole network: the consensus chain and domains, block by block; pools, gossip, forks (1.4, 3.9, X-4).

One step is one consensus block. In it: gossip arrives at the pools; the block takes receipts, then relayed items, then
late answers of programs, then calls; every domain with an operator at work derives a block from it; relayers act on the
new best block.

Decisions. Every consensus block has a bundle of every domain at work, so that D counts consensus blocks too. A block
applies relayed items ascending by (requests before responses, source, channel, nonce), then calls in their order. Calls
of blocks that a fork took away are called again; relayed items are not: relayers prove them anew.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tests.spec.xdm.channels import apply_allowlist_updates, close_exhausted
from tests.spec.xdm.consensus import (
    NOTHING,
    confirm_receipts,
    prove_fraud,
    register_domain,
    submit_receipt,
    with_parent,
)
from tests.spec.xdm.endpoints import TRANSPORTER, Program, Transporter
from tests.spec.xdm.errors import XdmError
from tests.spec.xdm.events import Event
from tests.spec.xdm.guarantees import Record
from tests.spec.xdm.keys import blake2b
from tests.spec.xdm.mmr import Mmr, keccak256
from tests.spec.xdm.options import Options
from tests.spec.xdm.programs import Programs
from tests.spec.xdm.proofs import Kind
from tests.spec.xdm.relay import refuse, submit, validate
from tests.spec.xdm.relayers import Relayer
from tests.spec.xdm.responses import pay_operators
from tests.spec.xdm.scale import little
from tests.spec.xdm.state import Account, ChainNode, Handler, State, View, issuance, storage
from tests.spec.xdm.trie import Trie
from tests.spec.xdm.values import (
    CONSENSUS,
    Bundle,
    Chain,
    CrossDomainMessage,
    MmrLeaf,
    Receipt,
    decode_xdm,
    encode_leaf,
)

PROGRAM = 7
Call = tuple[Callable[..., Any], tuple[Any, ...]]
Gossip = Callable[[bytes, Kind, Chain, str], list[tuple[int, bytes]]]
"""What happens to a relayed item on its way to a chain: (blocks of delay, bytes) of each copy that arrives."""


@dataclass
class Snapshot:
    """A block of a chain, and its state after it."""

    number: int
    at: int
    hash: bytes
    state: State
    rows: int

    @cached_property
    def trie(self) -> Trie:
        return Trie(storage(self.state))


@dataclass
class Pooled:
    x: CrossDomainMessage
    kind: Kind
    relayer: str
    since: int

    def order(self) -> tuple[bool, int, int, int]:
        return (self.kind == "response", self.x.src, self.x.channel_id, self.x.nonce)


def at_once(data: bytes, kind: Kind, dst: Chain, relayer: str) -> list[tuple[int, bytes]]:
    return [(0, data)]


@dataclass
class Network:
    options: Options = field(default_factory=Options)
    domains: int = 2
    balances: Mapping[Account, int] = field(default_factory=dict)
    relayers_each: int = 1
    weights: Mapping[Chain, tuple[int, int]] = field(default_factory=dict)
    """Message and response weight of the handlers of a chain, where they are not those of the options."""
    account_sizes: Mapping[Chain, int] = field(default_factory=dict)
    allowlists: Mapping[Chain, set[Chain]] = field(default_factory=dict)
    gossip: Gossip = at_once

    def __post_init__(self) -> None:
        self.view = self._view()
        self.mmr = Mmr()
        self.salt = 0
        self.chains: dict[Chain, ChainNode] = {}
        self.history: dict[Chain, list[Snapshot]] = {}
        self.receipts: dict[tuple[Chain, int], Receipt] = {}
        self.pools: dict[Chain, list[Pooled]] = {}
        self.calls: dict[Chain, list[Call]] = {}
        self.called: list[tuple[int, Chain, Call]] = []
        self.air: list[tuple[int, Chain, Kind, bytes, str]] = []
        self.bundles: dict[Chain, tuple[Bundle, ...]] = {}
        """What the receipts of domains' next blocks say of their bundles."""
        self.frauds: dict[tuple[Chain, int], Callable[[Receipt], Receipt]] = {}
        self.found_after: dict[tuple[Chain, int], int] = {}
        """After how many blocks a fraud is proved, where it is not the option's."""
        self.offline: set[Chain] = set()
        self.supply: dict[int, dict[Chain, int]] = {}
        self.issuance: dict[tuple[Chain, int], int] = {}
        for chain in range(CONSENSUS, self.domains):
            self._add(chain)
        for domain in range(self.domains):
            self._seal(domain)
            genesis = self._receipt(domain)
            register_domain(self.consensus, domain, b"w" * 32, genesis, issuance(self.chains[domain].state))
        self._seal(CONSENSUS)
        self._sample()
        self.relayers = [Relayer(d, f"{d}/{i}") for d in range(self.domains) for i in range(self.relayers_each)]

    def _view(self) -> View:
        return View()

    @property
    def consensus(self) -> ChainNode:
        return self.chains[CONSENSUS]

    def _add(self, chain: Chain) -> None:
        size = self.account_sizes.get(chain, 32)
        operators = [b"author".ljust(size)] if chain == CONSENSUS else [b"op0".ljust(size), b"op1".ljust(size)]
        weights = self.weights.get(chain, (self.options.message_weight, self.options.response_weight))
        handlers: dict[int, Handler] = {TRANSPORTER: Transporter(*weights), PROGRAM: Program(*weights)}
        c = ChainNode(chain, self.options, operators, b"root".ljust(size), size, handlers, view=self.view)
        c.state.balances = {account.ljust(size): amount for account, amount in self.balances.items() if amount}
        c.state.allowlist = set(self.allowlists.get(chain, ()))
        self.chains[chain], self.history[chain], self.pools[chain], self.calls[chain] = c, [], [], []

    # Blocks

    def _seal(self, chain: Chain) -> None:
        """End a block: its state is kept, and on consensus it becomes a leaf of the next block's MMR."""
        c, before = self.chains[chain], self.history[chain]
        snapshot = Snapshot(c.block, self.view.best, b"", c.state.copy(), len(c.events))
        parent = before[-1].hash if before else bytes(32)
        head = little(self.salt, 4) + little(c.block, 4) + parent + snapshot.trie.root
        snapshot.hash = blake2b(head)
        before.append(snapshot)
        self.issuance[chain, c.block] = issuance(c.state)
        if chain == CONSENSUS:
            self.view.hashes[c.block] = snapshot.hash
            self.view.leaves[c.block] = len(before) - 1
            if len(before) > 1:
                self.view.roots[c.block] = self.mmr.root(len(before) - 1)
            self.mmr.append(keccak256(self.leaf(c.block)))

    def snapshot(self, chain: Chain, number: int) -> Snapshot:
        """The block of that number. Numbers ascend, and may jump."""
        found = self.history[chain][bisect_left(self.history[chain], number, key=lambda s: s.number)]
        assert found.number == number
        return found

    def confirmed(self) -> tuple[Snapshot, int] | None:
        """The consensus block that relayers process on the best block b, and the one whose MMR root has its leaf: the
        newest that is K blocks below b, and the one before it (X-5)."""
        blocks = self.history[CONSENSUS]
        final = bisect_right(blocks, self.view.best - self.options.archiving_depth, key=lambda s: s.number) - 1
        return (blocks[final - 1], blocks[final].number) if final >= 1 else None

    def leaf(self, number: int) -> bytes:
        """The leaf that describes a consensus block."""
        s = self.snapshot(CONSENSUS, number)
        return encode_leaf(MmrLeaf(number, s.hash, s.trie.root, blake2b(little(number, 4))))

    def _receipt(self, domain: Chain) -> Receipt:
        s, at = self.history[domain][-1], self._derived_from()
        at_hash = self.view.hashes.get(at, bytes(32))
        moves = (s.state.transfers_in, s.state.transfers_out, s.state.claimed, s.state.rejected)
        own = (s.number, s.hash, blake2b(b"extrinsics"), bytes(32), at, at_hash, s.trie.root)
        bundles = self.bundles.pop(domain, ())
        er = Receipt(*own, bundles, (), bytes(32), 0, 0, s.state.burned, {}, *map(dict, moves))
        self.receipts[domain, s.number] = er
        return er

    def _sample(self) -> None:
        self.supply[self.view.best] = {chain: issuance(c.state) for chain, c in self.chains.items()}

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self._consensus_block(self.view.best + 1)
            for domain in range(self.domains):
                if domain not in self.offline:
                    self._domain_block(domain)
            self._sample()
            for relayer in self.relayers:
                if relayer.domain not in self.offline:
                    relayer.act(self)

    def _begin(self, c: ChainNode) -> None:
        c.block = self.view.best
        s = c.state
        s.updated_channels, s.burned = set(), 0
        s.transfers_in, s.transfers_out, s.claimed, s.rejected = {}, {}, {}, {}

    def _derived_from(self) -> int:
        """The consensus block that domains' blocks are derived from."""
        return self.view.best

    def _derived(self) -> list[Chain]:
        """The domains whose blocks have applied what was pending before this block (X-1)."""
        return [d for d in range(self.domains) if self.history[d][-1].at == self.view.best]

    def _consensus_block(self, number: int) -> None:
        c = self.consensus
        derived = self._derived()
        self.view.best = number
        self._begin(c)
        for domain in derived:  # what is left is empty, not absent
            c.state.domain_updates[domain] = NOTHING
        self._arrive()
        for domain in range(self.domains):
            self._find_frauds(domain)
            self._submit_receipts(domain)
        for domain in range(self.domains):
            confirm_receipts(c, domain)
        self._relayed(c)
        self._answered_late(c)
        self._called(c)
        self._end(c)
        before = self.history[CONSENSUS][-1].number - self.options.archiving_depth
        for s in self.history[CONSENSUS]:
            if before < s.number <= c.block - self.options.archiving_depth:
                final = Event("Final", CONSENSUS, s.number, c.block, root=s.trie.root, confirmed_at=c.block)
                c.events.append(final)
        self._seal(CONSENSUS)

    def _end(self, c: ChainNode) -> None:
        close_exhausted(c)
        pay_operators(c)

    def _pending(self, domain: Chain) -> tuple[frozenset[Chain], frozenset[Chain]]:
        """The updates of its allow list that a domain's block applies."""
        return self.consensus.state.domain_updates[domain]

    def _domain_block(self, domain: Chain) -> None:
        c = self.chains[domain]
        self._begin(c)
        pending = self._pending(domain)
        apply_allowlist_updates(c, pending, pending if pending != NOTHING else None)
        self._relayed(c)
        self._answered_late(c)
        self._called(c)
        self._end(c)
        self._seal(domain)
        self._receipt(domain)

    def _submit_receipts(self, domain: Chain) -> None:
        """Of all blocks that there are no receipts of. Decision: those instead of pruned ones come at once, in the
        block of the fraud proof; honest operators had them all the time."""
        c = self.consensus
        for s in self.history[domain]:
            if s.number > c.state.head_receipt[domain]:
                er = with_parent(c, domain, self.receipts[domain, s.number])
                if (domain, s.number) not in c.state.pruned and self._lies(domain, s.number):
                    er = self.frauds[domain, s.number](er)
                submit_receipt(c, domain, er)

    def _lies(self, domain: Chain, number: int) -> bool:
        """Whether the first receipt of a domain's block is false."""
        return (domain, number) in self.frauds

    def false_receipts(self, domain: Chain, state: State) -> list[int]:
        """The blocks of a domain whose receipts in a state of the consensus chain are not those of its execution."""
        found = []
        for (d, number), er in state.receipts.items():
            if d == domain and replace(er, parent_receipt_hash=bytes(32)) != self.receipts[domain, number]:
                found.append(number)
        return sorted(found)

    def _find_frauds(self, domain: Chain) -> None:
        """Honest operators compare every receipt with their own execution."""
        c = self.consensus
        for number in self.false_receipts(domain, c.state):
            after = self.found_after.get((domain, number), self.options.fraud_found_after)
            if c.block - c.state.receipts_at[domain, number] >= after:
                prove_fraud(c, domain, number)
                return

    # Calls and relayed items

    def call(self, chain: Chain, function: Callable[..., Any], *arguments: Any) -> None:
        """A call of a user, for the next block."""
        self.calls[chain].append((function, arguments))

    def _called(self, c: ChainNode) -> None:
        queued, self.calls[c.chain_id] = self.calls[c.chain_id], []
        for function, arguments in queued:
            self.called.append((self.view.best, c.chain_id, (function, arguments)))
            try:
                function(c, *arguments)
            except XdmError as error:
                c.log("Refused", call=function.__name__, error=error.name)

    def _answered_late(self, c: ChainNode) -> None:
        for handler in c.handlers.values():
            if isinstance(handler, Programs):
                handler.answer_late(c)

    def send(self, data: bytes, kind: Kind, dst: Chain, relayer: str) -> None:
        """A relayer gossips an item."""
        for delay, copy in self.gossip(data, kind, dst, relayer):
            self.air.append((self.view.best + 1 + delay, dst, kind, copy, relayer))

    def _arrive(self) -> None:
        due = [item for item in self.air if item[0] <= self.view.best]
        self.air = [item for item in self.air if item[0] > self.view.best]
        for _, dst, kind, data, relayer in due:
            self.take_in(dst, kind, data, relayer)

    def _tag(self, x: CrossDomainMessage, kind: Kind) -> tuple[Any, ...]:
        """The pool's identity of an item (D-8)."""
        src = (x.src,) if self.options.pool_tag == "with_src" else ()
        return (kind, *src, x.dst, x.channel_id, x.nonce)

    def take_in(self, dst: Chain, kind: Kind, data: bytes, relayer: str) -> None:
        """An item comes to the pool of a chain: only a valid one, and none whose identity is there already."""
        c, pool = self.chains[dst], self.pools[dst]
        try:
            x = decode_xdm(data)
        except XdmError as error:
            c.log("Refused", call="take_in", error=error.name, relayer=relayer)
            return
        try:
            validate(c, x, kind)  # an identity in the pool has only what is valid
            if any(self._tag(p.x, p.kind) == self._tag(x, kind) for p in pool):
                raise XdmError("Stale")
        except XdmError as error:
            refuse(c, kind, x.src, x.channel_id, x.nonce, error.name, relayer)
            return
        pool.append(Pooled(x, kind, relayer, self.view.best))

    def _relayed(self, c: ChainNode) -> None:
        pool, self.pools[c.chain_id] = self.pools[c.chain_id], []
        for item in sorted(pool, key=Pooled.order):
            if submit(c, item.x, item.kind, item.relayer) == "Future":
                if self.view.best - item.since < self.options.longevity:
                    self.pools[c.chain_id].append(item)
                else:
                    refuse(c, item.kind, item.x.src, item.x.channel_id, item.x.nonce, "Future", item.relayer)

    # Forks

    def reorganise(self, depth: int) -> None:
        """The last `depth` consensus blocks are not in the best chain any more; the next step builds others."""
        blocks = [s.number for s in self.history[CONSENSUS] if s.number <= max(self.view.best - depth, 0)]
        best = blocks[-1]
        self.salt += 1
        for chain, c in self.chains.items():
            kept = [s for s in self.history[chain] if s.at <= best]
            self.history[chain] = kept
            c.state, c.block = kept[-1].state.copy(), kept[-1].number
            del c.events[kept[-1].rows :]
        again = [(chain, call) for at, chain, call in self.called if at > best]
        self.called = [row for row in self.called if row[0] <= best]
        for chain in self.chains:
            self.calls[chain] = [call for where, call in again if where == chain] + self.calls[chain]
        self.view.best = best
        self.view.hashes = {n: h for n, h in self.view.hashes.items() if n <= best}
        self.view.roots = {n: r for n, r in self.view.roots.items() if n <= best}
        self.view.leaves = {n: count for n, count in self.view.leaves.items() if n <= best}
        self.supply = {at: sample for at, sample in self.supply.items() if at <= best}
        self.mmr.truncate(len(blocks))
        for relayer in self.relayers:
            relayer.sent.clear()

    # The log

    def record(self) -> Record:
        """What the guarantees are checked on."""
        books = Counter(self.consensus.state.unconfirmed) + Counter(self.consensus.state.cancelled)
        return Record(
            self.events(),
            self.supply,
            self.issuance,
            self.options.archiving_depth,
            self.options.challenge_period,
            self.options.reserve_portion,
            in_flight=dict(books),
            outbox={(c.chain_id, *key) for c in self.chains.values() for key in c.state.outbox},
            deposits={(c.chain_id, *key): held for c in self.chains.values() for key, held in c.state.deposits.items()},
        )

    def events(self) -> list[Event]:
        """All rows, by consensus block; of one block, the consensus chain's first."""
        rows = [(e.at, i, j, e) for i, c in enumerate(self.chains.values()) for j, e in enumerate(c.events)]
        return [e for *_, e in sorted(rows, key=lambda row: row[:3])]
