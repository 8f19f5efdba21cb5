"""What a test of gossip asks of an engine, and the scenes that the tests share; the oracle's `GossipNetwork` is one."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from tests.spec.icmp.candidates import Candidate, Found, Messages
from tests.spec.icmp.events import Got, Row
from tests.spec.icmp.gossip_network import GossipNetwork
from tests.spec.icmp.network import Made
from tests.spec.icmp.options import Options
from tests.spec.icmp.packets import Declaration, Envelope, Packet
from tests.spec.icmp.relay import GENESIS, Hash, Mark, ParaId
from tests.spec.icmp.runtime import Call
from tests.spec.icmp.trie import R, topics
from tests.support.gossip.icmp_gossip_kernel import BothNodes


class RelayChain(Protocol):
    lost: set[tuple[Hash, ParaId, ParaId]]

    def make(
        self,
        parent: Hash = GENESIS.hash,
        candidates: Sequence[Candidate] = (),
        calls: Sequence[Call] = (),
        seal: bytes = b"",
        attested: Collection[Hash] = (),
    ) -> Made: ...
    def candidate(
        self,
        B: Hash,  # noqa: N803
        p: ParaId,
        sends: Messages = (),
        take: int | None = None,
        watermark: Mark | None = None,
        held: Mapping[tuple[int, Hash], Sequence[bytes]] | None = None,
    ) -> Candidate: ...


class GossipEngine(Protocol):
    """Nodes with links between them. Time is milliseconds and moves in `run` and `settle` only; every node purges at
    the multiples of the purge interval, before all else of that moment. A stranger is a peer that only says what it is
    told to; `heard` is what it was sent. `held` is how many entries a node keeps."""

    options: Options
    now: int
    heard: dict[str, list[tuple[str, Packet]]]
    lies: dict[str, tuple[bytes, ...]]

    @property
    def base(self) -> RelayChain: ...
    @property
    def log(self) -> list[Row]: ...
    def add(self, name: str, *collates: ParaId) -> None: ...
    def stranger(self, name: str) -> None: ...
    def connect(self, a: str, b: str) -> None: ...
    def disconnect(self, a: str, b: str) -> None: ...
    def connected(self, a: str) -> list[str]: ...
    def imports(self, name: str, *blocks: Hash) -> None: ...
    def reverts(self, name: str, block: Hash) -> None: ...
    def says(self, a: str, b: str, packet: Packet | tuple[Hash, bytes]) -> None: ...
    def run(self, duration: int) -> None: ...
    def settle(self) -> None: ...
    def purge(self, *names: str) -> None: ...
    def fetch(self, name: str, block: Hash, p: ParaId) -> Found: ...
    def pool(self, name: str) -> dict[tuple[Hash, Hash], tuple[bytes, ...]]: ...
    def expected(self, name: str) -> Mapping[Hash, Collection[Hash]]: ...
    def leaves(self, name: str) -> Sequence[Hash]: ...
    def held(self, name: str) -> int: ...


Make = Callable[..., GossipEngine]
GOSSIP_ENGINES: dict[str, Make] = {
    "oracle": GossipNetwork,
    "kernel": partial(GossipNetwork, nodes=BothNodes),
}
"""Engines by name: of options, latencies and losses. The kernel is held against the oracle at every event."""

R_ = TypeVar("R_", bound=Row)


def rows(g: GossipEngine, kind: type[R_], node: str) -> list[R_]:
    return [row for row in g.log if isinstance(row, kind) and getattr(row, "node", None) == node]


def verdicts(g: GossipEngine, node: str) -> list[tuple[str, str | None, int]]:
    return [(row.verdict, row.error, row.reputation) for row in rows(g, Got, node)]


def registered(g: GossipEngine, *paras: ParaId) -> Hash:
    return g.base.make(calls=[Call("register", p, head=b"head") for p in paras]).block.hash


def block(
    g: GossipEngine,
    parent: Hash,
    sends: Mapping[ParaId, Messages] | None = None,
    consumes: Sequence[ParaId] = (),
    seal: bytes = b"",
) -> Hash:
    """A relay block in which some chains send, consuming nothing, and others consume all that is pending."""
    candidates = [g.base.candidate(parent, p, messages, take=0) for p, messages in (sends or {}).items()]
    candidates += [g.base.candidate(parent, p) for p in consumes]
    made = g.base.make(parent, candidates, seal=seal)
    assert made.errors == []
    return made.block.hash


def everybody(g: GossipEngine, names: str, *blocks: Hash) -> None:
    """All import blocks at once, and what follows of it happens."""
    for name in names:
        g.imports(name, *blocks)
    g.settle()


def queue(g: GossipEngine, B: Hash, *messages: bytes) -> Envelope:  # noqa: N803
    """The envelope of a queue that was posted in a block."""
    root = R(messages)
    return Envelope(topics(g.options, B, 0, 0, root)[0], root, messages)


def key(m: Envelope) -> tuple[Hash, Hash]:
    return m.topic, m.root


def sent_to(g: GossipEngine, stranger: str) -> list[tuple[Hash, Hash]]:
    """The queues that a stranger was sent."""
    return [key(packet) for _, packet in g.heard[stranger] if isinstance(packet, Envelope)]


def declares(g: GossipEngine, stranger: str, node: str, *heads: Hash) -> None:
    g.says(stranger, node, Declaration(heads))
    g.settle()


def tells(g: GossipEngine, stranger: str, node: str, m: Envelope) -> None:
    g.says(stranger, node, m)
    g.settle()


def posted(g: GossipEngine) -> tuple[Hash, Hash, Hash]:
    """The registering block; one in which chains 1 and 3 send to 2; one on top."""
    first = registered(g, 1, 2, 3)
    x = block(g, first, {1: [(2, b"a"), (2, b"b")], 3: [(2, b"c")]})
    return first, x, block(g, x)


def watched(g: GossipEngine) -> tuple[Hash, Hash]:
    """Node v, which collates nothing, with a stranger that declares v's leaf: the block of the queues, and the leaf."""
    first, x, top = posted(g)
    g.add("v")
    g.stranger("s")
    g.connect("v", "s")
    g.imports("v", first, x, top)
    declares(g, "s", "v", top)
    return x, top
