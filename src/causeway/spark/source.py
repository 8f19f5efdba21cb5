"""Spark data source ``causeway``: a lake with the state of every committed height, or a ledger.

    from causeway.spark.source import register_format

    register_format(spark)
    spark.read.format("causeway").option("table", "accounts").option("height", 17).load("my-lake")

A height without stored state is replayed in the task that reads it. The option ``programs`` names the sources of user
programs: folders, scenario files beside them, and modules, separated by commas.

Of a ledger, ``table`` is one of its tables, as of its last commit, and options with the names of text columns
(``lane``, ``event``) select rows. As a stream, ``maxCommitsPerTrigger`` limits the commits of a micro-batch.
"""

from __future__ import annotations

from functools import cached_property, partial

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from causeway.cluster.types import spark_schema
from causeway.dataframes import data_source
from causeway.ledger.commits import LEDGER_FILE, table_schema
from causeway.ledger.store import Ledger
from causeway.network.replay import StateReplay, recorded_deployment
from causeway.programs.user_modules import ModuleSources
from causeway.spark.ledger_source import LedgerReader, LedgerStreamReader, open_table
from causeway.storage.files import Storage
from causeway.storage.lake import Lake
from causeway.storage.table_schemas import StateReader


class NetworkSource(data_source.LakeSource):
    """The data source; ``register_format`` adds it to a session."""

    known_options = (*data_source.LakeSource.known_options, "programs")

    @cached_property
    def _ledger(self) -> tuple[Ledger, str] | None:
        """The ledger and the table of the options; None for a lake."""
        where = self.options.get("path")
        return open_table(self.options) if where and Storage(where).exists(LEDGER_FILE) else None

    def schema(self) -> StructType:
        """Return the columns of the table.

        Raises:
            LakeError: The options are invalid.
        """
        return super().schema() if self._ledger is None else spark_schema(table_schema(self._ledger[1]))

    def reader(self, schema: StructType) -> DataSourceReader:  # type: ignore[override]
        """Return a reader of the table at its current state.

        Raises:
            LakeError: An option is one of streams.
        """
        return super().reader(schema) if self._ledger is None else LedgerReader(*self._ledger, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # type: ignore[override]  # noqa: N802
        """Return a reader of a lake's log table, height by height, or of a ledger's table, commit by commit.

        Raises:
            LakeError: The table does not grow.
        """
        if self._ledger is None:
            return super().streamReader(schema)
        return LedgerStreamReader(*self._ledger, self.options)

    def state_at(self, lake: Lake) -> StateReader:
        """Return a reader that replays heights of a lake."""
        given = self.options.get("programs", "")
        sources = ModuleSources.of(*filter(None, given.split(",")))
        return StateReplay(lake, partial(recorded_deployment, lake, lake.about(), sources)).tables


def register_format(session: SparkSession) -> None:
    """Register the format in a session.

    Args:
        session: The session.
    """
    session.dataSource.register(NetworkSource)


__all__ = ["NetworkSource", "register_format"]
