"""What became of every call: the rows of the logs put together by the call they belong to.

A call is named by (caller, callee, callback): the request carries it from caller to callee, the response back. The
queries are SQL that Spark and DataFusion understand alike, over the log tables ``{outbound}`` and ``{events}``: a run
in one process is counted without Spark, by the same rules.

64-bit numbers are moved into the signed range (``_word``), because decimals cost twice the time; order and equality
stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from datafusion import SessionContext

from causeway.model.ledger import Event, Kind, Via

_HALF = "9223372036854775808"
NO_QUEUE = 2**63 - 1
"""The place in an output queue that stands for none, as a word."""

FORGED = 2**63 - 2
"""The one that stands for none because the message is forged."""

FORGED_PLACE = 2**64 - 2
"""The same as an unsigned number; from it on, places stand for none."""

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

SENT_NOW = (
    "(sent_tick = tick and (queue_index < 18446744073709551614 or "
    f"(kind <> {int(Kind.REQUEST)} and queue_index = 18446744073709551615)))"
)
"""Whether a row of ``outbound`` was sent in the tick that committed it. What is marked as forged no program sent, nor a
request that was in no output queue."""

REFUSED_INGRESS = f"(kind = {int(Kind.INGRESS)} and via = {int(Via.INGRESS)} and (events & {int(Event.REJECTED)}) > 0)"
"""Whether a row is a message from a user that came into no queue. One whose handler raised is rejected too, but it had
come in."""

READ = ("tick", "kind", "sender", "receiver", "callback", "queue_index", "code")
OUTBOUND_READ = (*READ, "source", "sent_tick")
EVENTS_READ = (*READ, "chain", "events", "via", "reason")
"""Columns of the log tables that the queries read."""


def _word(name: str) -> str:
    """Return an unsigned 64-bit column as a signed one of the same order."""
    return f"cast(cast({name} as decimal(20,0)) - {_HALF} as bigint)"


def _as_word(value: int) -> int:
    """Return a number as ``_word`` has it."""
    return value - int(_HALF)


def number(name: str) -> str:
    """Return a column that ``_word`` made as the number it was."""
    return f"cast({name} + cast({_HALF} as decimal(20,0)) as decimal(20,0))"


def _bit(*events: Event) -> str:
    return f"(events & {sum(map(int, events))}) > 0"


def _count(condition: str) -> str:
    return f"sum(case when {condition} then 1 else 0 end)"


_WORDS = ", ".join(f"{_word(name)} as {name}" for name in ("sender", "receiver", "callback", "queue_index"))

_MOVES = f"""
select tick, {_WORDS}, cast(source as bigint) as chain, cast(kind as int) as kind, cast(code as smallint) as code,
  case when {SENT_NOW} then {int(Event.SENT | Event.COMMITTED)} else {int(Event.COMMITTED)} end as events,
  {int(Via.NONE)} as via, '' as reason
from {{outbound}}
union all
select tick, {_WORDS}, cast(chain as bigint) as chain, cast(kind as int) as kind, cast(code as smallint) as code,
  cast(events as int) as events, cast(via as int) as via, cast(reason as string) as reason
from {{events}}
"""
"""All rows of the logs, one a message, chain and height, with the set of events; a message in a stream is committed,
and sent when its program sent it just then."""

_REQUEST, _RESPONSE = f"kind = {int(Kind.REQUEST)}", f"kind = {int(Kind.RESPONSE)}"
_SENT = f"{_REQUEST} and {_bit(Event.SENT)}"
_RECEIVED = f"{_REQUEST} and {_bit(Event.RECEIVED)}"
_ENDED = f"{_RESPONSE} and {_bit(Event.RECEIVED)}"
_DROPPED = _bit(Event.DROPPED)
_FORGED = f"(queue_index = {FORGED} or {_REQUEST} and queue_index = {NO_QUEUE})"

_CALLS = f"""
select caller, callee, callback,
  {_count(_SENT)} as sent,
  {_count(f"{_RECEIVED} and via in ({int(Via.LANE)}, {int(Via.LOOPBACK)})")} as delivered,
  {_count(f"{_REQUEST} and {_bit(Event.EXECUTED)}")} as executed,
  {_count(f"{_RESPONSE} and {_bit(Event.SENT, Event.COMMITTED)} and queue_index <> {FORGED}")} as returned,
  {_count(f"{_ENDED} and code = 0")} as answered,
  {_count(f"{_ENDED} and code > 0")} as rejected,
  {_count(_DROPPED)} as dropped,
  {_count(f"{_bit(Event.COMMITTED, Event.DROPPED)} and {_FORGED}")} as forged,
  {_count(_bit(Event.COMMITTED))} as routed,
  min(case when {_SENT} then tick end) as sent_tick,
  min(case when {_RECEIVED} then tick end) as delivered_tick,
  min(case when {_ENDED} then tick end) as ended_tick,
  max(case when {_DROPPED} then tick end) as dropped_tick,
  min(case when {_REQUEST} and {_bit(Event.EXECUTED)} then queue_index end) as place,
  min(case when {_SENT} then chain end) as from_chain,
  min(case when {_RECEIVED} then chain end) as to_chain,
  max(case when {_ENDED} then code end) as code,
  max(case when reason <> '' then reason end) as reason,
  max(case when {_DROPPED} then reason end) as cause
