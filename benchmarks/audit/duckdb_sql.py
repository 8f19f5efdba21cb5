"""The checks of a workload in DuckDB's SQL: one row a message, then windows along each lane."""

from __future__ import annotations

import os
from typing import Any

import duckdb

from benchmarks.audit.workload import ANSWERED_WITHIN, END, FINAL_AFTER, GENESIS, PROTOCOLS

BUCKETED, ARRIVED = "bucketed", "arrived"

_AMOUNT = {
    BUCKETED: "amount_0::hugeint + amount_1::hugeint * 18446744073709551616",
    ARRIVED: "amount::hugeint",
}
_BY = {BUCKETED: "lane, index", ARRIVED: "message_id"}
"""What names a message: lanes have names of their own in this workload."""

_MESSAGES = """
create temp table messages as
with events as (
    select lane, index, message_id, protocol, event, time, payload_hash, {amount} as amount,
        height * 1048576 + position as place
    from read_parquet('{files}')
)
select any_value(lane) as lane, any_value(index) as index, any_value(protocol) as protocol,
    count(*) filter (event = 'sent') as sents,
    count(*) filter (event = 'received') as receives,
    count(*) filter (event = 'acknowledged') as acknowledgements,
    min(time) filter (event = 'sent') as sent,
    min(time) filter (event = 'committed') as committed,
    min(time) filter (event = 'received') as received,
    min(time) filter (event = 'acknowledged') as acknowledged,
    min(place) filter (event = 'sent') as sent_place,
    min(place) filter (event = 'received') as received_place,
    min(place) filter (event = 'acknowledged') as acknowledged_place,
    min(payload_hash) filter (event = 'sent') as content,
    min(payload_hash) filter (event = 'received') as least_content,
    max(payload_hash) filter (event = 'received') as most_content,
    sum(amount) filter (event = 'sent') as amount_sent,
    sum(amount) filter (event = 'received') as amount_received
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
        index - max(case when sents > 0 then index end) over before > 1 and sents > 0 as after_gap
    from marked
    window before as (partition by lane order by index rows between unbounded preceding and 1 preceding)
)
select
    sum(greatest(sents - 1, 0) + greatest(receives - 1, 0)) as exactly_once,
    count(*) filter (differs) + count(*) filter (forged and received <= make_timestamptz({end})) as authenticity,
    count(*) filter (sent_behind) + count(*) filter (in_order and received_behind)
        + count(*) filter (in_order and acknowledged_behind) as order,
    count(*) filter (after_gap) as gaps_unknown,
    count(*) filter (committed < sent) + count(*) filter (received < sent) + count(*) filter (acknowledged < sent)
        + count(*) filter (acknowledged < received) as causality,
    count(*) filter (epoch_us(received) - epoch_us(sent) < {final_after}) as finality,
    count(*) filter (epoch_us(acknowledged) - epoch_us(sent) > {within})
        + count(*) filter (sents > 0 and acknowledgements = 0 and {end} - epoch_us(sent) > {within}) as answers,
    count(*) filter (acknowledgements > 0 and sents = 0) as answers_without_request,
    count(*) filter (forged or (receives > 0 and sents > 0
        and (amount_received != amount_sent or differs))) as conservation
from along
"""

_SUMS = """
select lane, asset, sum(amount) filter (event = 'sent') as sent, sum(amount) filter (event = 'received') as received
from (select lane, asset, event, {amount} as amount from read_parquet('{files}') where asset is not null)
group by lane, asset
"""

_SIDES = """
select lane, event, count(*) as rows, count(payload_hash) as with_content, min(height) as first_height,
    max(height) as last_height, min(time) as first_time, max(time) as last_time
from read_parquet('{files}') group by lane, event
"""


def check(files: str, layout: str, threads: int, folder: str) -> dict[str, Any]:
    """Check rows; return how many findings each check has, and the sum of what was sent and received of everything.

    Args:
        files: a pattern of Parquet files.
        layout: ``BUCKETED`` or ``ARRIVED``.
        threads: how many threads it may use.
        folder: where it puts what does not fit into memory.
    """
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "temp_directory": os.path.join(folder, "duckdb_temp"),
        "memory_limit": "60%",
    }
    database = duckdb.connect(config=config)
    database.execute("set enable_progress_bar = false; set timezone = 'UTC'; set preserve_insertion_order = false")
    given = {"files": files, "amount": _AMOUNT[layout], "by": _BY[layout], "in_order": PROTOCOLS[1]}
    given |= {"end": str(GENESIS + END), "final_after": str(FINAL_AFTER), "within": str(ANSWERED_WITHIN)}
    database.execute(_MESSAGES.format(**given))
    found = database.execute(_LANES.format(**given))
    names = [column[0] for column in found.description]
    (row,) = found.fetchall()
    counts = dict(zip(names, row, strict=True))
    sums = database.execute(_SUMS.format(**given)).fetchall()
    sides = database.execute(_SIDES.format(**given)).fetchall()
    return {
        "counts": {name: int(count) for name, count in counts.items()},
        "sent": str(sum(row[2] or 0 for row in sums)),
        "received": str(sum(row[3] or 0 for row in sums)),
        "rows": sum(row[2] for row in sides),
        "lanes": len({row[0] for row in sides}),
    }
