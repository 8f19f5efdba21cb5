"""Scalar programs: one handler call a message, the form to start with.

Subclass ``Program``, and store lasting data in ``self.state``: numbers, text, bytes, booleans, None, and lists and
dictionaries of these. Make calls through the context. Handlers run in isolation: if one raises, its state changes and
calls are undone, and a request is rejected. Programs must be deterministic: no clock, no random numbers, no set order.

A program may let its chain certify a few bytes, mostly the digest of its data.
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
    """Certified data exceeds 32 bytes."""


class CertifiedDataNotDeclared(TypeError):
    """A program sets certified data without ``certifies = True`` in its class."""


def ensure_certifiable(data: Any, declared: bool) -> None:
    """Validate data that a program wants to certify.

    Args:
        data: The data.
        declared: The program's class declares ``certifies = True``.

    Raises:
        CertifiedDataNotDeclared: The class does not declare it.
        TypeError: ``data`` is not bytes.
        CertifiedDataTooLong: ``data`` exceeds 32 bytes.
    """
    _require(declared)
    if not isinstance(data, bytes):
        raise TypeError(f"certified data is {type(data).__name__}, allowed: bytes")
    if len(data) > MAX_CERTIFIED_DATA_BYTES:
        raise _too_long(len(data))


def ensure_all_certifiable(data: pa.BinaryArray, declared: bool) -> None:
    """Validate a column of certified data.

    Args:
        data: The data of several programs, not empty.
        declared: The programs' class declares ``certifies = True``.

    Raises:
        CertifiedDataNotDeclared: The class does not declare it.
        CertifiedDataTooLong: A value exceeds 32 bytes.
    """
    _require(declared)
    longest = pc.max(pc.binary_length(data)).as_py()
    if longest > MAX_CERTIFIED_DATA_BYTES:
        raise _too_long(longest)


def certified_rows(given: list[tuple[int, bytes]]) -> Frame:
    """Build the certified data of programs as a frame (``CERTIFIED_DATA_SCHEMA``).

    Args:
        given: Program number and data, in order.
    """
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
"""Maximum balance after an acceptance, and maximum amount of a message.

A refund may exceed it: the program's own value returns in full.
"""

Ref = tuple[int, int, int, int]
"""Reference of a request for its answer: sender, callback, amount, deadline."""


class Reject(Exception):
    """Raise it in ``on_request`` to reject the request (reject code 4, CanisterReject)."""


class InsufficientFunds(Exception):
    """A call attaches more than the program's balance."""


class BalanceOverflow(Exception):
    """An acceptance would raise the balance above 2**128 - 1, or a call would carry more."""


class ExceedsAttached(ValueError):
    """A program accepts more than the rest of a request's amount."""


class NoOpenRequest(ValueError):
    """A program answers a request, or accepts from one, that is not open."""


@dataclass(frozen=True)
class Ingress:
    """A message from a user.

    Attributes:
        user: Number of the user.
        method: Called method.
        payload: Argument bytes.
    """

    user: int
    method: str
    payload: bytes


@dataclass(frozen=True)
class Request:
    """A call by another program.

    Attributes:
        sender: Number of the calling program.
        callback: Callback id of the caller.
        method: Called method.
        payload: Argument bytes.
        amount: Units attached.
        deadline: Deadline of the call.
    """

    sender: int
    callback: int
    method: str
    payload: bytes
    amount: int
    deadline: int

    @property
    def ref(self) -> list[int]:
        """Reference for a later ``Context.answer``; the program's state may store it."""
        return [self.sender, self.callback, self.amount, self.deadline]


@dataclass(frozen=True)
class Reply:
    """The answer to a call.

    Attributes:
        respondent: Number of the answering program.
        callback: Callback id of the call.
        payload: Data, or the text of a reject.
        code: 0 for data, else the protocol's reject code.
        refund: Units returned.
        note: The call's ``note``.
        reject: Portable meaning of the code; None for data.
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
        """True if the call was answered with data."""
        return self.code == 0


@dataclass
class Answer:
    """An answer to a request, as an effect of a handler.

    ``asked`` is the amount still attached to the request when the handler began.
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
    """An acceptance from a request that stays open: attached ``before`` and ``after`` handling."""

    ref: Ref
    before: int
    after: int


