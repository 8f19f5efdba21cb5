"""The relay loop as a state machine: it asks questions and hands over transactions, and knows no socket and no clock
(IBC reference 3.5, X-13).

    steps = relay(Direction("a", "left", "right"), rules, settings)
    step = next(steps)
    ... step = steps.send(answer to step) ... until StopIteration, whose value is a ``Passed``

Whoever runs it may stop at any step and never come back: the next pass finds out by itself what is left.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from causeway_proofs.errors import ProofError
from causeway_proofs.ics23.proof_specs import TENDERMINT_SPEC
from causeway_proofs.ics23.verify import verify_membership, verify_non_membership
from causeway_proofs.tendermint.header import ClientExpired, ConnectionFrozen
from causeway_proofs.tendermint.light_client import LightClient, UpdateOutcome, WantedHeader, bisect_headers
from causeway_proofs.tendermint.trust import HeaderUpdate, TrustOptions, decode_header_update
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.protocols.ibc.errors import IbcError
from causeway.protocols.ibc.expiry import is_expired
from causeway.protocols.ibc.keys import KeyPart, QueueKey, QueuePurpose, index_key
from causeway.protocols.ibc.packets import decode_packet
from causeway.service.ibc.relay_plan import (
    RelaySettings,
    RelayWork,
    expired_packets,
    plan_headers,
    plan_work,
    proving_height,
)
from causeway.service.ibc.relay_state import (
    LaneView,
    ReadHeader,
    ReadLane,
    ReadProofs,
    RelayMemory,
    RelayRules,
    Step,
    SubmitWithHeaders,
)
from causeway.service.relay.steps import Direction


class PassState(Enum):
    """How a pass ended."""

    IDLE = "idle"
    """There was nothing to do."""
    WAITING = "waiting"
    """There is something, which waits for more (``min_batch``)."""
    DELAYED = "waiting for the delay"
    """There is something, under a header that the target has not trusted for long enough yet."""
    SUBMITTED = "submitted"
    FROZEN = "frozen"
    """The target's client saw two headers of one height: nothing is taken. A disconnecting one takes what comes."""
    EXPIRED = "expired"
    """The target's client was without a new header for too long: nothing is taken."""
    REFUSED = "refused"
    """The source's headers are not what the target would trust."""
    HELD = "backing off"
    """All that there is was refused before, and waits (``Memory``)."""
    ACCUSED = "accused"
    """The source has signed two headers that exclude each other; the target was shown that."""


@dataclass(frozen=True)
class ZonePass:
    """What a pass found and did. ``source``, ``target``: both ends as it saw them; ``why``: of what it could not do;
    ``held``: what it did not submit, though it is due, in words."""

    state: PassState
    source: LaneView
    target: LaneView
    work: RelayWork = field(default_factory=RelayWork)
    headers: int = 0
    messages: int = 0
    transactions: int = 0
    why: str = ""
    held: tuple[str, ...] = ()


_NO_WAY: dict[type[ProofError], PassState] = {ClientExpired: PassState.EXPIRED, ConnectionFrozen: PassState.FROZEN}


