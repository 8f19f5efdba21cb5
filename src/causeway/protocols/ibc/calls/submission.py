"""Sequential processing of a block's submissions, and their effects.

Relayers' bulk submissions come first, then transactions from outside (IBC reference 3.5). The calls decide each
submission (``messages``); this module counts, logs and collects the results.

Relayers deliver headers before messages. Where the validator set has changed too much since the trusted header, the
intermediate ones come first (IBC reference 3.5, X-4). Relayers also accuse zones that sign two headers for one height
(X-3).

Reference:
    IBC reference 3.1 to 3.6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import group_rows
from causeway_proofs.work import count_proof_bytes

from causeway.core.frame import Frame, concat, empty_frame, repeat_value
from causeway.core.joins import expand_ranges, lookup_rows
from causeway.core.vocabulary import Via
from causeway.protocols.contract import PAST_SCHEMA
from causeway.protocols.ibc.calls import receipt, receive
from causeway.protocols.ibc.calls.call import (
    CallCheck,
    CallContext,
    CallRun,
    CallType,
    CheckedEntry,
    Raising,
    validate_run,
)
from causeway.protocols.ibc.calls.cleanup import CLEAN_UP
from causeway.protocols.ibc.calls.misbehaviour import Accusation, submit_misbehaviour
from causeway.protocols.ibc.calls.receipt import ACKNOWLEDGE
from causeway.protocols.ibc.calls.receive import RECEIVE
from causeway.protocols.ibc.calls.recovery import Decisions
from causeway.protocols.ibc.calls.timeout import TIME_OUT, TIME_OUT_ONE
from causeway.protocols.ibc.calls.transactions import SingleSubmission, Transaction, entry_frame
from causeway.protocols.ibc.calls.update_header import HeaderOffer, update_header
from causeway.protocols.ibc.client import Clients, build_evidence, conflicting_header, headers_between
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.events import FROZE, ZoneEvent
from causeway.protocols.ibc.expiry import create_expiry_check, is_past_limits
from causeway.protocols.ibc.keys import KeyPart, QueueKey, QueuePurpose
from causeway.protocols.ibc.packets import NO_LIMIT
from causeway.protocols.ibc.progress import Pair, QueueProgress, Span
from causeway.protocols.ibc.relay.accounts import OUTSIDER, CallTally, Deposit, RelayerAccounts, RelayerFees
from causeway.protocols.ibc.relay.evidence import ProvenRoots
from causeway.protocols.ibc.relayer_view import Alteration, RelayerView, SubmissionKind
from causeway.protocols.ibc.state import RECEIPT, SEND, State, connection_rows, is_frozen, lanes_of
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS

ClientCall = TypeVar("ClientCall", HeaderOffer, Accusation)
"""A call to a light client."""


class SubmissionForm(NamedTuple):
    """A kind of submission: its call, and the queue and key of the counterparty that it proves."""

    call: CallType
    purpose: QueuePurpose
    part: KeyPart
    substream: int


FORMS: Mapping[int, SubmissionForm] = {
    SubmissionKind.RECEIVE: SubmissionForm(RECEIVE, QueuePurpose.SEND, KeyPart.INDEX, SEND),
    SubmissionKind.RECEIPT: SubmissionForm(ACKNOWLEDGE, QueuePurpose.RECEIPT, KeyPart.INDEX, RECEIPT),
    SubmissionKind.TIMEOUT: SubmissionForm(TIME_OUT, QueuePurpose.RECEIPT, KeyPart.TAIL, RECEIPT),
    SubmissionKind.CLEANUP: SubmissionForm(CLEAN_UP, QueuePurpose.SEND, KeyPart.HEAD, SEND),
}
ABSENCE = SubmissionForm(TIME_OUT_ONE, QueuePurpose.RECEIPT, KeyPart.INDEX, RECEIPT)
"""The form of a timeout in unordered queues."""

KIND_OF_WORD = {
    "receive": SubmissionKind.RECEIVE,
    "receipt": SubmissionKind.RECEIPT,
    "timeout": SubmissionKind.TIMEOUT,
    "cleanup": SubmissionKind.CLEANUP,
}


def submission_form(kind: int, context: Context) -> SubmissionForm:
    """Return the form of a kind of submission."""
    return ABSENCE if kind == SubmissionKind.TIMEOUT and context.options.order == "unordered" else FORMS[kind]


@dataclass(slots=True, eq=False)
class BulkSubmission(CallRun):
    """A row of ``SUBMISSIONS_SCHEMA`` (``number``), whose entries are rows of the block's input.

    Its form and row determine its key (``remote`` is the counterparty's name for the zone); the columns hold its value.
    ``late`` is True if the packets are past their limits.
    """

    number: int
    form: SubmissionForm
    chain: int
    counterparty: int
    pair: Pair
    remote: str
    begin: int
    end: int
    height: int
    shown: int
    late: bool
    evidence: ProvenRoots

    @property
    def key(self) -> QueueKey:  # type: ignore[override]
        """Return the key of the first entry, or of the head or tail."""
        part = self.form.part
        return QueueKey(self.remote, self.form.purpose, part, self.begin if part == KeyPart.INDEX else 0)

    def entries(self) -> Span:
        """Return the range of submitted indices."""
        return self.begin, self.end

    def count(self) -> int:
        """Return the number of calls."""
        return self.end - self.begin

    def proven_until(self, first: int, stop: int, root: bytes) -> int:
        """Return the end of the entries proved under ``root``, at most ``stop``."""
        if self.form.part == KeyPart.INDEX:
            return first + self.evidence.proven_until(self.number, first - self.begin, stop - first, root)
        return stop if self.evidence.position_roots.get(self.number) == root else first

    def absent_until(self, first: int, stop: int, root: bytes) -> int:
        """Return the end of the absences proved under ``root``, at most ``stop``."""
        return stop if self.evidence.position_roots.get(self.number) == root else first

    def is_late(self, block: CallContext) -> bool:
        """Return True if the packets are past their limits."""
        return self.late

    def has_packet(self, *, limited: bool) -> bool:
        """Return True: the proved leaf is built from columns."""
        return True

    def has_receipt(self) -> bool:
        """Return True: the proved leaf is built from columns."""
        return True

    def position(self) -> int:
        """Return the proved head or tail."""
        return self.shown


@dataclass
class SubmissionResults:
    """Results of the submissions so far, in the order of processing.

    Attributes:
        fees: The counted calls.
        accounts: The accounts that relayers pay from; None where fees are only counted.
        accepted: Accepted ranges: (kind of call, number of the run, begin, end).
        outside: The runs from outside by number.
        notices: Events of clients.
    """

    fees: RelayerFees
    accounts: RelayerAccounts | None = None
    accepted: list[tuple[int, int, int, int]] = field(default_factory=list)
    outside: dict[int, SingleSubmission] = field(default_factory=dict)
    notices: list[ZoneEvent] = field(default_factory=list)

    def submit(
        self,
        kind: int,
        number: int,
        run: CallRun,
        block: CallContext,
        relayer: int,
        *,
        user: int | None = None,
        checks: tuple[CallCheck, ...] | None = None,
    ) -> None:
        """Validate a run of calls, execute the valid ones, and record both.

        Args:
            kind: The kind of submission.
            number: The number of the run.
            run: The calls.
            block: The block's context.
            relayer: The submitting relayer.
            user: The sender of a transaction from outside.
            checks: The checks to apply (see ``validate_run``).
        """
        form = submission_form(kind, block.context)
        passing, refused = validate_run(form.call, run, block, checks)
        effects = [form.call.execute(run, span, block) for span in passing]
        single = kind == SubmissionKind.CLEANUP  # one proof, however much it clears
        source = run.counterparty if run.counterparty >= 0 else run.chain  # unknown: logged as the zone itself
        tally = CallTally(run.chain, relayer, kind, source, form.substream, 0, 1, Refusal.ACCEPTED, user)
        for first, stop, why in refused:
            index = first if user is None else 0 if run.key is None else run.key.index
            self.fees.pay(tally._replace(first=index, many=1 if single else stop - first, why=why))
        for first, stop in effects:
            self.accepted.append((kind, number, first, stop))
            self.fees.pay(tally._replace(first=first, many=1 if single else stop - first))

    def offer(self, offer: HeaderOffer, block: CallContext, relayer: int, user: int | None = None) -> Refusal | None:
        """Submit and record a header; return the result, or None if the relayer cannot pay."""
        return self._client_call(SubmissionKind.UPDATE, offer, update_header, block, relayer, user)

    def submit_evidence(
        self, accusation: Accusation, block: CallContext, relayer: int, user: int | None = None
    ) -> Refusal | None:
        """Submit and record evidence of misbehaviour.

        Return the result, or None if the relayer cannot pay.
        """
        return self._client_call(SubmissionKind.MISBEHAVIOUR, accusation, submit_misbehaviour, block, relayer, user)

    def _client_call(
        self,
        kind: SubmissionKind,
        submission: ClientCall,
        call: Callable[[ClientCall, CallContext], Refusal],
        block: CallContext,
        relayer: int,
        user: int | None,
    ) -> Refusal | None:
        pair = submission.chain, submission.counterparty
        if user is None and self.accounts is not None and not self.accounts.pay_header(submission.chain, relayer):
            return None
        if isinstance(submission, HeaderOffer):
            count_proof_bytes(len(submission.header))
        before = block.clients.frozen(*pair)
        result = call(submission, block)
        froze = block.clients.frozen(*pair) and not before
        if froze:
            kind = SubmissionKind.MISBEHAVIOUR  # a header that contradicts a trusted one is not added, it is evidence
        known = submission.counterparty >= 0
        source, index = (submission.counterparty, submission.height) if known else (submission.chain, 0)
        self.fees.pay(CallTally(submission.chain, relayer, kind, source, RECEIPT, index, 1, result, user))
        if froze:
            sender, via = (relayer, Via.NONE) if user is None else (user, Via.INGRESS)
            self.notices.append(ZoneEvent(*pair, submission.height, FROZE, sender, via=via))
        return result


Certifications = Mapping[tuple[int, int], bytes]
"""Signed headers by zone and height."""


Accused = tuple[tuple[int, int, int], ...]
"""(zone, relayer, counterparty): the relayer shows the zone a fork of the counterparty."""


def accused_zones(forks: Sequence[int], state: State, seen: RelayerView, context: Context) -> Accused:
    """Return the accusations of the relayers, ascending.

    They accuse every forked zone of which they saw two headers of the previous height, at each connected zone that has
    not frozen the connection. Partners share the remote zones.

    Args:
        forks: Positions of the forked zones.
        state: The state.
        seen: The relayers' view.
        context: The metadata of the block.
    """
    connections, options = state.connections.filter(~is_frozen(state.connections)), context.options
    watching = range(1 if options.relay.coordination == "leader" else len(options.relayers))
    found: set[tuple[int, int, int]] = set()
    for counterparty in forks:
        chains = connections["chain"][connections["counterparty"] == counterparty]
        shared = options.relay.coordination == "partition"
        found |= {
            (chain, relayer, counterparty)
            for chain in chains[np.isin(chains, context.chains)].tolist()
            for relayer in watching
            if seen.signed_headers.get(counterparty) and (not shared or counterparty % len(options.relayers) == relayer)
        }
    return tuple(sorted(found))


def add_headers(rows: Frame, context: Context) -> Frame:
    """Select the submissions (``SUBMISSIONS_SCHEMA``) that come with the newest header.

    These are all submissions; with a delay, only those of a header alone.
    """
    return rows.filter(rows["call"] == SubmissionKind.UPDATE) if context.options.delay_ns else rows


def wanted_headers(rows: Frame, accused: Accused, state: State, context: Context) -> Frame:
    """Return the intermediate headers that the submissions may need (``PAST_SCHEMA``).

    Args:
        rows: The submissions (``SUBMISSIONS_SCHEMA``).
        accused: The accused zones.
        state: The state.
        context: The metadata of the block.
    """
    rows = add_headers(rows, context)
    if not context.options.rotation.every or not (len(rows) or accused):
        return empty_frame(PAST_SCHEMA)
    groups = group_rows(rows["destination"], rows["source"])
    first = rows.select(("destination", "source")).take(groups.starts)
    pairs = {(chain, counterparty) for chain, _, counterparty in accused}
    pairs |= set(zip(first["destination"].tolist(), first["source"].tolist(), strict=True))
    chain, counterparty = (np.array(column, dtype=np.uint32) for column in zip(*pairs, strict=True))
    latest = state.connections["latest"][connection_rows(state.connections, chain, counterparty)]
    wanted = {
        (source, height)
        for source, trusted in set(zip(counterparty.tolist(), latest.tolist(), strict=True))
        for height in headers_between(source, trusted, context.height - 1, context)
    }
    columns = np.array(sorted(wanted), dtype=np.uint64).reshape(-1, 2)
    return Frame({"chain": columns[:, 0].astype(np.uint32), "height": columns[:, 1]}, len(columns))


def offer_header(
    offer: HeaderOffer, between: Certifications, block: CallContext, submit: Callable[[HeaderOffer], Refusal | None]
) -> Refusal | None:
    """Submit a header, after the middle header if the client needs an intermediate one.

    Args:
        offer: The header.
        between: The available intermediate headers.
        block: The block's context.
        submit: The call; returns None if it cannot be paid.

    Returns:
        The result of the last call.
    """
    trusted = block.clients.trusted_below(offer.chain, offer.counterparty, offer.height)
    result = submit(offer)
    if result != Refusal.NeedIntermediateHeader or trusted is None:
        return result
    middle = between.get((offer.counterparty, (trusted + offer.height) // 2))
    if middle is None:
        return result
    first = offer_header(offer._replace(header=middle), between, block, submit)
    if first not in (Refusal.ACCEPTED, Refusal.NoOp):
        return first
    return offer_header(offer, between, block, submit)


@dataclass(frozen=True)
class RelayPlan:
    """The relayers' submissions, and their view.

    Attributes:
        submissions: The submissions (``SUBMISSIONS_SCHEMA``).
        seen: The current view.
        provable: The view that proofs refer to, an earlier one with a delay (``delays``).
        accused: Zones with two headers for the previous height: (zone, relayer, counterparty), in order.
        decisions: Decisions of the zones themselves (``calls.recovery``).
        transactions: Transactions of relayers from outside.
        deposits: Deposits into relayers' accounts.
    """

    submissions: Frame
    seen: RelayerView
    provable: RelayerView
    accused: tuple[tuple[int, int, int], ...] = ()
    decisions: Decisions = ()
    transactions: tuple[Transaction, ...] = ()
    deposits: tuple[Deposit, ...] = ()


@dataclass(frozen=True)
class AcceptedSubmissions:
    """Effective submissions in order of processing, counted by ``sequence`` over all frames.

    Attributes:
        entries: Packets and receipts with their lanes.
        expired: Ranges (``begin``, ``end``) of own packets that timed out, by the lane of their receipts.
        cleaned: Send queues of other zones, with the ``end`` of the receipts to prune.
        fees: All submissions.
        funds: The relayers' accounts afterwards (``FUNDS_SCHEMA``).
        notices: Events of clients and accounts.
    """

    entries: Frame
    expired: Frame
    cleaned: Frame
    fees: RelayerFees
    funds: Frame
    notices: tuple[ZoneEvent, ...]


def process_submissions(
    state: State,
    plan: RelayPlan,
    messages: Frame,
    headers: Frame,
    context: Context,
    *,
    evidence: ProvenRoots,
    raising: Raising,
) -> tuple[State, AcceptedSubmissions]:
    """Process a block's submissions in sequence.

    They are evidence, headers, bulk submissions, and transactions from outside.

    Args:
        state: The state of the zones.
        plan: The relayers' plan.
        messages: The entries that the proofs cover, by lane and index.
        headers: Intermediate headers of earlier heights.
        context: The metadata of the block.
        evidence: The verified proofs (``verify_proofs``).
        raising: The calls whose handlers raise (see ``CallContext``).

    Returns:
        The state with updated clients, and the effective submissions.
    """
    rows = plan.submissions
    clients, fees = Clients(state, context), RelayerFees(context)
    progress = QueueProgress(state, ordered=context.options.order == "ordered")
    charged = context.options.relay.accounts is not None
    accounts = RelayerAccounts(state.funds, plan.deposits, context) if charged else None
    block, results = (
        CallContext(context, clients, progress, create_expiry_check(state, context), raising),
        SubmissionResults(fees, accounts),
    )
    # The signed headers by zone and height.
    keys = zip(headers["chain"].tolist(), headers["height"].tolist(), strict=True)
    intermediate = {key: data for key, data in zip(keys, headers["certification"].to_pylist(), strict=True) if data}
    # Submit both headers of forking zones, after the intermediate headers of the first if necessary.
    for chain, relayer, counterparty in plan.accused:
        first = plan.seen.signed_headers[counterparty]
        second = conflicting_header(first, counterparty, block.context)
        accusation = Accusation(chain, counterparty, build_evidence(first, second))
        if results.submit_evidence(accusation, block, relayer) == Refusal.NeedIntermediateHeader:
            submit = partial(results.offer, block=block, relayer=relayer)
            offer = HeaderOffer(chain, counterparty, first)
            if offer_header(offer, intermediate, block, submit) in (Refusal.ACCEPTED, Refusal.NoOp):
                results.submit_evidence(accusation, block, relayer)
    _offer_headers(plan, intermediate, results, block)
    submit_bulk(rows, plan.provable, evidence, results, block)
    for transaction in plan.transactions:
        _run(transaction, results, len(rows), block)
    trust, connections = clients.after()
    after = replace(state, trust=trust, connections=connections)
    return after, _accepted(state, rows, results, messages, context)


def _offer_headers(plan: RelayPlan, between: Certifications, results: SubmissionResults, block: CallContext) -> None:
    """Submit each counterparty's header once per relayer with submissions for it.

    With a delay, only submissions of headers alone bring one. Relayers with accounts pay for the header and then for as
    many messages as possible. One that cannot pay for a message and all its headers submits no message for that
    counterparty.
    """
    accounts, context = results.accounts, block.context
    rows = plan.submissions if accounts is not None else add_headers(plan.submissions, context)
    if len(rows) == 0:
        return
    names = ("destination", "relayer", "source")
    groups = group_rows(*(rows[name] for name in names))
    first = rows.select(names).take(groups.starts)
    messages = np.add.reduceat(_calls(rows), groups.starts) if accounts is not None else np.zeros(len(first), np.int64)
    alone = rows["call"][groups.starts + groups.counts - 1] == SubmissionKind.UPDATE
    headed = alone if context.options.delay_ns else np.ones(len(first), dtype=bool)
    columns = [*(first[name].tolist() for name in names), headed.tolist(), messages.tolist()]
    for chain, relayer, counterparty, has_header, count in zip(*columns, strict=True):
        header = plan.seen.signed_headers.get(counterparty, b"") if has_header else b""
        if accounts is not None and not accounts.covers(chain, relayer, headers=bool(header), messages=count > 0):
            continue
        if header:
            submit = partial(results.offer, block=block, relayer=relayer)
            if offer_header(HeaderOffer(chain, counterparty, header), between, block, submit) is None:
                continue
        if accounts is not None:
            accounts.reserve(chain, relayer, counterparty, count)


def _calls(rows: Frame) -> npt.NDArray[np.int64]:
    """Return the number of calls of each submission.

    It is one an entry, one a cleanup, and none for a header alone.
    """
    entries = (rows["end"] - rows["begin"]).astype(np.int64)
    found: npt.NDArray[np.int64] = np.where(
        rows["call"] < SubmissionKind.CLEANUP, entries, rows["call"] == SubmissionKind.CLEANUP
    )
    return found


def submit_bulk(
    rows: Frame, provable: RelayerView, evidence: ProvenRoots, results: SubmissionResults, block: CallContext
) -> None:
    """Submit rows of ``SUBMISSIONS_SCHEMA`` in order, with proofs from ``provable``."""
    proofs = provable.proofs
    value = proofs["first"] if len(proofs) else np.zeros(1, dtype=np.uint64)
    positions = value[np.maximum(rows["proof"], 0)]
    names = ("destination", "source", "call", "begin", "end", "alteration", "relayer")
    under, _ = provable.headers_of(rows["destination"], rows["source"], block.context)
    # Mask of the submissions of expired packets, where those are refused.
    late_rows = np.zeros(len(rows), dtype=bool)
    if block.context.options.absence:
        packets = np.flatnonzero((rows["call"] == SubmissionKind.RECEIVE) & (rows["proof"] >= 0))
        late_rows[packets] = is_past_limits(proofs.take(rows["proof"][packets]), block.context)
    columns = [*(rows[name].tolist() for name in names), *(column.tolist() for column in (positions, late_rows, under))]
    chain_ids = block.context.zones.names
    checks: dict[int, tuple[CallCheck, ...]] = {}
    for number, row in enumerate(zip(*columns, strict=True)):
        chain, source, kind, begin, end, alteration, relayer, at, late, last = row
        if kind == SubmissionKind.UPDATE:
            continue
        if results.accounts is not None:
            cleanup = kind == SubmissionKind.CLEANUP
            paid = results.accounts.spend(chain, relayer, source, 1 if cleanup else end - begin)
            if not paid:
                continue
            end = end if cleanup else begin + paid
        form, pair = submission_form(kind, block.context), (chain, source)
        height = last - (alteration == Alteration.STALE_HEADER)
        run = BulkSubmission(
            number, form, chain, source, pair, chain_ids[chain], begin, end, height, at, late, evidence
        )
        if kind not in checks:
            checks[kind] = tuple(
                check
                for check in form.call.checks
                if check.about != CheckedEntry.FORM or check.holds is None or not check.holds(run, block)
            )
        results.submit(kind, number, run, block, relayer, checks=checks[kind])


def _run(transaction: Transaction, results: SubmissionResults, bulk: int, block: CallContext) -> None:
    """Run the calls of a transaction; a refused call does not stop the next ones.

    ``bulk`` is the number of bulk runs; runs from outside are numbered after them.
    """
    chain, user = transaction.chain, transaction.user
    relayer = OUTSIDER + user % OUTSIDER
    if transaction.content is None:
        # An undecodable transaction counts as one refused call.
        unread = CallTally(chain, relayer, SubmissionKind.UPDATE, chain, RECEIPT, 0, 0, Refusal.InvalidPacket, user)
        results.fees.pay(unread)
    for kind, submit in transaction.calls():
        counterparty = block.context.zones.positions.get(submit.remote, -1)
        if kind == "update":
            results.offer(HeaderOffer(chain, counterparty, submit.header), block, relayer, user)
            continue
        if kind == "misbehaviour":
            results.submit_evidence(Accusation(chain, counterparty, submit.misbehaviour), block, relayer, user)
            continue
        run, number = SingleSubmission(chain, counterparty, submit), bulk + len(results.outside)
        results.outside[number] = run
        results.submit(KIND_OF_WORD[kind], number, run, block, relayer, user=user)


def _accepted(
    state: State, rows: Frame, results: SubmissionResults, messages: Frame, context: Context
) -> AcceptedSubmissions:
    """Collect the effective submissions, from the block's input and from wire bytes."""
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
    runs = runs.filter(runs["call"] <= SubmissionKind.RECEIPT)
    first = lookup_rows(messages, runs.select(LANE).with_columns(index=runs["begin"]), LANE_COLUMNS)
    run, row = expand_ranges(first, first + (runs["end"] - runs["begin"]).astype(np.int64))
    entries = messages.take(row)
    entries = entries.with_columns(sequence=runs["sequence"][run], forced=repeat_value(np.uint8(0), len(entries)))
    if len(own):
        decoded = _decoded(results, context)
        entries = concat([entries, entry_frame(decoded).select(entries.names)])
    expired, cleaned = (
        ranges.filter(ranges["call"] == kind) for kind in (SubmissionKind.TIMEOUT, SubmissionKind.CLEANUP)
    )
    funds, notices = (state.funds, []) if results.accounts is None else results.accounts.after(results.fees.made)
    return AcceptedSubmissions(entries, expired, cleaned, results.fees, funds, (*results.notices, *notices))


def _decoded(results: SubmissionResults, context: Context) -> list[dict[str, Any]]:
    """Return the accepted packets and receipts from outside as message rows."""
    found = []
    for sequence, (kind, number, first, _) in enumerate(results.accepted):
        run = results.outside.get(number)
        if run is None or kind > SubmissionKind.RECEIPT:
            continue
        if kind == SubmissionKind.RECEIVE:
            assert run.packet is not None
            row = receive.packet_row(run.packet, context)
        else:
            assert run.receipt is not None
            row = receipt.receipt_row(run.receipt)
        lane = {"source": run.counterparty, "destination": run.chain, "substream": FORMS[kind].substream}
        sent = {"sent_tick": context.tick, "sent_height": context.height, "max_height": NO_LIMIT, "queue_index": first}
        found.append({**row, **lane, **sent, "index": first, "sequence": sequence})
    return found
