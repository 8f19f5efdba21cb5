"""What became of every call, as a Spark query over the rows of the logs, put together by the call they belong to.

A call is named by (caller, callee, callback): the request carries it from caller to callee, the response back. The
query is SQL over the log tables ``{outbound}`` and ``{events}``; its outcomes are those of the ledger
(``ledger.outcomes``), which a test holds equal.

64-bit numbers are moved into the signed range (``_word``), because decimals cost twice the time; order and equality
stay.
"""

from __future__ import annotations

from causeway.model.ledger import Event, Kind, Via

_HALF = "9223372036854775808"
NO_QUEUE = 2**63 - 1
"""The place in an output queue that stands for none, as a word."""

FORGED = 2**63 - 2
"""The one that stands for none because the message is forged."""

SENT_NOW = (
    "(sent_tick = tick and (queue_index < 18446744073709551614 or "
    f"(kind <> {int(Kind.REQUEST)} and queue_index = 18446744073709551615)))"
)
"""Whether a row of ``outbound`` was sent in the tick that committed it. What is marked as forged no program sent, nor a
request that was in no output queue."""


def _word(name: str) -> str:
    """Return an unsigned 64-bit column as a signed one of the same order."""
    return f"cast(cast({name} as decimal(20,0)) - {_HALF} as bigint)"


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
  when dropped > forged then 'dropped' else 'pending' end"""
"""What became of a call: ``answered``, ``rejected``, ``dropped``, ``pending`` or, never sent, ``forged``."""

CALLS = f"with moves as ({_MOVES}), calls as ({_CALLS}) select *, {_OUTCOME} as outcome from calls"
"""The query of all calls, with their ``outcome``."""
