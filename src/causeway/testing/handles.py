"""Handles of messages that a test has sent, with their status and answers.

A handle holds only the position of its message; status and answer are read from the log of its network. So a handle
also works on a fork or after a restore.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from causeway_proofs.errors import InvalidInput

from causeway.core.text import format_value, truncate_text
from causeway.core.vocabulary import Kind, RejectCode
from causeway.programs.scalar import InsufficientFunds
from causeway.protocols.shared.limits import LAST_TICK
from causeway.testing.errors import NoAnswer, Rejected, Undone
from causeway.testing.log import IngressPosition, LoggedMessage, MessageLog, RefusedMessage, answer_key
from causeway.testing.messages import TimelineNames
from causeway.testing.tracing import TracedKey

__all__ = ["LAST_TICK", "require_bounded"]


def require_bounded(key: str, value: object, *, least: int, most: int = LAST_TICK) -> None:
    """Check an argument.

    Args:
        key: Name of the argument.
        value: Its value.
        least: Minimum.
        most: Maximum.

    Raises:
        InvalidInput: The value is not a whole number in the range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{key}: {format_value(value)}: must be a whole number")
    if not least <= value <= most:
        raise InvalidInput(f"{key}: {format_value(value)}: must be from {least} to {most}")


DEFAULT_ROUNDS = 200
"""Default maximum number of rounds run for an answer."""

ROUNDS = 2_000
"""Default maximum number of rounds run until no work is left."""


@dataclass(frozen=True)
class SentRecord:
    """A message that a test has sent: its position and description."""

    place: IngressPosition
    text: str


class HomeNetwork(Protocol):
    """The network in which a message was sent."""

    def _holds(self, record: SentRecord) -> bool:
        """Return True if the network has the message."""

    def _read_log(self) -> MessageLog:
        """Return the log of all messages so far."""

    def _names(self) -> TimelineNames:
        """Return the names for numbers."""

    def _meaning(self, code: int, text: bytes) -> RejectCode:
        """Return the portable meaning of a reject code."""

    def _acting(self) -> list[str]:
        """Describe the faults in effect."""

    def _run_until(self, is_true: Callable[[], bool], rounds: int) -> bool:
        """Run up to ``rounds`` rounds until a condition holds; return True if work ran out first."""


class SentMessage:
    """A user message to a program (``Network.send``).

    It has no answer; read the program's state.
    """

    def __init__(self, network: HomeNetwork, record: SentRecord) -> None:
        """Use ``Network.send``."""
        self._network, self.record = network, record

    def __repr__(self) -> str:
        """Return the message and its status on one line."""
        return f"<{self.record.text}: {self.status}>"

    @property
    def status(self) -> str:
        """``waiting``, ``executed``, ``failed`` (its handler raised), ``refused`` or ``lost``."""
        found = self._logged()
        if found is None:
            return "waiting"
        if isinstance(found, RefusedMessage):
            return "refused"
        if found.handled is None:
            return "lost" if found.is_lost else "waiting"
        return "executed" if found.handled.raised is None else "failed"

    @property
    def done(self) -> bool:
        """True if its status is final."""
        return self.status not in ("waiting", "pending")

    @property
    def reason(self) -> str:
        """Why it was refused or failed; else empty."""
        found = self._logged()
        if isinstance(found, RefusedMessage):
            return f"{found.reason} (code {found.code})" if found.code else found.reason
        if found is not None and found.handled is not None:
            return found.handled.raised or ""
        return ""

    @property
    def reject(self) -> RejectCode | None:
        """Portable code of a refusal, or None."""
        found = self._logged()
        return self._network._names().refusal(found) if isinstance(found, RefusedMessage) else None

    def trace(self) -> str:
        """Return a timeline of the message and of all messages it caused."""
        found, names = self._logged(), self._network._names()
        if found is None:
            return f"{self.record.text}: waits for tick {self.record.place.tick}"
        if isinstance(found, RefusedMessage):
            return f"tick {self.record.place.tick}  {self.record.text}  refused: {self.reason}"
        return names.timeline(self._log.tree(self._start()), self._log)

    def _start(self) -> TracedKey:
        """Return the first message of its timeline; the message must be in the log."""
        found = self._logged()
        assert isinstance(found, LoggedMessage), "asked of a message that is in the log"
        return self._root() or found.key

    def cause(self) -> str:
        """Return the first exception of a handler on it or on a message it caused; empty for none."""
        if not isinstance(self._logged(), LoggedMessage):
            return ""
        return self._network._names().find_cause([message for _, message in self._log.tree(self._start())])

    def _root(self) -> TracedKey | None:
        """Return another first message of its timeline, or None."""
        return None

    @property
    def _log(self) -> MessageLog:
        if not self._network._holds(self.record):
            raise Undone(f"{self.record.text}: was sent after the snapshot that its network was put back to")
        return self._network._read_log()

    def _logged(self) -> LoggedMessage | RefusedMessage | None:
        log = self._log
        found = log.users.get(self.record.place)
        return log.messages[found] if isinstance(found, tuple) else found


