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
    RECEIVED,
    REQUEST,
    RESPONSE,
    XNET,
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
       row_number() OVER (PARTITION BY receiver, sender ORDER BY index) - 1 AS place
FROM read_parquet($transfers) t
"""
"""``place``: in the input queue, which the round before has emptied."""

PRODUCED = f"""
CREATE OR REPLACE TEMP TABLE produced AS
SELECT {RESPONSE} AS kind, receiver AS sender, sender AS receiver, callback, amount_high, amount_low, 0 AS code,
       deadline, '' AS method, payload, place
FROM received WHERE kind = {REQUEST}
UNION ALL
SELECT {REQUEST}, r.receiver, r.sender,
       coalesce(c.next_callback, 0) + row_number() OVER (PARTITION BY r.receiver ORDER BY r.place, r.sender) - 1,
       0, 0, 0, 0, '{METHOD}', r.payload, r.place
FROM received r LEFT JOIN read_parquet($accounts) c ON c.program = r.receiver
WHERE r.kind = {RESPONSE}
"""
"""Requests are answered with what came, answers are followed by new requests, numbered in the order of consumption."""

ROUTED = """
CREATE OR REPLACE TEMP TABLE routed AS
SELECT own.chain AS chain, away.chain AS remote, p.*,
       row_number() OVER (PARTITION BY own.chain, away.chain ORDER BY p.sender, p.receiver, p.place) - 1 AS rank
FROM produced p JOIN hosts own ON own.program = p.sender JOIN hosts away ON away.program = p.receiver
"""

QUEUES = """
CREATE OR REPLACE TEMP TABLE queues AS
SELECT sender, receiver, min(rank) AS rank, count(*) AS count FROM routed GROUP BY sender, receiver
"""

LANES = f"""
CREATE OR REPLACE TEMP TABLE lanes_after AS
WITH arrived AS (SELECT remote AS chain, chain AS remote, count(*) AS count FROM received GROUP BY ALL),
     sent AS (SELECT chain, remote, count(*) AS count FROM routed GROUP BY ALL),
     keys AS (SELECT chain, remote FROM lanes UNION SELECT chain, remote FROM arrived
              UNION SELECT chain, remote FROM sent),
     joined AS (
       SELECT k.chain, k.remote, coalesce(l.begin, {BASE}) AS begin, coalesce(l.next_index, {BASE}) AS next_index,
              coalesce(l.signals_begin, {BASE}) AS signals_begin, coalesce(l.expected, {BASE}) AS expected,
              o.begin AS offered_begin, o.expected AS offered_expected,
              coalesce(a.count, 0) AS arrived, coalesce(s.count, 0) AS sent
       FROM keys k LEFT JOIN lanes l USING (chain, remote)
       LEFT JOIN lanes o ON o.chain = k.remote AND o.remote = k.chain
       LEFT JOIN arrived a ON a.chain = k.chain AND a.remote = k.remote
       LEFT JOIN sent s ON s.chain = k.chain AND s.remote = k.remote),
     judged AS (SELECT *, chain <> remote AND (arrived > 0 OR coalesce(offered_expected <> begin, false)) AS news
                FROM joined)
SELECT chain, remote,
       CASE WHEN chain = remote THEN next_index WHEN news THEN offered_expected ELSE begin END AS begin,
       next_index + sent AS next_index,
       CASE WHEN chain = remote THEN next_index
            WHEN news THEN greatest(signals_begin, offered_begin) ELSE signals_begin END AS signals_begin,
       expected + arrived AS expected, next_index AS first, sent
FROM judged
"""

COPIES = {
    "transfers": f"""
SELECT r.chain::UINTEGER AS chain, r.remote::UINTEGER AS remote, 0::UBIGINT AS substream,
       (l.first + r.rank)::UBIGINT AS index, r.kind::UTINYINT AS kind, r.sender, r.receiver,
       r.callback::UBIGINT AS callback, r.amount_high::UBIGINT AS amount_high, r.amount_low::UBIGINT AS amount_low,
       r.code::UTINYINT AS code, r.deadline::UINTEGER AS deadline, r.method, r.payload,
       (coalesce(c.next_index, {BASE}) + r.rank - q.rank)::UBIGINT AS queue_index, $tick::UBIGINT AS sent_tick
