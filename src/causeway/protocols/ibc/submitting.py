"""Relayers' submissions in a block: headers that become trusted, entries that take effect, refusals (IBC reference 3.1,
3.3, 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from causeway.model.frame import Frame, repeated
from causeway.model.ledger import Event, Kind
from causeway.model.order import groups_of, pair_codes, stable_order
from causeway.protocols.contract import Plan
from causeway.protocols.events import EventLog, event_rows, names_column
from causeway.protocols.ibc.client import Clients
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.entries import entry_leaves
from causeway.protocols.ibc.errors import NAMES, Refusal
from causeway.protocols.ibc.evidence import weigh
from causeway.protocols.ibc.fees import Fees
from causeway.protocols.ibc.judge import Verdicts, judge
from causeway.protocols.ibc.relay import Seen
from causeway.protocols.ibc.state import RECEIPT, State, keys_of


@dataclass(frozen=True)
class RelayPlan(Plan):
    """A plan with what relayers saw: ``headers`` are their submissions, ``details`` the proofs they refer to."""

    seen: Seen


def turned(messages: Frame) -> Frame:
    """Return messages named from the side that takes them, by lane and index."""
    rows = messages.with_columns(chain=messages["remote"], remote=messages["chain"])
    return rows.take(stable_order(keys_of(rows), rows["index"]))


def take_submissions(
    state: State, plan: RelayPlan, messages: Frame, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Judge what relayers submitted: update clients, accept runs of entries, note what each relayer did.

    ``messages``: the entries that the proofs cover, as ``turned`` names them. Returns the state with its clients and
    fee accounts after, and the entries accepted in the order of processing.
    """
    rows, options = plan.headers, context.options
    leaves = entry_leaves(messages, messages["chain"], context.zones, context.tick_ns)
    evidence = weigh(rows, plan.details, messages, leaves, options.relay.proofs == "single")
    clients, fees = Clients(state, context), Fees(context)
    _update_clients(rows, plan.seen, clients, fees, log, context)
    verdicts = judge(state, rows, evidence, clients.root, context)
    fees.settle(rows, verdicts)
    trust, connections = clients.after()
    state = replace(state, trust=trust, connections=connections, relayers=fees.after(state.relayers))
    _log_refusals(rows, verdicts, log)
    return state, _accepted(rows, verdicts, messages)


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


def control_row(chain: int, remote: int, substream: int, index: int, why: Refusal) -> Frame:
    """Return the event of a refused submission."""
    return _controls(
        np.array([chain], dtype=np.uint32),
        np.array([remote], dtype=np.uint32),
        np.array([substream], dtype=np.uint64),
        np.array([index], dtype=np.uint64),
        np.array([why], dtype=np.int32),
    )


def _controls(
    chain: np.ndarray, remote: np.ndarray, substream: np.ndarray, index: np.ndarray, why: np.ndarray
) -> Frame:
    length = len(chain)
    zero = repeated(np.uint64(0), length)
    rows = Frame(
        {
            "kind": repeated(np.uint8(Kind.CONTROL), length),
            "remote": remote,
            "substream": substream,
            "index": index,
            "sender": zero,
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
    log.add(_controls(taken["chain"], taken["remote"], taken["substream"], begin.astype(np.uint64), why))


def _accepted(rows: Frame, verdicts: Verdicts, messages: Frame) -> Frame:
    """Return the accepted entries in the order of processing."""
    if not verdicts.accepted:
        return messages.slice(0, 0)
    submission, begin, end = (np.array(column) for column in zip(*verdicts.accepted, strict=True))
    lanes = rows.select(["chain", "remote", "substream"]).take(submission)
    own, asked = pair_codes((keys_of(messages), messages["index"]), (keys_of(lanes), begin.astype(np.uint64)))
    counts = (end - begin).astype(np.int64)
    offset = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return messages.take(np.repeat(np.searchsorted(own, asked), counts) + offset)
