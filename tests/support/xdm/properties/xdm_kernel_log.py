"""The events of 1.1 and the record of 1.2, made of what the kernel leaves: its tables before and after each block, its
log of storage changes, its events. So the oracle's checkers of G1 to G10 judge the kernel.

What is processed is read out of the envelopes that were brought, by the oracle's code, under state roots that headers
have: G2 compares bytes that the kernel has not touched. Value that travels with a response goes out and comes in under
the number ``-1 - channel``, so that it is not taken for that of the request with the same nonce.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from causeway.core.vocabulary import Event as Bit
from causeway.core.vocabulary import Kind, Via
from causeway.protocols.xdm.errors import ERROR_NAMES, OK
from causeway.protocols.xdm.state import NOBODY, ChannelState, RequestKind, State
from causeway.protocols.xdm.value.balances import join_words
from causeway.protocols.xdm.value.books import Book
from tests.spec.xdm.events import Event
from tests.spec.xdm.guarantees import Record
from tests.spec.xdm.keys import blake2b, outbox_key, responses_key
from tests.spec.xdm.programs import PROGRAMS, account
from tests.spec.xdm.responses import result_of
from tests.spec.xdm.values import CONSENSUS, Chain, ChannelClose, ChannelOpen, EndpointCall, EndpointResponse
from tests.support.xdm.properties.xdm_kernel_record import record_of
from tests.support.xdm.properties.xdm_kernel_rows import Rows, chain_of, in_call_order, row_dicts, stored_in
from tests.support.xdm.properties.xdm_programs import answered_amount, program_failed
from tests.support.xdm.properties.xdm_shown import Lane, Proved, shown
from tests.support.xdm.xdm_network import Network

NUMBERED = {
    "INVALID_NONCE": "Custom(201)",
    "XDM_NONCE_OVERFLOW": "Custom(202)",
    "INVALID_CHANNEL": "Custom(203)",
    "IN_FUTURE_NONCE": "Custom(204)",
    "INVALID_RESPONSE_NONCE": "Custom(205)",
    "AlreadyImported": "Stale",
    "HandlerFault": "Other",
}
"""What the oracle calls refusals that the reference numbers, and the pool's."""
KINDS = {RequestKind.CHANNEL_OPEN: "open", RequestKind.CHANNEL_CLOSE: "close", RequestKind.ENDPOINT: "endpoint"}
CLOSED, TAG, STUCK = "ChannelClosed", "WeightTagNotMatch", "FailedToNoteTransferIn"
UNSETTLED = (TAG, "InvalidChannelState", "InvalidMessagePayload")


