"""Oracle and kernel side by side on the same candidates, calls and relay blocks: after every block the same refusals,
states, lists, candidates and logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tests.spec.icmp.candidates import Candidate, Messages, validate
from tests.spec.icmp.formulas import Total, omitted, roots
from tests.spec.icmp.network import Made, Network
from tests.spec.icmp.options import Options
from tests.spec.icmp.relay import GENESIS, Hash, Mark, ParaId
from tests.spec.icmp.runtime import Call, egress, ingress
from tests.support.icmp.icmp_kernel_engine import KernelEngine


class Both(Network):
    """The oracle's network, with the kernel beside it. ``everything``: all parachains that there may be."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.kernel = KernelEngine(options)
        self.everything: set[ParaId] = set()

    def make(
        self,
        parent: Hash = GENESIS.hash,
        candidates: Sequence[Candidate] = (),
        calls: Sequence[Call] = (),
        seal: bytes = b"",
        attested: Collection[Hash] = (),
    ) -> Made:
        for c in candidates:
            assert self.kernel.validate(c) == validate(self.rt, c), c
        made = super().make(parent, candidates, calls, seal, attested)
        also = self.kernel.make(parent, candidates, calls, seal, attested)
        assert also.errors == made.errors
        assert also.block == made.block
        self.kernel.lost = self.lost
        self.everything |= {call.para for call in calls}
        self.compare(made.block.hash)
        return made

    def compare(self, block: Hash) -> None:
        """The states of a block, and its lists, which the definitions by recursion give as well (2.1)."""
        s, leaf, kernel = self.rt.states[block], self.kernel.leaves[block], self.kernel
        assert kernel.active(block) == s.active
        assert {p: kernel.head(block, p) for p in s.active} == s.head
        assert {p: kernel.watermark(block, p) for p in s.active} == s.watermark
        unrouted: dict[tuple[int, ParaId], list[tuple[ParaId, Hash]]] = {}
        rows = leaf.unrouted
        columns = (rows[name].tolist() for name in ("number", "to", "source"))
        hashes = {b.number: b.hash for b in self.rt.relay.chain(block)}
        for n, to, source, root, made in zip(*columns, rows["root"], rows["hash"], strict=True):
            unrouted.setdefault((n, to), []).append((source, root.tobytes()))
            assert made.tobytes() == hashes[n]
        assert unrouted == s.unrouted
        blocked = (leaf.blocked[name].tolist() for name in ("source", "to", "since"))
        assert {(x, y): since for x, y, since in zip(*blocked, strict=True)} == s.blocked
        for p in sorted(s.active | s.former):
            assert kernel.ingress(block, p) == ingress(self.rt, block, p)
            assert kernel.egress(block, p) == egress(self.rt, block, p)
        self._totals(block)

    def _totals(self, block: Hash) -> None:
        """What every block of a chain added to the kernel's table is the total by recursion (2.1)."""
        relay = self.rt.relay
        for p in sorted(self.rt.states[block].active):
            found = []
            for at in relay.chain(block):
                rows = self.kernel.leaves[at.hash].unrouted
                mine = rows.filter((rows["number"] == at.number) & (rows["to"] == p))
                if len(mine):
                    pairs = zip(mine["source"].tolist(), mine["root"], strict=True)
                    found.append((at.number, [(x, root.tobytes()) for x, root in pairs]))
            assert found == omitted(roots(Total(self.posted, self.everything, relay, block, p)))

    def candidate(
        self,
        B: Hash,  # noqa: N803
        p: ParaId,
        sends: Messages = (),
        take: int | None = None,
        watermark: Mark | None = None,
        held: Mapping[tuple[int, Hash], Sequence[bytes]] | None = None,
    ) -> Candidate:
        made = super().candidate(B, p, sends, take, watermark, held)
        assert self.kernel.candidate(B, p, sends, take, watermark, held) == made
        return made
