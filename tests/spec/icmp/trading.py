"""Trading of bodies for tickets (5.1, 5), one node at a time: the rules of offers, requests, credit and tickets.

Decisions.
- A node requests a queue from the first peer that offered it; of offers of one time from the lowest peer.
- A request stays payable after its patience: a good body that comes late has a ticket, too.
- Who asks gives up after ``patience``; who is asked gives up after half of it, so that no body crosses the next
  request.
- A body that was not requested has no ticket, and neither has one that is not good; then the next peer is asked.
- A peer is distrusted from a request that lapsed, or got another body, until a good body of it comes: who is trusted is
  asked first, and a request to who is not does not count as open for those who are.
"""

from dataclasses import dataclass, field


@dataclass
class Request:
    since: int
    open: bool = True
    serial: int = 0


@dataclass
class Account:
    serial: int = 0
    paid: int = 0


@dataclass
class Trader:
    """One node. ``pool``, ``expected`` and ``peers`` are what gossip knows, as it is after the gossip step."""

    credit: int
    credit_limit: int
    patience: int
    offers: dict[int, dict[int, int]] = field(default_factory=dict)
    """By queue and peer, since when."""
    asked: dict[tuple[int, int], Request] = field(default_factory=dict)
    """By queue and peer."""
    orders: dict[tuple[int, int], int] = field(default_factory=dict)
    """By peer and queue, since when."""
    due: dict[tuple[int, int], int] = field(default_factory=dict)
    """By peer and serial number: the queue."""
    accounts: dict[int, Account] = field(default_factory=dict)
    distrusted: set[int] = field(default_factory=set)
    bad: set[int] = field(default_factory=set)
    """Peers whose bodies were bad in this step: they count after the good ones."""

    def on_ticket(self, peer: int, serial: int) -> bool:
        if (peer, serial) not in self.due:
            return False
        del self.due[peer, serial]
        self.accounts[peer].paid += 1
        return True

    def on_delivery(self, peer: int, queue: int, serial: int) -> None:
        if (queue, peer) in self.asked:
            self.asked[queue, peer].serial = serial

    def on_body(self, peer: int, queue: int, good: bool) -> int | None:
        """Return the serial number that is paid."""
        request = self.asked.pop((queue, peer), None)
        if request is None:
            return None
        if not good:
            self.bad.add(peer)
            return None
        if request.serial:
            self.distrusted.discard(peer)
        return request.serial or None

    def lapse(self, time: int, expected: set[int], peers: set[int]) -> list[tuple[int, int]]:
        lapsed = []
        self.distrusted |= self.bad
        self.bad.clear()
        for (queue, peer), request in sorted(self.asked.items()):
            late = request.since + self.patience <= time
            if peer not in peers or (late and queue not in expected):
                del self.asked[queue, peer]
            elif late and request.open:
                request.open = False
                self.distrusted.add(peer)
                lapsed.append((queue, peer))
        return lapsed

    def on_offers(self, offers: list[tuple[int, int]], time: int, pool: set[int], expected: set[int], peers: set[int]):
        for peer, queue in offers:
            self.offers.setdefault(queue, {}).setdefault(peer, time)
        for queue in list(self.offers):
            useful = queue in expected and queue not in pool
            self.offers[queue] = {p: at for p, at in self.offers[queue].items() if useful and p in peers}
            if not self.offers[queue]:
                del self.offers[queue]

    def request(self, time: int) -> list[tuple[int, int]]:
        made = []
        for queue in sorted(self.offers):
            open_ = {peer for (of, peer), asked in self.asked.items() if of == queue and asked.open}
            offers = self.offers[queue]
            peer = min(offers, key=lambda peer: (peer in self.distrusted, offers[peer], peer))
            if open_ - self.distrusted or (open_ and peer in self.distrusted):
                continue
            del self.offers[queue][peer]
            if not self.offers[queue]:
                del self.offers[queue]
            self.asked[queue, peer] = Request(time)
            made.append((peer, queue))
        return made

    def serve(self, requests: list[tuple[int, int]], time: int, pool: set[int], peers: set[int]):
        """Return what is delivered: peer, queue, serial number."""
        for peer, queue in requests:
            self.orders.setdefault((peer, queue), time)
        unpaid = {(peer, queue) for (peer, _), queue in self.due.items()}
        for (peer, queue), since in list(self.orders.items()):
            fits = queue in pool and peer in peers and since + self.patience // 2 > time
            if not fits or (peer, queue) in unpaid:
                del self.orders[peer, queue]
        delivered = []
        for (peer, queue), _ in sorted(self.orders.items(), key=lambda item: (item[0][0], item[1], item[0][1])):
            account = self.accounts.setdefault(peer, Account())
            limit = min(account.paid + self.credit, self.credit_limit)
            if sum(of == peer for of, _ in self.due) < limit:
                account.serial += 1
                self.due[peer, account.serial] = queue
                del self.orders[peer, queue]
                delivered.append((peer, queue, account.serial))
        return delivered
