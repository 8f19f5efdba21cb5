"""The lake's tables as Spark DataFrames: state at a height, the logs, the ledger, and counts over it."""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from causeway.model.ledger import COLLECTED_MESSAGES, NO_CHAIN, Event, Kind, Via
from causeway.pipeline.lake import Lake, LakeError

KIND_NAMES = {Kind.INGRESS: "ingress", Kind.REQUEST: "request", Kind.RESPONSE: "response", Kind.REFUND: "refund"}
KIND_NAMES[Kind.CONTROL] = "control"

EMPTY_SCHEMAS = {
    "transfers": "height decimal(20,0), tick decimal(20,0), chain bigint, remote bigint, substream decimal(20,0), "
    "index decimal(20,0), kind smallint, sender decimal(20,0), receiver decimal(20,0), callback decimal(20,0), "
    "cycles_high decimal(20,0), cycles_low decimal(20,0), code smallint, deadline bigint, method string, "
    "payload binary, queue_index decimal(20,0), sent_tick decimal(20,0)",
    "events": "height decimal(20,0), tick decimal(20,0), chain bigint, events int, kind smallint, via smallint, "
    "remote bigint, substream decimal(20,0), index decimal(20,0), sender decimal(20,0), receiver decimal(20,0), "
    "callback decimal(20,0), queue_index decimal(20,0), code smallint, reason string",
    "collected": "height decimal(20,0), tick decimal(20,0), chain bigint, remote bigint, substream decimal(20,0), "
    "what smallint, begin decimal(20,0), end decimal(20,0)",
    "headers": "height decimal(20,0), tick decimal(20,0), chain bigint, root binary",
}


