"""A block's submissions one after the other: what relayers bring in bulk, then transactions from outside (IBC reference
3.5). What becomes of each the calls say (``messages``); here it is counted, told and put together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, concat, repeated
from causeway.model.joins import lookup, over
from causeway.model.order import groups_of
from causeway.protocols.ibc.accounts import Accounts, Deposit
from causeway.protocols.ibc.calling import FORMS, KIND_OF_WORD, Bulk, Results, form_of
from causeway.protocols.ibc.client import Clients, evidence_of, second_header
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.evidence import Evidence
from causeway.protocols.ibc.expiry import expiry_of, is_past
from causeway.protocols.ibc.fees import OUTSIDER, Fees, Made
from causeway.protocols.ibc.header_relay import Certifications, bring, with_headers
from causeway.protocols.ibc.messages import receipt, receive
from causeway.protocols.ibc.messages.call import About, Block, Check, Raising
from causeway.protocols.ibc.messages.misbehaviour import Accusation
from causeway.protocols.ibc.messages.update_header import Offer
from causeway.protocols.ibc.notices import Notice
from causeway.protocols.ibc.progress import Progress
from causeway.protocols.ibc.recovering import Decisions
from causeway.protocols.ibc.seen import Alteration, CallKind, Seen
from causeway.protocols.ibc.state import RECEIPT, State, lanes_of
from causeway.protocols.ibc.transactions import Submitted, Transaction, entry_frame
from causeway.protocols.ibc.values import NO_LIMIT
from causeway.protocols.messages import LANE, LANE_COLUMNS


@dataclass(frozen=True)
class RelayPlan:
    """What relayers submit (``SUBMISSIONS_SCHEMA``), and what they saw.

    ``provable``: what they prove of what they saw now or, with a delay, before (``delays``). ``accused``: zones whose
    second header for the height before relayers have seen: (zone, relayer, counterparty), in their order.
    ``decisions``: what zones decide themselves (``recovering``). ``transactions``: those of relayers from outside.
    ``deposits``: what is paid into accounts of relayers.
    """

    submissions: Frame
    seen: Seen
    provable: Seen
    accused: tuple[tuple[int, int, int], ...] = ()
    decisions: Decisions = ()
    transactions: tuple[Transaction, ...] = ()
    deposits: tuple[Deposit, ...] = ()


@dataclass(frozen=True)
class Accepted:
    """What of the submissions takes effect, in the order of processing, which ``sequence`` counts over all frames.

    ``entries``: packets and receipts with their lanes; ``expired``: ranges (``begin``, ``end``) of our own packets that
    timed out, by the lane that the receipts would have come over; ``cleaned``: send queues of other zones, up to which
    index (``end``) our receipts are done with. ``fees``: all that was submitted. ``funds``: the accounts of relayers
    after it (``FUNDS_SCHEMA``). ``notices``: what happened to clients and accounts.
    """

    entries: Frame
    expired: Frame
    cleaned: Frame
    fees: Fees
    funds: Frame
    notices: tuple[Notice, ...]


def take_submissions(
    state: State,
    plan: RelayPlan,
    messages: Frame,
    headers: Frame,
    context: Context,
    *,
    evidence: Evidence,
    raising: Raising,
) -> tuple[State, Accepted]:
    """Make the calls that relayers submit: evidence of misbehaviour first, headers, then in the order of the plan, then
    those from outside.

    ``messages``: the entries that the proofs cover, by lane and index; ``headers``: of earlier heights, as relayers may
    want them (``header_relay``); ``evidence``: see ``weighed``; ``raising``: see ``Block``. Returns the state with its
    clients after, and what takes effect.
    """
    rows = plan.submissions
    clients, fees = Clients(state, context), Fees(context)
    progress = Progress(state, ordered=context.options.order == "ordered")
    charged = context.options.relay.accounts is not None
    accounts = Accounts(state.funds, plan.deposits, context) if charged else None
    block, results = Block(context, clients, progress, expiry_of(state, context), raising), Results(fees, accounts)
    # The signed headers of a frame (`SEEN_HEADERS_SCHEMA`) by zone and height.
    keys = zip(headers["chain"].tolist(), headers["height"].tolist(), strict=True)
    between = {key: data for key, data in zip(keys, headers["certification"].to_pylist(), strict=True) if data}
    # Submit both headers of zones that fork, where need be after those on the way to the first.
    for chain, relayer, counterparty in plan.accused:
        first = plan.seen.signed_headers[counterparty]
        second = second_header(first, counterparty, block.context)
        accusation = Accusation(chain, counterparty, evidence_of(first, second))
        if results.accuse(accusation, block, relayer) == Refusal.NeedIntermediateHeader:
            submit = partial(results.offer, block=block, relayer=relayer)
            offer = Offer(chain, counterparty, first)
            if bring(offer, between, block, submit) in (Refusal.ACCEPTED, Refusal.NoOp):
                results.accuse(accusation, block, relayer)
    _offer_headers(plan, between, results, block)
    submit_bulk(rows, plan.provable, evidence, results, block)
    for transaction in plan.transactions:
        _run(transaction, results, len(rows), block)
    trust, connections = clients.after()
    after = replace(state, trust=trust, connections=connections)
    return after, _accepted(state, rows, results, messages, context)


def _offer_headers(plan: RelayPlan, between: Certifications, results: Results, block: Block) -> None:
    """Offer the header of every counterparty once a relayer that submits something of it; with a delay, that header
    alone.

    Relayers with accounts pay for the header and then for messages, as many as they can. One that cannot pay for a
    message and for all headers that it takes submits no message about that counterparty.
    """
    accounts, context = results.accounts, block.context
    rows = plan.submissions if accounts is not None else with_headers(plan.submissions, context)
    if len(rows) == 0:
        return
    names = ("destination", "relayer", "source")
    groups = groups_of(*(rows[name] for name in names))
    first = rows.select(names).take(groups.starts)
    messages = np.add.reduceat(_calls(rows), groups.starts) if accounts is not None else np.zeros(len(first), np.int64)
    alone = rows["call"][groups.starts + groups.counts - 1] == CallKind.UPDATE
    headed = alone if context.options.delay_ns else np.ones(len(first), dtype=bool)
    columns = [*(first[name].tolist() for name in names), headed.tolist(), messages.tolist()]
    for chain, relayer, counterparty, has_header, count in zip(*columns, strict=True):
        header = plan.seen.signed_headers.get(counterparty, b"") if has_header else b""
        if accounts is not None and not accounts.covers(chain, relayer, headers=bool(header), messages=count > 0):
            continue
        if header:
            submit = partial(results.offer, block=block, relayer=relayer)
            if bring(Offer(chain, counterparty, header), between, block, submit) is None:
                continue
        if accounts is not None:
            accounts.reserve(chain, relayer, counterparty, count)


def _calls(rows: Frame) -> npt.NDArray[np.int64]:
    """Return how many calls each submission is: one an entry, one a cleanup, none where it is the header alone."""
    entries = (rows["end"] - rows["begin"]).astype(np.int64)
    found: npt.NDArray[np.int64] = np.where(rows["call"] < CallKind.CLEANUP, entries, rows["call"] == CallKind.CLEANUP)
    return found


def submit_bulk(rows: Frame, provable: Seen, evidence: Evidence, results: Results, block: Block) -> None:
    """Submit rows of ``SUBMISSIONS_SCHEMA``, which are in their order; ``provable``: what they refer to."""
    proofs = provable.proofs
    value = proofs["first"] if len(proofs) else np.zeros(1, dtype=np.uint64)
    shown = value[np.maximum(rows["proof"], 0)]
    names = ("destination", "source", "call", "begin", "end", "alteration", "relayer")
    under, _ = provable.headers_of(rows["destination"], rows["source"], block.context)
    # Which submissions are of packets that are past their limits, where those are refused.
    late_rows = np.zeros(len(rows), dtype=bool)
    if block.context.options.absence:
        mine = np.flatnonzero((rows["call"] == CallKind.RECEIVE) & (rows["proof"] >= 0))
        late_rows[mine] = is_past(proofs.take(rows["proof"][mine]), block.context)
    columns = [*(rows[name].tolist() for name in names), *(column.tolist() for column in (shown, late_rows, under))]
    chain_ids = block.context.zones.names
    checks: dict[int, tuple[Check, ...]] = {}
    for number, row in enumerate(zip(*columns, strict=True)):
        chain, source, kind, begin, end, alteration, relayer, at, late, last = row
        if kind == CallKind.UPDATE:
            continue
        if results.accounts is not None:
            cleanup = kind == CallKind.CLEANUP
            paid = results.accounts.spend(chain, relayer, source, 1 if cleanup else end - begin)
            if not paid:
                continue
            end = end if cleanup else begin + paid
        form, pair = form_of(kind, block.context), (chain, source)
        height = last - (alteration == Alteration.STALE_HEADER)
        run = Bulk(number, form, chain, source, pair, chain_ids[chain], begin, end, height, at, late, evidence)
        if kind not in checks:
            checks[kind] = tuple(
                check
                for check in form.call.checks
                if check.about != About.FORM or check.holds is None or not check.holds(run, block)
            )
        results.submit(kind, number, run, block, relayer, checks=checks[kind])


def _run(transaction: Transaction, results: Results, bulk: int, block: Block) -> None:
    """Run the calls of a transaction; one that is refused does not stop those behind it. ``bulk``: the number of runs
    in bulk, behind which those from outside are counted."""
    chain, user = transaction.chain, transaction.user
    relayer = OUTSIDER + user % OUTSIDER
    if transaction.content is None:
        # Nobody knows what it asked for: nothing is counted.
        unread = Made(chain, relayer, CallKind.UPDATE, chain, RECEIPT, 0, 0, Refusal.InvalidPacket, user)
        results.fees.pay(unread)
    for kind, submit in transaction.calls():
        counterparty = block.context.zones.positions.get(submit.remote, -1)
        if kind == "update":
            results.offer(Offer(chain, counterparty, submit.header), block, relayer, user)
            continue
        if kind == "misbehaviour":
            results.accuse(Accusation(chain, counterparty, submit.misbehaviour), block, relayer, user)
            continue
        run, number = Submitted(chain, counterparty, submit), bulk + len(results.outside)
        results.outside[number] = run
        results.submit(KIND_OF_WORD[kind], number, run, block, relayer, user=user)


def _accepted(state: State, rows: Frame, results: Results, messages: Frame, context: Context) -> Accepted:
    """Return what takes effect: entries from the block's input, and those that came as bytes."""
    parts = np.array(results.accepted, dtype=np.int64).reshape(-1, 4)
    outside = [
        (found.counterparty, found.chain, FORMS[kind].substream, number)
        for kind, number, *_ in results.accepted
        if (found := results.outside.get(number)) is not None
    ]
    own = np.array(outside, dtype=np.int64).reshape(-1, 4)
    # Runs from outside are behind all others, and each has at most one part.
    inside = len(parts) - len(own)
    lanes = concat([rows.select(LANE).take(parts[:inside, 1]), lanes_of(own[:, 0], own[:, 1], own[:, 2])])
    begin, end = (parts[:, column].astype(np.uint64) for column in (2, 3))
    ranges = lanes.with_columns(call=parts[:, 0], begin=begin, end=end, sequence=np.arange(len(parts)))
    runs = ranges.slice(0, inside)
    runs = runs.filter(runs["call"] <= CallKind.RECEIPT)
    first = lookup(messages, runs.select(LANE).with_columns(index=runs["begin"]), LANE_COLUMNS)
    run, row = over(first, first + (runs["end"] - runs["begin"]).astype(np.int64))
    entries = messages.take(row)
    entries = entries.with_columns(sequence=runs["sequence"][run], forced=repeated(np.uint8(0), len(entries)))
    if len(own):
        decoded = _decoded(results, context)
        entries = concat([entries, entry_frame(decoded).select(entries.names)])
    expired, cleaned = (ranges.filter(ranges["call"] == kind) for kind in (CallKind.TIMEOUT, CallKind.CLEANUP))
    funds, notices = (state.funds, []) if results.accounts is None else results.accounts.after(results.fees.made)
    return Accepted(entries, expired, cleaned, results.fees, funds, (*results.notices, *notices))


def _decoded(results: Results, context: Context) -> list[dict[str, Any]]:
    """Return the packets and receipts from outside that were accepted, as columns of messages."""
    found = []
    for sequence, (kind, number, first, _) in enumerate(results.accepted):
        run = results.outside.get(number)
        if run is None or kind > CallKind.RECEIPT:
            continue
        if kind == CallKind.RECEIVE:
            assert run.packet is not None
            row = receive.row_of(run.packet, context)
        else:
            assert run.receipt is not None
            row = receipt.row_of(run.receipt)
        lane = {"source": run.counterparty, "destination": run.chain, "substream": FORMS[kind].substream}
        sent = {"sent_tick": context.tick, "sent_height": context.height, "max_height": NO_LIMIT, "queue_index": first}
        found.append({**row, **lane, **sent, "index": first, "sequence": sequence})
    return found
