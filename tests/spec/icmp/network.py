"""Parachains on a relay chain: who builds candidates, who validates and includes them, and what is logged.

Bodies are simply there, but for those in `lost`; how they travel is the simulator's matter. Relay blocks are made on
any block, so that forks are a matter of naming a parent.

Decision. A candidate that validators do not attest is never included (2.2: "attested by validators"): `make` refuses it
with the error of 3.4 before the runtime sees it, unless `attested` says otherwise (dishonest validators).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tests.spec.icmp.candidates import Candidate, Lists, Messages, collect, egress_queues, egress_roots, validate
from tests.spec.icmp.events import Consumed, Included, Queue, Refused, Row
from tests.spec.icmp.options import Options
from tests.spec.icmp.relay import GENESIS, Block, Hash, Mark, ParaId, Receipt, block_on
from tests.spec.icmp.runtime import Call, Runtime, include_valid, ingress
from tests.spec.icmp.trie import H, R, u32


def messages_hash(messages: Sequence[bytes]) -> Hash:
    return H(b"".join(H(message) for message in messages))


def next_head(parent_head: bytes, relay_parent: Hash, lists: Lists, messages: Messages) -> bytes:
    """Decision: the head of the next block of a parachain is a hash of what it consumed and sent."""
    took = b"".join(u32(n) + u32(sender) + R(queue) for n, queues in lists for sender, queue in queues)
    sent = b"".join(H(u32(to) + message) for to, message in messages)
    return H(parent_head + relay_parent + H(took) + H(sent))


@dataclass(frozen=True)
class Made:
    """A relay block, and what its author left out."""

    block: Block
    refused: Sequence[Refused]

    @property
    def errors(self) -> list[tuple[ParaId, str]]:
        return [(r.para, r.error) for r in self.refused]


@dataclass
class Network:
    options: Options = field(default_factory=Options)
    rt: Runtime = field(default_factory=Runtime)
    posted: dict[tuple[Hash, ParaId, ParaId], list[bytes]] = field(default_factory=dict)
    """E(B, x, y) of 2.1, where it is not empty."""
    lost: set[tuple[Hash, ParaId, ParaId]] = field(default_factory=set)
    """Bodies that nobody has."""
    candidates: dict[Hash, Candidate] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rt.options = self.options

    @property
    def log(self) -> list[Row]:
        return [*self.rt.log, *self.rows]

    def found(self, B: Hash, p: ParaId) -> dict[tuple[int, Hash], Sequence[bytes]]:
        """The bodies on the chain of B for p that are there."""
        have: dict[tuple[int, Hash], Sequence[bytes]] = {}
        for block in self.rt.relay.chain(B):
            for (at, x, y), messages in self.posted.items():
                if (at, y) == (block.hash, p) and (at, x, y) not in self.lost:
                    have[block.number, R(messages)] = messages
        return have

    def candidate(
        self,
        B: Hash,
        p: ParaId,
        sends: Messages = (),
        take: int | None = None,
        watermark: Mark | None = None,
        held: Mapping[tuple[int, Hash], Sequence[bytes]] | None = None,
    ) -> Candidate:
        """An honest candidate on relay parent B: the longest prefix that is there, or `take` blocks of it (3.4)."""
        s = self.rt.states[B]
        want = ingress(self.rt, B, p) or ()
        lists = collect(want, self.found(B, p) if held is None else held)[:take]
        if watermark is None:
            watermark = self.rt.relay.at(B, lists[-1][0]).mark if lists else s.watermark[p]
        head = next_head(s.head[p], B, lists, sends)
        return Candidate(Receipt(p, B, s.head[p], head, egress_roots(sends), watermark), lists, sends)

    def make(
        self,
        parent: Hash = GENESIS.hash,
        candidates: Sequence[Candidate] = (),
        calls: Sequence[Call] = (),
        seal: bytes = b"",
        attested: Collection[Hash] = (),
    ) -> Made:
        """A relay block with every candidate that validators attest and the runtime accepts."""
        C = block_on(self.rt.relay.blocks[parent], seal)
        refused: list[Refused] = []
        sound: list[Candidate] = []
        for c in candidates:
            error = None if c.receipt.candidate in attested else validate(self.rt, c)
            if error is None:
                sound.append(c)
            else:
                refused.append(Refused(C.hash, c.receipt.para, c.receipt.candidate, error))
        before = len(self.rt.log)
        left_out = include_valid(self.rt, C, [c.receipt for c in sound], calls)
        self.rows += refused
        included = {row.candidate for row in self.rt.log[before:] if isinstance(row, Included)}
        for c in {c.receipt.candidate: c for c in sound}.values():
            if c.receipt.candidate in included:
                self._note(C, c)
        return Made(C, [*refused, *left_out])

    def _note(self, C: Block, c: Candidate) -> None:
        """What an included candidate posted and, if it was not included elsewhere before, consumed."""
        r = c.receipt
        for to, messages in egress_queues(c.messages).items():
            self.rows.append(Queue(C.hash, r.para, to, R(messages), len(messages), messages_hash(messages)))
            if (r.para, to) not in self.rt.states[C.hash].blocked:
                self.posted[C.hash, r.para, to] = messages
        if r.candidate not in self.candidates:
            self.candidates[r.candidate] = c
            self.rows += consumed(self.rt, c)


def consumed(rt: Runtime, c: Candidate) -> list[Consumed]:
    """The rows of what a candidate consumes, in its order."""
    r = c.receipt
    chain = {block.number: block.hash for block in rt.relay.chain(r.relay_parent)}
    rows: list[Consumed] = []
    for n, queues in c.lists:
        for sender, messages in queues:
            root = R(messages)
            for i, message in enumerate(messages):
                rows.append(Consumed(r.para, r.candidate, chain[n], sender, root, i, len(rows), H(message)))
    return rows