def relay_pass(
    direction: Direction, rules: RelayRules, settings: RelaySettings, memory: RelayMemory | None = None
) -> Generator[Step, Any, ZonePass]:
    """Make one pass in one direction: look at both ends, and bring what there is to bring.

    ``memory``: of the passes before.
    """
    memory = memory or RelayMemory()
    memory.held.clear()
    # The target is looked at first: what it receives meanwhile is then sent already by what the source says.
    target: LaneView = yield ReadLane(direction.other, direction.target, direction.source)
    begin = target.receipt.first_missing_index, target.send.head
    source: LaneView = yield ReadLane(direction.end, direction.source, direction.target, *begin)
    if target.state == "frozen":
        return ZonePass(PassState.FROZEN, source, target, why=f"the client of {direction.source} is frozen")
    now = max(target.time, source.time)  # the target's clock moves on with the header that it is given
    client = LightClient(TrustOptions(direction.source, rules.trusting_ns), target.trusted)
    accusation = yield from _contradiction(client, direction, source, target, now, memory)
    if isinstance(accusation, str):
        return ZonePass(PassState.REFUSED, source, target, why=accusation)
    if accusation is not None:
        return (yield from _accuse(direction, settings, accusation, source, target))
    # With a delay all is proved as the source was at the height of a header that can be used by now.
    ahead = (yield from plan_headers(direction, source, target, rules, settings, memory)) if rules.delay_ns else None
    shown = source if ahead is None else ahead.shown
    work = plan_work(shown, target, rules, settings, memory) if ahead is None else ahead.work(target, rules, memory)
    expired: tuple[int, ...] = ()
    if work.time_outs:
        expired = yield from expired_packets(direction, shown, target, rules, work, settings, memory)
        # In an ordered queue the call names no index: the tail proves that whatever is at the head has expired.
        expired = tuple(memory.due("timeout", dict.fromkeys(expired), target.height, ordered=rules.ordered))
    held = tuple(memory.held)
    due = work.packets or work.receipts or work.cleanup or work.refresh or expired or (ahead and ahead.header)
    if not due:
        waits = PassState.DELAYED if ahead and ahead.waits else PassState.WAITING if work.patient else PassState.IDLE
        state = PassState.HELD if held else waits
        return ZonePass(state, source, target, work, why="; ".join(held), held=held)
    if ahead is None:
        height, header = proving_height(source, target, work, bool(expired))
    else:
        height, header = shown.height, ahead.header or work.refresh
    updates: list[HeaderUpdate] = []
    if header:
        try:
            updates = yield from _headers(client, direction, max(height, source.height), now)
        except ProofError as error:
            return ZonePass(_NO_WAY.get(type(error), PassState.REFUSED), source, target, work, why=str(error))
    batches = _Batches(direction, settings)
    for update in updates:
        memory.compared(update.height, update.signed_header.header.hash)
        yield from batches.add(_update(direction, update), header=True)
    for chunk in _chunks(_messages(direction, work, expired, ordered=rules.ordered), settings.chunk):
        keys = tuple(key for _, key in chunk)
        found = yield ReadProofs(direction.end, direction.source, height, tuple(dict.fromkeys(keys)))
        proofs = dict(zip(dict.fromkeys(keys), found, strict=True))
        try:
            _verify(proofs, client.trusted(height).root)
        except ProofError as error:
            return ZonePass(
                PassState.REFUSED, source, target, work, why=f"a proof of {direction.source} is none: {error}"
            )
        for kind, key in chunk:
            value = proofs[key]
            absence = kind == "timeout" and not rules.ordered
            if value is None or bool(value[0]) == absence or _comes_too_late(kind, value[0], target, rules):
                continue
            yield from batches.add(_submission(direction, kind, key, value, height))
    yield from batches.finish()
    for kind, indices in _indices(shown, work, expired).items():
        memory.handed_over(kind, indices, target.height, ordered=rules.ordered)
    counts = (batches.headers, batches.messages, batches.transactions)
    state = PassState.SUBMITTED if batches.transactions else PassState.IDLE
    return ZonePass(state, source, target, work, *counts, why="; ".join(held), held=held)


def _verify(shown: dict[bytes, tuple[bytes, bytes] | None], root: bytes) -> None:
    """Refuse to pay for what the target would not take."""
    for key, found in shown.items():
        if found is not None and found[0]:
            verify_membership(TENDERMINT_SPEC, root, found[1], key, found[0])
        elif found is not None:
            verify_non_membership(TENDERMINT_SPEC, root, found[1], key)


def _comes_too_late(kind: str, value: bytes, target: LaneView, rules: RelayRules) -> bool:
    """Return whether the target's next block refuses a packet because it has expired: in any order, it does (X-6)."""
    if kind != "receive" or rules.ordered or not rules.timeouts:
        return False
    try:
        packet = decode_packet(value)
    except IbcError:
        return False
    return bool(is_expired(packet.max_height, packet.max_time, target.height + 1, target.time, rules.expiry))


