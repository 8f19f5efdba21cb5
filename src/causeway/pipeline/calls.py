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
from causeway.pipeline.ledger import sent_now

_HALF = "9223372036854775808"
NO_QUEUE = 2**63 - 1
"""The place in an output queue that stands for none, as a word."""

COUNTS = ("sent", "delivered", "answered", "rejected", "pending", "lost", "duplicates", "out_of_order", "messages")

MOVES = (
    "tick", "chain", "events", "kind", "via", "sender", "receiver", "callback", "queue_index", "code", "reason",
)  # fmt: skip
"""Columns of the rows that calls are made of: one a message, chain and height, with the set of events."""

_WORDS = ("tick", "sender", "receiver", "callback", "queue_index")


def moves(transfers: DataFrame, events: DataFrame) -> DataFrame:
    """Return all rows of the logs as ``MOVES``; a message in a stream is committed, and sent when its program sent it
    just then.
    """
    given = {
        "events": F.when(sent_now(), F.lit(int(Event.SENT | Event.COMMITTED))).otherwise(F.lit(int(Event.COMMITTED))),
        "via": F.lit(int(Via.NONE)).cast("smallint"),
        "reason": F.lit(""),
    }
    return _moves(transfers, given).union(_moves(events, {}))


def _moves(rows: DataFrame, given: Mapping[str, Column]) -> DataFrame:
    def column(name: str) -> Column:
        if name in given:
            return given[name]
        return _word(name) if name in _WORDS else F.col(name)

    return rows.select(*(column(name).alias(name) for name in MOVES))


def _word(name: str) -> Column:
    """Return an unsigned 64-bit column as a signed one of the same order."""
    return F.expr(f"cast({name} - {_HALF} as bigint)")


def number(name: str) -> Column:
    """Return a column that ``_word`` made as the number it was."""
    return F.expr(f"cast({name} + cast({_HALF} as decimal(20,0)) as decimal(20,0))").alias(name)


def calls(rows: DataFrame) -> DataFrame:
    """Return one row a call, from ``moves``.

    ``sent``, ``delivered``, ``answered``, ``rejected``, ``dropped``, ``forged``, ``routed``: how often each thing
    happened to its messages. ``sent_tick``, ``delivered_tick``, ``ended_tick``: when first. ``place``: of its request
    in the callee's input queue. ``from_chain``, ``to_chain``: where it was sent and delivered. ``code``: of its answer.
    ``reason``: why it was not served.
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
    over_lane = F.col("via").isin(int(Via.XNET), int(Via.LOOPBACK))
    ended = response & _bit(Event.RECEIVED)
    forged = request & _bit(Event.COMMITTED) & (F.col("queue_index") == NO_QUEUE)
    return rows.groupBy("caller", "callee", "callback").agg(
        _count(sent).alias("sent"),
        _count(received & over_lane).alias("delivered"),
        _count(ended & (F.col("code") == 0)).alias("answered"),
        _count(ended & (F.col("code") > 0)).alias("rejected"),
        _count(_bit(Event.DROPPED)).alias("dropped"),
        _count(forged).alias("forged"),
        _count(_bit(Event.COMMITTED)).alias("routed"),
        F.min(F.when(sent, F.col("tick"))).alias("sent_tick"),
        F.min(F.when(received, F.col("tick"))).alias("delivered_tick"),
        F.min(F.when(ended, F.col("tick"))).alias("ended_tick"),
        F.min(F.when(received, F.col("queue_index"))).alias("place"),
        F.min(F.when(sent, F.col("chain"))).alias("from_chain"),
        F.min(F.when(received, F.col("chain"))).alias("to_chain"),
        F.max(F.when(ended, F.col("code"))).alias("code"),
        F.max(F.when(F.col("reason") != "", F.col("reason"))).alias("reason"),
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


def counted(rows: DataFrame) -> DataFrame:
    """Return ``COUNTS`` over ``calls``, as one row."""
    pair = Window.partitionBy("caller", "callee").orderBy(F.col("place").asc_nulls_first())
    looked_at = rows.select(
        "sent",
        "delivered",
        "routed",
        outcome().alias("outcome"),
        (
            F.greatest(F.col("delivered") - 1, F.lit(0))
            + F.greatest(F.col("answered") + F.col("rejected") - 1, F.lit(0))
        ).alias("again"),
        # Out of order (G3): in the input queue behind a request that the same caller made later.
        (
            F.col("place").isNotNull()
            & (F.lag("callback").over(pair) > F.col("callback"))
            & F.lag("place").over(pair).isNotNull()
        ).alias("late"),
    )
    found = F.col("outcome")
    counts = {
        "sent": F.col("sent") > 0,
        "delivered": F.col("delivered") > 0,
        "answered": found == "answered",
        "rejected": found == "rejected",
        "pending": found == "pending",
        "lost": found == "lost",
        "out_of_order": F.col("late"),
    }
    return looked_at.agg(
        *(_count(condition).alias(name) for name, condition in counts.items()),
        F.sum("again").alias("duplicates"),
        F.sum("routed").alias("messages"),
    )


def _bit(event: Event) -> Column:
    return F.col("events").bitwiseAND(F.lit(int(event))) > 0


def _count(condition: Column) -> Column:
    return F.sum(F.when(condition, 1).otherwise(0))
