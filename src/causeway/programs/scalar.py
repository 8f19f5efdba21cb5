"""The scalar form of a program: one handler call a message, the form to start with.

Subclass ``Program``; keep what must last in ``self.state`` (numbers, text, bytes, true, false, None, and lists and
dictionaries of these; anything else is refused);
make calls through the context. Every handler runs alone: if it raises, the state and the calls it made are undone, and
a request is answered with a reject. Programs must be deterministic: no clock, no randomness of their own, no order of
sets.

What a program may let its chain certify: a few bytes, mostly the digest of what it keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from operator import index
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.core.frame import Frame, empty_frame
from causeway.core.vocabulary import RejectCode
from causeway.programs.naming import NO_NAMES, ProgramDirectory
from causeway.programs.state_values import ensure_storable
from causeway.protocols.shared.execution import CERTIFIED_DATA_SCHEMA, MAX_CERTIFIED_DATA_BYTES, REJECTED_BY_PROGRAM


class CertifiedDataTooLong(ValueError):
    """A program's certified data has more than 32 bytes."""


class CertifiedDataNotDeclared(TypeError):
    """A program sets certified data, and its class does not declare ``certifies = True``."""


def ensure_certifiable(data: Any, declared: bool) -> None:
    """Return when ``data`` may be certified for a program that has ``declared`` that it certifies data.

    Raises:
        CertifiedDataNotDeclared: it has not.
        TypeError: ``data`` is no bytes.
        CertifiedDataTooLong: it has more than 32 bytes.
    """
    _require(declared)
    if not isinstance(data, bytes):
        raise TypeError(f"certified data is {type(data).__name__}, allowed: bytes")
    if len(data) > MAX_CERTIFIED_DATA_BYTES:
        raise _too_long(len(data))


def ensure_all_certifiable(data: pa.BinaryArray, declared: bool) -> None:
    """Return when every one of ``data`` (not empty) may be certified; errors as of ``ensure_certifiable``."""
    _require(declared)
    longest = pc.max(pc.binary_length(data)).as_py()
    if longest > MAX_CERTIFIED_DATA_BYTES:
        raise _too_long(longest)


def certified_rows(given: list[tuple[int, bytes]]) -> Frame:
    """Return programs with what they set as certified data, in that order (``CERTIFIED_DATA_SCHEMA``)."""
    if not given:
        return empty_frame(CERTIFIED_DATA_SCHEMA)
    numbers, data = zip(*given, strict=True)
    columns = {"program": pa.array(numbers, pa.uint64()).to_numpy(), "data": pa.array(data, pa.binary())}
    return Frame(columns, len(given))


def _require(declared: bool) -> None:
    if not declared:
        raise CertifiedDataNotDeclared("the class of a program that sets certified data declares certifies = True")


def _too_long(length: int) -> CertifiedDataTooLong:
    return CertifiedDataTooLong(f"certified data has {length} bytes, at most {MAX_CERTIFIED_DATA_BYTES} are allowed")


MAX_NUMBER = 2**64 - 1
MAX_BALANCE = 2**128 - 1
"""What a program accepts must not bring a balance beyond this, and no message carries more. A refund may: value that
was the program's own comes back whole."""

Ref = tuple[int, int, int, int]
"""What names a request for its answer: sender, callback, amount, deadline."""


class Reject(Exception):
    """Raise it in ``on_request`` to reject the request with a text (reject code 4, CanisterReject)."""


class InsufficientFunds(Exception):
    """A call attaches more than the program's balance holds."""


class BalanceOverflow(Exception):
    """What is accepted would bring the balance beyond 2**128 - 1, or a call would carry more than that."""


class ExceedsAttached(ValueError):
    """A program accepts more of a request than is still attached to it."""


class NoOpenRequest(ValueError):
    """A program answers, or accepts from, a request that is not open."""


@dataclass(frozen=True)
class Ingress:
    """A message from a user outside: ``user`` number, ``method``, ``payload``."""

    user: int
    method: str
    payload: bytes


