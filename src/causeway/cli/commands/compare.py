"""``causeway compare``: run the same traffic through several protocols, side by side."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.cli import scenario_options, shell
from causeway.cli.commands.report import require_report_target
from causeway.cli.options import argument, option
from causeway.cli.output.progress import show_spinner, stderr_console, stdout_console
from causeway.cli.output_paths import write_files
from causeway.cli.process import InterruptHandler, compile_before_use
from causeway.core.interrupts import was_interrupted

if TYPE_CHECKING:
    from causeway.compare.comparison import Comparison, ComparisonColumn
    from causeway.compare.runs import PlannedRun

AUTO, OWN, SAMPLE, NONE = "auto", "own", "sample", "none"
_FAULTS = (AUTO, OWN, SAMPLE, NONE)


def command(
    scenario: Annotated[Path, argument("Scenario file (TOML).")],
    protocols: Annotated[
        str | None, option("Protocols, separated by commas.", metavar="NAMES", show_default="all")
    ] = None,
    lake: Annotated[
        str | None, option("Folder for the lakes; default: a temporary one.", "--lake", metavar="DIR")
    ] = None,
    resume: Annotated[bool, option("Resume existing lakes.", "--resume")] = False,
    faults: Annotated[
        str,
        option(
            "Fault trials: own (this scenario), sample (a small network), none, auto.",
            metavar="HOW",
            show_default=True,
        ),
    ] = AUTO,
    report: Annotated[Path | None, option("Also write an HTML page.", "--report", metavar="FILE")] = None,
    traffic: scenario_options.Traffic = None,
    executor: scenario_options.Executor = None,
    master: scenario_options.Master = None,
    partitions: scenario_options.Partitions = None,
    ticks: scenario_options.Ticks = None,
    settings: scenario_options.Settings = None,
    spark: scenario_options.SparkSettings = None,
    overwrite: Annotated[bool, option("Overwrite a file that is not a report.", "--overwrite")] = False,
    as_json: Annotated[bool, option("Print one JSON object instead of a table.", "--json")] = False,
) -> int:
    """Run the same traffic through several protocols and compare their costs and guarantees.

    Every protocol runs in a process of its own. The command verifies that all received the same user messages.
    Exit code 1 when a run fails, or violates a guarantee of its protocol.

    [bold]Example[/bold]: causeway compare examples/compare.toml --protocols ic,ibc,xdm,icmp --report compare.html
    """
    from causeway.compare.runs import plan_runs
    from causeway.protocols.registry import protocol_names

    overrides = scenario_options.collect_overrides(
        settings or (),
        master=master,
        executor=executor,
        traffic=traffic,
        partitions=partitions,
        ticks=ticks,
        spark=spark or (),
    )
    for key, flag in _COMMON_KEYS.items():
        if key in overrides:
            raise InvalidInput(f"--set {key}: of each column; use {flag}")
    if faults not in _FAULTS:
        raise InvalidInput(f"--faults: {faults}: must be one of {', '.join(_FAULTS)}")
    if resume and lake is None:
        raise InvalidInput("--resume: needs the lakes to continue, as --lake DIR")
    if report is not None:
        require_report_target(report, lake, overwrite=overwrite, option="--report")
        if not report.absolute().parent.is_dir():
            raise InvalidInput(f"--report {report}: cannot be written: its directory does not exist")
    chosen = protocol_names() if protocols is None else [name.strip() for name in protocols.split(",") if name.strip()]
    planned = plan_runs(scenario, chosen, overrides)
    with _folder(lake) as folder, InterruptHandler():
        try:
            comparison = _compare(scenario, planned, folder, resume, faults)
        except KeyboardInterrupt:
            how = "the lakes were temporary" if lake is None else "continue with the same command and --resume"
            raise shell.CommandInterrupted(f"stopped; {how}") from None
    found = comparison.as_json()
    if report is not None:
        _write_report(report, found)
    if as_json:
        print(json.dumps(found))
    else:
        from causeway.cli.output.comparison import show_comparison

        show_comparison(found, stdout_console())
        if report is not None:
            stderr_console().print(f"The page is {report}.", soft_wrap=True)
    return shell.OK if comparison.holds else shell.FAILED


_COMMON_KEYS = {"network.protocol": "--protocols", "network.lake": "--lake"}
"""Scenario keys common to all columns, with the option of this command for each."""


@contextmanager
def _folder(lake: str | None) -> Iterator[str]:
    from causeway.ledger.commits import LEDGER_FILE
    from causeway.storage.layout import LAKE_FILE

    if lake is not None:
        if "://" in lake:
            raise InvalidInput(f"--lake: {lake}: must be a folder")
        _require_folder(Path(lake))
        for name, what in ((LAKE_FILE, "a lake"), (LEDGER_FILE, "a ledger")):
            if (Path(lake) / name).exists():
                raise InvalidInput(f"--lake: {lake}: is {what}; name a folder that is none, for the lakes of all")
        yield lake
        return
    with tempfile.TemporaryDirectory(prefix="causeway-compare-") as folder:
        yield folder


def _require_folder(place: Path) -> None:
    """Reject a path that cannot be a folder.

    Raises:
        InvalidInput: the path is a file, or not accessible.
    """
    there = next(each for each in (place.absolute(), *place.absolute().parents) if each.exists())
    if not there.is_dir():
        raise InvalidInput(f"--lake: {place}: {there} is a file; name a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InvalidInput(f"--lake: {place}: {there} cannot be written")


def _compare(path: Path, planned: Sequence[PlannedRun], folder: str, resume: bool, faults: str) -> Comparison:
    from causeway.compare.comparison import Comparison, protocol_guarantees, same_ingress
    from causeway.compare.faults import FEW_CALLS, try_faults
    from causeway.scenarios import scenario_file

    if resume:
        _require_same(planned, folder)
    else:
        _require_free(planned, folder)
    # Compile before the first column, or its time would include the compilation.
    compile_before_use()
    columns = same_ingress([_column(one, folder, resume) for one in planned])
    guarantees = {one.protocol: protocol_guarantees(one) for one in planned}
    seconds = planned[0].scenario.network.seconds_per_tick
    about = {"machine": platform.machine(), "cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
    whole = Comparison(path.name, seconds, columns, guarantees, about=about)
    if faults == NONE:
        return whole
    counts = [column.taken.count for column in columns if column.taken is not None]
    own = faults == OWN or (faults == AUTO and bool(counts) and max(counts) <= FEW_CALLS)
    with scenario_file("trial") as sample, _step_spinner() as said:
        found = try_faults(planned, str(path) if own else str(sample), report=said)
    return Comparison(path.name, seconds, columns, guarantees, found, path.name if own else "sample", about)


def _require_free(planned: Sequence[PlannedRun], folder: str) -> None:
    for one in planned:
        place = Path(folder) / one.protocol
        if place.exists():
            raise InvalidInput(f"--lake: {place} is there already; go on with --resume, or name another folder")


def _require_same(planned: Sequence[PlannedRun], folder: str) -> None:
    """Reject lakes of another scenario before any run.

    Raises:
        InvalidInput: a lake belongs to another scenario.
        LakeError: a lake is corrupted.
    """
    from causeway.storage.lake import Lake

    for one in planned:
        lake = Lake.at(str(Path(folder) / one.protocol))
        if lake.exists() and (other := one.scenario.difference(lake.about()["scenario"])) is not None:
            place = Path(folder) / one.protocol
            raise InvalidInput(f"--lake: {place} is of another scenario: {other[0]} differs; name another folder")


def _column(one: PlannedRun, folder: str, resume: bool) -> ComparisonColumn:
    """Return a column, and run it if it is not finished; a failure is part of the column."""
    from causeway.compare.comparison import ComparisonColumn, IngressDiffers, build_column
    from causeway.compare.runs import read_outcome, run_column, write_outcome
    from causeway.storage.lake import Lake

    place = str(Path(folder) / one.protocol)
    there = resume and Lake.at(place).exists()
    content = read_outcome(folder, one) if there else None
    if content is None:
        ran = run_column(one, place, resume=there)
        if ran.content is None:
            return ComparisonColumn(one.protocol, ran.failed)
        content = ran.content
        write_outcome(folder, one, content)
    try:
        with _step_spinner() as report:
            return build_column(one, place, content, lambda text: report(f"{one.protocol}: {text}"))
    except IngressDiffers as error:
        return ComparisonColumn(one.protocol, str(error))
    except CausewayError as error:
        return ComparisonColumn(one.protocol, f"its lake cannot be read: {error}")
    except Exception as error:
        # An internal error of one column must not hide the others.
        if shell.is_debugging() or was_interrupted(error):
            raise
        return ComparisonColumn(one.protocol, shell.internal_error_line(error))


@contextmanager
def _step_spinner() -> Iterator[Any]:
    """Show the current step on a terminal."""
    console = stderr_console()
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("", spinner="dots") as status:
        yield status.update


def _write_report(place: Path, found: Mapping[str, Any]) -> None:
    from causeway.compare.table import section_data
    from causeway.report.comparison import compare_page

    with show_spinner("writing the page"):
        write_files({place: compare_page(section_data(found)).encode()}, {place: "--report"})
