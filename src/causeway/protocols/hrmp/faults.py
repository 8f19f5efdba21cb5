"""Candidates and receipts of malicious collators under HRMP.

A malicious collator submits its own candidate beside the honest one of the same block. A candidate with altered inbound
messages reaches other heads than the relay chain (``CONSUMED``), which validators detect. For the other flaws the
validators count as dishonest: the receipt reaches the relay chain before the honest one, which refuses it.

Reference: ICMP, X-6.
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
from causeway.protocols.relay_chain.options import RELAY_POSITION, HrmpOptions
from causeway.protocols.shared.digests import digests
from causeway.protocols.shared.interference import HALT, PASSIVE, Interference
from causeway.protocols.shared.state_tables import TableState

CONSUMED = ("partial", "skipped", "sender", "body")

_HEAD = blake2_256(b"of a block that nobody made")


class HrmpInterference(Interference):
    """The faults of a network with HRMP: halts and malicious collators."""

    passive = (*PASSIVE, CANDIDATE)

    def check(self) -> None:
        """Validate the faults.

        Raises:
            InvalidInput: A fault does not exist under HRMP.
        """
        for row, fault in enumerate(self._faults.rows):
            if fault.kind not in (HALT, CANDIDATE):
                allowed = f"{HALT!r}, {CANDIDATE!r}"
                raise InvalidInput(
                    f'faults[{row}].kind: {fault.kind!r} is not for channels = "hrmp"; allowed: {allowed}'
                )
            if fault.kind == CANDIDATE:
                check_candidate_fault(fault, row, int(self._numbers[RELAY_POSITION]), "hrmp")

    def malicious(self, tick: int) -> list[tuple[int, str]]:
        """Return the parachains with malicious collators in a tick, and their flaws."""
        acting: list[FaultRule] = self.acting(tick, CANDIDATE)
        return [(self.positions[fault.source], fault.args[WHAT]) for fault in acting if fault.source is not None]


class ForgedReceipt(NamedTuple):
    """A receipt (one row), its messages (``SENT_SCHEMA``) and its calls (``CALLS_SCHEMA``)."""

    receipt: Frame
    sent: Frame
    calls: Frame


def forge_receipt(receipt: Frame, what: str, state: TableState, options: HrmpOptions) -> ForgedReceipt | None:
    """Return a receipt with one flaw, or None if it is impossible.

    Args:
        receipt: Honest receipt, with ``last``, the previous watermark.
        what: Kind of the flaw.
        state: State that it is checked against.
        options: Options of the protocol.
    """
    para, channels = int(receipt["source"][0]), state["channels"]
    if what == "parent":
        return _with_flaw(receipt.with_columns(parent=digests([_HEAD])))
    if what in ("ahead", "watermark_back", "no_messages"):
        mark = _wrong_watermark(receipt, what, state["digests"])
        return None if mark is None else _with_flaw(receipt.with_columns(watermark=np.array([mark], dtype=np.uint64)))
    if what == "calls":
        return _with_flaw(receipt, calls=[b""] * (MOST_CALLS + 1))
    if what == "call_bytes":
        return _with_flaw(receipt, calls=[bytes(MOST_CALL_BYTES), b"\0"])
    if what == "many":
        return _with_flaw(receipt, [(para, b"")] * (options.max_messages_per_candidate + 1))
    if what == "unknown":
        return _with_flaw(receipt, [(para, b"")])
    own_channels = channels.filter(channels["sender"] == np.uint32(para))
    count, size = own_channels["msg_count"].astype(np.int64), own_channels["total_size"].astype(np.int64)
    most, total = own_channels["max_message_size"].astype(np.int64), own_channels["max_total_size"].astype(np.int64)
    room = (size <= total) & (count < own_channels["max_capacity"])
    candidates = {
        "unsorted": room & (options.max_messages_per_candidate > 1),
        "oversized": most > 0,
        "total_size": size + most > total,
        "capacity": count >= own_channels["max_capacity"],
    }[what]
    if not candidates.any():
        return None
    row = int(np.flatnonzero(candidates)[0])
    length = {"oversized": int(most[row]) + 1, "total_size": int(most[row])}.get(what, 0)
    return _with_flaw(
        receipt, [(int(own_channels["recipient"][row]), bytes(length))] * (2 if what == "unsorted" else 1)
    )


def _wrong_watermark(receipt: Frame, flaw: str, digests_of: Frame) -> int | None:
    """Return a wrong watermark, or None."""
    para, last, parent = (int(receipt[name][0]) for name in ("source", "last", "relay_parent"))
    if flaw == "ahead":
        return parent + 1
    if flaw == "watermark_back":
        return last if last < parent else None
    blocks_with_messages = {*digests_of["number"][digests_of["recipient"] == np.uint32(para)].tolist()}
    # Among two more blocks than those with messages, one has none.
    return next(
        (
            n
            for n in range(parent - 1, max(last, parent - 2 - len(blocks_with_messages)), -1)
            if n not in blocks_with_messages
        ),
        None,
    )


def _with_flaw(
    receipt: Frame, messages: list[tuple[int, bytes]] | None = None, calls: list[bytes] | None = None
) -> ForgedReceipt:
    sent, upward_calls = messages or [], calls or []
    to = np.array([recipient for recipient, _ in sent], dtype=np.uint32)
    data = [body for _, body in sent]
    return ForgedReceipt(
        receipt,
        _rows(receipt, data).with_columns(to=to).select(SENT_SCHEMA.names),
        _rows(receipt, upward_calls).select(CALLS_SCHEMA.names),
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
    """Return the parachains with a refused candidate of a malicious collator (``HeadMismatch``).

    A candidate without pending messages is not made.

    Args:
        ends: ``ENDS_SCHEMA``.
        view: Tables that chains published at the previous height.
        tips: Parachains that may make a block.
        malicious: Parachains with their flaws.
    """
    refused = []
    for para, flaw in malicious:
        tip = tips.filter(tips["chain"] == np.uint32(para))
        contents = view.tables["contents"]
        contents = contents.filter(contents["recipient"] == np.uint32(para))
        if flaw not in CONSUMED or len(tip) == 0 or len(contents) == 0:
            continue
        _, wrong = read_relay_chain(ends, _alter_contents(contents, flaw), view.tables["channels"], tip)
        refused += wrong.tolist()
    return refused


def _alter_contents(contents: Frame, flaw: str) -> Frame:
    """Return the contents of a chain's channels with one flaw in the first relay block."""
    first = np.flatnonzero(contents["sent_at"] == contents["sent_at"].min())
    row = int(first[-1])
    if flaw == "skipped":
        return contents.filter(~np.isin(np.arange(len(contents)), first))
    if flaw == "partial":
        return contents.filter(np.arange(len(contents)) != row)
    if flaw == "sender":
        sender = contents["sender"].copy()
        sender[row] += np.uint32(1)
        return contents.with_columns(sender=sender)
    data = contents["data"].to_pylist()
    return contents.with_columns(data=pa.array([*data[:row], data[row] + b"\0", *data[row + 1 :]], pa.binary()))