@dataclass
class Call:
    """A call to another program, as an effect of a handler.

    ``to`` is its name, if called by name.
    """

    receiver: int
    callback: int
    method: str
    payload: bytes
    amount: int
    to: str | None = field(default=None, compare=False)


class Context:
    """The interface of a handler: identity, balance, calls and answers.

    Attributes:
        program: Number of the program.
        open_requests: Number of open requests by ``Request.ref``.
        accepted: Amount accepted so far from the next request to answer under a reference; 0 is absent.
        certifies: The program's class declares that it certifies data.
        certified_data: Data that the handler certified; None: none.
        effects: Calls and answers of the handler, in order.
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
        """Current balance: calls reduce it at once, acceptances raise it."""
        return self._balance

    def end(self) -> None:
        """Disable the context: its handler has returned."""
        self._has_ended = True

    def number_of(self, name: str) -> int:
        """Return the number of the program ``name``. Raises ``UnknownProgram``."""
        return self._names.number_of(name)

    def name_of(self, program: int) -> str | None:
        """Return the name of a program by its number, None for a number that no program has."""
        return self._names.name_of(program)

    def set_certified_data(self, data: bytes) -> None:
        """Certify ``data`` as this program's, in place of earlier data.

        The data stays certified until the program sets other data or is removed. On the Internet Computer this is
        ``ic0.certified_data_set``.

        Args:
            data: At most 32 bytes, mostly a digest.

        Raises:
            CertifiedDataNotDeclared: The program's class does not declare ``certifies = True``.
            CertifiedDataTooLong: ``data`` exceeds 32 bytes.
        """
        self._require_running()
        ensure_certifiable(data, self.certifies)
        self.certified_data = data

    def call(self, receiver: int | str, method: str, payload: bytes = b"", *, amount: int = 0, note: Any = None) -> int:
        """Call a method of a program and return the callback id of the call.

        ``amount`` leaves the balance at once; the part not accepted returns with the answer.

        Args:
            receiver: Name or number of the program.
            method: Method to call.
            payload: Argument bytes.
            amount: Units to attach.
            note: A storable value, returned with the reply.

        Raises:
            UnknownProgram: No program of the network has the name.
            InsufficientFunds: ``amount`` exceeds the balance.
            BalanceOverflow: ``amount`` exceeds 128 bits.
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
        """Accept a part of a request's amount before answering the request.

        The amount is available to the calls that the handler makes next. An answer or a reject returns the rest; to
        return an accepted amount, call the sender. A handler that raises accepts nothing.

        Args:
            amount: Units to accept; several calls add up.
            ref: The open request (``Request.ref``), required in ``on_reply`` and ``on_ingress``; default: the request
                passed to ``on_request``.

        Raises:
            ExceedsAttached: ``amount`` is negative, or exceeds the rest of the attached amount.
            NoOpenRequest: The request is answered, or none is given and the handler has none.
            BalanceOverflow: The balance would exceed 2**128 - 1.
        """
        request = self._at_hand if ref is None else ref
        if request is None:
            raise NoOpenRequest("the handler was called without a request: name an open one by its ref")
        self._accept_amount(self._open(request), amount)

    def attached(self, ref: list[int]) -> int:
        """Return the amount still attached to an open request (``Request.ref``).

        Raises ``NoOpenRequest``.
        """
        key = self._open(ref)
        return key[2] - self.accepted.get(key, 0)

    def answer(self, ref: list[int], payload: bytes, *, accept: int = 0) -> None:
        """Answer a request with data.

        Args:
            ref: The open request (``Request.ref``).
            payload: The data.
            accept: Units to accept from the amount still attached.

        Raises:
            NoOpenRequest: The request is not open; each is answered once.
            ExceedsAttached: ``accept`` exceeds the attached amount.
            BalanceOverflow: The balance would exceed 2**128 - 1.
        """
        self._respond(ref, payload, 0, accept)

    def reject(self, ref: list[int], text: str) -> None:
        """Reject an earlier request (``Request.ref``); the amount still attached is refunded."""
        self._respond(ref, text.encode(), REJECTED_BY_PROGRAM, 0)

    def acceptances(self) -> list[Acceptance]:
        """Return the amounts accepted from requests that are still open."""
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
        self._accept_amount(key, accept)
        self._close(key)
        sender, callback, amount, deadline = key
        refund, attached = (amount - each.pop(key, 0) for each in (self.accepted, self._accepted_before))
        self.effects.append(Answer(sender, callback, refund, deadline, code, payload, attached))

    def _open(self, ref: Sequence[int]) -> Ref:
        """Return the key of an open request. Raises ``NoOpenRequest``."""
        self._require_running()
        sender, callback, amount, deadline = map(index, ref)
        key = (sender, callback, amount, deadline)
        if not self.open_requests.get(key, 0):
            raise NoOpenRequest(f"no open request of {sender} under callback {callback}")
        return key

    def _accept_amount(self, key: Ref, amount: int) -> None:
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
        """Raise ``RuntimeError`` if the handler of this context has returned."""
        if self._has_ended:
            raise RuntimeError("the handler that this context was given to has returned")

    def _close(self, key: Ref) -> None:
        """Remove an answered request from the open ones."""
        remaining = self.open_requests[key] - 1
        if remaining:
            self.open_requests[key] = remaining
        else:
            del self.open_requests[key]


