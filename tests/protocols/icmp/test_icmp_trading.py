"""Trading of bodies for tickets: columns against sequential nodes, honest and selfish."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest

from causeway.core.frame import Frame
from causeway.gossip.tickets.trading import OFFER, REQUEST, TicketOptions, TradeInputs, Trades, find_due, trade
from tests.spec.icmp.trading import Trader
from tests.tiers import sized

OPTIONS = TicketOptions.model_validate({"mode": "on", "credit": 2, "credit_limit": 5, "patience": 400})
QUEUES = 8


def frame(rows: list[tuple[int, ...]], **kinds: type) -> Frame:
    columns = zip(*rows, strict=True) if rows else [[] for _ in kinds]
    named = zip(kinds.items(), columns, strict=True)
    return Frame({name: np.array(list(column), dtype=kind) for (name, kind), column in named}, len(rows))


def rows_of(rows: Frame, *names: str) -> list[tuple[int, ...]]:
    return [*zip(*(rows[name].tolist() for name in names), strict=True)]


@dataclass
class Gossip:
    """Gossip state of all nodes."""

    pools: dict[int, set[int]]
    expected: dict[int, set[int]]
    peers: dict[int, set[int]]

    def has(self, node: np.ndarray, queue: np.ndarray) -> np.ndarray:
        return self._asked(self.pools, node, queue)

    def expects(self, node: np.ndarray, queue: np.ndarray) -> np.ndarray:
        return self._asked(self.expected, node, queue)

    def is_connected(self, node: np.ndarray, peer: np.ndarray) -> np.ndarray:
        return self._asked(self.peers, node, peer)

    def _asked(self, table: dict[int, set[int]], node: np.ndarray, of: np.ndarray) -> np.ndarray:
        return np.array([b in table[a] for a, b in zip(node.tolist(), of.tolist(), strict=True)], dtype=bool)


@dataclass
class Mail:
    """In-flight messages of nodes: rows of destination, source and the rest."""

    offers: list[tuple[int, ...]] = field(default_factory=list)
    requests: list[tuple[int, ...]] = field(default_factory=list)
    deliveries: list[tuple[int, ...]] = field(default_factory=list)
    judged: list[tuple[int, ...]] = field(default_factory=list)
    tickets: list[tuple[int, ...]] = field(default_factory=list)
    offered: list[tuple[int, ...]] = field(default_factory=list)


def run_columns(trades: Trades, mail: Mail, gossip: Gossip, time: int) -> tuple[Trades, list[list[tuple[int, ...]]]]:
    u32, u64 = np.uint32, np.uint64
    tenders: list[tuple[int, ...]] = []
    for kind, rows in ((int(OFFER), mail.offers), (int(REQUEST), mail.requests)):
        tenders += [(node, peer, kind, queue) for node, peer, queue in rows]
    deliveries = frame(mail.deliveries, node=u32, peer=u32, queue=u64, serial=u64)
    tickets = frame(mail.tickets, node=u32, peer=u32, serial=u64)
    inputs = TradeInputs(
        tenders=frame(tenders, node=u32, peer=u32, kind=np.uint8, queue=u64),
        deliveries=deliveries.with_columns(commitment=np.zeros((len(deliveries), 32), dtype=np.uint8)),
        judged=frame(mail.judged, node=u32, peer=u32, queue=u64, good=bool),
        tickets=tickets.filter(find_due(trades, tickets) >= 0),
        offered=frame(mail.offered, node=u32, peer=u32, queue=u64),
    )
    trades, out = trade(trades, inputs, gossip, time, OPTIONS)
    requests = out.tenders.filter(out.tenders["kind"] == REQUEST)
    assert rows_of(out.tenders.filter(out.tenders["kind"] == OFFER), "node", "peer", "queue") == mail.offered
    return trades, [
        sorted(rows_of(requests, "node", "peer", "queue")),
        sorted(rows_of(out.deliveries, "node", "peer", "queue", "serial")),
        sorted(rows_of(out.promises, "node", "peer", "queue", "serial")),
    ]


def run_one_by_one(traders: dict[int, Trader], mail: Mail, gossip: Gossip, time: int) -> list[list[tuple[int, ...]]]:
    requests, deliveries, promises = [], [], []
    for node, trader in traders.items():
        mine = {name: [row[1:] for row in rows if row[0] == node] for name, rows in vars(mail).items()}
        pool, expected, peers = gossip.pools[node], gossip.expected[node], gossip.peers[node]
        for ticket in mine["tickets"]:
            trader.on_ticket(*ticket)
        for delivery in mine["deliveries"]:
            trader.on_delivery(*delivery)
        for peer, queue, good in mine["judged"]:
            if serial := trader.on_body(peer, queue, good):
                promises.append((node, peer, queue, serial))
        lapsed = trader.lapse(time, expected, peers)
        trader.on_offers(mine["offers"] + [(peer, queue) for queue, peer in lapsed], time, pool, expected, peers)
        requests += [(node, *row) for row in trader.request(time)]
        deliveries += [(node, *row) for row in trader.serve(mine["requests"], time, pool, peers)]
    return [sorted(requests), sorted(deliveries), sorted(promises)]


def compare_trading(seed: int) -> dict[str, int]:
    """Play a network by columns and sequentially, and return event counts."""
    random = Random(seed)
    count = random.randint(3, 7)
    nodes = range(count)
    withholding = {node for node in nodes if random.random() < 0.3}
    lying = {node for node in nodes if random.random() < 0.3}
    gossip = Gossip(
        {node: set() for node in nodes},
        {node: set(range(QUEUES)) for node in nodes},
        {node: set(nodes) - {node} for node in nodes},
    )
    traders = {node: Trader(OPTIONS.credit, OPTIONS.credit_limit, OPTIONS.patience) for node in nodes}
    trades, under_way = Trades(), [Mail()]
    happened = dict.fromkeys(("requests", "deliveries", "promises", "lied", "unpaid"), 0)
    for queue in range(QUEUES):
        owner = random.choice(nodes)
        gossip.pools[owner].add(queue)
        under_way[0].offered += [(owner, peer, queue) for peer in nodes if peer != owner]
    for step in range(40):
        mail = under_way.pop(0) if under_way else Mail()
        time = 100 * step
        for node, peer, queue, good in mail.judged:
            if good and queue not in gossip.pools[node]:
                gossip.pools[node].add(queue)
                mail.offered += [(node, other, queue) for other in nodes if other not in (node, peer)]
        if random.random() < 0.1:
            node, queue = random.choice(nodes), random.randrange(QUEUES)
            gossip.expected[node].discard(queue)
            gossip.pools[node].discard(queue)
        if random.random() < 0.1:
            one, other = random.sample(nodes, 2)
            gossip.peers[one].discard(other)
            gossip.peers[other].discard(one)
        mail.offered.sort()
        wanted = run_one_by_one(traders, mail, gossip, time)
        trades, found = run_columns(trades, mail, gossip, time)
        assert found == wanted, f"seed {seed}, step {step}"
        assert_bounded(trades, traders)
        requests, deliveries, promises = found
        while len(under_way) < 4:
            under_way.append(Mail())

        def later() -> Mail:
            # Links preserve order only by step: messages sent together may arrive some steps apart.
            return under_way[min(random.randint(0, 3), random.randint(0, 3))]

        for node, peer, queue in mail.offered:
            if node not in lying or random.random() < 0.5:
                later().offers.append((peer, node, queue))
        for node, peer, queue in requests:
            if random.random() < 0.9:
                later().requests.append((peer, node, queue))
        for node, peer, queue, serial in deliveries:
            at = later()
            at.deliveries.append((peer, node, queue, serial))
            at.judged.append((peer, node, queue, node not in lying))
            happened["lied"] += node in lying
        for node, peer, _, serial in promises:
            if node in withholding:
                happened["unpaid"] += 1
            else:
                later().tickets += [(peer, node, serial)] * random.choice((1, 1, 2))
            if random.random() < 0.2:
                later().tickets.append((peer, node, serial + random.randint(1, 3)))
        for mail in under_way:
            mail.tickets = list(dict.fromkeys(mail.tickets))
        for name, rows in (("requests", requests), ("deliveries", deliveries), ("promises", promises)):
            happened[name] += len(rows)
    return happened


def assert_bounded(trades: Trades, traders: dict[int, Trader]) -> None:
    """Assert that unpaid deliveries of each peer are within its credit, and that tables equal the nodes."""
    due: dict[tuple[int, int], int] = {}
    for node, peer in rows_of(trades.due, "node", "peer"):
        due[node, peer] = due.get((node, peer), 0) + 1
    paid = {(node, peer): number for node, peer, number in rows_of(trades.accounts, "node", "peer", "paid")}
    for pair, number in due.items():
        assert number <= min(OPTIONS.credit + paid[pair], OPTIONS.credit_limit)
    assert rows_of(trades.due, "node", "peer", "serial", "queue") == sorted(
        (node, *key, queue) for node, trader in traders.items() for key, queue in trader.due.items()
    )
    assert sorted(rows_of(trades.asked, "node", "queue", "peer", "open")) == sorted(
        (node, *key, int(asked.open)) for node, trader in traders.items() for key, asked in trader.asked.items()
    )


@pytest.mark.parametrize("part", range(2))
def test_columns_trade_like_sequential_nodes(part: int) -> None:
    total: dict[str, int] = {}
    for seed in range(part * 1_000, part * 1_000 + sized(6, 100)):
        for name, number in compare_trading(seed).items():
            total[name] = total.get(name, 0) + number
    assert all(total.values()), total
