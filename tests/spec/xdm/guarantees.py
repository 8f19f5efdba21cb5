"""The safety statements of 1.2 as functions over the events of a run and the balances beside them.

They know nothing of how messages are made. Each gives its violations as sentences; `unchecked` says what a log of some
of the chains leaves open (hazard 36).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.spec.xdm.events import Event
from tests.spec.xdm.values import CONSENSUS, Chain

Place = tuple[Chain, Chain, int, int]
"""(chain, foreign, channel, nonce)."""
Side = tuple[Chain, Chain, int]


@dataclass
class Record:
    """A run.

    `supply`: of every consensus block, the issuance of every chain. `issuance`: of (chain, its block). What is None is
    not known and not checked: `in_flight`, unconfirmed and cancelled of (from, to) in the consensus chain's books at
    the end; `outbox`, requests without an answer; `deposits`, what is held by channel.
    """

    events: Sequence[Event]
    supply: Mapping[int, Mapping[Chain, int]]
    issuance: Mapping[tuple[Chain, int], int]
    archiving_depth: int
    challenge_period: int
    reserve_portion: int
    in_flight: Mapping[tuple[Chain, Chain], int] | None = None
    outbox: set[Place] | None = None
    deposits: Mapping[Side, int] | None = None
    missing: frozenset[Chain] = frozenset()
    """Chains whose log is not here."""


def place(e: Event) -> Place:
    return (e.chain, *_of(e))


def mirror(e: Event) -> Place:
    """The same message on the other chain."""
    foreign, channel, nonce = _of(e)
    return (foreign, e.chain, channel, nonce)


def _of(e: Event) -> tuple[Chain, int, int]:
    assert e.foreign is not None and e.channel_id is not None and e.nonce is not None, e
    return e.foreign, e.channel_id, e.nonce


def side(e: Event) -> Side:
    assert e.foreign is not None and e.channel_id is not None, e
    return e.chain, e.foreign, e.channel_id


def rows(record: Record, *events: str) -> list[Event]:
    return [e for e in record.events if e.event in events]


def by_side(events: Iterable[Event]) -> dict[Side, list[Event]]:
    found: dict[Side, list[Event]] = defaultdict(list)
    for e in events:
        found[side(e)].append(e)
    return found


def unchecked(record: Record) -> list[str]:
    """What G2, G4 and G7 cannot tell for want of the other side's log."""
    processed = rows(record, "InboxMessage", "OutboxMessageResponse")
    open_ends = Counter((e.event, e.chain, e.foreign) for e in processed if e.foreign in record.missing)
    return [
        f"G2: {count} rows {event} of {chain} are not checked: the log of {foreign} is missing"
        for (event, chain, foreign), count in sorted(open_ends.items(), key=str)
    ]


def g1_order_and_exactly_once(record: Record) -> list[str]:
    violations = []
    for name in ("InboxMessage", "OutboxMessageResponse", "OutboxMessage"):
        for where, events in by_side(rows(record, name)).items():
            nonces = [e.nonce for e in events]
            if nonces != list(range(len(nonces))):
                violations.append(f"G1: {name} of {where} has the nonces {nonces}")
    return violations


def g2_authenticity(record: Record) -> list[str]:
    """What is processed equals, byte by byte, what the other chain said before."""
    violations = []
    pairs = (("InboxMessage", "OutboxMessage"), ("OutboxMessageResponse", "InboxMessageResponse"))
    for processed, said in pairs:
        sources: dict[Place, Event] = {}
        for e in record.events:
            if e.event == said:
                sources.setdefault(place(e), e)
            elif e.event == processed and e.foreign not in record.missing:
                source = sources.get(mirror(e))
                if source is None:
                    violations.append(f"G2: {processed} {place(e)} was never said")
                elif source.payload_hash != e.payload_hash:
                    violations.append(f"G2: {processed} {place(e)} is not what was said")
                elif processed == "OutboxMessageResponse" and source.result != e.result:
                    violations.append(f"G2: {place(e)} was answered {source.result} and read {e.result}")
    return violations


