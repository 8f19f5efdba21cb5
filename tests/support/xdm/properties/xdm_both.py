"""Run kernel and oracle with the same calls and faulty envelopes, and compare their state after every block.

The kernel's operators choose the messages to prove. The oracle proves the same messages at the same blocks, under its
own roots. So both receive each late, repeated or altered copy in the same block.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from causeway.protocols.xdm.relay.proofs import abandoned_lanes
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.value.balances import join_words
from tests.spec.xdm.channels import close_channel, initiate_channel
from tests.spec.xdm.endpoints import transfer
from tests.spec.xdm.errors import XdmError
from tests.spec.xdm.events import Event
from tests.spec.xdm.keys import CHANNELS, INBOX_RESPONSES, OUTBOX, confirmed_key
from tests.spec.xdm.network import Network
from tests.spec.xdm.options import Options
from tests.spec.xdm.programs import PROGRAMS, Call, Programs, account, call, is_asked
from tests.spec.xdm.proofs import Kind
from tests.spec.xdm.relayers import prove
from tests.spec.xdm.state import ChainNode, storage
from tests.spec.xdm.values import CONSENSUS, Chain, CrossDomainMessage, decode_leaf, decode_xdm, encode_xdm
from tests.support.xdm.properties.xdm_carriers import Copies, honest
from tests.support.xdm.properties.xdm_driven import ECHO, WIDTH, number_of
from tests.support.xdm.properties.xdm_kernel_engine import Kernel
from tests.support.xdm.properties.xdm_kernel_rows import chain_of, position_of, row_dicts
from tests.support.xdm.properties.xdm_networks import ALICE, FUNDS, ROOT
from tests.support.xdm.properties.xdm_same import COLUMNS, RECEIPT, compare_books, compare_confirmed, read_entries, same

ROOT_ACCOUNT = account(2**64 - 1)
Carriers = Callable[[CrossDomainMessage, Kind], Copies]


class _Oracle(Network):
    """The oracle with the accounts and endpoints of the kernel; calls about channels come first in a block, and what
    runtimes do that do not keep to the rules (``rogues``)."""

    rogues: tuple[Callable[[ChainNode], None], ...] = ()
    given_up: frozenset[tuple[Chain, Chain, int]] = frozenset()
    """Channels that operators have ceased to ask for."""

    def _add(self, chain: Chain) -> None:
        super()._add(chain)
        c = self.chains[chain]
        first = WIDTH * position_of(chain)
        c.root = ROOT_ACCOUNT
        c.state.balances = {account(number_of(chain, name)): FUNDS[name] for name in (b"alice", b"bob")}
        c.state.balances[c.root] = FUNDS[b"root"]
        weights = self.weights.get(chain, (self.options.message_weight, self.options.response_weight))
        c.handlers[PROGRAMS] = Programs(*weights, {first + ECHO}, lambda number: number // WIDTH - 1, self._may_open)

    def _consensus_block(self, number: int) -> None:
        self._shown = {chain: dict(c.state.channels) for chain, c in self.chains.items()}
        called = [(chain, *call) for chain, calls in self.calls.items() for call in calls]
        self._asking = {(chain, arguments[1]) for chain, name, arguments in called if name == initiate_channel}
        super()._consensus_block(number)

    def _may_open(self, c: ChainNode, foreign: Chain) -> bool:
        """Whether either has asked for a channel, as far as a chain knows, or the other may do so in this block."""
        own = {n: ch for (f, n), ch in c.state.channels.items() if f == foreign}
        theirs = [n for (f, n), ch in self._shown[foreign].items() if f == c.chain_id and is_asked(ch)]
        asked = any(is_asked(ch) and (c.chain_id, foreign, n) not in self.given_up for n, ch in own.items())
        return asked or any(n not in own for n in theirs) or (foreign, c.chain_id) in self._asking

    def _arrive(self) -> None:
        """Of two chains' items with one identity in a block the pool takes that of the first chain (D-8)."""
        self.air.sort(key=lambda item: source_of(item[3]))
        super()._arrive()

    def _relayed(self, c: ChainNode) -> None:
        at_first = (initiate_channel, close_channel, *self.rogues)
        first = [call for call in self.calls[c.chain_id] if call[0] in at_first]
        later = [call for call in self.calls[c.chain_id] if call not in first]
        self.calls[c.chain_id] = first
        self._called(c)
        super()._relayed(c)
        self.calls[c.chain_id] = later


