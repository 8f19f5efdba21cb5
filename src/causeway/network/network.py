"""Networks on a lake: the object behind ``causeway run`` and a notebook.

``LakeNetwork`` claims a lake, commits groups of ticks, and compacts the logs. ``program_state`` reads the state of one
program without Spark.
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

from causeway.cluster.connectivity import check_reachable, check_readable, require_shared
from causeway.cluster.masters import available_cores, is_local
from causeway.cluster.session import active_session, open_session, prepare_workers, requested_tasks, start_session
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
from causeway.storage.compaction import compact_logs, latest_compaction, remove_compacted, remove_uncommitted
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
    """Return the state of a program at the last height of a commit.

    Args:
        lake: The lake.
        manifest: The commit.
        topology: Chains and programs of the network.
        name: Name of the program.

    Returns:
        The stored value of a scalar program, or the columns of a vector program's row; None for a program without a
        class, or on no chain.

    Raises:
        InvalidInput: The name is unknown.
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
"""Function that workers call before their first task, so that no tick waits to compile."""

Progress = Callable[[Manifest], None]
"""Callback after every commit, with its manifest of one or several consecutive heights."""


class LakeNetwork:
    """A network of chains on a lake.

    ``Network.from_scenario(path)`` creates one; ``resume=True`` continues the one in a lake. ``run`` advances it.
    ``ledger`` and ``state`` give Spark DataFrames of its history.
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
        """Open a network for writing.

        Args:
            scenario: The scenario.
            lake: Path or URI; None: the scenario's, or a temporary folder.
            resume: Continue the network of an existing lake.
            recorded: External input besides the scenario's traffic is recorded in the lake (``step``).
            secrets: Validator keys not derived from the seed.
            unfinished: Tick of a height begun before a crash; its recorded input is used again.
            waiting: Called when the claim of a possibly dead run has to be watched.

        Raises:
            InvalidInput: The scenario is invalid.
            LakeError: The lake exists, is missing, or belongs to another scenario.
        """
        self.scenario = scenario
        self._temporary = None
        place = lake or scenario.network.lake
        if place is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="causeway-")
            place = os.path.join(self._temporary.name, "lake")
        self.lake = Lake.at(place)
        check_reachable(self.lake.storage)
        buckets = self._existing_buckets(place, resume)
        before = FolderBeforeClaim.of(self.lake.storage)
        self._claim = claim_lake(self.lake, waiting)
        try:
            session = self._start_spark() if scenario.network.executor == "spark" else None
            cores = available_cores() if session is None else self._tasks()
            self._deployed: DeployedScenario = deploy_scenario(scenario, place, session, cores, buckets, secrets)
            self._check_partitions(place)
            if buckets is not None:
                require_same_tables(place, self.lake.about()["tables"], self._deployed.about["tables"])
            if session is not None:
                deployment = self.deployment
                parts = (deployment.kernel, deployment.traffic)
                loops = self.scenario.protocol.loops
                modules = [run_task.__module__, *(type(part).__module__ for part in parts), HASHING, *loops]
                prepare_workers(len(deployment.buckets), modules)
                if not is_local(scenario.network.master):  # a local session may go on starting
                    require_shared(self.spark, self.lake.storage, "lake")
            self._recorded = recorded
            self._before = self._open(resume, unfinished)
        except BaseException:
            withdraw_claim(self._claim, self.lake.storage, before)
            self._let_go()
            raise

    def _start_spark(self) -> Callable[[], SparkSession]:
        """Start Spark in the background; return a function that waits for the session."""
        start_session(self.scenario.network.master, extra=self.scenario.network.spark_settings)
        if not self.lake.storage.is_local:
            check_readable(self.spark, self.lake.storage)
        return lambda: self.spark

    def _tasks(self) -> int:
        return requested_tasks(self.scenario.network.master, self.scenario.network.spark_settings)

    def _existing_buckets(self, place: str, resume: bool) -> tuple[tuple[int, int], ...] | None:
        """Validate the lake; return its buckets (first and end chain), None for a new lake."""
        if not self.lake.exists():
            if resume:
                raise LakeError(f"lake: {place} holds no lake to resume")
            return None
        about = self.lake.about()
        if not resume:
            raise LakeError(f"lake: {place} already holds a lake; continue it with --resume, or name another folder")
        different = self.scenario.difference(about["scenario"])
        if different is not None:
            key, current, original = different
            text = f"{key} is {format_value(current)} in {self.scenario.path}, and was {format_value(original)}"
            raise LakeError(f"lake: {place} was created by a different scenario; resume it with that one: {text}")
        return tuple((first, end) for first, end in about["buckets"])

    def _check_partitions(self, place: str) -> None:
        """Check that the requested number of partitions gives the buckets of the lake."""
        requested, deployment = self.scenario.network.partitions, self._deployed.deployment
        existing = len(deployment.buckets)
        if (
            requested
            and requested != existing
            and len(partition_chains(deployment.kernel.weights(), requested)) != existing
        ):
            raise LakeError(
                f"network.partitions: {requested}, but lake {place} was made with {existing}; leave it out to resume"
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
        """Create or resume the network of a scenario file.

        Args:
            path: The scenario file.
            overrides: TOML values by dotted key of the file.
            lake: Folder or URI; None: a temporary folder, removed with the object.
            resume: Continue the network of an existing lake.
            waiting: Called when the claim of a possibly dead run has to be watched.

        Raises:
            InvalidInput: The scenario is invalid; ``LakeError`` for problems of the lake.
        """
        return cls(load_scenario(path, overrides), lake, resume=resume, waiting=waiting)

    @property
    def spark(self) -> SparkSession:
        """Spark session, started on first use; an in-process run uses the active session."""
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
            before = self._verify_last(self.lake.last_manifest())
            remove_uncommitted(self.lake, last)
            remove_compacted(self.lake, before)
        # Also for a lake that was served before: input recorded for later ticks was never consumed.
        since = before.tick + 1 if before.height else before.tick
        self._resumed_inputs = {unfinished: InputRecord(self.lake).forget(since, unfinished)}
        self._pending_input: ExternalInput = NO_INPUT
        self._compacted = latest_compaction(self.lake, before)
        return before

    def _verify_last(self, before: Manifest) -> Manifest:
        """Verify that the last manifest follows its predecessor, and verify its files; return it."""
        for _ in self.lake.chain(max(0, before.number - 1), before.number):
            pass
        recorded = set(before.outside.values())
        for path, seal in before.files.items():
            # The path of recorded input names its tick, not the height that consumed it.
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
        """Manifest of the last commit."""
        return self._before

    @property
    def height(self) -> int:
        """Last committed height."""
        return self._before.height

    @property
    def tick(self) -> int:
        """Tick of the last committed height."""
        return self._before.tick

    def next_tick(self) -> int | None:
        """Return the next tick to run, skipping idle ones, or None if nothing is left to do."""
        return find_next_tick(self._before.line, self._deployed.deployment.traffic)

    def run(self, ticks: int | None = None, progress: Progress | None = None) -> int:
        """Run until nothing is left to do.

        Ticks without events are skipped at no cost. A network may end with pending messages, if a chain is halted for
        good or a carrier drops everything.

        Args:
            ticks: Exclusive last tick; None: the scenario's.
            progress: Called after every commit.

        Returns:
            The last committed height.
        """
        limit = ticks if ticks is not None else self.scenario.network.ticks
        while (tick := self.next_tick()) is not None and (limit is None or tick < limit):
            outside = self._resumed_inputs.pop(tick, NO_INPUT)
            self._commit(tick, outside, EACH_HEIGHT if outside else self.scenario.network.commits, limit)
            if progress is not None:
                progress(self._before)
        if tick is None and not self.has_external and not self._recorded:
            self._claim.confirm()
            self.lake.settle(self._before)
        return self._before.height

    @property
    def is_finished(self) -> bool:
        """True if nothing would happen however long the network ran.

        Never true with chains run by another lake: a relay process may always deliver something.
        """
        return self.next_tick() is None and not self.has_external

    @property
    def has_external(self) -> bool:
        """True if another lake runs some of the chains."""
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
        """Run one tick and commit it as the next height.

        External input is written to the lake before it is used. Without any, input recorded for an unfinished height
        (``unfinished``) is used.

        Args:
            tick: A tick above the last committed one.
            ingress: External user messages (``INGRESS_SCHEMA``); only for a ``recorded`` network.
            carried: External chain messages (``CARRIED_SCHEMA``); only for a ``recorded`` network.
            noted: Notes on the input, stored with it.
            check: Called with the manifest before the commit; raises to prevent it.

        Returns:
            The committed manifest.

        Raises:
            InvalidInput: Input is given, and the network is not ``recorded``.
        """
        outside = self._resumed_inputs.pop(tick, NO_INPUT)
        if ingress is not None or carried is not None:
            if not self._recorded:
                raise InvalidInput("record: this network takes only the traffic of its scenario")
            outside = InputRecord(self.lake).write(tick, ingress=ingress, carried=carried, **noted)
            InputRecord(self.lake).remove(self._pending_input, outside)
            self._pending_input = outside
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
        """Run and commit the group of ticks that begins with ``tick``."""
        first = next_height_tick(self._before.line, tick, self._deployed.deployment.traffic, outside)
        group = TickGroup(first, outside, until, every)
        self._before = run_group(
            self._executor, self.lake, self._before, group, claim=self._claim, compacted=self._compacted, check=check
        )
        self._pending_input = NO_INPUT
        self._compacted = compact_logs(self.lake, self._before)

    @property
    def deployment(self) -> Deployment:
        """The kernel, the traffic and the buckets."""
        return self._deployed.deployment

    @property
    def topology(self) -> Topology:
        """The chains, their programs at genesis, and program moves."""
        return self._deployed.topology

    @property
    def before(self) -> Manifest:
        """Manifest of the last committed height."""
        return self._before

    def last_traffic_tick(self) -> int | None:
        """Return the last tick with traffic, or None."""
        return last_tick(self._deployed.deployment.traffic)

    @property
    def tables(self) -> LakeTables:
        """The lake's tables as Spark DataFrames."""
        from causeway.dataframes.lake_tables import LakeTables

        return LakeTables(self.spark, self.lake, self._replayed.tables)

    @cached_property
    def _replayed(self) -> StateReplay:
        """States of heights that are in no file."""
        return StateReplay(self.lake, lambda: self.deployment)

    @property
    def ledger(self) -> DataFrame:
        """Ledger rows (``docs/reference/ledger.md``) of all committed heights, one an event of a message."""
        return self.tables.ledger()

    @property
    def calls(self) -> DataFrame:
        """Call outcomes with their times, one row a call."""
        return self.tables.calls()

    def state(self, table: str, height: int | None = None, chain: str | None = None) -> DataFrame:
        """Return a state table (listed in ``docs/reference/lake.md``).

        Args:
            table: Name of the table.
            height: A committed height; None: the last.
            chain: Name of a chain; None: all.
        """
        return self.tables.state(table, height, chain)

    def program_state(self, name: str) -> Any:
        """Return the current state of a program without Spark, as the function ``program_state``.

        Raises:
            InvalidInput: The name is unknown.
        """
        return program_state(self.lake, self._before, self._deployed.topology, name)

    def summary(self) -> dict[str, Any]:
        """Return the call outcomes and the audit verdict of all committed heights.

        Raises:
            LakeError: The lake cannot be read.
            LedgerDamaged: The derived ledger is damaged.
            TaskFailed: A worker failed.
        """
        from causeway.analysis.run_summary import summarize_run

        with summarize_run(self.lake) as (_, found):
            return found.plain()

    def root(self) -> str:
        """Return a digest of the last roots of all chains."""
        return network_root(self.lake, self._before)

    def close(self) -> None:
        """Tidy the lake and release its claim; remove a temporary lake."""
        try:
            if self._temporary is None and self._claim.is_locked and hasattr(self, "_compacted"):
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