def g3_one_answer(record: Record) -> list[str]:
    processed = Counter(map(place, rows(record, "InboxMessage")))
    answers = Counter(map(place, rows(record, "InboxMessageResponse")))
    stuck = [f"G3: {where} was processed {n} times, answered {answers[where]}" for where, n in processed.items()]
    stuck = [s for s, where in zip(stuck, processed, strict=True) if processed[where] != 1 or answers[where] != 1]
    stuck += [f"G3: {where} was answered and never processed" for where in answers if where not in processed]
    sent = Counter(map(place, rows(record, "OutboxMessage")))
    back = Counter(map(place, rows(record, "OutboxMessageResult")))
    stuck += [f"G3: {where} was answered {n} times" for where, n in back.items() if n > 1 or where not in sent]
    odd = (record.outbox or set()) ^ (sent.keys() - back.keys())
    if record.outbox is not None and any(p[0] not in record.missing for p in odd):
        stuck.append(f"G3: the outboxes and the log differ in {sorted(odd)}")
    return stuck + calls_are_answered_once(record)


def calls_are_answered_once(record: Record) -> list[str]:
    """What programs are told, by a response or by a request of its own: no answer without its call, none twice."""
    violations = []
    waiting: set[tuple[Chain, Chain | None, bytes | None, int | None]] = set()
    for e in rows(record, "CallSent", "CallAnswered"):
        name = (e.chain, e.foreign, e.by, e.nonce)
        if e.event == "CallSent":
            waiting.add(name)
        elif name in waiting:
            waiting.remove(name)
        else:
            violations.append(f"G3: call {e.nonce} of {e.by!r} on {e.chain} was answered and did not wait for it")
    return violations


def g4_finality_first(record: Record) -> list[str]:
    """What a chain acts on was final on consensus before, and a proof of that was final where it must be."""
    violations = []
    final: dict[tuple[Chain, int], Event] = {}
    for e in rows(record, "Final"):
        if (e.chain, e.block) in final:
            violations.append(f"G4: block {e.block} of {e.chain} became final twice")
        final[e.chain, e.block] = e
    said = {("InboxMessage", place(e)): e for e in rows(record, "OutboxMessage")}
    said |= {("OutboxMessageResponse", place(e)): e for e in rows(record, "InboxMessageResponse")}
    for e in rows(record, "InboxMessage", "OutboxMessageResponse"):
        source = said.get((e.event, mirror(e)))
        if source is None:
            continue  # G2
        f = final.get((source.chain, source.block))
        delay = record.archiving_depth if source.chain == CONSENSUS else record.challenge_period
        if f is None or f.confirmed_at is None or f.confirmed_at < source.at + delay:
            violations.append(f"G4: {place(e)} comes from block {source.block} of {source.chain}, which is not final")
            continue
        both_domains = source.chain != CONSENSUS and e.chain != CONSENSUS
        ready = f.confirmed_at + (record.archiving_depth if both_domains else 0)
        if e.at < ready:
            violations.append(f"G4: {place(e)} acted at {e.at}, what it acts on was final at {ready}")
    return violations


STEPS = {"ChannelInitiated", "ChannelOpen", "ChannelClosed", "OutboxMessage", "InboxMessage", "InboxMessageResponse"}


def g5_channel_states(record: Record) -> list[str]:
    """Initiated -> Open -> Closed, or Initiated -> Closed; endpoint messages only between."""
    violations = []
    states: dict[Side, str] = {}
    kinds = {place(e): e.kind for e in rows(record, "OutboxMessage")}
    closes: Counter[Side] = Counter()
    for e in record.events:
        if e.event not in STEPS:
            continue
        where, state = side(e), states.get(side(e), "None")
        bad = False
        if e.event == "ChannelInitiated":
            bad = state != "None"
            states[where] = "Initiated"
        elif e.event == "ChannelOpen":
            bad = state != "Initiated"
            states[where] = "Open"
        elif e.event == "ChannelClosed":
            bad = state not in ("Initiated", "Open")
            states[where] = "Closed"
        elif e.event == "OutboxMessage":
            closes[where] += e.kind == "close"
            wanted = {"open": "Initiated", "endpoint": "Open", "close": "Closed"}[e.kind or ""]
            bad = state != wanted or closes[where] > 1
        elif e.event == "InboxMessage":
            kind = kinds.get(mirror(e))
            if state == "None" and kind in ("open", None):
                states[where] = "Initiated"
            elif state in ("None", "Initiated"):
                bad = kind == "endpoint" or (state == "None" and kind == "close")
        elif kinds.get(mirror(e)) == "endpoint":
            bad = state == "Closed" and e.result == "Ok"
        if bad:
            violations.append(f"G5: {e.event} {e.kind or ''} {e.result or ''} at {where} nonce {e.nonce} when {state}")
    return violations


