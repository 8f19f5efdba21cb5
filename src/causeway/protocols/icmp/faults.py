"""Validation of candidates, receipts of the relay chain's author, and malicious collators.

Validators check a candidate before attesting it. The author of a relay block includes the available receipts.

A malicious collator submits its own candidate beside the honest one of the same block. Validators refuse the flaws that
they can detect, before the relay chain sees the candidate (``JUDGED``). For the others the validators count as
dishonest: the receipt reaches the relay chain before the honest one, and the runtime refuses it (``FORGED``).

Reference: ICMP, sections 2.2, 3.1 and 3.4; hazards 1, 3, 5, 20.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from causeway_proofs.hashing import blake2_256
from causeway_proofs.order import U64
from causeway_proofs.substrate import EMPTY_ROOT

from causeway.config.faults import FaultRule
from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import NO_CHAIN
from causeway.protocols.contract import Chains, View
from causeway.protocols.icmp.forks import RelayInterference
from causeway.protocols.relay_chain.block import last_listed, log_control
from causeway.protocols.relay_chain.commitment import watermarks
from causeway.protocols.relay_chain.errors import Inclusion, Validation
from causeway.protocols.relay_chain.fault_kinds import CANDIDATE, DUPLICATE, WHAT
from causeway.protocols.relay_chain.options import RELAY_POSITION, IcmpOptions
from causeway.protocols.relay_chain.runtime import CandidateReceipts, Codes, is_on_chain
from causeway.protocols.relay_chain.state import EGRESS_SCHEMA, RelayLeaf
from causeway.protocols.shared.digests import digests, rows_equal
from causeway.protocols.shared.events import EventLog, names_column
from causeway.protocols.shared.state_tables import blank_rows

ValidationCodes = npt.NDArray[np.int64]
_QUEUE = ("number", "source", "root")


def validate_incoming(
    chains: Chains, watermarks: U64, listed: Frame, lists: Frame, now: U64, options: IcmpOptions
) -> ValidationCodes:
    """Validate the consumed queues of candidates.

    Args:
        chains: Positions of the parachains, ascending.
        watermarks: New watermark of each.
        listed: ``ingress(B, p)`` of the chains, where B is the relay parent; ``held`` marks available bodies.
        lists: Consumed queues in candidate order, with computed roots; ``source`` is ``NO_CHAIN`` for an empty block.
            Both by ``to``.
        now: Number of each relay parent.
        options: Options of the protocol.

    Returns:
        ``Validation`` code of each chain, int64.
    """
    codes = np.zeros(len(chains), dtype=np.int64)
    if len(chains) == 0:
        return codes
    row = np.minimum(np.searchsorted(chains, listed["to"]), len(chains) - 1)
    expected = listed.filter((chains[row] == listed["to"]) & (listed["number"] <= watermarks[row]))
    last = np.maximum(last_listed(now.astype(np.int64), options), 0).astype(np.uint64)
    codes[watermarks > last] = Validation.NotAPrefix
    valid = np.flatnonzero(codes == Validation.OK)
    parts = _rows_by_chain(chains[valid], "to", expected, lists, listed)
    for at, (own, claimed, every) in zip(valid, parts, strict=True):
        if len(claimed) == 0 and options.allow_empty_prefix == "off" and _could_begin(every):
            codes[at] = Validation.NotAPrefix
        elif len(own) != len(claimed) or any((own[name] != claimed[name]).any() for name in _QUEUE):
            codes[at] = _difference(own, claimed)
    return codes


def _rows_by_chain(chains: Chains, column: str, *frames: Frame) -> Iterator[list[Frame]]:
    """Yield the rows of each chain in frames that ascend by a column of chains."""
    ends = [[frame[column].searchsorted(chains, side=side).tolist() for side in ("left", "right")] for frame in frames]
    for at in range(len(chains)):
        yield [frame.slice(first[at], last[at]) for frame, (first, last) in zip(frames, ends, strict=True)]


def _could_begin(listed: Frame) -> bool:
    """Return True if the first listed block is complete (D-4)."""
    first = listed.filter(listed["number"] == listed["number"][:1]) if len(listed) else listed
    return bool(len(first)) and bool(first["held"].all())


def _difference(expected: Frame, claimed: Frame) -> Validation:
    """Return the first difference: blocks, then per block the queue count, senders, roots."""
    blocks = [*dict.fromkeys(expected["number"].tolist())]
    if [*dict.fromkeys(claimed["number"].tolist())] != blocks:
        return Validation.NotAPrefix
    for number in blocks:
        own, other = (frame.filter(frame["number"] == np.uint64(number)) for frame in (expected, claimed))
        other = other.filter(other["source"] != np.uint32(NO_CHAIN))
        if len(own) != len(other):
            return Validation.IngressCountMismatch
        if (own["source"] != other["source"]).any():
            return Validation.IngressChainMismatch
        if (own["root"] != other["root"]).any():
            return Validation.IngressRootMismatch
    return Validation.NotAPrefix


def validate_outgoing(chains: Chains, expected: Frame, stated: Frame) -> ValidationCodes:
    """Validate the egress_queue_roots of candidates.

    Args:
        chains: Positions of the parachains, ascending.
        expected: Queues of the messages: ``source``, ``to``, ``root``, ascending.
        stated: Queues of the receipts, in their order; by ``source``.

    Returns:
        ``Validation`` code of each chain, int64.
    """
    codes = np.zeros(len(chains), dtype=np.int64)
    for at, (own, claimed) in enumerate(_rows_by_chain(chains, "source", expected, stated)):
        both = min(len(own), len(claimed))
        to = own["to"][:both] != claimed["to"][:both]
        root = (own["root"][:both] != claimed["root"][:both]).any(axis=1)
        wrong = np.flatnonzero(to | root)
        if len(wrong):
            codes[at] = Validation.MissingEgressRoot if to[wrong[0]] else Validation.EgressRootMismatch
        elif len(own) != len(claimed):
            codes[at] = Validation.MissingEgressRoot
    return codes


def available_receipts(view: View, leaf: RelayLeaf) -> CandidateReceipts:
    """Return the receipts available to the author of the next block on ``leaf``.

    They are of last blocks built on its chain, neither included nor refused yet.
    """
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
    """Log an event for each refused receipt or candidate.

    Args:
        rows: Receipts or candidates, with ``source``.
        codes: Error of each, 0 for none.
        log: Event log.
        names: Enumeration of the errors.
        chain: Position of the refusing chain.
    """
    refused = codes != 0
    if refused.any():
        log_control(rows["source"][refused], names_column([code.name for code in names], codes[refused]), log, chain)


_FIRST_DUPLICATE = np.uint32(2**31)
"""First number of duplicate receipts; they follow all others."""

_ROOT = blake2_256(b"of a queue that nobody sent")


def _active_flaws(interference: RelayInterference, tick: int, *kinds: str) -> list[tuple[int, str]]:
    """Return the malicious collators of a tick with their flaws, among the given flaws."""
    acting: Sequence[FaultRule] = interference.acting(tick, CANDIDATE)
    flaws = [(interference.positions[fault.source], fault.args[WHAT]) for fault in acting if fault.source is not None]
    return [(para, flaw) for para, flaw in flaws if flaw in kinds]


# ---- receipts


def add_forged_receipts(
    receipts: CandidateReceipts, leaf: RelayLeaf, interference: RelayInterference, tick: int
) -> CandidateReceipts:
    """Add the receipts of malicious collators before the honest ones, and duplicates after them.

    A parachain without a receipt in this tick, or without a possible forgery, gets none.

    Args:
        receipts: Honest receipts.
        leaf: Leaf to build on.
        interference: Faults of the scenario.
        tick: Current tick.
    """
    honest, rows, pairs = receipts.rows, [], []
    for number, (para, flaw) in enumerate(_active_flaws(interference, tick, *FORGED)):
        row = honest.filter(honest["source"] == np.uint32(para))
        own = receipts.egress.filter(receipts.egress["receipt"] == np.uint32(para))
        if len(row) == 0:
            continue
        if flaw == DUPLICATE:
            ids = np.full(len(row), _FIRST_DUPLICATE + np.uint32(number), dtype=np.uint32)
        else:
            changed = _forge_receipt(row, own, flaw, leaf)
            if changed is None:
                continue
            (row, own), ids = changed, np.full(1, number, dtype=np.uint32)
            row = row.with_columns(head=digests([blake2_256(row["head"][0].tobytes() + flaw.encode())]))
        rows.append(row.with_columns(receipt=ids))
        pairs.append(own.with_columns(receipt=np.full(len(own), ids[0], dtype=np.uint32)))
    if not rows:
        return receipts
    first = np.uint32(len(interference.acting(tick, CANDIDATE)))
    every = concat([honest.with_columns(receipt=honest["receipt"] + first), *rows])
    egress = receipts.egress.with_columns(receipt=receipts.egress["receipt"] + first)
    egress = concat([egress, *(part.select(egress.names) for part in pairs)])
    return CandidateReceipts(every.take(np.argsort(every["receipt"], kind="stable")), egress)


def _forge_receipt(row: Frame, own: Frame, flaw: str, leaf: RelayLeaf) -> tuple[Frame, Frame] | None:
    """Return a receipt and its egress with one flaw, or None if it is impossible."""
    para = int(row["source"][0])
    others = [int(other) for other in leaf.paras["para"][leaf.paras["active"] == 1] if other != para]
    if flaw == "parent":
        return row.with_columns(parent=digests([_ROOT])), own
    if flaw == "watermark_hash":
        return row.with_columns(watermark_hash=digests([_ROOT])), own
    if flaw == "watermark_back":
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
    }[flaw]
    if len(pairs) < 1 + (flaw == "unsorted"):
        return None
    to = np.array([to for to, _ in pairs], dtype=np.uint32)
    root, place = digests([root for _, root in pairs]), np.arange(len(pairs), dtype=np.uint32)
    return row, blank_rows(EGRESS_SCHEMA, len(pairs), source=para, place=place, to=to, root=root)


# ---- candidates


def validate_forged_consumption(
    bases: Frame,
    listed: Frame,
    lists: Frame,
    interference: RelayInterference,
    tick: int,
    options: IcmpOptions,
    log: EventLog,
) -> None:
    """Validate candidates with false ingress of malicious collators; each leaves an event.

    Args:
        bases: Blocks to build on.
        listed: ``ingress(B, p)`` of their chains.
        lists: Queues of the honest candidates, by (to, number, source).
        interference: Faults of the scenario.
        tick: Current tick.
        options: Options of the protocol.
        log: Event log.
    """
    for para, flaw in _active_flaws(interference, tick, *CONSUMED):
        base, own = bases.filter(bases["chain"] == np.uint32(para)), lists.filter(lists["to"] == np.uint32(para))
        if len(base) == 0 or (len(own) == 0 and flaw != "ahead"):
            continue
        now = int(base["relay_number"][0])
        watermark = watermarks(base, own)[0]
        if flaw == "ahead":
            watermark = np.array([last_listed(now, options) + 1], dtype=np.uint64)
        codes = validate_incoming(
            base["chain"], watermark, listed, _alter_ingress(own, flaw), base["relay_number"], options
        )
        log_refused(base.with_columns(source=base["chain"]), codes, log, names=Validation, chain=para)


def _alter_ingress(own: Frame, flaw: str) -> Frame:
    """Return the consumed queues with one flaw in the first block."""
    first = own["number"] == own["number"][:1] if len(own) else np.zeros(0, dtype=bool)
    last = int(first.sum()) - 1
    if flaw == "partial":
        if last:
            return own.filter(np.arange(len(own)) != last)
        source = own["source"].copy()
        source[0] = NO_CHAIN
        return own.with_columns(source=source)
    if flaw == "skipped":
        return own.filter(~first)
    if flaw == "sender":
        source = own["source"].copy()
        source[last] += np.uint32(1)
        return own.with_columns(source=source)
    if flaw == "body":
        root = own["root"].copy()
        root[last] ^= np.uint8(1)
        return own.with_columns(root=root)
    return own


def validate_forged_roots(
    chains: np.ndarray, egress: Frame, interference: RelayInterference, tick: int, log: EventLog
) -> None:
    """Validate candidates with false egress_queue_roots; each leaves an event.

    Args:
        chains: Positions of the parachains with a block.
        egress: Honest roots, by source.
        interference: Faults of the scenario.
        tick: Current tick.
        log: Event log.
    """
    for para, flaw in _active_flaws(interference, tick, *POSTED):
        honest = egress.filter(egress["source"] == np.uint32(para))
        if para not in chains or len(honest) == 0:
            continue
        stated = honest.slice(1, len(honest))
        if flaw == "root":
            root = honest["root"].copy()
            root[0] ^= np.uint8(1)
            stated = honest.with_columns(root=root)
        codes = validate_outgoing(np.array([para], dtype=np.uint32), honest, stated)
        log_refused(honest.slice(0, 1), codes, log, names=Validation, chain=para)


FORGED = ("parent", "unsorted", "self", "empty", "unknown", "watermark_back", "watermark_hash", DUPLICATE)
CONSUMED = ("partial", "skipped", "sender", "body", "ahead")
POSTED = ("root", "no_root")
JUDGED = (*CONSUMED, *POSTED)
