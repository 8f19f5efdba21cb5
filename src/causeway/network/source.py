"""The data source ``causeway`` of Spark (``pipeline.source``) with the state of every committed height.

    from causeway.network.source import register

    register(spark)
    spark.read.format("causeway").option("table", "accounts").option("height", 17).load("my-lake")

A height whose state is in no file is executed again, in the task that reads it. The option ``scenario`` names the
scenario's file where modules of the lake's programs lie beside it.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import SparkSession

from causeway.network.replayed import Replayed, deployment_of
from causeway.pipeline import source
from causeway.pipeline.lake import Lake
from causeway.pipeline.schemas import StateAt

OPTION = 'option("scenario", FILE)'


class NetworkSource(source.LakeSource):
    """The data source; ``register`` makes it known to a session."""

    def state_at(self, lake: Lake) -> StateAt:
        """Return what executes heights of a lake again."""
        scenario = self.options.get("scenario")
        return Replayed(lake, partial(deployment_of, lake, lake.about(), scenario, option=OPTION)).tables


def register(session: SparkSession) -> None:
    """Make the format known to a session."""
    source.register(session, NetworkSource)


__all__ = ["NetworkSource", "register"]