FROM routed r JOIN lanes_after l ON l.chain = r.chain AND l.remote = r.remote
JOIN queues q ON q.sender = r.sender AND q.receiver = r.receiver
LEFT JOIN read_parquet($output_counters) c ON c.first = r.sender AND c.second = r.receiver""",
    "events": f"""
SELECT r.remote AS chain, (CASE WHEN r.kind = {REQUEST} THEN {RECEIVED} ELSE {ANSWERED} END)::USMALLINT AS events,
       r.kind,
       (CASE WHEN r.chain = r.remote THEN {LOOPBACK} ELSE {XNET} END)::UTINYINT AS via, r.chain AS remote, r.substream,
       r.index, r.sender, r.receiver, r.callback, (coalesce(c.next_index, {BASE}) + r.place)::UBIGINT AS queue_index,
       r.code, '' AS reason
FROM received r LEFT JOIN read_parquet($input_counters) c ON c.first = r.receiver AND c.second = r.sender""",
    "input_counters": f"""
SELECT coalesce(c.first, q.first) AS first, coalesce(c.second, q.second) AS second,
       (coalesce(c.next_index, {BASE}) + coalesce(q.count, 0))::UBIGINT AS next_index
FROM read_parquet($input_counters) c
FULL JOIN (SELECT receiver AS first, sender AS second, count(*) AS count FROM received GROUP BY ALL) q
  ON q.first = c.first AND q.second = c.second""",
    "output_counters": f"""
SELECT coalesce(c.first, q.sender) AS first, coalesce(c.second, q.receiver) AS second,
       (coalesce(c.next_index, {BASE}) + coalesce(q.count, 0))::UBIGINT AS next_index
FROM read_parquet($output_counters) c FULL JOIN queues q ON q.sender = c.first AND q.receiver = c.second""",
    "accounts": f"""
SELECT c.program, (c.next_callback + coalesce(q.count, 0))::UBIGINT AS next_callback
FROM read_parquet($accounts) c
LEFT JOIN (SELECT receiver, count(*) AS count FROM received WHERE kind = {RESPONSE} GROUP BY ALL) q
  ON q.receiver = c.program""",
    "lanes": """
SELECT chain::UINTEGER AS chain, remote::UINTEGER AS remote, begin::UBIGINT AS begin,
       next_index::UBIGINT AS next_index, signals_begin::UBIGINT AS signals_begin, expected::UBIGINT AS expected
FROM lanes_after""",
}

TO_HASH = """
SELECT r.kind::UTINYINT AS kind, r.sender, r.receiver, r.callback::UBIGINT AS callback,
       r.amount_high::UBIGINT AS amount_high, r.amount_low::UBIGINT AS amount_low, r.code::UTINYINT AS code,
       r.deadline::UINTEGER AS deadline, r.payload, (s.start + r.rank)::UBIGINT AS row
FROM routed r JOIN starts s ON s.chain = r.chain AND s.remote = r.remote
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
        files = {
            name: path(before, name) for name in ("transfers", "accounts", "input_counters", "output_counters", "lanes")
        }
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
            "SELECT chain::UINTEGER AS chain, remote::UINTEGER AS remote, first::UBIGINT AS first, "
            "sent::UBIGINT AS count, "
            "(sum(sent) OVER (ORDER BY chain, remote) - sent)::UBIGINT AS start "
            "FROM lanes_after WHERE sent > 0 ORDER BY chain, remote"
        ).to_arrow_table()
        self._connection.register("starts", runs)
        messages = self._connection.sql(TO_HASH).to_arrow_table()
        leaves = leaves_of(messages, self._threads)
        ordered = np.empty_like(leaves)
        ordered[messages["row"].to_numpy()] = leaves
        digests = roots_of(ordered, runs["count"].to_numpy().astype(np.int64), self._threads)
        return roots_table({name: runs[name] for name in ("chain", "remote", "first", "count")}, digests)
