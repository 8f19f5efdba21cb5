"""What rows of ``value`` say: what is paid out of messages, and that no more comes into a chain than left for it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.spec.audit.ledger import EVERY, Finding, Lane, Ledger, Message, Row, lane_of

HOLDER = "message"
"""The holder that a message is: what is paid out of it moves from there."""

ABROAD = "abroad:"
"""The holder that has, on a chain, what left it for another one, whose name follows."""

BACK = "reverted"
"""Why something moves that takes an earlier movement back."""


class Paid(NamedTuple):
    """What was paid out of a message. ``totals``: of each asset, less what was given back; ``seen``: whether all assets
    and amounts are known; ``out``: the rows that pay, ``back``: those that give back."""

    totals: dict[str, int]
    seen: bool
    out: list[Row]
    back: list[Row]

    def of(self, asset: str | None) -> int:
        return 0 if asset is None else self.totals.get(asset, 0)

    def others(self, asset: str | None) -> bool:
        """Whether something of another asset is paid out."""
        return any(total > 0 for name, total in self.totals.items() if name != asset)


def key_of(row: Row) -> tuple[Any, ...] | None:
    """Which message a row is of."""
    if row["index"] is not None:
        return lane_of(row), 0, row["index"]
    return None if row["message_id"] is None else (lane_of(row), 1, row["message_id"])


def key_of_message(message: Message) -> tuple[Any, ...]:
    return (message.lane, 0, message.index) if message.index is not None else (message.lane, 1, message.message_id)


def payments(ledger: Ledger) -> dict[tuple[Any, ...], Paid]:
    """What was paid out of each message."""
    found: dict[tuple[Any, ...], Paid] = {}
    for row in ledger.value:
        out, back = row["from"] == HOLDER and row["why"] != BACK, row["to"] == HOLDER and row["why"] == BACK
        key = key_of(row)
        if key is None or not (out or back):
            continue
        paid = found.get(key, Paid({}, True, [], []))
        (paid.out if out else paid.back).append(row)
        if row["asset"] is None or row["amount"] is None:
            paid = paid._replace(seen=False)
        else:
            paid.totals[row["asset"]] = paid.of(row["asset"]) + (row["amount"] if out else -row["amount"])
        found[key] = paid
    return found


def stands(row: Row) -> tuple[Any, ...]:
    """Order of rows of value of one message: by height, then by time, what was not seen last."""
    place = [(row[name] is None, row[name] or 0) for name in ("height", "time")]
    return (*place, *statement(row))


def statement(row: Row) -> tuple[Any, ...]:
    """Where a row stands in the input."""
    names = ("stated_by", "source_file", "source_row")
    return tuple((row[name] is not None, row[name]) if row[name] is not None else (False,) for name in names)


def payments_covered(ledger: Ledger, sent: Row, receipt: Row) -> bool:
    """Whether no payment can be missing in the input: the last windows of value of both chains, where they have any,
    show all since the sending and the receipt, and that of the source reaches the receipt."""
    for row in (sent, receipt):
        lane = lane_of(row)
        times = ledger.windows(row["chain"], lane, "value", "time")
        if times or ledger.windows(row["chain"], lane, "value", "height"):
            if not ledger.in_last_window(row, lane, "value"):
                return False
            if row is sent and not ledger.reaches(row, lane, "value", receipt["time"]):
                return False
    return True


def paid_of_unsent(ledger: Ledger) -> tuple[int, list[Finding]]:
    """What is paid out of messages that were neither sent nor received, in lanes that promise ``conserved``."""
    shown = {key_of_message(message) for message in ledger.messages if message.has("sent") or message.all("received")}
    examined, found = 0, []
    for key, paid in payments(ledger).items():
        lane = key[0]
        if key in shown or not ledger.promised(lane, "conserved"):
            continue
        examined += 1
        unseen = any(row["asset"] is None or row["amount"] is None for row in paid.out)
        if any(total > 0 for total in paid.totals.values()) or (unseen and not paid.back):
            row = min(paid.out, key=stands)
            verdict, reason = ledger.unsent(lane, row["index"], row["time"])
            reason = "paid_not_sent" if verdict == "violated" else reason
            found.append(Finding("conservation", verdict, reason, lane, row["index"], row["source_row"]))
    return examined, found


class Moved(NamedTuple):
    """A movement to (``left``) or from (not ``left``) those of another chain."""

    chain: str | None
    other: str
    left: bool
    row: Row


def abroad_rows(ledger: Ledger) -> list[Moved]:
    return [
        Moved(row["chain"], row[end].removeprefix(ABROAD), end == "to", row)
        for row in ledger.value
        for end in ("from", "to")
        if row[end] is not None and row[end].startswith(ABROAD)
    ]


def backing(ledger: Ledger) -> tuple[int, list[Finding]]:
    """No more of an asset comes into a chain than left the other chain for it, of each two chains."""
    moved = abroad_rows(ledger)
    placed = [one for one in moved if one.chain is not None]
    nowhere = [one for one in moved if one.chain is None]
    keys = {(*sorted((one.chain, one.other)), one.row["asset"]) for one in placed}  # type: ignore[type-var]
    found = []

    def said(verdict: str, reason: str, names: tuple[str | None, str], rows: list[Row], by: int | None = None) -> None:
        row = max(rows, key=latest)["source_row"]
        found.append(Finding("conservation", verdict, reason, (None, *names, None), None, row, by))

    for one, other, asset in keys:
        pair = [each for each in placed if {each.chain, each.other} == {one, other}]
        own = [each for each in pair if each.row["asset"] == asset]
        away = sum((each.row["amount"] or 0) * (1 if each.left else -1) for each in own)
        unseen = [each.row for each in own if asset is None or each.row["amount"] is None]
        came = [each.row for each in own if not each.left]
        if unseen:
            said("unknown", "amount_unseen", (one, other), unseen)
        elif away < 0 and any(each.row["asset"] is None for each in pair):
            said("unknown", "amount_unseen", (one, other), came)
        elif away < 0:
            ends = ((one, other), (other, one))
            covered = all(departures_covered(ledger, source, target, own) for source, target in ends)
            covered &= not any(each.other in (one, other) for each in nowhere)
            reason = "more_came_than_left" if covered else "departures_not_covered"
            said("violated" if covered else "unknown", reason, (one, other), came, -away)
    lost = {(each.other, each.row["asset"]) for each in nowhere}
    for other, asset in lost:
        own = [each for each in nowhere if (each.other, each.row["asset"]) == (other, asset)]
        said("unknown", "chain_unseen", (None, other), [each.row for each in own])
    return len(keys) + len(lost), found


def departures_covered(ledger: Ledger, source: str | None, target: str | None, rows: list[Moved]) -> bool:
    """Whether all is in the input that left a chain by the time of the last movement from or to it on the other."""
    times = [each.row["time"] for each in rows if each.chain == target and each.other == source]
    end = ledger.all_until(source, EVERY, "value")
    return not times or (None not in times and end is not None and max(times) <= end)


def latest(row: Row) -> tuple[Any, ...]:
    place = [(row[name] is not None, row[name] or 0) for name in ("time", "height", "position")]
    return (*place, row["chain"] or "", *statement(row))


def abroad(ledger: Ledger) -> dict[tuple[str | None, ...], tuple[int, int, int]]:
    """Of each chain, other chain and asset what left for it, what came back, and what is left over of both chains."""
    totals: dict[tuple[str | None, ...], list[int]] = {}
    for one in abroad_rows(ledger):
        total = totals.setdefault((one.chain, one.other, one.row["asset"]), [0, 0])
        total[0 if one.left else 1] += one.row["amount"] or 0
    found: dict[tuple[str | None, ...], tuple[int, int, int]] = {}
    for (chain, other, asset), (left, back) in totals.items():
        away = totals.get((other, chain, asset), [0, 0]) if other != chain else [0, 0]
        found[chain, other, asset] = (left, back, left - back + away[0] - away[1])
    return found


def fees(ledger: Ledger) -> dict[tuple[str | None, ...], int]:
    """Of each lane and asset what was paid out of messages, whether it is promised that value is conserved or not."""
    totals: dict[tuple[str | None, ...], int] = {}
    for key, paid in payments(ledger).items():
        for asset, total in paid.totals.items():
            totals[(*key[0], asset)] = totals.get((*key[0], asset), 0) + total
    return totals


def sums(ledger: Ledger) -> dict[Lane, tuple[int, int, int, int, int]]:
    """Of each lane and asset what was sent, received, refunded, is pending, and was paid out of messages."""
    totals: dict[Lane, list[int]] = {}
    paid_out = payments(ledger)
    for message in ledger.messages:
        receipt, refund = message.counted_receipt, message.refund
        left: dict[str, int] = {}
        for row in [*message.sendings, *(message.all("received") if not message.undone else [])]:
            if row["amount"] is None or row["asset"] is None:
                continue
            total = totals.setdefault((*message.lane, row["asset"]), [0, 0, 0, 0])
            total[row["event"] == "received"] += row["amount"]
            if row["event"] == "sent" and not receipt:
                left[row["asset"]] = left.get(row["asset"], 0) + row["amount"]
        paid = paid_out.get(key_of_message(message))
        for asset, amount in left.items():
            out = paid.of(asset) if paid else 0
            totals[*message.lane, asset][2 if refund or message.undone else 3] += amount - min(max(out, 0), amount)
    out_of = fees(ledger)
    keys = {**totals, **out_of}
    return {key: (*totals.get(key, [0, 0, 0, 0]), out_of.get(key, 0)) for key in keys}  # type: ignore[misc]
