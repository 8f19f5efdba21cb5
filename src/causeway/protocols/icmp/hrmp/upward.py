"""Upward messages: what parachains ask the relay chain for, as bytes (ICMP reference X-4, X-6).

Each is a call of the relay chain's pallet ``Hrmp``, in SCALE:

```
3c 00  u32 recipient, u32 max_capacity, u32 max_message_size       open
3c 01  u32 sender                                                  accept
3c 02  u32 sender, u32 recipient                                   close
3c 06  u32 sender, u32 recipient, u32 open_requests                cancel
```
The number of the pallet is that of the deployed relay chains; ``open_requests`` is how many requests there are at most.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

PALLET = 60

MOST_REQUESTS = 2**32 - 1


class Call(IntEnum):
    """What a parachain asks the relay chain for; the numbers are those of the pallet's calls."""

    OPEN = 0
    ACCEPT = 1
    CLOSE = 2
    CANCEL = 6


class Asked(NamedTuple):
    """A call: the ends of the channel that it is about, and of an OPEN its limits, of a CANCEL how many requests there
    are at most."""

    call: Call
    sender: int
    recipient: int
    max_capacity: int = 0
    max_message_size: int = 0
    open_requests: int = MOST_REQUESTS


_FIELDS = {
    Call.OPEN: ("recipient", "max_capacity", "max_message_size"),
    Call.ACCEPT: ("sender",),
    Call.CLOSE: ("sender", "recipient"),
    Call.CANCEL: ("sender", "recipient", "open_requests"),
}
"""What a call's bytes have, u32 each; the other end of an OPEN and of an ACCEPT is whoever sends it."""


def encode_call(asked: Asked) -> bytes:
    """Return the bytes of a call."""
    fields = [getattr(asked, name) for name in _FIELDS[asked.call]]
    return bytes([PALLET, asked.call]) + b"".join([int(field).to_bytes(4, "little") for field in fields])


def decode_call(data: bytes, origin: int) -> Asked | None:
    """Return the call that bytes of the parachain ``origin`` are, None where they are none."""
    if len(data) < 2 or data[0] != PALLET or data[1] not in _FIELDS or len(data) % 4 != 2:
        return None
    call = Call(data[1])
    fields = [int.from_bytes(data[at : at + 4], "little") for at in range(2, len(data), 4)]
    if len(fields) != len(_FIELDS[call]):
        return None
    given = dict(zip(_FIELDS[call], fields, strict=True))
    return Asked(call, **{"sender": origin, "recipient": origin, **given})