def _indices(source: LaneView, work: RelayWork, expired: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the indices that a pass submits, by call."""
    cleanup = (source.send.head,) if work.cleanup else ()
    return {"receive": work.packets, "receipt": work.receipts, "timeout": expired, "cleanup": cleanup}


def _contradiction(
    client: LightClient, direction: Direction, source: LaneView, target: LaneView, now: int, memory: RelayMemory
) -> Generator[Step, Any, HeaderUpdate | str | None]:
    """Return a header of the source that contradicts one that the target trusts (X-3), None where there is none.

    Every trusted header is compared once with the source's own of that height. Why, in words, where the source's own is
    another one and none that its validators have signed.
    """
    for trusted in reversed(target.trusted):
        if not 0 < trusted.height <= source.height or memory.is_compared(trusted.height, trusted.header_hash):
            continue
        own = decode_header_update((yield ReadHeader(direction.end, direction.source, trusted.height)))
        if own.signed_header.header.hash == trusted.header_hash:
            memory.compared(trusted.height, trusted.header_hash)
            continue
        trial = client.copy()
        try:
            wanted = trial.wanted(trusted.height)
            update = yield from _header(trial, direction, wanted)
            if trial.update(update, now).outcome is UpdateOutcome.FROZEN:
                return update
        except ProofError as error:
            return f"{direction.target} trusts another header {trusted.height} of {direction.source}: {error}"
    return None


def _accuse(
    direction: Direction, settings: RelaySettings, update: HeaderUpdate, source: LaneView, target: LaneView
) -> Generator[Step, Any, ZonePass]:
    """Show the target a header that contradicts one that it trusts."""
    batches = _Batches(direction, settings)
    yield from batches.add(_update(direction, update), header=True)
    yield from batches.finish()
    why = f"{direction.source} has signed another header {update.height} than {direction.target} trusts"
    return ZonePass(PassState.ACCUSED, source, target, headers=1, transactions=1, why=why)


def _headers(
    client: LightClient, direction: Direction, height: int, now: int
) -> Generator[Step, Any, list[HeaderUpdate]]:
    """Return the updates that bring the target's client to trust a height, those in between first (X-4)."""
    updates: dict[int, HeaderUpdate] = {}
    search = bisect_headers(client, height, now)
    try:
        wanted = next(search)
        while True:
            update = yield from _header(client, direction, wanted)
            updates[wanted.height] = update
            wanted = search.send(update)
    except StopIteration:
        return [updates[known] for known in sorted(updates)]


def _header(client: LightClient, direction: Direction, wanted: WantedHeader) -> Generator[Step, Any, HeaderUpdate]:
    """Return the header that is wanted, built on what the target trusts."""
    place = (direction.end, direction.source)
    offered = decode_header_update((yield ReadHeader(*place, wanted.height)))
    base = client.trusted(wanted.trusted_height)
    believed, known = offered.validators, base.anchor_hash(client.options.rule)
    if believed.hash != known:
        believed = offered.trusted_validators  # of the height before, as a lake shows it
    if believed.hash != known:
        # What the root of trust vouches for, at height 0, no header is signed by; the first builds on it.
        at = max(wanted.validators_height, 1)
        signed = decode_header_update((yield ReadHeader(*place, at)))
        believed = signed.validators if wanted.validators_height else signed.trusted_validators
    return HeaderUpdate.on(base.height, believed, offered.signed_header, offered.validators)


def _messages(
    direction: Direction, work: RelayWork, expired: tuple[int, ...], *, ordered: bool
) -> Iterator[tuple[str, bytes]]:
    """Yield (call, key) of all that is submitted besides headers, in the order in which the target takes it."""
    mine = direction.target
    if work.cleanup:
        yield "cleanup", QueueKey(mine, QueuePurpose.SEND, KeyPart.HEAD).encode()
    for index in work.packets:
        yield "receive", index_key(mine, QueuePurpose.SEND, index)
    for index in work.receipts:
        yield "receipt", index_key(mine, QueuePurpose.RECEIPT, index)
    for index in expired:
        # In order, the tail proves that whatever is at the head was not received; else each index that it is absent.
        tail = QueueKey(mine, QueuePurpose.RECEIPT, KeyPart.TAIL).encode()
        yield "timeout", tail if ordered else index_key(mine, QueuePurpose.RECEIPT, index)


def _chunks(messages: Iterator[tuple[str, bytes]], size: int) -> Iterator[list[tuple[str, bytes]]]:
    chunk: list[tuple[str, bytes]] = []
    for message in messages:
        chunk.append(message)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _update(direction: Direction, update: HeaderUpdate) -> wire.Call:
    return wire.Call(update=wire.UpdateHeader(remote=direction.source, header=update.encode()))


def _submission(direction: Direction, kind: str, key: bytes, shown: tuple[bytes, bytes], height: int) -> wire.Call:
    value, proof = shown
    submit = wire.Submit(remote=direction.source, key=key, value=value, proof=proof, height=height)
    call = wire.Call()
    getattr(call, kind).CopyFrom(submit)
    return call


class _Batches:
    """Calls, cut into transactions; one is kept back until it is known whether it is the last."""

    def __init__(self, direction: Direction, settings: RelaySettings) -> None:
        self._direction, self._settings = direction, settings
        self._calls: list[wire.Call] = []
        self._bytes = self._headers = 0
        self._kept: SubmitWithHeaders | None = None
        self.headers = self.messages = self.transactions = 0

    def add(self, call: wire.Call, *, header: bool = False) -> Generator[Step, Any, None]:
        """Add a call; hand over what is full before it."""
        size = call.ByteSize() + 8
        full = len(self._calls) >= self._settings.max_calls or self._bytes + size > self._settings.max_bytes
        if self._calls and full:
            yield from self._cut()
        self._calls.append(call)
        self._bytes += size
        self._headers += header

    def finish(self) -> Generator[Step, Any, None]:
        """Hand over all that is left."""
        if self._calls:
            yield from self._cut()
        if self._kept is not None:
            yield SubmitWithHeaders(**{**self._kept.__dict__, "last": True})

    def _cut(self) -> Generator[Step, Any, None]:
        if self._kept is not None:
            yield self._kept
        data = wire.Transaction(calls=self._calls).SerializeToString(deterministic=True)
        messages = len(self._calls) - self._headers
        place = (self._direction.other, self._direction.target)
        self._kept = SubmitWithHeaders(*place, data, messages, last=False, headers=self._headers)
        self.headers, self.messages = self.headers + self._headers, self.messages + messages
        self.transactions += 1
        self._calls, self._bytes, self._headers = [], 0, 0
