"""The semantics of a protocol: what its lanes promise, what it guarantees, and what its numbers and codes mean."""

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
    """A promise of a name of the ledger's table of promises, of the lanes ``substream`` between chains, or with ``own``
    of a chain to itself; ``substream`` None: of all lanes. ``source``: of the lanes of that chain, None: of any;
    ``number``: microseconds or messages; ``detail``: a cause."""

    promise: str
    substream: int | None = None
    own: bool = False
    source: str | None = None
    number: int | None = None
    detail: str | None = None


@dataclass(frozen=True)
class Lanes(Generic[Options]):
    """The lanes of a network. ``options``: of the protocol; ``chains``: their names; ``roles``: of those that have one;
    ``tick_micros``: microseconds of a tick. ``substreams``: those that messages used, between chains and, with True, of
    a chain to itself."""

    options: Options
    chains: tuple[str, ...]
    roles: Mapping[str, str]
    tick_micros: int
    substreams: tuple[tuple[int, bool], ...]

    def used(self, *, own: bool) -> list[int]:
        """Return the substreams that messages used, between chains or of chains to themselves."""
        return [substream for substream, of_own in self.substreams if of_own == own]


def promise_lanes(names: Iterable[str], like: Promise) -> Iterator[Promise]:
    """Yield promises of the same lanes as ``like``."""
    for name in names:
        yield replace(like, promise=name)


def may_drop(causes: Iterable[str]) -> Iterator[Promise]:
    """Yield that lanes drop messages for some causes alone."""
    for cause in causes:
        yield Promise("may_drop", detail=cause)


QUEUE = ("numbered", "ordered_sends", "ordered_receives", "conserved")
"""What a lane promises that is a queue: each message has the next number, and comes in its turn, with what it has."""


TOPICS: Mapping[str, str] = {
    "order": "messages between two programs come in the order in which they were sent",
    "causal": "messages come in the order of their causes",
    "exactly_once": "no message takes effect twice",
    "authentic": "nothing is received that was not sent",
    "no_gaps": "no message of a lane is left out",
    "answered": "every call is answered",
    "one_answer": "no call is answered twice",
    "called_off": "what does not come in time is called off on both sides",
    "final_first": "nothing takes effect elsewhere before its block is final",
    "value": "value between chains is neither made nor lost",
    "held_back": "a sender is held back before too much waits",
    "any_carrier": "whoever carries messages can only delay them",
    "no_third_chain": "two chains need no third one",
}
"""What protocols are asked, by name, in the order in which it is told."""

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
"""The check of the audit that judges each topic. No check judges carriers and third chains: an audit sees what chains
did with messages, not who brought them."""

Holds = Literal["yes", "partly", "no"]


@dataclass(frozen=True)
class Guarantee:
    """Whether a protocol guarantees a topic, how, and where its reference says so (or leaves it out)."""

    topic: str
    holds: Holds
    how: str
    reference: str


@dataclass(frozen=True)
class StateWatermark:
    """A column of a state table that has a number a lane and never falls in it.

    ``name``: what the number is called; ``table``, ``value``: where it stands. ``chain``: the column with the chain
    whose number it is; ``source``, ``destination``, ``substream``: those that name the lane; ``substream`` None: it is
    a number of all lanes between the two.
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
    LATE: "for a while nothing is carried from one chain to the other",
    LOST: "from then on nothing is carried from one chain to the other",
    DUPLICATED: "what was carried comes again",
    OUT_OF_TURN: "what comes later is carried first",
    ALTERED: "what is carried, or its proof, is altered on the way",
    HALTED: "the chain that receives makes no blocks for a while",
    FORGED: "the chain that sends, or one that carries, makes up a message",
}
"""What is tried, by name, in the order in which it is told."""

Keys = Mapping[str, Any]
"""A fault as in ``[[faults]]``."""


@dataclass(frozen=True)
class FaultWindow:
    """Where and when something goes wrong: between two chains, by name, from tick ``first`` to ``last``, when messages
    that were sent at ``sent`` and later would come. ``sender``: a program that is not on the source, ``receiver``: one
    on the destination; None where there is none."""

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
        """Return the keys of a fault that has a span."""
        return {"from": self.first, "until": self.last}

    @property
    def ticks(self) -> dict[str, Any]:
        """Return the same for a fault that is made anew at each tick."""
        return {"tick": self.first, "until": self.last}


def default_fault(name: str, between: FaultWindow) -> Keys | None:
    """Return the fault of a name in ``TRIES`` as a protocol has it that has the kinds of all protocols; None where it
    cannot be tried."""
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
"""A function of substreams: the substream beside each of the other direction, and a mask of those of responses."""


@dataclass(frozen=True)
class Semantics:
    """What a protocol's lanes, numbers and codes mean, for the audit, the ledger and comparisons.

    Attributes:
        promises: Yields the promises of lanes; None where a protocol makes none.
        guarantees: Yields from the options the same and more in words, for people.
        watermarks: The numbers in the state tables that never fall.
        reject_code: Translates a reject code into the words that all protocols share.
        trial: Returns how a scenario writes a fault of ``TRIES``.
        remark: Returns from the options the sentence that every summary of a run contains, or None.
        pairing: Of a protocol whose responses have the indices of their requests, which substreams belong together.
        expired: Codes with which a chain takes a message only to note that it has expired: it counts as not received.
        collects_answered: Whether a chain collects a request at the height at which it executes the answer.
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
"""The semantics of a protocol that states nothing: a simulation, or one that is being developed."""
