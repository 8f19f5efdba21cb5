"""Checks of cross-domain messaging over the kernel's state after every block, and over all events of a run.

``Sums`` has the issued and transferred amounts (G7), the books of the consensus chain (G8) and reserved fees (3.8).
``Record`` checks order, answers, finality and acknowledgements (G1, G3, G4, G6, G10) from tables and events.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.core.frame import Frame
from causeway.core.joins import lookup_rows
from causeway.protocols.shared.contents import ANSWER, decode_contents
from causeway.protocols.shared.messages import LANE
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.errors import OK
from causeway.protocols.xdm.state import ChannelState, State, lane_channels
from causeway.protocols.xdm.tables import CHANNEL, INDEXED
from causeway.protocols.xdm.value.balances import join_words
from causeway.protocols.xdm.value.books import Book
from tests.support.xdm.xdm_network import Network


def issued(state: State) -> dict[int, int]:
    """Return what every chain says that it has issued."""
    money = state["money"]
    return dict(zip(money["chain"].tolist(), join_words(money, "issuance"), strict=True))


def on_its_way(state: State) -> int:
    """Return the value that has left a chain and has not come to the other: with requests, and with answers."""
    outbox, responses, channels = state["outbox"], state["responses"], state["channels"]
    total = 0
    amounts = join_words(outbox, "amount")
    received = _next(channels, outbox, "next_inbox")
    for row, (index, fee) in enumerate(zip(outbox["index"].tolist(), outbox["dst_fee"].tolist(), strict=True)):
        if index >= received[row]:
            total += fee + amounts[row]
    answered = _next(channels, responses, "next_response")
    asked = Frame(
        {
            "source": responses["destination"],
            "destination": responses["source"],
            "substream": responses["substream"] & ~np.uint64(1),
            "index": responses["index"],
        },
        len(responses),
    )
    own = lookup_rows(outbox, asked, INDEXED).tolist()
    variant, contents = decode_contents(responses["payload"].cast(pa.large_binary()))
    given = join_words(contents, "amount")
    rows = zip(responses["index"].tolist(), responses["error"].tolist(), variant.tolist(), strict=True)
    for row, (index, error, kind) in enumerate(rows):
        if index < answered[row]:
            continue
        if error != OK:
            total += amounts[own[row]]
        elif kind == ANSWER:
            total += given[row]
    return total


def _next(channels: Frame, rows: Frame, name: str) -> list[int]:
    """Return what the other side of each row's channel expects next."""
    asked = Frame(
        {"chain": rows["destination"], "foreign": rows["source"], "channel": lane_channels(rows["substream"])},
        len(rows),
    )
    at = lookup_rows(channels, asked, CHANNEL)
    found = channels[name][at] if len(channels) else np.zeros(len(rows), dtype=np.uint64)
    return [int(value) if row >= 0 else 0 for value, row in zip(found.tolist(), at.tolist(), strict=True)]


def supply(state: State) -> int:
    """Return all value that there is, and what was burned of it: a constant (G7)."""
    return sum(issued(state).values()) + on_its_way(state) + sum(join_words(state["money"], "burned"))


class Sums:
    """Conservation: ``check`` is called after every block."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.supply = supply(net.state)
        self.issued_at: dict[tuple[int, int], int] = {}
        self._keep()

    def _keep(self) -> None:
        tips = self.net.state["tips"]
        now = issued(self.net.state)
        for chain, number in zip(tips["chain"].tolist(), tips["number"].tolist(), strict=True):
            self.issued_at[chain, number] = now[chain]

    def check(self) -> None:
        """Everything that there was is there, is in the books, and is held for whom it is held."""
        state = self.net.state
        assert supply(state) == self.supply, "value was made or lost (G7)"
        self._keep()
        confirmed, books = state["confirmed"], state["books"]
        balances = books.filter(books["what"] == Book.BALANCE)
        booked = dict(zip(balances["source"].tolist(), join_words(balances, "amount"), strict=True))
        for domain, number in zip(confirmed["domain"].tolist(), confirmed["number"].tolist(), strict=True):
            assert booked.get(domain, 0) == self.issued_at[domain, number], "a book is not what is issued (G8)"
        money, chains = state["money"], state["money"]["chain"].tolist()
        for name, table, column in (("outbox_held", "outbox", "src_fee"), ("inbox_held", "responses", "fee")):
            held: dict[int, int] = defaultdict(int)
            for chain, fee in zip(state[table]["source"].tolist(), state[table][column].tolist(), strict=True):
                held[chain] += fee
            assert join_words(money, name) == [held[chain] for chain in chains], f"{name} is not what messages hold"
        self._check_parts()

    def _check_parts(self) -> None:
        """What is issued is somebody's: a program's, an operator's, held, or on its way in the chain itself."""
        state, kernel = self.net.state, self.net.kernel
        queues = state["queues"]
        busy = set(queues["source"][queues["next_index"] > queues["begin"]].tolist())
        parts: dict[int, int] = defaultdict(int)
        accounts = state["accounts"]
        for host, amount in zip(
            kernel.network.host_of(accounts["program"]).tolist(), join_words(accounts, "balance"), strict=True
        ):
            parts[host] += amount
        for table, owner, column in (("operators", "chain", "balance"), ("waiting", "source", "amount")):
            for chain, amount in zip(state[table][owner].tolist(), join_words(state[table], column), strict=True):
                parts[chain] += amount
        money = state["money"]
        for name in ("inbox_held", "outbox_held", "reserved", "root"):
            for chain, amount in zip(money["chain"].tolist(), join_words(money, name), strict=True):
                parts[chain] += amount
        for chain, amount in issued(state).items():
            if chain not in busy:
                assert parts[chain] == amount, f"{self.net.names[chain]}: what is issued is nobody's"


