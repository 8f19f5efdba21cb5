"""What a test holds of a message that it has sent.

What a test may say of ticks and rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from causeway_proofs.errors import InvalidInput

from causeway.core.text import format_value, truncate_text
from causeway.core.vocabulary import Kind, RejectCode
from causeway.programs.scalar import InsufficientFunds
from causeway.protocols.shared.block_numbers import LAST_TICK
from causeway.testing.errors import NoAnswer, Rejected, Undone
from causeway.testing.log import IngressPosition, LoggedMessage, MessageLog, RefusedMessage, answer_key
from causeway.testing.messages import TimelineNames
from causeway.testing.tracing import TracedKey

__all__ = ["LAST_TICK", "require_bounded"]


def require_bounded(key: str, value: object, *, least: int, most: int = LAST_TICK) -> None:
    """Check that ``value``, of what ``key`` names, is a whole number from ``least`` to ``most``. Raises
    ``InvalidInput``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{key}: {format_value(value)}: must be a whole number")
    if not least <= value <= most:
        raise InvalidInput(f"{key}: {format_value(value)}: must be from {least} to {most}")


DEFAULT_ROUNDS = 200
"""Rounds that are run for an answer, at most, unless a test says otherwise."""

ROUNDS = 2_000
"""Rounds that are run until a network is at rest, at most, unless a test says otherwise."""


@dataclass(frozen=True)
class SentRecord:
    """What a test has sent: where it came in, and in words."""

    place: IngressPosition
    text: str


class HomeNetwork(Protocol):
    """The network in which a message was sent."""

    def _holds(self, record: SentRecord) -> bool:
        """Return whether it has a message."""
        ...

    def _read_log(self) -> MessageLog:
        """Return what happened to all messages up to now."""
        ...

    def _names(self) -> TimelineNames:
        """Return what numbers are called."""
        ...

    def _meaning(self, code: int, text: bytes) -> RejectCode:
        """Return what a reject code means."""
        ...

    def _acting(self) -> list[str]:
        """Return the faults that act now."""
        ...

    def _run_until(self, is_true: Callable[[], bool], rounds: int) -> bool:
        """Run until something is true, at most so many rounds; return whether the network came to rest without it."""
        ...


class SentMessage:
    """A message from a user to a program (``Network.send``). It has no answer: what came of it is in the program's
    state."""

    def __init__(self, network: HomeNetwork, record: SentRecord) -> None:
        """For ``Network``."""
        self._network, self.record = network, record

    def __repr__(self) -> str:
        """Return the message and how it is, on one line."""
        return f"<{self.record.text}: {self.status}>"

    @property
    def status(self) -> str:
        """Return how it is: ``waiting`` to be handled, ``executed``, ``failed`` (its handler raised), ``refused``
        (it came into no queue), or ``lost``."""
        found = self._found()
        if found is None:
            return "waiting"
        if isinstance(found, RefusedMessage):
            return "refused"
        if found.handled is None:
            return "lost" if found.is_lost else "waiting"
        return "executed" if found.handled.raised is None else "failed"

    @property
    def done(self) -> bool:
        """Return whether nothing more will come of it by itself."""
        return self.status not in ("waiting", "pending")

    @property
    def reason(self) -> str:
        """Return why it was refused or failed; empty where it was not."""
        found = self._found()
        if isinstance(found, RefusedMessage):
            return f"{found.reason} (code {found.code})" if found.code else found.reason
        if found is not None and found.handled is not None:
            return found.handled.raised or ""
        return ""

    @property
    def reject(self) -> RejectCode | None:
        """Return what it means that it was refused, whatever the protocol; None where it was not."""
        found = self._found()
        return self._network._names().refusal(found) if isinstance(found, RefusedMessage) else None

    def trace(self) -> str:
        """Return what happened to it, and to all messages that were made for it, as a timeline."""
        found, names = self._found(), self._network._names()
        if found is None:
            return f"{self.record.text}: waits for tick {self.record.place.tick}"
        if isinstance(found, RefusedMessage):
            return f"tick {self.record.place.tick}  {self.record.text}  refused: {self.reason}"
        return names.timeline(self._log.tree(self._start()), self._log)

    def _start(self) -> TracedKey:
        """Return the message with which its timeline begins: where there is one, it was found."""
        found = self._found()
        assert isinstance(found, LoggedMessage), "asked of a message that is in the log"
        return self._root() or found.key

    def cause(self) -> str:
        """Return the first handler that raised on it or on a message that was made for it; empty where none did."""
        if not isinstance(self._found(), LoggedMessage):
            return ""
        return self._network._names().find_cause([message for _, message in self._log.tree(self._start())])

    def _root(self) -> TracedKey | None:
        """Return the message with which its timeline begins, None for itself."""
        return None

    @property
    def _log(self) -> MessageLog:
        if not self._network._holds(self.record):
            raise Undone(f"{self.record.text}: was sent after the snapshot that its network was put back to")
        return self._network._read_log()

    def _found(self) -> LoggedMessage | RefusedMessage | None:
        log = self._log
        found = log.users.get(self.record.place)
        return log.messages[found] if isinstance(found, tuple) else found


