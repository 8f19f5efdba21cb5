"""Ledgers by chance that are about value: most amounts are seen, and often add up."""

from __future__ import annotations

from random import Random

from tests.spec.audit.ledger import Row
from tests.support.properties.audit_ledgers import Case, content

LANES = tuple(
    {"protocol": "p", "source": source, "destination": target, "lane": lane}
    for source, target, lane in (("a", "b", "x"), ("b", "a", "x"), ("a", "é:b", None))
)
SMALL = (0, 1, 1, 2, 3, 4)
LARGE = (0, 1, 2**64 - 1, 2**64, 2**255, 2**256 - 2, 2**256 - 1)


def valued_by_chance(random: Random) -> Case:
    """Messages that are sent, received and paid out of, and movements between chains, with few holes."""
    amounts = random.choice((SMALL, SMALL, SMALL, LARGE))
    holes = random.choice((0, 0, 0.03))
    contents = random.choice(((1,), (1, 1, 1, 2), (1, 1, 1, 1, 2, None)))
    rows, value = [], []

    def seen(row: Row, *names: str) -> Row:
        return {name: None if name in names and random.random() < holes else each for name, each in row.items()}

    def at(chain: str) -> Row:
        time = random.randrange(1, 12)
        return seen({"chain": chain, "height": time, "time": time, "position": None}, "chain", "height", "time")

    for lane in random.sample(LANES, random.randrange(1, 4)):
        ends = {"sent": lane["source"], "timed_out": lane["source"], "acknowledged": lane["source"]}
        for index in range(random.randrange(9)):
            by_name = lane["lane"] is None and random.random() < 0.5
            name = {"index": None if by_name else index, "message_id": f"m{index}" if by_name else None}
            sent = random.choice(amounts)
            events = ["sent"] * (random.random() < 0.9) + ["received"] * (random.random() < 0.7)
            events += random.choice(([], [], ["timed_out"], ["acknowledged"], ["received"], ["sent"], ["reverted"]))
            for event in events:
                amount = sent if event == "sent" or random.random() < 0.6 else random.choice(amounts)
                row: Row = {**lane, **name, "kind": "request", "event": event, "asset": "gold", "amount": amount}
                row |= at(ends.get(event, lane["destination"]))  # type: ignore[arg-type]
                row["payload_hash"] = content(random.choice(contents))
                row |= {"detail": random.choice(("sent", "received")) if event == "reverted" else None}
                rows.append(seen(row, "asset", "amount", "payload_hash"))
            for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
                amount = random.choice(amounts)
                out: Row = {"from": "message", "to": random.choice(("relayer", "relayer", "message", "abroad:b"))}
                back: Row = {"from": "relayer", "to": "message"}
                ways: list[Row] = [{**out, "why": "fee"}, {**back, "why": "reverted"}]
                kept = random.choice((ways[:1], ways[:1], ways, ways[1:], [{**out, "why": "reverted"}]))
                asset = random.choice(("gold", "gold", "gold", "gold", "silver"))
                paid = {**lane, **name, "asset": asset, "amount": amount}
                paid |= at(random.choice((lane["source"], lane["destination"])))  # type: ignore[arg-type]
                value += [seen({**paid, **way}, "asset", "amount", "from", "to") for way in kept]
    for _ in range(random.choice((0, 0, 4, 12))):
        chain, other = random.choice((("a", "b"), ("b", "a"), ("a", "b"), ("b", "a"), ("a", "a"), ("b", "é:b")))
        between: Row = {"from": "abroad:" + other, "to": random.choice(("account:1", "message", "abroad:a"))}
        if random.random() < 0.55:
            between = {"from": "account:1", "to": "abroad:" + other}
        moved = {**LANES[0], "index": None, "message_id": None, "why": random.choice(("moved", "reverted")), **between}
        moved |= {"asset": random.choice(("gold", "gold", "silver")), "amount": random.choice(amounts), **at(chain)}
        value.append(seen(moved, "asset", "amount", "from", "to"))
    value += random.sample(value, len(value) // 8)
    return Case(rows, windows(random), promises(random), value=value)


def windows(random: Random) -> list[Row]:
    """Windows of the chains, most of them whole, some with a hole."""
    found = []
    for chain in ("a", "b", "é:b"):
        spans = random.choice(([(1, 12)], [(1, 12)], [(1, 9)], [(1, 4), (7, 12)], [(1, 5), (6, 12)], [(3, 12)], []))
        own = {
            **random.choice(({}, {}, {}, LANES[0])),
            "events": random.choice((None, None, ["sent"], ["value", "sent"])),
        }
        for first, last in spans:
            heights = {"first_height": first, "last_height": last} if random.random() < 0.9 else {}
            times = {"first_time": first, "last_time": last} if random.random() < 0.9 else {}
            found.append({"chain": chain, **own, **heights, **times})
    return found


def promises(random: Random) -> list[Row]:
    some = [{"promise": "conserved"}] if random.random() < 0.8 else [{**LANES[0], "promise": "conserved"}]
    return some + [{"promise": name} for name in ("numbered", "ordered_sends") if random.random() < 0.4]