@dataclass(frozen=True)
class Result:
    """The answer to a call.

    Attributes:
        payload: Data, or the text of a reject.
        code: 0 for data, else the protocol's reject code.
        reject: Portable meaning of the code; None for data.
        refund: Units returned of the amount.
        tick: Tick of its arrival.
    """

    payload: bytes
    code: int
    reject: RejectCode | None
    refund: int
    tick: int

    @property
    def ok(self) -> bool:
        """True for data."""
        return self.code == 0


class SentCall(SentMessage):
    """A call of a program (``Network.call``)."""

    @property
    def status(self) -> str:
        """The status of the call.

        ``waiting`` for its first round, ``pending``, ``answered``, ``rejected``, ``failed`` (the caller could not make
        it), ``refused``, or ``lost`` (a message of it was dropped).
        """
        status = super().status
        if status != "executed":
            return status
        request = self._request()
        if request is None:
            return "failed"
        result = self.answer
        if result is None:
            return "lost" if self._log.is_lost(request) else "pending"
        return "answered" if result.ok else "rejected"

    @property
    def answer(self) -> Result | None:
        """The answer so far, data or a reject, or None; no rounds are run."""
        request = self._request()
        message = None if request is None else self._log.find_answer(request)
        if message is None or message.content is None or message.at is None:
            return None
        content = message.content
        reject = self._network._meaning(content.code, content.payload) if content.code else None
        return Result(content.payload, content.code, reject, content.amount, message.at)

    def wait(self, ticks: int = DEFAULT_ROUNDS) -> Result:
        """Run the network until the answer arrives.

        Args:
            ticks: Maximum number of rounds.

        Returns:
            The answer, data or a reject.

        Raises:
            NoAnswer: The call was refused or lost, the network has no work left, or it takes longer.
        """
        __tracebackhide__ = True
        require_bounded("ticks", ticks, least=0)
        at_rest = self._network._run_until(lambda: self.done, ticks)
        result = self.answer
        if result is not None:
            return result
        status = self.status
        if status in ("waiting", "pending"):
            reason = "the network is at rest without an answer" if at_rest else f"no answer within {ticks} rounds"
            reason = f"{cause}; {reason}" if (cause := self.cause()) else reason
            reason += self._describe_wait()
        else:
            reason = f"{status}{': ' + truncate_text(self.reason) if self.reason else ''}"
            reason += self._describe_wait() if status == "lost" else ""
        raise NoAnswer(f"{self.record.text}: {reason}", status, self.reject, self.trace())

    def result(self, ticks: int = DEFAULT_ROUNDS) -> bytes:
        """Run the network until the answer arrives, and return its data.

        Args:
            ticks: Maximum number of rounds.

        Raises:
            Rejected: The answer is a reject.
            NoAnswer: As in ``wait``.
        """
        __tracebackhide__ = True
        result = self.wait(ticks)
        if result.reject is not None:
            text = result.payload.decode(errors="backslashreplace")
            raise Rejected(self.record.text, result.reject, result.code, text)
        return result.payload

    @property
    def reason(self) -> str:
        """Why it was refused, failed or rejected; else empty."""
        result = self.answer
        if result is not None and result.reject is not None:
            return result.payload.decode(errors="backslashreplace")
        reason = super().reason
        return reason.rpartition(" (")[0] if self._is_unpaid else reason  # omits the line in the caller's own code

    @property
    def reject(self) -> RejectCode | None:
        """Portable code of a reject or refusal, or None."""
        result = self.answer
        if result is not None:
            return result.reject
        return RejectCode.NO_FUNDS if self._is_unpaid else super().reject

    def _describe_wait(self) -> str:
        """Describe the last event of an unanswered call, and the faults in effect."""
        request = self._request()
        keys = [] if request is None else [request, answer_key(request)]
        last = self._network._names().describe_last(
            self._log.messages[key] for key in keys if key in self._log.messages
        )
        acting = self._network._acting()
        return (f"; {last}" if last else "") + (f"; faults that act: {', '.join(acting)}" if acting else "")

    @property
    def _is_unpaid(self) -> bool:
        """True if the caller's balance is below the amount."""
        found = self._logged()
        handled = found.handled if isinstance(found, LoggedMessage) else None
        return handled is not None and (handled.raised or "").startswith(f"{InsufficientFunds.__name__}: ")

    def trace(self) -> str:
        """Return a timeline of the call and of all messages it caused."""
        found = self._logged()
        if isinstance(found, LoggedMessage) and self.status == "failed":
            return f"tick {found.at}  {self.record.text}  failed: {truncate_text(self.reason)}"
        return super().trace()

    def _root(self) -> TracedKey | None:
        """Return the call itself, rather than the user message that ordered it."""
        return self._request()

    def _request(self) -> TracedKey | None:
        """Return the request that the caller made, or None."""
        found = self._logged()
        if not isinstance(found, LoggedMessage) or found.handled is None:
            return None
        requests = [key for key, _ in found.handled.made if key.kind == Kind.REQUEST]
        return requests[0] if requests else None