@dataclass(frozen=True)
class Request:
    """A call by another program. ``ref`` names it for a late answer and may be kept in the program's state."""

    sender: int
    callback: int
    method: str
    payload: bytes
    amount: int
    deadline: int

    @property
    def ref(self) -> list[int]:
        """Return what ``Context.answer`` needs to answer this request later."""
        return [self.sender, self.callback, self.amount, self.deadline]


@dataclass(frozen=True)
class Reply:
    """The answer to a call: ``code`` 0 = data in ``payload``, else a reject with its text there.

    ``note``: what the call noted. ``reject``: what the code means, whatever the protocol; None where there is data.
    """

    respondent: int
    callback: int
    payload: bytes
    code: int
    refund: int
    note: Any
    reject: RejectCode | None = None

    @property
    def ok(self) -> bool:
        """Return whether the call was answered with data."""
        return self.code == 0


@dataclass
class Answer:
    """An answer to a request: who asked, under which callback, what comes back.

    ``asked``: what was still attached to the request when the handler began.
    """

    receiver: int
    callback: int
    refund: int
    deadline: int
    code: int
    payload: bytes
    asked: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Acceptance:
    """What a handler accepted of a request that stays open: attached ``before`` the handler and ``after`` it."""

    ref: Ref
    before: int
    after: int


@dataclass
class Call:
    """A call to another program; ``to``: its name, where it was called by that."""

    receiver: int
    callback: int
    method: str
    payload: bytes
    amount: int
    to: str | None = field(default=None, compare=False)


