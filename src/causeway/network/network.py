"""A network that runs: the object behind ``causeway run`` and behind a notebook.

The state of one program instance, read from the lake without Spark: for unit tests, and for a look.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.config.topology import Topology
from causeway.core.text import format_value, suggest_known
from causeway.network.deploy import DeployedScenario, deploy_scenario, partition_chains
from causeway.network.replay import StateReplay, require_same_tables
from causeway.programs.catalogue import find_program_class
from causeway.programs.scalar import Program
from causeway.programs.state_values import read_state_value
from causeway.protocols.shared.secrets import NONE, Secrets
from causeway.scenarios.scenario import Scenario, load_scenario
from causeway.scenarios.traffic_sources import last_tick
from causeway.spark.masters import available_cores
from causeway.spark.session import active_session, open_session, prepare_workers, requested_tasks, start_session
from causeway.storage.compaction import compact_logs, latest_compaction, remove_compacted, remove_uncommitted
from causeway.storage.connectivity import check_reachable, check_readable
from causeway.storage.external_input import NO_INPUT, ExternalInput, InputRecord
from causeway.storage.lake import Lake, LakeError, Manifest
from causeway.storage.reorgs import network_root
from causeway.storage.writer_claim import FolderBeforeClaim, claim_lake, withdraw_claim
from causeway.tick.deployment import EACH_HEIGHT, CommitEvery, Deployment, TickGroup, find_next_tick, next_height_tick
from causeway.tick.executors import Executor, InProcessExecutor, SparkExecutor, run_task
from causeway.tick.run import commit_genesis, run_group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from causeway.dataframes.lake_tables import LakeTables


def program_state(lake: Lake, manifest: Manifest, topology: Topology, name: str) -> Any:
    """Return the state of the instance ``name`` at the last height of a commit: what a scalar program keeps, or the
    columns of its row.

    None where nothing is installed, or where the program is on no chain. Raises ``InvalidInput`` for an unknown name.
    """
    found = topology.programs.filter(pc.equal(topology.programs["name"], name)).to_pylist()
    if not found:
        raise InvalidInput(f"program: {suggest_known('program', name, topology.programs['name'].to_pylist())}")
    program = found[0]["program"]
    if program is None:
        return None
    for table in lake.state(manifest, f"program_{program}"):
        rows = table.filter(pc.equal(table["program"], found[0]["number"])).to_pylist()
        if rows:
            scalar = issubclass(find_program_class(program), Program)
            return read_state_value(rows[0]["state"])[0] if scalar else rows[0]
    return None


HASHING = "causeway_proofs.hashing.columns:load_engines"
"""What workers call before their first task: no tick of theirs waits for compiled code."""

Progress = Callable[[Manifest], None]
"""Called after every commit, with its manifest: one height, or many that follow each other."""


class LakeNetwork:
    """A network of chains on a lake.

    ``Network.from_scenario(path)`` makes a new one, ``resume=True`` goes on with the one that a lake holds. ``run``
    moves it on; ``ledger`` and ``state`` give Spark DataFrames over all that happened.
    """

    def __init__(
        self,
        scenario: Scenario,
        lake: str | None = None,
        *,
        resume: bool = False,
        recorded: bool = False,
        secrets: Secrets = NONE,
        unfinished: int | None = None,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """``recorded``: more than the scenario's traffic comes from outside; the lake's record has it (``record``).

        ``secrets``: keys of validators that are not drawn from the seed. ``unfinished``: the tick of the next height
        where it was begun; what was recorded for it stays. ``waiting``: called when the claim of a run that may be dead
        has to be watched for a while.
        """
        self.scenario = scenario
        self._temporary = None
        place = lake or scenario.network.lake
        if place is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="causeway-")
            place = os.path.join(self._temporary.name, "lake")
        self.lake = Lake.at(place)
        check_reachable(self.lake.storage)
        made = self._made_before(place, resume)
        before = FolderBeforeClaim.of(self.lake.storage)
        self._claim = claim_lake(self.lake, waiting)
        try:
            session = self._begin_spark() if scenario.network.executor == "spark" else None
            cores = available_cores() if session is None else self._tasks()
            self._deployed: DeployedScenario = deploy_scenario(scenario, place, session, cores, made, secrets)
            self._check_cut(place)
            if made is not None:
                require_same_tables(place, self.lake.about()["tables"], self._deployed.about["tables"])
            if session is not None:
                self._prepare_workers()
            self._recorded = recorded
            self._before = self._open(resume, unfinished)
        except BaseException:
            withdraw_claim(self._claim, self.lake.storage, before)
            self._let_go()
            raise

    def _begin_spark(self) -> Callable[[], SparkSession]:
        """Let Java start, and return what waits for the session."""
        start_session(self.scenario.network.master, extra=self.scenario.network.spark_settings)
        if not self.lake.storage.is_local:
            check_readable(self.spark, self.lake.storage)
        return lambda: self.spark

    def _prepare_workers(self) -> None:
        deployment = self.deployment
        parts = (deployment.kernel, deployment.traffic)
        loops = self.scenario.protocol.loops
        modules = [run_task.__module__, *(type(part).__module__ for part in parts), HASHING, *loops]
        prepare_workers(len(deployment.buckets), modules)

    def _tasks(self) -> int:
        return requested_tasks(self.scenario.network.master, self.scenario.network.spark_settings)

    def _made_before(self, place: str, resume: bool) -> tuple[tuple[int, int], ...] | None:
        """Check the lake against what is asked; return how it cuts the chains, None when it is to be made."""
        if not self.lake.exists():
            if resume:
                raise LakeError(f"lake: {place} holds no lake to resume")
            return None
        about = self.lake.about()
        if not resume:
            raise LakeError(f"lake: {place} already holds a lake; continue it with --resume, or name another folder")
        different = self.scenario.difference(about["scenario"])
        if different is not None:
            key, asked, made = different
            text = f"{key} is {format_value(asked)} in {self.scenario.path}, and was {format_value(made)}"
            raise LakeError(f"lake: {place} was created by a different scenario; resume it with that one: {text}")
        return tuple((first, end) for first, end in about["buckets"])

    def _check_cut(self, place: str) -> None:
        """Check that as many partitions are asked for as the lake has, or a number that gives as many buckets."""
        asked, deployment = self.scenario.network.partitions, self._deployed.deployment
        made = len(deployment.buckets)
        if asked and asked != made and len(partition_chains(deployment.kernel.weights(), asked)) != made:
            raise LakeError(
                f"network.partitions: {asked}, but lake {place} was made with {made}; leave it out to resume"
            )

    @classmethod
    def from_scenario(
        cls,
        path: str | os.PathLike[str],
        overrides: Mapping[str, str] | None = None,
        *,
        lake: str | None = None,
        resume: bool = False,
        waiting: Callable[[], None] = lambda: None,
    ) -> Self:
        """Make a network from a scenario file.

        ``overrides``: dotted keys of the file with TOML values. ``lake``: a folder or URI; without one a temporary
        folder is used, which is gone with the object. ``waiting``: as of the class. Raises ``InvalidInput``
        (``LakeError`` for what concerns the lake).
        """
        return cls(load_scenario(path, overrides), lake, resume=resume, waiting=waiting)

    @property
    def spark(self) -> SparkSession:
        """Return the Spark session; the first use starts it. A run in process reads with whatever session is open."""
        if self.scenario.network.executor == "in_process" and (session := active_session()) is not None:
            return session
        return open_session(self.scenario.network.master, extra=self.scenario.network.spark_settings)

    def _open(self, resume: bool, unfinished: int | None) -> Manifest:
        if not resume:
            topology = self._deployed.topology
            tables = {"chains": topology.chains, "programs": topology.programs, "registry": topology.moves}
            self.lake.create(self._deployed.about, tables)
        self.lake = self.lake.with_identity()
        last = self.lake.last_height()
        if last < 0:
            remove_uncommitted(self.lake, last)
            before = commit_genesis(self._executor, self.lake, self._claim)
        else:
            before = self._checked(self.lake.last_manifest())
            remove_uncommitted(self.lake, last)
            remove_compacted(self.lake, before)
        # Of a lake that was served before, too: what was recorded for ticks to come was never taken in.
        since = before.tick + 1 if before.height else before.tick
        self._begun = {unfinished: InputRecord(self.lake).forget(since, unfinished)}
        self._attempt: ExternalInput = NO_INPUT
        self._compacted = latest_compaction(self.lake, before)
        return before

    def _checked(self, before: Manifest) -> Manifest:
        """Return the last manifest, when it follows on the one before it and its files are what they were."""
        for _ in self.lake.chain(max(0, before.number - 1), before.number):
            pass
        recorded = set(before.outside.values())
        for path, seal in before.files.items():
            # What was recorded for a tick does not say by its path which height took it in.
            with self.lake.reading(path, before.first - 1 if path in recorded else None):
                self.lake.storage.verify(path, seal, quickly=True)
        return before

    @property
    def _executor(self) -> Executor:
        if not hasattr(self, "_made_executor"):
            deployment = self._deployed.deployment
            self._made_executor: Executor = (
                SparkExecutor(self.spark, deployment, self.lake)
                if self.scenario.network.executor == "spark"
                else InProcessExecutor(deployment, self.lake)
            )
        return self._made_executor

    @property
    def manifest(self) -> Manifest:
        """Return what the last committed height is made of."""
        return self._before

    @property
    def height(self) -> int:
        """Return the last committed height."""
        return self._before.height

    @property
    def tick(self) -> int:
        """Return the tick of the last committed height."""
        return self._before.tick

    def next_tick(self) -> int | None:
        """Return the tick that would run next, None when nothing is left to do: idle ticks without traffic are
        skipped.
        """
        return find_next_tick(self._before.line, self._deployed.deployment.traffic)

    def run(self, ticks: int | None = None, progress: Progress | None = None) -> int:
        """Run until nothing is left to do, at most to tick ``ticks`` (exclusive; default: the scenario's). Returns the
        height.

        Ticks in which nothing could happen are skipped and cost nothing. ``progress`` is called after every commit. A
        network may end with messages left: a chain is halted for good, or a carrier drops everything.
        """
        limit = ticks if ticks is not None else self.scenario.network.ticks
        while (tick := self.next_tick()) is not None and (limit is None or tick < limit):
            outside = self._begun.pop(tick, NO_INPUT)
            self._commit(tick, outside, EACH_HEIGHT if outside else self.scenario.network.commits, limit)
            if progress is not None:
                progress(self._before)
        if tick is None and not self.has_external and not self._recorded:
            self._claim.confirm()
            self.lake.settle(self._before)
        return self._before.height

    @property
    def is_finished(self) -> bool:
        """Return whether nothing more would happen, however long the network ran. Of one with chains that another lake
        runs this is never so: relay processes may always bring something."""
        return self.next_tick() is None and not self.has_external

    @property
    def has_external(self) -> bool:
        """Return whether another lake runs some of the chains, so that relay processes may always bring something."""
        return bool(self._deployed.topology.external)

    def step(
        self,
        tick: int,
        *,
        ingress: pa.Table | None = None,
        carried: pa.Table | None = None,
        noted: Mapping[str, pa.Table | None] = MappingProxyType({}),
        check: Callable[[Manifest], None] | None = None,
    ) -> Manifest:
        """Run one tick, ``tick`` above the last one's, and commit it as the next height; return its manifest.

        ``ingress`` (``INGRESS_SCHEMA``), ``carried`` (``CARRIED_SCHEMA``): what else comes from outside in this tick;
        it is written into the lake first, and with it what is ``noted`` of it (``pipeline.record``). For a network that
        is ``recorded``; without either, what was recorded comes in where it was begun (``unfinished``). ``check``:
        is given the manifest before it is committed, and raises if it must not be.
        """
        outside = self._begun.pop(tick, NO_INPUT)
        if ingress is not None or carried is not None:
            if not self._recorded:
                raise InvalidInput("record: this network takes only the traffic of its scenario")
            outside = InputRecord(self.lake).write(tick, ingress=ingress, carried=carried, **noted)
            InputRecord(self.lake).remove(self._attempt, outside)
            self._attempt = outside
        self._commit(tick, outside, EACH_HEIGHT, None, check)
        return self._before

    def _commit(
        self,
        tick: int,
        outside: ExternalInput,
        every: CommitEvery,
        until: int | None,
        check: Callable[[Manifest], None] | None = None,
    ) -> None:
        """Run the group of ticks that begins with ``tick`` and commit it."""
        first = next_height_tick(self._before.line, tick, self._deployed.deployment.traffic, outside)
        group = TickGroup(first, outside, until, every)
        self._before = run_group(
            self._executor, self.lake, self._before, group, claim=self._claim, compacted=self._compacted, check=check
        )
        self._attempt = NO_INPUT
        self._compacted = compact_logs(self.lake, self._before)

    @property
    def deployment(self) -> Deployment:
        """Return the kernel, the traffic, and how the chains are cut."""
        return self._deployed.deployment

    @property
    def topology(self) -> Topology:
        """Return the chains, the programs on them at genesis, and their moves."""
        return self._deployed.topology

    @property
    def before(self) -> Manifest:
        """Return the manifest of the last committed height."""
        return self._before

    def last_traffic_tick(self) -> int | None:
        """Return the last tick that brings traffic from outside, None when there is none."""
        return last_tick(self._deployed.deployment.traffic)

    @property
    def tables(self) -> LakeTables:
        """Return the lake's tables as Spark DataFrames."""
        from causeway.dataframes.lake_tables import LakeTables

        return LakeTables(self.spark, self.lake, self._replayed.tables)

    @cached_property
    def _replayed(self) -> StateReplay:
        """The states of heights that are in no file."""
        return StateReplay(self.lake, lambda: self.deployment)

    @property
    def ledger(self) -> DataFrame:
        """Return the rows of the ledger (``docs/ledger.md``): one an event of a message, over all committed heights."""
        return self.tables.ledger()

    @property
    def calls(self) -> DataFrame:
        """Return one row a call: what became of it, and when."""
        return self.tables.calls()

    def state(self, table: str, height: int | None = None, chain: str | None = None) -> DataFrame:
        """Return a state table (``docs/lake.md`` lists them) at a committed height, by default the last.

        ``chain``: only what belongs to the chain of that name.
        """
        return self.tables.state(table, height, chain)

    def program_state(self, name: str) -> Any:
        """Return the state of one program instance now, read without Spark: what a scalar program keeps, or a row's
        columns.

        Raises ``InvalidInput`` when there is no such program.
        """
        return program_state(self.lake, self._before, self._deployed.topology, name)

    def summary(self) -> dict[str, Any]:
        """Return how the calls ended, and the verdict of the audit (``network.summary``), of all committed heights.

        Raises ``LakeError``, ``LedgerDamaged``, ``TaskFailed``.
        """
        from causeway.analysis.run_summary import summarize_run

        with summarize_run(self.lake) as (_, found):
            return found.plain()

    def root(self) -> str:
        """Return one digest over the last roots of all chains (``roots.root_of``)."""
        return network_root(self.lake, self._before)

    def close(self) -> None:
        """Tidy the lake and let go of it, so that another run may write it; a temporary one is removed."""
        try:
            if self._temporary is None and self._claim.held and hasattr(self, "_compacted"):
                self._claim.confirm()
                remove_compacted(self.lake, self._before)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._claim.release()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        if failure[0] is None:
            self.close()
        else:
            self._let_go()
