"""The endpoint of programs, endpoint 2: calls and their answers as requests and responses.

The reference has no endpoint for calls; these are decisions. A request's content is a `Call`. The program called
answers in the block of the call, then the response is its `Answer`; or later, then the response is `Accepted`, and the
`Answer` comes as a request of its own, the other way, without fees, of which the response says nothing. An answer gives
back no more than the call attached.

A call is open from the response `Accepted` until its answer. The request with the answer and that response come in
lanes of their own, so either may be first (1.2 orders one lane). Only who has taken the call can answer it. So an
answer is taken for an open call, or for one whose request is in the outbox without a response. When the response of the
latter comes, it does nothing; one that is not `Accepted` is `InvalidMessagePayload`: no second answer, no refund.

An answer that nobody waits for is `InvalidMessagePayload`. Who waits is told, by a reject, when the answer is refused
for another reason (a closed channel): it never comes again. A response that is Err claims for the program that answered
what its answer gave back, as the transporter does for who transfers (X-3).

Between two chains without an open channel, of which none may be opened any more, no answer travels. Who answered has
back what the answer would give back; who called is told by a reject in the next block, with nothing, and its call is
not open any more.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.spec.xdm.channels import credit, has_room, new_outbox_message, send_message
from tests.spec.xdm.errors import DispatchError, XdmError
from tests.spec.xdm.scale import Reader, blob, little, u128
from tests.spec.xdm.state import (
    Account,
    ChainNode,
    Channel,
    ChannelState,
    note_claimed,
    note_rejected,
    note_transfer_in,
    note_transfer_out,
    subtract,
    transaction,
)
from tests.spec.xdm.values import Chain, CollectedFee, EndpointCall, EndpointRequest

PROGRAMS = 2
ACCEPTED = b"\2"


@dataclass(frozen=True)
class Call:
    callback: int
    sender: int
    receiver: int
    amount: int
    deadline: int
    method: bytes
    payload: bytes


@dataclass(frozen=True)
class Answer:
    callback: int
    sender: int
    receiver: int
    amount: int
    code: int
    payload: bytes


def encode(content: Call | Answer) -> bytes:
    head = b"".join(little(n, 8) for n in (content.callback, content.sender, content.receiver)) + u128(content.amount)
    if isinstance(content, Call):
        return b"\0" + head + little(content.deadline, 4) + blob(content.method) + blob(content.payload)
    return b"\1" + head + little(content.code, 1) + blob(content.payload)


def decode(data: bytes) -> Call | Answer | None:
    """None: accepted, answered later."""
    r = Reader(data)
    kind = r.index(3)
    if kind == 2:
        r.end()
        return None
    head = r.integer(8), r.integer(8), r.integer(8), r.integer(16)
    content = Answer(*head, r.integer(1), r.blob()) if kind else Call(*head, r.integer(4), r.blob(), r.blob())
    r.end()
    return content


def account(number: int) -> Account:
    """The account of a program."""
    return little(number, 32)


def call(c: ChainNode, dst: Chain, content: Call) -> None:
    """A program calls another; what it attaches leaves its account."""
    sender = account(content.sender)
    with transaction(c):
        subtract(c.state.balances, sender, content.amount, "LowBalance")
        channel, nonce = send_message(c, sender, dst, EndpointRequest(PROGRAMS, PROGRAMS, encode(content)))
        moved(c, dst, channel, nonce, "out", content.amount)
        if content.amount:
            note_transfer_out(c, content.amount, dst)
        c.log("CallSent", foreign=dst, by=sender, nonce=content.callback)


def moved(c: ChainNode, foreign: Chain, channel: int, nonce: int, kind: str, amount: int) -> None:
    if amount:
        c.log("Transfer", foreign=foreign, channel_id=channel, nonce=nonce, kind=kind, amount=amount)


def answered(c: ChainNode, foreign: Chain, caller: int, callback: int, ok: bool) -> None:
    c.log("CallAnswered", foreign=foreign, by=account(caller), nonce=callback, result="Ok" if ok else "Err")


def take_open_call(c: ChainNode, src: Chain, answer: Answer) -> bool:
    """Whether somebody waits for this answer; from now on nobody does."""
    s, name = c.state, (answer.receiver, answer.callback)
    if name in s.open_calls:
        return s.open_calls[name] == answer.sender and s.open_calls.pop(name) == answer.sender
    if name in s.answered_calls:
        return False
    for (foreign, _, _), m in s.outbox.items():
        if foreign == src and isinstance(m.payload, EndpointCall) and m.payload.req.dst_endpoint == PROGRAMS:
            sent = decode(m.payload.req.payload)
            if isinstance(sent, Call) and (sent.sender, sent.callback, sent.receiver) == (*name, answer.sender):
                s.answered_calls.add(name)
                return True
    return False


def is_asked(ch: Channel) -> bool:
    """Whether a chain has asked for a channel and has no answer."""
    return ch.state == ChannelState.INITIATED and ch.next_outbox_nonce > 0 and ch.latest_response is None


def asked_for(c: ChainNode, foreign: Chain) -> bool:
    """Whether a chain has itself asked for a channel."""
    return any(f == foreign and is_asked(ch) for (f, _), ch in c.state.channels.items())


@dataclass
class Programs:
    """The handler: programs of a chain, by number, all of which echo and give back what was attached. To a payload that
    begins with `~` and a digit they answer so many blocks later. `home`: the chain that a program is on; `may_open`:
    whether a channel with another chain may still be opened."""

    message_weight: int
    response_weight: int
    here: set[int]
    home: Callable[[int], Chain]
    may_open: Callable[[ChainNode, Chain], bool] = asked_for

    def message(
        self, c: ChainNode, src: Chain, key: tuple[int, int], req: EndpointRequest, pre_check: XdmError | None
    ) -> bytes:
        try:
            content = decode(req.payload)
        except XdmError:
            content = None
        if content is None:
            raise pre_check or XdmError("InvalidMessagePayload")
        formed = self.home(content.sender) == src and self.home(content.receiver) == c.chain_id
        error = pre_check or (None if formed else XdmError("InvalidMessagePayload"))
        waits = formed and isinstance(content, Answer) and take_open_call(c, src, content)
        if isinstance(content, Call):
            error = error or (None if content.receiver in self.here else XdmError("NoMessageHandler"))
        else:
            error = error or (None if waits else XdmError("InvalidMessagePayload"))
        if error:
            if content.amount:
                note_rejected(c, content.amount, src)
        elif content.amount:
            note_transfer_in(c, content.amount, src)
            credit(c, account(content.receiver), content.amount)
            moved(c, src, *key, "in", content.amount)
        if waits:
            assert isinstance(content, Answer)
            answered(c, src, content.receiver, content.callback, not error and content.code == 0)
        if error:
            raise error
        return self.run(c, src, key, content) if isinstance(content, Call) else ACCEPTED

    def run(self, c: ChainNode, src: Chain, key: tuple[int, int], sent: Call) -> bytes:
        if sent.payload.startswith(b"~"):
            due = c.block + int(sent.payload[1:2])
            c.state.unanswered[sent.receiver, sent.sender, sent.callback] = (due, c.block, src, sent)
            return ACCEPTED
        if sent.amount:
            subtract(c.state.balances, account(sent.receiver), sent.amount, "LowBalance")
            note_transfer_out(c, sent.amount, src)
            moved(c, src, -1 - key[0], key[1], "out", sent.amount)
        return encode(Answer(sent.callback, sent.receiver, sent.sender, sent.amount, 0, sent.payload))

    def answer_late(self, c: ChainNode) -> None:
        """What programs answer in this block to earlier calls: after what was relayed, before what users send. Each
        waits for a channel with room, in its order."""
        due = [(-at, name) for name, (when, at, _, _) in c.state.unanswered.items() if when <= c.block]
        for _, name in sorted(due, key=lambda row: row[0]):
            _, _, src, sent = c.state.unanswered.pop(name)
            answer = Answer(sent.callback, sent.receiver, sent.sender, sent.amount, 0, sent.payload)
            c.state.late_answers[src] = (*c.state.late_answers.get(src, ()), answer)
        for dst in sorted(c.state.late_answers):
            queued = c.state.late_answers.pop(dst)
            sent_now = 0
            while sent_now < len(queued) and send_answer(c, dst, queued[sent_now]):
                sent_now += 1
            if queued[sent_now:] and not self.is_cut_off(c, dst):
                c.state.late_answers[dst] = queued[sent_now:]
        self.give_up_calls(c)

    def is_cut_off(self, c: ChainNode, foreign: Chain) -> bool:
        channels = [ch for (f, _), ch in c.state.channels.items() if f == foreign]
        return not any(ch.state == ChannelState.OPEN for ch in channels) and not self.may_open(c, foreign)

    def give_up_calls(self, c: ChainNode) -> None:
        """Tell who called of the calls that were given up in the block before, and give up others."""
        for foreign, caller, callback in c.state.given_up:
            answered(c, foreign, caller, callback, False)
        gone = [(name, self.home(receiver)) for name, receiver in sorted(c.state.open_calls.items())]
        gone = [(name, foreign) for name, foreign in gone if self.is_cut_off(c, foreign)]
        for name, _ in gone:
            del c.state.open_calls[name]
        c.state.given_up = tuple((foreign, *name) for name, foreign in gone)

    def message_response(
        self, c: ChainNode, dst: Chain, key: tuple[int, int], req: EndpointRequest, result: bytes | DispatchError
    ) -> None:
        content = decode(req.payload)
        if isinstance(content, Answer):
            if isinstance(result, DispatchError):
                back(c, dst, key, content)
            return
        assert isinstance(content, Call)
        name = content.sender, content.callback
        if name in c.state.answered_calls:
            if result != ACCEPTED:
                raise XdmError("InvalidMessagePayload")
            c.state.answered_calls.remove(name)
            return
        if isinstance(result, DispatchError):
            back(c, dst, key, content)
            answered(c, dst, *name, False)
            return
        answer = decode(result)
        if answer is None:
            c.state.open_calls[name] = content.receiver
            return
        assert isinstance(answer, Answer) and answer.amount <= content.amount
        if answer.amount:
            note_transfer_in(c, answer.amount, dst)
            credit(c, account(content.sender), answer.amount)
            moved(c, dst, -1 - key[0], key[1], "in", answer.amount)
        answered(c, dst, *name, answer.code == 0)


def back(c: ChainNode, dst: Chain, key: tuple[int, int], content: Call | Answer) -> None:
    """Who sent it has back what was refused."""
    if content.amount:
        note_claimed(c, content.amount, dst)
        credit(c, account(content.sender), content.amount)
        moved(c, dst, *key, "back", content.amount)


def send_answer(c: ChainNode, dst: Chain, answer: Answer) -> bool:
    """As 3.3, without fees; whether there was a channel with room."""
    if c.options.allowlist == "on" and dst not in c.state.allowlist:
        return False
    channels = [n for (foreign, n), ch in c.state.channels.items() if foreign == dst and ch.state == ChannelState.OPEN]
    room = [n for n in channels if has_room(c, dst, n)]
    if not room:
        return False
    request = EndpointRequest(PROGRAMS, PROGRAMS, encode(answer))
    nonce = new_outbox_message(c, dst, max(room), EndpointCall(request, CollectedFee(0, 0)))
    c.state.outbox_fee[dst, max(room), nonce] = 0
    c.log("FeeBurn", foreign=dst, channel_id=max(room), nonce=nonce, amount=0, by=account(answer.sender))
    if answer.amount:
        subtract(c.state.balances, account(answer.sender), answer.amount, "LowBalance")
        note_transfer_out(c, answer.amount, dst)
        moved(c, dst, max(room), nonce, "out", answer.amount)
    return True
