"""Actions of a test on a network in memory, in three layers of one class.

``NamedNetwork`` resolves names. ``ChangingNetwork`` injects faults, and installs, upgrades, moves and removes programs.
``SendingNetwork`` sends user messages and calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.config.document import validate_document
from causeway.core.ingress_call import CALL_METHOD, encode_calls
from causeway.core.text import format_value, is_text, shorten_name, suggest_known
from causeway.core.vocabulary import RejectCode
from causeway.scenarios.traffic_settings import CallSection, SendSection
from causeway.testing.declarations import (
    CALLER,
    CALLER_BALANCE,
    CALLERS,
    Deploy,
    Fault,
    FaultKind,
    ProgramClass,
    ProtocolName,
    class_name,
    fault_section,
)
from causeway.testing.engine import Document, Engine
from causeway.testing.handles import SentCall, SentMessage, SentRecord
from causeway.testing.log import IngressPosition, MessageLog
from causeway.testing.messages import TimelineNames
from causeway.testing.recent_networks import note_network
from causeway.testing.tracing import TracedKey


class NamedNetwork:
    """A network in memory: its chains and programs by name."""

    _engine: Engine
    _handles: list[SentMessage]
    _records: set[SentRecord]
    _faults: list[Fault]

    def _begin(self, engine: Engine) -> None:
        self._engine = engine
        self._handles: list[SentMessage] = []
        self._open: list[SentMessage] = []
        self._undone = 0
        self._records: set[SentRecord] = set()
        self._faults: list[Fault] = []

    @property
    def protocol(self) -> ProtocolName:
        """Name of the protocol."""
        return cast(ProtocolName, self._engine.scenario.network.protocol)

    @property
    def chains(self) -> list[str]:
        """Names of the chains, in order."""
        return list(self._engine.kernel.chains())

    @property
    def programs(self) -> list[str]:
        """Names of the programs, by number."""
        names: list[str] = self._engine.topology.programs["name"].to_pylist()
        return names

    @property
    def now(self) -> int:
        """The next tick, in which messages sent now arrive."""
        return self._engine.clock

    def _numbers(self) -> Mapping[str, int]:
        return self._engine.programs

    def _program(self, reference: str | int, key: str) -> int:
        if isinstance(reference, int):
            return reference
        numbers = self._numbers()
        if reference not in numbers:
            raise InvalidInput(f"{key}: {suggest_known('program', reference, numbers)}")
        return numbers[reference]

    def _holds(self, record: SentRecord) -> bool:
        return record in self._records

    def _acting(self) -> list[str]:
        return self._engine.acting()

    def _read_log(self) -> MessageLog:
        return self._engine.log

    def _run_until(self, is_true: Callable[[], bool], rounds: int) -> bool:
        """Run up to ``rounds`` rounds until a condition holds; return True if work ran out first."""
        note_network(self)
        for _ in range(rounds):
            if is_true():
                return False
            if not self._engine.step():
                return True
        return False

    def _caller_orders(self) -> Mapping[TracedKey, None]:
        """Return the user messages that order callers to make a test's calls, hidden from output."""
        log = self._engine.log
        found = [log.users.get(handle.record.place) for handle in self._handles if isinstance(handle, SentCall)]
        return {key: None for key in found if isinstance(key, TracedKey) and log.messages[key].handled is not None}

    def _open_messages(self) -> list[SentMessage]:
        """Return the messages and calls of the test that have not ended."""
        undone = len(self._engine.log.undone)
        if undone != self._undone:  # a fork reverted blocks, which may have reopened messages
            self._undone, self._open = undone, list(self._handles)
        self._open = [handle for handle in self._open if not handle.done]
        return self._open

    def _names(self) -> TimelineNames:
        programs = {number: name for name, number in self._numbers().items()}
        return TimelineNames(programs, [shorten_name(chain) for chain in self.chains], self._meaning)

    def _meaning(self, code: int, text: bytes) -> RejectCode:
        return self._engine.scenario.protocol.load_semantics().reject_code(code, text)


