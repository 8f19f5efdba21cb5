"""Candidates and receipts of malicious collators (ICMP reference X-6).

A malicious collator puts its own beside what an honest one made of the same block. Who consumes something else than the
channels have comes to other heads than the relay chain (``CONSUMED``), which validators see. Of the rest the validators
are taken to be dishonest, too, so that the relay chain has the receipt before the honest one, and refuses it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import blake2_256

from causeway.config.faults import FaultRule
from causeway.core.frame import Frame
from causeway.protocols.contract import View
from causeway.protocols.hrmp.acceptance import MOST_CALL_BYTES, MOST_CALLS
from causeway.protocols.hrmp.inbound import read_relay_chain
from causeway.protocols.hrmp.state import CALLS_SCHEMA, SENT_SCHEMA
from causeway.protocols.relay_chain.fault_kinds import CANDIDATE, WHAT, check_candidate_fault
from causeway.protocols.relay_chain.network import RELAY_POSITION
from causeway.protocols.relay_chain.options import HrmpOptions
from causeway.protocols.shared.digests import digests
from causeway.protocols.shared.interference import HALT, PASSIVE, Interference
from causeway.protocols.shared.state_tables import TableState

CONSUMED = ("partial", "skipped", "sender", "body")

_HEAD = blake2_256(b"of a block that nobody made")


class HrmpInterference(Interference):
    """The faults of a network with HRMP: halts and malicious collators."""

    passive = (*PASSIVE, CANDIDATE)

    def check(self) -> None:
        """Raise ``InvalidInput`` for faults that do nothing here."""
        for row, fault in enumerate(self._faults.rows):
            if fault.kind not in (HALT, CANDIDATE):
                allowed = f"{HALT!r}, {CANDIDATE!r}"
                raise InvalidInput(
                    f'faults[{row}].kind: {fault.kind!r} is not for channels = "hrmp"; allowed: {allowed}'
                )
            if fault.kind == CANDIDATE:
                check_candidate_fault(fault, row, int(self._numbers[RELAY_POSITION]), "hrmp")

    def malicious(self, tick: int) -> list[tuple[int, str]]:
        """Return whose collators are malicious in a tick, and what they do."""
        acting: list[FaultRule] = self.acting(tick, CANDIDATE)
        return [(self.positions[fault.source], fault.args[WHAT]) for fault in acting if fault.source is not None]


class ForgedReceipt(NamedTuple):
    """A receipt (one row), its messages (``SENT_SCHEMA``) and its calls (``CALLS_SCHEMA``)."""

    receipt: Frame
    sent: Frame
    calls: Frame


def forge_receipt(receipt: Frame, what: str, state: TableState, options: HrmpOptions) -> ForgedReceipt | None:
    """Return a receipt with one thing changed, None where it cannot be: no channel is full, no relay block is without
    messages. ``receipt``: the honest one, with ``last``: the watermark before; ``state``: that it is checked against.
    """
    para, channels = int(receipt["source"][0]), state["channels"]
    if what == "parent":
        return _changed(receipt.with_columns(parent=digests([_HEAD])))
    if what in ("ahead", "watermark_back", "no_messages"):
        mark = _watermark(receipt, what, state["digests"])
        return None if mark is None else _changed(receipt.with_columns(watermark=np.array([mark], dtype=np.uint64)))
    if what == "calls":
        return _changed(receipt, calls=[b""] * (MOST_CALLS + 1))
    if what == "call_bytes":
        return _changed(receipt, calls=[bytes(MOST_CALL_BYTES), b"\0"])
    if what == "many":
        return _changed(receipt, [(para, b"")] * (options.max_messages_per_candidate + 1))
    if what == "unknown":
        return _changed(receipt, [(para, b"")])
    mine = channels.filter(channels["sender"] == np.uint32(para))
    count, size = mine["msg_count"].astype(np.int64), mine["total_size"].astype(np.int64)
    most, total = mine["max_message_size"].astype(np.int64), mine["max_total_size"].astype(np.int64)
    room = (size <= total) & (count < mine["max_capacity"])
    suits = {
        "unsorted": room & (options.max_messages_per_candidate > 1),
        "oversized": most > 0,
        "total_size": size + most > total,
        "capacity": count >= mine["max_capacity"],
    }[what]
    if not suits.any():
        return None
    row = int(np.flatnonzero(suits)[0])
    length = {"oversized": int(most[row]) + 1, "total_size": int(most[row])}.get(what, 0)
    return _changed(receipt, [(int(mine["recipient"][row]), bytes(length))] * (2 if what == "unsorted" else 1))


def _watermark(receipt: Frame, what: str, digests_of: Frame) -> int | None:
    """Return a watermark that is wrong, None where there is none."""
    para, last, parent = (int(receipt[name][0]) for name in ("source", "last", "relay_parent"))
    if what == "ahead":
        return parent + 1
    if what == "watermark_back":
        return last if last < parent else None
    known = {*digests_of["number"][digests_of["recipient"] == np.uint32(para)].tolist()}
    # Of two blocks more than there are with messages one is without.
    return next((n for n in range(parent - 1, max(last, parent - 2 - len(known)), -1) if n not in known), None)


def _changed(
    receipt: Frame, messages: list[tuple[int, bytes]] | None = None, calls: list[bytes] | None = None
) -> ForgedReceipt:
    sent, asked = messages or [], calls or []
    to = np.array([recipient for recipient, _ in sent], dtype=np.uint32)
    data = [body for _, body in sent]
    return ForgedReceipt(
        receipt,
        _rows(receipt, data).with_columns(to=to).select(SENT_SCHEMA.names),
        _rows(receipt, asked).select(CALLS_SCHEMA.names),
    )


def _rows(receipt: Frame, data: list[bytes]) -> Frame:
    count = len(data)
    return Frame(
        {
            "source": receipt["source"].repeat(count),
            "destination": np.full(count, RELAY_POSITION, dtype=np.uint32),
            "place": np.arange(count, dtype=np.uint32),
            "data": pa.array(data, pa.binary()),
        },
        count,
    )


def mismatched_chains(ends: Frame, view: View, tips: Frame, malicious: list[tuple[int, str]]) -> list[int]:
    """Return the parachains of which a candidate that consumes something else than the honest one is refused
    (``HeadMismatch``), one for each; ``tips``: of those that may make a block. Where nothing waits none is made."""
    found = []
    for para, what in malicious:
        tip = tips.filter(tips["chain"] == np.uint32(para))
        contents = view.tables["contents"]
        contents = contents.filter(contents["recipient"] == np.uint32(para))
        if what not in CONSUMED or len(tip) == 0 or len(contents) == 0:
            continue
        _, wrong = read_relay_chain(ends, _altered(contents, what), view.tables["channels"], tip)
        found += wrong.tolist()
    return found


def _altered(contents: Frame, what: str) -> Frame:
    """Return the contents of a chain's channels with one thing changed in the first relay block."""
    first = np.flatnonzero(contents["sent_at"] == contents["sent_at"].min())
    row = int(first[-1])
    if what == "skipped":
        return contents.filter(~np.isin(np.arange(len(contents)), first))
    if what == "partial":
        return contents.filter(np.arange(len(contents)) != row)
    if what == "sender":
        sender = contents["sender"].copy()
        sender[row] += np.uint32(1)
        return contents.with_columns(sender=sender)
    data = contents["data"].to_pylist()
    return contents.with_columns(data=pa.array([*data[:row], data[row] + b"\0", *data[row + 1 :]], pa.binary()))
