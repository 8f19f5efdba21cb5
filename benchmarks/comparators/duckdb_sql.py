"""The round in DuckDB: window functions over narrow rows, hash joins for counters, Parquet in and out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.comparators.common import (
    ANSWERED,
    BASE,
    LOOPBACK,
    METHOD,
    ON_LANE,
    RECEIVED,
    REQUEST,
    RESPONSE,
    TABLES,
    commit,
    leaves_of,
    path,
    roots_of,
    roots_table,
    write,
)

ARRIVED = """
CREATE OR REPLACE TEMP TABLE received AS
SELECT t.* EXCLUDE (queue_index, sent_tick),
       row_number() OVER (PARTITION BY receiver, sender ORDER BY index) - 1 AS position
FROM read_parquet($outbound) t
"""
"""``position``: in the input queue, which the round before has emptied."""

PRODUCED = f"""
CREATE OR REPLACE TEMP TABLE produced AS
SELECT {RESPONSE} AS kind, receiver AS sender, sender AS receiver, callback, amount_high, amount_low, 0 AS code,
       deadline, '' AS method, payload, position
FROM received WHERE kind = {REQUEST}
UNION ALL
SELECT {REQUEST}, r.receiver, r.sender,
       coalesce(c.next_callback, 0) + row_number() OVER (PARTITION BY r.receiver ORDER BY r.position, r.sender) - 1,
       0, 0, 0, 0, '{METHOD}', r.payload, r.position
FROM received r LEFT JOIN read_parquet($accounts) c ON c.program = r.receiver
WHERE r.kind = {RESPONSE}
"""
"""Requests are answered with what came, answers are followed by new requests, numbered in the order of consumption."""

ROUTED = """
CREATE OR REPLACE TEMP TABLE routed AS
SELECT own.chain AS source, away.chain AS destination, p.*,
       row_number() OVER (PARTITION BY own.chain, away.chain ORDER BY p.sender, p.receiver, p.position) - 1 AS rank
FROM produced p JOIN hosts own ON own.program = p.sender JOIN hosts away ON away.program = p.receiver
"""

QUEUES = """
CREATE OR REPLACE TEMP TABLE queues AS
SELECT sender, receiver, min(rank) AS rank, count(*) AS count FROM routed GROUP BY sender, receiver
"""

LANES = f"""
CREATE OR REPLACE TEMP TABLE lanes_after AS
WITH arrived AS (SELECT source AS destination, destination AS source, count(*) AS count FROM received GROUP BY ALL),
     sent AS (SELECT source, destination, count(*) AS count FROM routed GROUP BY ALL),
     keys AS (SELECT source, destination FROM lanes UNION SELECT source, destination FROM arrived
              UNION SELECT source, destination FROM sent),
     joined AS (
       SELECT k.source, k.destination, coalesce(l.begin, {BASE}) AS begin, coalesce(l.next_index, {BASE}) AS next_index,
              coalesce(l.signals_begin, {BASE}) AS signals_begin, coalesce(l.expected, {BASE}) AS expected,
              o.begin AS opposite_begin, o.expected AS opposite_expected,
              coalesce(a.count, 0) AS arrived, coalesce(s.count, 0) AS sent
       FROM keys k LEFT JOIN lanes l USING (source, destination)
       LEFT JOIN lanes o ON o.source = k.destination AND o.destination = k.source
       LEFT JOIN arrived a ON a.source = k.source AND a.destination = k.destination
       LEFT JOIN sent s ON s.source = k.source AND s.destination = k.destination),
     seen AS (SELECT *, source <> destination AND (arrived > 0 OR coalesce(opposite_expected <> begin, false)) AS news
                FROM joined)
SELECT source, destination,
       CASE WHEN source = destination THEN next_index WHEN news THEN opposite_expected ELSE begin END AS begin,
       next_index + sent AS next_index,
       CASE WHEN source = destination THEN next_index
            WHEN news THEN greatest(signals_begin, opposite_begin) ELSE signals_begin END AS signals_begin,
       expected + arrived AS expected, next_index AS first, sent
FROM seen
"""

COPIES = {
    "outbound": f"""
SELECT r.source::UINTEGER AS source, r.destination::UINTEGER AS destination, 0::UBIGINT AS substream,
       (l.first + r.rank)::UBIGINT AS index, r.kind::UTINYINT AS kind, r.sender, r.receiver,
       r.callback::UBIGINT AS callback, r.amount_high::UBIGINT AS amount_high, r.amount_low::UBIGINT AS amount_low,
       r.code::UTINYINT AS code, r.deadline::UINTEGER AS deadline, r.method, r.payload,
       (coalesce(c.next_index, {BASE}) + r.rank - q.rank)::UBIGINT AS queue_index, $tick::UBIGINT AS sent_tick
FROM routed r JOIN lanes_after l ON l.source = r.source AND l.destination = r.destination
JOIN queues q ON q.sender = r.sender AND q.receiver = r.receiver
LEFT JOIN read_parquet($output_counters) c ON c.sender = r.sender AND c.receiver = r.receiver""",
    "events": f"""
