"""What all calls with a proof have in common: runs, their checks, and the block that they are made in.

What the calls about a light client have in common: tables of checks, and the first of them, that the connection is
there and open (IBC reference 3.1, X-3).
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
"""By connection the indices of our own packets whose outcome the program that waits for it cannot take now: its handler
raises."""


@dataclass(frozen=True)
class CallContext:
    """What calls are judged by, as the calls before them in the block left it; ``raising``: as far as it is known."""

    context: Context
    clients: Clients
    progress: QueueProgress
    expired: Expired
    raising: Raising


class CallRun(ABC):
    """Like calls that are submitted together; a call from outside is a run of one.

    ``chain``: the zone that is called; ``counterparty``: of which chain something is proved, below 0 for one that is
    unknown; ``pair``: both, the connection that the run is about. ``key``: what is proved, of a run its first entry;
    None for what is no key. ``height``: of the header.
    """

    chain: int
    counterparty: int
    pair: Pair
    key: QueueKey | None
    height: int

    @abstractmethod
    def entries(self) -> Span:
        """Return the indices that are submitted."""

    @abstractmethod
    def count(self) -> int:
        """Return how many calls they are, where they name no indices."""

    @abstractmethod
    def proven_until(self, first: int, stop: int, root: bytes) -> int:
        """Return the end of what is proved under ``root``, of what is submitted from ``first`` to ``stop`` - 1."""

    @abstractmethod
    def absent_until(self, first: int, stop: int, root: bytes) -> int:
        """Return the end of what is proved to be absent under ``root``, as ``proven_until``; ``first`` for what is
        claimed to be there."""

    @abstractmethod
    def is_late(self, block: CallContext) -> bool:
        """Return whether the value is a packet that is past its limits in this block."""

    @abstractmethod
    def has_packet(self, *, limited: bool) -> bool:
        """Return whether the value is a packet; ``limited``: whether it may have limits."""

    @abstractmethod
    def has_receipt(self) -> bool:
        """Return whether the value is a receipt of this network's programs."""

    @abstractmethod
    def position(self) -> int | None:
        """Return the head or tail that the value is, None for what is none."""


class CheckedEntry(Enum):
    """What a check looks at: what stands in the key and the value, which is one thing for all runs of a form (see
    ``unsettled``), or the run and the block that it is made in."""

    FORM = "form"
    RUN = "run"


Cut = Callable[[CallRun, Span, CallContext], list[Span]]
"""Which parts of a span of a run pass a check."""


class CallCheck(NamedTuple):
    """A step of a call: whether a run passes it, or which parts of a span of a run do (``cut``).

    What does not is refused for ``refusal``.
    """

    refusal: Refusal
    section: str
    holds: Callable[[CallRun, CallContext], bool] | None
    about: CheckedEntry = CheckedEntry.RUN
    cut: Cut | None = None


class CallType(NamedTuple):
    """A call: the span that a run of it is about, its checks in order, and its effect.

    ``span``: of indices, as of now. ``execute``: moves the queues on by a span that has passed all checks, and returns
    the span that takes effect.
    """

    span: Callable[[CallRun, CallContext], Span]
    checks: tuple[CallCheck, ...]
    execute: Callable[[CallRun, Span, CallContext], Span]


class RefusedPart(NamedTuple):
    """A part of a run that has no effect, and why."""

    first: int
    stop: int
    why: Refusal


def validate_run(
    call: CallType, run: CallRun, block: CallContext, checks: tuple[CallCheck, ...] | None = None
) -> tuple[list[Span], list[RefusedPart]]:
    """Return the spans of a run that pass all checks of its call, and for each of the others the first that it fails.

    Changes nothing. ``checks``: those that the run may fail (``unsettled``), where that is known.
    """
    passing, refused = [call.span(run, block)], list[RefusedPart]()
    for refusal, _, holds, _, cut in call.checks if checks is None else checks:
        if holds is not None and holds(run, block):
            continue
        kept: list[Span] = []
        for span in passing:
            good = [] if cut is None else cut(run, span, block)
            kept += good
            if len(good) != 1 or good[0] != span:
                refused += [RefusedPart(first, stop, refusal) for first, stop in _rest(span, good)]
        passing = kept
        if not passing:
            break
    return passing, refused


