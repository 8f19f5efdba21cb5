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

from causeway.model.faults import Fault, Faults
from causeway.model.frame import Frame, concat
from causeway.model.ledger import Event as Bit
from causeway.model.ledger import Kind as MessageKind
from causeway.protocols.contract import Plan, Tick
from causeway.protocols.option_values import LARGEST
from causeway.protocols.xdm.books import Book
from causeway.protocols.xdm.carrying import in_order, since
from causeway.protocols.xdm.chain_tries import ChainTries
from causeway.protocols.xdm.envelopes import decode_envelopes, encode_envelopes
from causeway.protocols.xdm.inbox import Requests
from causeway.protocols.xdm.kernel import XdmPlan
from causeway.protocols.xdm.money import Money, joined, split
from causeway.protocols.xdm.options import ChannelCall
from causeway.protocols.xdm.responses import acknowledge
from causeway.protocols.xdm.state import MAX_NONCE, State
from causeway.protocols.xdm.storage import changes
from causeway.protocols.xdm.tables import BASE, EARLY_SCHEMA, ENVELOPES_SCHEMA
from causeway.protocols.xdm.transporter import METHOD
from causeway.protocols.xdm.validate import Brought
from tests.property.caller_payloads import caller_payload
from tests.property.xdm_kernel_log import KernelLog, chain_of, row_dicts
from tests.property.xdm_networks import ALICE, FUNDS, ROOT
from tests.property.xdm_programs import account
from tests.spec.xdm.endpoints import encode_account
from tests.spec.xdm.events import Event
from tests.spec.xdm.guarantees import Record
from tests.spec.xdm.keys import confirmed_key, outbox_key, responses_key
from tests.spec.xdm.mmr import Mmr, keccak256
from tests.spec.xdm.network import PROGRAM, Gossip
from tests.spec.xdm.options import Options
from tests.spec.xdm.proofs import Kind
from tests.spec.xdm.state import Channel, ChannelState
from tests.spec.xdm.trie import Trie
from tests.spec.xdm.values import (
    CONSENSUS,
    TAG_NONE,
    Chain,
    ConsensusProof,
    CrossDomainMessage,
    MmrLeaf,
    Proof,
    decode_receipt,
    decode_xdm,
    encode_leaf,
    encode_xdm,
)
from tests.unit.xdm_network import Network

ACCOUNTS = (b"alice", b"bob", b"root", b"exact", b"alive", b"poor")
ECHO, NOWHERE = 8, 9
"""On each chain a program of ``ACCOUNTS`` each, then one that echoes, then the number of one that is not installed."""
SPECIAL = "tests.property.xdm_programs:Special"
WIDTH = 1_000
_MEMORY = ("relaying", "envelopes", "nodes", "bases")


def position_of(chain: Chain) -> int:
    return chain + 1


def number_of(chain: Chain, name: bytes) -> int:
    """The program that an account's name is on a chain."""
    return WIDTH * position_of(chain) + ACCOUNTS.index(name.rstrip())


