"""The framework of calls: runs, checks and effects; checks of light client calls.

A call is a table of checks in the order of the reference. The first checks are common: the connection is registered and
not frozen (IBC reference 3.1, X-3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

from causeway.core.joins import Intervals
from causeway.protocols.ibc.client import Clients
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.expiry import Expired
from causeway.protocols.ibc.keys import KeyPart, QueueKey, QueuePurpose
from causeway.protocols.ibc.progress import Pair, QueueProgress, Span

Raising = Mapping[Pair, Intervals]
"""Indices of own packets per connection whose outcome their sender's handler raises on."""


@dataclass(frozen=True)
class CallContext:
    """The context of a call: the block's state after the previous calls.

    Attributes:
        context: The metadata of the block.
        clients: The light clients.
        progress: The positions of the queues.
        expired: The check of expiry.
        raising: Calls that are known to raise in a handler.
    """

    context: Context
    clients: Clients
    progress: QueueProgress
    expired: Expired
    raising: Raising


class CallRun(ABC):
    """Calls of one kind submitted together; a call from outside is a run of one.

    Attributes:
        chain: The called zone.
        counterparty: The chain that the proof is about, below 0 if unknown.
        pair: The connection: both of them.
        key: The proved key, of a run the first one; None if it is malformed.
        height: The height of the header.
    """

    chain: int
    counterparty: int
    pair: Pair
    key: QueueKey | None
    height: int

    @abstractmethod
    def entries(self) -> Span:
        """Return the range of submitted indices."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of calls, for calls without indices."""

    @abstractmethod
    def proven_until(self, first: int, stop: int, root: bytes) -> int:
        """Return the end of the entries proved under ``root``, from ``first`` to at most ``stop``."""

    @abstractmethod
    def absent_until(self, first: int, stop: int, root: bytes) -> int:
        """Return the end of the absences proved under ``root``, from ``first`` to at most ``stop``.

        It is ``first`` if the call claims that the entry is present.
        """

    @abstractmethod
    def is_late(self, block: CallContext) -> bool:
        """Return True if the value is a packet that has timed out at this block."""

    @abstractmethod
    def has_packet(self, *, limited: bool) -> bool:
        """Return True if the value is a packet; ``limited`` allows packets with limits."""

    @abstractmethod
    def has_receipt(self) -> bool:
        """Return True if the value is a receipt of this network's programs."""

    @abstractmethod
    def position(self) -> int | None:
        """Return the head or tail that the value encodes, or None."""


class CheckedEntry(Enum):
    """The object of a check: the form, or the run and its block.

    Key and value of a form are constant for all its runs.
    """

    FORM = "form"
    RUN = "run"


Cut = Callable[[CallRun, Span, CallContext], list[Span]]
"""A check of spans: returns the parts of a span of a run that pass."""


class CallCheck(NamedTuple):
    """A step of a call: a check of a run (``holds``) or of its spans (``cut``).

    The failing part is refused for ``refusal``.
    """

    refusal: Refusal
    section: str
    holds: Callable[[CallRun, CallContext], bool] | None
    about: CheckedEntry = CheckedEntry.RUN
    cut: Cut | None = None


class CallType(NamedTuple):
    """A kind of call.

    Attributes:
        span: The current span of indices that a run is about.
        checks: The checks, in order.
        execute: The effect: it advances the queues by a valid span, and returns the effective span.
    """

    span: Callable[[CallRun, CallContext], Span]
    checks: tuple[CallCheck, ...]
    execute: Callable[[CallRun, Span, CallContext], Span]


class RefusedPart(NamedTuple):
    """A part of a run without effect, and the reason."""

    first: int
    stop: int
    why: Refusal


