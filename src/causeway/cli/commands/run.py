"""``causeway run``: run a scenario and report the outcome of its calls."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from causeway_proofs.errors import InvalidInput

from causeway.cli import completion, scenario_options, shell
from causeway.cli.options import argument, option
from causeway.cli.output.progress import RunProgress, bar_is_shown, show_spinner, stdout_console
from causeway.cli.output.run_outcome import RunFigures, measure_run, show_outcome
from causeway.cli.peak_memory import PeakMemory
from causeway.cli.process import InterruptHandler, compile_before_use

if TYPE_CHECKING:
    from causeway.analysis.run_summary import RunSummary
    from causeway.ledger.store import Ledger
    from causeway.network.network import LakeNetwork
    from causeway.storage.lake import Manifest

Observer = TypeVar("Observer")

MAX_TRAFFIC_TICKS = 5_000
"""Maximum ticks with traffic that the progress bar counts individually."""

Lake = Annotated[str | None, option("Folder or URI for the tables; default: a temporary one.", "--lake", metavar="DIR")]
Json = Annotated[bool, option("Print one JSON object instead of a summary.", "--json")]


def command(
    scenario: Annotated[Path, argument("Scenario file (TOML).", autocompletion=completion.complete_scenarios)],
    lake: Lake = None,
    resume: Annotated[bool, option("Continue the run in the lake.", "--resume")] = False,
    protocol: scenario_options.Protocol = None,
    master: scenario_options.Master = None,
    traffic: scenario_options.Traffic = None,
    executor: scenario_options.Executor = None,
    partitions: scenario_options.Partitions = None,
    ticks: scenario_options.Ticks = None,
    settings: scenario_options.Settings = None,
    spark: scenario_options.SparkSettings = None,
    as_json: Json = False,
) -> int:
    """Run a scenario and report the outcome of its calls.

    Options override keys of the scenario file. The verdict and the counts are those of its ledger, as causeway audit
    and causeway calls give them.

    [bold]Example[/bold]: causeway run examples/generated.toml --lake my-lake --set network.seed=3
    """
    overrides = scenario_options.collect_overrides(
        settings or (),
        protocol=protocol,
        master=master,
        executor=executor,
        traffic=traffic,
        partitions=partitions,
        ticks=ticks,
        spark=spark or (),
    )
    outcome, _ = execute_run(scenario, overrides, lake, lambda ledger, summary: None, resume=resume)
    if as_json:
        print(json.dumps(outcome.as_json()))
    else:
        show_outcome(outcome, stdout_console())
    return outcome.exit_code


def execute_run(
    scenario: Path,
    overrides: dict[str, str],
    lake: str | None,
    look: Callable[[Ledger, RunSummary], Observer],
    *,
    resume: bool = False,
) -> tuple[RunFigures, Observer]:
    """Run a scenario with a progress bar.

    Args:
        scenario: the scenario file.
        overrides: TOML values by dotted key.
        lake: folder or URI of the lake; None: a temporary one.
        look: reads the ledger at the end.
        resume: continue an existing lake.

    Returns:
        The figures of the run, and the result of ``look``.

    Raises:
        Interrupted: the user stopped it.
        InvalidInput: the scenario or the lake is not usable.
    """
    from causeway.analysis.run_summary import summarize_run

    reached: LakeNetwork | None = None
    with PeakMemory() as memory, InterruptHandler() as interrupts:
        try:
            started = time.perf_counter()
            with show_spinner("Starting"):
                network = _open(scenario, overrides, lake, resume)
            with network:
                reached = network
                interrupts.take()
                end = find_traffic_end(network)
                looks = bar_is_shown() and _long_traffic(network) is None
                busy = upcoming_traffic_ticks(network, end) if looks else []
                watch = RunProgress(scenario.name, network.tick, end, busy)
                ready = time.perf_counter()
                run_network(network, watch, interrupts)
                ran = time.perf_counter()
                with show_spinner("Counting"), summarize_run(network.lake) as (ledger, summary):
                    root = network.root()
                    times = {"setup": ready - started, "run": ran - ready, "summary": time.perf_counter() - ran}
                    seen = look(ledger, summary)
                memory.sample()
                return measure_run(network, str(scenario), lake, watch, summary, root, times, memory), seen
        except (KeyboardInterrupt, Exception) as error:
            # An interrupted call to Java raises an arbitrary error.
            if not interrupts.asked:
                raise
            raise shell.CommandInterrupted(_resume_hint(reached, lake)) from error


def run_network(network: LakeNetwork, watch: RunProgress, interrupts: InterruptHandler) -> None:
    """Run a network until its end; an interrupt ends it after the next commit.

    Args:
        network: the network.
        watch: shows the progress.
        interrupts: handler of the user's interrupts.

    Raises:
        KeyboardInterrupt: the user stopped it.
    """

    def committed(manifest: Manifest) -> None:
        watch(manifest)
        if interrupts.asked:
            raise KeyboardInterrupt

    interrupts.gentle = True
    with watch:
        network.run(progress=committed)
    interrupts.gentle = False


def _open(scenario: Path, overrides: dict[str, str], lake: str | None, resume: bool) -> LakeNetwork:
    from causeway.scenarios.jvm_prestart import prestart_jvm

    if resume and lake is None and "network.lake" not in overrides:
        raise InvalidInput("--resume: needs the lake to continue, as --lake DIR")
    # Java starts while this process imports its modules. Runs without Spark are small.
    if prestart_jvm(scenario, overrides):
        compile_before_use()
    from causeway.network.network import LakeNetwork

    return LakeNetwork.from_scenario(scenario, overrides, lake=lake, resume=resume, waiting=explain_claim_wait)


def explain_claim_wait() -> None:
    """Print the reason of a wait for the lake's lock."""
    shell.print_line("another run has claimed this lake; watching for up to 30 seconds whether it is still there")


def _resume_hint(network: LakeNetwork | None, lake: str | None) -> str:
    if network is None:
        return "stopped before the first tick"
    where = f"stopped at height {network.height}, tick {network.tick}"
    if lake is None and network.scenario.network.lake is None:
        return f"{where}; the lake was temporary; use --lake to be able to resume"
    return f"{where}; continue with the same command and --resume"


def find_traffic_end(network: LakeNetwork) -> int | None:
    """Return the tick after the last one with traffic or of the scenario; None if unbounded.

    Args:
        network: the network.

    Returns:
        The tick, or None.
    """
    limit = network.scenario.network.ticks
    long = _long_traffic(network)
    last = network.last_traffic_tick() if long is None else long
    ends: list[Any] = [end for end in (limit, None if last is None else last + 1) if end is not None]
    return min(ends, default=None)


def _long_traffic(network: LakeNetwork) -> int | None:
    from causeway.network.scenario_plan import is_long_traffic

    return is_long_traffic(network.scenario, network.topology.chains.num_rows)


def upcoming_traffic_ticks(network: LakeNetwork, end: int | None) -> list[int]:
    """Return the coming ticks with traffic below ``end``; empty if there are too many to search.

    Args:
        network: the network.
        end: the end tick, or None.

    Returns:
        The ticks, ascending.
    """
    from causeway.scenarios import traffic_sources

    traffic = network.deployment.traffic
    return traffic_sources.ticks_with_traffic(traffic, network.tick, end, MAX_TRAFFIC_TICKS) or []