_FOREIGN_HANDLERS = {
    **dict.fromkeys(("on_reject", "on_rejected", "on_response", "on_answer", "on_timeout", "on_ack"), "on_reply"),
    **dict.fromkeys(("on_acknowledge", "on_acknowledgement", "on_error"), "on_reply"),
    **dict.fromkeys(("on_call", "on_query", "on_receive", "on_recv"), "on_request"),
    **dict.fromkeys(("on_message", "on_update"), "on_ingress (a user's) or on_request (a program's)"),
    **dict.fromkeys(("on_init", "on_create", "on_install"), "initial_state"),
    **dict.fromkeys(("on_upgrade", "on_upgraded"), "upgraded"),
}
"""Handler names of other systems with their counterpart here: they would never be called."""


_HANDLERS = {"oningress": "on_ingress", "onrequest": "on_request", "onreply": "on_reply"}


def _similar_handler(name: str) -> str | None:
    """Return the handler that a name misspells, as ``on_requests`` or ``onReply``, or None."""
    letters = name.lower().replace("_", "")
    if name in _HANDLERS.values() or not (name[:2].lower() == "on" and (name[2:3] == "_" or name[2:3].isupper())):
        return None
    close = get_close_matches(letters, _HANDLERS, 1, _SIMILARITY)
    return _HANDLERS[close[0]] if close else None


_SIMILARITY = 0.75
"""Minimum similarity, from 0 to 1: ``on_replies`` resembles ``on_reply`` this much."""


class Program:
    """Base class of scalar programs.

    A subclass with a handler of another system, such as ``on_reject``, or a misspelled one, such as ``on_requests``,
    raises ``InvalidInput``: it would never be called.

    Attributes:
        options: Options of the scenario.
        state: Lasting data; starts as ``initial_state()``.
    """

    certifies: ClassVar[bool] = False
    """True for a program that sets certified data; it then needs chains that certify it."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for name in vars(cls):
            intended = _FOREIGN_HANDLERS.get(name) or _similar_handler(name)
            if intended is not None:
                raise InvalidInput(f"{cls.__qualname__}.{name}: no such handler; did you mean {intended}?")

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.state: Any = None

    def initial_state(self) -> Any:
        """Return the state of a new instance: storable data, as the module describes."""
        return {}

    def upgraded(self, state: Any) -> Any:
        """Convert the state of an instance that had another class before.

        The default returns it as it is.

        Open calls stay open, and open requests can still be answered.

        Args:
            state: State under the earlier class.

        Returns:
            State under this class.
        """
        return state

    def on_ingress(self, message: Ingress, context: Context) -> None:
        """Handle a message from a user. The default rejects it.

        Args:
            message: The message.
            context: Interface to the chain.
        """
        raise NotImplementedError(f"no ingress method {message.method}")

    def on_request(self, request: Request, context: Context) -> bytes | tuple[bytes, int] | None:
        """Handle a call.

        An accepted amount that is returned enters the balance after the handler, too late for its own calls; use
        ``Context.accept`` for those.

        Args:
            request: The call.
            context: Interface to the chain.

        Returns:
            The answer, or (answer, accepted amount), or None to answer later by ``Context.answer``.
        """
        raise Reject(f"no method {request.method}")

    def on_reply(self, reply: Reply, context: Context) -> None:
        """Handle the answer to a call. The default does nothing.

        Args:
            reply: The answer.
            context: Interface to the chain.
        """
