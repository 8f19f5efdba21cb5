"""The event log: the relations of 1.1, one class each, one object a row.

Decisions, where 1.1 leaves a column open.
- `Consumed` has one row a message (G3 counts indices): `index` is its index in its queue, `position` its ordinal in the
  candidate, `payload_hash` is H(message). It is logged once a candidate, by the parachain, whatever includes it.
- `Queue.messages_hash` = H(H(m0) || H(m1) || ...), so that the rows of `Consumed` can be held against it.
- `Included` has the candidate too. Its `processed` are the numbers of the entries that its watermark passes: what the
  runtime takes for processed.
- `Sent` and `Got` have `accesses`, the table look-ups of the decision (G7). `bytes` is called `size`.
- `Pool` has `messages_hash`, and rows `sweep` that end each purge.
Beyond 1.1, without which its guarantees cannot be checked from the log: `Called` (registrations and censoring: G2, G3,
G5), `Lists` (what the runtime offered: G6), `Peer` (connections: G8 counts within one), `Read` (which block's state a
node read: G7), `Reported` (packets that are no queues and cost their sender: 3.6, X-1).
"""

from dataclasses import dataclass
from typing import Literal

from tests.spec.icmp.relay import Egress, Hash, Mark, ParaId

Ingress = tuple[tuple[int, tuple[tuple[ParaId, Hash], ...]], ...]
"""A list of the runtime: (block number, pairs)."""
Verdict = Literal["good", "wasteful", "duplicate", "disallowed"]
NodeId = str


@dataclass(frozen=True)
class RelayRow:
    block: Hash
    parent: Hash | None
    number: int


@dataclass(frozen=True)
class Called:
    block: Hash
    call: Literal["register", "deregister", "block", "unblock"]
    para: ParaId
    other: ParaId | None = None
    """block, unblock: the sender that `para` does not want to hear."""


@dataclass(frozen=True)
class Included:
    block: Hash
    para: ParaId
    candidate: Hash
    relay_parent: Hash
    egress: Egress
    watermark_before: Mark
    watermark_after: Mark
    processed: tuple[int, ...]


@dataclass(frozen=True)
class Refused:
    """A receipt that a block's author left out (beyond 1.1)."""

    block: Hash
    para: ParaId
    candidate: Hash
    error: str


@dataclass(frozen=True)
class Lists:
    block: Hash
    para: ParaId
    ingress: Ingress | None
    egress: Ingress


@dataclass(frozen=True)
class Queue:
    block: Hash
    sender: ParaId
    recipient: ParaId
    root: Hash
    n_messages: int
    messages_hash: Hash


@dataclass(frozen=True)
class Consumed:
    para: ParaId
    candidate: Hash
    block_of_origin: Hash
    sender: ParaId
    root: Hash
    index: int
    position: int
    payload_hash: Hash


@dataclass(frozen=True)
class Leaf:
    node: NodeId
    time: int
    leaves: tuple[Hash, ...]


@dataclass(frozen=True)
class Read:
    node: NodeId
    time: int
    block: Hash


@dataclass(frozen=True)
class Peer:
    node: NodeId
    peer: NodeId
    time: int
    change: Literal["connect", "disconnect"]


@dataclass(frozen=True)
class Heads:
    """A declaration that a node received. `error` = BadNeighborPacket if it was ignored."""

    node: NodeId
    peer: NodeId
    time: int
    heads: tuple[Hash, ...]
    error: str | None = None


@dataclass(frozen=True)
class Reported:
    """What a packet that is no queue cost its sender."""

    node: NodeId
    peer: NodeId
    time: int
    error: str
    reputation: int


@dataclass(frozen=True)
class Sent:
    node: NodeId
    peer: NodeId
    time: int
    topic: Hash
    root: Hash
    size: int
    accesses: int


@dataclass(frozen=True)
class Got:
    node: NodeId
    peer: NodeId
    time: int
    topic: Hash
    root: Hash
    size: int
    verdict: Verdict
    error: str | None
    reputation: int
    accesses: int


@dataclass(frozen=True)
class Pool:
    node: NodeId
    time: int
    topic: Hash | None
    root: Hash | None
    change: Literal["put", "purge", "sweep"]
    messages_hash: Hash | None = None


@dataclass(frozen=True)
class Fetch:
    node: NodeId
    time: int
    block: Hash
    para: ParaId
    wanted: tuple[int, ...]
    complete_prefix: tuple[int, ...]


Row = (
    RelayRow
    | Called
    | Included
    | Refused
    | Lists
    | Queue
    | Consumed
    | Leaf
    | Read
    | Peer
    | Heads
    | Reported
    | Sent
    | Got
    | Pool
    | Fetch
)
