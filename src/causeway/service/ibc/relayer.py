"""Relay loop as a state machine without I/O (IBC reference 3.5, X-13).

It yields requests and submissions:

    steps = relay_pass(Direction("a", "left", "right"), rules, settings)
    step = next(steps)
    ... step = steps.send(answer to step) ... until StopIteration, whose value is a ``ZonePass``

A pass may be abandoned at any step: the next one determines the remaining work by itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from causeway_proofs.errors import ProofError
from causeway_proofs.ics23.proof_specs import TENDERMINT_SPEC
from causeway_proofs.ics23.verify import verify_membership, verify_non_membership
from causeway_proofs.tendermint.errors import ClientExpired, ConnectionFrozen
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
    PacketRelayMemory,
    ReadHeader,
    ReadLane,
    ReadProofs,
    RelayRules,
    Step,
    SubmitWithHeaders,
)
from causeway.service.relay.loop import Direction


class PassState(Enum):
    """Final state of a pass."""

    IDLE = "idle"
    """There was no work."""
    WAITING = "waiting"
    """There is work, which waits for more (``min_batch``)."""
    DELAYED = "waiting for the delay"
    """There is work under a header whose delay has not elapsed on the target."""
    SUBMITTED = "submitted"
    FROZEN = "frozen"
    """The target's client saw two headers of one height and accepts nothing; a disconnecting one accepts input."""
    EXPIRED = "expired"
    """The target's client had no new header for too long and accepts nothing."""
    REFUSED = "refused"
    """The target would not trust the source's headers."""
    HELD = "backing off"
    """All work was refused before and backs off (``PacketRelayMemory``)."""
    ACCUSED = "accused"
    """The source signed two conflicting headers, and the target was shown the evidence."""


@dataclass(frozen=True)
class ZonePass:
    """Result of a pass.

    Attributes:
        state: Final state.
        source: View of the source.
        target: View of the target.
        work: The work.
        headers: Submitted header updates.
        messages: Submitted messages.
        transactions: Submitted transactions.
        why: Reason for incomplete work.
        held: Descriptions of due but withheld entries.
    """

    state: PassState
    source: LaneView
    target: LaneView
    work: RelayWork = field(default_factory=RelayWork)
    headers: int = 0
    messages: int = 0
    transactions: int = 0
    why: str = ""
    held: tuple[str, ...] = ()


_FINAL_STATES: dict[type[ProofError], PassState] = {
    ClientExpired: PassState.EXPIRED,
    ConnectionFrozen: PassState.FROZEN,
}


