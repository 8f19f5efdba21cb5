"""The safety statements of 1.2 that a log of the relay chain and its parachains can break: G1 to G6 and G9.

Each takes a record and gives findings: `violated`, with the rows concerned, or `unchecked`, where rows are missing.
They know nothing of how lists are made. G7, G8 and the second half of G4 (pools) are in gossip_guarantees.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.spec.icmp.events import Consumed, Included, Ingress
from tests.spec.icmp.history import Finding, History, Record, once, unchecked, violated
from tests.spec.icmp.relay import Hash, ParaId
from tests.spec.icmp.trie import EMPTY_ROOT, H


def own_chains(h: History) -> Iterator[tuple[tuple[Hash, ...], ParaId, list[Included]]]:
    """Of every relay chain, and every parachain: its receipts in order."""
    for chain in h.leaves():
        receipts: dict[ParaId, list[Included]] = defaultdict(list)
        for block in chain:
            for row in h.included[block]:
                receipts[row.para].append(row)
        for p, rows in sorted(receipts.items()):
            yield chain, p, rows


def by_queue(rows: list[Consumed]) -> dict[tuple[Hash, ParaId], list[Consumed]]:
    """A candidate's rows by block of origin and sender."""
    found: dict[tuple[Hash, ParaId], list[Consumed]] = defaultdict(list)
    for row in rows:
        found[row.block_of_origin, row.sender].append(row)
    return found


def g1_order(record: Record) -> list[Finding]:
    """Blocks never decrease along a parachain's own chain; in one block senders ascend, in one queue indices."""
    h = History(record)
    found = h.broken("G1")
    for _, p, receipts in own_chains(h):
        last: tuple[int, ParaId, int] | None = None
        for receipt in receipts:
            rows = h.consumed[receipt.candidate]
            for i, row in enumerate(rows):
                origin = h.blocks.get(row.block_of_origin)
                if origin is None:
                    found.append(unchecked("G1", f"{p} consumed from a block without a row", row))
                    continue
                here = (origin.number, row.sender, row.index)
                if last is not None and (here <= last if i else here[0] < last[0]):
                    found.append(violated("G1", f"{p} consumed {here} after {last}", row))
                last = here
    return once(found)


def g2_all_or_nothing(record: Record) -> list[Finding]:
    """If a candidate consumes anything of Ingress(B, p), it consumes all of it."""
    h = History(record)
    found = h.broken("G2")
    for chain, p, receipts in own_chains(h):
        for receipt in receipts:
            queues = by_queue(h.consumed[receipt.candidate])
            for B in dict.fromkeys(block for block, _ in queues):
                rows = [row for (block, _), of in queues.items() if block == B for row in of]
                if B not in chain:
                    continue  # G9
                took, posted = {x for block, x in queues if block == B}, set(h.posts(B, p))
                if took != posted:
                    text = f"{p} consumed the queues of {sorted(took)} in one block, posted were {sorted(posted)}"
                    found.append(violated("G2", text, receipt, *rows))
                for x in sorted(took):
                    found += whole("G2", h, B, x, p, queues[B, x])
    return once(found)


def whole(guarantee: str, h: History, B: Hash, x: ParaId, p: ParaId, rows: list[Consumed]) -> list[Finding]:
    """Whether a queue was consumed with all its messages."""
    indices, queue = {row.index for row in rows}, h.queues.get((B, x, p))
    count = max(indices) + 1 if queue is None else queue.n_messages
    if indices != set(range(count)):
        return [violated(guarantee, f"{p} consumed {sorted(indices)} of {count} messages of {x}", *rows)]
    if queue is None:
        return [unchecked(guarantee, f"how many messages {x} had for {p} is not in the log", *rows)]
    return []


def g3_exactly_once(record: Record) -> list[Finding]:
    """On one relay chain each (B, from, to, index) at most once; what a watermark passes is consumed."""
    h = History(record)
    found = h.broken("G3")
    for chain, p, receipts in own_chains(h):
        seen: dict[tuple[Hash, ParaId, int], Consumed] = {}
        for candidate, count in Counter(receipt.candidate for receipt in receipts).items():
            if count > 1:
                twice = [receipt for receipt in receipts if receipt.candidate == candidate]
                found.append(violated("G3", f"one candidate of {p} is included {count} times on one chain", *twice))
        for receipt in receipts:
            rows = h.consumed[receipt.candidate]
            for row in rows:
                key = (row.block_of_origin, row.sender, row.index)
                if key in seen and seen[key] != row:
                    found.append(violated("G3", f"{p} consumed a message of {row.sender} twice", seen[key], row))
                seen[key] = row
            queues = by_queue(rows)
            for B in chain:
                passed = receipt.watermark_before.number < h.blocks[B].number <= receipt.watermark_after.number
                for x in h.posts(B, p) if passed else ():
                    text = f"the watermark of {p} passed a queue of {x} in block {h.blocks[B].number}"
                    if (B, x) in queues:
                        found += whole("G3", h, B, x, p, queues[B, x])
                    elif p in record.missing:
                        found.append(unchecked("G3", f"{text}; the rows of {p} are missing", receipt))
                    else:
                        found.append(violated("G3", f"{text} that it did not consume", receipt))
    return once(found)