def kernel_options(options: Options, weights: Mapping[Chain, tuple[int, int]], names: list[str]) -> dict[str, Any]:
    """The options of the kernel that say what those of the oracle say."""
    assert options.price == 1 and options.existential_deposit == 1 and options.longevity == Options.longevity
    same = (
        *("fee_model", "v0_mint", "initiate_by", "close_by", "inbox", "allowlist", "strict_envelope", "pool_tag"),
        *("trust_tag", "force_close", "archiving_depth", "challenge_period", "max_outgoing_messages", "relay_fee"),
        *("fee_multiplier", "mmr_roots", "resubmit_after", "message_weight", "response_weight", "minimum_transfer"),
    )
    own = {}
    for chain, pair in weights.items():
        own[names[position_of(chain)]] = dict(
            zip(("message", "response"), (min(w, LARGEST) for w in pair), strict=True)
        )
    given = {name: getattr(options, name) for name in same}
    if any(max(pair) > LARGEST for pair in weights.values()):  # as much as options can say, of all parts, is too much
        given["relay_fee"] = LARGEST
        own = {name: {"message": LARGEST, "response": LARGEST} for name in own}
    return {
        **given,
        "channel_reserve_fee": options.reserve,
        "reserve_portion_percent": options.reserve_portion,
        "weight_per_unit": 1,
        "weights": own,
        "endowment": 0,
        "root_balance": FUNDS[b"root"],
        "channels": "initiate",
        "calls_wait": "off",
    }


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
        self.net = _Driven(chains, options=chosen, balances=balances, **rest)
        self.net.copies = relayers_each
        if allowlists:
            pairs = sorted((position_of(c), position_of(f)) for c, others in allowlists.items() for f in others)
            columns = np.array(pairs, dtype=np.uint32).reshape(-1, 2)
            rows = Frame({"chain": columns[:, 0], "foreign": columns[:, 1]}, len(pairs))
            self._rogue(lambda state: state.with_tables(allowlist=rows))
            self.net.apply_rogue()
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
        planned = tuple(ChannelCall(tick=tick, **call) for _, call in self._calls)
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
                    assert failed[chain, place + 1].startswith("InsufficientCycles")
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
            self.net.kernel, faults=Faults.of(Fault("fraud", position_of(domain), None, tick, tick, args))
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
        return joined(rows.filter(rows[key] == wanted), what)[0]

    def cancelled(self, f: Chain, t: Chain) -> int:
        rows = self.net.state["books"]
        here = (
            (rows["what"] == Book.CANCELLED) & (rows["source"] == position_of(f)) & (rows["foreign"] == position_of(t))
        )
        return sum(joined(rows.filter(here), "amount"))

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
            money = Money(s)
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
            request = Requests(rows, none, last, none, empty, last, last, nothing, np.empty(0, dtype=np.int64))
            after, _ = acknowledge(s, request, money)
            return money.into(after)

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
    amounts = [a + amount * (k == value) for a, k in zip(joined(rows, name), rows[key].tolist(), strict=True)]
    high, low = split(amounts)
    return rows.with_columns(**{f"{name}_high": high, f"{name}_low": low}).select(rows.names)


def _born(frame: Frame, number: int) -> Frame:
    base = (frame["base"] << np.uint64(40)) | np.uint64(2 * number)
    return frame.with_columns(base=base)


