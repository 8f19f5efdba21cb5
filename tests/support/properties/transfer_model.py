"""Token transfer between zones as plain dictionaries: what the programs and the kernel must amount to, written apart.

A token is a tuple: the programs through which it came, the last one first, then its name at home. All zones make a
block together; what one sends in a block the others take in the next, remotes in ascending order, packets before
receipts; then come refusals of its own zone, then users.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Token = tuple[Any, ...]


@dataclass(frozen=True)
class Order:
    """What a user of ``zone`` asks for: "mint", "send" or "transfer" (``to`` a zone)."""

    zone: int
    user: int
    method: str
    token: Token
    amount: int
    receiver: str = ""
    to: int = 0


@dataclass(frozen=True)
class Packet:
    """On its way, from the zone whose callback it carries."""

    callback: int
    token: Token
    amount: int
    receiver: str


@dataclass
class Zone:
    """A zone's books."""

    held: Counter[tuple[int, Token]] = field(default_factory=Counter)
    escrow: Counter[tuple[int, Token]] = field(default_factory=Counter)
    open: dict[int, tuple[int, int, Token, int]] = field(default_factory=dict)
    calls: int = 0
    refused: int = 0


class Model:
    """``connected``: pairs of zones, both ways. ``blocked``: users that no zone credits."""

    def __init__(self, zones: int, connected: Collection[tuple[int, int]], blocked: Collection[int]) -> None:
        self.zones = [Zone() for _ in range(zones)]
        self.connected, self.blocked = connected, blocked
        self.packets: dict[tuple[int, int], list[Packet]] = {}
        self.receipts: dict[tuple[int, int], list[tuple[int, bool]]] = {}
        self.refusals: dict[int, list[int]] = {}
        self.delivered: set[tuple[int, int]] = set()
        self.minted: Counter[tuple[int, str]] = Counter()

    def block(self, orders: Sequence[Order]) -> None:
        """Run one block of all zones."""
        taken, answered, refused = self.packets, self.receipts, self.refusals
        self.packets, self.receipts, self.refusals = defaultdict(list), defaultdict(list), defaultdict(list)
        for number, zone in enumerate(self.zones):
            for remote in range(len(self.zones)):
                for packet in taken.get((remote, number), ()):
                    good = self._receive(number, remote, packet)
                    self.receipts[number, remote].append((packet.callback, good))
                    if good:
                        self.delivered.add((remote, packet.callback))
                for callback, good in answered.get((remote, number), ()):
                    self._end(zone, callback, good)
            for callback in refused.get(number, ()):
                self._end(zone, callback, False)
            for order in orders:
                if order.zone == number and not self._obey(zone, order):
                    zone.refused += 1

    def idle(self) -> bool:
        return not any(zone.open for zone in self.zones)

    def under_way(self) -> Counter[tuple[int, str]]:
        """What left an account and has come to no other, by zone at home and name."""
        found: Counter[tuple[int, str]] = Counter()
        for number, zone in enumerate(self.zones):
            for callback, (_, _, token, amount) in zone.open.items():
                if (number, callback) not in self.delivered:
                    found[home(number, token)] += amount
        return found

    def _creditable(self, receiver: str) -> bool:
        return receiver.isdecimal() and int(receiver) not in self.blocked

    def _receive(self, number: int, remote: int, packet: Packet) -> bool:
        zone = self.zones[number]
        if not self._creditable(packet.receiver):
            return False
        if packet.token[0] == number:
            token = packet.token[1:]
            if zone.escrow[remote, token] < packet.amount:
                return False
            zone.escrow[remote, token] -= packet.amount
        else:
            token = (remote, *packet.token)
        zone.held[int(packet.receiver), token] += packet.amount
        return True

    def _end(self, zone: Zone, callback: int, good: bool) -> None:
        user, peer, token, amount = zone.open.pop(callback)
        if not good:
            zone.held[user, token] += amount
            if token[0] != peer:
                zone.escrow[peer, token] -= amount

    def _obey(self, zone: Zone, order: Order) -> bool:
        user, token, amount = order.user, order.token, order.amount
        if order.method == "mint":
            if user in self.blocked or len(token) > 1:
                return False
            zone.held[user, token] += amount
            self.minted[order.zone, token[0]] += amount
            return True
        if zone.held[user, token] < amount or (order.method == "transfer" and order.to == order.zone):
            return False
        if order.method == "send":
            if not self._creditable(order.receiver):
                return False
            zone.held[user, token] -= amount
            zone.held[int(order.receiver), token] += amount
            return True
        zone.held[user, token] -= amount
        if token[0] != order.to:
            zone.escrow[order.to, token] += amount
        zone.open[zone.calls] = user, order.to, token, amount
        if (order.zone, order.to) in self.connected:
            self.packets[order.zone, order.to].append(Packet(zone.calls, token, amount, order.receiver))
        else:
            self.refusals[order.zone].append(zone.calls)
        zone.calls += 1
        return True


def home(number: int, token: Token) -> tuple[int, str]:
    """Return where a token that zone ``number`` keeps is at home, and its name there."""
    return (token[-2] if len(token) > 1 else number), token[-1]


def denomination(token: Token) -> str:
    """Return the token as programs name it."""
    return "".join(f"transfer/channel-{peer}/" for peer in token[:-1]) + str(token[-1])


def books_of_model(zone: Zone) -> dict[str, Any]:
    """Return what the program's books must say of accounts, escrow, supply and open transfers."""
    accounts: dict[str, dict[int, int]] = {}
    escrow: dict[int, dict[str, int]] = {}
    supply: Counter[str] = Counter()
    for (user, token), amount in zone.held.items():
        if amount:
            accounts.setdefault(denomination(token), {})[user] = amount
            supply[denomination(token)] += amount
    for (peer, token), amount in zone.escrow.items():
        if amount:
            escrow.setdefault(peer, {})[denomination(token)] = amount
            supply[denomination(token)] += amount
    transfers: Mapping[int, list[Any]] = {
        callback: [user, peer, denomination(token), amount]
        for callback, (user, peer, token, amount) in zone.open.items()
    }
    return {"accounts": accounts, "escrow": escrow, "supply": dict(supply), "open": transfers}