def g6_backpressure(record: Record) -> list[str]:
    violations = []
    limits = {side(e): e.limit for e in rows(record, "ChannelInitiated", "ChannelOpen") if e.limit is not None}
    unanswered: Counter[Side] = Counter()
    for e in rows(record, "OutboxMessage", "OutboxMessageResult"):
        unanswered[side(e)] += 1 if e.event == "OutboxMessage" else -1
        limit = limits.get(side(e))
        if limit is not None and unanswered[side(e)] > limit:
            violations.append(f"G6: {side(e)} has {unanswered[side(e)]} unanswered requests, {limit} are allowed")
    return violations


def g7_fees(record: Record) -> list[str]:
    """Paid once, minted once, paid out once; and the sum over chains never changes."""
    violations = []
    sent = {place(e): e for e in rows(record, "OutboxMessage") if e.kind == "endpoint"}
    burned, minted = (Counter(map(place, rows(record, name))) for name in ("FeeBurn", "FeeMint"))
    for where, e in sent.items():
        if burned[where] != 1:
            violations.append(f"G7: the fees of {where} were burned {burned[where]} times")
        if minted[mirror(e)] > 1:
            violations.append(f"G7: the fees of {where} were minted {minted[mirror(e)]} times")
    mints: dict[Place, int] = {}
    for e in rows(record, "FeeBurn", "FeeMint"):
        here = place(e) if e.event == "FeeBurn" else mirror(e)
        if e.event == "FeeMint":
            mints[place(e)] = e.amount
        if here not in sent and here[0] not in record.missing:
            violations.append(f"G7: {e.event} of {place(e)} belongs to no request")
        elif here in sent and e.amount != sent[here].dst_fee:
            violations.append(f"G7: {e.event} of {place(e)} is {e.amount}, collected were {sent[here].dst_fee}")
    # What operators have had: fees of own requests that were answered, and of foreign ones that were acknowledged.
    due: Counter[Side] = Counter()
    for e in rows(record, "OutboxMessageResult", "ResponseDeleted"):
        own = sent.get(place(e))
        due[side(e)] += (own.src_fee if own else 0) if e.event == "OutboxMessageResult" else mints.get(place(e), 0)
    paid: Counter[Side] = Counter()
    for e in rows(record, "FeePay"):
        paid[side(e)] += e.amount
    for channel in due.keys() | paid.keys():
        if due[channel] != paid[channel]:
            violations.append(f"G7: the operators of {channel} were paid {paid[channel]}, due were {due[channel]}")
    violations += rewards_are_shared(record)
    return violations + transfers_end_once(record) + conservation(record)


def rewards_are_shared(record: Record) -> list[str]:
    """What is due for a receipt is shared in the same block, by operators who get the same, but for single units."""
    violations = []
    due: Counter[tuple[Chain, int, int | None]] = Counter()
    shares: dict[tuple[Chain, int, int | None], dict[bytes | None, int]] = {}
    for e in rows(record, "FeeShare"):
        shares.setdefault((e.chain, e.block, e.receipt), {})[e.to] = e.amount
    for e in rows(record, "FeePay"):
        due[e.chain, e.block, e.receipt] += e.amount
    for key in due.keys() | shares.keys() if shares else ():
        parts = shares.get(key, {})
        if sum(parts.values()) != due[key]:
            violations.append(f"G7: for {key} were due {due[key]}, shared were {sum(parts.values())}")
        if parts and max(parts.values()) - min(parts.values()) > 1:
            violations.append(f"G7: for {key} operators got {sorted(parts.values())}")
    return violations


def transfers_end_once(record: Record) -> list[str]:
    """What left arrives or comes back, whole and once."""
    violations = []
    left: dict[Place, int] = {}
    ended: Counter[Place] = Counter()
    for e in rows(record, "Transfer"):
        if e.kind == "out":
            left[place(e)] = e.amount
            continue
        origin = place(e) if e.kind == "back" else mirror(e)
        ended[origin] += 1
        if origin[0] not in record.missing and (left.get(origin) != e.amount or ended[origin] > 1):
            violations.append(f"G7: {e.amount} of {origin} ended ({e.kind}), {left.get(origin)} had left")
    return violations


MOVES = {"FeeBurn": 1, "FeeMint": -1, "out": 1, "in": -1, "back": -1}


