"""The checks of a workload in Polars: one row a message, then cumulative maxima along each lane."""

from __future__ import annotations

from typing import Any

import polars as pl

from benchmarks.audit.sql import BUCKETED
from benchmarks.audit.workload import ANSWERED_WITHIN, END, FINAL_AFTER, GENESIS, PROTOCOLS

EVENTS = ("sent", "committed", "received", "acknowledged")


def check(files: str, layout: str, threads: int, folder: str) -> dict[str, Any]:
    """Check rows, as ``sql.check_in_duckdb``; the number of threads is set by ``POLARS_MAX_THREADS``."""
    assert pl.thread_pool_size() == threads, "POLARS_MAX_THREADS was not set in time"
    rows = pl.scan_parquet(files, hive_partitioning=False)
    if layout == BUCKETED:
        amount = pl.col("amount_0").cast(pl.Int128) + pl.col("amount_1").cast(pl.Int128) * 2**64
        by = ["lane", "index"]
    else:
        amount, by = pl.col("amount").cast(pl.Int128), ["message_id"]
    rows = rows.with_columns(
        pl.col("event").cast(pl.String),
        pl.col("lane").cast(pl.String),
        pl.col("protocol").cast(pl.String),
        pl.col("time").dt.epoch("us"),
        value=amount,
        place=pl.col("height").cast(pl.Int64) * 1_048_576 + pl.col("position").cast(pl.Int64),
    )
    messages = _marked(_messages(rows, by).collect(engine="streaming"))
    counts = _along(messages.lazy()).collect(engine="streaming").row(0, named=True)
    of_value = (
        rows.filter(pl.col("asset").is_not_null())
        .group_by("lane", "asset")
        .agg(pl.col("value").filter(pl.col("event") == event).sum().alias(event) for event in ("sent", "received"))
        .collect(engine="streaming")
    )
    sides = (
        rows.group_by("lane", "event")
        .agg(
            pl.len().alias("rows"),
            pl.col("payload_hash").count().alias("with_content"),
            *(pl.col(name).min().alias(f"first_{name}") for name in ("height", "time")),
            *(pl.col(name).max().alias(f"last_{name}") for name in ("height", "time")),
        )
        .collect(engine="streaming")
    )
    return {
        "counts": {name: int(count or 0) for name, count in counts.items()},
        "sent": str(sum(of_value["sent"].to_list())),
        "received": str(sum(of_value["received"].to_list())),
        "rows": int(sides["rows"].sum()),
        "lanes": sides["lane"].n_unique(),
    }


def _messages(rows: pl.LazyFrame, by: list[str]) -> pl.LazyFrame:
    def of(event: str, name: str) -> pl.Expr:
        return pl.when(pl.col("event") == event).then(pl.col(name))

    wide = rows.select(
        *("lane", "index", "protocol"),
        *([] if by[0] == "lane" else by),
        *((pl.col("event") == event).alias(f"is_{event}") for event in EVENTS if event != "committed"),
        *(of(event, "time").alias(event) for event in EVENTS),
        *(of(event, "place").alias(f"{event}_place") for event in EVENTS if event != "committed"),
        *(of(event, "value").alias(f"amount_{event}") for event in ("sent", "received")),
        of("sent", "payload_hash").alias("content"),
        of("received", "payload_hash").alias("received_content"),
    )
    return wide.group_by(by).agg(
        *(pl.col(name).first() for name in ("lane", "index", "protocol") if name not in by),
        pl.col("is_sent").sum().alias("sents"),
        pl.col("is_received").sum().alias("receives"),
        pl.col("is_acknowledged").sum().alias("acknowledgements"),
        *(pl.col(event).min() for event in EVENTS),
        *(pl.col(f"{event}_place").min() for event in EVENTS if event != "committed"),
        *(pl.col(f"amount_{event}").sum() for event in ("sent", "received")),
        pl.col("content").min(),
        pl.col("received_content").min().alias("least_content"),
        pl.col("received_content").max().alias("most_content"),
    )


def _marked(messages: pl.DataFrame) -> pl.DataFrame:
    return messages.with_columns(
        forged=(pl.col("sents") == 0) & (pl.col("receives") > 0),
        both=(pl.col("sents") > 0) & (pl.col("receives") > 0),
        in_order=pl.col("protocol") == PROTOCOLS[1],
    ).with_columns(
        differs=pl.col("both")
        & ((pl.col("least_content") != pl.col("content")) | (pl.col("most_content") != pl.col("content")))
    )


def _along(messages: pl.LazyFrame) -> pl.LazyFrame:
    ordered = messages.sort("lane", "index").with_columns(
        *(
            (pl.col(f"{event}_place").cum_max().forward_fill().shift(1).over("lane") > pl.col(f"{event}_place"))
            .fill_null(False)
            .alias(f"{event}_behind")
            for event in ("sent", "received", "acknowledged")
        ),
        before=pl.when(pl.col("sents") > 0).then(pl.col("index")).forward_fill().shift(1).over("lane"),
    )
    sent, received, acknowledged = pl.col("sent"), pl.col("received"), pl.col("acknowledged")
    again = (pl.col("sents").cast(pl.Int64) - 1).clip(0) + (pl.col("receives").cast(pl.Int64) - 1).clip(0)
    waiting = (pl.col("sents") > 0) & (pl.col("acknowledgements") == 0) & (GENESIS + END - sent > ANSWERED_WITHIN)
    unequal = pl.col("both") & ((pl.col("amount_received") != pl.col("amount_sent")) | pl.col("differs"))
    return ordered.select(
        exactly_once=again.sum(),
        authenticity=(pl.col("differs") | (pl.col("forged") & (received <= GENESIS + END))).sum(),
        order=pl.col("sent_behind").sum()
        + (pl.col("in_order") & pl.col("received_behind")).sum()
        + (pl.col("in_order") & pl.col("acknowledged_behind")).sum(),
        gaps_unknown=((pl.col("sents") > 0) & (pl.col("index") - pl.col("before") > 1)).sum(),
        causality=(pl.col("committed") < sent).sum()
        + (received < sent).sum()
        + (acknowledged < sent).sum()
        + (acknowledged < received).sum(),
        finality=(received - sent < FINAL_AFTER).sum(),
        answers=(acknowledged - sent > ANSWERED_WITHIN).sum() + waiting.sum(),
        answers_without_request=((pl.col("acknowledgements") > 0) & (pl.col("sents") == 0)).sum(),
        conservation=(pl.col("forged") | unequal).sum(),
    )
