"""The checks of a workload in Spark's SQL, in a session with its defaults: as in ``duckdb_sql``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.audit.duckdb_sql import BUCKETED
from benchmarks.audit.workload import ANSWERED_WITHIN, END, FINAL_AFTER, GENESIS, PROTOCOLS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVENTS = """
select lane, cast(`index` as bigint) as `index`, message_id, protocol, event, unix_micros(time) as time, payload_hash,
    asset, {amount} as amount, cast(height as bigint) as height, time as clock,
    cast(height as bigint) * 1048576 + cast(position as bigint) as place
from parquet.`{files}`
"""

_MESSAGES = """
select any_value(lane) as lane, any_value(`index`) as `index`, any_value(protocol) as protocol,
    count_if(event = 'sent') as sents,
    count_if(event = 'received') as receives,
    count_if(event = 'acknowledged') as acknowledgements,
    min(time) filter (where event = 'sent') as sent,
    min(time) filter (where event = 'committed') as committed,
    min(time) filter (where event = 'received') as received,
    min(time) filter (where event = 'acknowledged') as acknowledged,
    min(place) filter (where event = 'sent') as sent_place,
    min(place) filter (where event = 'received') as received_place,
    min(place) filter (where event = 'acknowledged') as acknowledged_place,
    min(payload_hash) filter (where event = 'sent') as content,
    min(payload_hash) filter (where event = 'received') as least_content,
    max(payload_hash) filter (where event = 'received') as most_content,
    sum(amount) filter (where event = 'sent') as amount_sent,
    sum(amount) filter (where event = 'received') as amount_received
from events group by {by}
"""

_LANES = """
with marked as (
    select *, sents = 0 and receives > 0 as forged,
        receives > 0 and sents > 0 and (least_content != content or most_content != content) as differs,
        protocol = '{in_order}' as in_order
    from messages
), along as (
    select *,
        max(sent_place) over before > sent_place as sent_behind,
        max(received_place) over before > received_place as received_behind,
        max(acknowledged_place) over before > acknowledged_place as acknowledged_behind,
        `index` - max(case when sents > 0 then `index` end) over before > 1 and sents > 0 as after_gap
    from marked
    window before as (partition by lane order by `index` rows between unbounded preceding and 1 preceding)
)
select
    sum(greatest(sents - 1, 0) + greatest(receives - 1, 0)) as exactly_once,
    count_if(differs) + count_if(forged and received <= {end}) as authenticity,
    count_if(sent_behind) + count_if(in_order and received_behind)
        + count_if(in_order and acknowledged_behind) as `order`,
    count_if(after_gap) as gaps_unknown,
    count_if(committed < sent) + count_if(received < sent) + count_if(acknowledged < sent)
        + count_if(acknowledged < received) as causality,
    count_if(received - sent < {final_after}) as finality,
    count_if(acknowledged - sent > {within})
        + count_if(sents > 0 and acknowledgements = 0 and {end} - sent > {within}) as answers,
    count_if(acknowledgements > 0 and sents = 0) as answers_without_request,
    count_if(forged or (receives > 0 and sents > 0
        and (amount_received != amount_sent or differs))) as conservation
from along
"""

_SUMS = """
select lane, asset, sum(amount) filter (where event = 'sent') as sent,
    sum(amount) filter (where event = 'received') as received
from events where asset is not null group by lane, asset
"""

_SIDES = """
select lane, event, count(*) as rows, count(payload_hash) as with_content, min(height) as first_height,
    max(height) as last_height, min(clock) as first_time, max(clock) as last_time
from events group by lane, event
"""


def check(session: SparkSession, files: str, layout: str) -> dict[str, Any]:
    """Check rows; return what ``duckdb_sql.check`` returns.

    Args:
        session: the session; it should have Spark's own settings, and ``spark.sql.session.timeZone`` UTC.
        files: a file or folder of Parquet.
        layout: ``BUCKETED`` or ``ARRIVED``.
    """
    amount = "cast(amount as decimal(38, 0))"
    if layout == BUCKETED:
        amount = "cast(amount_0 + cast(amount_1 as decimal(17, 0)) * 18446744073709551616 as decimal(38, 0))"
    by = "lane, `index`" if layout == BUCKETED else "message_id"
    given = {"in_order": PROTOCOLS[1], "end": GENESIS + END, "final_after": FINAL_AFTER, "within": ANSWERED_WITHIN}
    session.sql(_EVENTS.format(files=files, amount=amount)).createOrReplaceTempView("events")
    session.sql(_MESSAGES.format(by=by)).createOrReplaceTempView("messages")
    (counts,) = session.sql(_LANES.format(**given)).toArrow().to_pylist()
    sums = session.sql(_SUMS).toArrow()
    sides = session.sql(_SIDES).toArrow()
    return {
        "counts": {name: int(count) for name, count in counts.items()},
        "sent": str(sum(int(value or 0) for value in sums["sent"].to_pylist())),
        "received": str(sum(int(value or 0) for value in sums["received"].to_pylist())),
        "rows": sum(sides["rows"].to_pylist()),
        "lanes": len(sides["lane"].unique()),
    }
