"""The calls of a block as they are made, one run after the other: what kind each is, and what came of it (IBC reference
3.1 to 3.6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from causeway.model.ledger import Via
from causeway.proofs.work import proved_bytes
from causeway.protocols.ibc.accounts import Accounts
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.evidence import Evidence
from causeway.protocols.ibc.fees import Fees, Made
from causeway.protocols.ibc.keys import Key, Part, Purpose
from causeway.protocols.ibc.messages.call import Block, Call, Check, Run, validate
from causeway.protocols.ibc.messages.cleanup import CLEAN_UP
from causeway.protocols.ibc.messages.misbehaviour import Accusation, submit_misbehaviour
from causeway.protocols.ibc.messages.receipt import ACKNOWLEDGE
from causeway.protocols.ibc.messages.receive import RECEIVE
from causeway.protocols.ibc.messages.timeout import TIME_OUT, TIME_OUT_ONE
from causeway.protocols.ibc.messages.update_header import Offer, update_header
from causeway.protocols.ibc.notices import FROZE, Notice
from causeway.protocols.ibc.progress import Pair, Span
from causeway.protocols.ibc.seen import CallKind
from causeway.protocols.ibc.state import RECEIPT, SEND
from causeway.protocols.ibc.transactions import Submitted

Brought = TypeVar("Brought", Offer, Accusation)
"""A call about a client."""


class Form(NamedTuple):
    """What a kind of submission is: its call, and which key of which queue of the counterparty it has."""

    call: Call
    purpose: Purpose
    part: Part
    substream: int


FORMS: Mapping[int, Form] = {
    CallKind.RECEIVE: Form(RECEIVE, Purpose.SEND, Part.INDEX, SEND),
    CallKind.RECEIPT: Form(ACKNOWLEDGE, Purpose.RECEIPT, Part.INDEX, RECEIPT),
    CallKind.TIMEOUT: Form(TIME_OUT, Purpose.RECEIPT, Part.TAIL, RECEIPT),
    CallKind.CLEANUP: Form(CLEAN_UP, Purpose.SEND, Part.HEAD, SEND),
}
ABSENCE = Form(TIME_OUT_ONE, Purpose.RECEIPT, Part.INDEX, RECEIPT)
"""A time-out in unordered queues."""

KIND_OF_WORD = {
    "receive": CallKind.RECEIVE,
    "receipt": CallKind.RECEIPT,
    "timeout": CallKind.TIMEOUT,
    "cleanup": CallKind.CLEANUP,
}


def form_of(kind: int, context: Context) -> Form:
    """Return the form of a kind of submission."""
    return ABSENCE if kind == CallKind.TIMEOUT and context.options.order == "unordered" else FORMS[kind]


@dataclass(slots=True, eq=False)
class Bulk(Run):
    """A row of ``SUBMISSIONS_SCHEMA``, ``number``, whose entries are rows of the block's input.

    Its key is the one that its form and its row say (``remote``: what the counterparty calls the zone), its value what
    the columns hold. ``late``: whether those are packets past their limits.
    """

    number: int
    form: Form
    chain: int
    counterparty: int
    pair: Pair
    remote: str
    begin: int
    end: int
    height: int
    shown: int
    late: bool
    evidence: Evidence

    @property
    def key(self) -> Key:  # type: ignore[override]
        """Return the key of the first entry, or of the head or tail."""
        part = self.form.part
        return Key(self.remote, self.form.purpose, part, self.begin if part == Part.INDEX else 0)

    def entries(self) -> Span:
        """Return the indices that are submitted."""
        return self.begin, self.end

    def count(self) -> int:
        """Return how many calls they are."""
        return self.end - self.begin

    def proven_until(self, first: int, stop: int, root: bytes) -> int:
        """Return the end of what is proved under ``root``, of what is submitted from ``first`` to ``stop`` - 1."""
        if self.form.part == Part.INDEX:
            return first + self.evidence.proven_until(self.number, first - self.begin, stop - first, root)
        return stop if self.evidence.position_roots.get(self.number) == root else first

    def absent_until(self, first: int, stop: int, root: bytes) -> int:
        """Return the end of what is proved to be absent under ``root``, from ``first`` to ``stop`` - 1."""
        return stop if self.evidence.position_roots.get(self.number) == root else first

    def is_late(self, block: Block) -> bool:
        """Return whether the packets are past their limits."""
        return self.late

    def has_packet(self, *, limited: bool) -> bool:
        """Return True: the leaf that was proved is made of columns."""
        return True

    def has_receipt(self) -> bool:
        """Return True: the leaf that was proved is made of columns."""
        return True

    def position(self) -> int:
        """Return the head or tail that is shown."""
        return self.shown


@dataclass
class Results:
    """What became of the submissions so far, in the order of processing.

    ``accounts``: out of which relayers pay for calls, None where fees are only counted. ``accepted``: (kind of call,
    number of the run, begin, end). ``outside``: the runs from outside by their number.
    ``notices``: what happened to clients.
    """

    fees: Fees
    accounts: Accounts | None = None
    accepted: list[tuple[int, int, int, int]] = field(default_factory=list)
    outside: dict[int, Submitted] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)

    def submit(
        self,
        kind: int,
        number: int,
        run: Run,
        block: Block,
        relayer: int,
        *,
        user: int | None = None,
        checks: tuple[Check, ...] | None = None,
    ) -> None:
        """Validate a run of calls, execute what passes, and note both.

        ``user``: who brought it from outside; ``checks``: see ``validate``.
        """
        form = form_of(kind, block.context)
        passing, refused = validate(form.call, run, block, checks)
        effects = [form.call.execute(run, span, block) for span in passing]
        single = kind == CallKind.CLEANUP  # one proof, however much it clears
        source = run.counterparty if run.counterparty >= 0 else run.chain  # an unknown one is told as the zone itself
        made = Made(run.chain, relayer, kind, source, form.substream, 0, 1, Refusal.ACCEPTED, user)
        for first, stop, why in refused:
            index = first if user is None else 0 if run.key is None else run.key.index
            self.fees.pay(made._replace(first=index, many=1 if single else stop - first, why=why))
        for first, stop in effects:
            self.accepted.append((kind, number, first, stop))
            self.fees.pay(made._replace(first=first, many=1 if single else stop - first))

    def offer(self, offer: Offer, block: Block, relayer: int, user: int | None = None) -> Refusal | None:
        """Offer a header, note what came of it, and return it; None where the relayer cannot pay for it."""
        return self._client_call(CallKind.UPDATE, offer, update_header, block, relayer, user)

    def accuse(self, accusation: Accusation, block: Block, relayer: int, user: int | None = None) -> Refusal | None:
        """Submit evidence that a zone contradicts itself, note what came of it, and return it; None as of ``offer``."""
        return self._client_call(CallKind.MISBEHAVIOUR, accusation, submit_misbehaviour, block, relayer, user)

    def _client_call(
        self,
        kind: CallKind,
        brought: Brought,
        call: Callable[[Brought, Block], Refusal],
        block: Block,
        relayer: int,
        user: int | None,
    ) -> Refusal | None:
        pair = brought.chain, brought.counterparty
        if user is None and self.accounts is not None and not self.accounts.pay_header(brought.chain, relayer):
            return None
        if isinstance(brought, Offer):
            proved_bytes(len(brought.header))
        before = block.clients.frozen(*pair)
        why = call(brought, block)
        froze = block.clients.frozen(*pair) and not before
        if froze:
            kind = CallKind.MISBEHAVIOUR  # a header that contradicts a trusted one is not added, it is evidence
        known = brought.counterparty >= 0
        source, index = (brought.counterparty, brought.height) if known else (brought.chain, 0)
        self.fees.pay(Made(brought.chain, relayer, kind, source, RECEIPT, index, 1, why, user))
        if froze:
            who, via = (relayer, Via.NONE) if user is None else (user, Via.INGRESS)
            self.notices.append(Notice(*pair, brought.height, FROZE, who, via=via))
        return why