SELECT r.destination AS chain,
       (CASE WHEN r.kind = {REQUEST} THEN {RECEIVED} ELSE {ANSWERED} END)::USMALLINT AS events, r.kind,
       (CASE WHEN r.source = r.destination THEN {LOOPBACK} ELSE {ON_LANE} END)::UTINYINT AS via,
       r.source, r.destination, r.substream, r.index, r.sender, r.receiver, r.callback,
       (coalesce(c.next_index, {BASE}) + r.position)::UBIGINT AS queue_index, r.code, '' AS reason
FROM received r LEFT JOIN read_parquet($input_counters) c ON c.receiver = r.receiver AND c.sender = r.sender""",
    "input_counters": f"""
SELECT coalesce(c.receiver, q.receiver) AS receiver, coalesce(c.sender, q.sender) AS sender,
       (coalesce(c.next_index, {BASE}) + coalesce(q.count, 0))::UBIGINT AS next_index
FROM read_parquet($input_counters) c
FULL JOIN (SELECT receiver, sender, count(*) AS count FROM received GROUP BY ALL) q
  ON q.receiver = c.receiver AND q.sender = c.sender""",
    "output_counters": f"""
SELECT coalesce(c.sender, q.sender) AS sender, coalesce(c.receiver, q.receiver) AS receiver,
       (coalesce(c.next_index, {BASE}) + coalesce(q.count, 0))::UBIGINT AS next_index
FROM read_parquet($output_counters) c FULL JOIN queues q ON q.sender = c.sender AND q.receiver = c.receiver""",
    "accounts": f"""
SELECT c.program, (c.next_callback + coalesce(q.count, 0))::UBIGINT AS next_callback
FROM read_parquet($accounts) c
LEFT JOIN (SELECT receiver, count(*) AS count FROM received WHERE kind = {RESPONSE} GROUP BY ALL) q
  ON q.receiver = c.program""",
    "lanes": """
SELECT source::UINTEGER AS source, destination::UINTEGER AS destination, begin::UBIGINT AS begin,
       next_index::UBIGINT AS next_index, signals_begin::UBIGINT AS signals_begin, expected::UBIGINT AS expected
FROM lanes_after""",
}

TO_HASH = """
SELECT r.kind::UTINYINT AS kind, r.sender, r.receiver, r.callback::UBIGINT AS callback,
       r.amount_high::UBIGINT AS amount_high, r.amount_low::UBIGINT AS amount_low, r.code::UTINYINT AS code,
       r.deadline::UINTEGER AS deadline, r.payload, (s.start + r.rank)::UBIGINT AS row
FROM routed r JOIN starts s ON s.source = r.source AND s.destination = r.destination
"""


class DuckDb:
    """One connection over all rounds, as many threads as cores."""

    name = "duckdb"

    def __init__(self, hosts: pa.Table, threads: int) -> None:
        import duckdb

        self._threads = threads
        self._connection = duckdb.connect()
        self._connection.execute(f"SET threads = {threads}")
        # No result depends on the order of rows, which is then not kept.
        self._connection.execute("SET preserve_insertion_order = false")
        self._connection.register("hosts_arrow", hosts)
        self._connection.execute("CREATE TABLE hosts AS SELECT * FROM hosts_arrow")

    def round(self, before: str, after: str, tick: int) -> None:
        """Do the round."""
        files = {name: path(before, name) for name in TABLES}
        self._run(ARRIVED, files)
        self._run(PRODUCED, files)
        self._run(ROUTED, files)
        self._run(QUEUES, files)
        self._run("CREATE OR REPLACE TEMP TABLE lanes AS SELECT * FROM read_parquet($lanes)", files)
        self._run(LANES, files)
        for table, query in COPIES.items():
            query = query.replace("$tick", str(tick))
            self._run(f"COPY ({query}) TO '{path(after, table)}' (FORMAT parquet, COMPRESSION lz4_raw)", files)
        write(after, "roots", self._roots())
        commit(after)

    def _run(self, query: str, files: dict[str, str]) -> Any:
        for name, file in files.items():
            query = query.replace(f"${name})", f"'{file}')")
        return self._connection.execute(query)

    def _roots(self) -> pa.Table:
        """Hash in whatever order the rows come, and put the leaves, not the messages, in order."""
        runs = self._connection.sql(
            "SELECT source::UINTEGER AS source, destination::UINTEGER AS destination, first::UBIGINT AS first, "
            "sent::UBIGINT AS count, "
            "(sum(sent) OVER (ORDER BY source, destination) - sent)::UBIGINT AS start "
            "FROM lanes_after WHERE sent > 0 ORDER BY source, destination"
        ).to_arrow_table()
        self._connection.register("starts", runs)
        messages = self._connection.sql(TO_HASH).to_arrow_table()
        leaves = leaves_of(messages, self._threads)
        ordered = np.empty_like(leaves)
        ordered[messages["row"].to_numpy()] = leaves
        digests = roots_of(ordered, runs["count"].to_numpy().astype(np.int64), self._threads)
        return roots_table({name: runs[name] for name in ("source", "destination", "first", "count")}, digests)