class Record:
    """What tables say of messages from block to block; ``check`` is called after every block."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.before = net.state
        self.sent: dict[tuple[int, ...], tuple[int, bytes]] = {}
        """Lane and nonce of a request -> the block that made it, and its content."""
        self.acknowledged: dict[tuple[int, ...], int] = {}
        self._last: dict[tuple[int, ...], int] = {}
        self.requests, self.responses = 0, 0
        self._at: dict[int, tuple[Any, ...]] = {}
        self._keep()

    def check(self) -> None:
        """Judge the last block; what was known of blocks that a fork has taken back is forgotten."""
        state, back = self.net.state, self.net.gone_back_to()
        if back is None:
            self._keep_sent(state)
            self._channels(state)
        else:
            known = self._at[back]
            self.sent, self.acknowledged, self._last = (dict(one) for one in known[:3])
            self.requests, self.responses = known[3:]
        self.before = state
        self._keep()

    def _keep(self) -> None:
        known = (dict(self.sent), dict(self.acknowledged), dict(self._last), self.requests, self.responses)
        self._at[self.net.height] = known

    def _keep_sent(self, state: State) -> None:
        for name in ("outbox", "responses"):
            rows = state[name]
            lanes = [rows[key].tolist() for key in (*LANE, "index")]
            known = self._last.copy()
            columns = (rows["sent"].tolist(), rows["payload"].to_pylist())
            acknowledges = rows["next_response"].tolist() if name == "outbox" else [0] * len(rows)
            for *key, sent, payload, next_response in zip(*lanes, *columns, acknowledges, strict=True):
                made = self.sent.setdefault(tuple(key), (sent, payload))
                assert made == (sent, payload), "a message that was made does not change (G2)"
                lane = tuple(key[:3])
                if key[3] > known.get(lane, -1):
                    assert next_response >= self.acknowledged.get(lane, 0), "acknowledgements go on (G10)"
                    self.acknowledged[lane], self._last[lane] = next_response, key[3]

    def _channels(self, state: State) -> None:
        before = self.before["channels"]
        channels = state["channels"]
        old = lookup_rows(before, channels, CHANNEL)
        names = (*CHANNEL, "state", "next_inbox", "next_outbox", "next_response", "count", "max_outgoing")
        rows = zip(*(channels[name].tolist() for name in names), old.tolist(), strict=True)
        answers = self._present(state["responses"])
        requests = self._present(state["outbox"])
        for chain, foreign, channel, now, inbox, outbox, response, count, most, was in rows:
            last: dict[str, Any] = {
                name: int(before[name][was]) if was >= 0 else 0
                for name in ("next_inbox", "next_outbox", "next_response")
            }
            assert inbox >= last["next_inbox"], "nonces go on"
            assert response >= last["next_response"], "nonces go on"
            assert outbox >= last["next_outbox"], "nonces go on"
            if was >= 0:
                step = (int(before["state"][was]), now)
                assert step[0] == step[1] or step[0] < step[1], f"a channel goes on (G5): {step}"
            assert response <= outbox, "a response is of a request"
            own = (chain, foreign, 2 * channel)
            # Requests without a response are the whole outbox of the channel, and no more than allowed (G3, G6).
            assert requests.get(own, []) == list(range(response, outbox)), "the outbox has what is not answered (G3)"
            assert count == outbox - response
            assert count <= most, "no more than allowed wait for responses (G6)"
            back = (chain, foreign, 2 * channel + 1)
            kept = answers.get(back, [])
            assert kept == list(range(kept[0] if kept else inbox, inbox)), "one answer each, in order (G1, G3)"
            for nonce in range(last["next_inbox"], inbox):
                self._final((foreign, chain, 2 * channel, nonce), "request")
                assert nonce in kept, "a request has its response in the same block (G3)"
                self.requests += 1
            for nonce in range(last["next_response"], response):
                self._final((foreign, chain, 2 * channel + 1, nonce), "response")
                self.responses += 1
            if now == ChannelState.INITIATED:
                assert inbox == 0, "nothing comes to a channel that is not open (G5)"

    def _present(self, rows: Frame) -> dict[tuple[int, ...], list[int]]:
        found: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for *lane, index in zip(*(rows[key].tolist() for key in (*LANE, "index")), strict=True):
            found[tuple(lane)].append(index)
        return found

    def _final(self, key: tuple[int, ...], what: str) -> None:
        """A message was processed: it was made, and its block has been final for long enough (G1, G2, G4)."""
        assert key in self.sent, f"a {what} was processed that nobody made (G2): {key}"
        options = self.net.kernel.options
        wait = options.archiving_depth
        if key[0] != CONSENSUS_POSITION:
            wait += options.challenge_period
        number = self.net.tick + 1
        assert number - self.sent[key][0] >= wait, f"a {what} was processed before its block is final (G4): {key}"
