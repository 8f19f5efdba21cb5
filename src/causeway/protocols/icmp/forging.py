"""Candidates and receipts of malicious collators (ICMP reference 3.1, 3.4; hazards 1, 3, 5, 20).

A malicious collator puts its own beside what an honest one made of the same block. What validators can tell they refuse
by its name before the relay chain sees it (``JUDGED``); of the rest the validators are taken to be dishonest, too, so
that it comes to the author of the relay block before the honest receipt, and the runtime refuses it (``FORGED``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from causeway.model.faults import Fault
from causeway.model.frame import Frame, concat
from causeway.model.ledger import NO_CHAIN
from causeway.proofs.hashing import blake2_256
from causeway.proofs.substrate import EMPTY_ROOT
from causeway.protocols.digests import digests
from causeway.protocols.events import EventLog
from causeway.protocols.icmp.committing import watermarks
from causeway.protocols.icmp.errors import Validation
from causeway.protocols.icmp.fault_kinds import CANDIDATE, DUPLICATE, WHAT
from causeway.protocols.icmp.forks import RelayInterference
from causeway.protocols.icmp.ingress import last_listed
from causeway.protocols.icmp.leaves import Leaf
from causeway.protocols.icmp.options import IcmpOptions
from causeway.protocols.icmp.receipts import log_refused
from causeway.protocols.icmp.runtime import Receipts
from causeway.protocols.icmp.validation import validate_incoming, validate_outgoing

_LATER = np.uint32(2**31)
"""Copies of receipts are numbered from here on: they come after all others."""

_ROOT = blake2_256(b"of a queue that nobody sent")


def _faults(interference: RelayInterference, tick: int, *kinds: str) -> list[tuple[int, str]]:
    """Return whose collators are malicious in a tick, and what they do, of some ways."""
    acting: Sequence[Fault] = interference.acting(tick, CANDIDATE)
    found = [(interference.positions[fault.source], fault.args[WHAT]) for fault in acting if fault.source is not None]
    return [(para, what) for para, what in found if what in kinds]


# ---- receipts


def with_forged(receipts: Receipts, leaf: Leaf, interference: RelayInterference, tick: int) -> Receipts:
    """Return the receipts with those that malicious collators of the same parachains put before them, and copies of
    them after. Where a parachain has none in this tick, or none of that kind can be made, nothing is forged."""
    honest, rows, pairs = receipts.rows, [], []
    for number, (para, what) in enumerate(_faults(interference, tick, *FORGED)):
        row = honest.filter(honest["source"] == np.uint32(para))
        own = receipts.egress.filter(receipts.egress["receipt"] == np.uint32(para))
        if len(row) == 0:
            continue
        if what == DUPLICATE:
            ids = np.full(len(row), _LATER + np.uint32(number), dtype=np.uint32)
        else:
            changed = _forged(row, own, what, leaf)
            if changed is None:
                continue
            (row, own), ids = changed, np.full(1, number, dtype=np.uint32)
            row = row.with_columns(head=digests([blake2_256(row["head"][0].tobytes() + what.encode())]))
        rows.append(row.with_columns(receipt=ids))
        pairs.append(own.with_columns(receipt=np.full(len(own), ids[0], dtype=np.uint32)))
    if not rows:
        return receipts
    first = np.uint32(len(interference.acting(tick, CANDIDATE)))
    every = concat([honest.with_columns(receipt=honest["receipt"] + first), *rows])
    egress = receipts.egress.with_columns(receipt=receipts.egress["receipt"] + first)
    egress = concat([egress, *(part.select(egress.names) for part in pairs)])
    return Receipts(every.take(np.argsort(every["receipt"], kind="stable")), egress)


def _forged(row: Frame, own: Frame, what: str, leaf: Leaf) -> tuple[Frame, Frame] | None:
    """Return a receipt and its egress with one thing changed, None where it cannot be."""
    para = int(row["source"][0])
    others = [int(other) for other in leaf.paras["para"][leaf.paras["active"] == 1] if other != para]
    if what == "parent":
        return row.with_columns(parent=digests([_ROOT])), own
    if what == "watermark_hash":
        return row.with_columns(watermark_hash=digests([_ROOT])), own
    if what == "watermark_back":
        at = int(np.flatnonzero(leaf.paras["para"] == np.uint32(para))[0])
        if leaf.paras["watermark"][at] == 0:
            return None
        genesis = leaf.ancestry["hash"][:1]
        return row.with_columns(watermark=np.zeros(1, dtype=np.uint64), watermark_hash=genesis), own
    pairs = {
        "unsorted": [(other, _ROOT) for other in others[:2][::-1]],
        "self": [(para, _ROOT)],
        "empty": [(other, EMPTY_ROOT) for other in others[:1]],
        "unknown": [(NO_CHAIN - 1, _ROOT)],
    }[what]
    if len(pairs) < 1 + (what == "unsorted"):
        return None
    to = np.array([to for to, _ in pairs], dtype=np.uint32)
    made = {"source": np.full(len(pairs), para, dtype=np.uint32), "destination": np.zeros(len(pairs), dtype=np.uint32)}
    place = np.arange(len(pairs), dtype=np.uint32)
    return row, Frame({**made, "place": place, "to": to, "root": digests([root for _, root in pairs])}, len(pairs))


# ---- candidates


def judge_consumed(
    bases: Frame,
    listed: Frame,
    lists: Frame,
    interference: RelayInterference,
    tick: int,
    options: IcmpOptions,
    log: EventLog,
) -> None:
    """Let validators judge candidates that consume something else than the honest ones; each leaves an event.

    ``bases``: what candidates are built on; ``listed``: ``ingress(B, p)`` of their chains; ``lists``: what the
    honest ones consume of it, by (to, number, source).
    """
    for para, what in _faults(interference, tick, *CONSUMED):
        base, own = bases.filter(bases["chain"] == np.uint32(para)), lists.filter(lists["to"] == np.uint32(para))
        if len(base) == 0 or (len(own) == 0 and what != "ahead"):
            continue
        now = int(base["relay_number"][0])
        watermark = watermarks(base, own)[0]
        if what == "ahead":
            watermark = np.array([last_listed(now, options) + 1], dtype=np.uint64)
        codes = validate_incoming(base["chain"], watermark, listed, _altered(own, what), base["relay_number"], options)
        log_refused(base.with_columns(source=base["chain"]), codes, log, names=Validation, chain=para)


def _altered(own: Frame, what: str) -> Frame:
    """Return what an honest candidate consumes with one thing changed in its first block."""
    first = own["number"] == own["number"][:1] if len(own) else np.zeros(0, dtype=bool)
    last = int(first.sum()) - 1
    if what == "partial":
        if last:
            return own.filter(np.arange(len(own)) != last)
        source = own["source"].copy()
        source[0] = NO_CHAIN
        return own.with_columns(source=source)
    if what == "skipped":
        return own.filter(~first)
    if what == "sender":
        source = own["source"].copy()
        source[last] += np.uint32(1)
        return own.with_columns(source=source)
    if what == "body":
        root = own["root"].copy()
        root[last] ^= np.uint8(1)
        return own.with_columns(root=root)
    return own


def judge_posted(chains: np.ndarray, egress: Frame, interference: RelayInterference, tick: int, log: EventLog) -> None:
    """Let validators judge candidates whose egress_queue_roots are not those of their messages; each leaves an event.

    ``chains``: that made a block; ``egress``: the honest roots, by source.
    """
    for para, what in _faults(interference, tick, *POSTED):
        made = egress.filter(egress["source"] == np.uint32(para))
        if para not in chains or len(made) == 0:
            continue
        stated = made.slice(1, len(made))
        if what == "root":
            root = made["root"].copy()
            root[0] ^= np.uint8(1)
            stated = made.with_columns(root=root)
        codes = validate_outgoing(np.array([para], dtype=np.uint32), made, stated)
        log_refused(made.slice(0, 1), codes, log, names=Validation, chain=para)


FORGED = ("parent", "unsorted", "self", "empty", "unknown", "watermark_back", "watermark_hash", DUPLICATE)
CONSUMED = ("partial", "skipped", "sender", "body", "ahead")
POSTED = ("root", "no_root")
JUDGED = (*CONSUMED, *POSTED)
