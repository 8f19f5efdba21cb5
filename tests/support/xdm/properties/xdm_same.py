"""Comparison of kernel and oracle after every tick: all state and events that the reference names."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from causeway.core.frame import Frame
from causeway.core.vocabulary import Event as Bit
from causeway.core.vocabulary import Kind as MessageKind
from causeway.protocols.xdm.consensus.receipts import FRAUDS
from causeway.protocols.xdm.state import decode_set
from causeway.protocols.xdm.value.balances import join_words
from causeway.protocols.xdm.value.books import Book
from tests.spec.xdm.events import Event
from tests.spec.xdm.keys import CHANNELS, INBOX_RESPONSES, OUTBOX, confirmed_key, twox128
from tests.spec.xdm.programs import account
from tests.spec.xdm.scale import compact, little, u128, u256
from tests.spec.xdm.state import State, issuance, storage
from tests.spec.xdm.values import CONSENSUS, Chain, Receipt, decode_receipt, decode_xdm, encode_chain, encode_message
from tests.support.xdm.properties.xdm_calling import WAITING
from tests.support.xdm.properties.xdm_driven import ACCOUNTS, ECHO, WIDTH, Driven
from tests.support.xdm.properties.xdm_kernel_log import KernelLog
from tests.support.xdm.properties.xdm_kernel_rows import position_of, row_dicts
from tests.support.xdm.properties.xdm_model import ROOT_ACCOUNT, Model

MESSENGER = twox128("Messenger")
ITEMS = ("NextChannelId", "OutboxMessageCount", "OutboxFee", "InboxFee", "ChainAllowlist", "DomainChainAllowlistUpdate")
PREFIX = {item: MESSENGER + twox128(item) for item in ITEMS}
OUTGOING = twox128("Transporter") + twox128("OutgoingTransfers")
SAME = {OUTBOX, INBOX_RESPONSES, CHANNELS, OUTGOING, *PREFIX.values()}
"""What of the storage is compared to the byte (2.4, 2.5)."""
EMPTY = {PREFIX["ChainAllowlist"]: b"\0", PREFIX["DomainChainAllowlistUpdate"]: b"\0\0"}
"""What stands for no entry."""


def same(what: str, oracle: Any, kernel: Any, where: str) -> None:
    assert oracle == kernel, f"{what} after {where}: {differing(oracle, kernel)}"


def differing(oracle: Any, kernel: Any) -> str:
    if isinstance(oracle, dict) and isinstance(kernel, dict):
        keys = sorted((k for k in oracle.keys() | kernel.keys() if oracle.get(k) != kernel.get(k)), key=str)
        rows = ((shown(k), shown(oracle.get(k)), shown(kernel.get(k))) for k in keys[:4])
        return "; ".join(f"{key}: oracle {own}, kernel {theirs}" for key, own, theirs in rows)
    return f"oracle {oracle!r}, kernel {kernel!r}"


NAMES = {OUTBOX: "Outbox", INBOX_RESPONSES: "InboxResponses", CHANNELS: "Channels", OUTGOING: "OutgoingTransfers"}
NAMES |= {prefix: item for item, prefix in PREFIX.items()}


def shown(value: Any) -> str:
    """Bytes as text: the item of a key by its name, runs of zeros as their length."""
    if not isinstance(value, bytes):
        return repr(value)
    name, rest = NAMES.get(value[:32], ""), value[32:] if value[:32] in NAMES else value
    return name + " " + re.sub("(00){4,}", lambda m: f"[{len(m.group()) // 2}]", rest.hex())


def chain_ids(chains: Iterable[Chain]) -> bytes:
    found = sorted(chains)
    return compact(len(found)) + b"".join(encode_chain(chain) for chain in found)


def named_storage(s: State) -> dict[bytes, bytes]:
    """Everything of a chain's state that the reference names and that has an entry of its own."""
    found = {key: value for key, value in storage(s).items() if key[:32] in SAME}
    found |= {PREFIX["NextChannelId"] + encode_chain(f): u256(n) for f, n in s.next_channel_id.items()}
    for f, channel in s.channels:
        count = s.outbox_count.get((f, channel), 0)
        found[PREFIX["OutboxMessageCount"] + encode_chain(f) + u256(channel)] = little(count, 4)
    for item, fees in (("OutboxFee", s.outbox_fee), ("InboxFee", s.inbox_fee)):
        found |= {PREFIX[item] + ended(key): u128(fee) for key, fee in fees.items() if fee}
    found |= {OUTGOING + ended(key): payload for key, payload in s.outgoing_transfers.items() if key in s.outbox}
    found[PREFIX["ChainAllowlist"]] = chain_ids(s.allowlist)
    for domain, (allow, remove) in s.domain_updates.items():
        found[PREFIX["DomainChainAllowlistUpdate"] + little(domain, 4)] = chain_ids(allow) + chain_ids(remove)
    return named(found)


