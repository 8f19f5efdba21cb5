"""The kernel as an engine of the hazards: ``XdmKernel`` in this process, block by block.

Users are programs of the class ``caller``, one an account name on each chain; what they send goes to a program there.
What carriers bring can be held, changed and added to, as whole envelopes of the wire. Proofs that a test asks for are
made by the oracle's trie and mountain range from the kernel's log of storage changes, not by the kernel's operators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.config.faults import FaultRule, Faults
from causeway.core.frame import Frame
from causeway.core.vocabulary import Event as Bit
from causeway.core.vocabulary import Kind as MessageKind
from causeway.protocols.xdm.calls.relay_message import DueRequests
from causeway.protocols.xdm.calls.responses import acknowledge
from causeway.protocols.xdm.options import ChannelCallOptions
from causeway.protocols.xdm.state import MAX_NONCE, State
from causeway.protocols.xdm.tables import EARLY_SCHEMA
from causeway.protocols.xdm.value.balances import ChainSums, join_words, split_words
from causeway.protocols.xdm.value.books import Book
from causeway.protocols.xdm.value.transporter import METHOD
from tests.spec.xdm.endpoints import encode_account
from tests.spec.xdm.events import Event
from tests.spec.xdm.guarantees import Record
from tests.spec.xdm.keys import confirmed_key, outbox_key, responses_key
from tests.spec.xdm.network import PROGRAM, Gossip
from tests.spec.xdm.options import Options
from tests.spec.xdm.programs import account
from tests.spec.xdm.proofs import Kind
from tests.spec.xdm.state import Channel, ChannelState
from tests.spec.xdm.trie import Trie
from tests.spec.xdm.values import (
    CONSENSUS,
    TAG_NONE,
    Chain,
    ConsensusProof,
    CrossDomainMessage,
    Proof,
    decode_receipt,
    decode_xdm,
    encode_xdm,
)
from tests.support.properties.caller_payloads import caller_payload
from tests.support.xdm.properties.xdm_driven import (
    ACCOUNTS,
    ECHO,
    NOWHERE,
    SPECIAL,
    WIDTH,
    Driven,
    kernel_options,
    number_of,
)
from tests.support.xdm.properties.xdm_kernel_log import KernelLog
from tests.support.xdm.properties.xdm_kernel_rows import chain_of, position_of, row_dicts
from tests.support.xdm.properties.xdm_networks import ALICE, FUNDS, ROOT


class Kernel:
    """The kernel as an engine. A user's call that is too heavy for its handler is not told from one that fails:
    programs are not weighed. An envelope comes to the chain that it names, and to no other."""

    weighs, misdelivers = False, False
    last_nonce: int | None = MAX_NONCE

    def __init__(
        self,
        options: Options | None = None,
        domains: int = 2,
        *,
        relayers_each: int = 1,
        weights: Mapping[Chain, tuple[int, int]] | None = None,
        allowlists: Mapping[Chain, set[Chain]] | None = None,
        **rest: Any,
    ) -> None:
        options = options or Options()
        names = ["consensus", *(f"d{domain}" for domain in range(domains))]
        chains, balances = {}, {}
        for chain, name in zip(range(CONSENSUS, domains), names, strict=True):
            first = WIDTH * position_of(chain)
            placed: dict[int, Any] = {first + place: "caller" for place in range(len(ACCOUNTS))}
            chains[name] = {**placed, first + ECHO: SPECIAL, first + NOWHERE: None}
            for funded in (b"alice", b"bob"):
                balances[number_of(chain, funded)] = FUNDS[funded]
        chosen = kernel_options(options, weights or {}, names)
        self.net = Driven(chains, options=chosen, balances=balances, **rest)
        self.net.copies = relayers_each
        if allowlists:
            self.net.set_allowlists(allowlists)
        self.log = KernelLog(self.net, lax=options.strict_envelope == "off")
        self._jumps = False
        self._calls: list[tuple[str, dict[str, Any]]] = []
        self._users: dict[int, list[tuple[str, int]]] = defaultdict(list)

    # ---- calls

    def initiate(self, chain: Chain, dst: Chain, by: bytes = ROOT, limit: int | None = None) -> None:
        self._plan("initiate_channel", chain, dst, by, do="initiate", max_outgoing=limit)

    def close(self, chain: Chain, foreign: Chain, channel: int, by: bytes = ROOT) -> None:
        self._plan("close_channel", chain, foreign, by, do="close", channel=channel)

    def _plan(self, name: str, chain: Chain, foreign: Chain, by: bytes, **more: Any) -> None:
        caller = "root" if by == ROOT else number_of(chain, by)
        ends = {"chain": self.net.names[position_of(chain)], "foreign": self.net.names[position_of(foreign)]}
        self._calls.append((name, {**ends, "by": caller, **more}))

    def send(self, chain: Chain, dst: Chain, payload: bytes, by: bytes = ALICE, endpoint: int = PROGRAM) -> None:
        place = ECHO if endpoint == PROGRAM else NOWHERE
        caller = number_of(chain, by)
        self.net.call(caller, WIDTH * position_of(dst) + place, payload)
        self._users[position_of(chain)].append(("send_message", caller))

    def call(self, chain: Chain, dst: Chain, payload: bytes, amount: int, by: bytes = ALICE) -> None:
        """Send with an amount attached."""
        caller = number_of(chain, by)
        self.net.call(caller, WIDTH * position_of(dst) + ECHO, payload, amount=amount)
        self._users[position_of(chain)].append(("send_message", caller))

    def transfer(self, chain: Chain, dst: Chain, receiver: bytes, amount: int, by: bytes = ALICE) -> None:
        known = receiver.rstrip() in ACCOUNTS
        named = encode_account(account(number_of(dst, receiver)) if known else receiver)
        caller = number_of(chain, by)
        payload = caller_payload(WIDTH * position_of(dst) + ECHO, amount, METHOD, named)
        self.net.tell(caller, payload)
        self._users[position_of(chain)].append(("transfer", caller))

    # ---- blocks

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self._step()

    def _step(self) -> None:
        net = self.net
        tick = net.tick + 1
        planned = tuple(ChannelCallOptions(tick=tick, **call) for _, call in self._calls)
        callbacks = self._next_callbacks()
        net.prepare_block(planned)
        if self._jumps:  # nonces that nobody used are none that were processed
            self.log.before, self._jumps = net.state, False
        net.unread = []
        net.block()
        self.log.check()
        self._refused_bytes()
        self._refused_calls()
        self._refused_users(callbacks)
        self._calls, self._users = [], defaultdict(list)
        net.end_block()

    def _refused_bytes(self) -> None:
        for kind, data in self.net.unread:
            x, number = decode_xdm(data), self.net.tick + 1
            where: dict[str, Any] = {"foreign": x.src, "channel_id": x.channel_id, "nonce": x.nonce}
            call = "relay_message" if kind == "request" else "relay_message_response"
            self.log.events.append(
                Event("Refused", x.dst, number, number, **where, call=call, error="BadProof", relayer="carrier")
            )

    def _next_callbacks(self) -> dict[int, int]:
        accounts = self.net.state["accounts"]
        return dict(zip(accounts["program"].tolist(), accounts["next_callback"].tolist(), strict=True))

    def _refused_calls(self) -> None:
        """Calls about channels leave a notice each, in their order, before all others of the chain."""
        told: dict[int, list[str]] = defaultdict(list)
        for row in row_dicts(self.net.events(last=True)):
            if row["kind"] == MessageKind.CONTROL and row["source"] == row["chain"] and not row["via"]:
                told[row["chain"]].append(row["reason"])
        for name, call in self._calls:
            chain = self.net.names.index(call["chain"])
            reasons = told[chain]
            while reasons and reasons[0] in ("LowBalanceOnDomain", "BalanceUnderflow"):
                reasons.pop(0)
            reason = reasons.pop(0)
            if reason not in ("ChannelInitiated", "ChannelClosed"):
                self._refuse(chain, name, reason)

    def _refused_users(self, callbacks: dict[int, int]) -> None:
        refused, failed = {}, {}
        for row in row_dicts(self.net.events(last=True)):
            if row["events"] == Bit.SENT | Bit.REJECTED:
                refused[row["sender"], row["callback"]] = row["reason"]
            elif row["events"] == Bit.REJECTED and row["kind"] == MessageKind.INGRESS:
                failed[row["chain"], row["queue_index"]] = row["reason"]
        for chain, calls in self._users.items():
            for place, (name, caller) in enumerate(calls):
                if (chain, place + 1) in failed:
                    # More is attached than there is: programs find it before the transporter does.
                    assert failed[chain, place + 1].startswith("InsufficientFunds")
                    self._refuse(chain, name, "LowBalance")
                    continue
                reason = refused.pop((caller, callbacks[caller]), None)
                callbacks[caller] += 1
                if reason is not None:
                    self._refuse(chain, name, reason)
        assert not refused

    def _refuse(self, chain: int, call: str, error: str) -> None:
        number = self.net.tick + 1
        self.log.events.append(Event("Refused", chain_of(chain), number, number, call=call, error=error))

    def fraud(self, domain: Chain) -> None:
        tick = self.net.tick + 1
        args = {"what": "root", "amount": 1, "chance": 1.0, "found_after": 2}
        self.net.kernel = replace(
            self.net.kernel, faults=Faults.of(FaultRule("fraud", position_of(domain), None, tick, tick, args))
        )

    def reorganise(self, depth: int) -> None:
        """In the tick in which the best fork changes no chain makes a block; what users called is called again."""
        self.net.reorganise(depth)
        self.log.check()

    def relaying(self, on: bool) -> None:
        self.net.relaying = on

    def gossip(self, hook: Gossip) -> None:
        self.net.gossip = hook

    # ---- relayed items

    def proof(
        self, kind: Kind, src: Chain, dst: Chain, channel: int, nonce: int, unconfirmed: bool = False
    ) -> CrossDomainMessage:
        net = self.net
        confirmed = net.tick + 1 - net.kernel.options.archiving_depth
        made_at = net.tick + 1 if dst == CONSENSUS else confirmed
        described = confirmed - 1
        consensus = net.storage_at(0, described)
        block, domain_proof = described, None
        if src != CONSENSUS:
            domain_proof = Trie(consensus).prove(confirmed_key(src))
            block = decode_receipt(consensus[confirmed_key(src)]).domain_block_number
        shown = Trie(net.storage_at(position_of(src), net.tick + 1 if unconfirmed else block))
        key = (outbox_key if kind == "request" else responses_key)(dst, channel, nonce)
        head = ConsensusProof(made_at, net.hashes[made_at], net.leaves[described], net.mmr.prove(described, made_at))
        return CrossDomainMessage(src, dst, channel, nonce, Proof(head, domain_proof, shown.prove(key)), TAG_NONE)

    def deliver(self, kind: Kind, *items: CrossDomainMessage, to: Chain | None = None) -> list[str]:
        """The errors of items that were refused. Envelopes come to the chain that they name (``to``)."""
        assert all(to in (None, x.dst) for x in items)
        for x in items:
            self.net.air.append((self.net.tick + 2, kind, encode_xdm(x)))
        before = len(self.log.events)
        self._step()
        refused = [e for e in self.log.events[before:] if e.event == "Refused" and e.relayer]
        found = []
        for x in items:
            call = "relay_message" if kind == "request" else "relay_message_response"
            for e in refused:
                if (e.chain, e.foreign, e.channel_id, e.nonce, e.call) == (x.dst, x.src, x.channel_id, x.nonce, call):
                    found.append(e.error or "")
                    refused.remove(e)
                    break
        return found

    # ---- look

    def events(self) -> list[Event]:
        return list(self.log.events)

    def record(self) -> Record:
        return self.log.record()

    def channel(self, chain: Chain, foreign: Chain, channel: int) -> Channel:
        options = self.net.kernel.options
        for row in row_dicts(self.net.state["channels"]):
            if (row["chain"], row["foreign"], row["channel"]) == (position_of(chain), position_of(foreign), channel):
                latest = row["next_response"] - 1 if row["next_response"] else None
                return Channel(
                    channel,
                    ChannelState(row["state"]),
                    row["next_inbox"],
                    row["next_outbox"],
                    latest,
                    row["relay_fee"] if options.fee_model == "v0" else None,
                    row["max_outgoing"],
                    account(row["owner"]) if row["has_owner"] else None,
                    row["reserve"],
                )
        raise KeyError((chain, foreign, channel))

    def balance(self, chain: Chain, name: bytes) -> int:
        table, key, what = ("accounts", "program", "balance")
        wanted = 0
        if name == ROOT:
            table, key, what, wanted = "money", "chain", "root", position_of(chain)
        else:
            wanted = number_of(chain, name)
        rows = self.net.state[table]
        return join_words(rows.filter(rows[key] == wanted), what)[0]

    def cancelled(self, f: Chain, t: Chain) -> int:
        rows = self.net.state["books"]
        here = (
            (rows["what"] == Book.CANCELLED) & (rows["source"] == position_of(f)) & (rows["foreign"] == position_of(t))
        )
        return sum(join_words(rows.filter(here), "amount"))

    # ---- runtimes that do not keep to the rules

    def _rogue(self, change: Callable[[State], State]) -> None:
        self.net.rogue.append(change)

    def rogue_state(self, chain: Chain, foreign: Chain, channel: int, state: ChannelState) -> None:
        self._rogue(
            lambda s: s.with_tables(channels=_changed(s["channels"], _at(chain, foreign, channel), state=state))
        )

    def rogue_nonce(self, src: Chain, dst: Chain, channel: int, nonce: int) -> None:
        """Both sides are as if ``nonce`` messages had gone from src to dst and were answered."""

        def change(s: State) -> State:
            rows = _changed(s["channels"], _at(src, dst, channel), next_outbox=nonce, next_response=nonce)
            return s.with_tables(channels=_changed(rows, _at(dst, src, channel), next_inbox=nonce))

        self._jumps = True
        self._rogue(change)

    def rogue_mint(self, chain: Chain, name: bytes, amount: int) -> None:
        def change(s: State) -> State:
            accounts = _more(s["accounts"], {"program": number_of(chain, name)}, "balance", amount)
            return s.with_tables(
                accounts=accounts, money=_more(s["money"], {"chain": position_of(chain)}, "issuance", amount)
            )

        self._rogue(change)

    def rogue_books(self, f: Chain, t: Chain) -> None:
        def change(s: State) -> State:
            books = s["books"]
            gone = (books["what"] == Book.UNCONFIRMED) & (books["source"] == position_of(f))
            return s.with_tables(books=books.filter(~(gone & (books["foreign"] == position_of(t)))))

        self._rogue(change)

    def rogue_acknowledge(self, chain: Chain, src: Chain, channel: int, nonce: int) -> None:
        def change(s: State) -> State:
            money = ChainSums(s)
            ends = {"source": position_of(src), "destination": position_of(chain)}
            lane = {name: np.array([value], dtype=np.uint32) for name, value in ends.items()}
            lane |= {"substream": np.array([2 * channel]), "index": np.array([2**40])}
            rows = Frame(
                {name: column.astype(EARLY_SCHEMA.field(name).type.to_pandas_dtype()) for name, column in lane.items()},
                1,
            )
            none, nothing = np.zeros(1, dtype=np.uint8), rows.slice(0, 0)
            last = np.array([nonce + 1], dtype=np.uint64)
            empty = pa.array([b""], pa.large_binary())
            request = DueRequests(rows, none, last, none, empty, last, last, nothing, np.empty(0, dtype=np.int64))
            after, _ = acknowledge(s, request, money)
            return money.close(after)[0]

        self._rogue(change)


def _at(chain: Chain, foreign: Chain, channel: int) -> dict[str, int]:
    return {"chain": position_of(chain), "foreign": position_of(foreign), "channel": channel}


def _changed(rows: Frame, where: Mapping[str, int], **values: int) -> Frame:
    mask = np.ones(len(rows), dtype=bool)
    for name, value in where.items():
        mask &= rows[name] == value
    assert mask.sum() == 1
    columns = {name: np.where(mask, rows[name].dtype.type(value), rows[name]) for name, value in values.items()}
    return rows.with_columns(**columns).select(rows.names)


def _more(rows: Frame, where: Mapping[str, int], name: str, amount: int) -> Frame:
    ((key, value),) = where.items()
    amounts = [a + amount * (k == value) for a, k in zip(join_words(rows, name), rows[key].tolist(), strict=True)]
    high, low = split_words(amounts)
    return rows.with_columns(**{f"{name}_high": high, f"{name}_low": low}).select(rows.names)
