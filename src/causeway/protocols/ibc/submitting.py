"""Relayers' submissions in a block: headers that become trusted, entries that take effect, refusals (IBC reference 3.1,
3.3, 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat, repeated
from causeway.model.ledger import Event, Kind
from causeway.model.order import groups_of, pair_codes, stable_order
from causeway.protocols.contract import Plan
from causeway.protocols.events import EventLog, event_rows, names_column
from causeway.protocols.ibc.client import Clients, second_header
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.entries import entry_leaves
from causeway.protocols.ibc.errors import NAMES, Refusal
from causeway.protocols.ibc.evidence import weigh
from causeway.protocols.ibc.external import Outsiders, transactions
from causeway.protocols.ibc.fees import Fees
from causeway.protocols.ibc.judge import Judging, Verdicts, judge
from causeway.protocols.ibc.seen import Call, Seen
from causeway.protocols.ibc.state import RECEIPT, State, keys_of
from causeway.protocols.ibc.upkeep import expiry


@dataclass(frozen=True)
class RelayPlan(Plan):
    """A plan with what relayers saw: ``headers`` are their submissions, ``details`` the proofs they refer to.

    ``forks``: zones of which somebody shows a second header for the height before.
    """

    seen: Seen
    forks: tuple[int, ...] = ()


def turned(messages: Frame) -> Frame:
    """Return messages named from the side that takes them, by lane and index."""
    rows = messages.with_columns(chain=messages["remote"], remote=messages["chain"])
    return rows.take(stable_order(keys_of(rows), rows["index"]))


@dataclass(frozen=True)
class Accepted:
    """What of the submissions takes effect, in the order of processing, which ``sequence`` counts over all frames.

    ``entries``: packets and receipts, with ``chain`` the zone that takes them; ``expired``: ranges (``begin``, ``end``)
    of our own packets that timed out; ``cleaned``: receipt queues and their new heads (``end``).
    """

    entries: Frame
    expired: Frame
    cleaned: Frame


def take_submissions(
    state: State, plan: RelayPlan, messages: Frame, ingress: pa.Table, context: Context, log: EventLog
) -> tuple[State, Accepted]:
    """Judge what relayers submitted: update clients, accept runs of entries, note what each relayer did.

    ``messages``: the entries that the proofs cover, as ``turned`` names them; ``ingress``: transactions of relayers
    from outside. Returns the state with its clients and fee accounts after, and what takes effect.
    """
    rows = plan.headers
    leaves = entry_leaves(messages, messages["chain"], context.zones, context.tick_ns)
    evidence = weigh(rows, plan.details, messages, leaves, context)
    clients, fees = Clients(state, context), Fees(context)
    _update_clients(rows, plan.seen, clients, fees, log, context)
    _show_forks(plan, state, clients, log, context)
    judging = Judging(state, evidence, clients.root, clients.frozen, expiry(state, clients, context), context)
    verdicts = judge(judging, rows, plan.details, context)
    fees.settle(rows, verdicts)
    _log_refusals(rows, verdicts, log)
    accepted = _accepted(rows, verdicts, messages)
    if ingress.num_rows:
        outsiders = Outsiders(clients, judging, fees, context, sequence=len(verdicts.accepted))
        accepted = _with_outsiders(accepted, outsiders, ingress, log)
    trust, connections = clients.after()
    return replace(state, trust=trust, connections=connections, relayers=fees.after(state.relayers)), accepted


def _with_outsiders(accepted: Accepted, outsiders: Outsiders, ingress: pa.Table, log: EventLog) -> Accepted:
    """Return what takes effect with what transactions from outside add to it."""
    senders: list[int] = []
    for chain, user, transaction in transactions(ingress, outsiders.context):
        if transaction is None:
            outsiders.refused.append((chain, chain, RECEIPT, 0, Refusal.InvalidPacket))
        else:
            outsiders.run(chain, user, transaction)
        senders += [user] * (len(outsiders.refused) - len(senders))
    if outsiders.refused:
        kinds = (np.uint32, np.uint32, np.uint64, np.uint64, np.int32)
        columns = zip(*outsiders.refused, strict=True)
        rows = [np.array(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True)]
        log.add(control_rows(*rows, sender=np.array(senders, dtype=np.uint64)))
    return Accepted(
        concat([accepted.entries, outsiders.entry_rows().select(accepted.entries.names)]),
        concat([accepted.expired, outsiders.range_rows(Call.TIMEOUT).select(accepted.expired.names)]),
        concat([accepted.cleaned, outsiders.range_rows(Call.CLEANUP).select(accepted.cleaned.names)]),
    )


def _update_clients(rows: Frame, seen: Seen, clients: Clients, fees: Fees, log: EventLog, context: Context) -> None:
    """Submit the header of every remote chain once a relayer that submits something of it."""
    if len(rows) == 0:
        return
    groups = groups_of(rows["chain"], rows["relayer"], rows["remote"])
    first = rows.select(["chain", "relayer", "remote"]).take(groups.starts)
    certifications = dict(zip(seen.headers["chain"].tolist(), seen.headers["certification"].to_pylist(), strict=True))
    for chain, relayer, remote in zip(*(first[name].tolist() for name in first.names), strict=True):
        certification = certifications.get(remote, b"")
        if not certification:
            continue
        outcome = clients.update(chain, remote, certification)
        fees.header(chain, relayer, outcome)
        if outcome not in (Refusal.ACCEPTED, Refusal.NoOp):
            log.add(control_row(chain, remote, RECEIPT, context.height - 1, outcome))


def _show_forks(plan: RelayPlan, state: State, clients: Clients, log: EventLog, context: Context) -> None:
    """Submit both headers of zones that fork to every zone that is connected with them."""
    headers = dict(
        zip(plan.seen.headers["chain"].tolist(), plan.seen.headers["certification"].to_pylist(), strict=True)
    )
    for remote in plan.forks:
        if not headers.get(remote):
            continue
        connected = state.connections["chain"][state.connections["remote"] == remote]
        for chain in connected[np.isin(connected, context.chains)].tolist():
            for certification in (headers[remote], second_header(headers[remote], remote, context)):
                outcome = clients.update(chain, remote, certification)
            if outcome != Refusal.ACCEPTED:
                log.add(control_row(chain, remote, RECEIPT, context.height - 1, outcome))


def control_row(chain: int, remote: int, substream: int, index: int, why: Refusal) -> Frame:
    """Return the event of a refused submission."""
    return control_rows(
        np.array([chain], dtype=np.uint32),
        np.array([remote], dtype=np.uint32),
        np.array([substream], dtype=np.uint64),
        np.array([index], dtype=np.uint64),
        np.array([why], dtype=np.int32),
    )


def control_rows(
    chain: np.ndarray,
    remote: np.ndarray,
    substream: np.ndarray,
    index: np.ndarray,
    why: np.ndarray,
    *,
    sender: np.ndarray | None = None,
) -> Frame:
    """Return one event a refused submission: whose, of which queue, from which index on, and why (``Refusal``).

    ``sender``: the users whose transactions they were in, for submissions from outside.
    """
    length = len(chain)
    zero = repeated(np.uint64(0), length)
    rows = Frame(
        {
            "kind": repeated(np.uint8(Kind.CONTROL), length),
            "remote": remote,
            "substream": substream,
            "index": index,
            "sender": zero if sender is None else sender,
            "receiver": zero,
            "callback": zero,
        },
        length,
    )
    return event_rows(rows, Event.REJECTED, chain=chain, on_lane=True, reason=names_column(NAMES, why))


def _log_refusals(rows: Frame, verdicts: Verdicts, log: EventLog) -> None:
    if not verdicts.refused:
        return
    submission, begin, _, why = (np.array(column) for column in zip(*verdicts.refused, strict=True))
    taken = rows.select(["chain", "remote", "substream"]).take(submission)
    log.add(control_rows(taken["chain"], taken["remote"], taken["substream"], begin.astype(np.uint64), why))


def _accepted(rows: Frame, verdicts: Verdicts, messages: Frame) -> Accepted:
    parts = np.array(verdicts.accepted, dtype=np.int64).reshape(-1, 3)
    ranges = rows.select(["chain", "remote", "substream", "call"]).take(parts[:, 0])
    ranges = ranges.with_columns(
        begin=parts[:, 1].astype(np.uint64), end=parts[:, 2].astype(np.uint64), sequence=np.arange(len(parts))
    )
    runs = ranges.filter(ranges["call"] <= Call.RECEIPT)
    own, asked = pair_codes((keys_of(messages), messages["index"]), (keys_of(runs), runs["begin"]))
    counts = (runs["end"] - runs["begin"]).astype(np.int64)
    offset = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    entries = messages.take(np.repeat(np.searchsorted(own, asked), counts) + offset)
    return Accepted(
        entries.with_columns(sequence=np.repeat(runs["sequence"], counts), forced=repeated(np.uint8(0), len(entries))),
        ranges.filter(ranges["call"] == Call.TIMEOUT),
        ranges.filter(ranges["call"] == Call.CLEANUP),
    )