class _Driven(Network):
    """A network of which a test changes what is planned, what is brought, and what stands in the state."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        self.relaying, self.copies = True, 1
        self.gossip: Gossip | None = None
        self.rogue: list[Callable[[State], State]] = []
        self.air: list[tuple[int, Kind, bytes]] = []
        """Whole envelopes on their way: the block that they come to, what they are, and their bytes."""
        self.unread: list[tuple[Kind, bytes]] = []
        """Those of the last block that no chain can read: they come to none."""
        super().__init__(*args, **rest)
        self.mmr = Mmr()
        self.leaves: dict[int, bytes] = {}
        self.hashes: dict[int, bytes] = {}
        self._keep_leaf()

    def tell(self, caller: int, payload: bytes) -> None:
        self._told.append((self._number[self._host[caller]], caller, 0, "call", payload))

    # ---- a block

    def prepare_block(self, planned: tuple[ChannelCall, ...]) -> None:
        options = self.kernel.options
        if planned or options.channel_calls:
            self.kernel = replace(self.kernel, options=options.model_copy(update={"channel_calls": planned}))
        self.apply_rogue()

    def apply_rogue(self) -> None:
        """Change the state between two blocks; the storage and its log have it as of the next block."""
        queued, self.rogue = self.rogue, []
        for change in queued:
            (state,) = self.states
            after = change(state)
            everything = np.arange(len(self.names), dtype=np.uint32)
            rows = changes(state, after, self.kernel.context(everything, Tick(self.height + 1, self.tick + 1)))
            if isinstance(after.kept.tries, ChainTries):
                after.kept.tries.change(rows)
            if len(rows):
                self.logs["storage"].append((self.height + 1, self.tick + 1, rows))
            self.states = [after]

    def end_block(self) -> None:
        self._keep_leaf()
        if not self.relaying:  # operators that are down remember nothing, and have proved nothing
            (state,) = self.states
            self.states = [state.with_tables(**{name: state[name].slice(0, 0) for name in _MEMORY})]

    def _keep_leaf(self) -> None:
        last = next(row_dicts(self.state["blocks"].slice(len(self.state["blocks"]) - 1, len(self.state["blocks"]))))
        number = last["number"]
        fields = [last[name] for name in ("hash", "state_root", "extrinsics_root")]
        hashed, root, extrinsics = (bytes(field) for field in fields)
        self.hashes[number] = hashed
        self.leaves[number] = encode_leaf(MmrLeaf(number, hashed, root, extrinsics))
        self.mmr.append(keccak256(self.leaves[number]))

    def carry(self, plan: Plan[XdmPlan]) -> Plan[XdmPlan]:
        brought, now = plan.content.load.brought, self.tick + 1
        fresh = since(brought.envelopes["base"]) == now
        pooled, honest = brought.envelopes.filter(~fresh), brought.envelopes.filter(fresh)
        plain = self.relaying and self.gossip is None and self.copies == 1
        due = [item for item in self.air if item[0] <= now]
        if plain and not due:
            return plan
        if self.relaying and len(honest):
            response = (honest["substream"] & np.uint64(1)).tolist()
            ends = (honest["source"].tolist(), honest["destination"].tolist())
            rows = zip(encode_envelopes(replace(brought, envelopes=honest)).to_pylist(), response, *ends, strict=True)
            for data, answers, source, destination in rows:
                kind: Kind = "response" if answers else "request"
                for copy in range(self.copies):
                    relayer = f"{chain_of(source)}/{copy}"
                    hook = self.gossip or (lambda data, kind, dst, relayer: [(0, data)])
                    for delay, altered in hook(data, kind, chain_of(destination), relayer):
                        self.air.append((now + delay, kind, altered))
        due = [item for item in self.air if item[0] <= now]
        self.air = [item for item in self.air if item[0] > now]
        values = pa.array([data for *_, data in due], pa.large_binary())
        found, refused = decode_envelopes(values, np.array([kind == "response" for _, kind, _ in due], dtype=bool))
        self.unread = [(kind, data) for (_, kind, data), wrong in zip(due, refused.tolist(), strict=True) if wrong]
        # All of it is new; what waits in a pool stays as it is.
        found = Brought(*(_born(frame, now) for frame in (found.envelopes, found.nodes, found.bases)))
        here = np.isin(found.envelopes["destination"], plan.content.running)
        kept = [*ENVELOPES_SCHEMA.names, "base"]
        all_rows = concat([pooled.select(kept), found.envelopes.filter(here).select(kept)])
        held = [frame.filter(since(frame["base"]) < now) for frame in (brought.nodes, brought.bases)]
        nodes = concat([held[0], found.nodes.select(held[0].names)])
        bases = concat([held[1], found.bases.select(held[1].names)])
        found = Brought(all_rows, in_order(nodes, (*BASE, "number")), in_order(bases, BASE))
        return replace(plan, content=replace(plan.content, load=replace(plan.content.load, brought=found)))

    # ---- the past

    def storage_at(self, chain: int, number: int) -> dict[bytes, bytes]:
        """The storage of a chain after its block of that number, by the log of its changes."""
        entries: dict[bytes, bytes] = {}
        for height, _, frame in self.logs["storage"]:
            if height > number:
                break
            for row in row_dicts(frame.filter(frame["chain"] == chain)):
                if row["present"]:
                    entries[row["key"]] = row["value"]
                else:
                    entries.pop(row["key"], None)
        return entries