def at_once(x: CrossDomainMessage, kind: Kind) -> Copies:
    return honest(x)


def source_of(data: bytes) -> Chain:
    try:
        return decode_xdm(data).src
    except XdmError:
        return CONSENSUS


class Both:
    def __init__(self, options: Options, domains: int, allowlists: Mapping[Chain, set[Chain]] | None = None) -> None:
        self.kernel = Kernel(options, domains, allowlists=allowlists)
        self.oracle = _Oracle(options, domains, allowlists=allowlists or {})
        for relayer in self.oracle.relayers:
            relayer.working = False
        self.kernel.gossip(self._carried)
        self.faults: Carriers = at_once
        self.callbacks: Counter[int] = Counter()
        self.entries: dict[Chain, dict[bytes, bytes]] = defaultdict(dict)
        self.burned: Counter[Chain] = Counter()
        self._logged = 0
        self.compare()

    # ---- calls

    def initiate(self, chain: Chain, dst: Chain, by: bytes = ROOT, limit: int | None = None) -> None:
        self.kernel.initiate(chain, dst, by, limit)
        self.oracle.call(chain, initiate_channel, self._account(chain, by), dst, limit)

    def close(self, chain: Chain, foreign: Chain, channel: int, by: bytes = ROOT) -> None:
        self.kernel.close(chain, foreign, channel, by)
        self.oracle.call(chain, close_channel, self._account(chain, by), foreign, channel)

    def call(self, chain: Chain, dst: Chain, payload: bytes, amount: int, by: bytes = ALICE) -> None:
        self.kernel.call(chain, dst, payload, amount, by)
        self.oracle.call(chain, self._call, number_of(chain, by), dst, payload, amount)

    def transfer(self, chain: Chain, dst: Chain, receiver: bytes, amount: int, by: bytes = ALICE) -> None:
        self.kernel.transfer(chain, dst, receiver, amount, by)
        named = account(number_of(dst, receiver)) if receiver.rstrip() in FUNDS else receiver
        self.oracle.call(chain, self._transfer, number_of(chain, by), dst, named, amount)

    def rogue(self, chain: Chain, at_oracle: Callable[[ChainNode], None], at_kernel: Callable[[State], State]) -> None:
        """Change a chain's state before its next block, against the rules."""
        self.oracle.rogues = (*self.oracle.rogues, at_oracle)
        self.oracle.call(chain, at_oracle)
        self.kernel.net.rogue.append(at_kernel)

    def _account(self, chain: Chain, by: bytes) -> bytes:
        return ROOT_ACCOUNT if by == ROOT else account(number_of(chain, by))

    def _attach(self, c: ChainNode, caller: int, amount: int) -> int:
        """A program makes a call: it has what it attaches, and the call has a number."""
        if c.state.balances.get(account(caller), 0) < amount:
            raise XdmError("LowBalance")
        self.callbacks[caller] += 1
        return self.callbacks[caller] - 1

    def _call(self, c: ChainNode, caller: int, dst: Chain, payload: bytes, amount: int) -> None:
        callback = self._attach(c, caller, amount)
        call(c, dst, Call(callback, caller, WIDTH * position_of(dst) + ECHO, amount, 0, b"call", payload))

    def _transfer(self, c: ChainNode, caller: int, dst: Chain, receiver: bytes, amount: int) -> None:
        self._attach(c, caller, amount)
        transfer(c, account(caller), dst, receiver, amount)

    # ---- envelopes

    def _carried(self, data: bytes, kind: Kind, dst: Chain, relayer: str) -> list[tuple[int, bytes]]:
        x, now = decode_xdm(data), self.oracle.view.best + 1
        described = decode_leaf(x.proof.consensus.opaque_mmr_leaf).block_number
        made_at = x.proof.consensus.consensus_block_number
        own = prove(self.oracle, kind, x.src, dst, x.channel_id, x.nonce, described, made_at, x.tag)
        found = []
        for delay, alter in self.faults(x, kind):
            self.oracle.air.append((now + delay, dst, kind, encode_xdm(alter(own)), "carrier"))
            found.append((delay, encode_xdm(alter(x))))
        return found

    # ---- blocks

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            lanes = row_dicts(abandoned_lanes(self.kernel.net.state["relaying"]))
            self.oracle.given_up = frozenset(
                (chain_of(row["source"]), chain_of(row["destination"]), row["substream"] >> 1) for row in lanes
            )
            self.kernel.step()
            self.oracle.step()
            for chain, c in self.oracle.chains.items():
                self.burned[chain] += c.state.burned
            self.compare()

    def rests(self) -> bool:
        return self.kernel.net.idle() and not self.kernel.net.air

    # ---- comparison

    def compare(self) -> None:
        """Equal after the last block, or an error that says where not."""
        kernel, net = self.kernel, self.kernel.net
        logs = net.logs["storage"]
        for _, _, changed in logs[self._logged :]:
            read_entries(self.entries, changed)
        self._logged = len(logs)
        waits = net.state["queues"]
        busy = set(waits["source"][waits["next_index"] > waits["begin"]].tolist())
        money = {row["chain"]: row for row in row_dicts(net.state["money"])}
        for chain, c in self.oracle.chains.items():
            where = f"block {c.block} of {chain}"
            same("storage", _messages(storage(c.state)), _messages(self.entries[chain]), where)
            sums = money[position_of(chain)]
            same("fees on hold", (c.state.outbox_fees_on_hold, c.state.inbox_fees_on_hold),
                 (_whole(sums, "outbox_held"), _whole(sums, "inbox_held")), where)  # fmt: skip
            same("deposits", sum(c.state.deposits.values()), _whole(sums, "reserved"), where)
            same("burned", self.burned[chain], _whole(sums, "burned"), where)
            operators = net.state["operators"]
            paid = sum(join_words(operators.filter(operators["chain"] == position_of(chain)), "balance"))
            same("paid", sum(c.state.balances.get(o, 0) for o in set(c.operators)), paid, where)
            if position_of(chain) not in busy:
                for name in (ALICE, b"bob".ljust(32), ROOT):
                    own = c.state.balances.get(self._account(chain, name), 0)
                    same(f"balance of {name!r}", own, kernel.balance(chain, name), where)
        c = self.oracle.consensus
        compare_books(c.state, net.state["books"], f"block {c.block}")
        for domain in range(self.oracle.domains):
            stored = self.entries[CONSENSUS].get(confirmed_key(domain))
            compare_confirmed(c.state.confirmed[domain], stored, RECEIPT, f"block {c.block}: the receipt of {domain}")

    def compare_events(self) -> None:
        """The same happened to every message and channel, in the same blocks and order; refusals by name."""
        own, theirs = (_told(events) for events in (self.oracle.events(), self.kernel.events()))
        for key in sorted(own.keys() | theirs.keys(), key=str):
            same(f"events {key}", own.get(key, []), theirs.get(key, []), "the whole run")
        refused = [Counter(_refusals(events)) for events in (self.oracle.events(), self.kernel.events())]
        same("refusals", refused[0] - refused[1], refused[1] - refused[0], "the whole run")


