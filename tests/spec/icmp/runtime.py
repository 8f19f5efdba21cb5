"""The relay chain's runtime: what a block does to its parent's state, and the two lists it offers (3.1 to 3.3).

Decisions.
- A block's calls are applied before its receipts, in the order given. Only so does censoring hold for b in [B, B') (5.1
  (2)), and only so is "the current block - 1" the right watermark of a chain that is addressed in the block that
  registers it again.
- `include` refuses the block at the first error, as 3.1 says ("no state change"). `include_valid` is an author that
  leaves out what is refused; the checks of one receipt do not depend on another, but for DuplicateCandidate, so that
  what it leaves out is well defined.
- The first registration sets the watermark to genesis, as in the seed; every later one to the parent of its block.
- A deregistered chain's egress is still listed, or the union of ingress would exceed that of egress (G6).
- What a chain has censored ends with its registration; that others censor it does not.
- A receipt's watermark is a number with a hash: a number that is not that block's is WatermarkNotAncestor.
- `num(w') < num(C)` follows from `w' on chain(P)`; it has no error of its own.
- now_minus_1 (D-12) takes no watermark from a receipt, so step 3 is left out.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Literal

from tests.spec.icmp.errors import IcmpError, ensure
from tests.spec.icmp.events import Called, Included, Ingress, Lists, Refused, RelayRow, Row
from tests.spec.icmp.options import Options
from tests.spec.icmp.relay import GENESIS, Block, Hash, Mark, ParaId, Receipt, Relay
from tests.spec.icmp.trie import EMPTY_ROOT


@dataclass(frozen=True)
class Call:
    """register(para, head), deregister(para); block(para = y, other = x) and unblock, by y."""

    call: Literal["register", "deregister", "block", "unblock"]
    para: ParaId
    other: ParaId | None = None
    head: bytes = b""


@dataclass
class State:
    """The state of one block; keys as in 3.1."""

    active: set[ParaId] = field(default_factory=set)
    former: set[ParaId] = field(default_factory=set)
    """Chains that were registered once and are not now."""
    head: dict[ParaId, bytes] = field(default_factory=dict)
    watermark: dict[ParaId, Mark] = field(default_factory=dict)
    unrouted: dict[tuple[int, ParaId], list[tuple[ParaId, Hash]]] = field(default_factory=dict)
    blocked: dict[tuple[ParaId, ParaId], int] = field(default_factory=dict)
    """(x, y) -> since: y does not want to hear x."""


@dataclass
class Runtime:
    options: Options = field(default_factory=Options)
    relay: Relay = field(default_factory=Relay)
    states: dict[Hash, State] = field(default_factory=lambda: {GENESIS.hash: State()})
    log: list[Row] = field(default_factory=lambda: [RelayRow(GENESIS.hash, None, 0)])


def apply_call(s: State, P: Block, C: Block, call: Call) -> None:
    p = call.para
    if call.call == "register":
        ensure(p not in s.active, "AlreadyRegistered")
        s.active.add(p)
        s.head[p] = call.head
        s.watermark[p] = P.mark if p in s.former else GENESIS.mark
        return
    ensure(p in s.active, "NotRegistered")
    if call.call == "deregister":
        s.active.remove(p)
        s.former.add(p)
        del s.head[p], s.watermark[p]
        s.unrouted = {(n, to): rs for (n, to), rs in s.unrouted.items() if to != p}
        s.blocked = {(x, y): since for (x, y), since in s.blocked.items() if y != p}
        return
    assert call.other is not None
    if call.call == "block":
        s.blocked.setdefault((call.other, p), C.number)
    else:
        s.blocked.pop((call.other, p), None)


def check_egress(s: State, r: Receipt) -> None:
    """3.1 step 2, pair by pair."""
    before: ParaId | None = None
    for to, root in r.egress_queue_roots:
        ensure(before is None or to > before, "EgressOutOfOrder")
        ensure(to != r.para, "SelfAddressed")
        ensure(root != EMPTY_ROOT, "EmptyTrieRoot")
        ensure(to in s.active, "DestinationDoesNotExist")
        before = to


def check_watermark(rt: Runtime, s: State, P: Block, r: Receipt) -> None:
    """3.1 step 3."""
    old, new = s.watermark[r.para], r.watermark
    ensure(new.number >= old.number, "WatermarkRegressed")
    ensure(rt.relay.on_chain(new, P.hash), "WatermarkNotAncestor")
    if rt.options.watermark_rule == "has_messages":
        lands = new == old or new.hash == r.relay_parent or (new.number, r.para) in s.unrouted
        ensure(lands, "LandsOnBlockWithNoMessages")


def check_receipt(rt: Runtime, s: State, P: Block, r: Receipt, seen: set[ParaId]) -> None:
    """Steps 1 to 3 for one receipt; `seen` are the chains that have a receipt in this block already."""
    ensure(r.para not in seen, "DuplicateCandidate")
    ensure(r.para in s.active and r.parent_head == s.head[r.para], "ParentMismatch")
    check_egress(s, r)
    if rt.options.watermark_mode == "per_candidate":
        check_watermark(rt, s, P, r)


def apply_receipt(rt: Runtime, s: State, P: Block, C: Block, r: Receipt) -> Included:
    """3.1 step 4."""
    p, old = r.para, s.watermark[r.para]
    new = r.watermark if rt.options.watermark_mode == "per_candidate" else P.mark
    s.head[p], s.watermark[p] = r.head_data, new
    passed = sorted(n for n, to in s.unrouted if to == p and n <= new.number)
    for n in passed:
        del s.unrouted[n, p]
    return Included(C.hash, p, r.candidate, r.relay_parent, r.egress_queue_roots, old, new, tuple(passed))


def post(s: State, C: Block, r: Receipt) -> None:
    """What a chain posted, but for pairs that the recipient does not want (5.1 (2))."""
    for y, root in r.egress_queue_roots:
        if (r.para, y) not in s.blocked:
            s.unrouted.setdefault((C.number, y), []).append((r.para, root))


def include(rt: Runtime, C: Block, receipts: Sequence[Receipt], calls: Iterable[Call] = ()) -> None:
    """include(C, receipts) of 3.1: the state of C, or the first error and nothing."""
    P = rt.relay.blocks[C.parent or b""]
    s = deepcopy(rt.states[P.hash])
    rows: list[Row] = [RelayRow(C.hash, P.hash, C.number)]
    for call in calls:
        apply_call(s, P, C, call)
        rows.append(Called(C.hash, call.call, call.para, call.other))
    seen: set[ParaId] = set()
    ordered = sorted(receipts, key=lambda r: r.para)
    for r in ordered:
        check_receipt(rt, s, P, r, seen)
        rows.append(apply_receipt(rt, s, P, C, r))
        seen.add(r.para)
    for r in ordered:
        post(s, C, r)
    rt.relay.add(C)
    rt.states[C.hash] = s
    rt.log += rows
    rt.log += [Lists(C.hash, p, ingress(rt, C.hash, p), egress(rt, C.hash, p)) for p in sorted(s.active | s.former)]


def include_valid(rt: Runtime, C: Block, receipts: Sequence[Receipt], calls: Sequence[Call] = ()) -> list[Refused]:
    """An author that includes what is accepted, of two receipts of one chain the first; gives what was left out."""
    P = rt.relay.blocks[C.parent or b""]
    s = deepcopy(rt.states[P.hash])
    for call in calls:
        apply_call(s, P, C, call)
    kept: list[Receipt] = []
    refused: list[Refused] = []
    for r in sorted(receipts, key=lambda r: r.para):
        try:
            check_receipt(rt, s, P, r, {other.para for other in kept})
            kept.append(r)
        except IcmpError as error:
            refused.append(Refused(C.hash, r.para, r.candidate, error.name))
    include(rt, C, kept, calls)
    rt.log += refused
    return refused


def upper(rt: Runtime, B: Hash) -> int:
    """The first number that the lists of B do not have (D-2)."""
    number = rt.relay.blocks[B].number
    return number + 1 if rt.options.ingress_upper == "inclusive" else number


def ingress(rt: Runtime, B: Hash, p: ParaId) -> Ingress | None:
    """3.2."""
    s = rt.states[B]
    if p not in s.active:
        return None
    numbers = range(s.watermark[p].number + 1, upper(rt, B))
    return tuple((n, tuple(s.unrouted[n, p])) for n in numbers if (n, p) in s.unrouted)


def egress(rt: Runtime, B: Hash, p: ParaId) -> Ingress:
    """3.3. Decision: "the same range" has the upper end of 3.2 and, of every recipient y, the lower end that its own
    watermark sets; p's own watermark says nothing about what p sent."""
    s = rt.states[B]
    found = []
    for n in range(1, upper(rt, B)):
        above = [y for y in sorted(s.active) if n > s.watermark[y].number]
        pairs = tuple((y, root) for y in above for x, root in s.unrouted.get((n, y), []) if x == p)
        if pairs:
            found.append((n, pairs))
    return tuple(found)
