"""Accounts of relay processes on both chains (3.5, 3.6): balances, fees, rewards, and who has stopped.

A zone takes no call of a relayer that cannot pay the fee. What it collects is its own, and pays the rewards.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.spec.ibc.events import Funded, OutOfFunds

HEADERS = ("updateHeader", "submitMisbehaviour")
"""Calls that cost the fee of a header."""

Account = tuple[str, str]
"""(zone, relayer)."""


@dataclass
class Accounts:
    """The accounts on all zones.

    `relayers`: in the order in which rewards are paid. `initial`: relayer -> balance on every zone at genesis.
    `reward`: of a message that took effect, paid every `reward_every` blocks. `budgets`: relayer -> (amount, period): a
    sponsor pays that on every zone once a period. `deposits`: (zone, relayer, tick) -> amount.
    """

    zones: Sequence[str]
    relayers: Sequence[str]
    initial: Mapping[str, int]
    header_fee: int = 100
    proof_fee: int = 20
    reward: int = 0
    reward_every: int = 1
    budgets: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    deposits: Mapping[tuple[str, str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        accounts = [(zone, relayer) for zone in self.zones for relayer in self.relayers]
        self.balance = {account: self.initial[account[1]] for account in accounts}
        self.deposited = dict(self.balance)
        self.collected = dict.fromkeys(self.zones, 0)
        self.fees: Counter[Account] = Counter()
        self.earned: Counter[Account] = Counter()
        self.owed: Counter[Account] = Counter()
        self.stops: Counter[Account] = Counter()
        self.stopped: dict[Account, int] = {}
        self.short: set[Account] = set()
        self.paying: set[Account] = set()

    def price(self, call: str) -> int:
        """What a call costs, whatever becomes of it."""
        return self.header_fee if call in HEADERS else self.proof_fee

    def begin_block(self, zone: str, height: int, tick: int) -> None:
        """Budgets and deposits come in before all calls."""
        self.short, self.paying = set(), set()
        for relayer in self.relayers:
            amount, period = self.budgets.get(relayer, (0, 1))
            paid = amount if height % period == 0 else 0
            paid += self.deposits.get((zone, relayer, tick), 0)
            self.balance[zone, relayer] += paid
            self.deposited[zone, relayer] += paid

    def covers(self, zone: str, relayer: str, amount: int) -> bool:
        """Whether a relayer has that much; it is short of funds if not."""
        if self.balance[zone, relayer] < amount:
            self.short.add((zone, relayer))
            return False
        return True

    def pay(self, zone: str, relayer: str, call: str) -> bool:
        """Take the fee of a call, which is not made if the relayer cannot pay."""
        if not self.covers(zone, relayer, self.price(call)):
            return False
        self.balance[zone, relayer] -= self.price(call)
        self.collected[zone] += self.price(call)
        self.fees[zone, relayer] += self.price(call)
        self.paying.add((zone, relayer))
        return True

    def took_effect(self, zone: str, relayer: str, call: str) -> None:
        """A reward is due for a message, none for a header."""
        if call not in HEADERS:
            self.owed[zone, relayer] += self.reward

    def end_block(self, zone: str, height: int) -> Iterator[OutOfFunds | Funded]:
        """Rewards are paid when it is time, as far as what the zone has collected holds out."""
        for relayer in self.relayers if height % self.reward_every == 0 else ():
            account = zone, relayer
            paid = min(self.owed[account], self.collected[zone])
            self.owed[account] -= paid
            self.earned[account] += paid
            self.collected[zone] -= paid
            self.balance[account] += paid
        for relayer in self.relayers:
            account = zone, relayer
            if account in self.short and account not in self.stopped:
                self.stopped[account] = height
                self.stops[account] += 1
                yield OutOfFunds(zone, height, relayer)
            elif account in self.paying and account not in self.short and account in self.stopped:
                del self.stopped[account]
                yield Funded(zone, height, relayer)


@dataclass(frozen=True)
class Balance:
    """An account as it stands; of the zone's own, `relayer` is empty and `balance` what it has collected."""

    zone: str
    relayer: str
    balance: int
    deposited: int = 0
    earned: int = 0
    owed: int = 0
    stopped: int = 0
    stops: int = 0
    fees: int = 0


def balances(accounts: Accounts) -> list[Balance]:
    """All accounts."""
    found = [Balance(zone, "", collected) for zone, collected in accounts.collected.items()]
    for account, balance in accounts.balance.items():
        rewards = accounts.earned[account], accounts.owed[account]
        stops = accounts.stopped.get(account, 0), accounts.stops[account]
        one = Balance(*account, balance, accounts.deposited[account], *rewards, *stops, accounts.fees[account])
        found.append(one)
    return found


def funds_conserved(accounts: Sequence[Balance]) -> list[str]:
    """3.5: on every zone what was deposited is in the accounts and in what the zone has collected; each account has
    what came in without the fees."""
    found = []
    for zone in {one.zone for one in accounts}:
        here = [one for one in accounts if one.zone == zone]
        held, deposited = sum(one.balance for one in here), sum(one.deposited for one in here)
        if held != deposited:
            found.append(f"funds: {zone} holds {held} of {deposited} that were deposited")
        collected = sum(one.fees - one.earned for one in here)
        if collected != sum(one.balance for one in here if not one.relayer):
            found.append(f"funds: {zone} has not collected its fees less its rewards, {collected}")
    for one in accounts:
        if one.relayer and one.balance != one.deposited + one.earned - one.fees:
            found.append(f"funds: {one.relayer} on {one.zone} has {one.balance}, not what came in less its fees")
        if one.balance < 0 or one.owed < 0:
            found.append(f"funds: {one.relayer} on {one.zone} is below zero")
    return found
