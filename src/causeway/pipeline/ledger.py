"""The ledger as a DataFrame: one row a lifecycle event of one message, with names instead of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from causeway.model.ledger import COLLECTED_MESSAGES, NO_CHAIN, REVERTED, Event, Kind, Via
from causeway.pipeline.calls import REFUSED_INGRESS, SENT_NOW
from causeway.pipeline.reverted import Reverted, owner_of

KIND_NAMES = {int(kind): kind.name.lower() for kind in Kind}
VIA_NAMES = {int(via): via.name.lower() for via in Via if via}
_LETTERS = {Kind.INGRESS: "i", Kind.REQUEST: "q", Kind.RESPONSE: "r", Kind.REFUND: "f", Kind.CONTROL: "c"}

_NAMED_LETTERS = {int(kind): letter for kind, letter in _LETTERS.items()}

_LANE = ("source", "destination", "substream", "index")
_ROW = (
    "height", "tick", "chain", "source", "destination", "on_lane", "substream", "index", "events", "kind", "via",
    "sender", "receiver", "callback", "amount_high", "amount_low", "queue_index", "code", "reason",
)  # fmt: skip

LEDGER_COLUMNS: Mapping[str, str] = {
    "protocol": "the protocol of the run",
    "source": "name of the chain that the message comes from; null where the event says nothing about it",
    "destination": "name of the chain that the message goes to; null where the event says nothing about it",
    "lane": "the substream in which it travels; null for events outside a lane",
    "index": "its index in that substream; null for events outside a lane",
    "message_id": "its stable name: `protocol:sender>receiver/class#number`, see below",
    "answers": "for a response, the `message_id` of the request that it answers",
    "kind": "`ingress`, `request`, `response`, `refund` or `control` (a slice of a stream, the removal of a program, "
    "the stop of a chain)",
    "event": "what happened, see below",
    "chain": "name of the chain where it happened",
    "height": "the height that committed it",
    "tick": "the tick of the scenario",
    "time": "the same in seconds since the first tick",
    "sender": "name of the sending program, its number where it has no name, `user/N` for a user",
    "receiver": "name of the receiving program, or its number",
    "payload_hash": "SHA-256 of the payload, hexadecimal, of a message that was in a lane",
    "amount": "value attached to a request or refunded by a response; the balance of a program that is removed: "
    "decimal digits, because 128 bits are more than any number of Spark holds; `cast(amount as decimal(38,0))` adds up "
    "below 10^38",
    "asset": "what `amount` counts: the unit of the protocol",
    "code": "the reject code, 0 when there is none",
    "detail": "the stable name of the reason, cause or error, empty when there is none; of what a fork took back, the "
    "event that it was, and its reason",
    "via": "how it reached its receiver's queue: `lane`, `loopback`, `synthetic`, `ingress`, `timeout`; else null",
    "queue_index": "its index in the queue: the input queue when received or executed, the output queue when sent",
}
"""The columns of the ledger and what they mean."""


def ledger(
    protocol: str,
    asset: str,
    seconds_per_tick: float,
    chains: DataFrame,
    programs: DataFrame,
    logs: Mapping[str, DataFrame],
    entries: DataFrame,
    undone: Reverted | None = None,
) -> DataFrame:
    """Return the ledger over ``logs`` (``outbound``, ``events``, ``collected``).

    ``entries``: the outbound entries in which the messages of ``logs`` are. ``undone``: what forks took back.
    """
    outbound = logs["outbound"]
    messages = _Messages(entries, forks=undone is not None)
    collected = _collected(messages, logs["collected"], logs["events"])
    rows = _committed(outbound).union(_happened(logs["events"])).union(collected)
    rows = messages.beside(rows, _content(messages.entries, messages.forks), "left")
    rows = rows.withColumn("event", F.explode(_event_names())).where(F.col("event").isNotNull())
    if undone is not None:
        rows = _marked(rows, undone)
    named = chains.select("position", "name")
    for column in ("source", "destination", "chain"):
        name = named.select(F.col("position").alias(column), F.col("name").alias(f"{column}_name"))
        rows = rows.join(F.broadcast(name), column, "left")
    for column in ("sender", "receiver"):
        name = programs.select(F.col("number").alias(column), F.col("name").alias(f"{column}_name"))
        rows = rows.join(name, column, "left")
    values = {
        "protocol": F.lit(protocol),
        "source": F.col("source_name"),
        "destination": F.col("destination_name"),
        "lane": F.when(F.col("on_lane"), F.col("substream")),
        "index": F.when(F.col("on_lane"), F.col("index")),
        "message_id": message_id(protocol),
        "answers": F.when(
            F.col("kind") == int(Kind.RESPONSE),
            _named(protocol, "receiver", "sender", F.lit(_LETTERS[Kind.REQUEST])),
        ),
        "kind": _choice(F.col("kind"), KIND_NAMES),
        "chain": F.col("chain_name"),
        "time": F.col("tick").cast("double") * F.lit(seconds_per_tick),
        "sender": F.when(
            F.col("kind") == int(Kind.INGRESS), F.concat(F.lit("user/"), F.col("sender").cast("string"))
        ).when(_of_a_program(), F.coalesce("sender_name", F.col("sender").cast("string"))),
        "receiver": F.when(_of_a_program(), F.coalesce("receiver_name", F.col("receiver").cast("string"))),
        "payload_hash": F.when(F.col("kind") != int(Kind.CONTROL), F.col("payload_hash")),
        "amount": F.when(_carries_value(), digits("amount_high", "amount_low")),
        "asset": F.lit(asset),
        "detail": F.col("reason"),
        "via": _choice(F.col("via"), VIA_NAMES),
        "queue_index": F.when(F.col("queue_index") < F.expr("18446744073709551614BD"), F.col("queue_index")),
    }
    return rows.select(*(values.get(name, F.col(name)).alias(name) for name in LEDGER_COLUMNS))


def _committed(outbound: DataFrame) -> DataFrame:
    """Return a row a message that came into a stream."""
    bits = F.when(F.expr(SENT_NOW), F.lit(int(Event.SENT | Event.COMMITTED))).otherwise(F.lit(int(Event.COMMITTED)))
    return _rows(
        outbound,
        chain=F.col("source"),
        on_lane=F.lit(True),
        events=bits,
        via=F.lit(0).cast("smallint"),
        reason=F.lit(""),
    )


def _happened(events: DataFrame) -> DataFrame:
    """Return a row an event row; what happens to a message on a lane happens where it arrives."""
    on_lane = F.col("source") != NO_CHAIN
    return _rows(
        events.where(~_bit(Event.ACKNOWLEDGED)),
        source=F.when(on_lane, F.col("source")).when(_bit(Event.SENT), F.col("chain")),
        destination=F.when(on_lane, F.col("destination")).when(_bit(Event.RECEIVED), F.col("chain")),
        on_lane=on_lane,
    )


class _Messages:
    """The outbound entries in which messages are. Where chains have forks, there may be several of one index in a lane:
    a row is about the last that was made up to its height."""

    def __init__(self, entries: DataFrame, *, forks: bool) -> None:
        self.forks, self.entries = forks, entries
        if forks:
            later = F.lead("height").over(Window.partitionBy(*_LANE).orderBy("height"))
            self.entries = entries.withColumns({"made": F.col("height"), "until": later})

    def beside(self, rows: DataFrame, content: DataFrame, how: str) -> DataFrame:
        """Return rows (lane, ``index``, ``height``) with columns of the messages that they are about."""
        if not self.forks:
            return rows.join(content, list(_LANE), how)
        named = content
        same = F.col("height") >= F.col("made")
        same &= F.col("until").isNull() | (F.col("height") < F.col("until"))
        for name in _LANE:
            named = named.withColumnRenamed(name, f"of_{name}")
            same &= F.col(name) == F.col(f"of_{name}")
        return rows.join(named, same, how).drop("made", "until", *(f"of_{name}" for name in _LANE))


def spans(session: SparkSession, undone: Reverted) -> DataFrame:
    """Return what forks took back as a small DataFrame: ``of``, ``from_height``, ``to_height``."""
    columns = [pa.array(column) for column in (undone.chains, undone.first, undone.last)]
    return F.broadcast(session.createDataFrame(pa.Table.from_arrays(columns, names=["of", "from_height", "to_height"])))


def taken_back(rows: DataFrame, table: str, undone: Reverted, how: str) -> DataFrame:
    """Return rows of a log joined with what forks took back: ``leftanti`` for those that were not, ``leftsemi`` for
    those that were, ``left`` for all of them."""
    hit = (F.col(owner_of(table)) == F.col("of")) & F.col("height").between(F.col("from_height"), F.col("to_height"))
    return rows.join(spans(rows.sparkSession, undone), hit, how)


def _marked(rows: DataFrame, undone: Reverted) -> DataFrame:
    """Return rows of the ledger with what forks took back called so, whatever it was."""
    rows = taken_back(rows, "events", undone, "left")
    was = F.concat_ws(" ", F.col("event"), F.when(F.col("reason") != "", F.col("reason")))
    hit = F.col("of").isNotNull()
    rows = rows.withColumn("reason", F.when(hit, was).otherwise(F.col("reason")))
    rows = rows.withColumn("event", F.when(hit, F.lit(REVERTED)).otherwise(F.col("event")))
    return rows.drop("of", "from_height", "to_height")


def _collected(messages: _Messages, collected: DataFrame, events: DataFrame) -> DataFrame:
    """Return a row a message that its chain removed from the stream, because the other side has signalled it.

    A message that was rejected has its reason and code in a row of ``events``; the others were accepted.
    """
    lane = ("source", "destination", "substream", "index")
    offsets = F.explode(F.expr("sequence(0L, cast(end - begin - 1 as bigint))")).alias("offset")
    index = (F.col("begin") + F.col("offset")).cast("decimal(20,0)").alias("index")
    ranges = collected.where(F.col("what") == COLLECTED_MESSAGES).select("height", "tick", *lane[:3], "begin", offsets)
    taken = ranges.select("height", "tick", *lane[:3], index)
    place = ("height", *lane)
    signals = events.where(_bit(Event.ACKNOWLEDGED))
    signals = signals.select(*place, F.col("reason").alias("signal"), F.col("code").alias("signal_code"))
    known = messages.beside(taken, messages.entries.drop("height", "tick"), "inner")
    known = known.join(signals, list(place), "left")
    return _rows(
        known,
        chain=F.col("source"),
        on_lane=F.lit(True),
        events=F.lit(int(Event.ACKNOWLEDGED | Event.COLLECTED)),
        via=F.lit(0).cast("smallint"),
        code=F.coalesce("signal_code", "code"),
        reason=F.coalesce("signal", F.lit("")),
    )


def _rows(frame: DataFrame, **given: Column) -> DataFrame:
    return frame.select(*(given.get(name, F.col(name)).alias(name) for name in _ROW))


def _content(entries: DataFrame, forks: bool) -> DataFrame:
    """Return what messages in streams carry, by lane and index."""
    when = ("made", "until") if forks else ()
    return entries.select(*_LANE, *when, F.sha2("payload", 256).alias("payload_hash"))


def digits(high: str, low: str) -> Column:
    """Return the decimal digits of a number of 128 bits, given as two columns of 64.

    Such a number has up to 39 digits and Spark's decimals have 38, so it is made in two pieces, of which the lower has
    ten digits.
    """
    upper = f"cast({high} div 10000000000BD as decimal(10,0))"
    rest = f"({high} % 10000000000BD * 18446744073709551616BD + {low})"
    carried = f"cast(({rest} - {rest} % 10000000000BD) / 10000000000BD as decimal(30,0))"
    first = f"cast({upper} * 18446744073709551616BD + {carried} as decimal(30,0))"
    last = f"lpad(cast(cast({rest} % 10000000000BD as decimal(10,0)) as string), 10, '0')"
    return F.expr(f"case when {high} = 0 then cast({low} as string) else concat(cast({first} as string), {last}) end")


def message_id(protocol: str) -> Column:
    """Return the stable name of what a row is about.

    ``protocol:sender>receiver/class#number``: a message; programs and callbacks are numbers, the class is ``i``
    (ingress), ``q`` (request), ``r`` (response) or ``f`` (refund). ``protocol:user>receiver/i!tick.position``: a
    message from a user that was refused, so that no queue has numbered it; the position, from 1, is among what came to
    the chain in the tick. ``protocol:source>destination/c#height``: a slice of a stream.
    ``protocol:program/c#height``: the end of a program. ``protocol:chain/c#height``: the stop of a chain.
    """
    message = _named(protocol, "sender", "receiver", _choice(F.col("kind"), _NAMED_LETTERS))
    refused = F.format_string(f"{protocol}:%s>%s/i!%s.%s", *map(_digits, ("sender", "receiver", "tick", "index")))
    slice_id = F.format_string(f"{protocol}:%s>%s/c#%s", "source_name", "destination_name", _digits("height"))
    ended = F.format_string(f"{protocol}:%s/c#%s", _digits("receiver"), _digits("height"))
    stop = F.format_string(f"{protocol}:%s/c#%s", "chain_name", _digits("height"))
    return (
        F.when(_of_a_slice(), slice_id)
        .when(_bit(Event.STOPPED), stop)
        .when(F.col("kind") == int(Kind.CONTROL), ended)
        .when(F.expr(REFUSED_INGRESS), refused)
        .otherwise(message)
    )


def _named(protocol: str, sender: str, receiver: str, letter: Column) -> Column:
    return F.format_string(f"{protocol}:%s>%s/%s#%s", _digits(sender), _digits(receiver), letter, _digits("callback"))


def _digits(column: str) -> Column:
    return F.col(column).cast("string")


def _of_a_slice() -> Column:
    """Return whether a row is about a slice: of the control rows, those that name a lane."""
    return (F.col("kind") == int(Kind.CONTROL)) & F.col("on_lane")


def _carries_value() -> Column:
    """Return whether a row is about value: about a request, a response or a refund, or about the end of a program."""
    of_calls = F.col("kind").isin(int(Kind.REQUEST), int(Kind.RESPONSE), int(Kind.REFUND))
    return of_calls | ((F.col("kind") == int(Kind.CONTROL)) & _bit(Event.DROPPED) & ~F.col("on_lane"))


def _of_a_program() -> Column:
    """Return whether a row is about programs: neither about a slice nor about a chain."""
    return ~_of_a_slice() & ~_bit(Event.STOPPED)


def _choice(column: Column, names: Mapping[int, str]) -> Column:
    chosen = F.lit(None).cast("string")
    return reduce(lambda rest, item: F.when(column == item[0], F.lit(item[1])).otherwise(rest), names.items(), chosen)


def _bit(event: Event) -> Column:
    return F.col("events").bitwiseAND(F.lit(int(event))) > 0


def _event_names() -> Column:
    return F.array(*(F.when(_bit(event), F.lit(event.name.lower() if event.name else "")) for event in Event))