from (
  select *, case when {_REQUEST} then sender else receiver end as caller,
    case when {_REQUEST} then receiver else sender end as callee
  from moves where {_REQUEST} or {_RESPONSE}
) as of_calls
group by caller, callee, callback
"""
"""One row a call.

``sent``, ``delivered``, ``executed``, ``returned``, ``answered``, ``rejected``, ``dropped``, ``forged``, ``routed``:
how often each thing happened to its messages (``returned``: a response was made; ``forged``: dropped with the place
``FORGED``, a request also with ``NO_QUEUE``, by the chain that forged it, before it came into a stream, or committed
with it). ``sent_tick``,
``delivered_tick``, ``ended_tick``: when first; ``dropped_tick``: when last. ``place``: of its request in the callee's
input queue, if the callee has executed it (what is enqueued where the callee does not live is executed by nobody, in
queues of its own). ``from_chain``, ``to_chain``: where it was sent and delivered. ``code``: of its answer. ``reason``:
why it was not served; ``cause``: why a message of it was dropped.
"""

_OUTCOME = """case when answered > 0 then 'answered' when rejected > 0 then 'rejected' when sent = 0 then 'forged'
  when dropped > forged then 'lost' else 'pending' end"""
"""What became of a call: ``answered``, ``rejected``, ``lost``, ``pending`` or, never sent, ``forged``."""

CALLS = f"with moves as ({_MOVES}), calls as ({_CALLS}) select *, {_OUTCOME} as outcome from calls"
"""The query of all calls, with their ``outcome``."""


def summary_query(removed: Mapping[int, int] | None = None) -> str:
    """Return the query of ``COUNTS`` by ``lost_because``, the cause of what was lost, with ``duplicates`` and
    ``messages``; ``summary_of`` adds its rows up.

    ``removed``: programs that the scenario removes -> the tick at which it does.
    """
    looked_at = f"""
select c.*, {_OUTCOME} as outcome, {_least_removed(removed or {})} as removed_at,
  max(case when place is not null then callback end) over (
    partition by caller, callee order by place nulls first rows between unbounded preceding and 1 preceding
  ) as latest_before
from calls as c {_join_removed(removed or {})}
"""
    # A call waits for its callee once that has executed the request and made no response; else a message of it is
    # somewhere. Out of order (G3): in the input queue behind any request that the same caller made later.
    conditions = {
        "sent": "sent > 0",
        "delivered": "delivered > 0",
        "answered": "outcome = 'answered'",
        "rejected": "outcome = 'rejected'",
        "pending": "outcome = 'pending'",
        "on_the_way": "outcome = 'pending' and removed_at is null and not (executed > 0 and returned = 0)",
        "lost": "outcome = 'lost'",
        "lost_with_program": "outcome = 'lost' and removed_at <= dropped_tick",
        "out_of_order": "place is not null and latest_before > callback",
    }
    counts = ", ".join(f"{_count(condition)} as {name}" for name, condition in conditions.items())
    again = "greatest(delivered - 1, 0) + greatest(answered + rejected - 1, 0)"
    return f"""
with moves as ({_MOVES}), calls as ({_CALLS}), looked_at as ({looked_at})
select case when outcome = 'lost' then coalesce(cause, '') end as lost_because, {counts},
  sum({again}) as duplicates, sum(routed) as messages, 0 as ingress_refused
from looked_at group by 1
union all
select null, {", ".join("0" for _ in conditions)}, 0, 0, coalesce({_count(REFUSED_INGRESS)}, 0) from moves
"""


def summary_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return ``COUNTS``, and ``lost_because`` (cause -> calls), from the rows of ``summary_query``."""
    counts = dict.fromkeys(COUNTS, 0)
    causes: dict[str, int] = {}
    for row in rows:
        for name in counts:
            counts[name] += int(row[name] or 0)
        if row["lost_because"] is not None:
            causes[row["lost_because"]] = int(row["lost"])
    return {**counts, "lost_because": causes}


def query_arrow(query: str, outbound: pa.Table, events: pa.Table) -> pa.Table:
    """Return the rows of a query of this module over the log tables of a lake, in this process."""
    context = SessionContext()
    tables = {"outbound": outbound, "events": events}
    for name, table in tables.items():
        context.from_arrow(table, name)
    return context.sql(query.format(**{name: name for name in tables})).to_arrow_table()


def _join_removed(removed: Mapping[int, int]) -> str:
    if not removed:
        return ""
    rows = ", ".join(f"({_as_word(program)}, {tick})" for program, tick in removed.items())
    gone = f"(select * from (values {rows}) as v(program, since))"
    return (
        f"""left join {gone} as one on one.program = c.caller left join {gone} as other on other.program = c.callee"""
    )


def _least_removed(removed: Mapping[int, int]) -> str:
    return "least(one.since, other.since)" if removed else "cast(null as bigint)"