class Context:
    """What a handler may do: read its identity and balance, call other programs, answer requests.

    ``open_requests``: how many requests there are to answer under each ``Request.ref``. ``accepted``: what was accepted
    of the one that is answered next under a ref, where that is not 0. ``at_hand``: the request that the handler was
    called with. ``certifies``: whether the program declares that it certifies data. ``certified_data``: what the
    handler set as such, None if nothing. ``names``: of all programs of the network.
    """

    def __init__(
        self,
        program: int,
        balance: int,
        next_callback: int,
        notes: dict[int, Any],
        open_requests: dict[Ref, int],
        certifies: bool = False,
        names: ProgramDirectory = NO_NAMES,
        accepted: dict[Ref, int] | None = None,
        at_hand: Ref | None = None,
    ) -> None:
        self.program = program
        self._balance = balance
        self._has_ended = False
        self.next_callback = next_callback
        self.notes = notes
        self.open_requests = open_requests
        self.accepted = {} if accepted is None else accepted
        self._accepted_before = dict(self.accepted)
        self._at_hand = at_hand
        self.effects: list[Answer | Call] = []
        self.certifies = certifies
        self.certified_data: bytes | None = None
        self._names = names

    @property
    def balance(self) -> int:
        """Return what the program holds now: calls take from it, and what is accepted comes into it."""
        return self._balance

    def end(self) -> None:
        """Let the context do nothing more: its handler has returned."""
        self._has_ended = True

    def number_of(self, name: str) -> int:
        """Return the number of the program ``name``. Raises ``UnknownProgram``."""
        return self._names.number_of(name)

    def name_of(self, program: int) -> str | None:
        """Return the name of a program by its number, None for a number that no program has."""
        return self._names.name_of(program)

    def set_certified_data(self, data: bytes) -> None:
        """Let the chain certify ``data`` (at most 32 bytes, mostly a digest) as this program's from now on.

        The program's class must declare it (``certifies = True``). It takes the place of what was set before, and
        stays until other data is set or the program is removed. On the Internet Computer this is
        ``ic0.certified_data_set``. Raises ``CertifiedDataTooLong``, ``CertifiedDataNotDeclared``.
        """
        self._require_running()
        ensure_certifiable(data, self.certifies)
        self.certified_data = data

    def call(self, receiver: int | str, method: str, payload: bytes = b"", *, amount: int = 0, note: Any = None) -> int:
        """Call ``method`` of program ``receiver``, its name or number, and return the call's callback id.

        A name that no program of the network has raises ``UnknownProgram``. ``amount`` leaves the balance at once and
        comes back with the answer as far as it is not accepted; raises ``InsufficientFunds``, and ``BalanceOverflow``
        beyond 128 bits. ``note`` is given back with the reply.
        """
        self._require_running()
        to = receiver if isinstance(receiver, str) else None
        amount = index(amount)
        number = index(receiver) if not isinstance(receiver, str) else self.number_of(receiver)
        if not 0 <= number <= MAX_NUMBER:
            raise ValueError(f"receiver {receiver} is no program number")
        if amount < 0:
            raise ValueError(f"amount {amount} is negative")
        method.encode()
        ensure_storable(note, "note")
        if not isinstance(payload, bytes):
            raise TypeError(f"payload is {type(payload).__name__}, allowed: bytes")
        if amount > self.balance:
            raise InsufficientFunds(f"balance {self.balance}, attached {amount}")
        if amount > MAX_BALANCE:
            raise BalanceOverflow(f"attached {amount}, at most 2**128 - 1")
        self._balance -= amount
        callback = self.next_callback
        self.next_callback += 1
        if note is not None:
            self.notes[callback] = note
        self.effects.append(Call(number, callback, method, payload, amount, to))
        return callback

    def accept(self, amount: int, ref: list[int] | None = None) -> None:
        """Take a part of a request's amount into the balance before the request is answered.

        The amount is there for the calls that the handler makes next. An answer or a reject gives back what is still
        attached then: to return what was accepted, call the sender. A handler that raises accepts nothing.

        Args:
            amount: units to accept; several calls add up.
            ref: the open request (``Request.ref``), which ``on_reply`` and ``on_ingress`` must name; default: the one
                that ``on_request`` was called with.

        Raises:
            ExceedsAttached: ``amount`` is negative, or more than is still attached.
            NoOpenRequest: the request has its answer, or the handler was called with none and names none.
            BalanceOverflow: the balance would pass 2**128 - 1.
        """
        named = self._at_hand if ref is None else ref
        if named is None:
            raise NoOpenRequest("the handler was called without a request: name an open one by its ref")
        self._take(self._open(named), amount)

    def attached(self, ref: list[int]) -> int:
        """Return what is still attached to an open request (``Request.ref``). Raises ``NoOpenRequest``."""
        key = self._open(ref)
        return key[2] - self.accepted.get(key, 0)

    def answer(self, ref: list[int], payload: bytes, *, accept: int = 0) -> None:
        """Answer a request (``Request.ref``) with data, accepting ``accept`` of what is still attached to it.

        Each request is answered once: raises ``NoOpenRequest`` for one that is not open. Raises ``ExceedsAttached``,
        and ``BalanceOverflow`` when the balance would pass 2**128 - 1.
        """
        self._respond(ref, payload, 0, accept)

    def reject(self, ref: list[int], text: str) -> None:
        """Reject an earlier request (``Request.ref``); all that is still attached goes back."""
        self._respond(ref, text.encode(), REJECTED_BY_PROGRAM, 0)

    def acceptances(self) -> list[Acceptance]:
        """Return what was accepted of requests that are still open."""
        found = []
        for key in sorted(self.accepted):
            before, after = (key[2] - each.get(key, 0) for each in (self._accepted_before, self.accepted))
            if before != after:
                found.append(Acceptance(key, before, after))
        return found

    def _respond(self, ref: list[int], payload: bytes, code: int, accept: int) -> None:
        if not isinstance(payload, bytes):
            raise TypeError(f"payload is {type(payload).__name__}, allowed: bytes")
        key = self._open(ref)
        self._take(key, accept)
        self._close(key)
        sender, callback, amount, deadline = key
        refund, asked = (amount - each.pop(key, 0) for each in (self.accepted, self._accepted_before))
        self.effects.append(Answer(sender, callback, refund, deadline, code, payload, asked))

    def _open(self, ref: Sequence[int]) -> Ref:
        """Return what names an open request. Raises ``NoOpenRequest``."""
        self._require_running()
        sender, callback, amount, deadline = map(index, ref)
        key = (sender, callback, amount, deadline)
        if not self.open_requests.get(key, 0):
            raise NoOpenRequest(f"no open request of {sender} under callback {callback}")
        return key

    def _take(self, key: Ref, amount: int) -> None:
        """Accept an amount of an open request. Raises ``ExceedsAttached``, ``BalanceOverflow``."""
        amount, before = index(amount), self.accepted.get(key, 0)
        if not 0 <= amount <= key[2] - before:
            attached = f"the attached {key[2]}" if not before else f"{key[2] - before}, what is left of {key[2]}"
            raise ExceedsAttached(f"accept {amount} is not between 0 and {attached}")
        if not amount:
            return
        if self.balance + amount > MAX_BALANCE:
            raise BalanceOverflow(f"balance {self.balance}, accepted {amount}, at most 2**128 - 1")
        self._balance += amount
        self.accepted[key] = before + amount

    def _require_running(self) -> None:
        """Refuse what is done through a context that a program has kept beyond its handler.

        Raises:
            RuntimeError: the handler has returned.
        """
        if self._has_ended:
            raise RuntimeError("the handler that this context was given to has returned")

    def _close(self, key: Ref) -> None:
        """Note that an open request has its answer."""
        left = self.open_requests[key] - 1
        if left:
            self.open_requests[key] = left
        else:
            del self.open_requests[key]


