"""The data source ``causeway`` of Spark (``pipeline.source``) with the state of every committed height.

    from causeway.network.source import register

    register(spark)
    spark.read.format("causeway").option("table", "accounts").option("height", 17).load("my-lake")

A height whose state is in no file is executed again, in the task that reads it. The option ``programs`` says where
programs of one's own come from: folders, files of scenarios that they lie beside, and modules, separated by commas.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import SparkSession

from causeway.network.replayed import Replayed, deployment_of
from causeway.pipeline import source
from causeway.pipeline.lake import Lake
from causeway.pipeline.schemas import StateAt
from causeway.programs.sources import Sources


class NetworkSource(source.LakeSource):
    """The data source; ``register`` makes it known to a session."""

    def state_at(self, lake: Lake) -> StateAt:
        """Return what executes heights of a lake again."""
        given = self.options.get("programs", "")
        sources = Sources.of(*filter(None, given.split(",")))
        return Replayed(lake, partial(deployment_of, lake, lake.about(), sources)).tables


def register(session: SparkSession) -> None:
    """Make the format known to a session."""
    source.register(session, NetworkSource)


__all__ = ["NetworkSource", "register"]
