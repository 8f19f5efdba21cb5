"""What the log must say of light clients and of limits: X-1, X-3, X-4, X-11. Each gives its violations as sentences."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.spec.ibc.calls import DISCONNECT
from tests.spec.ibc.errors import SpecError
from tests.spec.ibc.events import (
    Acked,
    Cleaned,
    Frozen,
    HeaderAdded,
    Received,
    Recovered,
    Refused,
    Root,
    Row,
    Sent,
    TimedOut,
)
from tests.spec.ibc.invariants import Packet, Settled, results, table
from tests.spec.ibc.keys import parse
from tests.spec.ibc.options import Options
from tests.spec.ibc.queue import Queue
from tests.spec.ibc.record import Record
from tests.spec.ibc.values import TIMEOUT

Proven = Received | Acked | TimedOut | Cleaned


@dataclass
class Client:
    """A connection as the log tells it: trusted height -> own time when it was added."""

    added: dict[int, int] = field(default_factory=lambda: {0: 0})
    frozen: bool = False


def times(log: Sequence[Row]) -> dict[tuple[str, int], int]:
    """(chain, height) -> time of that block."""
    return {(row.chain, row.height): row.time for row in log if isinstance(row, Root)}


def x3_x4_x11_clients(log: Sequence[Row], options: Options) -> list[str]:
    """Whoever sent was Active; whoever took a proof trusted its header, in its time and after its delay; frozen
    connections do nothing until the zone recovers."""
    wrong, when, clients = [], times(log), dict[tuple[str, str], Client]()
    sent, answered = table(log, Sent), results(log)
    causes: dict[Row, int] = {}
    """The height from which on a header shows what a row was proven with, where it does not say which it was."""
    for packet, row in table(log, Received, of_remote=True).items():
        causes[row] = sent[packet].height if packet in sent else 0
    for packet, row in table(log, Acked).items():
        causes[row] = answered[packet][2] if packet in answered else 0

    def usable(remote: str, height: int, now: int) -> bool:
        return options.unbonding is None or now - when.get((remote, height), now) <= options.unbonding

    for row in log:
        if not isinstance(row, Sent | Proven | HeaderAdded | Frozen | Recovered):
            continue
        client, now = clients.setdefault((row.chain, row.remote), Client()), when[row.chain, row.height]
        what = f"{type(row).__name__} of {row.chain} about {row.remote} at {row.height}"
        if isinstance(row, Recovered):
            clients[row.chain, row.remote] = Client({row.remote_height: now})
            continue
        if isinstance(row, Sent) and row.module == "forged":
            continue
        if client.frozen:
            wrong.append(f"X-3: {what} over a frozen connection")
        if isinstance(row, Frozen):
            client.frozen = True
        elif isinstance(row, Sent) and row.type == DISCONNECT:
            pass  # the zone's own decision, not a module's: it needs no active client
        elif not usable(row.remote, max(client.added), now):
            wrong.append(f"X-11: {what} with an expired client")
        elif isinstance(row, HeaderAdded):
            if row.remote_height in client.added or row.remote_height >= row.height:
                wrong.append(f"X-4: {what}: header {row.remote_height}")
            client.added[row.remote_height] = now
        elif isinstance(row, Proven):
            since = causes.get(row, 0)
            heights = [h for h in client.added if h >= since] if row.proof_height is None else [row.proof_height]
            trusted = [height for height in heights if height in client.added]
            fresh = [height for height in trusted if usable(row.remote, height, now)]
            if not trusted:
                wrong.append(f"X-4: {what} under no trusted header: {row.proof_height}")
            elif not fresh:
                wrong.append(f"X-4: {what} under an expired header: {row.proof_height}")
            elif all(now < client.added[height] + options.delay for height in fresh):
                wrong.append(f"X-11: {what} before the delay of header {row.proof_height}")
    return wrong


def past(row: Sent, height: int, time: int, options: Options) -> bool:
    """D-15."""
    limits = [(height, row.max_height), (time, row.max_time)]
    if options.expiry == "inclusive":
        return any(limit is not None and now >= limit for now, limit in limits)
    return any(limit is not None and now > limit for now, limit in limits)


def x1_limits(log: Sequence[Row], options: Options) -> list[str]:
    """What was executed had not expired, what timed out or got code 2 had; in unordered queues nothing gets it."""
    wrong, when, sent = [], times(log), table(log, Sent)
    for packet, row in table(log, Received, of_remote=True).items():
        if packet not in sent or (row.chain, row.height) not in when:
            continue
        late = past(sent[packet], row.height, when[row.chain, row.height], options)
        if late != (row.code == TIMEOUT) or (late and options.order == "unordered"):
            wrong.append(f"X-1: {packet} was received with code {row.code}, expired: {late}")
    for packet, row in table(log, TimedOut).items():
        height = row.height - 1 if row.proof_height is None else row.proof_height
        time = when.get((packet[1], height))
        if packet in sent and time is not None and not past(sent[packet], height, time, options):
            wrong.append(f"X-1: {packet} timed out before it had expired")
    return wrong


# ---- 1.3


def faulty(log: Sequence[Row]) -> set[Packet]:
    """The packets whose commit or rollback raised: they stay until it does not (3.4)."""
    found = set()
    for row in log:
        if isinstance(row, Refused) and row.error == "HandlerFault":
            try:
                _, _, index = parse(row.key)
            except SpecError:
                continue
            if isinstance(index, int):
                found.add((row.chain, row.remote, index))
    return found


def l1_l2_bounded(record: Record, since: int, healthy: set[tuple[str, str]]) -> list[str]:
    """Nothing that could be brought at height `since` still waits, on the lanes (source, destination) that are healthy
    since then. What was sent is received (L1) whatever its handler did (L2), or timed out; receipts that are written
    are taken, in order as far as none before them is late (X-9) or its reply's handler raises (HandlerFault)."""
    wrong, log, ordered = [], record.log, record.options.order == "ordered"
    done = set(table(log, Settled)) | set(table(log, Received, of_remote=True))
    answered, stuck = results(log), faulty(log)
    for packet, row in table(log, Sent).items():
        if row.height > since or packet[:2] not in healthy:
            continue
        a, b, index = packet
        send, receipts = Queue(record.stores[a], b, "send"), Queue(record.stores[b], a, "receipt")
        waits_for_cleanup = ordered and record.options.cleanup == "off" and send.head() > receipts.tail()
        if packet not in done and packet not in stuck and not waits_for_cleanup:
            wrong.append(f"L1: {packet} of height {row.height} is not received at height {record.height}")
        if send.get(index) is None or (ordered and index != send.head()):
            continue
        written = answered.get(packet)
        if written is not None and written[2] <= since and packet not in stuck:
            wrong.append(f"L1: the receipt for {packet} of height {written[2]} is not taken at height {record.height}")
    return wrong
