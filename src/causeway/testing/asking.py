"""What a test sends into a network in memory: messages from users, and calls."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.model.document import validated
from causeway.model.errors import InvalidInput
from causeway.model.ingress_call import CALL_METHOD, encode_calls
from causeway.model.text import shown
from causeway.network.traffic_settings import CallSection, SendSection
from causeway.testing.changing import Changing
from causeway.testing.deploys import CALLER, CALLERS
from causeway.testing.engine import Document
from causeway.testing.handles import Asked, Record, Sent
from causeway.testing.log import Place

WORD = 2**64


class Asking(Changing):
    """A network in memory to which messages can be sent."""

    def send(self, to: str | int, method: str, payload: bytes | str = b"", *, sender: int = 0) -> Sent:
        """Let a user, a number, send a message to a program in the next tick: its ``on_ingress``. Users have neither
        accounts nor answers: ``call`` has both. Raises ``InvalidInput``."""
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
        body = _bytes(payload, "call")
        call = {"receiver": to, "method": method, **_said(body), **({"amount": amount} if amount else {})}
        asked = validated(CallSection, call, "call")
        receiver = self._program(to, "call.to")
        caller = self._caller(receiver, sender)
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
            known = self._engine.topology.chains["number"].to_pylist()
            chain = known[0] if program not in self._numbers().values() else None
        if chain is None:
            raise InvalidInput(f"to: {shown(section['to'])} is on no chain at tick {self.now}")
        names = self._engine.topology.chains
        name = dict(zip(names["number"].to_pylist(), names["name"].to_pylist(), strict=True))[chain]
        row = {"chain": chain, "receiver": program, "sender": sender, "method": method, "payload": payload}
        return self._engine.send({**section, "chain": name}, row)

    def _caller(self, receiver: int, sender: str | None) -> int:
        """Return the program that calls ``receiver``. Raises ``InvalidInput``."""
        if sender is not None:
            number = self._program(sender, "call.sender")
            programs = self._engine.topology.programs
            runs = dict(zip(programs["number"].to_pylist(), programs["program"].to_pylist(), strict=True))[number]
            if runs != CALLER:
                text = f'runs {shown(runs)}; who calls for a test is a program of the class "{CALLER}"'
                raise InvalidInput(f"call.sender: {shown(sender)} {text}")
            return number
        host = self._engine.host_of(receiver)
        chains = self._engine.topology.chains
        named = dict(zip(chains["number"].to_pylist(), chains["name"].to_pylist(), strict=True))
        name = f"{CALLERS}{named[min(named) if host is None else host]}"
        if name not in self._numbers():
            self.install(CALLER, chain=name.removeprefix(CALLERS), name=name)
        return self._numbers()[name]

    def _held(self, handle: Sent) -> Sent:
        self._handles.append(handle)
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
        return payload.encode()
    if not isinstance(payload, bytes):
        raise InvalidInput(f"{key}.payload: {shown(payload)}: must be bytes or text")
    return payload
