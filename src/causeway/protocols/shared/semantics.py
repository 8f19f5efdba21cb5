"""The semantics of a protocol: promises of lanes, guarantees, numbers and codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import U64
from pydantic import BaseModel

from causeway.core.vocabulary import PortableCode
from causeway.protocols.shared.execution import program_reject_code
from causeway.protocols.shared.interference import DROP, FORGE, GAP, HALT, REPLAY, TAMPER

Options = TypeVar("Options", bound=BaseModel)


@dataclass(frozen=True)
class Promise:
    """A promise of lanes, named in the ledger's table of promises.

    Attributes:
        promise: The name.
        substream: The substream of the lanes; None for all.
        own: True for lanes of a chain to itself.
        source: The source of the lanes; None for any.
        number: Microseconds or messages.
        detail: A cause.
    """

    promise: str
    substream: int | None = None
    own: bool = False
    source: str | None = None
    number: int | None = None
    detail: str | None = None


@dataclass(frozen=True)
class Lanes(Generic[Options]):
    """The lanes of a network.

    Attributes:
        options: The protocol options.
        chains: The names of the chains.
        roles: The roles of chains by name.
        tick_micros: The length of a tick in microseconds.
        substreams: The used substreams, with True for lanes of a chain to itself.
    """

    options: Options
    chains: tuple[str, ...]
    roles: Mapping[str, str]
    tick_micros: int
    substreams: tuple[tuple[int, bool], ...]

    def used(self, *, own: bool) -> list[int]:
        """Return the used substreams between chains, or with ``own`` of chains to themselves."""
        return [substream for substream, of_own in self.substreams if of_own == own]


def promise_lanes(names: Iterable[str], like: Promise) -> Iterator[Promise]:
    """Yield promises of the same lanes.

    Args:
        names: The names of the promises.
        like: A promise of these lanes.
    """
    for name in names:
        yield replace(like, promise=name)


def may_drop(causes: Iterable[str]) -> Iterator[Promise]:
    """Yield the promises that lanes drop messages only for some causes."""
    for cause in causes:
        yield Promise("may_drop", detail=cause)


QUEUE = ("numbered", "ordered_sends", "ordered_receives", "conserved")
"""The promises of a queue: consecutive numbers, order at both ends, conserved value."""


TOPICS: Mapping[str, str] = {
    "order": "messages between two programs arrive in sending order",
    "causal": "messages arrive in causal order",
    "exactly_once": "no message takes effect twice",
    "authentic": "every received message was sent",
    "no_gaps": "no message of a lane is skipped",
    "answered": "every call is answered",
    "one_answer": "no call is answered twice",
    "called_off": "expired messages are cancelled on both sides",
    "final_first": "messages take effect on other chains only after finality",
    "value": "value between chains is conserved",
    "held_back": "back pressure limits the pending messages of a sender",
    "any_carrier": "relayers can only delay messages",
    "no_third_chain": "two chains need no third chain",
}
"""The topics of guarantees by name, in display order."""

CHECKS: Mapping[str, str] = {
    "order": "order",
    "causal": "causal_order",
    "exactly_once": "exactly_once",
    "authentic": "authenticity",
    "no_gaps": "gaps",
    "answered": "answers",
    "one_answer": "exactly_once",
    "called_off": "agreement",
    "final_first": "finality",
    "value": "conservation",
    "held_back": "back_pressure",
}
"""The audit check of each topic.

Carriers and third chains have none: an audit sees the chains' processing, not the carriers.
"""

Holds = Literal["yes", "partly", "no"]


@dataclass(frozen=True)
class Guarantee:
    """The degree of a protocol's guarantee of a topic, the mechanism, and the reference."""

    topic: str
    holds: Holds
    how: str
    reference: str


@dataclass(frozen=True)
class StateWatermark:
    """A column of a state table with a number per lane that never decreases.

    Attributes:
        name: The name of the number.
        table: The state table.
        value: The column of the number.
        chain: The column with the owning chain.
        source: The column with the source of the lane.
        destination: The column with the destination of the lane.
        substream: The column with the substream; None for a number of all lanes between the two.
    """

    name: str
    table: str
    value: str
    chain: str = "source"
    source: str = "source"
    destination: str = "destination"
    substream: str | None = "substream"


