"""Where the tasks of a tick run: on a cluster each bucket has an executor that it goes back to, so that its state is in
the memory of a worker there.

Executors are asked for when a task did not find its state, and now and then; only when they are others than before is
the query planned anew. A task whose executor is gone, or busy for longer than ``spark.locality.wait``, runs elsewhere,
and reads its state from the lake.

Among the Python workers of one executor Spark chooses, and cannot be told. Where all workers are on one machine, their
tasks agree who runs what (``assignment``); executors of a cluster share no folder that they could do so in, and a lake
in an object store has no locks.

Spark's DataFrames cannot say where a task should run; an RDD can. So the numbers of the buckets are an RDD with a
preferred executor each, and the query over it keeps the preference, because nothing is exchanged between the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DRIVER = "driver"
"""What Spark calls the executor inside the driver's process."""


class Place(NamedTuple):
    """An executor: the machine that it is on, and its number in the application."""

    host: str
    executor: str


def on_one_machine(session: SparkSession) -> bool:
    """Return whether all Python workers are on this machine: Spark runs in one process."""
    context: Any = session.sparkContext
    return bool(context._jsc.sc().isLocal())


def executors_of(session: SparkSession) -> tuple[Place, ...]:
    """Return the executors that are there now, in the order of their numbers; none where Spark runs in one process."""
    if on_one_machine(session):
        return ()
    context: Any = session.sparkContext
    known = context._jsc.sc().statusStore().executorList(True).iterator()
    found = []
    while known.hasNext():
        summary = known.next()
        host = summary.hostPort().rpartition(":")[0]  # empty until all is known of it
        if summary.id() != _DRIVER and host:
            found.append(Place(host, summary.id()))
    return tuple(sorted(found, key=lambda place: (len(place.executor), place.executor)))


def numbered(session: SparkSession, count: int, executors: tuple[Place, ...]) -> DataFrame:
    """Return the numbers from 0 to ``count`` - 1 as a table with the column ``id`` and a partition each, which
    ``executors`` take in turns; where they are fewer than two, whoever is free takes any."""
    if len(executors) < 2:
        return session.range(0, count, 1, count)
    from pyspark.sql import DataFrame

    jvm: Any = session.sparkContext._jvm
    java: Any = session.sparkContext._jsc
    gateway: Any = session.sparkContext._gateway
    rows = jvm.java.util.ArrayList()
    for number in range(count):
        place = executors[number % len(executors)]
        cells = gateway.new_array(jvm.java.lang.Object, 1)
        cells[0] = number
        preferred = jvm.java.util.ArrayList()
        preferred.add(f"executor_{place.host}_{place.executor}")
        rows.add(jvm.scala.Tuple2(jvm.org.apache.spark.sql.RowFactory.create(cells), _sequence(jvm, preferred)))
    kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("org.apache.spark.sql.Row"))
    rdd = java.sc().makeRDD(_sequence(jvm, rows), kind).toJavaRDD()
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL("id INT NOT NULL")
    return DataFrame(session._jsparkSession.createDataFrame(rdd, schema), session)


def _sequence(jvm: Any, items: Any) -> Any:
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq()