def relay_pass(
    direction: Direction, rules: RelayRules, settings: RelaySettings, memory: PacketRelayMemory | None = None
) -> Generator[Step, Any, ZonePass]:
    """Run one pass in one direction: read both ends, and submit the work.

    Args:
        direction: The direction.
        rules: Rules of the network.
        settings: Settings of the process.
        memory: Memory of earlier passes.

    Yields:
        Requests and submissions.

    Returns:
        The result of the pass.
    """
    memory = memory or PacketRelayMemory()
    memory.held.clear()
    # Read the target first, so that the source's view includes the sending of everything received meanwhile.
    target: LaneView = yield ReadLane(direction.other, direction.target, direction.source)
    begin = target.receipt.first_missing_index, target.send.head
    source: LaneView = yield ReadLane(direction.end, direction.source, direction.target, *begin)
    if target.state == "frozen":
        return ZonePass(PassState.FROZEN, source, target, why=f"the client of {direction.source} is frozen")
    now = max(target.time, source.time)  # the target's clock moves on with the header that it is given
    client = LightClient(TrustOptions(direction.source, rules.trusting_ns), target.trusted)
    accusation = yield from _find_contradiction(client, direction, source, target, now, memory)
    if isinstance(accusation, str):
        return ZonePass(PassState.REFUSED, source, target, why=accusation)
    if accusation is not None:
        return (yield from _accuse(direction, settings, accusation, source, target))
    # With a delay, proofs refer to the source at the height of a usable header.
    outlook = (yield from plan_headers(direction, source, target, rules, settings, memory)) if rules.delay_ns else None
    source_view = source if outlook is None else outlook.shown
    work = (
        plan_work(source_view, target, rules, settings, memory)
        if outlook is None
        else outlook.work(target, rules, memory)
    )
    expired: tuple[int, ...] = ()
    if work.time_outs:
        expired = yield from expired_packets(direction, source_view, target, rules, work, settings, memory)
        # In an ordered queue the call has no index: the tail proves that the head has expired.
        expired = tuple(memory.due("timeout", dict.fromkeys(expired), target.height, ordered=rules.ordered))
    withheld = tuple(memory.held)
    due = work.packets or work.receipts or work.cleanup or work.refresh or expired or (outlook and outlook.header)
    if not due:
        waits = (
            PassState.DELAYED if outlook and outlook.waits else PassState.WAITING if work.patient else PassState.IDLE
        )
        state = PassState.HELD if withheld else waits
        return ZonePass(state, source, target, work, why="; ".join(withheld), held=withheld)
    if outlook is None:
        height, header = proving_height(source, target, work, bool(expired))
    else:
        height, header = source_view.height, outlook.header or work.refresh
    updates: list[HeaderUpdate] = []
    if header:
        try:
            updates = yield from _header_path(client, direction, max(height, source.height), now)
        except ProofError as error:
            return ZonePass(_FINAL_STATES.get(type(error), PassState.REFUSED), source, target, work, why=str(error))
    batches = _Batches(direction, settings)
    for update in updates:
        memory.compared(update.height, update.signed_header.header.hash)
        yield from batches.add(_update_call(direction, update), header=True)
    for chunk in _chunks(_messages(direction, work, expired, ordered=rules.ordered), settings.chunk):
        keys = tuple(key for _, key in chunk)
        answers = yield ReadProofs(direction.end, direction.source, height, tuple(dict.fromkeys(keys)))
        proofs = dict(zip(dict.fromkeys(keys), answers, strict=True))
        try:
            _verify_proofs(proofs, client.trusted(height).root)
        except ProofError as error:
            return ZonePass(
                PassState.REFUSED, source, target, work, why=f"a proof of {direction.source} is none: {error}"
            )
        for kind, key in chunk:
            value = proofs[key]
            absence = kind == "timeout" and not rules.ordered
            if value is None or bool(value[0]) == absence or _expires_before_receipt(kind, value[0], target, rules):
                continue
            yield from batches.add(_submit_call(direction, kind, key, value, height))
    yield from batches.finish()
    for kind, indices in _submitted_indices(source_view, work, expired).items():
        memory.handed_over(kind, indices, target.height, ordered=rules.ordered)
    counts = (batches.headers, batches.messages, batches.transactions)
    state = PassState.SUBMITTED if batches.transactions else PassState.IDLE
    return ZonePass(state, source, target, work, *counts, why="; ".join(withheld), held=withheld)


def _verify_proofs(proofs: dict[bytes, tuple[bytes, bytes] | None], root: bytes) -> None:
    """Verify proofs, to avoid fees for refused ones."""
    for key, found in proofs.items():
        if found is not None and found[0]:
            verify_membership(TENDERMINT_SPEC, root, found[1], key, found[0])
        elif found is not None:
            verify_non_membership(TENDERMINT_SPEC, root, found[1], key)


def _expires_before_receipt(kind: str, value: bytes, target: LaneView, rules: RelayRules) -> bool:
    """Return True if the target's next block refuses an expired packet (unordered: X-6)."""
    if kind != "receive" or rules.ordered or not rules.timeouts:
        return False
    try:
        packet = decode_packet(value)
    except IbcError:
        return False
    return bool(is_expired(packet.max_height, packet.max_time, target.height + 1, target.time, rules.expiry))


