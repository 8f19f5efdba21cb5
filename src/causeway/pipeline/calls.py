"""What became of every call: the ledger's rows put together by the call they belong to.

A call is named by (caller, callee, callback): the request carries it from caller to callee, the response back. 64-bit
numbers are moved into Spark's signed range here (``_word``), because its decimals cost twice the time; order and
equality stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from causeway.model.ledger import Event, Kind, Via
from causeway.pipeline.ledger import refused_ingress, sent_now

_HALF = "9223372036854775808"
NO_QUEUE = 2**63 - 1
"""The place in an output queue that stands for none, as a word."""

COUNTS = {
    "sent": "calls that programs made",
    "delivered": "calls that came into a queue of the program called",
    "answered": "calls that came back with data",
    "rejected": "calls that came back with a reject",
    "pending": "calls that have neither come back nor lost a message",
    "on_the_way": "of the pending: a message of theirs is on its way; the others wait for the program called to answer",
    "lost": "calls that never come back, because a message of theirs was dropped",
    "lost_with_program": "of the lost: one of their two programs had ended, because the scenario removed it",
    "duplicates": "times that a call was delivered or came back once more",
    "out_of_order": "calls executed after one that the same program made later to the same program",
    "messages": "messages between chains",
    "ingress_refused": "messages from users that came into no queue",
}
"""What ``counted`` counts. sent = answered + rejected + pending + lost."""

MOVES = (
    "tick", "chain", "events", "kind", "via", "sender", "receiver", "callback", "queue_index", "code", "reason",
)  # fmt: skip
"""Columns of the rows that calls are made of: one a message, chain and height, with the set of events."""

_WORDS = ("tick", "sender", "receiver", "callback", "queue_index")


def moves(outbound: DataFrame, events: DataFrame) -> DataFrame:
    """Return all rows of the logs as ``MOVES``; a message in a stream is committed, and sent when its program sent it
    just then.
    """
    given = {
        "events": F.when(sent_now(), F.lit(int(Event.SENT | Event.COMMITTED))).otherwise(F.lit(int(Event.COMMITTED))),
        "chain": F.col("source"),
        "via": F.lit(int(Via.NONE)).cast("smallint"),
        "reason": F.lit(""),
    }
    return _moves(outbound, given).union(_moves(events, {}))


def _moves(rows: DataFrame, given: Mapping[str, Column]) -> DataFrame:
    def column(name: str) -> Column:
        if name in given:
            return given[name]
        return _word(name) if name in _WORDS else F.col(name)

    return rows.select(*(column(name).alias(name) for name in MOVES))


def _word(name: str) -> Column:
    """Return an unsigned 64-bit column as a signed one of the same order."""
    return F.expr(f"cast({name} - {_HALF} as bigint)")


def _as_word(value: int) -> int:
    """Return a number as ``_word`` has it."""
    return value - int(_HALF)


def number(name: str) -> Column:
    """Return a column that ``_word`` made as the number it was."""
    return F.expr(f"cast({name} + cast({_HALF} as decimal(20,0)) as decimal(20,0))").alias(name)


def calls(rows: DataFrame) -> DataFrame:
    """Return one row a call, from ``moves``.

    ``sent``, ``delivered``, ``executed``, ``returned``, ``answered``, ``rejected``, ``dropped``, ``forged``,
    ``routed``: how often each thing happened to its messages (``returned``: a response was made). ``sent_tick``,
    ``delivered_tick``, ``ended_tick``: when first; ``dropped_tick``: when last. ``place``: of its request in the
    callee's input queue, if the callee has executed it (what is enqueued where the callee does not live is executed by
    nobody, in queues of its own). ``from_chain``, ``to_chain``: where it was sent and delivered. ``code``: of its
    answer. ``reason``: why it was not served; ``cause``: why a message of it was dropped.
    """
    request = F.col("kind") == int(Kind.REQUEST)
    response = F.col("kind") == int(Kind.RESPONSE)
    rows = rows.where(request | response).withColumns(
        {
            "caller": F.when(request, F.col("sender")).otherwise(F.col("receiver")),
            "callee": F.when(request, F.col("receiver")).otherwise(F.col("sender")),
        }
    )
    sent = request & _bit(Event.SENT)
    received = request & _bit(Event.RECEIVED)
    over_lane = F.col("via").isin(int(Via.LANE), int(Via.LOOPBACK))
    executed = request & _bit(Event.EXECUTED)
    ended = response & _bit(Event.RECEIVED)
    dropped = _bit(Event.DROPPED)
    # Dropped with that place: by the chain that forged it, before it came into a stream.
    forged = request & (_bit(Event.COMMITTED) | dropped) & (F.col("queue_index") == NO_QUEUE)
    return rows.groupBy("caller", "callee", "callback").agg(
        _count(sent).alias("sent"),
        _count(received & over_lane).alias("delivered"),
        _count(executed).alias("executed"),
        _count(response & (_bit(Event.SENT) | _bit(Event.COMMITTED))).alias("returned"),
        _count(ended & (F.col("code") == 0)).alias("answered"),
        _count(ended & (F.col("code") > 0)).alias("rejected"),
        _count(dropped).alias("dropped"),
        _count(forged).alias("forged"),
        _count(_bit(Event.COMMITTED)).alias("routed"),
        F.min(F.when(sent, F.col("tick"))).alias("sent_tick"),
        F.min(F.when(received, F.col("tick"))).alias("delivered_tick"),
        F.min(F.when(ended, F.col("tick"))).alias("ended_tick"),
        F.max(F.when(dropped, F.col("tick"))).alias("dropped_tick"),
        F.min(F.when(executed, F.col("queue_index"))).alias("place"),
        F.min(F.when(sent, F.col("chain"))).alias("from_chain"),
        F.min(F.when(received, F.col("chain"))).alias("to_chain"),
        F.max(F.when(ended, F.col("code"))).alias("code"),
        F.max(F.when(F.col("reason") != "", F.col("reason"))).alias("reason"),
        F.max(F.when(dropped, F.col("reason"))).alias("cause"),
    )


def outcome() -> Column:
    """Return what became of a row of ``calls``: ``answered``, ``rejected``, ``lost``, ``pending`` or, never sent,
    ``forged``.
    """
    return (
        F.when(F.col("answered") > 0, "answered")
        .when(F.col("rejected") > 0, "rejected")
        .when(F.col("sent") == 0, "forged")
        .when(F.col("dropped") > F.col("forged"), "lost")
        .otherwise("pending")
    )


def counted(rows: DataFrame, removed: Mapping[int, int] | None = None) -> DataFrame:
    """Return ``COUNTS`` over ``calls`` (all but ``ingress_refused``) and ``lost_because`` (cause -> calls), as one row.

    ``removed``: programs that the scenario removes -> the tick at which it does.
    """
    queue = Window.partitionBy("caller", "callee").orderBy(F.col("place").asc_nulls_first())
    before = queue.rowsBetween(Window.unboundedPreceding, -1)
    latest_before = F.max(F.when(F.col("place").isNotNull(), F.col("callback"))).over(before)
    rows = _with_removals(rows, removed or {})
    removed_at = F.least("caller_removed", "callee_removed")
    # A call waits for its callee once that has executed the request and made no response; else a message of it is
    # somewhere.
    waiting = (F.col("executed") > 0) & (F.col("returned") == 0)
    looked_at = rows.select(
        "sent",
        "delivered",
        "routed",
        outcome().alias("outcome"),
        F.when(outcome() == "lost", F.coalesce("cause", F.lit(""))).alias("lost_because"),
        ((outcome() == "lost") & (removed_at <= F.col("dropped_tick"))).alias("lost_with_program"),
        ((outcome() == "pending") & removed_at.isNull() & ~waiting).alias("on_the_way"),
        (
            F.greatest(F.col("delivered") - 1, F.lit(0))
            + F.greatest(F.col("answered") + F.col("rejected") - 1, F.lit(0))
        ).alias("again"),
        # Out of order (G3): in the input queue behind any request that the same caller made later.
        (F.col("place").isNotNull() & (latest_before > F.col("callback"))).alias("late"),
    )
    found = F.col("outcome")
    counts = {
        "sent": F.col("sent") > 0,
        "delivered": F.col("delivered") > 0,
        "answered": found == "answered",
        "rejected": found == "rejected",
        "pending": found == "pending",
        "on_the_way": F.col("on_the_way"),
        "lost": found == "lost",
        "lost_with_program": F.col("lost_with_program"),
        "out_of_order": F.col("late"),
    }
    by_cause = looked_at.groupBy("lost_because").agg(
        *(_count(condition).alias(name) for name, condition in counts.items()),
        F.sum("again").alias("duplicates"),
        F.sum("routed").alias("messages"),
    )
    causes = F.collect_list(F.when(F.col("lost_because").isNotNull(), F.struct("lost_because", "lost")))
    sums = [name for name in COUNTS if name in by_cause.columns]
    return by_cause.agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in sums),
        F.map_from_entries(causes).alias("lost_because"),
    )


def _with_removals(rows: DataFrame, removed: Mapping[int, int]) -> DataFrame:
    """Return the rows with ``caller_removed`` and ``callee_removed``: at which tick that was, null if never."""
    ends = ("caller", "callee")
    if not removed:
        return rows.withColumns({f"{end}_removed": F.lit(None).cast("bigint") for end in ends})
    words = [(_as_word(program), _as_word(tick)) for program, tick in removed.items()]
    gone = F.broadcast(rows.sparkSession.createDataFrame(words, "program bigint, tick bigint"))
    for end in ends:
        rows = rows.join(gone.select(F.col("program").alias(end), F.col("tick").alias(f"{end}_removed")), end, "left")
    return rows


def refused(rows: DataFrame) -> DataFrame:
    """Return ``ingress_refused`` over ``moves``, as one row."""
    return rows.agg(F.coalesce(_count(refused_ingress()), F.lit(0)).alias("ingress_refused"))


def _bit(event: Event) -> Column:
    return F.col("events").bitwiseAND(F.lit(int(event))) > 0


def _count(condition: Column) -> Column:
    return F.sum(F.when(condition, 1).otherwise(0))
