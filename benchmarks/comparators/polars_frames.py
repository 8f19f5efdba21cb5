"""The round in Polars: lazy queries, one sort of narrow rows, payloads gathered once at the end, Parquet in and out."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.comparators.common import (
    ANSWERED,
    BASE,
    KEYS,
    LOOPBACK,
    MESSAGE,
    METHOD,
    ON_LANE,
    RECEIVED,
    REQUEST,
    RESPONSE,
    SCHEMAS,
    commit,
    leaves_of,
    path,
    roots_of,
    roots_table,
    write,
)


class Polars:
    """As many threads as cores (``POLARS_MAX_THREADS``, set before the library is loaded)."""

    name = "polars"

    def __init__(self, hosts: pa.Table, threads: int) -> None:
        os.environ["POLARS_MAX_THREADS"] = str(threads)
        import polars

        self._pl: Any = polars
        self._threads = threads

    def round(self, before: str, after: str, tick: int) -> None:
        """Do the round."""
        pl = self._pl
        received = self._received(before)
        produced = self._produced(received, before)
        lanes = self._lanes(received, produced, before)
        queues = produced.lazy().group_by("sender", "receiver").agg(rank=pl.col("rank").min(), count=pl.len())
        numbered = (
            produced.lazy()
            .join(
                lanes.lazy().select("source", "destination", "first"),
                on=["source", "destination"],
                maintain_order="left",
            )
            .join(queues, on=["sender", "receiver"], suffix="_queue", maintain_order="left")
            .join(
                pl.scan_parquet(path(before, "output_counters")),
                on=["sender", "receiver"],
                how="left",
                maintain_order="left",
            )
            .with_columns(
                index=pl.col("first") + pl.col("rank"),
                queue_index=pl.col("next_index").fill_null(BASE) + pl.col("rank") - pl.col("rank_queue"),
                substream=pl.lit(0, pl.UInt64),
                sent_tick=pl.lit(tick, pl.UInt64),
            )
            .collect()
        )
        numbered = numbered.with_columns(payload=received["payload"].gather(numbered["row"]))
        outbound = numbered.select(SCHEMAS["outbound"].names)
        is_request = pl.col("kind") == REQUEST
        events = received.with_columns(
            chain="destination",
            events=pl.when(is_request).then(RECEIVED).otherwise(ANSWERED).cast(pl.UInt16),
            via=pl.when(pl.col("source") == pl.col("destination")).then(LOOPBACK).otherwise(ON_LANE).cast(pl.UInt8),
            reason=pl.lit(""),
        ).select(SCHEMAS["events"].names)
        for table, frame in (("outbound", outbound), ("events", events)):
            frame.write_parquet(path(after, table), compression="lz4", statistics=False, row_group_size=len(frame))
        self._counters("input_counters", received, before, after)
        self._counters("output_counters", produced, before, after)
        self._accounts(received, before, after)
        lanes.drop("first", "count").write_parquet(path(after, "lanes"), compression="lz4", statistics=False)
        write(after, "roots", self._roots(outbound, lanes))
        commit(after)

    def _received(self, before: str) -> Any:
        """Number what came in its input queues; it lies in the order of the lanes."""
        pl = self._pl
        frame = (
            pl.scan_parquet(path(before, "outbound"))
            .drop("queue_index", "sent_tick")
            .with_columns(position=pl.int_range(pl.len(), dtype=pl.UInt64).over("receiver", "sender"))
            .join(
                pl.scan_parquet(path(before, "input_counters")),
                on=["receiver", "sender"],
                how="left",
                maintain_order="left",
            )
            .with_columns(queue_index=pl.col("next_index").fill_null(BASE) + pl.col("position"))
            .drop("next_index")
            .collect()
        )
        return frame

    def _produced(self, received: Any, before: str) -> Any:
        """Answer requests, and answers by new requests; sort by lane and queue, and rank in the lane."""
        pl = self._pl
        rows = received.lazy().drop("payload", "index", "queue_index", "substream", "method").with_row_index("row")
        answers = rows.filter(pl.col("kind") == REQUEST).with_columns(
            kind=pl.lit(RESPONSE, pl.UInt8), code=pl.lit(0, pl.UInt8), method=pl.lit("")
        )
        requests = (
            rows.filter(pl.col("kind") == RESPONSE)
            .sort("receiver", "position", "sender")
            .with_columns(callback=pl.int_range(pl.len(), dtype=pl.UInt64).over("receiver"))
            .join(
                pl.scan_parquet(path(before, "accounts")),
                left_on="receiver",
                right_on="program",
                how="left",
                maintain_order="left",
            )
            .with_columns(
                callback=pl.col("next_callback").fill_null(0) + pl.col("callback"),
                kind=pl.lit(REQUEST, pl.UInt8),
                amount_high=pl.lit(0, pl.UInt64),
                amount_low=pl.lit(0, pl.UInt64),
                code=pl.lit(0, pl.UInt8),
                deadline=pl.lit(0, pl.UInt32),
                method=pl.lit(METHOD),
            )
            .drop("next_callback")
        )
        frame = (
            pl.concat([answers, requests])
            .with_columns(sender="receiver", receiver="sender", source="destination", destination="source")
            .sort("destination", "source", "sender", "receiver", "position")
            .with_columns(rank=pl.int_range(pl.len(), dtype=pl.UInt64).over("source", "destination"))
            .collect()
        )
        return frame

    def _lanes(self, received: Any, produced: Any, before: str) -> Any:
        """Return the lanes after the round, with ``first`` and ``count`` of what each stream was given."""
        pl = self._pl
        lanes = pl.read_parquet(path(before, "lanes"))
        arrived = received.group_by(source="destination", destination="source").agg(arrived=pl.len().cast(pl.UInt64))
        sent = produced.group_by("source", "destination").agg(count=pl.len().cast(pl.UInt64))
        keys = pl.concat([frame.select("source", "destination") for frame in (lanes, arrived, sent)]).unique()
        opposite = lanes.select(
            source="destination",
            destination="source",
            opposite_begin=pl.col("begin"),
            opposite_expected=pl.col("expected"),
        )
        joined = keys
        for frame in (lanes, opposite, arrived, sent):
            joined = joined.join(frame, on=["source", "destination"], how="left")
        counters = ["begin", "next_index", "signals_begin", "expected"]
        own = pl.col("source") == pl.col("destination")
        news = pl.col("opposite_expected").is_not_null() & (
            (pl.col("arrived") > 0) | (pl.col("opposite_expected") != pl.col("begin"))
        )
        seen = pl.max_horizontal("signals_begin", "opposite_begin")
        frame = (
            joined.with_columns(pl.col(counters).fill_null(BASE), pl.col("arrived", "count").fill_null(0))
            .select(
                "source",
                "destination",
                begin=pl.when(own).then("next_index").when(news).then("opposite_expected").otherwise("begin"),
                next_index=pl.col("next_index") + pl.col("count"),
                signals_begin=pl.when(own).then("next_index").when(news).then(seen).otherwise("signals_begin"),
                expected=pl.col("expected") + pl.col("arrived"),
                first="next_index",
                count="count",
            )
            .sort("destination", "source")
        )
        return frame

    def _counters(self, table: str, messages: Any, before: str, after: str) -> None:
        pl = self._pl
        keys = list(KEYS[table])
        groups = messages.lazy().group_by(keys)
        (
            pl.scan_parquet(path(before, table))
            .join(groups.agg(count=pl.len().cast(pl.UInt64)), on=keys, how="full", coalesce=True)
            .select(*keys, next_index=pl.col("next_index").fill_null(BASE) + pl.col("count").fill_null(0))
            .collect()
            .write_parquet(path(after, table), compression="lz4", statistics=False)
        )

    def _accounts(self, received: Any, before: str, after: str) -> None:
        pl = self._pl
        calls = received.lazy().filter(pl.col("kind") == RESPONSE).group_by(program="receiver").agg(count=pl.len())
        (
            pl.scan_parquet(path(before, "accounts"))
            .join(calls, on="program", how="left")
            .select("program", next_callback=pl.col("next_callback") + pl.col("count").fill_null(0).cast(pl.UInt64))
            .collect()
            .write_parquet(path(after, "accounts"), compression="lz4", statistics=False)
        )

    def _roots(self, outbound: Any, lanes: Any) -> pa.Table:
        """Hash what is outbound, which lies in the order of its lanes."""
        messages = outbound.select(name for name in MESSAGE if name != "method").to_arrow()
        runs = lanes.filter(self._pl.col("count") > 0).to_arrow()
        leaves = leaves_of(messages, self._threads)
        digests = roots_of(leaves, runs["count"].to_numpy().astype(np.int64), self._threads)
        return roots_table({name: runs[name] for name in ("source", "destination", "first", "count")}, digests)
