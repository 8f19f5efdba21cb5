"""Generated histories of the egress queues' relay chain: forks, posts, prefixes, missing bodies, hostile receipts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from tests.spec.icmp.candidates import Candidate, egress_roots
from tests.spec.icmp.formulas import Pending, Total, omitted, roots
from tests.spec.icmp.network import Made, Network
from tests.spec.icmp.options import Options
from tests.spec.icmp.relay import GENESIS, Block, Hash, Receipt, block_on
from tests.spec.icmp.runtime import Call, ingress, upper
from tests.spec.icmp.trie import EMPTY_ROOT

N = TypeVar("N", bound=Network)

PARAS = (1, 2, 3, 4)
LATE = 5
"""A chain that is registered by a generated call only."""


@dataclass(frozen=True)
class Attempt:
    """A candidate as generated: numbers are taken modulo what there is."""

    para: int
    back: int
    """How many blocks before the parent the relay parent is."""
    take: int | None
    sends: tuple[tuple[int, int], ...]
    hostile: str | None


@dataclass(frozen=True)
class Step:
    fork: int
    """0: on the newest block; else on that many blocks before, in order of making."""
    attempts: tuple[Attempt, ...]
    call: Call | None
    lose: bool


def of(r: Receipt, **changed: object) -> Receipt:
    return replace(r, **changed)  # type: ignore[arg-type]


def receipt_only(change: Callable[[Network, Receipt, Block], Receipt]):
    def changed(net: Network, c: Candidate, new: Block) -> Candidate:
        return replace(c, receipt=change(net, c.receipt, new))

    return changed


def other_fork(net: Network, r: Receipt, new: Block) -> Receipt:
    chain = {block.hash for block in net.rt.relay.chain(new.parent or b"")}
    foreign = [block for block in net.rt.relay.blocks.values() if block.hash not in chain]
    return of(r, watermark=foreign[-1].mark) if foreign else r


def drop_queue(net: Network, c: Candidate, new: Block) -> Candidate:
    lists = [(n, queues[:-1]) for n, queues in c.lists]
    return replace(c, lists=lists)


def skip_first(net: Network, c: Candidate, new: Block) -> Candidate:
    return replace(c, lists=c.lists[1:])


def other_sender(net: Network, c: Candidate, new: Block) -> Candidate:
    return replace(c, lists=[(n, [(x + 10, messages) for x, messages in queues]) for n, queues in c.lists])


def turn_messages(net: Network, c: Candidate, new: Block) -> Candidate:
    return replace(c, lists=[(n, [(x, [*ms[::-1], b"more"]) for x, ms in queues]) for n, queues in c.lists])


def regress(net: Network, c: Candidate, new: Block) -> Candidate:
    return replace(c, receipt=of(c.receipt, watermark=GENESIS.mark), lists=[])


def unsorted(net: Network, r: Receipt, new: Block) -> Receipt:
    low, high = [p for p in PARAS if p != r.para][:2]
    return of(r, egress_queue_roots=((high, b"r" * 32), (low, b"r" * 32)))


RUNTIME_HOSTILE = {
    "unsorted": receipt_only(unsorted),
    "self": receipt_only(lambda net, r, new: of(r, egress_queue_roots=((r.para, b"r" * 32),))),
    "empty": receipt_only(lambda net, r, new: of(r, egress_queue_roots=((r.para % 4 + 1, EMPTY_ROOT),))),
    "unknown": receipt_only(lambda net, r, new: of(r, egress_queue_roots=((99, b"r" * 32),))),
    "regress": regress,
    "including": receipt_only(lambda net, r, new: of(r, watermark=new.mark)),
    "other_fork": receipt_only(other_fork),
    "parent": receipt_only(lambda net, r, new: of(r, parent_head=b"another")),
}
"""Receipts that only the runtime can refuse: its validators attest them."""
VALIDATION_HOSTILE = {
    "drop_queue": drop_queue,
    "skip_first": skip_first,
    "other_sender": other_sender,
    "turn_messages": turn_messages,
    "ahead": receipt_only(lambda net, r, new: of(r, watermark=net.rt.relay.blocks[r.relay_parent].mark)),
    "egress": receipt_only(lambda net, r, new: of(r, egress_queue_roots=egress_roots([(r.para % 4 + 1, b"not sent")]))),
}


def later(net: Network, r: Receipt, new: Block) -> Receipt:
    """Not hostile: the last block before the next entry, rather than that of the last one consumed (3.4)."""
    above = [n for n, _ in ingress(net.rt, r.relay_parent, r.para) or () if n > r.watermark.number]
    last = above[0] - 1 if above else upper(net.rt, r.relay_parent) - 1
    return of(r, watermark=net.rt.relay.at(r.relay_parent, last).mark)


HOSTILE = {"later": receipt_only(later), **RUNTIME_HOSTILE, **VALIDATION_HOSTILE, "replay": None}


def attempt_of(r: Random) -> Attempt:
    sends = tuple((r.choice((*PARAS, LATE)), r.randrange(3)) for _ in range(r.randrange(5)))
    hostile = r.choice((*sorted(HOSTILE), "later", "later", "later")) if r.random() < 0.35 else None
    return Attempt(r.choice((*PARAS, LATE)), r.choice((0, 0, 0, 1, 2)), r.choice((None, None, 0, 1)), sends, hostile)


def call_of(r: Random) -> Call:
    kind = r.choice(("register", "deregister", "block", "unblock"))
    if kind in ("block", "unblock"):
        return Call(kind, r.choice((1, 2)), r.choice((3, 4)))  # type: ignore[arg-type]
    return Call(kind, r.choice((2, LATE)), head=r.choice((b"a", b"b")))  # type: ignore[arg-type]


def plan_of(seed: int, length: int) -> list[Step]:
    """A plan of so many blocks; the first blocks of a longer one of the same seed are the same."""
    r = Random(seed)
    return [
        Step(
            r.choice((0, 0, 0, 0, 1, 2, 4)),
            tuple(attempt_of(r) for _ in range(r.randrange(1, 8))),
            call_of(r) if r.random() < 0.3 else None,
            r.random() < 0.2,
        )
        for _ in range(length)
    ]


def started(options: Options | None = None, paras: tuple[int, ...] = PARAS) -> tuple[Network, Hash]:
    """A network whose first block registers the chains."""
    return _started(Network(options or Options()), paras)


def _started(net: N, paras: tuple[int, ...] = PARAS) -> tuple[N, Hash]:
    made = net.make(calls=[Call("register", p, head=b"head") for p in paras])
    return net, made.block.hash


def allowed(net: Network, parent: Hash, call: Call | None) -> list[Call]:
    """A call, if the state of the parent lets it be made."""
    if call is None or (call.para in net.rt.states[parent].active) == (call.call == "register"):
        return []
    return [call]


def sends_of(net: Network, relay_parent: Hash, attempt: Attempt, salt: int) -> list[tuple[int, bytes]]:
    """Messages to chains that are active; some are the same in several queues."""
    active = net.rt.states[relay_parent].active - {attempt.para}
    return [(to, b"m" * kind + bytes([salt * (kind == 2) % 256])) for to, kind in attempt.sends if to in active]


def run(options: Options, plan: list[Step]) -> tuple[Network, list[Made]]:
    """The history of a plan. Hostile receipts reach the runtime where only it can refuse them."""
    return played(Network(options), plan)


def played(net: N, plan: list[Step]) -> tuple[N, list[Made]]:
    """The history of a plan on a network that has not begun."""
    net, first = _started(net)
    blocks, made, every = [first], [], list[Candidate]()
    for salt, step in enumerate(plan):
        parent = blocks[max(0, len(blocks) - 1 - step.fork)]
        new = block_on(net.rt.relay.blocks[parent], bytes([salt]))
        chain = net.rt.relay.chain(parent)
        candidates, attested = [], set()
        for attempt in step.attempts:
            relay_parent = chain[max(0, len(chain) - 1 - attempt.back)].hash
            if attempt.hostile == "replay" and every:
                candidates.append(every[salt % len(every)])
                continue
            if attempt.para not in net.rt.states[relay_parent].active:
                continue
            c = net.candidate(relay_parent, attempt.para, sends_of(net, relay_parent, attempt, salt), attempt.take)
            change = HOSTILE[attempt.hostile or "replay"]
            c = c if change is None else change(net, c, new)
            candidates.append(c)
            if attempt.hostile in RUNTIME_HOSTILE:
                attested.add(c.receipt.candidate)
        before = set(net.posted)
        made.append(net.make(parent, candidates, allowed(net, parent, step.call), bytes([salt]), attested))
        every += [c for c in candidates if c.receipt.candidate in net.candidates]
        blocks.append(made[-1].block.hash)
        if step.lose:
            net.lost |= set(list(set(net.posted) - before)[:1])
    return net, made


def lists_and_formulas(net: Network) -> None:
    """The runtime's lists are the formulas' of 2.1, on every block and for every chain."""
    relay, paras = net.rt.relay, {*PARAS, LATE}
    for block, s in net.rt.states.items():
        for p in sorted(s.active):
            upto = block if net.options.ingress_upper == "inclusive" else relay.blocks[block].parent
            assert upto is not None
            pending = Pending(net.posted, paras, relay, upto, p, s.watermark[p])
            whole = Total(net.posted, paras, relay, upto, p)
            assert whole[len(whole) - len(pending) :] == pending
            assert plain(ingress(net.rt, block, p)) == omitted(roots(pending)), (block.hex(), p)


def plain(lists):
    return [(n, list(pairs)) for n, pairs in lists]