def _submitted_indices(source: LaneView, work: RelayWork, expired: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the submitted indices by call."""
    cleanup = (source.send.head,) if work.cleanup else ()
    return {"receive": work.packets, "receipt": work.receipts, "timeout": expired, "cleanup": cleanup}


def _find_contradiction(
    client: LightClient, direction: Direction, source: LaneView, target: LaneView, now: int, memory: PacketRelayMemory
) -> Generator[Step, Any, HeaderUpdate | str | None]:
    """Return a header of the source that contradicts a trusted one (X-3), or None.

    Every trusted header is compared once with the source's own of that height. If the source's own differs but is
    not validly signed, return the reason as text.
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
            update = yield from _read_header(trial, direction, wanted)
            if trial.update(update, now).outcome is UpdateOutcome.FROZEN:
                return update
        except ProofError as error:
            return f"{direction.target} trusts another header {trusted.height} of {direction.source}: {error}"
    return None


def _accuse(
    direction: Direction, settings: RelaySettings, update: HeaderUpdate, source: LaneView, target: LaneView
) -> Generator[Step, Any, ZonePass]:
    """Submit a header that contradicts a trusted one."""
    batches = _Batches(direction, settings)
    yield from batches.add(_update_call(direction, update), header=True)
    yield from batches.finish()
    why = f"{direction.source} has signed another header {update.height} than {direction.target} trusts"
    return ZonePass(PassState.ACCUSED, source, target, headers=1, transactions=1, why=why)


def _header_path(
    client: LightClient, direction: Direction, height: int, now: int
) -> Generator[Step, Any, list[HeaderUpdate]]:
    """Return the updates up to a height for the target's client, intermediate ones first (X-4)."""
    updates: dict[int, HeaderUpdate] = {}
    search = bisect_headers(client, height, now)
    try:
        wanted = next(search)
        while True:
            update = yield from _read_header(client, direction, wanted)
            updates[wanted.height] = update
            wanted = search.send(update)
    except StopIteration:
        return [updates[known] for known in sorted(updates)]


def _read_header(client: LightClient, direction: Direction, wanted: WantedHeader) -> Generator[Step, Any, HeaderUpdate]:
    """Read a wanted header and base it on the target's trusted one."""
    place = (direction.end, direction.source)
    offered = decode_header_update((yield ReadHeader(*place, wanted.height)))
    base = client.trusted(wanted.trusted_height)
    believed, known = offered.validators, base.anchor_hash(client.options.rule)
    if believed.hash != known:
        believed = offered.trusted_validators  # of the previous height, as in a lake's certification
    if believed.hash != known:
        # No header is signed at height 0; the first one contains the validators of the root of trust.
        at = max(wanted.validators_height, 1)
        signed = decode_header_update((yield ReadHeader(*place, at)))
        believed = signed.validators if wanted.validators_height else signed.trusted_validators
    return HeaderUpdate.on(base.height, believed, offered.signed_header, offered.validators)


def _messages(
    direction: Direction, work: RelayWork, expired: tuple[int, ...], *, ordered: bool
) -> Iterator[tuple[str, bytes]]:
    """Yield call and key of all submissions other than headers, in the target's order."""
    mine = direction.target
    if work.cleanup:
        yield "cleanup", QueueKey(mine, QueuePurpose.SEND, KeyPart.HEAD).encode()
    for index in work.packets:
        yield "receive", index_key(mine, QueuePurpose.SEND, index)
    for index in work.receipts:
        yield "receipt", index_key(mine, QueuePurpose.RECEIPT, index)
    for index in expired:
        # Ordered: the tail proves that the head was not received. Unordered: the absence of each index.
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


def _update_call(direction: Direction, update: HeaderUpdate) -> wire.Call:
    return wire.Call(update=wire.UpdateHeader(remote=direction.source, header=update.encode()))


def _submit_call(
    direction: Direction, kind: str, key: bytes, value_and_proof: tuple[bytes, bytes], height: int
) -> wire.Call:
    value, proof = value_and_proof
    submit = wire.Submit(remote=direction.source, key=key, value=value, proof=proof, height=height)
    call = wire.Call()
    getattr(call, kind).CopyFrom(submit)
    return call


class _Batches:
    """Builder of transactions; the latest one is withheld until it is known to be the last."""

    def __init__(self, direction: Direction, settings: RelaySettings) -> None:
        self._direction, self._settings = direction, settings
        self._calls: list[wire.Call] = []
        self._bytes = self._headers = 0
        self._withheld: SubmitWithHeaders | None = None
        self.headers = self.messages = self.transactions = 0

    def add(self, call: wire.Call, *, header: bool = False) -> Generator[Step, Any, None]:
        """Add a call; submit a full transaction before it."""
        size = call.ByteSize() + 8
        full = len(self._calls) >= self._settings.max_calls or self._bytes + size > self._settings.max_bytes
        if self._calls and full:
            yield from self._close_transaction()
        self._calls.append(call)
        self._bytes += size
        self._headers += header

    def finish(self) -> Generator[Step, Any, None]:
        """Submit the rest."""
        if self._calls:
            yield from self._close_transaction()
        if self._withheld is not None:
            yield SubmitWithHeaders(**{**self._withheld.__dict__, "last": True})

    def _close_transaction(self) -> Generator[Step, Any, None]:
        if self._withheld is not None:
            yield self._withheld
        data = wire.Transaction(calls=self._calls).SerializeToString(deterministic=True)
        messages = len(self._calls) - self._headers
        place = (self._direction.other, self._direction.target)
        self._withheld = SubmitWithHeaders(*place, data, messages, last=False, headers=self._headers)
        self.headers, self.messages = self.headers + self._headers, self.messages + messages
        self.transactions += 1
        self._calls, self._bytes, self._headers = [], 0, 0