def _rest(span: Span, parts: list[Span]) -> list[Span]:
    """Return what of a span is in none of its parts, which are ascending."""
    if not parts:
        return [span] if span[1] > span[0] else []
    ends = [span[0], *(end for part in parts for end in part), span[1]]
    return [(first, stop) for first, stop in zip(ends[::2], ends[1::2], strict=True) if stop > first]


def named_indices(run: CallRun, block: CallContext) -> Span:
    """Return the indices that a run names."""
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
    """Return what of a span is proved to be there under a trusted root."""
    root = block.clients.root(run.chain, run.counterparty, run.height)
    stop = span[0] if root is None else run.proven_until(*span, root)
    return [(span[0], stop)] if stop > span[0] else []


def check_offered(step: str, option: Literal["timeouts", "cleanup"]) -> CallCheck:
    """Return the check that a call which is an option is offered by the network."""

    def is_on(run: CallRun, block: CallContext) -> bool:
        return bool(getattr(block.context.options, option) == "on")

    return CallCheck(Refusal.CallNotOffered, step, is_on)


def opening_checks(step: str, purpose: QueuePurpose, otherwise: Refusal) -> tuple[CallCheck, ...]:
    """Return steps 1 to 3 of every call with a proof: of which section, of which queue, and what to say of others."""

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
    """Return the checks that a header is trusted and usable, that its delay is over, and that the proof leads to its
    root (``shown``); of which steps."""
    return (
        CallCheck(Refusal.MissingHeader, header, _has_header),
        CallCheck(Refusal.ClientExpired, "X-4", _is_usable),
        CallCheck(Refusal.DelayNotElapsed, "X-11", _has_waited),
        CallCheck(Refusal.InvalidProof, path, None, cut=shown),
    )


def order_checks(step: str, substream: int) -> tuple[CallCheck, ...]:
    """Return the checks that what is submitted comes next: in a receipt queue (``substream`` RECEIPT), or at the head
    of a send queue."""

    def is_new(run: CallRun, span: Span, block: CallContext) -> list[Span]:
        if block.context.options.redundant == "error":
            return [span]
        done = block.progress.processed(run.pair, substream, span)
        return _rest(span, done)

    def is_next(run: CallRun, span: Span, block: CallContext) -> list[Span]:
        return block.progress.in_turn(run.pair, substream, span)

    return CallCheck(Refusal.NoOp, "X-10", None, cut=is_new), CallCheck(Refusal.OutOfOrder, step, None, cut=is_next)


def check_handled(step: str) -> CallCheck:
    """Return the last check of what ends packets: that the handlers which hear of it do not raise. In order, nothing is
    taken behind one that does."""

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
    """Return the effect of entries: the queue moves on behind them."""

    def execute(run: CallRun, span: Span, block: CallContext) -> Span:
        block.progress.take(run.pair, substream, span)
        return span

    return execute


class ClientCall(Protocol):
    """What is brought to ``chain`` about ``counterparty``, which is below 0 for an unknown chain."""

    @property
    def chain(self) -> int:
        """Return the zone that is called."""
        ...

    @property
    def counterparty(self) -> int:
        """Return the chain whose client it is."""
        ...


Brought = TypeVar("Brought", bound=ClientCall)


class ClientCheck(NamedTuple, Generic[Brought]):
    """A step of the call, and the refusal where it does not hold."""

    refusal: Refusal
    section: str
    holds: Callable[[Brought, CallContext], bool]


def client_opening_checks(kind: type[Brought]) -> tuple[ClientCheck[Brought], ...]:
    """Return the checks of a kind of call that the connection is registered and not frozen."""

    def is_connected(brought: Brought, block: CallContext) -> bool:
        return block.progress.is_connected((brought.chain, brought.counterparty))

    def is_open(brought: Brought, block: CallContext) -> bool:
        return not block.clients.frozen(brought.chain, brought.counterparty)

    return (
        ClientCheck(Refusal.UnregisteredSender, "3.1", is_connected),
        ClientCheck(Refusal.ConnectionFrozen, "3.1, X-3", is_open),
    )


def validate_client_call(checks: tuple[ClientCheck[Brought], ...], brought: Brought, block: CallContext) -> Refusal:
    """Return the first check that fails, ``ACCEPTED`` where it is the light client's turn. Changes nothing."""
    for check in checks:
        if not check.holds(brought, block):
            return check.refusal
    return Refusal.ACCEPTED
