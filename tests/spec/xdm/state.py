"""What one chain keeps (2.2, 2.5), and how a call changes it or does not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from tests.spec.xdm.errors import DispatchError, XdmError
from tests.spec.xdm.events import Event
from tests.spec.xdm.keys import channel_key, confirmed_key, outbox_key, responses_key
from tests.spec.xdm.options import U128, Options
from tests.spec.xdm.scale import little, option, u128, u256
from tests.spec.xdm.values import (
    CONSENSUS,
    Chain,
    EndpointRequest,
    Key,
    Message,
    Receipt,
    Tag,
    encode_message,
    encode_receipt,
)

Account = bytes
K = TypeVar("K")
ChannelKey = tuple[Chain, int]


class ChannelState(IntEnum):
    INITIATED = 0
    OPEN = 1
    CLOSED = 2


@dataclass(frozen=True)
class Channel:
    """2.2. `fee` (relay_fee) is there iff fee_model = v0."""

    channel_id: int
    state: ChannelState
    next_inbox_nonce: int
    next_outbox_nonce: int
    latest_response: int | None
    fee: int | None
    max_outgoing_messages: int
    owner: Account | None
    reserve: int


def encode_channel(ch: Channel) -> bytes:
    latest = option(None if ch.latest_response is None else u256(ch.latest_response))
    head = u256(ch.channel_id) + bytes([ch.state]) + u256(ch.next_inbox_nonce) + u256(ch.next_outbox_nonce) + latest
    fee = b"" if ch.fee is None else u128(ch.fee)
    return head + little(ch.max_outgoing_messages, 4) + fee + option(ch.owner) + u128(ch.reserve)


@dataclass(frozen=True)
class Early:
    """What was verified and waits for its turn, or is in its turn."""

    message: Message
    tag: Tag
    relayer: str
    proof_block: int


@dataclass
class State:
    """Everything that a block changes. Values are immutable, so that a copy of the dicts is a snapshot."""

    next_channel_id: dict[Chain, int] = field(default_factory=dict)
    channels: dict[ChannelKey, Channel] = field(default_factory=dict)
    outbox: dict[Key, Message] = field(default_factory=dict)
    outbox_count: dict[ChannelKey, int] = field(default_factory=dict)
    outbox_tags: dict[Key, Tag] = field(default_factory=dict)
    outbox_fee: dict[Key, int] = field(default_factory=dict)
    outbox_responses: dict[Key, Early] = field(default_factory=dict)
    inbox: dict[Key, Early] = field(default_factory=dict)
    inbox_responses: dict[Key, Message] = field(default_factory=dict)
    response_tags: dict[Key, Tag] = field(default_factory=dict)
    inbox_fee: dict[Key, int] = field(default_factory=dict)
    sent_in: dict[Key, int] = field(default_factory=dict)
    answered_in: dict[Key, int] = field(default_factory=dict)
    """The own block that sent a request of the outbox, and that executed a request of another chain."""
    dues: dict[int, int] = field(default_factory=dict)
    """What this block has to pay for the receipt of each own block (3.6)."""
    inbox_fees_on_hold: int = 0
    outbox_fees_on_hold: int = 0
    allowlist: set[Chain] = field(default_factory=set)
    updated_channels: set[ChannelKey] = field(default_factory=set)
    balances: dict[Account, int] = field(default_factory=dict)
    deposits: dict[ChannelKey, int] = field(default_factory=dict)
    outgoing_transfers: dict[Key, bytes] = field(default_factory=dict)
    undecodable_transfers: int = 0
    # the endpoint of programs (`programs`): callers and numbers of calls that wait for their answers, whose answers
    # came before their responses, and that the chain gives up; what programs have not answered; answers that wait for
    # a channel with room
    open_calls: dict[tuple[int, int], int] = field(default_factory=dict)
    answered_calls: set[tuple[int, int]] = field(default_factory=set)
    given_up: tuple[tuple[Chain, int, int], ...] = ()
    unanswered: dict[tuple[int, int, int], Any] = field(default_factory=dict)
    late_answers: dict[Chain, tuple[Any, ...]] = field(default_factory=dict)
    # a domain's block, for its receipt
    transfers_in: dict[Chain, int] = field(default_factory=dict)
    transfers_out: dict[Chain, int] = field(default_factory=dict)
    claimed: dict[Chain, int] = field(default_factory=dict)
    rejected: dict[Chain, int] = field(default_factory=dict)
    burned: int = 0
    # the consensus chain's books, receipts and pending updates
    domain_balances: dict[Chain, int] = field(default_factory=dict)
    unconfirmed: dict[tuple[Chain, Chain], int] = field(default_factory=dict)
    cancelled: dict[tuple[Chain, Chain], int] = field(default_factory=dict)
    receipts: dict[tuple[Chain, int], Receipt] = field(default_factory=dict)
    receipts_at: dict[tuple[Chain, int], int] = field(default_factory=dict)
    head_receipt: dict[Chain, int] = field(default_factory=dict)
    confirmed: dict[Chain, Receipt] = field(default_factory=dict)
    domain_updates: dict[Chain, tuple[frozenset[Chain], frozenset[Chain]]] = field(default_factory=dict)
    pruned: set[tuple[Chain, int]] = field(default_factory=set)
    """Blocks of domains whose receipts a fraud proof has taken away once."""
    unbooked: set[Chain] = field(default_factory=set)
    """Domains of which the books have refused a receipt."""
    # what endpoints keep beside: value that programs have in hand, on no account; immutable values by key
    in_hand: int = 0
    notes: dict[Any, Any] = field(default_factory=dict)
    raw: dict[bytes, bytes] = field(default_factory=dict)
    """Entries that a runtime has put into its storage against the rules."""

    def copy(self) -> "State":
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        copies: dict[str, Any] = {name: v.copy() if isinstance(v, dict | set) else v for name, v in values.items()}
        return State(**copies)


def storage(s: State) -> dict[bytes, bytes]:
    """The part of a state that stands in the trie: what messages are proved from."""
    entries = {outbox_key(*key): encode_message(m) for key, m in s.outbox.items()}
    entries |= {responses_key(*key): encode_message(m) for key, m in s.inbox_responses.items()}
    entries |= {channel_key(*key): encode_channel(ch) for key, ch in s.channels.items()}
    return entries | {confirmed_key(domain): encode_receipt(r) for domain, r in s.confirmed.items()} | s.raw


def issuance(s: State) -> int:
    """All value of a chain: on accounts, deposited, in hand, and the fees on hold, which are on no account."""
    held = s.in_hand + s.inbox_fees_on_hold + s.outbox_fees_on_hold + sum(s.dues.values())
    return sum(s.balances.values()) + sum(s.deposits.values()) + held


class Handler(Protocol):
    """An endpoint. An XdmError out of `message` is its Err; any other exception is a panic."""

    message_weight: int
    response_weight: int

    def message(
        self, c: "ChainNode", src: Chain, key: tuple[int, int], req: EndpointRequest, pre_check: XdmError | None
    ) -> bytes: ...

    def message_response(
        self, c: "ChainNode", dst: Chain, key: tuple[int, int], req: EndpointRequest, result: bytes | DispatchError
    ) -> None: ...


@dataclass
class View:
    """What a chain knows of the consensus chain: best block, and hash, MMR root and leaves under it of each."""

    best: int = 0
    hashes: dict[int, bytes] = field(default_factory=dict)
    roots: dict[int, bytes] = field(default_factory=dict)
    leaves: dict[int, int] = field(default_factory=dict)

    def proves(self, number: int, chain: Chain, options: Options) -> bool:
        """Whether a proof under that block's MMR root is taken (3.4 step 1). Decision: the known roots are those of
        the last 1024 blocks before the one in work, for a domain too (X-4)."""
        last = self.best - (0 if chain == CONSENSUS else options.archiving_depth)
        return number in self.roots and self.best - options.mmr_roots <= number <= last


@dataclass
class ChainNode:
    """A chain with its endpoints, root account, operators (or block authors) and log."""

    chain_id: Chain
    options: Options
    operators: list[Account] = field(default_factory=lambda: [b"o" * 32])
    root: Account = b"r" * 32
    account_size: int = 32
    handlers: dict[int, Handler] = field(default_factory=dict)
    state: State = field(default_factory=State)
    view: View = field(default_factory=View)
    block: int = 0
    events: list[Event] = field(default_factory=list)
    domains: dict[Chain, Account] = field(default_factory=dict)
    """Consensus only: the registered domains and their owners."""
    submitters: Callable[[int], list[int]] | None = None
    """Which operators (by their place) submitted the receipt of an own block; None: all. Of a consensus block its
    author."""

    def log(self, event: str, **columns: Any) -> None:
        self.events.append(Event(event, self.chain_id, self.block, self.view.best, **columns))


@contextmanager
def transaction(c: ChainNode) -> Iterator[None]:
    """All or nothing; whoever reads the state of `c` afterwards must read it anew."""
    before, rows = c.state.copy(), len(c.events)
    try:
        yield
    except Exception:
        c.state = before
        del c.events[rows:]
        raise


def note_transfer_out(c: ChainNode, amount: int, dst: Chain) -> None:
    if c.chain_id == CONSENSUS:
        note(c, CONSENSUS, dst, amount)
    else:
        add(c.state.transfers_out, dst, amount)


def note_transfer_in(c: ChainNode, amount: int, src: Chain) -> None:
    if c.chain_id == CONSENSUS:
        confirm(c, src, CONSENSUS, amount)
    else:
        add(c.state.transfers_in, src, amount)


def note_rejected(c: ChainNode, amount: int, src: Chain) -> None:
    """The chain that a transfer came to did not take it."""
    if c.chain_id == CONSENSUS:
        reject(c, src, CONSENSUS, amount)
    else:
        add(c.state.rejected, src, amount)


def note_claimed(c: ChainNode, amount: int, dst: Chain) -> None:
    """The chain that a transfer left takes it back."""
    if c.chain_id == CONSENSUS:
        claim(c, CONSENSUS, dst, amount)
    else:
        add(c.state.claimed, dst, amount)


def add(amounts: dict[K, int], key: K, amount: int) -> None:
    """Checked addition; an amount of zero leaves no entry."""
    total = amounts.get(key, 0) + amount
    if total > U128:
        raise XdmError("BalanceOverflow")
    if total:
        amounts[key] = total


def subtract(amounts: dict[K, int], key: K, amount: int, error: str) -> None:
    left = amounts.get(key, 0) - amount
    if left < 0:
        raise XdmError(error)
    if left:
        amounts[key] = left
    else:
        amounts.pop(key, None)


# The books of the consensus chain


def note(c: ChainNode, f: Chain, t: Chain, a: int) -> None:
    if f != CONSENSUS:
        subtract(c.state.domain_balances, f, a, "LowBalanceOnDomain")
    add(c.state.unconfirmed, (f, t), a)


def confirm(c: ChainNode, f: Chain, t: Chain, a: int) -> None:
    subtract(c.state.unconfirmed, (f, t), a, "BalanceUnderflow")
    if t != CONSENSUS:
        add(c.state.domain_balances, t, a)


def reject(c: ChainNode, f: Chain, t: Chain, a: int) -> None:
    subtract(c.state.unconfirmed, (f, t), a, "BalanceUnderflow")
    add(c.state.cancelled, (f, t), a)


def claim(c: ChainNode, f: Chain, t: Chain, a: int) -> None:
    subtract(c.state.cancelled, (f, t), a, "BalanceUnderflow")
    if f != CONSENSUS:
        add(c.state.domain_balances, f, a)


def settle(c: ChainNode, domain: Chain, er: Receipt) -> None:
    """What a confirmed receipt moves in the books."""
    if any(domain in amounts for amounts in (er.transfers_in, er.transfers_out, er.rejected, er.claimed)):
        raise XdmError("InvalidDomainTransfers")
    for src, amount in sorted(er.transfers_in.items()):
        confirm(c, src, domain, amount)
    for dst, amount in sorted(er.transfers_out.items()):
        note(c, domain, dst, amount)
    for src, amount in sorted(er.rejected.items()):
        reject(c, src, domain, amount)
    for dst, amount in sorted(er.claimed.items()):
        claim(c, domain, dst, amount)
    fees = er.storage_fee + er.execution_fee + er.burned + sum(er.rewards.values())
    subtract(c.state.domain_balances, domain, fees, "LowBalanceOnDomain")
