"""What a run leaves that is no violation of 1.2, and is reported."""

from collections import Counter, defaultdict

from tests.spec.xdm.guarantees import Place, Record, Side, mirror, place, rows, side
from tests.spec.xdm.values import Chain


def waiting_calls(record: Record) -> list[tuple[Chain, bytes | None, int | None]]:
    """Calls of programs that have no answer: at the end of a run that came to rest with open channels, none (L1)."""
    done = {(e.chain, e.by, e.nonce) for e in rows(record, "CallAnswered")}
    return sorted({(e.chain, e.by, e.nonce) for e in rows(record, "CallSent")} - done)


def abandoned(record: Record) -> list[Place]:
    """Close requests that are never answered, since both sides are closed (hazard 14): no user's message is lost."""
    closed = {side(e) for e in rows(record, "ChannelClosed")}
    answered = {place(e) for e in rows(record, "OutboxMessageResult")}
    found = [e for e in rows(record, "OutboxMessage") if e.kind == "close" and place(e) not in answered]
    return sorted(place(e) for e in found if (mirror(e)[0], mirror(e)[1], mirror(e)[2]) in closed)


def leftovers(record: Record) -> list[Place]:
    """Answers at or below one that was deleted, which nobody will delete any more: a hole was met (hazard 21)."""
    gone = {place(e) for e in rows(record, "ResponseDeleted")}
    top: dict[Side, int] = defaultdict(lambda: -1)
    for chain, foreign, channel, nonce in gone:
        top[chain, foreign, channel] = max(top[chain, foreign, channel], nonce)
    stored = {place(e) for e in rows(record, "InboxMessageResponse")}
    return sorted(p for p in stored - gone if p[3] <= top[p[:3]])


def held_fees(record: Record) -> dict[Side, int]:
    """Minted fees that wait for an acknowledgement, which a silent channel never brings (hazard 22): held, not lost."""
    gone = {place(e) for e in rows(record, "ResponseDeleted")}
    held: Counter[Side] = Counter()
    for e in rows(record, "FeeMint"):
        if place(e) not in gone:
            held[side(e)] += e.amount
    return dict(held)