def validate_run(
    call: CallType, run: CallRun, block: CallContext, checks: tuple[CallCheck, ...] | None = None
) -> tuple[list[Span], list[RefusedPart]]:
    """Return the spans of a run that pass all checks, and the first failure of the others.

    Args:
        call: The kind of call.
        run: The calls.
        block: The context; it is not changed.
        checks: The checks that the run may fail , if known.
    """
    passing, refused = [call.span(run, block)], list[RefusedPart]()
    for refusal, _, holds, _, cut in call.checks if checks is None else checks:
        if holds is not None and holds(run, block):
            continue
        remaining: list[Span] = []
        for span in passing:
            parts = [] if cut is None else cut(run, span, block)
            remaining += parts
            if len(parts) != 1 or parts[0] != span:
                refused += [RefusedPart(first, stop, refusal) for first, stop in _rest(span, parts)]
        passing = remaining
        if not passing:
            break
    return passing, refused


def _rest(span: Span, parts: list[Span]) -> list[Span]:
    """Return the parts of a span outside ``parts``, which ascend."""
    if not parts:
        return [span] if span[1] > span[0] else []
    ends = [span[0], *(end for part in parts for end in part), span[1]]
    return [(first, stop) for first, stop in zip(ends[::2], ends[1::2], strict=True) if stop > first]


def named_indices(run: CallRun, block: CallContext) -> Span:
    """Return the indices of a run."""
    return run.entries()


# ---- checks that several calls have


def _is_connected(run: CallRun, block: CallContext) -> bool:
    return block.progress.is_connected(run.pair)


def _is_open(run: CallRun, block: CallContext) -> bool:
    return not block.clients.frozen(run.chain, run.counterparty)


def _has_key(run: CallRun, block: CallContext) -> bool:
    return run.key is not None


def _is_ours(run: CallRun, block: CallContext) -> bool:
    return run.key is not None and run.key.remote == block.context.zones.names[run.chain]


def _has_header(run: CallRun, block: CallContext) -> bool:
    return block.clients.root(run.chain, run.counterparty, run.height) is not None


def _is_usable(run: CallRun, block: CallContext) -> bool:
    return not block.clients.expired(run.chain, run.counterparty, run.height)


def _has_waited(run: CallRun, block: CallContext) -> bool:
    return not block.clients.delayed(run.chain, run.counterparty, run.height)


def proven_part(run: CallRun, span: Span, block: CallContext) -> list[Span]:
    """Return the part of a span that is proved present under a trusted root."""
    root = block.clients.root(run.chain, run.counterparty, run.height)
    stop = span[0] if root is None else run.proven_until(*span, root)
    return [(span[0], stop)] if stop > span[0] else []


def check_offered(step: str, option: Literal["timeouts", "cleanup"]) -> CallCheck:
    """Return the check that the network offers an optional call."""

    def is_on(run: CallRun, block: CallContext) -> bool:
        return bool(getattr(block.context.options, option) == "on")

    return CallCheck(Refusal.CallNotOffered, step, is_on)


def opening_checks(step: str, purpose: QueuePurpose, otherwise: Refusal) -> tuple[CallCheck, ...]:
    """Return steps 1 to 3 of every call with a proof.

    Args:
        step: The section of the reference.
        purpose: The required queue.
        otherwise: The refusal of other queues.
    """

    def is_of_queue(run: CallRun, block: CallContext) -> bool:
        return run.key is not None and run.key.purpose == purpose

    return (
        CallCheck(Refusal.UnregisteredSender, f"{step}, 1", _is_connected),
        CallCheck(Refusal.ConnectionFrozen, "X-3", _is_open),
        CallCheck(Refusal.MalformedKey, f"{step}, 2", _has_key, CheckedEntry.FORM),
        CallCheck(otherwise, f"{step}, 2", is_of_queue, CheckedEntry.FORM),
        CallCheck(Refusal.WrongChain, f"{step}, 3", _is_ours, CheckedEntry.FORM),
    )


def check_key_part(step: str, part: KeyPart, otherwise: Refusal) -> CallCheck:
    """Return the check that a key names an index, a head, or a tail."""

    def is_part(run: CallRun, block: CallContext) -> bool:
        return run.key is not None and run.key.part == part

    return CallCheck(otherwise, step, is_part, CheckedEntry.FORM)


