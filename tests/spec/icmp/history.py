"""What the rows of a log say of every relay block: posts, watermarks, pending lists, each along its own chain.

It is bookkeeping over the events of 1.1 and knows no rule of section 3: what a row says is taken as said, the
guarantees judge it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.spec.icmp.events import Called, Consumed, Included, Lists, Queue, RelayRow, Row
from tests.spec.icmp.options import Options
from tests.spec.icmp.relay import Hash, Mark, ParaId

Status = Literal["violated", "unchecked"]


@dataclass(frozen=True)
class Finding:
    guarantee: str
    status: Status
    text: str
    rows: tuple[Row, ...] = ()


def violated(guarantee: str, text: str, *rows: Row) -> Finding:
    return Finding(guarantee, "violated", text, rows)


def unchecked(guarantee: str, text: str, *rows: Row) -> Finding:
    return Finding(guarantee, "unchecked", text, rows)


def once(findings: Iterable[Finding]) -> list[Finding]:
    """Chains share blocks: what is found on several is reported once."""
    return list(dict.fromkeys(findings))


@dataclass(frozen=True)
class Record:
    """A log. `missing`: parachains whose own rows (`Queue`, `Consumed`) are not in it; without being told, no check can
    tell a chain that consumed nothing from one that was not seen. `options`: how the network was set."""

    rows: Sequence[Row]
    options: Options = field(default_factory=Options)
    missing: frozenset[ParaId] = frozenset()


@dataclass
class Books:
    """What is known after a block."""

    active: set[ParaId] = field(default_factory=set)
    watermark: dict[ParaId, Mark] = field(default_factory=dict)
    blocked: set[tuple[ParaId, ParaId]] = field(default_factory=set)
    pending: dict[tuple[int, ParaId], dict[ParaId, Hash]] = field(default_factory=dict)
    former: set[ParaId] = field(default_factory=set)


class History:
    def __init__(self, record: Record) -> None:
        self.record = record
        self.blocks: dict[Hash, RelayRow] = {}
        self.included: dict[Hash, list[Included]] = defaultdict(list)
        self.called: dict[Hash, list[Called]] = defaultdict(list)
        self.lists: dict[tuple[Hash, ParaId], Lists] = {}
        self.queues: dict[tuple[Hash, ParaId, ParaId], Queue] = {}
        self.consumed: dict[Hash, list[Consumed]] = defaultdict(list)
        for row in record.rows:
            if isinstance(row, RelayRow):
                self.blocks[row.block] = row
            elif isinstance(row, Included):
                self.included[row.block].append(row)
            elif isinstance(row, Called):
                self.called[row.block].append(row)
            elif isinstance(row, Lists):
                self.lists[row.block, row.para] = row
            elif isinstance(row, Queue):
                self.queues[row.block, row.sender, row.recipient] = row
            elif isinstance(row, Consumed):
                self.consumed[row.candidate].append(row)
        for rows in self.consumed.values():
            rows.sort(key=lambda row: row.position)
        self._chains: dict[Hash, tuple[Hash, ...] | None] = {}
        self._books: dict[Hash, Books] = {}

    def chain(self, B: Hash | None) -> tuple[Hash, ...] | None:
        """From genesis to B; None if a row of `Relay` is missing on the way."""
        way: list[Hash] = []
        while B is not None and B not in self._chains:
            if B not in self.blocks:
                self._chains[B] = None
                break
            way.append(B)
            B = self.blocks[B].parent
        known = () if B is None else self._chains[B]
        for block in reversed(way):
            known = None if known is None else (*known, block)
            self._chains[block] = known
        return known

    def leaves(self) -> list[tuple[Hash, ...]]:
        """The chains of all blocks without a child, as far as their rows are whole."""
        parents = {row.parent for row in self.blocks.values()}
        chains = [self.chain(block) for block in self.blocks if block not in parents]
        return [chain for chain in chains if chain is not None]

    def broken(self, guarantee: str) -> list[Finding]:
        """Blocks that cannot be judged, because an ancestor's row is missing."""
        rows = [row for row in self.blocks.values() if self.chain(row.block) is None]
        text = f"{len(rows)} relay blocks have ancestors without a row"
        return [unchecked(guarantee, text, *rows)] if rows else []

    def posts(self, B: Hash, p: ParaId) -> dict[ParaId, Hash]:
        """Ingress(B, p) by root: what the receipts in B say, but for senders that p does not want to hear."""
        blocked = self.books(B).blocked
        said = {row.para: dict(row.egress) for row in self.included[B]}
        return {x: roots[p] for x, roots in sorted(said.items()) if p in roots and (x, p) not in blocked}

    def before(self, C: Hash) -> Books:
        """The books as the receipts of C find them: after its parent and C's own calls."""
        row = self.blocks[C]
        books = Books() if row.parent is None else self._copy(self.books(row.parent))
        for call in self.called[C]:
            self._call(books, call)
        return books

    def books(self, C: Hash) -> Books:
        """The books after C. Its chain must be whole."""
        chain = self.chain(C)
        assert chain is not None, "the chain has no gap"
        for block in chain:
            if block not in self._books:
                self._books[block] = self._after(block)
        return self._books[C]

    def _after(self, C: Hash) -> Books:
        books, number = self.before(C), self.blocks[C].number
        for row in self.included[C]:
            books.watermark[row.para] = row.watermark_after
            passed = [(n, p) for n, p in books.pending if p == row.para and n <= row.watermark_after.number]
            for key in passed:
                del books.pending[key]
        for row in sorted(self.included[C], key=lambda row: row.para):
            for to, root in row.egress:
                if (row.para, to) not in books.blocked:
                    books.pending.setdefault((number, to), {})[row.para] = root
        return books

    def _call(self, books: Books, call: Called) -> None:
        p, row = call.para, self.blocks[call.block]
        if call.call == "register":
            books.active.add(p)
            first = self.chain(call.block)
            assert first is not None
            again = p in books.former and row.parent is not None
            books.watermark[p] = Mark(row.number - 1, row.parent or b"") if again else Mark(0, first[0])
        elif call.call == "deregister":
            books.active.discard(p)
            books.former.add(p)
            books.watermark.pop(p, None)
            books.pending = {key: found for key, found in books.pending.items() if key[1] != p}
            books.blocked = {pair for pair in books.blocked if pair[1] != p}
        elif call.call == "block" and call.other is not None:
            books.blocked.add((call.other, p))
        elif call.other is not None:
            books.blocked.discard((call.other, p))

    def _copy(self, b: Books) -> Books:
        pending = {key: dict(found) for key, found in b.pending.items()}
        return Books(set(b.active), dict(b.watermark), set(b.blocked), pending, set(b.former))

    def top(self, B: Hash) -> int:
        """The last number that the lists of B may have (D-2)."""
        inclusive = self.record.options.ingress_upper == "inclusive"
        return self.blocks[B].number if inclusive else self.blocks[B].number - 1

    def offered(self, B: Hash, p: ParaId) -> list[tuple[int, list[tuple[ParaId, Hash]]]]:
        """The pending list of p at B by the books: what lies above the watermark."""
        pending = self.books(B).pending
        numbers = sorted(n for n, to in pending if to == p and n <= self.top(B))
        return [(n, sorted(pending[n, p].items())) for n in numbers]
