"""``causeway check``: whether a lake is what was written, or a scenario what can run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from causeway.cli import completion
from causeway.cli.compiling import compile_first
from causeway.cli.options import argument, option
from causeway.cli.scenario_options import (
    programs_of_lake_in,
    protocol_in,
    scenario_of_lake_in,
    settings_in,
    sources_in,
    traffic_in,
)
from causeway.model.errors import InvalidInput

LAKE, SCENARIO = "Of a lake", "Of a scenario"


def command(
    what: Annotated[
        str,
        argument(
            "Folder or URI of a lake or a ledger, or a scenario file (TOML).",
            metavar="LAKE|LEDGER|SCENARIO",
            autocompletion=completion.scenarios,
        ),
    ],
    execute: Annotated[
        bool, option("Also execute the heights again, and compare what comes out.", "--execute", panel=LAKE)
    ] = False,
    first: Annotated[int | None, option("First height to execute; default: 0.", "--from", panel=LAKE)] = None,
    last: Annotated[int | None, option("Last height to execute; default: the last.", "--to", panel=LAKE)] = None,
    processes: Annotated[
        int | None,
        option("Execute so many ranges of heights at once; default: by the work.", metavar="N", panel=LAKE, min=1),
    ] = None,
    scenario: Annotated[Path | None, scenario_of_lake_in(LAKE)] = None,
    programs: Annotated[list[str] | None, programs_of_lake_in(LAKE)] = None,
    validator_keys: Annotated[
        list[Path] | None,
        option(
            "Key file of a validator of a served lake, to execute it again; may be repeated.",
            "--validator-key",
            metavar="FILE",
            panel=LAKE,
        ),
    ] = None,
    protocol: Annotated[str | None, protocol_in(SCENARIO)] = None,
    traffic: Annotated[str | None, traffic_in(SCENARIO)] = None,
    settings: Annotated[list[str] | None, settings_in(SCENARIO)] = None,
    as_json: Annotated[bool, option("Print one JSON object.", "--json")] = False,
) -> int:
    """Verify a lake or a ledger, or a scenario before it runs.

    Of a lake (a folder or URI): the chain of its manifests, every file, and the roots of every state that is in files.
    Nothing is changed, and the lake may be in use. With --execute the heights run again from what the lake holds, also
    those whose state is in no file, and must give the same roots, rows and states. Of a lake whose tables are others
    now (a program has changed since, or Causeway) the files are verified, the roots are not. Exit code 1 when the lake
    is damaged, or executing it again gives something else; 2 when a program is missing that the roots need.

    Of a ledger (a folder or URI): its commits, and every file that counts. Exit code 1 when it is damaged.

    Of a scenario (a file): all that is wrong with it, each with its key and line; what it would run; and what in it
    does nothing. Nothing is run, but its programs are imported. Exit code 2 when something is wrong.

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
        from causeway.cli.check_scenario import check_scenario

        return check_scenario(what, protocol=protocol, traffic=traffic, settings=settings or (), as_json=as_json)
    given = {"--protocol": protocol is not None, "--traffic": traffic is not None, "--set": bool(settings)}
    _refuse("only of a scenario", given)
    if not execute and (first is not None or last is not None):
        raise InvalidInput("--from, --to: heights to execute again; give --execute, too")
    if _is_ledger(what):
        _refuse("only of a lake", of_lake)
        from causeway.cli.check_ledger import check_ledger

        return check_ledger(what, as_json=as_json)
    compile_first()
    from causeway.cli.check_lake import check_lake

    return check_lake(
        what,
        execute=execute,
        first=first,
        last=last,
        processes=processes,
        sources=sources_in(scenario, programs),
        validator_keys=validator_keys or (),
        as_json=as_json,
    )


def _is_ledger(what: str) -> bool:
    from causeway.pipeline.ledger_commits import LEDGER_FILE
    from causeway.pipeline.storage import Storage

    return Storage(what).exists(LEDGER_FILE)


def is_scenario(what: str) -> bool:
    """Return whether a file is meant, and no folder or URI."""
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