_MISTAKEN = {
    **dict.fromkeys(("on_reject", "on_rejected", "on_response", "on_answer", "on_timeout", "on_ack"), "on_reply"),
    **dict.fromkeys(("on_acknowledge", "on_acknowledgement", "on_error"), "on_reply"),
    **dict.fromkeys(("on_call", "on_query", "on_receive", "on_recv"), "on_request"),
    **dict.fromkeys(("on_message", "on_update"), "on_ingress (a user's) or on_request (a program's)"),
    **dict.fromkeys(("on_init", "on_create", "on_install"), "initial_state"),
    **dict.fromkeys(("on_upgrade", "on_upgraded"), "upgraded"),
}
"""Handlers that other systems have, and which one is meant here: nothing would ever call them."""


_HANDLERS = {"oningress": "on_ingress", "onrequest": "on_request", "onreply": "on_reply"}


def _nearly(name: str) -> str | None:
    """Return which handler a name is nearly that of: ``on_requests``, ``onReply``; None: of none."""
    letters = name.lower().replace("_", "")
    if name in _HANDLERS.values() or not (name[:2].lower() == "on" and (name[2:3] == "_" or name[2:3].isupper())):
        return None
    close = get_close_matches(letters, _HANDLERS, 1, _ALIKE)
    return _HANDLERS[close[0]] if close else None


_ALIKE = 0.75
"""From 0 to 1: ``on_replies`` is so like ``on_reply``."""


class Program:
    """Base of scalar programs. ``options`` come from the scenario; ``state`` starts as ``initial_state()``.

    A subclass with a handler that other systems have, such as ``on_reject``, or with nearly the name of one, such as
    ``on_requests``, raises ``InvalidInput``: it would never be called.
    """

    certifies: ClassVar[bool] = False
    """Whether it sets certified data (``Context.set_certified_data``): it then runs only where chains certify that."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for name in vars(cls):
            meant = _MISTAKEN.get(name) or _nearly(name)
            if meant is not None:
                raise InvalidInput(f"{cls.__qualname__}.{name}: no such handler; what is meant is {meant}")

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.state: Any = None

    def initial_state(self) -> Any:
        """Return the state of a new instance: what may be kept, see above."""
        return {}

    def upgraded(self, state: Any) -> Any:
        """Return the state of an instance that had another class before, made of its ``state`` then. The default
        keeps it. Calls that are open stay open, and requests that are not answered can be answered."""
        return state

    def on_ingress(self, message: Ingress, context: Context) -> None:
        """Handle a message from a user. The default refuses it."""
        raise NotImplementedError(f"no ingress method {message.method}")

    def on_request(self, request: Request, context: Context) -> bytes | tuple[bytes, int] | None:
        """Handle a call: return the answer, or (answer, accepted amount), or None to answer by ``Context.answer``.

        What is accepted so enters the balance when the handler returns, so not in time for the calls that it makes:
        ``Context.accept`` is for those.
        """
        raise Reject(f"no method {request.method}")

    def on_reply(self, reply: Reply, context: Context) -> None:
        """Handle the answer to a call. The default does nothing."""