def proof_checks(header: str, path: str, shown: Cut = proven_part) -> tuple[CallCheck, ...]:
    """Return the checks of a proof and its header.

    The header is trusted, usable and past its delay; the proof leads to its root.

    Args:
        header: The section of the header's checks.
        path: The section of the proof's check.
        shown: The check of the proof.
    """
    return (
        CallCheck(Refusal.MissingHeader, header, _has_header),
        CallCheck(Refusal.ClientExpired, "X-4", _is_usable),
        CallCheck(Refusal.DelayNotElapsed, "X-11", _has_waited),
        CallCheck(Refusal.InvalidProof, path, None, cut=shown),
    )


def order_checks(step: str, substream: int) -> tuple[CallCheck, ...]:
    """Return the checks that submitted entries come next in order.

    They apply to a receipt queue (``substream`` RECEIPT), or to the head of a send queue.
    """

    def is_new(run: CallRun, span: Span, block: CallContext) -> list[Span]:
        if block.context.options.redundant == "error":
            return [span]
        done = block.progress.processed(run.pair, substream, span)
        return _rest(span, done)

    def is_next(run: CallRun, span: Span, block: CallContext) -> list[Span]:
        return block.progress.in_turn(run.pair, substream, span)

    return CallCheck(Refusal.NoOp, "X-10", None, cut=is_new), CallCheck(Refusal.OutOfOrder, step, None, cut=is_next)


def check_handled(step: str) -> CallCheck:
    """Return the last check of calls that end packets: the senders' handlers do not raise.

    In ordered queues a raising entry blocks the later ones.
    """

    def does_not_raise(run: CallRun, span: Span, block: CallContext) -> list[Span]:
        raising = block.raising.get(run.pair)
        if raising is None:
            return [span]
        parts = [(first, stop) for first, stop, raises in raising.cut(*span) if not raises]
        if block.context.options.order == "ordered":
            return [part for part in parts[:1] if part[0] == span[0]]
        return parts

    return CallCheck(Refusal.HandlerFault, step, None, cut=does_not_raise)


def take_entries(substream: int) -> Callable[[CallRun, Span, CallContext], Span]:
    """Return the effect of entries: the queue advances past them."""

    def execute(run: CallRun, span: Span, block: CallContext) -> Span:
        block.progress.take(run.pair, substream, span)
        return span

    return execute


class ClientCall(Protocol):
    """A call to a light client; ``counterparty`` is below 0 for an unknown chain."""

    @property
    def chain(self) -> int:
        """Return the called zone."""
        ...

    @property
    def counterparty(self) -> int:
        """Return the tracked chain of the client."""
        ...


Call = TypeVar("Call", bound=ClientCall)


class ClientCheck(NamedTuple, Generic[Call]):
    """A step of a client call, and the refusal if it fails."""

    refusal: Refusal
    section: str
    holds: Callable[[Call, CallContext], bool]


def client_opening_checks(kind: type[Call]) -> tuple[ClientCheck[Call], ...]:
    """Return the checks that the connection is registered and not frozen."""

    def is_connected(call: Call, block: CallContext) -> bool:
        return block.progress.is_connected((call.chain, call.counterparty))

    def is_open(call: Call, block: CallContext) -> bool:
        return not block.clients.frozen(call.chain, call.counterparty)

    return (
        ClientCheck(Refusal.UnregisteredSender, "3.1", is_connected),
        ClientCheck(Refusal.ConnectionFrozen, "3.1, X-3", is_open),
    )


def validate_client_call(checks: tuple[ClientCheck[Call], ...], call: Call, block: CallContext) -> Refusal:
    """Return the refusal of the first failing check, or ``ACCEPTED``; change nothing."""
    for check in checks:
        if not check.holds(call, block):
            return check.refusal
    return Refusal.ACCEPTED
