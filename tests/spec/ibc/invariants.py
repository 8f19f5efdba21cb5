"""The safety statements of 1.2 on the log of a network. Each gives its violations as sentences.

A network's zones make their blocks together, so heights order events of different zones: what happens at height h is
visible to others from height h + 1. A log may not say under which header a proof came (`proof_height` None).
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tests.spec.ibc.events import Abandoned, Acked, Cleaned, Received, Refused, Root, Row, Sent, TimedOut, Written
from tests.spec.ibc.values import TIMEOUT

Packet = tuple[str, str, int]
"""(source, destination, index)."""

Settled = Acked | TimedOut | Abandoned


def table(log: Sequence[Row], relation: Any, of_remote: bool = False) -> dict[Packet, Any]:
    """The relation's rows by packet. `of_remote`: the packet is the remote's, not ours."""
    rows: dict[Packet, Any] = {}
    for row in log:
        if isinstance(row, relation):
            ends = (row.remote, row.chain) if of_remote else (row.chain, row.remote)
            rows.setdefault((*ends, row.index), row)
    return rows


def lanes(log: Sequence[Row], relations: Any) -> dict[tuple[str, str], list[Any]]:
    """The rows of some relations by (chain, remote), in their order."""
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in log:
        if isinstance(row, relations):
            found[row.chain, row.remote].append(row)
    return found


# ---- the log


def g1_exactly_once_in_order(log: Sequence[Row], ordered: bool = True) -> list[str]:
    """Received indices are 0, 1, 2, ..., over a gap only where a cleanup jumped; so are those that were settled."""
    wrong = []
    for (chain, remote), rows in lanes(log, Received | Cleaned).items():
        expected, seen = 0, set()
        for row in rows:
            if isinstance(row, Cleaned):
                expected = max(expected, row.end)
                continue
            if row.index in seen or (ordered and row.index != expected):
                wrong.append(f"G1: {chain} received {row.index} of {remote}, expected {expected}")
            seen.add(row.index)
            expected = max(expected, row.index + 1)
    for (chain, remote), rows in lanes(log, Settled).items():
        indices = [row.index for row in rows]
        if len(set(indices)) != len(indices) or (ordered and indices != list(range(len(indices)))):
            wrong.append(f"G1: {chain} settled {indices} for {remote}")
    for (chain, remote), rows in lanes(log, Sent).items():
        if [row.index for row in rows] != list(range(len(rows))):
            wrong.append(f"G1: {chain} sent {[row.index for row in rows]} to {remote}")
    return wrong


def present(log: Sequence[Row]) -> set[str]:
    """The chains whose log this is."""
    return {row.chain for row in log if isinstance(row, Root)}


def unchecked(log: Sequence[Row]) -> list[str]:
    """What the log of some sides cannot tell."""
    here = present(log)
    said = {
        f"G2: no log of {row.remote}: {type(row).__name__} rows of {row.chain} are unchecked"
        for row in log
        if isinstance(row, Received | Acked | TimedOut) and row.remote not in here
    }
    return sorted(said)


def seen_between(height: int, row: Received | Acked) -> bool:
    """Whether what was there from a height on can have been proven to who made the row."""
    shown = row.height - 1 if row.proof_height is None else row.proof_height
    return height <= shown < row.height


def results(log: Sequence[Row]) -> dict[Packet, tuple[bytes | None, int | None, int]]:
    """(result hash, code, height) of every packet that has a receipt."""
    written = {packet: row for packet, row in table(log, Received, of_remote=True).items() if row.code is not None}
    written |= table(log, Written, of_remote=True)
    return {packet: (row.result_hash, row.code, row.height) for packet, row in written.items()}


def g2_authenticity(log: Sequence[Row]) -> list[str]:
    """Every Received has an earlier equal Sent; every Acked has an earlier receipt with equal result (G3 too)."""
    wrong, here, sent, receipts = [], present(log), table(log, Sent), results(log)
    for packet, row in table(log, Received, of_remote=True).items():
        origin = sent.get(packet)
        if packet[0] in here and (
            origin is None
            or (origin.type, origin.data_hash) != (row.type, row.data_hash)
            or not seen_between(origin.height, row)
        ):
            wrong.append(f"G2: {packet} was received and never sent so")
    for packet, row in table(log, Acked).items():
        if packet[1] not in here:
            continue
        result_hash, code, height = receipts.get(packet, (None, None, 0))
        if (result_hash, code) != (row.result_hash, row.code) or not seen_between(height, row):
            wrong.append(f"G2, G3: {packet} was acknowledged with {row.code}, its receipt has {code}")
    return wrong


def g4_atomic(log: Sequence[Row]) -> list[str]:
    """Exactly one of commit and rollback, and commit iff the remote recorded success."""
    wrong, here, receipts, received = [], present(log), results(log), table(log, Received, of_remote=True)
    settled: dict[Packet, list[Settled]] = defaultdict(list)
    for row in log:
        if isinstance(row, Settled):
            settled[row.chain, row.remote, row.index].append(row)
    for packet, rows in settled.items():
        if len(rows) > 1:
            wrong.append(f"G4: {packet} was settled {len(rows)} times")
        for row in rows:
            committed = isinstance(row, Acked) and row.outcome == "commit"
            if isinstance(row, Acked) and committed != (row.code == 0):
                wrong.append(f"G4: {packet} has code {row.code} and {row.outcome}")
            if packet[1] not in here or isinstance(row, Abandoned):
                continue
            if isinstance(row, Acked) and committed != (receipts.get(packet, (None, None, 0))[1] == 0):
                wrong.append(f"G4: {packet}: {row.outcome} against the receipt")
            if isinstance(row, TimedOut) and packet in received and received[packet].code != TIMEOUT:
                wrong.append(f"G4: {packet} timed out and was received")
    return wrong


def g10_failures_are_results(log: Sequence[Row]) -> list[str]:
    """No receive was refused because its execution failed."""
    return [
        f"G10: {row.chain} refused {row.key.hex()}"
        for row in log
        if isinstance(row, Refused) and (row.call, row.error) == ("IBCreceive", "HandlerFault")
    ]


def c1_to_c5_causality(log: Sequence[Row], ordered: bool = True) -> list[str]:
    """Vector clocks made by C1, C2 and the order of each chain: no cycle, and in ordered queues the effects of a
    chain's sends (C4) and receives (C5) come in the order of their causes."""
    sent, own = table(log, Sent), defaultdict[str, dict[str, int]](dict)
    clocks: dict[Row | None, dict[str, int]] = {}
    answered: dict[Packet, Row] = {**table(log, Received, of_remote=True), **table(log, Written, of_remote=True)}
    wrong = []
    events = [row for row in log if isinstance(row, Sent | Received | Written | Acked)]
    for row in sorted(events, key=lambda event: (event.height, event.chain, event.tx)):
        cause: Row | None = None
        if isinstance(row, Received):
            cause = sent.get((row.remote, row.chain, row.index))
        elif isinstance(row, Acked):
            cause = answered.get((row.chain, row.remote, row.index))
        clock = dict(own[row.chain])
        if cause is not None and cause not in clocks:
            wrong.append(f"C1, C2: {row} comes before its cause")
        for chain, count in clocks.get(cause, {}).items():
            clock[chain] = max(clock.get(chain, 0), count)
        clock[row.chain] = clock.get(row.chain, 0) + 1
        clocks[row] = own[row.chain] = clock
    if not ordered:
        return wrong
    for relation, name in ((Received, "C4"), (Acked, "C5")):
        for (chain, remote), rows in lanes(log, relation).items():
            for first, second in pairwise(rows):
                if first.index >= second.index or not _before(clocks[first], clocks[second]):
                    wrong.append(f"{name}: {chain} took {first.index} of {remote} before {second.index}")
    for (chain, remote), rows in lanes(log, Sent).items():
        if any(not _before(clocks[one], clocks[two]) for one, two in pairwise(rows)):
            wrong.append(f"C3: sends of {chain} to {remote}")
    return wrong


def _before(x: dict[str, int], y: dict[str, int]) -> bool:
    return x != y and all(count <= y.get(chain, 0) for chain, count in x.items())


def open_obligations(log: Sequence[Row]) -> list[Packet]:
    """L1: what was sent and has no outcome yet."""
    settled = set(table(log, Settled))
    return sorted(packet for packet in table(log, Sent) if packet not in settled)