LATE, LOST, DUPLICATED, OUT_OF_TURN = "late", "lost", "duplicated", "out of turn"
ALTERED, HALTED, FORGED = "altered", "halted", "forged"

TRIES: Mapping[str, str] = {
    LATE: "no messages are delivered from one chain to the other for a while",
    LOST: "no further messages are delivered from one chain to the other",
    DUPLICATED: "delivered messages are delivered again",
    OUT_OF_TURN: "later messages are delivered first",
    ALTERED: "a message, or its proof, is altered in transit",
    HALTED: "the receiving chain makes no blocks for a while",
    FORGED: "the sending chain, or a relaying one, forges a message",
}
"""The tried faults by name, in display order."""

Keys = Mapping[str, Any]
"""A fault as in ``[[faults]]``."""


@dataclass(frozen=True)
class FaultWindow:
    """The place and time of a tried fault.

    Attributes:
        source: The sending chain, by name.
        destination: The receiving chain, by name.
        sent: The tick of the affected messages.
        first: The first tick of the fault.
        last: The last tick of the fault.
        sender: A program that is not on the source, if any.
        receiver: A program on the destination, if any.
    """

    source: str
    destination: str
    sent: int
    first: int
    last: int
    sender: int | None = None
    receiver: int | None = None

    @property
    def ends(self) -> dict[str, Any]:
        """Return the keys that name both chains."""
        return {"source": self.source, "destination": self.destination}

    @property
    def span(self) -> dict[str, Any]:
        """Return the keys of a fault with a span."""
        return {"from": self.first, "until": self.last}

    @property
    def ticks(self) -> dict[str, Any]:
        """Return the keys of a fault that acts at each tick."""
        return {"tick": self.first, "until": self.last}


def default_fault(name: str, between: FaultWindow) -> Keys | None:
    """Return the keys of a fault of ``TRIES`` for a protocol with the common fault kinds.

    Args:
        name: The name of the fault.
        between: The place and time.

    Returns:
        The keys, or None if the fault is not possible.
    """
    if name == LATE:
        return {"kind": DROP, **between.ends, **between.span}
    if name == LOST:
        return {"kind": DROP, **between.ends, "from": between.first}
    if name == HALTED:
        return {"kind": HALT, "chain": between.destination, **between.span}
    if name == FORGED:
        if between.sender is None or between.receiver is None:
            return None
        parties = {"sender": between.sender, "receiver": between.receiver}
        return {"kind": FORGE, "chain": between.source, "tick": between.sent, **parties, "text": "made up"}
    kind = {DUPLICATED: REPLAY, OUT_OF_TURN: GAP, ALTERED: TAMPER}[name]
    return {"kind": kind, **between.ends, **between.ticks}


Pairing: TypeAlias = Callable[[U64], tuple[U64, npt.NDArray[np.bool_]]]
"""A function from substreams to paired substreams.

It returns the paired substream of the other direction, and a mask of those of responses.
"""


@dataclass(frozen=True)
class Semantics:
    """The meaning of a protocol's lanes, numbers and codes.

    The audit, the ledger and comparisons use it.

    Attributes:
        promises: Yields the promises of lanes; None for none.
        guarantees: Yields the guarantees in words, from the options.
        watermarks: The numbers in state tables that never decrease.
        reject_code: Translates a reject code to the portable codes.
        trial: Returns the scenario keys of a fault of ``TRIES``.
        remark: Returns a sentence for every summary of a run, from the options, or None.
        pairing: Pairs substreams, where responses have the indices of their requests.
        expired: Codes of messages received only to note their expiry; they count as not received.
        collects_answered: True if a chain collects a request at the height of executing its answer.
    """

    promises: Callable[[Lanes[Any]], Iterable[Promise]] | None = None
    guarantees: Callable[[Any], Iterable[Guarantee]] = lambda options: ()
    watermarks: tuple[StateWatermark, ...] = ()
    reject_code: PortableCode = program_reject_code
    trial: Callable[[str, FaultWindow], Keys | None] = default_fault
    remark: Callable[[Any], str | None] = lambda options: None
    pairing: Pairing | None = None
    expired: tuple[int, ...] = ()
    collects_answered: bool = False


NONE = Semantics()
"""The semantics of a protocol that states nothing: a simulation, or one in development."""