class KernelLog:
    """``check`` is called after every block; ``events`` and ``record`` are what a run has left so far."""

    def __init__(self, net: Network, *, lax: bool = False) -> None:
        self.net, self.lax = net, lax
        self.events: list[Event] = []
        self.supply: dict[int, dict[Chain, int]] = {}
        self.issuance: dict[tuple[Chain, int], int] = {}
        self.roots: dict[int, bytes] = {}
        self.hashes: dict[int, bytes] = {}
        self.bodies: dict[Lane, Proved] = {}
        self._unfinal: list[tuple[Chain, int]] = []
        self._last_final = -1
        self._sent: dict[tuple[int, ...], int] = {}
        self._back: dict[tuple[int, ...], int] = {}
        self._operators: dict[int, int] = {}
        self._called: dict[tuple[int, int], int] = {}
        """Calls of programs to other chains, and the height that has them."""
        self._marks: dict[int, tuple[int, list[tuple[Chain, int]], int, dict[int, int]]] = {}
        self.before = net.state
        for row in row_dicts(net.state["channels"]):
            where = {"foreign": chain_of(row["foreign"]), "channel_id": row["channel"], "limit": row["max_outgoing"]}
            for name in ("ChannelInitiated", "ChannelOpen"):
                self.events.append(Event(name, chain_of(row["chain"]), 0, 0, **where))
        self._sample(0)
        self._headers()

    # ---- after each block

    def check(self) -> None:
        net, state = self.net, self.net.state
        at = net.tick + 1
        self._marks[net.height - 1] = (len(self.events), [*self._unfinal], self._last_final, {**self._operators})
        back = net.gone_back_to()
        if back is not None:
            self._go_back(back)
            return
        self._made = {row["chain"]: row["number"] for row in row_dicts(net.headers, "chain", "number")}
        self._at = at
        self._values = stored_in(net.logs["storage"], net.height)
        self.bodies |= shown(net.brought, self.roots, self.lax)
        self._headers()
        before, self.before = self.before, state
        rows = Rows(before, state)
        if 0 in self._made:
            self._refused_receipts()
            self._finals(before, state)
        for chain in sorted(self._made):
            self._chain(chain, rows)
        self._answered_calls()
        self._sample(at)

    def _go_back(self, height: int) -> None:
        """What was told of blocks that a fork has taken back did not happen."""
        kept, self._unfinal, self._last_final, self._operators = self._marks[height]
        del self.events[kept:]
        state = self.before = self.net.state
        best = int(state["blocks"]["number"][-1])
        for known in (self.roots, self.hashes, self.supply):
            for number in [number for number in known if number > best]:
                del known[number]
        self._called = {name: at for name, at in self._called.items() if at <= height}

    def log(self, event: str, chain: int, **columns: Any) -> None:
        self.events.append(Event(event, chain_of(chain), self._made[chain], self._at, **columns))

    def _headers(self) -> None:
        for row in row_dicts(self.net.headers, "chain", "number", "root", "hash"):
            if row["chain"] == 0:
                self.roots[row["number"]] = bytes(row["root"])
                self.hashes[row["number"]] = row["hash"]

    def _sample(self, at: int) -> None:
        money = self.net.state["money"]
        issued = dict(zip(money["chain"].tolist(), join_words(money, "issuance"), strict=True))
        tips = self.net.state["tips"]
        for chain, number in zip(tips["chain"].tolist(), tips["number"].tolist(), strict=True):
            self.issuance[chain_of(chain), number] = issued[chain]
        self.supply[at] = {chain_of(chain): amount for chain, amount in issued.items()}

    # ---- the consensus chain

    def _refused_receipts(self) -> None:
        for row in self._refusals():
            if (
                row["chain"] == 0
                and row["kind"] == Kind.CONTROL
                and row["reason"] in ("LowBalanceOnDomain", "BalanceUnderflow")
            ):
                self.log("Refused", 0, foreign=chain_of(row["destination"]), call="submit_receipt", error=row["reason"])

    def _refusals(self) -> list[dict[str, Any]]:
        events = self.net.events(last=True)
        return list(row_dicts(events.filter((events["events"] & np.uint16(Bit.REJECTED)) > 0)))

    def _finals(self, before: State, state: State) -> None:
        depth = self.net.kernel.options.archiving_depth
        final = [n for n in self.roots if self._last_final < n <= self._at - depth]
        for number in sorted(final):
            root = self.roots[number]
            self.events.append(Event("Final", CONSENSUS, number, self._at, root=root, confirmed_at=self._at))
            self._last_final = number
        books = state["books"]
        balances = books.filter(books["what"] == Book.BALANCE)
        booked = dict(zip(balances["source"].tolist(), join_words(balances, "amount"), strict=True))
        known = {row["domain"]: row["number"] for row in row_dicts(before["confirmed"], "domain", "number")}
        now = {row["domain"]: row["number"] for row in row_dicts(state["confirmed"], "domain", "number")}
        rest = []
        for domain, number in self._unfinal:
            if number > now.get(domain, -1):
                rest.append((domain, number))
                continue
            last = number == now[domain] and number != known.get(domain)
            chain = chain_of(domain)
            amount = booked.get(domain, 0) if last else self.issuance[chain, number]
            self.events.append(Event("Final", chain, number, self._at, confirmed_at=self._at, amount=amount))
        self._unfinal = rest
        for height, _, frame in self.net.logs["receipts"][::-1]:
            if height != self.net.height:
                break
            taken = [(row["domain"], row["number"]) for row in row_dicts(frame, "domain", "number")]
            # What is taken in anew was pruned.
            self._unfinal = [*(block for block in self._unfinal if block not in taken), *taken]

    # ---- any chain

    def _chain(self, chain: int, rows: Rows) -> None:
        notices, tags = self._notices(chain)
        sent = [row for row in rows.new_requests if row["source"] == chain]
        sent = in_call_order(sent)
        self._initiated(chain, rows)
        last = self.net.kernel.options.max_messages - 1
        exhausted = [row for row in sent if row["asked"] == RequestKind.CHANNEL_CLOSE and row["index"] == last]
        early = [row for row in sent if row["asked"] != RequestKind.ENDPOINT and row not in exhausted]
        closed = Counter[tuple[int, int]]()
        for row in sorted(early, key=lambda row: row["asked"]):
            foreign, channel = row["destination"], row["substream"] >> 1
            if row["asked"] == RequestKind.CHANNEL_CLOSE:
                self._closed(chain, foreign, channel, notices, rows)
                closed[foreign, channel] += 1
            self._outbox(row)
        for (foreign, channel), released in sorted(notices.items()):
            # Closed by force: no request was sent.
            ours = [row for row in released if row["by_call"]]
            late = sum((row["destination"], row["substream"] >> 1) == (foreign, channel) for row in exhausted)
            for _ in ours[closed[foreign, channel] : len(ours) - late]:
                self._closed(chain, foreign, channel, notices, rows)
        for (own, foreign, channel), old, new in rows.inbox:
            if own == chain:
                for nonce in range(old, new):
                    self._processed(chain, foreign, channel, nonce, notices, rows)
        for (own, foreign, channel), old, new in rows.answers:
            if own == chain:
                for nonce in range(old, new):
                    self._settled(chain, foreign, channel, nonce, tags, rows)
        self._paid(chain, rows)
        for row in sent:
            if row["asked"] == RequestKind.ENDPOINT:
                self._outbox(row)
        for row in exhausted:  # the last message of a channel
            self._closed(chain, row["destination"], row["substream"] >> 1, notices, rows)
            self._outbox(row)
        self._log_refused(chain)

    def _notices(
        self, chain: int
    ) -> tuple[dict[tuple[int, int], list[dict[str, Any]]], dict[tuple[int, int, int], str]]:
        """What the log says of closed channels, by (foreign, channel), and of responses that came to nothing."""
        events = self.net.events(last=True)
        closed: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        tags: dict[tuple[int, int, int], str] = {}
        for row in row_dicts(events):
            where = (row["destination"], row["substream"] >> 1)
            if row["chain"] != chain or row["kind"] != Kind.CONTROL or row["source"] != chain:
                continue
            if row["reason"] == CLOSED:
                # A close of our own has the nonce that it takes, one for the peer that of the peer's request.
                amount = row["amount_low"]
                closed[where].append({"amount": amount, "by_call": self._closed_by_call(chain, *where, row["index"])})
            elif row["reason"] == "FraudProved":
                self.log("FraudProved", chain, foreign=chain_of(row["destination"]), nonce=row["index"])
            elif row["reason"] == STUCK:
                lane = {"foreign": chain_of(where[0]), "channel_id": where[1], "nonce": row["index"]}
                self.log("Refused", chain, **lane, call="relay_message", error=STUCK)
            elif row["reason"] in UNSETTLED and row["events"] & Bit.REJECTED and row["sender"] == NOBODY:
                tags[*where, row["index"]] = row["reason"]
        return closed, tags

    def _closed_by_call(self, chain: int, foreign: int, channel: int, index: int) -> bool:
        body = self.bodies.get(("request", chain_of(foreign), chain_of(chain), channel, index))
        return body is None or not isinstance(body.message.payload, ChannelClose)

    def _initiated(self, chain: int, rows: Rows) -> None:
        for row in rows.new_channels:
            if row["chain"] == chain and row["has_owner"]:
                deposit = (row["reserve"], 0, 0)
                where = {"foreign": chain_of(row["foreign"]), "channel_id": row["channel"]}
                by = int(row["owner"]).to_bytes(8, "little")
                self.log("ChannelInitiated", chain, **where, by=by, deposit=deposit, limit=row["max_outgoing"])

    def _closed(self, chain: int, foreign: int, channel: int, notices: dict[Any, Any], rows: Rows) -> None:
        told = notices.get((foreign, channel), [])
        released = told.pop(0)["amount"] if told else -1
        row = rows.channels[chain, foreign, channel]
        held = row["reserve"] if row["has_owner"] else 0
        where = {"foreign": chain_of(foreign), "channel_id": channel}
        self.log(CLOSED, chain, **where, deposit=(0, released, held - released))

    def _outbox(self, row: dict[str, Any]) -> None:
        chain, foreign, channel, nonce = row["source"], row["destination"], row["substream"] >> 1, row["index"]
        value = self._values.get((chain, outbox_key(chain_of(foreign), channel, nonce)))
        where = {"foreign": chain_of(foreign), "channel_id": channel, "nonce": nonce}
        last = row["next_response"] - 1 if row["next_response"] else None
        fees = {"src_fee": row["src_fee"], "dst_fee": row["dst_fee"]}
        hashed = b"not stored" if value is None else blake2b(value)
        kind = KINDS[row["asked"]]
        self.log("OutboxMessage", chain, **where, payload_hash=hashed, kind=kind, **fees, last_delivered=last)
        if kind == "endpoint":
            self.log("FeeBurn", chain, **where, amount=row["dst_fee"])
        if row["dst_endpoint"] == PROGRAMS and row["sender"] != NOBODY:
            self._called[row["sender"], row["callback"]] = self.net.height
            self.log("CallSent", chain, foreign=where["foreign"], by=account(row["sender"]), nonce=row["callback"])
        amount = row["amount_high"] << 64 | row["amount_low"]
        self._sent[chain, foreign, channel, nonce] = amount
        if amount:
            self.log("Transfer", chain, **where, kind="out", amount=amount)

    def _processed(
        self, chain: int, foreign: int, channel: int, nonce: int, notices: dict[Any, Any], rows: Rows
    ) -> None:
        body = self.bodies.get(("request", chain_of(foreign), chain_of(chain), channel, nonce))
        hashed = b"not shown" if body is None else blake2b(body.payload)
        where = {"foreign": chain_of(foreign), "channel_id": channel, "nonce": nonce}
        self.log("InboxMessage", chain, **where, payload_hash=hashed, proof_block=body.block if body else None)
        answer = rows.responses.get((chain, foreign, 2 * channel + 1, nonce))
        if answer is None:
            return
        ok = answer["error"] == OK
        payload = body.message.payload if body else None
        if isinstance(payload, ChannelOpen) and ok:
            limit = rows.channels[chain, foreign, channel]["max_outgoing"]
            self.log("ChannelOpen", chain, foreign=chain_of(foreign), channel_id=channel, limit=limit)
        if isinstance(payload, ChannelClose) and ok:
            self._closed(chain, foreign, channel, notices, rows)
        amount = self._sent.get((foreign, chain, channel, nonce), 0)
        if isinstance(payload, EndpointCall):
            self.log("FeeMint", chain, **where, amount=answer["fee"])
            if ok and amount:
                self.log("Transfer", chain, **where, kind="in", amount=amount)
        value = self._values.get((chain, responses_key(chain_of(foreign), channel, nonce)))
        hashed = b"not stored" if value is None else blake2b(value)
        result = NUMBERED.get(ERROR_NAMES[answer["error"]], ERROR_NAMES[answer["error"]]) or "Ok"
        if ok and isinstance(payload, EndpointCall) and program_failed(answer["payload"]):
            result = "Other"
        self.log("InboxMessageResponse", chain, **where, payload_hash=hashed, result=result)
        back = answered_amount(answer["payload"]) if ok and isinstance(payload, EndpointCall) else 0
        self._back[chain, foreign, channel, nonce] = back
        if back:
            self.log("Transfer", chain, **{**where, "channel_id": -1 - channel}, kind="out", amount=back)

    def _settled(self, chain: int, foreign: int, channel: int, nonce: int, tags: dict[Any, str], rows: Rows) -> None:
        body = self.bodies.get(("response", chain_of(foreign), chain_of(chain), channel, nonce))
        hashed = b"not shown" if body is None else blake2b(body.payload)
        reply = None if body is None else body.message.payload
        result = "" if reply is None else result_of(reply)
        ok = result == "Ok"
        if isinstance(reply, EndpointResponse) and isinstance(reply.result, bytes) and program_failed(reply.result):
            result = "Other"
        where = {"foreign": chain_of(foreign), "channel_id": channel, "nonce": nonce}
        self.log("OutboxMessageResponse", chain, **where, payload_hash=hashed, result=result)
        own = rows.gone_requests.get((chain, foreign, 2 * channel, nonce))
        if own is None:
            return
        state = rows.channels[chain, foreign, channel]["state"]
        was = rows.old_channels[chain, foreign, channel]["state"]
        if own["asked"] == RequestKind.CHANNEL_OPEN and was == ChannelState.INITIATED and state == ChannelState.OPEN:
            limit = rows.channels[chain, foreign, channel]["max_outgoing"]
            self.log("ChannelOpen", chain, foreign=chain_of(foreign), channel_id=channel, limit=limit)
        wrong = tags.get((foreign, channel, nonce)) if result == "Ok" or own["asked"] == RequestKind.ENDPOINT else None
        if own["asked"] != RequestKind.CHANNEL_OPEN and wrong == "InvalidChannelState":
            wrong = None  # it is that of a call to close the channel
        self.log("OutboxMessageResult", chain, **where, result=wrong or "Ok")
        if wrong or body is None or not isinstance(body.message.payload, EndpointResponse):
            return
        amount = self._sent.get((chain, foreign, channel, nonce), 0)
        if not ok and amount:
            self.log("Transfer", chain, **where, kind="back", amount=amount)
        back = self._back.get((foreign, chain, channel, nonce), 0)
        if ok and back:
            self.log("Transfer", chain, **{**where, "channel_id": -1 - channel}, kind="in", amount=back)

    def _answered_calls(self) -> None:
        """What programs were told of their calls to other chains."""
        for row in row_dicts(self.net.events(last=True)):
            name = row["receiver"], row["callback"]
            if row["events"] & Bit.ANSWERED and row["via"] in (Via.LANE, Via.SYNTHETIC) and name in self._called:
                # The chain itself makes the answer to a call that it gives up.
                (host,) = self.net.kernel.network.host_of(np.array([row["sender"]], dtype=np.uint64)).tolist()
                where = {"foreign": chain_of(host), "by": account(name[0]), "nonce": name[1]}
                self.log("CallAnswered", row["chain"], **where, result="Err" if row["code"] else "Ok")

    def _paid(self, chain: int, rows: Rows) -> None:
        """What operators have more than before is told per channel as it is due; what is left over, of the first."""
        due: dict[tuple[int, int], int] = defaultdict(int)
        deleted = [row for row in rows.gone_responses if row["source"] == chain]
        deleted.sort(key=lambda row: (row["destination"], row["substream"], -row["index"]))
        for row in deleted:
            where = {"foreign": chain_of(row["destination"]), "channel_id": row["substream"] >> 1}
            self.log("ResponseDeleted", chain, **where, nonce=row["index"])
            due[row["destination"], row["substream"] >> 1] += row["fee"]
        for (source, foreign, lane, _), row in rows.gone_requests.items():
            if source == chain:
                due[foreign, lane >> 1] += row["src_fee"]
        operators = self.net.state["operators"]
        mine = operators.filter(operators["chain"] == chain)
        total = sum(join_words(mine, "balance"))
        left = total - self._operators.get(chain, 0)
        self._operators[chain] = total
        left -= sum(due.values())
        for (foreign, channel), amount in sorted(due.items()):
            amount, left = amount + left, 0
            if not amount:
                continue
            self.log("FeePay", chain, foreign=chain_of(foreign), channel_id=channel, nonce=0, amount=amount)
        if left:
            self.log("FeePay", chain, foreign=chain, channel_id=0, nonce=0, amount=left)

    def _log_refused(self, chain: int) -> None:
        for row in self._refusals():
            if (
                row["chain"] == chain == row["destination"]
                and row["via"] == Via.LANE
                and not row["events"] & Bit.RECEIVED
            ):
                kind = "relay_message_response" if row["substream"] & 1 else "relay_message"
                where = {"foreign": chain_of(row["source"]), "channel_id": row["substream"] >> 1, "nonce": row["index"]}
                error = NUMBERED.get(row["reason"], row["reason"])
                self.log("Refused", chain, **where, call=kind, error=error, relayer="carrier")

    # ---- the record

    def record(self) -> Record:
        return record_of(self.net, list(self.events), dict(self.supply), dict(self.issuance))