class ChangingNetwork(NamedNetwork):
    """A network in memory that changes while it runs."""

    def inject(self, kind: FaultKind, **keys: Any) -> Fault:
        """Inject a fault from the next tick on.

        Args:
            kind: Kind of the fault, of the protocol.
            keys: Its keys as in a scenario, ``from_`` for ``from``; by default it begins now.

        Raises:
            InvalidInput: The fault is invalid.
        """
        section = fault_section(self._engine.scenario.protocol, kind, keys, self.now)
        with _rename_errors("inject", self._engine.scenario.path):
            self._engine.change(lambda change: change.setdefault("inject", []).append(section))
        fault = Fault(1 + max((fault.number for fault in self._faults), default=-1), kind, self.now)
        self._faults.append(fault)
        return fault

    def heal(self, *faults: Fault) -> None:
        """End faults from the next tick on.

        Args:
            faults: The faults; none: all, including those of the scenario.

        Raises:
            InvalidInput: A fault is not of this network.
        """
        unknown = next((fault for fault in faults if fault not in self._faults), None)
        if unknown is not None:
            raise InvalidInput(f"heal: {unknown} is no fault of this network")
        ended = list(faults) if faults else list(self._faults)
        fresh = [fault for fault in ended if fault.since == self.now]
        before = len(self._engine.scenario.document.faults)
        positions = [before + self._faults.index(fault) for fault in ended if fault.since != self.now]

        def heal(change: Document) -> None:
            injected = [fault for fault in self._faults if fault.since == self.now]
            remaining = [
                one for one, fault in zip(change.pop("inject", []), injected, strict=True) if fault not in fresh
            ]
            if remaining:
                change["inject"] = remaining
            if not faults:
                change["heal"] = bool(before or positions)
            elif positions and change.get("heal") is not True:
                change["heal"] = sorted({*(change.get("heal") or ()), *positions})
            if not (change.get("heal") or change.keys() - {"tick", "heal"}):
                change.pop("heal", None)

        with _rename_errors("heal", self._engine.scenario.path):
            self._engine.change(heal)
        self._faults = [fault for fault in self._faults if fault not in fresh]

    def install(
        self,
        program: ProgramClass | Deploy,
        *,
        chain: str | None = None,
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
        balance: int = 0,
    ) -> str:
        """Install a program with the next block of its chain.

        Args:
            program: Its class, or a complete ``Deploy``.
            chain: Name of the chain; None: the first.
            name: Name of the program; None: a default.
            options: Its options.
            balance: Its initial balance.

        Returns:
            The name of the program.

        Raises:
            InvalidInput: An argument is invalid, or the protocol does not allow it.
        """
        deploy = program if isinstance(program, Deploy) else Deploy(program, chain, name, options or {}, balance)
        section = deploy.section(self._engine.topology.chains["name"].to_pylist()[0], self._engine.bound)
        with _rename_errors("install", self._engine.scenario.path):
            self._engine.change(lambda change: change.setdefault("install", []).append(section))
        installed: str = section["name"]
        return installed

    def upgrade(self, name: str, program: ProgramClass, *, options: Mapping[str, Any] | None = None) -> None:
        """Replace a program's class with the next block of its chain.

        State, balance and open calls are kept.

        Args:
            name: Name of the program.
            program: The new class.
            options: Its new options; None: the current ones.

        Raises:
            InvalidInput: An argument is invalid.
        """
        section: Document = {"program": name, "to": class_name(program, self._engine.bound)}
        if options is not None:
            section["options"] = dict(options)
        with _rename_errors("upgrade", self._engine.scenario.path):
            self._engine.change(lambda change: change.setdefault("upgrade", []).append(section))

    def move(self, name: str, chain: str) -> None:
        """Move a program to another chain in the next tick, with state, balance and open calls.

        Messages in transit to its old chain are not delivered there.

        Args:
            name: Name of the program.
            chain: Name of the new chain.

        Raises:
            InvalidInput: An argument is invalid, or the protocol does not allow moves.
        """
        section: Document = {"program": name, "chain": chain}
        with _rename_errors("move", self._engine.scenario.path):
            self._engine.change(lambda change: change.setdefault("move", []).append(section))

    def remove(self, name: str) -> None:
        """Remove a program in the next tick.

        Args:
            name: Name of the program.

        Raises:
            InvalidInput: It was removed before, or the protocol does not allow removals.
        """
        before = next((change["tick"] for change in self._engine.asked() if name in change.get("remove", ())), None)
        if before is not None:
            raise InvalidInput(f"remove: {format_value(name)} was removed at tick {before}")
        with _rename_errors("remove", self._engine.scenario.path):
            self._engine.change(lambda change: change.setdefault("remove", []).append(name))


@contextmanager
def _rename_errors(action: str, path: str) -> Iterator[None]:
    """Let errors about a change of a scenario name the action of the test."""
    try:
        yield
    except CausewayError as error:
        text = re.sub(rf"^changes\[\d+\](\.{action}(\[\d+\])?)?[.:]? *", "", str(error).removeprefix(f"{path}: "))
        raise type(error)(f"{action}: {text}") from None


