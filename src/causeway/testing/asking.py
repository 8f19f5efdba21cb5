"""What a test sends into a network in memory: messages from users, and calls."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.model.document import validated
from causeway.model.errors import InvalidInput
from causeway.model.ingress_call import CALL_METHOD, encode_calls
from causeway.model.text import is_text, shown
from causeway.network.traffic_settings import CallSection, SendSection
from causeway.testing.changing import Changing
from causeway.testing.deploys import CALLER, CALLER_BALANCE, CALLERS
from causeway.testing.engine import Document
from causeway.testing.handles import Asked, Record, Sent
from causeway.testing.log import Place
from causeway.testing.touched import note

WORD = 2**64


class Asking(Changing):
    """A network in memory to which messages can be sent."""

    def send(
        self, to: str | int, method: str, payload: bytes | str = b"", *, amount: int = 0, sender: int | str = 0
    ) -> Sent:
        """Let somebody send a message to a program in the next tick.

        ``sender``: the number of a user, whose messages come to ``on_ingress``; users have neither accounts nor
        answers. Or the name of a program of the class ``caller``: then, and where there is an ``amount``, it is a call,
        as ``call`` makes it, which comes to ``on_request``. Raises ``InvalidInput``.
        """
        if isinstance(sender, str) or amount:
            if sender and not isinstance(sender, str):
                text = "a user has no account to pay an amount from; give the name of a caller, or none"
                raise InvalidInput(f"send.sender: {shown(sender)}: {text}")
            return self._call("send", to, method, payload, amount, str(sender) if sender else None)
        content = _bytes(payload, "send")
        section: Document = {"to": to, "method": method, **_said(content), **({"sender": sender} if sender else {})}
        validated(SendSection, {"tick": 0, **section}, "send")
        number = self._program(to, "send.to")
        place = self._arrive(number, section, sender, method, content)
        text = self._names().message_of_user(sender, number, method, content)
        return self._held(Sent(self, Record(place, text)))

    def call(
        self, to: str | int, method: str, payload: bytes | str = b"", *, amount: int = 0, sender: str | None = None
    ) -> Asked:
        """Let a program call another in the next tick: its ``on_request``.

        ``amount``: what is attached. ``sender``: the name of a program of the class ``caller``; without it the one that
        the network has on the chain of the program called. Raises ``InvalidInput``.
        """
        return self._call("call", to, method, payload, amount, sender)

    def _call(
        self, what: str, to: str | int, method: str, payload: bytes | str, amount: int, sender: str | None
    ) -> Asked:
        body = _bytes(payload, what)
        call = {"receiver": to, "method": method, **_said(body), **({"amount": amount} if amount else {})}
        asked = validated(CallSection, call, what)
        receiver = self._program(to, f"{what}.to")
        caller = self._caller(receiver, sender, f"{what}.sender")
        number, high, low = (np.array([word], dtype=np.uint64) for word in (receiver, *divmod(asked.amount, WORD)))
        content: bytes = encode_calls(number, high, low, method, pa.array([body], pa.binary()))[0].as_py()
        section = {"to": self._names().program(caller), "call": call}
        place = self._arrive(caller, section, 0, CALL_METHOD, content)
        text = self._names().call(caller, receiver, method, body, asked.amount)
        handle = Asked(self, Record(place, text))
        self._held(handle)
        return handle

    def _arrive(self, program: int, section: Document, sender: int, method: str, payload: bytes) -> Place:
        chain = self._engine.host_of(program)
        if chain is None:
            chain = next(iter(self._engine.chains)) if program not in self._engine.classes else None
        if chain is None:
            raise InvalidInput(f"to: {shown(section['to'])} is on no chain at tick {self.now}")
        name = self._engine.chains[chain]
        row = {"chain": chain, "receiver": program, "sender": sender, "method": method, "payload": payload}
        return self._engine.send({**section, "chain": name}, row)

    def _caller(self, receiver: int, sender: str | None, key: str) -> int:
        """Return the program that calls ``receiver``. Raises ``InvalidInput``."""
        if sender is not None:
            number = self._program(sender, key)
            runs = self._engine.classes.get(number)
            if runs != CALLER:
                text = f'runs {shown(runs)}; who calls for a test is a program of the class "{CALLER}"'
                raise InvalidInput(f"{key}: {shown(sender)} {text}")
            return number
        host = self._engine.host_of(receiver)
        named = self._engine.chains
        name = f"{CALLERS}{named[min(named) if host is None else host]}"
        if name not in self._numbers():
            balance = 0 if self._engine.scenario.protocol.fixed_issue else CALLER_BALANCE
            self.install(CALLER, chain=name.removeprefix(CALLERS), name=name, balance=balance)
        return self._numbers()[name]

    def _held(self, handle: Sent) -> Sent:
        note(self)
        self._handles.append(handle)
        self._open.append(handle)
        self._records.add(handle.record)
        return handle


def _said(payload: bytes) -> Document:
    """Return a payload as in a scenario, as text where a person can read it."""
    if not payload:
        return {}
    readable = payload.isascii() and payload.decode().isprintable()
    return {"text": payload.decode()} if readable else {"hex": payload.hex()}


def _bytes(payload: bytes | str, key: str) -> bytes:
    if isinstance(payload, str):
        if not is_text(payload):
            raise InvalidInput(f"{key}.payload: {shown(payload)}: half of a surrogate pair is no text")
        return payload.encode()
    if not isinstance(payload, bytes):
        raise InvalidInput(f"{key}.payload: {shown(payload)}: must be bytes or text")
    return payload