def conservation(record: Record) -> list[str]:
    """Issuance of all chains + what is on its way + what was burned as protocol fee is the same after every block."""
    if record.missing:
        return []
    away: Counter[int] = Counter()
    left: dict[tuple[bool, Place], int] = {}  # what arrives is what left, whatever was issued for it
    for e in record.events:
        if e.event in ("FeeBurn", "FeeMint", "Transfer"):
            transfer = e.event == "Transfer"
            kind = e.kind or "" if transfer else e.event
            if MOVES[kind] > 0:
                left[transfer, place(e)] = e.amount
            arrived = left.get((transfer, place(e) if kind == "back" else mirror(e)), 0)
            away[e.at] += e.amount if MOVES[kind] > 0 else -arrived
        away[e.at] += e.deposit[2] if e.event == "ChannelClosed" else 0
    total, start = sum(away[at] for at in away if at < min(record.supply, default=0)), None
    for at in sorted(record.supply):
        total += away[at]
        whole = sum(record.supply[at].values()) + total
        if start is None:
            start = whole
        elif whole != start:
            return [f"G7: all value together is {whole} after consensus block {at}, it was {start}"]
    return []


def g8_bookkeeping(record: Record) -> list[str]:
    """A domain's book balance is its issuance at its last confirmed block; what is on its way is recorded once."""
    violations = []
    confirmed: dict[Chain, int] = {}
    for e in rows(record, "Final"):
        confirmed[e.chain] = e.block
        if e.chain != CONSENSUS and record.issuance.get((e.chain, e.block)) != e.amount:
            found = record.issuance.get((e.chain, e.block))
            violations.append(f"G8: domain {e.chain} has {found} at block {e.block}, its book says {e.amount}")
    if record.in_flight is None or record.missing:
        return violations
    expected: Counter[tuple[Chain, Chain]] = Counter()
    for e in rows(record, "FeeBurn", "FeeMint", "Transfer"):
        if e.chain == CONSENSUS or e.block <= confirmed.get(e.chain, 0):
            kind = e.kind if e.event == "Transfer" else e.event
            here, there = (side(e)[0], side(e)[1])
            pair = (there, here) if kind in ("FeeMint", "in") else (here, there)
            expected[pair] += MOVES[kind or ""] * e.amount
    if {pair: amount for pair, amount in expected.items() if amount} != dict(record.in_flight):
        violations.append(f"G8: on their way are {dict(expected)}, the books say {dict(record.in_flight)}")
    return violations


def g9_deposits(record: Record) -> list[str]:
    violations = []
    held: dict[Side, int] = {}
    opened: set[Side] = set()
    for e in rows(record, "ChannelInitiated", "ChannelOpen", "ChannelClosed"):
        where = side(e)
        if e.event == "ChannelInitiated":
            held[where] = e.deposit[0]
        elif e.event == "ChannelOpen":
            opened.add(where)
        else:
            amount = held.pop(where, 0)
            burned = 0 if where in opened else (amount * record.reserve_portion + 49) // 100
            if e.deposit != (0, amount - burned, burned):
                violations.append(f"G9: closing {where} with {amount} held moved {e.deposit}")
    if record.deposits is not None:
        known = {where: amount for where, amount in record.deposits.items() if where[0] not in record.missing}
        if {where: amount for where, amount in held.items() if amount} != known:
            violations.append(f"G9: held should be {held}, held is {known}")
    return violations


def g10_acknowledgement(record: Record) -> list[str]:
    violations = []
    processed: dict[Side, int] = defaultdict(lambda: -1)
    named: dict[Side, int] = defaultdict(lambda: -1)
    for e in rows(record, "OutboxMessage", "OutboxMessageResponse"):
        where = side(e)
        if e.event == "OutboxMessageResponse":
            processed[where] = max(processed[where], e.nonce if e.nonce is not None else -1)
            continue
        last = -1 if e.last_delivered is None else e.last_delivered
        if last < named[where]:
            violations.append(f"G10: {place(e)} names {e.last_delivered} after {named[where]}")
        if last > processed[where]:
            violations.append(f"G10: {place(e)} names {e.last_delivered}, processed is {processed[where]}")
        named[where] = max(named[where], last)
    return violations


ALL = (
    g1_order_and_exactly_once,
    g2_authenticity,
    g3_one_answer,
    g4_finality_first,
    g5_channel_states,
    g6_backpressure,
    g7_fees,
    g8_bookkeeping,
    g9_deposits,
    g10_acknowledgement,
)


def violations(record: Record) -> list[str]:
    """All of them."""
    return [sentence for check in ALL for sentence in check(record)]