@dataclass(frozen=True)
class Result:
    """The answer to a call. ``reject``: what its code means; None where there is data in ``payload``, else the text of
    the reject is there. ``refund``: what came back of the amount; ``tick``: when it came."""

    payload: bytes
    code: int
    reject: RejectCode | None
    refund: int
    tick: int

    @property
    def ok(self) -> bool:
        """Return whether there is data."""
        return self.code == 0


class SentCall(SentMessage):
    """A call of a program (``Network.call``)."""

    @property
    def status(self) -> str:
        """Return how it is: ``waiting`` for its first round, ``pending``, ``answered``, ``rejected``, ``failed`` (the
        caller could not make it), ``refused``, or ``lost`` (a message of it was dropped)."""
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
        """Return the answer, data or a reject; None as long as there is none. Nothing is run for it."""
        request = self._request()
        message = None if request is None else self._log.find_answer(request)
        if message is None or message.content is None or message.at is None:
            return None
        content = message.content
        reject = self._network._meaning(content.code, content.payload) if content.code else None
        return Result(content.payload, content.code, reject, content.amount, message.at)

    def wait(self, ticks: int = DEFAULT_ROUNDS) -> Result:
        """Run the network until the answer is there, and return it, data or a reject.

        ``ticks``: rounds that are run, at most. Raises ``NoAnswer`` when none comes: it was refused, lost, the network
        is at rest without it, or it takes longer.
        """
        __tracebackhide__ = True
        require_bounded("ticks", ticks, least=0)
        at_rest = self._network._run_until(lambda: self.done, ticks)
        result = self.answer
        if result is not None:
            return result
        status = self.status
        if status in ("waiting", "pending"):
            why = "the network is at rest without an answer" if at_rest else f"no answer within {ticks} rounds"
            why = f"{cause}; {why}" if (cause := self.cause()) else why
            why += self._waits()
        else:
            why = f"{status}{': ' + truncate_text(self.reason) if self.reason else ''}"
            why += self._waits() if status == "lost" else ""
        raise NoAnswer(f"{self.record.text}: {why}", status, self.reject, self.trace())

    def result(self, ticks: int = DEFAULT_ROUNDS) -> bytes:
        """Return the data of the answer, as ``wait`` gets it. Raises ``Rejected`` for a reject, and ``NoAnswer``."""
        __tracebackhide__ = True
        result = self.wait(ticks)
        if result.reject is not None:
            text = result.payload.decode(errors="backslashreplace")
            raise Rejected(self.record.text, result.reject, result.code, text)
        return result.payload

    @property
    def reason(self) -> str:
        """Return why it was refused, failed or rejected; empty where it was not."""
        result = self.answer
        if result is not None and result.reject is not None:
            return result.payload.decode(errors="backslashreplace")
        reason = super().reason
        return reason.rpartition(" (")[0] if self._is_unpaid else reason  # not where in the caller's own code

    @property
    def reject(self) -> RejectCode | None:
        """Return what a reject, or a refusal, means, whatever the protocol; None where there is none."""
        result = self.answer
        if result is not None:
            return result.reject
        return RejectCode.NO_FUNDS if self._is_unpaid else super().reject

    def _waits(self) -> str:
        """Return what happened last to a call that has no answer, and the faults that act."""
        request = self._request()
        keys = [] if request is None else [request, answer_key(request)]
        last = self._network._names().describe_last(
            self._log.messages[key] for key in keys if key in self._log.messages
        )
        acting = self._network._acting()
        return (f"; {last}" if last else "") + (f"; faults that act: {', '.join(acting)}" if acting else "")

    @property
    def _is_unpaid(self) -> bool:
        """Return whether the caller has less than the call carries."""
        found = self._found()
        handled = found.handled if isinstance(found, LoggedMessage) else None
        return handled is not None and (handled.raised or "").startswith(f"{InsufficientFunds.__name__}: ")

    def trace(self) -> str:
        """Return what happened to it, and to all messages that were made for it, as a timeline."""
        found = self._found()
        if isinstance(found, LoggedMessage) and self.status == "failed":
            return f"tick {found.at}  {self.record.text}  failed: {truncate_text(self.reason)}"
        return super().trace()

    def _root(self) -> TracedKey | None:
        """Return the call, not what tells its caller to make it."""
        return self._request()

    def _request(self) -> TracedKey | None:
        """Return the request that its caller made for it."""
        found = self._found()
        if not isinstance(found, LoggedMessage) or found.handled is None:
            return None
        made = [key for key, _ in found.handled.made if key.kind == Kind.REQUEST]
        return made[0] if made else None
