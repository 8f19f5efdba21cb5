"""The log of value as a DataFrame: one row a movement, with names instead of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from causeway.model.ledger import NO_CHAIN
from causeway.model.value import OF_CHAINS, OF_PAIRS, OF_PROGRAMS, ROOT_OWNER, Asset, Holder, Why

MOVEMENT_COLUMNS: Mapping[str, str] = {
    "height": "the height that committed it",
    "tick": "the tick of the scenario",
    "chain": "name of the chain on which it happened",
    "asset": "what moves: the unit of the protocol, or `booked`: what a chain has in its books about the others' units",
    "why": "why it moves: a name of the list above",
    "from": "who had it: a name of the list above",
    "from_name": "which program, chain, or operator: its name, or number; `SOURCE>DESTINATION` of transfers booked",
    "to": "who has it from then on",
    "to_name": "which one",
    "amount": "how much: decimal digits, because 128 bits are more than any number of Spark holds; "
    "`cast(amount as decimal(38,0))` adds up below 10^38",
    "source": "name of the chain that the message comes from; null where no message moves it",
    "destination": "name of the chain that the message goes to; null where no message moves it",
    "lane": "the substream in which the message travels; null without one",
    "index": "its index in that substream; null without one",
}
"""The columns of the view of the log of value, and what each means."""

_NO_INDEX = "18446744073709551615BD"


def movements(asset: str, rows: DataFrame, chains: DataFrame, programs: DataFrame) -> DataFrame:
    """Return the rows of the log of value with names (``MOVEMENT_COLUMNS``).

    ``asset``: the unit of the protocol; ``chains``: ``position``, ``name``; ``programs``: ``number``, ``name``.
    """
    for side in ("from", "to"):
        number = F.col(f"{side}_number")
        rows = rows.withColumn(f"{side}_upper", F.expr(f"cast({side}_number div 4294967296BD as bigint)"))
        rows = rows.withColumn(f"{side}_lower", F.expr(f"cast({side}_number % 4294967296BD as bigint)"))
        program = programs.select(F.col("number").alias(f"{side}_known"), F.col("name").alias(f"{side}_program"))
        rows = rows.join(program, number == F.col(f"{side}_known"), "left")
        for part in ("upper", "lower"):
            rows = _with_name(rows, chains, f"{side}_{part}")
    for column in ("chain", "source", "destination"):
        rows = _with_name(rows, chains, column)
    of_message = F.col("index") < F.expr(_NO_INDEX)
    values = {
        "chain": F.col("chain_name"),
        "asset": F.when(F.col("asset") == int(Asset.UNITS), F.lit(asset)).otherwise(F.lit(Asset.BOOKED.name.lower())),
        "why": _named(F.col("why"), Why),
        "amount": digits("amount_high", "amount_low"),
        "source": F.when(F.col("source") != NO_CHAIN, F.col("source_name")),
        "destination": F.when(F.col("destination") != NO_CHAIN, F.col("destination_name")),
        "lane": F.when(of_message, F.col("substream")),
        "index": F.when(of_message, F.col("index")),
    }
    for side in ("from", "to"):
        values[side] = _named(F.col(f"{side}_holder"), Holder)
        values[f"{side}_name"] = _name(side)
    return rows.select(*(values.get(name, F.col(name)).alias(name) for name in MOVEMENT_COLUMNS))


def _with_name(rows: DataFrame, chains: DataFrame, column: str) -> DataFrame:
    names = chains.select(F.col("position").alias(f"{column}_at"), F.col("name").alias(f"{column}_name"))
    return rows.join(F.broadcast(names), F.col(column) == F.col(f"{column}_at"), "left")


def _name(side: str) -> Column:
    """Return the name of the program, the chain or the two chains that a side's number is; null where it is none."""
    holder, number = F.col(f"{side}_holder"), F.col(f"{side}_number").cast("string")
    pair = F.concat(F.col(f"{side}_upper_name"), F.lit(">"), F.col(f"{side}_lower_name"))
    return (
        F.when((holder == int(Holder.DEPOSITS)) & (F.col(f"{side}_number") == F.expr(f"{ROOT_OWNER}BD")), F.lit("root"))
        .when(holder.isin(*map(int, OF_PROGRAMS)), F.coalesce(F.col(f"{side}_program"), number))
        .when(holder.isin(*map(int, OF_CHAINS)), F.col(f"{side}_lower_name"))
        .when(holder.isin(*map(int, OF_PAIRS)), pair)
        .when(holder == int(Holder.OPERATOR), number)
    )


def _named(column: Column, names: type[IntEnum]) -> Column:
    """Return the stable name of each number, in small letters."""
    chosen = F.lit(None).cast("string")
    for item in names:
        chosen = F.when(column == int(item), F.lit(item.name.lower())).otherwise(chosen)
    return chosen


def digits(high: str, low: str) -> Column:
    """Return the decimal digits of a number of 128 bits, given as two columns of 64.

    Such a number has up to 39 digits and Spark's decimals have 38, so it is made in two pieces, of which the lower has
    ten digits.
    """
    upper = f"cast({high} div 10000000000BD as decimal(10,0))"
    rest = f"({high} % 10000000000BD * 18446744073709551616BD + {low})"
    carried = f"cast(({rest} - {rest} % 10000000000BD) / 10000000000BD as decimal(30,0))"
    first = f"cast({upper} * 18446744073709551616BD + {carried} as decimal(30,0))"
    last = f"lpad(cast(cast({rest} % 10000000000BD as decimal(10,0)) as string), 10, '0')"
    return F.expr(f"case when {high} = 0 then cast({low} as string) else concat(cast({first} as string), {last}) end")
