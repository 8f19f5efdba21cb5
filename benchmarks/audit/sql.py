"""The checks of a workload in SQL: one row a message, then windows along each lane.

The statements mean the same to DuckDB and to Spark. Each has its own view ``events``: times in microseconds, ``place``
a whole number that grows along a chain.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import duckdb

from benchmarks.audit.workload import ANSWERED_WITHIN, END, FINAL_AFTER, GENESIS, PROTOCOLS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKETED, ARRIVED = "bucketed", "arrived"

_AMOUNT = {
    BUCKETED: "cast(amount_0 as {whole}) + cast(amount_1 as {word}) * 18446744073709551616",
    ARRIVED: "cast(amount as {whole})",
}
_BY = {BUCKETED: "lane, index", ARRIVED: "message_id"}
"""What names a message: lanes have names of their own in this workload."""

_EVENTS = """
create or replace temporary view events as
select lane, cast(index as bigint) as index, message_id, protocol, event, {microseconds}(time) as time, payload_hash,
    asset, cast({amount} as {whole}) as amount, cast(height as bigint) as height,
    cast(height as bigint) * 1048576 + cast(position as bigint) as place
from {files}
"""

_MESSAGES = """
create or replace temporary {kept} messages as
select any_value(lane) as lane, any_value(index) as index, any_value(protocol) as protocol,
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
        index - max(case when sents > 0 then index end) over before > 1 and sents > 0 as after_gap
    from marked
    window before as (partition by lane order by index rows between unbounded preceding and 1 preceding)
)
select
    sum(greatest(sents - 1, 0) + greatest(receives - 1, 0)) as exactly_once,
    count_if(differs) + count_if(forged and received <= {end}) as authenticity,
    count_if(sent_behind) + count_if(in_order and received_behind)
        + count_if(in_order and acknowledged_behind) as order,
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
    max(height) as last_height, min(time) as first_time, max(time) as last_time
from events group by lane, event
"""


def check_in_duckdb(files: str, layout: str, threads: int, folder: str) -> dict[str, Any]:
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

    def run(statement: str) -> list[dict[str, Any]]:
        found = database.execute(statement)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    types = {"whole": "hugeint", "word": "hugeint", "microseconds": "epoch_us", "kept": "table"}
    return _check(run, layout, {"files": f"read_parquet('{files}')", **types})


def check_in_spark(session: SparkSession, files: str, layout: str) -> dict[str, Any]:
    """Check rows; return what ``check_in_duckdb`` returns.

    Args:
        session: the session; it should have Spark's own settings, and ``spark.sql.session.timeZone`` UTC.
        files: a file or folder of Parquet.
        layout: ``BUCKETED`` or ``ARRIVED``.
    """

    def run(statement: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = session.sql(statement).toArrow().to_pylist()
        return rows

    # A product of two decimals has the digits of both: of 38, this leaves 18 for the upper word.
    types = {"whole": "decimal(38, 0)", "word": "decimal(17, 0)", "microseconds": "unix_micros", "kept": "view"}
    return _check(run, layout, {"files": f"parquet.`{files}`", **types})


def _check(run: Callable[[str], list[dict[str, Any]]], layout: str, dialect: dict[str, str]) -> dict[str, Any]:
    run(_EVENTS.format(amount=_AMOUNT[layout].format(**dialect), **dialect))
    run(_MESSAGES.format(by=_BY[layout], **dialect))
    bounds = {"in_order": PROTOCOLS[1], "end": GENESIS + END, "final_after": FINAL_AFTER, "within": ANSWERED_WITHIN}
    (counts,) = run(_LANES.format(**bounds))
    sums, sides = run(_SUMS), run(_SIDES)
    return {
        "counts": {name: int(count) for name, count in counts.items()},
        "sent": str(sum(int(row["sent"] or 0) for row in sums)),
        "received": str(sum(int(row["received"] or 0) for row in sums)),
        "rows": sum(row["rows"] for row in sides),
        "lanes": len({row["lane"] for row in sides}),
    }
