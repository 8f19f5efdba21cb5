"""How the two ends of a link show each other that they know its secret, without saying it.

```
dialler -> listener    hello: who it is, whom it dials, a nonce
listener -> dialler    hello: the same of its own
dialler -> listener    proof of the dialler
listener -> dialler    proof of the listener, where it takes the connection
```

A proof is HMAC-SHA-256 under the link's secret of what it is for, both hellos and the ports of both ends. So it is good
for this one connection, from this end: it can neither be said again, nor be given back to who made it, nor be passed on
by somebody between them, who has other ports.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from causeway.service.icmp.wire import PROOF_BYTES, SESSION_BYTES, Hello, WireError

DIALLER, LISTENER = b"causeway gossip dialler ", b"causeway gossip listener"
"""What a proof is for: which end makes it."""

_SESSION = b"causeway gossip session "


@dataclass(frozen=True)
class Handshake:
    """What both ends know once both hellos are said. ``ports``: the dialler's and the listener's."""

    secret: bytes
    dialler: Hello
    listener: Hello
    ports: tuple[int, int]

    def proof(self, purpose: bytes) -> bytes:
        """Return what one end says (``DIALLER``, ``LISTENER``)."""
        ports = b"".join(port.to_bytes(2, "little") for port in self.ports)
        return hmac.digest(self.secret, purpose + self.dialler.encode() + self.listener.encode() + ports, "sha256")

    def require(self, purpose: bytes, proof: bytes) -> None:
        """Refuse a proof that the other end did not make for this connection. Raises ``WireError``."""
        if not hmac.compare_digest(self.proof(purpose), proof):
            who = self.dialler if purpose == DIALLER else self.listener
            raise WireError("stranger", f"who says to be node {who.node} does not prove it in {PROOF_BYTES} bytes")

    @property
    def session(self) -> bytes:
        """A name of this connection that both ends have."""
        return self.proof(_SESSION)[:SESSION_BYTES]