def _messages(entries: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """What no runtime that lies about a message takes others with (``rogue``)."""
    return {key: value for key, value in entries.items() if key[:32] in (OUTBOX, INBOX_RESPONSES, CHANNELS)}


def _whole(row: Mapping[str, int], name: str) -> int:
    return row[f"{name}_high"] << 64 | row[f"{name}_low"]


_COLUMNS = {name: columns for name, columns in COLUMNS.items() if name != "FraudProved"}
_COLUMNS |= {"CallSent": ("by", "nonce"), "CallAnswered": ("by", "nonce", "result")}


def _told(events: list[Event]) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for e in events:
        if e.event in _COLUMNS:
            what = tuple(getattr(e, name) for name in _COLUMNS[e.event])
            found[e.event, e.chain, e.foreign, e.channel_id].append((e.at, *what))
    # In one block what is deleted, sent and answered in several channels may be told in another order.
    unordered = ("ResponseDeleted", "CallSent", "CallAnswered")
    return {key: sorted(rows) if key[0] in unordered else rows for key, rows in found.items()}


def _refusals(events: list[Event]) -> list[tuple[Any, ...]]:
    calls = {"_call": "send_message", "_transfer": "transfer"}
    found = []
    for e in events:
        if e.event == "Refused":
            error = "Custom(201)" if e.error == "Stale" else e.error
            found.append((e.at, e.chain, e.foreign, e.channel_id, e.nonce, calls.get(e.call or "", e.call), error))
    return found
