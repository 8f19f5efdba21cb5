"""Spark data source ``causeway`` with the state of every committed height.

    from causeway.spark.source import register_format

    register_format(spark)
    spark.read.format("causeway").option("table", "accounts").option("height", 17).load("my-lake")

A height without stored state is replayed in the task that reads it. The option ``programs`` names the sources of user
programs: folders, scenario files beside them, and modules, separated by commas.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import SparkSession

from causeway.dataframes import data_source
from causeway.network.replay import StateReplay, recorded_deployment
from causeway.programs.user_modules import ModuleSources
from causeway.storage.lake import Lake
from causeway.storage.table_schemas import StateReader


class NetworkSource(data_source.LakeSource):
    """The data source; ``register_format`` adds it to a session."""

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
    data_source.register_format(session, NetworkSource)


__all__ = ["NetworkSource", "register_format"]
