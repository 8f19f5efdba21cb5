"""What validators hold a candidate against before they attest it (ICMP reference 3.4).

The receipts that an author of relay blocks has at hand (ICMP reference 2.2, 3.1).

Candidates and receipts of malicious collators (ICMP reference 3.1, 3.4; hazards 1, 3, 5, 20).

A malicious collator puts its own beside what an honest one made of the same block. What validators can tell they refuse
by its name before the relay chain sees it (``JUDGED``); of the rest the validators are taken to be dishonest, too, so
that it comes to the author of the relay block before the honest receipt, and the runtime refuses it (``FORGED``).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from causeway_proofs.hashing import blake2_256
from causeway_proofs.order import U64
from causeway_proofs.substrate import EMPTY_ROOT

from causeway.config.faults import FaultRule
from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import NO_CHAIN, Event, Kind
from causeway.protocols.contract import Chains, View
from causeway.protocols.icmp.forks import RelayInterference
from causeway.protocols.relay_chain.block import last_listed
from causeway.protocols.relay_chain.commitment import watermarks
from causeway.protocols.relay_chain.errors import Inclusion, Validation
from causeway.protocols.relay_chain.fault_kinds import CANDIDATE, DUPLICATE, WHAT
from causeway.protocols.relay_chain.network import RELAY_POSITION
from causeway.protocols.relay_chain.options import IcmpOptions
from causeway.protocols.relay_chain.runtime import CandidateReceipts, Codes, is_on_chain
from causeway.protocols.relay_chain.state import RelayLeaf
from causeway.protocols.shared.digests import digests, rows_equal
from causeway.protocols.shared.events import EventLog, event_rows, names_column
from causeway.protocols.shared.messages import blank_messages

ValidationCodes = npt.NDArray[np.int64]
_QUEUE = ("number", "source", "root")


def validate_incoming(
    chains: Chains, watermarks: U64, listed: Frame, lists: Frame, now: U64, options: IcmpOptions
) -> ValidationCodes:
    """Return what is wrong with what candidates consumed (``Validation``), one code for each of ``chains``, ascending.

    ``watermarks``: the new ones. ``listed``: ``ingress(B, p)`` of the chains, each B, of a number ``now``, being its
    relay parent, with ``held``, whether the validator has the body. ``lists``: the queues consumed, in the order of the
    candidate, with the roots of their messages; ``source`` ``NO_CHAIN`` for a block that is listed without any. Both by
    ``to``.
    """
    codes = np.zeros(len(chains), dtype=np.int64)
    if len(chains) == 0:
        return codes
    row = np.minimum(np.searchsorted(chains, listed["to"]), len(chains) - 1)
    expected = listed.filter((chains[row] == listed["to"]) & (listed["number"] <= watermarks[row]))
    last = np.maximum(last_listed(now.astype(np.int64), options), 0).astype(np.uint64)
    codes[watermarks > last] = Validation.NotAPrefix
    ends = [
        (frame["to"].searchsorted(chains), frame["to"].searchsorted(chains, side="right"))
        for frame in (expected, lists, listed)
    ]
    for at in np.flatnonzero(codes == Validation.OK):
        own, given, every = (
            frame.slice(int(first[at]), int(last[at]))
            for frame, (first, last) in zip((expected, lists, listed), ends, strict=True)
        )
        if len(given) == 0 and options.allow_empty_prefix == "off" and _could_begin(every):
            codes[at] = Validation.NotAPrefix
        elif len(own) != len(given) or any((own[name] != given[name]).any() for name in _QUEUE):
            codes[at] = _difference(own, given)
    return codes


def _could_begin(listed: Frame) -> bool:
    """Return whether the first block of a list is there as a whole (D-4)."""
    first = listed.filter(listed["number"] == listed["number"][:1]) if len(listed) else listed
    return bool(len(first)) and bool(first["held"].all())


def _difference(expected: Frame, given: Frame) -> Validation:
    """Return what is wrong first: the blocks, then block by block the number of queues, the senders, the roots."""
    blocks = [*dict.fromkeys(expected["number"].tolist())]
    if [*dict.fromkeys(given["number"].tolist())] != blocks:
        return Validation.NotAPrefix
    for number in blocks:
        own, other = (frame.filter(frame["number"] == np.uint64(number)) for frame in (expected, given))
        other = other.filter(other["source"] != np.uint32(NO_CHAIN))
        if len(own) != len(other):
            return Validation.IngressCountMismatch
        if (own["source"] != other["source"]).any():
            return Validation.IngressChainMismatch
        if (own["root"] != other["root"]).any():
            return Validation.IngressRootMismatch
    return Validation.NotAPrefix


def validate_outgoing(chains: Chains, made: Frame, stated: Frame) -> ValidationCodes:
    """Return what is wrong with egress_queue_roots (``Validation``), one code for each of ``chains``, ascending.

    ``made``: the queues that the messages give, one a recipient, ascending; ``stated``: those that the receipts say,
    in their order. Both: ``source``, ``to``, ``root``, by ``source``.
    """
    codes = np.zeros(len(chains), dtype=np.int64)
    ends = [
        (frame["source"].searchsorted(chains), frame["source"].searchsorted(chains, side="right"))
        for frame in (made, stated)
    ]
    for at in range(len(chains)):
        own, said = (
            frame.slice(int(first[at]), int(last[at]))
            for frame, (first, last) in zip((made, stated), ends, strict=True)
        )
        both = min(len(own), len(said))
        to = own["to"][:both] != said["to"][:both]
        root = (own["root"][:both] != said["root"][:both]).any(axis=1)
        wrong = np.flatnonzero(to | root)
        if len(wrong):
            codes[at] = Validation.MissingEgressRoot if to[wrong[0]] else Validation.EgressRootMismatch
        elif len(own) != len(said):
            codes[at] = Validation.MissingEgressRoot
    return codes


def available_receipts(view: View, leaf: RelayLeaf) -> CandidateReceipts:
    """Return the receipts that the author of the next block on ``leaf`` has: those of parachains' last blocks that were
    built on its chain, and that it has not included or refused yet."""
    rows, egress, paras = view.tables["candidates"], view.tables["egress"], leaf.paras
    at = lookup_rows(paras, Frame({"para": rows["source"]}, len(rows)), ("para",))
    known = np.flatnonzero(at >= 0)
    fresh = is_on_chain(leaf, rows["relay_number"], rows["relay_hash"])
    for name in ("head", "refused"):
        fresh[known] &= ~rows_equal(rows["head"][known], paras[name][at[known]])
    rows = rows.filter(fresh)
    rows = rows.with_columns(receipt=rows["source"])
    return CandidateReceipts(rows, egress.with_columns(receipt=egress["source"]))


def log_refused(
    rows: Frame, codes: Codes, log: EventLog, names: type[IntEnum] = Inclusion, chain: int = RELAY_POSITION
) -> None:
    """Leave an event for every receipt or candidate (``source``) that is refused, by ``chain``, with its error of
    ``names``."""
    bad = codes != 0
    count = int(bad.sum())
    if count == 0:
        return
    control = blank_messages(count, kind=np.full(count, Kind.CONTROL, dtype=np.uint8))
    reasons = names_column([code.name for code in names], codes[bad])
    ends = {"source": rows["source"][bad], "destination": np.full(count, RELAY_POSITION, dtype=np.uint32)}
    zero = np.zeros(count, dtype=np.uint64)
    control = control.with_columns(**ends, substream=zero, index=zero)
    log.add(event_rows(control, Event.REJECTED, chain=chain, on_lane=True, reason=reasons))


_LATER = np.uint32(2**31)
"""Copies of receipts are numbered from here on: they come after all others."""

_ROOT = blake2_256(b"of a queue that nobody sent")


def _faults(interference: RelayInterference, tick: int, *kinds: str) -> list[tuple[int, str]]:
    """Return whose collators are malicious in a tick, and what they do, of some ways."""
    acting: Sequence[FaultRule] = interference.acting(tick, CANDIDATE)
    found = [(interference.positions[fault.source], fault.args[WHAT]) for fault in acting if fault.source is not None]
    return [(para, what) for para, what in found if what in kinds]


# ---- receipts


def add_forged_receipts(
    receipts: CandidateReceipts, leaf: RelayLeaf, interference: RelayInterference, tick: int
) -> CandidateReceipts:
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
    return CandidateReceipts(every.take(np.argsort(every["receipt"], kind="stable")), egress)


def _forged(row: Frame, own: Frame, what: str, leaf: RelayLeaf) -> tuple[Frame, Frame] | None:
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


def judge_consumption(
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


def judge_posted_roots(
    chains: np.ndarray, egress: Frame, interference: RelayInterference, tick: int, log: EventLog
) -> None:
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
