"""``causeway run``: run a scenario and report the outcome of its calls."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from causeway.cli import completion, shell
from causeway.cli.compiling import compile_first
from causeway.cli.interrupts import Interrupts
from causeway.cli.memory import PeakMemory
from causeway.cli.options import argument, option
from causeway.cli.outcome import Outcome, outcome_of, show
from causeway.cli.overriding import overrides_of
from causeway.cli.scenario_options import (
    Executor,
    Master,
    Partitions,
    Protocol,
    Settings,
    SparkSettings,
    Ticks,
    Traffic,
)
from causeway.cli.watch import Watch, bar_is_shown, results, waiting
from causeway.model.errors import InvalidInput

if TYPE_CHECKING:
    from causeway.network.network import Network
    from causeway.network.summary import Summary
    from causeway.pipeline.lake import Manifest
    from causeway.pipeline.ledger_store import Ledger

Seen = TypeVar("Seen")

TICKS_LOOKED_FOR = 5_000
"""A bar counts the ticks that bring traffic, one by one, where there are at most this many."""

Lake = Annotated[str | None, option("Folder or URI for the tables; default: a temporary one.", "--lake", metavar="DIR")]
Json = Annotated[bool, option("Print one JSON object instead of a summary.", "--json")]


def command(
    scenario: Annotated[Path, argument("Scenario file (TOML).", autocompletion=completion.scenarios)],
    lake: Lake = None,
    resume: Annotated[bool, option("Continue the run in the lake.", "--resume")] = False,
    protocol: Protocol = None,
    master: Master = None,
    traffic: Traffic = None,
    executor: Executor = None,
    partitions: Partitions = None,
    ticks: Ticks = None,
    settings: Settings = None,
    spark: SparkSettings = None,
    as_json: Json = False,
) -> int:
    """Run a scenario and report the outcome of its calls.

    Options override keys of the scenario file. The verdict and the counts are those of its ledger, as causeway audit
    and causeway calls give them.

    [bold]Example[/bold]: causeway run examples/generated.toml --lake my-lake --set network.seed=3
    """
    overrides = overrides_of(
        settings or (),
        protocol=protocol,
        master=master,
        executor=executor,
        traffic=traffic,
        partitions=partitions,
        ticks=ticks,
        spark=spark or (),
    )
    outcome, _ = execute(scenario, overrides, lake, lambda ledger, summary: None, resume=resume)
    if as_json:
        print(json.dumps(outcome.as_json()))
    else:
        show(outcome, results())
    return outcome.exit_code


def execute(
    scenario: Path,
    overrides: dict[str, str],
    lake: str | None,
    look: Callable[[Ledger, Summary], Seen],
    *,
    resume: bool = False,
) -> tuple[Outcome, Seen]:
    """Run a scenario with a progress bar; return its outcome, and what ``look`` returns for its ledger at the end.

    Raises ``Interrupted`` and ``InvalidInput``.
    """
    from causeway.network.summary import summarised

    reached: Network | None = None
    with PeakMemory() as memory, Interrupts() as interrupts:
        try:
            started = time.perf_counter()
            with waiting("Starting"):
                network = _open(scenario, overrides, lake, resume)
            with network:
                reached = network
                interrupts.take()
                end = end_of_traffic(network)
                looks = bar_is_shown() and _long_traffic(network) is None
                busy = ticks_with_traffic(network, end) if looks else []
                watch = Watch(scenario.name, network.tick, end, busy)
                ready = time.perf_counter()
                _run(network, watch, interrupts)
                ran = time.perf_counter()
                with waiting("Counting"), summarised(network.lake) as (ledger, summary):
                    root = network.root()
                    times = {"setup": ready - started, "run": ran - ready, "summary": time.perf_counter() - ran}
                    seen = look(ledger, summary)
                memory.sample()
                return outcome_of(network, str(scenario), lake, watch, summary, root, times, memory), seen
        except (KeyboardInterrupt, Exception) as error:
            # An interrupted call to Java ends with an error of any kind.
            if not interrupts.asked:
                raise
            raise shell.Interrupted(_how_to_continue(reached, lake)) from error


def _run(network: Network, watch: Watch, interrupts: Interrupts) -> None:
    def committed(manifest: Manifest) -> None:
        watch(manifest)
        if interrupts.asked:
            raise KeyboardInterrupt

    interrupts.gentle = True
    with watch:
        network.run(progress=committed)
    interrupts.gentle = False


def _open(scenario: Path, overrides: dict[str, str], lake: str | None, resume: bool) -> Network:
    from causeway.network.early import begin_early

    if resume and lake is None and "network.lake" not in overrides:
        raise InvalidInput("--resume: needs the lake to continue, as --lake DIR")
    # Java starts while this process imports what it needs. What runs without Spark is small.
    if begin_early(scenario, overrides):
        compile_first()
    from causeway.network.network import Network

    return Network.from_scenario(scenario, overrides, lake=lake, resume=resume, waiting=claim_is_watched)


def claim_is_watched() -> None:
    """Say why nothing happens for a while."""
    shell.tell("another run has claimed this lake; watching for up to 30 seconds whether it is still there")


def _how_to_continue(network: Network | None, lake: str | None) -> str:
    if network is None:
        return "stopped before the first tick"
    where = f"stopped at height {network.height}, tick {network.tick}"
    if lake is None and network.scenario.network.lake is None:
        return f"{where}; the lake was temporary; use --lake to be able to resume"
    return f"{where}; continue with the same command and --resume"


def end_of_traffic(network: Network) -> int | None:
    """Return the tick after the last that brings traffic or that the scenario runs to, None when there is no end."""
    limit = network.scenario.network.ticks
    long = _long_traffic(network)
    last = network.last_traffic_tick() if long is None else long
    ends: list[Any] = [end for end in (limit, None if last is None else last + 1) if end is not None]
    return min(ends, default=None)


def _long_traffic(network: Network) -> int | None:
    from causeway.network.planned import long_traffic

    return long_traffic(network.scenario, network.topology.chains.num_rows)


def ticks_with_traffic(network: Network, end: int | None) -> list[int]:
    """Return the ticks from now on, below ``end``, that bring traffic; none where there are too many to look for."""
    from causeway.network import traffic_ticks

    traffic = network.deployment.traffic
    return traffic_ticks.ticks_with_traffic(traffic, network.tick, end, TICKS_LOOKED_FOR) or []
