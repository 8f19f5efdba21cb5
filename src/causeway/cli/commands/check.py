"""``causeway check``: verify a lake, a ledger or a scenario.

The files of a lake are compared with its manifests, and roots with states. ``--execute`` re-executes its heights. The
files of a ledger are compared with its seals.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from causeway_proofs.errors import InvalidInput
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from causeway.cli import completion, scenario_options, shell
from causeway.cli.options import argument, option
from causeway.cli.output.progress import show_spinner, stderr_console, stdout_console
from causeway.cli.process import compile_before_use
from causeway.core.text import count_noun, escape_controls

if TYPE_CHECKING:
    from rich.console import Console

    from causeway.network.opened_lake import OpenedLake
    from causeway.network.recheck import ExecutedRange, LakeRecheck
    from causeway.network.reexecution import DifferingHeight
    from causeway.programs.user_modules import ModuleSources
    from causeway.protocols.shared.secrets import Secrets
    from causeway.storage.integrity import LakeCheck
    from causeway.storage.lake import LakeDamaged

LAKE, SCENARIO = "Lakes", "Scenarios"


def command(
    what: Annotated[
        str,
        argument(
            "Folder or URI of a lake or a ledger, or a scenario file (TOML).",
            metavar="LAKE|LEDGER|SCENARIO",
            autocompletion=completion.complete_scenarios,
        ),
    ],
    execute: Annotated[
        bool, option("Re-execute the heights and compare roots, rows and states.", "--execute", panel=LAKE)
    ] = False,
    first: Annotated[int | None, option("First height to execute; default: 0.", "--from", panel=LAKE)] = None,
    last: Annotated[int | None, option("Last height to execute; default: the last.", "--to", panel=LAKE)] = None,
    processes: Annotated[
        int | None,
        option("Ranges of heights to execute in parallel; default: by the work.", metavar="N", panel=LAKE, min=1),
    ] = None,
    scenario: Annotated[Path | None, scenario_options.lake_scenario_option(LAKE)] = None,
    programs: Annotated[list[str] | None, scenario_options.lake_programs_option(LAKE)] = None,
    validator_keys: Annotated[
        list[Path] | None,
        option(
            "Key file of a validator of a served lake, needed to re-execute it; may be repeated.",
            "--validator-key",
            metavar="FILE",
            panel=LAKE,
        ),
    ] = None,
    protocol: Annotated[str | None, scenario_options.protocol_option(SCENARIO)] = None,
    traffic: Annotated[str | None, scenario_options.traffic_option(SCENARIO)] = None,
    settings: Annotated[list[str] | None, scenario_options.settings_option(SCENARIO)] = None,
    as_json: Annotated[bool, option("Print one JSON object.", "--json")] = False,
) -> int:
    """Verify a lake or a ledger, or a scenario before it runs.

    Lake (a folder or URI): verifies the chain of manifests, every file, and the roots of every stored state. The lake
    is not changed and may be in use. --execute re-executes all heights, also those without stored state, and compares
    roots, rows and states. If the tables have changed since the run (a new version of a program or of Causeway), only
    the files are verified. Exit code 1: the lake is damaged or re-execution differs; 2: a program is missing that the
    roots need.

    Ledger (a folder or URI): verifies the commits and every committed file. Exit code 1: the ledger is damaged.

    Scenario (a file): reports every error with its key and line, the planned run, and settings without effect. Nothing
    is run, but the programs are imported. Exit code 2: there are errors.

    [bold]Example[/bold]: causeway check my-lake --execute --from 10
    [bold]Example[/bold]: causeway check scenario.toml --set network.seed=3
    """
    of_lake = {
        "--execute": execute, "--from": first is not None, "--to": last is not None,
        "--processes": processes is not None, "--scenario": scenario is not None, "--programs": bool(programs),
        "--validator-key": bool(validator_keys),
    }  # fmt: skip
    if is_scenario(what):
        _refuse("only of a lake", of_lake)
        from causeway.cli.commands.check_scenario import check_scenario

        return check_scenario(what, protocol=protocol, traffic=traffic, settings=settings or (), as_json=as_json)
    given = {"--protocol": protocol is not None, "--traffic": traffic is not None, "--set": bool(settings)}
    _refuse("only of a scenario", given)
    if not execute and (first is not None or last is not None):
        raise InvalidInput("--from, --to: heights to execute again; give --execute, too")
    if _is_ledger(what):
        _refuse("only of a lake", of_lake)

        return check_ledger(what, as_json=as_json)
    compile_before_use()

    return check_lake(
        what,
        execute=execute,
        first=first,
        last=last,
        processes=processes,
        sources=scenario_options.program_sources(scenario, programs),
        validator_keys=validator_keys or (),
        as_json=as_json,
    )


def _is_ledger(what: str) -> bool:
    from causeway.ledger.commits import LEDGER_FILE
    from causeway.storage.files import Storage

    return Storage(what).exists(LEDGER_FILE)


def is_scenario(what: str) -> bool:
    """Return True if the argument is a file, not a folder or URI."""
    if "://" in what:
        return False
    path = Path(what)
    try:
        return (path.exists() and not path.is_dir()) or (not path.exists() and path.suffix == ".toml")
    except OSError:
        return False


def _refuse(why: str, given: dict[str, bool]) -> None:
    for flag, is_given in given.items():
        if is_given:
            raise InvalidInput(f"{flag}: {why}")


MAX_DAMAGED = 20
"""Maximum listed damaged files, and folders with stray files; others are counted."""


def check_lake(
    lake: str,
    *,
    execute: bool,
    first: int | None,
    last: int | None,
    processes: int | None,
    sources: ModuleSources,
    validator_keys: Sequence[Path],
    as_json: bool,
) -> int:
    """Verify a lake, print the result, and return the exit code.

    Args:
        lake: folder or URI.
        execute: re-execute heights, too.
        first: first height to execute, or None.
        last: last height to execute, or None.
        processes: number of parallel ranges, or None.
        sources: modules of user programs.
        validator_keys: key files of validators.
        as_json: print JSON.

    Returns:
        The exit code.

    Raises:
        InvalidInput: an argument is invalid.
        LakeError: there is no lake.
    """
    from causeway.network.opened_lake import open_lake
    from causeway.storage.integrity import LakeCheck, verify_lake
    from causeway.storage.lake import Lake
    from causeway.storage.layout import LakeDamaged

    try:
        with progress_bar("files") as progress:
            checked = verify_lake(Lake.at(lake), progress)
    except LakeDamaged as error:  # the lake's description is corrupted, so nothing else can be checked
        checked = LakeCheck(0, 0, 0, 0, (error,), ())
    executed: ExecutedRange | None = None
    found = list(checked.damaged)
    states, other, missing = 0, "", ""
    if not found and checked.heights:
        from causeway.network.recheck import LakeRecheck
        from causeway.network.replay import MissingKeys, OtherTables
        from causeway.programs.catalogue import ProgramNotFound

        opened = open_lake(lake)
        again: LakeRecheck | None = None
        with show_spinner("Reading the network"):
            secrets = _secrets(validator_keys)
            try:
                again = LakeRecheck(opened, sources, secrets)
            except OtherTables as error:
                if execute:
                    raise
                other = error.what
            except (MissingKeys, ProgramNotFound) as error:
                other = missing = str(error)
        if again is not None:
            with progress_bar("roots") as progress:
                states, found = _wrong_roots(opened, again, progress)
        if again is not None and execute and not found:
            end = checked.heights - 1 if last is None else last
            with progress_bar("heights") as progress:
                executed = again.ranges(first or 0, end, processes=processes, progress=progress)
    if as_json:
        print(json.dumps(_as_json(checked, states, other, found, executed)))
    else:
        _show(lake, checked, states, other, found, executed)
    if found or (executed is not None and executed.different):
        return shell.FAILED
    return shell.BAD_INPUT if missing else shell.OK


def _secrets(files: Sequence[Path]) -> Secrets:
    from causeway.protocols.shared.secrets import Secrets
    from causeway.service.keys.key_files import read_key

    return Secrets({key.public: key.seed for key in map(read_key, files)})


def _wrong_roots(
    opened: OpenedLake, again: LakeRecheck, progress: Callable[[int, int], None]
) -> tuple[int, list[LakeDamaged]]:
    """Return the number of stored states, and those with other roots than their headers."""
    from causeway.storage.lake import LakeDamaged

    count, states = opened.manifest().number + 1, 0
    wrong: list[LakeDamaged] = []
    for number in range(count):
        if opened.lake.freed(opened.lake.numbered(number).last) is None:
            states += 1
            try:
                again.roots(number)
            except LakeDamaged as error:
                wrong.append(error)
        progress(number + 1, count)
    return states, wrong


def _show(
    lake: str,
    checked: LakeCheck,
    states: int,
    other: str,
    damaged: list[LakeDamaged],
    executed: ExecutedRange | None,
) -> None:
    console = stdout_console()
    freed = f", the state of {checked.freed:,} of them freed" if checked.freed else ""
    console.print(
        f"[bold]{escape(lake)}[/bold]: {count_noun(checked.heights, 'height')}{freed}; {checked.files:,} files, "
        f"{checked.bytes:,} bytes"
    )
    if damaged:
        whole = min(error.whole for error in damaged)
        console.print(f"FAILED: last verified height {whole}" if whole >= 0 else "FAILED: no verified height")
    show_damage(console, [f"{error.path} {error.what}" for error in damaged], checked.strays)
    if damaged:
        return
    if other:
        console.print(f"INCONCLUSIVE: all files verified, roots not recomputed: {escape(other)}")
        return
    differs = executed is not None and bool(executed.different)
    verdict = "FAILED: re-execution differs; files" if differs else "PASSED: all files"
    console.print(f"{verdict} verified; roots match the headers for {_verified_states(checked, states)}.")
    if executed is not None and executed.different:
        for each in executed.different[:MAX_DAMAGED]:
            console.print(f"[red]{_difference_text(each)}[/red]: {escape(', '.join(each.chains))}")
        if len(executed.different) > MAX_DAMAGED:
            console.print(f"  ... and {len(executed.different) - MAX_DAMAGED:,} more; --json has all of them")
    elif executed is not None:
        console.print(f"Re-executed heights {executed.first:,} to {executed.last:,}: identical.")
    elif states + checked.freed < checked.heights:
        console.print("The other heights have no state in files; --execute re-executes them.")


def show_damage(console: Console, damaged: Sequence[str], strays: Sequence[str]) -> None:
    """Print the damaged files, and the number of stray files by folder.

    Args:
        console: the console.
        damaged: texts about damaged files.
        strays: paths of stray files.
    """
    from causeway.storage.integrity import count_strays

    for what in damaged[:MAX_DAMAGED]:
        console.print(f"  [red]damaged[/red]  {escape(escape_controls(what))}", soft_wrap=True)
    if len(damaged) > MAX_DAMAGED:
        console.print(f"  ... and {len(damaged) - MAX_DAMAGED:,} more; --json has all of them")
    for folder, count in list(count_strays(strays).items())[:MAX_DAMAGED]:
        where = f"{escape(escape_controls(folder))} that nothing names, and nothing reads"
        console.print(f"  stray    {count_noun(count, 'file')} in {where}")


def _difference_text(each: DifferingHeight) -> str:
    from causeway.network.reexecution import DifferenceReason

    if each.reason == DifferenceReason.ROOT:
        return f"height {each.height}: different root"
    what = "rows" if each.reason == DifferenceReason.ROWS else "stored state"
    return f"height {each.height}: different {what} of {each.place}"


def _verified_states(checked: LakeCheck, states: int) -> str:
    """Return the heights with verified state, as a phrase."""
    if states == checked.heights:
        return "all heights"
    if states + checked.freed == checked.heights:
        return "all heights whose state is not freed"
    return f"the {count_noun(states, 'height')} with state in files"


def _as_json(
    checked: LakeCheck,
    states: int,
    other: str,
    damaged: list[LakeDamaged],
    executed: ExecutedRange | None,
) -> dict[str, object]:
    differences = [
        {
            "height": each.height,
            "chains": list(each.chains),
            "reason": each.reason.value,
            "what": each.what,
            "column": each.column or None,
        }
        for each in (() if executed is None else executed.different)
    ]
    return {
        "heights": checked.heights,
        "freed": checked.freed,
        "states": states,
        "other_tables": other or None,
        "files": checked.files,
        "bytes": checked.bytes,
        "whole": min((error.whole for error in damaged), default=checked.heights - 1),
        "damaged": [{"path": error.path, "what": error.what, "whole": error.whole} for error in damaged],
        "strays": list(checked.strays),
        "executed": None if executed is None else [executed.first, executed.last],
        "different": next(iter(differences), None),
        "differences": differences,
    }


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal.

    Args:
        what: name of the step.

    Yields:
        A callback for the done units and all units.
    """
    console = stderr_console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


def check_ledger(uri: str, *, as_json: bool) -> int:
    """Verify a ledger, print the result, and return the exit code.

    Args:
        uri: folder or URI.
        as_json: print JSON.

    Returns:
        The exit code.

    Raises:
        InvalidInput: there is no ledger.
    """
    from causeway.ledger import integrity

    with progress_bar("files") as progress:
        found = integrity.check_ledger(uri, progress)
    if as_json:
        print(json.dumps({**vars(found), "damaged": list(found.damaged), "strays": list(found.strays)}))
        return shell.FAILED if found.damaged else shell.OK
    console = stdout_console()
    looked_at = (
        f"{found.commits:,} commits, {found.rows:,} rows of events; {found.files:,} files, {found.bytes:,} bytes"
    )
    if not found.commits and found.damaged:
        looked_at = "cannot be opened"
    console.print(f"[bold]{escape(escape_controls(uri))}[/bold]: {looked_at}", soft_wrap=True)
    if found.damaged:
        console.print("FAILED: damaged files")
    show_damage(console, found.damaged, found.strays)
    if found.damaged:
        return shell.FAILED
    console.print("PASSED: all files verified.")
    return shell.OK