def named(entries: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    found = {key: value for key, value in entries.items() if key[:32] in SAME}
    return {key: value for key, value in found.items() if EMPTY.get(key[:32]) != value}


def read_entries(entries: dict[Chain, dict[bytes, bytes]], changed: Frame) -> None:
    """Take what a tick changed in the chains' storage."""
    for row in row_dicts(changed):
        of_chain = entries[row["chain"] - 1]
        if row["present"]:
            of_chain[row["key"]] = row["value"]
        else:
            of_chain.pop(row["key"], None)


RECEIPT = ("domain_block_number", "burned", "transfers_in", "transfers_out", "claimed", "rejected")
"""What a confirmed receipt says of value."""
EXECUTED = (*RECEIPT, "consensus_block_number", "rewards", "storage_fee", "execution_fee", "bundles")


def compare_confirmed(own: Receipt, stored: bytes | None, names: tuple[str, ...], where: str) -> None:
    """The receipt of a domain that is confirmed, field by field."""
    if stored is None:
        same("confirmed", own.domain_block_number, 0, where)
        return
    theirs = decode_receipt(stored)
    for name in names:
        said, shown = (said_of(er, name) for er in (own, theirs))
        same(name, said, shown, where)


def said_of(er: Receipt, name: str) -> Any:
    if name != "bundles":
        return getattr(er, name)
    return [bundle.invalid for bundle in er.inboxed_bundles] if er.domain_block_number else []


def compare_books(s: State, rows: Frame, where: str) -> None:
    """What the consensus chain books of each domain."""
    own = {(int(Book.BALANCE), position_of(d), 0): amount for d, amount in s.domain_balances.items()}
    for what, book in ((Book.UNCONFIRMED, s.unconfirmed), (Book.CANCELLED, s.cancelled)):
        own |= {(int(what), position_of(f), position_of(t)): amount for (f, t), amount in book.items()}
    keys = zip(*(rows[name].tolist() for name in ("what", "source", "foreign")), strict=True)
    same("books", own, dict(zip(keys, join_words(rows, "amount"), strict=True)), where)


def ended(key: tuple[Chain, int, int]) -> bytes:
    foreign, channel, nonce = key
    return encode_chain(foreign) + u256(channel) + u256(nonce)


class Sides:
    """``compare`` is called after every tick; ``seen`` counts what occurred, by its name."""

    def __init__(self, model: Model, net: Driven, log: KernelLog, seen: Counter[str]) -> None:
        self.model, self.net, self.log, self.seen = model, net, log, seen
        self.entries: dict[Chain, dict[bytes, bytes]] = defaultdict(dict)
        self._kept: dict[int, dict[Chain, dict[bytes, bytes]]] = {}
        self._logged = 0
        self._told: dict[Chain, int] = Counter()
        self._log_told = 0
        self._kinds: dict[tuple[Any, ...], str] = {}

    def compare(self) -> None:
        """Equal after the last tick, or an error that says where not."""
        net, model = self.net, self.model
        self._read_storage()
        money = {row["chain"]: row for row in row_dicts(net.state["money"])}
        accounts = net.state["accounts"]
        balances = dict(zip(accounts["program"].tolist(), join_words(accounts, "balance"), strict=True))
        for chain, c in model.chains.items():
            where, s = f"tick {net.tick}, block {c.block} of {chain}", c.state
            same("storage", named_storage(s), named(self.entries[chain]), where)
            same("early", early(s), self._early(chain), where)
            sums = money[position_of(chain)]
            for what, own, name in (
                ("fees for responses", s.outbox_fees_on_hold, "outbox_held"),
                ("fees until acknowledged", s.inbox_fees_on_hold, "inbox_held"),
                ("deposits", sum(s.deposits.values()), "reserved"),
                ("issued", issuance(s), "issuance"),
                ("root", s.balances.get(ROOT_ACCOUNT, 0), "root"),
            ):
                same(what, own, sums[f"{name}_high"] << 64 | sums[f"{name}_low"], where)
            first = WIDTH * position_of(chain)
            for place in (*range(len(ACCOUNTS)), ECHO):
                own = s.balances.get(account(first + place), 0)
                same(f"balance of {first + place}", own, balances[first + place], where)
            self._compare_operators(chain, where)
            waits = [(int.from_bytes(q.sender[:8], "little"), q.dst, q.callback) for q in s.notes.get(WAITING, ())]
            rows = [row for row in row_dicts(net.state["waiting"]) if row["source"] == position_of(chain)]
            kept = [(row["sender"], row["destination"] - 1, row["callback"]) for row in rows]
            same("waiting", sorted(waits, key=lambda q: q[1]), kept, where)
        for row in row_dicts(net.state.programs["caller"], "program", "answered", "rejected"):
            notes, to = model.chains[row["program"] // WIDTH - 1].state.notes, account(row["program"])
            answers = {name: notes.get((name, to), 0) for name in ("answered", "rejected")}
            same("answers", answers, {name: row[name] for name in answers}, f"tick {net.tick} at {row['program']}")
        self._compare_consensus()
        self._compare_events()

    def _read_storage(self) -> None:
        logs, back = self.net.logs["storage"], self.net.gone_back_to()
        if back is not None:
            self.entries = defaultdict(dict, {chain: dict(found) for chain, found in self._kept[back].items()})
        for _, _, changed in logs[self._logged :]:
            read_entries(self.entries, changed)
        self._logged = len(logs)
        self._kept[self.net.height] = {chain: dict(found) for chain, found in self.entries.items()}

    def _early(self, chain: Chain) -> dict[tuple[Any, ...], bytes]:
        rows = [row for row in row_dicts(self.net.state["early"]) if row["destination"] == position_of(chain)]
        return {
            (row["substream"] & 1, row["source"] - 1, row["substream"] >> 1, row["index"]): row["body"] for row in rows
        }

    def _compare_operators(self, chain: Chain, where: str) -> None:
        """Every operator has what the oracle says that it earned, and who submitted receipts is known to the unit."""
        c = self.model.chains[chain]
        own = [c.state.balances.get(account, 0) for account in c.operators]
        operators = self.net.state["operators"]
        same("operators", own, join_words(operators.filter(operators["chain"] == position_of(chain)), "balance"), where)
        shares = {(e.block, e.receipt, e.amount) for e in c.events if e.event == "FeeShare"}
        self.seen["fees that do not divide"] += len(shares) > len({share[:2] for share in shares})
        held = Counter(c.state.sent_in[key] for key, fee in c.state.outbox_fee.items() if fee and key in c.state.outbox)
        held += Counter(c.state.answered_in[key] for key, fee in c.state.inbox_fee.items() if fee)
        rows = [row for row in row_dicts(self.net.state["submitters"]) if row["chain"] == position_of(chain)]
        kept = {row["number"]: (row["unpaid"], decode_set(row["operators"])) for row in rows}
        assert c.submitters is not None
        some = {number: (held[number], c.submitters(number)) for number in held}
        # Of the consensus chain there is one author, whether somebody was absent or not.
        owed = {
            number: found
            for number, found in some.items()
            if (number in kept if chain == CONSENSUS else len(found[1]) < len(c.operators))
        }
        same("submitters", owed, kept, where)
        self.seen["absent"] += bool(owed)
        last = self.model.options.max_messages - 1
        self.seen["exhausted"] += any(ch.next_outbox_nonce > last for ch in c.state.channels.values())

    # ---- the consensus chain

    def _compare_consensus(self) -> None:
        state, c, where = self.net.state, self.model.consensus, f"tick {self.net.tick}"
        compare_books(c.state, state["books"], where)
        blocks = dict(zip(state["blocks"]["number"].tolist(), state["blocks"]["leaf_count"].tolist(), strict=True))
        own = {number: leaves for number, leaves in self.model.view.leaves.items() if number in blocks}
        same("leaves", own, blocks, where)
        same("best", self.model.view.best, max(blocks), where)
        heads = {row["domain"] - 1: row["number"] for row in row_dicts(state["receipted"])}
        taken = {domain: number for domain, number in c.state.head_receipt.items() if number}
        same("receipts", taken, {domain: number for domain, number in heads.items() if number}, where)
        for domain in range(self.model.domains):
            stored = self.entries[CONSENSUS].get(confirmed_key(domain))
            compare_confirmed(c.state.confirmed[domain], stored, EXECUTED, f"{where}: the receipt of {domain}")

    # ---- events

    def _compare_events(self) -> None:
        """The same happened to every message and channel, in the same order; refusals by name."""
        own: list[Event] = []
        for chain, c in self.model.chains.items():
            start = min(self._told[chain], len(c.events))
            own += c.events[start:]
            self._told[chain] = len(c.events)
        theirs = self.log.events[min(self._log_told, len(self.log.events)) :]
        self._log_told = len(self.log.events)
        where = f"tick {self.net.tick}"
        same("events", told(own), told(theirs), where)
        same("refused envelopes", refused(own), refused(theirs) + self._unread(), where)
        same("refused calls of users", self._calls(own, "user"), self._refused_users(), where)
        same("refused calls and results", self._results(own), self._told_results(), where)
        for e in own:
            for text in (e.error, e.result):
                if text not in (None, "Ok"):
                    self.seen[f"{e.event} {text}"] += 1
            self.seen[e.event] += 1

    def _unread(self) -> Counter[tuple[Any, ...]]:
        found: Counter[tuple[Any, ...]] = Counter()
        for kind, data in self.net.unread:
            x = decode_xdm(data)
            call = "relay_message" if kind == "request" else "relay_message_response"
            if x.dst in self.model.running and self.net.gone_back_to() is None:
                found[x.dst, x.src, x.channel_id, x.nonce, call, "BadProof"] += 1
        return found

    def _calls(self, events: list[Event], call: str) -> Counter[tuple[Chain, str | None]]:
        return Counter((e.chain, e.error) for e in events if e.event == "Refused" and e.call == call)

    def _refused_users(self) -> Counter[tuple[Chain, str]]:
        found: Counter[tuple[Chain, str]] = Counter()
        for row in row_dicts(self.net.events(last=True)):
            if row["events"] == Bit.SENT | Bit.REJECTED:
                found[row["chain"] - 1, row["reason"]] += 1
            elif (
                row["events"] == Bit.REJECTED and row["kind"] == MessageKind.INGRESS and row["reason"] != "ChainHalted"
            ):
                assert row["reason"].startswith("InsufficientFunds")
                found[row["chain"] - 1, "LowBalance"] += 1
        return found

    def _results(self, events: list[Event]) -> Counter[tuple[Chain, str | None]]:
        """Planned calls that fail, responses that come to nothing, refused openings, invalid bundles."""
        found = self._calls(events, "planned")
        for e in events:
            where = e.chain, e.foreign, e.channel_id, e.nonce
            if e.event == "OutboxMessage":
                self._kinds[where] = e.kind or ""
            elif (e.event == "OutboxMessageResponse" and self._kinds[where] != "endpoint" and e.result != "Ok") or (
                e.event == "OutboxMessageResult" and e.result != "Ok"
            ):
                found[e.chain, e.result] += 1
            elif e.event == "InvalidBundle":
                found[e.chain, e.error] += 1
        return found

    def _told_results(self) -> Counter[tuple[Chain, str]]:
        ours = set(FRAUDS.values())
        found: Counter[tuple[Chain, str]] = Counter()
        for row in row_dicts(self.net.events(last=True)):
            own = row["kind"] == MessageKind.CONTROL and row["source"] == row["chain"] and not row["via"]
            if own and row["events"] & Bit.REJECTED and row["reason"] not in ours:
                found[row["chain"] - 1, row["reason"]] += 1
        return found


def early(s: State) -> dict[tuple[Any, ...], bytes]:
    found = {(0, *key): encode_message(item.message) for key, item in s.inbox.items()}
    return found | {(1, *key): encode_message(item.message) for key, item in s.outbox_responses.items()}


COLUMNS = {
    "ChannelInitiated": ("deposit", "limit"),
    "ChannelOpen": ("limit",),
    "ChannelClosed": ("deposit",),
    "OutboxMessage": ("nonce", "kind", "payload_hash", "src_fee", "dst_fee", "last_delivered"),
    "InboxMessage": ("nonce", "payload_hash"),
    "InboxMessageResponse": ("nonce", "payload_hash", "result"),
    "OutboxMessageResponse": ("nonce", "payload_hash", "result"),
    "OutboxMessageResult": ("nonce", "result"),
    "FeeBurn": ("nonce", "amount"),
    "FeeMint": ("nonce", "amount"),
    "ResponseDeleted": ("nonce",),
    "Transfer": ("nonce", "kind", "amount"),
    "FraudProved": ("nonce",),
}


UNORDERED = ("ResponseDeleted", "OutboxMessage", "FeeBurn", "Transfer")


def told(events: list[Event]) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for e in events:
        if e.event in COLUMNS:
            what = tuple(getattr(e, name) for name in COLUMNS[e.event])
            # A program that fails is answered for in the content, which is hashed.
            what = tuple("Ok" if value == "Other" else value for value in what)
            found[e.event, e.chain, e.foreign, e.channel_id].append((e.at, *what))
    # What is told of tables is told in another order than it happened in; nonces say that.
    return {key: sorted(rows, key=str) if key[0] in UNORDERED else rows for key, rows in found.items()}


def refused(events: list[Event]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for e in events:
        if e.event == "Refused" and e.call in ("relay_message", "relay_message_response", "submit_receipt"):
            error = "Custom(201)" if e.error == "Stale" else e.error
            found[e.chain, e.foreign, e.channel_id, e.nonce, e.call, error] += 1
    return found
