"""The options of section 4 and 5 that this oracle follows; the default is the reference's."""

from dataclasses import dataclass
from typing import Literal

from tests.spec.ibc.keys import MAX_U64

Switch = Literal["off", "on"]


@dataclass(frozen=True)
class Options:
    """Options.

    `drift`: X-4, ns by which a header's time may lie ahead; None: any. `delay`: X-11, ns between adding a header and
    using it. `unbonding`: X-4, ns after which a trusted header is unusable; None: never. `forget`: on: at the end of a
    block that has added a header, those that are unusable leave T, and so do, of those whose delay is over, the oldest
    beyond `trusted_headers`, in all of the zone's clients; a proof under one of them is then a MissingHeader.
    `max_data`: of a packet, at send.
    `genesis`: whether the headers that zones are registered with show their stores, or vouch for validators only, so
    that nothing is proved under them. `indices`: how many there are: no packet of another index is received.
    `app_hash_lag`, `production`, `local` are for the composition (network).
    """

    app_hash_lag: Literal[0, 1] = 0
    redundant: Literal["error", "noop"] = "error"
    expiry: Literal["strict", "inclusive"] = "strict"
    order: Literal["ordered", "unordered"] = "ordered"
    timeouts: Switch = "off"
    cleanup: Switch = "off"
    asynchronous: Switch = "on"
    drift: int | None = None
    delay: int = 0
    unbonding: int | None = None
    forget: Switch = "off"
    trusted_headers: int | None = None
    max_data: int = 2**20
    indices: int = MAX_U64
    genesis: Literal["shows", "vouches"] = "shows"
    production: Literal["by_input", "by_program"] = "by_input"
    """Calls of a block are sent in the order of the inputs that made them, or program by program."""
    local: Literal["by_substream", "by_production"] = "by_substream"
    """A block takes local requests first and then local replies, or both as they were made."""

    def __post_init__(self) -> None:
        if (self.order, self.timeouts, self.asynchronous) == ("unordered", "on", "on"):
            # An unwritten slot looks like a packet that never came: it could time out and be executed both.
            raise ValueError("unordered queues with timeouts need asynchronous = off")