class LakeTables:
    """Reads a lake with Spark; sees committed heights only."""

    def __init__(self, session: SparkSession, lake: Lake) -> None:
        self._session, self._lake = session, lake
        self.about = lake.about()

    def _read(self, files: list[str], schema: str | None = None) -> DataFrame:
        if not files and schema is not None:
            return self._session.createDataFrame([], schema)
        return self._session.read.parquet(*(self._lake.storage.absolute(path) for path in files))

    def log(self, table: str) -> DataFrame:
        """Return a log table (``transfers``, ``events``, ``collected``, ``headers``) over all committed heights."""
        return self._read(self._lake.log_files(table), EMPTY_SCHEMAS[table])

    def state(self, table: str, height: int | None = None) -> DataFrame:
        """Return a state table at a committed height, by default the last. Raises ``LakeError``."""
        heights = self._lake.heights()
        manifest = self._lake.manifest(heights[-1] if height is None else height)
        files = manifest.state.get(table)
        if files is None:
            genesis = self._lake.manifest(heights[0])
            known = sorted({*manifest.state, *genesis.state, *STATE_TABLES})
            if table not in known:
                raise LakeError(f"table: {table} is unknown; allowed: {', '.join(known)}")
            return self._session.createDataFrame([], "chain bigint")
        return self._read(list(files.values()))

    def chains(self) -> DataFrame:
        """Return the chains: ``position`` (the number in columns named chain and remote), ``number``, ``name``."""
        rows = [(position, Decimal(item["number"]), item["name"]) for position, item in enumerate(self.about["chains"])]
        return self._session.createDataFrame(rows, "position bigint, number decimal(20,0), name string")

    def programs(self) -> DataFrame:
        """Return the program instances at genesis."""
        return self._session.read.parquet(self._lake.storage.absolute("programs.parquet"))

    def moves(self) -> DataFrame:
        """Return one row a message, chain and height with the set of events, numbers only: what the counts are made from."""
        columns = [
            "height", "tick", "chain", "events", "kind", "via", "remote", "substream", "index",
            "sender", "receiver", "callback", "queue_index", "code", "reason",
        ]  # fmt: skip
        sent = F.when(F.col("sent_tick") == F.col("tick"), F.lit(int(Event.SENT))).otherwise(F.lit(0))
        committed = self.log("transfers").select(
            *(
                (sent + F.lit(int(Event.COMMITTED))).cast("int").alias(name)
                if name == "events"
                else F.lit(int(Via.NONE)).cast("smallint").alias(name)
                if name == "via"
                else F.lit("").alias(name)
                if name == "reason"
                else F.col(name)
                for name in columns
            )
        )
        return committed.unionByName(self.log("events").select(*columns))

    def ledger(self) -> DataFrame:
        """Return the ledger: one row a lifecycle event of one message (``docs/lake.md``)."""
        protocol = self.about["protocol"]
        chains = self.chains().select("position", "name")
        programs = self.programs().select("number", "name")
        transfers = self.log("transfers")
        content = transfers.select(
            "chain",
            "remote",
            "substream",
            "index",
            F.sha2("payload", 256).alias("payload_hash"),
            (F.col("cycles_high").cast("decimal(38,0)") * F.expr("cast('18446744073709551616' as decimal(20,0))") + F.col("cycles_low"))
            .cast("decimal(38,0)")
            .alias("amount"),
            F.col("method"),
        )
        moves = self.moves()
        own_lane = F.col("events").bitwiseAND(F.lit(int(Event.COMMITTED))) > 0
        source = F.when(own_lane, F.col("chain")).otherwise(
            F.when(F.col("remote") == NO_CHAIN, F.col("chain")).otherwise(F.col("remote"))
        )
        destination = F.when(own_lane, F.col("remote")).otherwise(F.col("chain"))
        placed = moves.withColumn("source", source).withColumn("destination", destination)
        collected = (
            self.log("collected")
            .where(F.col("what") == COLLECTED_MESSAGES)
            .withColumn("index", F.explode(F.expr("sequence(cast(begin as bigint), cast(end - 1 as bigint))")))
            .withColumn("index", F.col("index").cast("decimal(20,0)"))
            .select("height", "tick", "chain", "remote", "substream", "index")
            .join(
                transfers.select(
                    "chain", "remote", "substream", "index", "kind", "sender", "receiver", "callback", "queue_index", "code"
                ),
                ["chain", "remote", "substream", "index"],
            )
            .withColumn("events", F.lit(int(Event.ACKNOWLEDGED | Event.COLLECTED)))
            .withColumn("via", F.lit(0).cast("smallint"))
            .withColumn("reason", F.lit(""))
            .withColumn("source", F.col("chain"))
            .withColumn("destination", F.col("remote"))
        )
        rows = placed.unionByName(collected.select(*placed.columns))
        rows = (
            rows.join(
                content.withColumnRenamed("chain", "source").withColumnRenamed("remote", "destination"),
                ["source", "destination", "substream", "index"],
                "left",
            )
            .withColumn("event", F.explode(_event_names(F.col("events"))))
            .where(F.col("event").isNotNull())
        )

        def chain_name(column: str) -> DataFrame:
            return chains.select(F.col("position").alias(column), F.col("name").alias(f"{column}_name"))

        def program_name(column: str) -> DataFrame:
            return programs.select(F.col("number").alias(column), F.col("name").alias(f"{column}_name"))

        for column in ("source", "destination", "chain"):
            rows = rows.join(F.broadcast(chain_name(column)), column, "left")
        for column in ("sender", "receiver"):
            rows = rows.join(F.broadcast(program_name(column)), column, "left")
        on_lane = F.col("remote") != NO_CHAIN
        return rows.select(
            F.lit(protocol).alias("protocol"),
            F.col("source_name").alias("source"),
            F.col("destination_name").alias("destination"),
            F.when(on_lane, F.col("substream")).alias("lane"),
            F.when(on_lane, F.col("index")).alias("index"),
            message_id(protocol).alias("message_id"),
            answered_id(protocol).alias("answers"),
            _choice(F.col("kind"), {int(kind): name for kind, name in KIND_NAMES.items()}).alias("kind"),
            F.col("event"),
            F.col("chain_name").alias("chain"),
            F.col("height"),
            F.col("tick"),
            (F.col("tick").cast("double") * F.lit(float(self.about["seconds_per_tick"]))).alias("time"),
            F.coalesce("sender_name", F.col("sender").cast("string")).alias("sender"),
            F.coalesce("receiver_name", F.col("receiver").cast("string")).alias("receiver"),
            F.col("payload_hash"),
            F.col("amount"),
            F.lit("cycles").alias("asset"),
            F.col("code"),
            F.col("reason").alias("detail"),
            _choice(F.col("via"), {int(via): via.name.lower() for via in Via if via}).alias("via"),
            F.col("queue_index"),
        )

    def summary(self) -> dict[str, Any]:
        """Return what became of all calls, from the ledger's rows: every call is looked at with all that happened to it."""
        calls, order = self._calls(), self._out_of_order()
        counts = calls.agg(
            F.sum(F.when(F.col("sent") > 0, 1).otherwise(0)).alias("sent"),
            F.sum(F.when(F.col("delivered") > 0, 1).otherwise(0)).alias("delivered"),
            F.sum(F.when(F.col("answered") > 0, 1).otherwise(0)).alias("answered"),
            F.sum(F.when((F.col("answered") == 0) & (F.col("rejected") > 0), 1).otherwise(0)).alias("rejected"),
            F.sum(
                F.when((F.col("sent") > 0) & (F.col("answered") == 0) & (F.col("rejected") == 0) & (F.col("lost") == 0), 1)
                .otherwise(0)
            ).alias("pending"),
            F.sum(
                F.when((F.col("answered") == 0) & (F.col("rejected") == 0) & (F.col("lost") > 0), 1).otherwise(0)
            ).alias("lost"),
            F.sum(
                F.greatest(F.col("delivered") - 1, F.lit(0))
                + F.greatest(F.col("answered") + F.col("rejected") - 1, F.lit(0))
            ).alias("duplicates"),
            F.sum("routed").alias("messages"),
        ).first()
        assert counts is not None
        result: dict[str, Any] = {name: int(value or 0) for name, value in counts.asDict().items()}
        result["out_of_order"] = order.count()
        return result

    def _calls(self) -> DataFrame:
        """Return one row a call (caller, callback) with how often each thing happened to it."""
        request = F.col("kind") == int(Kind.REQUEST)
        response = F.col("kind") == int(Kind.RESPONSE)
        rows = self.moves().where(request | response)
        caller = F.when(request, F.col("sender")).otherwise(F.col("receiver"))

        def bit(event: Event) -> Column:
            return F.col("events").bitwiseAND(F.lit(int(event))) > 0

        def count(condition: Column) -> Column:
            return F.sum(F.when(condition, 1).otherwise(0))

        over_lane = F.col("via").isin(int(Via.XNET), int(Via.LOOPBACK))
        concluded = response & bit(Event.RECEIVED)
        return (
            rows.withColumn("caller", caller)
            .groupBy("caller", "callback")
            .agg(
                count(request & bit(Event.SENT)).alias("sent"),
                count(request & bit(Event.RECEIVED) & over_lane).alias("delivered"),
                count(concluded & (F.col("code") == 0)).alias("answered"),
                count(concluded & (F.col("code") > 0)).alias("rejected"),
                count(bit(Event.DROPPED)).alias("lost"),
                count(bit(Event.COMMITTED)).alias("routed"),
            )
        )

    def _out_of_order(self) -> DataFrame:
        """Return the requests that stand in their input queue before one their sender made earlier (G3)."""
        received = self.moves().where(
            (F.col("kind") == int(Kind.REQUEST)) & (F.col("events").bitwiseAND(F.lit(int(Event.RECEIVED))) > 0)
        )
        queue = Window.partitionBy("sender", "receiver").orderBy("queue_index")
        return received.withColumn("earlier", F.lag("callback").over(queue)).where(F.col("earlier") > F.col("callback"))

    def root(self) -> str:
        """Return one digest over the last root of every chain, in the order of their positions, as hex."""
        import hashlib

        heights = self._lake.heights()
        manifest = self._lake.manifest(heights[-1])
        files = [self._lake.storage.read_table(path) for path in manifest.log.get("headers", {}).values()]
        roots = sorted(row for table in files for row in zip(table["chain"].to_pylist(), table["root"].to_pylist(), strict=True))
        return hashlib.sha256(b"".join(root for _, root in roots)).hexdigest()