class SendingNetwork(ChangingNetwork):
    """A network in memory that accepts messages."""

    def send(
        self, to: str | int, method: str, payload: bytes | str = b"", *, amount: int = 0, sender: int | str = 0
    ) -> SentMessage:
        """Send a message to a program in the next tick.

        A user message reaches ``on_ingress``; users have neither accounts nor answers. With a named sender or an amount
        it is a call, as of ``call``, and reaches ``on_request``.

        Args:
            to: Name or number of the program.
            method: Method to call.
            payload: Argument bytes, or text.
            amount: Units attached.
            sender: Number of a user, or name of a program of the class ``caller``.

        Raises:
            InvalidInput: An argument is invalid.
        """
        if isinstance(sender, str) or amount:
            if sender and not isinstance(sender, str):
                text = "a user has no account to pay an amount from; give the name of a caller, or none"
                raise InvalidInput(f"send.sender: {format_value(sender)}: {text}")
            return self._call("send", to, method, payload, amount, str(sender) if sender else None)
        content = _bytes(payload, "send")
        section: Document = {
            "to": to,
            "method": method,
            **_encode_payload(content),
            **({"sender": sender} if sender else {}),
        }
        validate_document(SendSection, {"tick": 0, **section}, "send")
        number = self._program(to, "send.to")
        position = self._send_row(number, section, sender, method, content)
        text = self._names().describe_user_message(sender, number, method, content)
        return self._register(SentMessage(self, SentRecord(position, text)))

    def call(
        self, to: str | int, method: str, payload: bytes | str = b"", *, amount: int = 0, sender: str | None = None
    ) -> SentCall:
        """Let a caller program call another program in the next tick; it reaches ``on_request``.

        Args:
            to: Name or number of the program.
            method: Method to call.
            payload: Argument bytes, or text.
            amount: Units attached.
            sender: Name of a program of the class ``caller``; None: the network's own on the chain of ``to``.

        Raises:
            InvalidInput: An argument is invalid.
        """
        return self._call("call", to, method, payload, amount, sender)

    def _call(
        self, action: str, to: str | int, method: str, payload: bytes | str, amount: int, sender: str | None
    ) -> SentCall:
        body = _bytes(payload, action)
        call = {"receiver": to, "method": method, **_encode_payload(body), **({"amount": amount} if amount else {})}
        validated = validate_document(CallSection, call, action)
        receiver = self._program(to, f"{action}.to")
        caller = self._caller(receiver, sender, f"{action}.sender")
        number, high, low = (np.array([word], dtype=np.uint64) for word in (receiver, *divmod(validated.amount, 2**64)))
        content: bytes = encode_calls(number, high, low, method, pa.array([body], pa.binary()))[0].as_py()
        section = {"to": self._names().program(caller), "call": call}
        position = self._send_row(caller, section, 0, CALL_METHOD, content)
        text = self._names().call(caller, receiver, method, body, validated.amount)
        handle = SentCall(self, SentRecord(position, text))
        self._register(handle)
        return handle

    def _send_row(self, program: int, section: Document, sender: int, method: str, payload: bytes) -> IngressPosition:
        """Send a user message to the chain that hosts a program; return its position."""
        chain = self._engine.host_of(program)
        if chain is None:
            chain = next(iter(self._engine.chains)) if program not in self._engine.classes else None
        if chain is None:
            raise InvalidInput(f"to: {format_value(section['to'])} is on no chain at tick {self.now}")
        name = self._engine.chains[chain]
        row = {"chain": chain, "receiver": program, "sender": sender, "method": method, "payload": payload}
        return self._engine.send({**section, "chain": name}, row)

    def _caller(self, receiver: int, sender: str | None, key: str) -> int:
        """Return the number of the program that calls ``receiver``, installing one if needed.

        Raises:
            InvalidInput: ``sender`` is not a caller.
        """
        if sender is not None:
            number = self._program(sender, key)
            runs = self._engine.classes.get(number)
            if runs != CALLER:
                text = f'runs {format_value(runs)}; who calls for a test is a program of the class "{CALLER}"'
                raise InvalidInput(f"{key}: {format_value(sender)} {text}")
            return number
        host = self._engine.host_of(receiver)
        chains = self._engine.chains
        name = f"{CALLERS}{chains[min(chains) if host is None else host]}"
        if name not in self._numbers():
            balance = 0 if self._engine.scenario.protocol.fixed_issue else CALLER_BALANCE
            self.install(CALLER, chain=name.removeprefix(CALLERS), name=name, balance=balance)
        return self._numbers()[name]

    def _register(self, handle: SentMessage) -> SentMessage:
        """Add a message to those of the test."""
        note_network(self)
        self._handles.append(handle)
        self._open.append(handle)
        self._records.add(handle.record)
        return handle


def _encode_payload(payload: bytes) -> Document:
    """Encode a payload as in a scenario, as text if it is printable."""
    if not payload:
        return {}
    readable = payload.isascii() and payload.decode().isprintable()
    return {"text": payload.decode()} if readable else {"hex": payload.hex()}


def _bytes(payload: bytes | str, key: str) -> bytes:
    if isinstance(payload, str):
        if not is_text(payload):
            raise InvalidInput(f"{key}.payload: {format_value(payload)}: half of a surrogate pair is no text")
        return payload.encode()
    if not isinstance(payload, bytes):
        raise InvalidInput(f"{key}.payload: {format_value(payload)}: must be bytes or text")
    return payload
