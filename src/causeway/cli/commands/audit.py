"""``causeway audit``: check a ledger, or a lake, and print the verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from causeway_proofs.errors import InvalidInput
from rich.markup import escape

from causeway.cli import completion, process, shell
from causeway.cli.options import argument, option
from causeway.cli.output.audit import audit_data, progress_bar, show_audit, write_tables
from causeway.cli.output.progress import stderr_console
from causeway.cli.output_paths import make_folder, name_ledger_errors, require_place
from causeway.cli.process import compile_before_use
from causeway.cli.scenario_options import (
    SparkSettings,
    lake_programs_option,
    lake_scenario_option,
    parse_setting,
    program_sources,
)
from causeway.core.text import escape_controls

if TYPE_CHECKING:
    from causeway.ledger.store import Ledger
    from causeway.network.recheck import ExecutedRange
    from causeway.programs.user_modules import ModuleSources
    from causeway.spark import FrameLedger

HOW, AGAIN, FOLLOWING = "Execution", "Re-execution", "Follow"

MASTER = "local[*]"
NAMED, NAMED_FOLLOWING = 10_000, 100
INTERVAL = 5.0
"""Seconds between two passes of ``--follow``."""


def command(
    lake: Annotated[
        str | None, argument("Folder or URI of a ledger, or of a lake that Causeway ran; left out with --table.")
    ] = None,
    check: Annotated[
        list[str] | None,
        option(
            "Run only this check; may be repeated.",
            "--check",
            metavar="NAME",
            autocompletion=completion.complete_checks,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "Write the tables violations, completeness, lanes, sums and abroad to this folder, as Parquet.",
            metavar="DIR",
        ),
    ] = None,
    named: Annotated[
        int | None,
        option(
            f"Findings to list per lane, check and reason; default: {NAMED}, with --follow {NAMED_FOLLOWING}.",
            "--named",
            metavar="N",
            min=1,
        ),
    ] = None,
    deadline: Annotated[
        list[str] | None,
        option(
            "Time until each message is received, or each request answered: received=1h, answered=2h, "
            "received=none; may be repeated.",
            "--deadline",
            metavar="EVENT=TIME",
        ),
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        option(
            "Clock tolerance of a chain, or of every chain: 2s, para-b=500ms; may be repeated.",
            "--tolerance",
            metavar="[CHAIN=]TIME",
        ),
    ] = None,
    strict: Annotated[bool, option("Exit with 4 when the audit is inconclusive.", "--strict")] = False,
    executor: Annotated[
        str,
        option(
            "in_process, spark, or auto: by the number of rows.",
            metavar="HOW",
            panel=HOW,
            autocompletion=completion.complete_audit_executors,
            show_default=True,
        ),
    ] = "auto",
    master: Annotated[
        str,
        option("Spark master, such as 'local[2]' or spark://host:7077.", metavar="URL", panel=HOW, show_default=True),
    ] = MASTER,
    spark: SparkSettings = None,
    table: Annotated[
        list[str] | None,
        option(
            "Audit the events in a table of Spark, such as CATALOG.TABLE; observed=TABLE, promises=, headers=, "
            "watermarks= and value= name what is known beside them; may be repeated.",
            "--table",
            metavar="[KIND=]TABLE",
            panel=HOW,
        ),
    ] = None,
    folder: Annotated[
        str | None,
        option(
            "With --table: folder or URI that this process and all workers can write; default: the temporary folder.",
            "--folder",
            metavar="DIR",
            panel=HOW,
        ),
    ] = None,
    reexecute: Annotated[
        bool, option("Re-execute all heights of a lake and compare every root.", "--reexecute", panel=AGAIN)
    ] = False,
    processes: Annotated[
        int | None,
        option(
            "With --reexecute: ranges of heights to execute in parallel; default: by the work.",
            metavar="N",
            panel=AGAIN,
            min=1,
        ),
    ] = None,
    scenario: Annotated[Path | None, lake_scenario_option(AGAIN)] = None,
    programs: Annotated[list[str] | None, lake_programs_option(AGAIN)] = None,
    follow: Annotated[
        bool,
        option(
            "Follow the lake until Ctrl-C; print a line for each commit that changes a figure.",
            "--follow",
            panel=FOLLOWING,
        ),
    ] = False,
    interval: Annotated[
        float | None,
        option(
            f"With --follow: seconds between two passes; default: {INTERVAL:g}.",
            metavar="SECONDS",
            panel=FOLLOWING,
            min=0.1,
            max=86_400,
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        option(
            "With --follow: serve metrics for Prometheus here, on this machine only.", panel=FOLLOWING, min=0, max=65535
        ),
    ] = None,
    as_json: Annotated[bool, option("Print one JSON object; with --follow one a line.", "--json")] = False,
) -> int:
    """Check that every message was delivered once, unaltered, in order and in time.

    The verdict is PASSED, FAILED, or INCONCLUSIVE if the input is incomplete. docs/reference/audit has a page for each
    check. For a lake that Causeway ran, the ledger is derived first; the lake is not changed.

    [bold]Example[/bold]: causeway audit my-ledger --check authenticity --out findings
    [bold]Example[/bold]: causeway audit my-ledger --follow --metrics-port 9464
    [bold]Example[/bold]: causeway audit --table catalog.events --table observed=catalog.windows
    """
    process.skip_jit_import()
    from causeway.audit.engine import CHECK_NAMES
    from causeway.audit.stored import EXECUTORS, AuditTerms, audit_ledger
    from causeway.audit.verdict import combine_verdicts
    from causeway.cluster.workers import retain_freed_memory

    for name in check or ():
        if name not in CHECK_NAMES:
            raise InvalidInput(f"--check {name}: must be one of {', '.join(CHECK_NAMES)}")
    if executor not in EXECUTORS:
        raise InvalidInput(f"--executor {executor}: must be one of {', '.join(EXECUTORS)}")
    for flag, given, wanted, fits in (
        ("--interval", interval is not None, "only with --follow", follow),
        ("--metrics-port", metrics_port is not None, "only with --follow", follow),
        ("--deadline", bool(deadline), "not with --follow", not follow),
        ("--tolerance", bool(tolerance), "not with --follow", not follow),
        ("--out", out is not None, "not with --follow", not follow),
        ("--reexecute", reexecute, "not with --follow", not follow),
        ("--executor", executor != EXECUTORS[0], "not with --follow", not follow),
        ("--executor in_process", executor == "in_process", "not with --table", not table),
        ("--follow", follow, "not with --table", not table),
        ("--reexecute", reexecute, "not with --table", not table),
        ("--folder", folder is not None, "only with --table", bool(table)),
        ("--conf", bool(spark), "not with --follow", not follow),
        ("--master", master != MASTER, "not with --follow", not follow),
        ("--processes", processes is not None, "only with --reexecute", reexecute),
        ("--scenario", scenario is not None, "only with --reexecute", reexecute),
        ("--programs", bool(programs), "only with --reexecute", reexecute),
    ):
        if given and not fits:
            raise InvalidInput(f"{flag}: {wanted}")
    if (lake is None) == (not table):
        raise InvalidInput("LAKE, --table: give one of them")
    tables = _named_tables(table) if table else {}
    label = lake if lake is not None else tables["ledger"]
    require_place("LAKE", label)
    if reexecute:
        _require_lake(label)
    if out is not None:
        make_folder("--out", out)
    compile_before_use()
    retain_freed_memory(arrow=False)
    if follow:
        from causeway.cli.audit_follow import follow_audit as follow_it
        from causeway.ledger.lake.ingest import require_stored

        require_stored(label)
        with name_ledger_errors(label):
            return follow_it(
                label,
                [name for name in CHECK_NAMES if not check or name in check],
                metrics_port=metrics_port,
                seconds=interval or INTERVAL,
                limit=named or NAMED_FOLLOWING,
                as_json=as_json,
                strict=strict,
            )
    limit = named or NAMED
    terms = AuditTerms.of(deadline or (), tolerance or ())
    settings = dict(parse_setting(text, "--conf") for text in spark or ())
    with name_ledger_errors(label), progress_bar() as begin, ExitStack() as opened:
        session = None
        if tables:
            stored = opened.enter_context(_store_tables(tables, master, settings, folder))
            ledger, session = stored.stored, stored.session
        else:
            ledger = opened.enter_context(_ledger(label, begin("deriving the ledger")))
        found = audit_ledger(
            ledger,
            executor=executor,
            session=session,
            master=master,
            settings=settings,
            limit=limit,
            terms=terms,
            progress=begin("checking"),
        )
        quarantined = ledger.quarantined()
        if reexecute:
            done = _reexecute(label, program_sources(scenario, programs), processes, begin("executing again"))
            found = done.merge_into(found, limit)
    checks = [each for name, each in found.checks.items() if not check or name in check]
    if out is not None:
        write_tables(found, out)
    if as_json:
        print(json.dumps({"lake": label, **audit_data(found, checks, quarantined)}))
    else:
        show_audit(label, checks, found, quarantined)
        if out is not None:
            stderr_console().print(f"tables written to {escape(escape_controls(str(out)))}", soft_wrap=True)
    return shell.exit_code(combine_verdicts(checks), strict=strict)


def _named_tables(given: Iterable[str]) -> dict[str, str]:
    """Return the tables of ``--table`` by kind.

    Raises:
        InvalidInput: A kind is unknown or named twice, or no events are named.
    """
    from causeway.spark import FRAME_TABLES

    tables: dict[str, str] = {}
    for text in given:
        kind, sign, name = text.partition("=")
        if not sign or not kind.isidentifier():  # a path may have the sign, too
            kind, name = "ledger", text
        if kind not in FRAME_TABLES or not name:
            raise InvalidInput(f"--table {text}: allowed: TABLE, or KIND=TABLE (kinds: {', '.join(FRAME_TABLES)})")
        if kind in tables:
            raise InvalidInput(f"--table {text}: {kind} is {tables[kind]} already")
        tables[kind] = name
    if "ledger" not in tables:
        raise InvalidInput("--table: no table of events; give one as --table TABLE")
    return tables


@contextmanager
def _store_tables(
    tables: Mapping[str, str], master: str, settings: Mapping[str, str], folder: str | None
) -> Iterator[FrameLedger]:
    """Store tables of Spark as a temporary ledger."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from causeway.cluster.session import first_line, open_session
    from causeway.spark import store

    session = open_session(master, extra=settings)
    frames: dict[str, Any] = {}
    for kind, name in tables.items():
        try:
            frames[kind] = session.table(name)
        except PySparkException as error:
            raise InvalidInput(f"--table {name}: {shell.one_line(error)}") from None
        except Py4JJavaError as error:  # such as the class of a catalog that is not there
            raise InvalidInput(f"--table {name}: {first_line(error)}") from None
    try:
        stored = store(frames.pop("ledger"), folder=folder, **frames)
    except InvalidInput as error:  # of a table, by its kind
        kind, sign, text = str(error).partition(": ")
        if not sign or kind not in tables:
            raise
        raise InvalidInput(f"--table {tables[kind]}: {text}") from None
    with stored:
        yield stored


def _reexecute(
    lake: str, sources: ModuleSources, processes: int | None, progress: Callable[[int, int], None]
) -> ExecutedRange:
    from causeway.network.recheck import reexecute_lake

    done = reexecute_lake(lake, sources, processes=processes, progress=progress)
    if done.other is not None:
        shell.print_line(f"{lake}: not executed again: {done.other}")
    return done


def _require_lake(lake: str) -> None:
    from causeway.ledger.lake.ingest import is_lake

    if not is_lake(lake):
        raise InvalidInput(f"--reexecute: {lake} is no lake that Causeway ran; only such a lake is executed again")


@contextmanager
def _ledger(lake: str, progress: Callable[[int, int], None]) -> Iterator[Ledger]:
    """Open the ledger at a path or URI; of a lake of Causeway, derive it."""
    from causeway.ledger.lake.ingest import open_or_derive_ledger, require_stored
    from causeway.ledger.store import LEDGER_FILE, open_ledger
    from causeway.storage.files import Storage

    require_stored(lake)
    if Storage(lake).exists(LEDGER_FILE):
        yield open_ledger(lake)
        return
    with open_or_derive_ledger(lake, progress=progress) as derived:
        yield derived