STATE_TABLES = (
    "ingress_counters", "input_counters", "output_counters", "ingress_queues", "input_queues", "output_queues",
    "lanes", "rejects", "runs", "canisters",
)  # fmt: skip


def message_id(protocol: str) -> Column:
    """Return the readable, stable id of a message: ``protocol:sender>receiver/class#number``.

    Class and number: ``q`` and the callback for a request, ``r`` and the callback for a response, ``i`` and the queue index for ingress.
    """
    letter = _choice(F.col("kind"), {0: "i", 1: "q", 2: "r", 3: "f", 4: "c"})
    return F.format_string(
        f"{protocol}:%s>%s/%s#%s",
        F.col("sender").cast("string"),
        F.col("receiver").cast("string"),
        letter,
        F.col("callback").cast("string"),
    )


def answered_id(protocol: str) -> Column:
    """Return the id of the request that a response answers, null for other kinds."""
    request = F.format_string(
        f"{protocol}:%s>%s/q#%s",
        F.col("receiver").cast("string"),
        F.col("sender").cast("string"),
        F.col("callback").cast("string"),
    )
    return F.when(F.col("kind") == int(Kind.RESPONSE), request)


def _choice(column: Column, names: dict[int, str]) -> Column:
    chosen = F.lit(None).cast("string")
    return reduce(lambda rest, item: F.when(column == item[0], F.lit(item[1])).otherwise(rest), names.items(), chosen)


def _event_names(bits: Column) -> Column:
    return F.array(*(F.when(bits.bitwiseAND(F.lit(int(event))) > 0, F.lit(event.name.lower())) for event in Event))