def g4_authenticity(record: Record) -> list[Finding]:
    """Every consumed list is the one whose root its sender posted."""
    h = History(record)
    found = h.broken("G4")
    for chain, p, receipts in own_chains(h):
        for receipt in receipts:
            for (B, x), rows in by_queue(h.consumed[receipt.candidate]).items():
                if B not in chain:
                    continue  # G9
                posted, queue = h.posts(B, p).get(x), h.queues.get((B, x, p))
                if posted is None or any(row.root != posted for row in rows):
                    found.append(violated("G4", f"{p} consumed a root that {x} did not post", receipt, *rows))
                elif queue is None:
                    found.append(unchecked("G4", f"there is no row Queue of what {x} posted for {p}", *rows))
                elif queue.root != posted or H(b"".join(row.payload_hash for row in rows)) != queue.messages_hash:
                    found.append(violated("G4", f"{p} consumed other messages than those of {x}", queue, *rows))
    return once(found)


def g5_watermark(record: Record) -> list[Finding]:
    """It never falls, is on the ancestry of its block, and the pending list is what lies above it."""
    h = History(record)
    found = h.broken("G5")
    for chain, p, receipts in own_chains(h):
        for receipt in receipts:
            old, new = receipt.watermark_before, receipt.watermark_after
            number = h.blocks[receipt.block].number
            if new.number < old.number:
                found.append(violated("G5", f"the watermark of {p} fell from {old.number} to {new.number}", receipt))
            if new.number >= number or chain[new.number] != new.hash:
                text = f"the watermark of {p}, {new.number}, is no ancestor of the block of number {number}"
                found.append(violated("G5", text, receipt))
            if h.before(receipt.block).watermark.get(p) != old:
                found.append(violated("G5", f"the watermark of {p} was not {old.number} before", receipt))
            for row in h.consumed[receipt.candidate]:
                origin = h.blocks.get(row.block_of_origin)
                if origin is not None and not old.number < origin.number <= new.number:
                    text = f"{p} consumed of block {origin.number}, its watermark went from {old.number} to"
                    found.append(violated("G5", f"{text} {new.number}", receipt, row))
    for B in h.blocks:
        for p in sorted(h.books(B).active) if h.chain(B) is not None else ():
            lists = h.lists.get((B, p))
            if lists is None:
                found.append(unchecked("G5", f"there is no row Lists of {p} at every block", h.blocks[B]))
            elif plain(lists.ingress) != h.offered(B, p):
                found.append(violated("G5", f"pending ingress of {p} is not what lies above its watermark", lists))
    return once(found)


def plain(lists: Ingress | None) -> list[tuple[int, list[tuple[ParaId, Hash]]]] | None:
    return None if lists is None else [(n, list(pairs)) for n, pairs in lists]


def g6_lists(record: Record) -> list[Finding]:
    """No empty queue or block, ascending numbers below the block's; the unions of ingress and egress are the same."""
    h = History(record)
    found = h.broken("G6")
    for row in h.lists.values():
        if h.chain(row.block) is None:
            continue
        for name, lists in (("ingress", row.ingress or ()), ("egress", row.egress)):
            where, numbers = f"the {name} of {row.para}", [n for n, _ in lists]
            if numbers != sorted(set(numbers)):
                found.append(violated("G6", f"{where} has the numbers {numbers}", row))
            if any(n > h.top(row.block) for n in numbers):
                found.append(violated("G6", f"{where} has {numbers[-1]}, the last allowed is {h.top(row.block)}", row))
            for n, pairs in lists:
                paras = [para for para, _ in pairs]
                if not pairs or paras != sorted(set(paras)) or row.para in paras:
                    found.append(violated("G6", f"{where} has in {n} the chains {paras}", row))
                if any(root == EMPTY_ROOT for _, root in pairs):
                    found.append(violated("G6", f"{where} has in {n} an empty queue", row))
    for B in h.blocks:
        if h.chain(B) is None:
            continue
        known = h.books(B).active | h.books(B).former
        rows = [h.lists[B, p] for p in sorted(known) if (B, p) in h.lists]
        if len(rows) < len(known):
            found.append(unchecked("G6", "a block has no row Lists of every chain", h.blocks[B]))
            continue
        came = {(n, x, row.para, root) for row in rows for n, pairs in row.ingress or () for x, root in pairs}
        went = {(n, row.para, y, root) for row in rows for n, pairs in row.egress for y, root in pairs}
        if came != went:
            odd = sorted((n, x, y) for n, x, y, _ in came ^ went)
            found.append(violated("G6", f"ingress and egress differ in (number, from, to) {odd}", *rows))
    return once(found)


def g9_forks(record: Record) -> list[Finding]:
    """What a list offers, and what a candidate consumed, was posted on the same relay chain."""
    h = History(record)
    found = h.broken("G9")
    for lists in h.lists.values():
        ancestry = h.chain(lists.block)
        for n, pairs in lists.ingress or () if ancestry is not None else ():
            posted = h.posts(ancestry[n], lists.para) if ancestry is not None and n < len(ancestry) else {}
            for x, root in pairs:
                if posted.get(x) != root:
                    text = f"{lists.para} is offered a queue of {x} in {n} that is not of this chain"
                    found.append(violated("G9", text, lists))
    for chain, p, receipts in own_chains(h):
        for receipt in receipts:
            parents = chain[: h.blocks[receipt.block].number]
            for row in h.consumed[receipt.candidate]:
                if row.block_of_origin not in parents:
                    known = row.block_of_origin in h.blocks
                    text = f"{p} consumed of a block that is not on the chain that includes it"
                    found.append(violated("G9", text, receipt, row) if known else unchecked("G9", text, receipt, row))
    return once(found)


RUNTIME_CHECKS = (g1_order, g2_all_or_nothing, g3_exactly_once, g4_authenticity, g5_watermark, g6_lists, g9_forks)
