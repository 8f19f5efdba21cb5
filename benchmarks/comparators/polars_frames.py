"""The round in Polars: lazy queries, one sort of narrow rows, payloads gathered once at the end, Parquet in and out."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.comparators.common import (
    ANSWERED,
    BASE,
    LOOPBACK,
    MESSAGE,
    METHOD,
    RECEIVED,
    REQUEST,
    RESPONSE,
    SCHEMAS,
    XNET,
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
            .join(lanes.lazy().select("chain", "remote", "first"), on=["chain", "remote"], maintain_order="left")
            .join(queues, on=["sender", "receiver"], suffix="_queue", maintain_order="left")
            .join(
                pl.scan_parquet(path(before, "output_counters")),
                left_on=["sender", "receiver"],
                right_on=["first", "second"],
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
        transfers = numbered.select(SCHEMAS["transfers"].names)
        is_request = pl.col("kind") == REQUEST
        events = received.with_columns(
            chain="remote",
            remote="chain",
            events=pl.when(is_request).then(RECEIVED).otherwise(ANSWERED).cast(pl.UInt16),
            via=pl.when(pl.col("chain") == pl.col("remote")).then(LOOPBACK).otherwise(XNET).cast(pl.UInt8),
            reason=pl.lit(""),
        ).select(SCHEMAS["events"].names)
        for table, frame in (("transfers", transfers), ("events", events)):
            frame.write_parquet(path(after, table), compression="lz4", statistics=False, row_group_size=len(frame))
        self._counters("input_counters", received.lazy().group_by(first="receiver", second="sender"), before, after)
        self._counters("output_counters", produced.lazy().group_by(first="sender", second="receiver"), before, after)
        self._accounts(received, before, after)
        lanes.drop("first", "count").write_parquet(path(after, "lanes"), compression="lz4", statistics=False)
        write(after, "roots", self._roots(transfers, lanes))
        commit(after)

    def _received(self, before: str) -> Any:
        """Number the transfers in their input queues; they lie in the order of their lanes."""
        pl = self._pl
        frame = (
            pl.scan_parquet(path(before, "transfers"))
            .drop("queue_index", "sent_tick")
            .with_columns(place=pl.int_range(pl.len(), dtype=pl.UInt64).over("receiver", "sender"))
            .join(
                pl.scan_parquet(path(before, "input_counters")),
                left_on=["receiver", "sender"],
                right_on=["first", "second"],
                how="left",
                maintain_order="left",
            )
            .with_columns(queue_index=pl.col("next_index").fill_null(BASE) + pl.col("place"))
            .drop("next_index")
            .collect()
        )
        return frame

    def _produced(self, received: Any, before: str) -> Any:
        """Answer requests, and answers by new requests; sort by lane, sender, receiver, place, and rank in the lane."""
        pl = self._pl
        rows = received.lazy().drop("payload", "index", "queue_index", "substream", "method").with_row_index("row")
        answers = rows.filter(pl.col("kind") == REQUEST).with_columns(
            kind=pl.lit(RESPONSE, pl.UInt8), code=pl.lit(0, pl.UInt8), method=pl.lit("")
        )
        requests = (
            rows.filter(pl.col("kind") == RESPONSE)
            .sort("receiver", "place", "sender")
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
            .with_columns(sender="receiver", receiver="sender", chain="remote", remote="chain")
            .sort("remote", "chain", "sender", "receiver", "place")
            .with_columns(rank=pl.int_range(pl.len(), dtype=pl.UInt64).over("chain", "remote"))
            .collect()
        )
        return frame

    def _lanes(self, received: Any, produced: Any, before: str) -> Any:
        """Return the lanes after the round, with ``first`` and ``count`` of what each stream was given."""
        pl = self._pl
        lanes = pl.read_parquet(path(before, "lanes"))
        arrived = received.group_by(chain="remote", remote="chain").agg(arrived=pl.len().cast(pl.UInt64))
        sent = produced.group_by("chain", "remote").agg(count=pl.len().cast(pl.UInt64))
        keys = pl.concat([frame.select("chain", "remote") for frame in (lanes, arrived, sent)]).unique()
        offered = lanes.select(
            chain="remote", remote="chain", offered_begin=pl.col("begin"), offered_expected=pl.col("expected")
        )
        joined = keys
        for frame in (lanes, offered, arrived, sent):
            joined = joined.join(frame, on=["chain", "remote"], how="left")
        counters = ["begin", "next_index", "signals_begin", "expected"]
        own = pl.col("chain") == pl.col("remote")
        news = pl.col("offered_expected").is_not_null() & (
            (pl.col("arrived") > 0) | (pl.col("offered_expected") != pl.col("begin"))
        )
        seen = pl.max_horizontal("signals_begin", "offered_begin")
        frame = (
            joined.with_columns(pl.col(counters).fill_null(BASE), pl.col("arrived", "count").fill_null(0))
            .select(
                "chain",
                "remote",
                begin=pl.when(own).then("next_index").when(news).then("offered_expected").otherwise("begin"),
                next_index=pl.col("next_index") + pl.col("count"),
                signals_begin=pl.when(own).then("next_index").when(news).then(seen).otherwise("signals_begin"),
                expected=pl.col("expected") + pl.col("arrived"),
                first="next_index",
                count="count",
            )
            .sort("remote", "chain")
        )
        return frame

    def _counters(self, table: str, groups: Any, before: str, after: str) -> None:
        pl = self._pl
        keys = ["first", "second"]
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

    def _roots(self, transfers: Any, lanes: Any) -> pa.Table:
        """Hash the transfers, which lie in the order of their lanes."""
        messages = transfers.select(name for name in MESSAGE if name != "method").to_arrow()
        runs = lanes.filter(self._pl.col("count") > 0).to_arrow()
        leaves = leaves_of(messages, self._threads)
        digests = roots_of(leaves, runs["count"].to_numpy().astype(np.int64), self._threads)
        return roots_table({name: runs[name] for name in ("chain", "remote", "first", "count")}, digests)
