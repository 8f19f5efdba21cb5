"""HRMP on the relay chain (X-6): channels with deposits and limits, their contents and message queue chains.

`requests`, `channels` and `contents` are dicts by (sender, recipient). A block is `step`: the session first, then all
receipts are checked, then those that were accepted are applied, then their calls.

Decisions where X-6 is silent.
- A session begins with every `session_blocks`-th block, before its receipts: what was confirmed before opens there, and
  what was asked to be closed at least two blocks before closes: who built on the block before that one, and so did not
  know of it, is included by then.
- A receipt's watermark is checked before its messages, in X-6's order; messages one after the other, each in the order
  of the checks. All receipts of a block are checked against the same state: room that a recipient makes counts in the
  next block.
- What closing drops is gone from the contents; that a block had messages for a chain is remembered until the chain's
  watermark passes it, so that a candidate that is on its way stays acceptable.
- The sender's deposit is held with the request, the recipient's with the acceptance; both go back when the channel
  closes, or its request is withdrawn. Names of the calls' errors are the deployed pallet's.
- A parachain that is deregistered leaves with the first session two blocks later or more, before anything opens there:
  its channels and requests go with their contents, and all deposits go back, its own too. Until then its receipts are
  accepted, and nobody can ask it for a channel. Registered again, it goes on with the block before as its watermark
  (D-3). Both come before the receipts of a block; who is registered cannot be registered, nor who is leaving
  deregistered.
- A refused call changes nothing; the receipt that brought it stands (upward messages are executed after it).
- What a chain has asked for counts against its channels outbound, what it has accepted against those inbound, as in the
  deployed pallet; the default of both limits is the most that its configuration may say.
- Calls of one chain in one block: at most 100, and 20,000 bytes unless it is a single one (X-4); a receipt with more is
  refused, after all other checks. Their bytes are those of the deployed pallet, number 60; what is none of its four
  calls is refused when it is executed. A CANCEL names a number that requests must not exceed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from tests.spec.icmp.trie import H, scale_bytes, u32

ParaId = int
Pair = tuple[ParaId, ParaId]
FIRST_HEAD = bytes(32)
MAX_CALLS = 100
MAX_CALL_BYTES = 20_000
PALLET = 60


@dataclass(frozen=True)
class Config:
    """The limits seen on chain (X-6) are the defaults of capacity, total and message size."""

    session_blocks: int = 10
    max_capacity: int = 1000
    max_total_size: int = 102_400
    max_message_size: int = 102_400
    max_messages: int = 10
    sender_deposit: int = 10
    recipient_deposit: int = 10
    max_outbound_channels: int = 128
    max_inbound_channels: int = 128


@dataclass(frozen=True)
class Request:
    max_capacity: int
    max_total_size: int
    max_message_size: int
    sender_deposit: int
    recipient_deposit: int = 0
    confirmed: bool = False


@dataclass(frozen=True)
class Channel:
    max_capacity: int
    max_total_size: int
    max_message_size: int
    sender_deposit: int
    recipient_deposit: int
    msg_count: int = 0
    total_size: int = 0
    mqc_head: bytes = FIRST_HEAD


@dataclass(frozen=True)
class Open:
    recipient: ParaId
    max_capacity: int
    max_message_size: int


@dataclass(frozen=True)
class Accept:
    sender: ParaId


@dataclass(frozen=True)
class Cancel:
    sender: ParaId
    recipient: ParaId
    open_requests: int = 2**32 - 1


@dataclass(frozen=True)
class Close:
    sender: ParaId
    recipient: ParaId


Call = Open | Accept | Cancel | Close
CALLS: dict[int, type[Call]] = {0: Open, 1: Accept, 2: Close, 6: Cancel}


def encode(call: Call) -> bytes:
    (number,) = (number for number, kind in CALLS.items() if isinstance(call, kind))
    return bytes([PALLET, number]) + b"".join(u32(value) for value in vars(call).values())


def decode(data: bytes) -> Call:
    ensure(data[:1] == bytes([PALLET]) and data[1:2] != b"" and data[1] in CALLS, "InvalidFormat")
    kind, rest = CALLS[data[1]], data[2:]
    ensure(len(rest) == 4 * len(fields(kind)), "InvalidFormat")
    return kind(*(int.from_bytes(rest[at : at + 4], "little") for at in range(0, len(rest), 4)))


@dataclass(frozen=True)
class Receipt:
    para: ParaId
    relay_parent: int
    watermark: int
    messages: tuple[tuple[ParaId, bytes], ...] = ()
    calls: tuple[bytes, ...] = ()


@dataclass
class State:
    free: dict[ParaId, int]
    held: dict[ParaId, int]
    watermark: dict[ParaId, int]
    requests: dict[Pair, Request] = field(default_factory=dict)
    channels: dict[Pair, Channel] = field(default_factory=dict)
    closing: dict[Pair, int] = field(default_factory=dict)
    """By channel: the block in which it was asked for."""
    contents: dict[Pair, list[tuple[int, bytes]]] = field(default_factory=dict)
    digests: dict[ParaId, set[int]] = field(default_factory=dict)
    """The blocks with messages for a chain, above its watermark."""
    active: set[ParaId] = field(default_factory=set)
    leaving: dict[ParaId, int] = field(default_factory=dict)
    """By parachain that is deregistered: the block in which it was. It is active until it is gone."""


class HrmpError(Exception):
    """A named refusal."""


def ensure(condition: bool, name: str) -> None:
    if not condition:
        raise HrmpError(name)


def genesis(paras: Sequence[ParaId], endowment: int) -> State:
    return State(dict.fromkeys(paras, endowment), dict.fromkeys(paras, 0), dict.fromkeys(paras, 0), active={*paras})


def next_head(head: bytes, sent_at: int, data: bytes) -> bytes:
    return H(head + u32(sent_at) + H(scale_bytes(data)))


def new_session(s: State, number: int) -> list[tuple[Pair, list[tuple[int, bytes]]]]:
    """Open what is confirmed, close what was asked to be; gives what was dropped. A channel that was asked to be closed
    cannot be requested anew before it is closed, so the order of both does not matter."""
    gone = {p for p, asked in s.leaving.items() if asked <= number - 2}
    dropped = [lost for p in sorted(gone) for lost in leave(s, p)]
    for pair, request in sorted(s.requests.items()):
        if request.confirmed:
            del s.requests[pair]
            sizes = (request.max_capacity, request.max_total_size, request.max_message_size)
            s.channels[pair] = Channel(*sizes, request.sender_deposit, request.recipient_deposit)
    return dropped + [
        close(s, pair) for pair in sorted(pair for pair, asked in s.closing.items() if asked <= number - 2)
    ]


def close(s: State, pair: Pair) -> tuple[Pair, list[tuple[int, bytes]]]:
    s.closing.pop(pair, None)
    channel = s.channels.pop(pair)
    release(s, pair[0], channel.sender_deposit)
    release(s, pair[1], channel.recipient_deposit)
    return pair, s.contents.pop(pair, [])


def leave(s: State, p: ParaId) -> list[tuple[Pair, list[tuple[int, bytes]]]]:
    del s.leaving[p]
    s.active.remove(p)
    s.digests.pop(p, None)
    for pair in sorted(pair for pair in s.requests if p in pair):
        request = s.requests.pop(pair)
        release(s, pair[0], request.sender_deposit)
        release(s, pair[1], request.recipient_deposit)
    return [close(s, pair) for pair in sorted(pair for pair in s.channels if p in pair)]


def register(s: State, number: int, p: ParaId) -> None:
    if p not in s.active:
        s.active.add(p)
        s.watermark[p] = number - 1


def deregister(s: State, number: int, p: ParaId) -> None:
    if p in s.active:
        s.leaving.setdefault(p, number)


def hold(s: State, p: ParaId, amount: int) -> None:
    ensure(s.free[p] >= amount, "InsufficientBalance")
    s.free[p] -= amount
    s.held[p] += amount


def release(s: State, p: ParaId, amount: int) -> None:
    s.held[p] -= amount
    s.free[p] += amount


def check_watermark(s: State, number: int, r: Receipt) -> None:
    ensure(r.relay_parent < number, "AheadRelayParent")
    if r.watermark == r.relay_parent >= s.watermark[r.para]:
        return
    ensure(r.watermark <= r.relay_parent, "AheadRelayParent")
    ensure(r.watermark > s.watermark[r.para], "AdvancementRule")
    ensure(r.watermark in s.digests.get(r.para, set()), "LandsOnBlockWithNoMessages")


def check_outbound(s: State, config: Config, r: Receipt) -> None:
    ensure(len(r.messages) <= config.max_messages, "MoreMessagesThanPermitted")
    last = -1
    for recipient, data in r.messages:
        ensure(recipient > last, "NotSorted")
        last = recipient
        ensure((r.para, recipient) in s.channels, "NoSuchChannel")
        channel = s.channels[r.para, recipient]
        ensure(len(data) <= channel.max_message_size, "MaxMessageSizeExceeded")
        ensure(channel.total_size + len(data) <= channel.max_total_size, "TotalSizeExceeded")
        ensure(channel.msg_count + 1 <= channel.max_capacity, "CapacityExceeded")


def check(s: State, config: Config, number: int, r: Receipt) -> str | None:
    try:
        ensure(r.para in s.active, "ParentMismatch")
        check_watermark(s, number, r)
        check_outbound(s, config, r)
        ensure(len(r.calls) <= MAX_CALLS, "TooManyCalls")
        ensure(len(r.calls) <= 1 or sum(map(len, r.calls)) <= MAX_CALL_BYTES, "CallsTooLarge")
    except HrmpError as error:
        return str(error)
    return None


def move_watermark(s: State, p: ParaId, to: int) -> None:
    """What lies at or below the watermark is consumed: it leaves the channels, and makes room in them."""
    s.watermark[p] = to
    s.digests[p] = {n for n in s.digests.get(p, set()) if n > to}
    for pair, messages in s.contents.items():
        if pair[1] == p:
            gone = [data for sent_at, data in messages if sent_at <= to]
            s.contents[pair] = [(sent_at, data) for sent_at, data in messages if sent_at > to]
            c = s.channels[pair]
            size = c.total_size - sum(len(data) for data in gone)
            s.channels[pair] = replace(c, msg_count=c.msg_count - len(gone), total_size=size)


def queue_message(s: State, number: int, pair: Pair, data: bytes) -> None:
    s.contents.setdefault(pair, []).append((number, data))
    s.digests.setdefault(pair[1], set()).add(number)
    c = s.channels[pair]
    head = next_head(c.mqc_head, number, data)
    s.channels[pair] = replace(c, msg_count=c.msg_count + 1, total_size=c.total_size + len(data), mqc_head=head)


def execute(s: State, config: Config, number: int, origin: ParaId, call: Call) -> None:
    if isinstance(call, Open):
        pair = origin, call.recipient
        ensure(call.recipient != origin, "OpenHrmpChannelToSelf")
        ensure(call.recipient in s.active - s.leaving.keys(), "OpenHrmpChannelInvalidRecipient")
        ensure(call.max_capacity > 0, "OpenHrmpChannelZeroCapacity")
        ensure(call.max_capacity <= config.max_capacity, "OpenHrmpChannelCapacityExceedsLimit")
        ensure(call.max_message_size > 0, "OpenHrmpChannelZeroMessageSize")
        ensure(call.max_message_size <= config.max_message_size, "OpenHrmpChannelMessageSizeExceedsLimit")
        ensure(pair not in s.requests, "OpenHrmpChannelAlreadyRequested")
        ensure(pair not in s.channels, "OpenHrmpChannelAlreadyExists")
        outbound = sum(x == origin for x, _ in [*s.channels, *s.requests])
        ensure(outbound < config.max_outbound_channels, "OpenHrmpChannelLimitExceeded")
        hold(s, origin, config.sender_deposit)
        s.requests[pair] = Request(
            call.max_capacity, config.max_total_size, call.max_message_size, config.sender_deposit
        )
    elif isinstance(call, Accept):
        pair = call.sender, origin
        ensure(pair in s.requests, "AcceptHrmpChannelDoesntExist")
        ensure(not s.requests[pair].confirmed, "AcceptHrmpChannelAlreadyConfirmed")
        inbound = [*s.channels, *(other for other, request in s.requests.items() if request.confirmed)]
        ensure(sum(y == origin for _, y in inbound) < config.max_inbound_channels, "AcceptHrmpChannelLimitExceeded")
        hold(s, origin, config.recipient_deposit)
        s.requests[pair] = replace(s.requests[pair], recipient_deposit=config.recipient_deposit, confirmed=True)
    elif isinstance(call, Cancel):
        pair = call.sender, call.recipient
        ensure(len(s.requests) <= call.open_requests, "WrongWitness")
        ensure(origin in pair, "CancelHrmpOpenChannelUnauthorized")
        ensure(pair in s.requests, "OpenHrmpChannelDoesntExist")
        ensure(not s.requests[pair].confirmed, "OpenHrmpChannelAlreadyConfirmed")
        release(s, pair[0], s.requests.pop(pair).sender_deposit)
    else:
        pair = call.sender, call.recipient
        ensure(origin in pair, "CloseHrmpChannelUnauthorized")
        ensure(pair in s.channels, "CloseHrmpChannelDoesntExist")
        ensure(pair not in s.closing, "CloseHrmpChannelAlreadyUnderway")
        s.closing[pair] = number


@dataclass(frozen=True)
class Stepped:
    """What a block refused: receipts by chain, calls by chain and place; and what closing dropped."""

    receipts: Mapping[ParaId, str]
    calls: Mapping[tuple[ParaId, int], str]
    dropped: Sequence[tuple[Pair, list[tuple[int, bytes]]]]


def step(
    s: State, config: Config, number: int, receipts: Sequence[Receipt], paras: Sequence[tuple[bool, ParaId]] = ()
) -> Stepped:
    """`paras`: who is registered (True) or deregistered in this block, in order."""
    dropped = new_session(s, number) if number % config.session_blocks == 0 else []
    for comes, p in paras:
        (register if comes else deregister)(s, number, p)
    errors = {r.para: check(s, config, number, r) for r in receipts}
    accepted = sorted((r for r in receipts if errors[r.para] is None), key=lambda r: r.para)
    for r in accepted:
        move_watermark(s, r.para, r.watermark)
    for r in accepted:
        for recipient, data in r.messages:
            queue_message(s, number, (r.para, recipient), data)
    refused: dict[tuple[ParaId, int], str] = {}
    for r in accepted:
        for place, call in enumerate(r.calls):
            try:
                execute(s, config, number, r.para, decode(call))
            except HrmpError as error:
                refused[r.para, place] = str(error)
    return Stepped({p: error for p, error in errors.items() if error is not None}, refused, dropped)


def conserved(s: State, endowment: int) -> bool:
    """What is held of a chain is what its requests and channels say, and nothing is made or lost."""
    due = dict.fromkeys(s.free, 0)
    for (x, y), request in s.requests.items():
        due[x] += request.sender_deposit
        due[y] += request.recipient_deposit
    for (x, y), channel in s.channels.items():
        due[x] += channel.sender_deposit
        due[y] += channel.recipient_deposit
    return due == s.held and all(s.free[p] + s.held[p] == endowment and s.free[p] >= 0 for p in s.free)
