"""Events of a bridge from CSV to findings in DuckDB or Polars: ``python -m benchmarks.audit.bridge TOOL FILE THREADS``.

It prints how many findings there are by the reason, as ``causeway audit`` names them.
"""

from __future__ import annotations

import json
import sys

FINAL_AFTER = 1_800

_SQL = """
with events as (
    select * from read_csv('{file}', header = true, all_varchar = true)
), sent as (
    select direction, nonce::ubigint as nonce, token_dst || '/' || beneficiary || '/' || amount as content,
        timestamp::bigint as time, amount::hugeint as amount, count(*) over message as times,
        lag(nonce::ubigint) over (partition by direction order by nonce::ubigint) as before
    from events where side = 'send' window message as (partition by direction, nonce)
), received as (
    select direction, nonce::ubigint as nonce, token_dst || '/' || beneficiary || '/' || amount as content,
        timestamp::bigint as time, amount::hugeint as amount, count(*) over message as times
    from events where side = 'recv' window message as (partition by direction, nonce)
), matched as (
    select sent.direction, sent.nonce, received.nonce as received, sent.content = received.content as same,
        received.time - sent.time as delay, sent.time as sent_time, sent.times + received.times as times,
        sent.nonce is null as unsent, sent.nonce - sent.before > 1 as after_gap,
        received.nonce between first_sent and last_sent as inside
    from sent full join received using (direction, nonce)
    left join (select direction, min(nonce) as first_sent, max(nonce) as last_sent from sent group by direction)
        using (direction)
), ordered as (
    select *, max(sent_time) over (partition by direction order by nonce
        rows between unbounded preceding and 1 preceding) > sent_time as behind
    from matched
)
select count(*) filter (not same) as content_differs,
    count(*) filter (unsent and inside) as missing_in_sequence,
    count(*) filter (received is null or not same) as not_received,
    count(*) filter (same and delay < {final}) as too_early,
    count(*) filter (after_gap) as missing_inside_window,
    count(*) filter (behind) + count(*) filter (times > 2) + count(*) filter (same and delay < 0) as others
from ordered
"""


def duckdb_findings(file: str, threads: int) -> dict[str, int]:
    """Return how many findings there are."""
    import duckdb

    database = duckdb.connect(config={"threads": threads})
    database.execute("set enable_progress_bar = false; set preserve_insertion_order = false")
    found = database.execute(_SQL.format(file=file, final=FINAL_AFTER))
    names = [column[0] for column in found.description]
    (row,) = found.fetchall()
    return {name: int(count) for name, count in zip(names, row, strict=True)}


def polars_findings(file: str, threads: int) -> dict[str, int]:
    """Return how many findings there are; the number of threads is set by ``POLARS_MAX_THREADS``."""
    import polars as pl

    assert pl.thread_pool_size() == threads, "POLARS_MAX_THREADS was not set in time"
    events = pl.scan_csv(file, infer_schema=False).select(
        "direction",
        "side",
        pl.col("nonce").cast(pl.UInt64),
        pl.concat_str("token_dst", "beneficiary", "amount", separator="/").alias("content"),
        pl.col("timestamp").cast(pl.Int64).alias("time"),
        pl.col("amount").cast(pl.Int128),
    )
    by = ["direction", "nonce"]
    sides = {
        side: events.filter(pl.col("side") == side)
        .sort(by)
        .with_columns(again=pl.struct(by).is_duplicated())
        .drop("side")
        .collect()
        for side in ("send", "recv")
    }
    sent = sides["send"].with_columns(
        gap=(pl.col("nonce") - pl.col("nonce").shift(1).over("direction") > 1).fill_null(False),
        behind=(pl.col("time").cum_max().shift(1).over("direction") > pl.col("time")).fill_null(False),
    )
    ends = sent.group_by("direction").agg(pl.col("nonce").min().alias("first"), pl.col("nonce").max().alias("last"))
    both = sent.join(sides["recv"], on=by, suffix="_received")
    unsent = sides["recv"].join(sent, on=by, how="anti").join(ends, on="direction")
    same = both.filter(pl.col("content") == pl.col("content_received"))
    delays = same["time_received"] - same["time"]
    return {
        "content_differs": both.height - same.height,
        "missing_in_sequence": unsent.filter(pl.col("nonce").is_between("first", "last")).height,
        "not_received": sent.height - same.height,
        "too_early": int((delays < FINAL_AFTER).sum()),
        "missing_inside_window": int(sent["gap"].sum()),
        "others": int(sent["behind"].sum())
        + int((delays < 0).sum())
        + sum(int(side["again"].sum()) for side in sides.values()),
    }


def main(arguments: list[str]) -> None:
    """Print the findings as JSON. Arguments: the tool, the file, how many threads."""
    tool, file, threads = arguments
    found = {"duckdb": duckdb_findings, "polars": polars_findings}[tool](file, int(threads))
    print(json.dumps({name: count for name, count in found.items() if count}))


if __name__ == "__main__":
    main(sys.argv[1:])
