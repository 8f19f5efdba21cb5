"""``causeway report``: a ledger, or a lake, as one HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from causeway_proofs.errors import InvalidInput
from rich.markup import escape

from causeway.cli import shell
from causeway.cli.options import argument, option
from causeway.cli.output.progress import stdout_console
from causeway.cli.output_paths import name_ledger_errors, require_place, require_writable, write_files
from causeway.cli.process import compile_before_use
from causeway.core.text import escape_controls, load_json

REPORT_SUFFIX = ".html"


def command(
    lake: Annotated[str, argument("Folder or URI of a ledger, or of a lake that Causeway ran.")],
    out: Annotated[
        Path | None,
        option("Where to write the page; default: the name of the lake and .html, in this folder.", metavar="FILE"),
    ] = None,
    compare: Annotated[
        Path | None, option("Add a section: what causeway compare --json printed, as a file.", metavar="FILE")
    ] = None,
    overwrite: Annotated[bool, option("Overwrite a file that is not a report.", "--overwrite")] = False,
    strict: Annotated[bool, option("Exit with 4 when the verdict is inconclusive.", "--strict")] = False,
    as_json: Annotated[
        bool, option("Print the data behind the page as one JSON object, and write no page.", "--json")
    ] = False,
) -> int:
    """Write a report: one HTML file with the verdict, the findings, delays, backlog and gaps of the input.

    It loads nothing from anywhere, so it can be sent and archived; the same lake gives the same bytes. An existing
    report is replaced. The exit code is that of audit.

    [bold]Example[/bold]: causeway report my-ledger --out report.html
    """
    from causeway.cli.output.audit import progress_bar
    from causeway.cluster.workers import retain_freed_memory
    from causeway.network.opened_ledger import open as open_place
    from causeway.report.data import report_data
    from causeway.report.sections import report_page

    require_place("LAKE", lake)
    if as_json and out is not None:
        raise InvalidInput("--out: not with --json")
    place = out or default_report_path(lake)
    if not as_json:
        require_report_target(place, lake, overwrite=overwrite)
    compared = None if compare is None else read_comparison(compare)
    compile_before_use()
    retain_freed_memory(arrow=False)
    with name_ledger_errors(lake), progress_bar() as begin, open_place(lake, steps=begin) as opened:
        data = report_data(opened, compare=compared, steps=begin)
    if as_json:
        print(json.dumps(data))
    else:
        write_files({place: report_page(data).encode()}, {place: "--out"})
        stdout_console().print(
            f"{escape(escape_controls(str(place)))}: {escape(escape_controls(data['sentence']))}", soft_wrap=True
        )
    return shell.exit_code(data["verdict"], strict=strict)


def write_report(lake: str, place: Path) -> str:
    """Write the report of a lake.

    Args:
        lake: folder or URI.
        place: the file.

    Returns:
        The verdict as a sentence.

    Raises:
        InvalidInput: the file cannot be written.
    """
    from causeway.network.opened_ledger import open as open_place
    from causeway.report.data import report_data
    from causeway.report.sections import report_page

    with name_ledger_errors(lake), open_place(lake) as opened:
        data = report_data(opened)
    write_files({place: report_page(data).encode()}, {place: "--out"})
    sentence: str = data["sentence"]
    return sentence


def read_comparison(file: Path) -> dict[str, Any]:
    """Read the data of a comparison from the JSON of ``causeway compare``.

    Args:
        file: the JSON file.

    Returns:
        The data of a section.

    Raises:
        InvalidInput: the file is no comparison.
    """
    from causeway.compare.table import section_data
    from causeway.report.comparison import compare_section

    try:
        content = file.read_bytes()
    except OSError as error:
        raise InvalidInput(f"--compare {file}: cannot be read: {error.strerror}") from None
    try:
        found = section_data(load_json(content))
        compare_section(found)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InvalidInput(f"--compare {file}: is not what causeway compare --json prints") from None
    return found


def default_report_path(lake: str) -> Path:
    """Return the default path of the report of a lake.

    Args:
        lake: folder or URI.

    Returns:
        The path.
    """
    named = lake.rstrip("/").rpartition("/")[2]
    return Path(f"{'report' if named in ('', '.', '..') else named}{REPORT_SUFFIX}")


def require_report_target(place: Path, lake: str | None, *, overwrite: bool, option: str = "--out") -> None:
    """Reject a path inside a lake, or an existing file other than a report.

    Args:
        place: the file.
        lake: folder or URI, or None.
        overwrite: allow to replace any file.
        option: the option with the path, for errors.

    Raises:
        InvalidInput: the path is rejected.
    """
    from causeway.report.page import GENERATOR

    require_writable(option, place, lake)
    if overwrite or not place.is_file():
        return
    with place.open("rb") as file:
        begin = file.read(4096)
    if begin and GENERATOR.encode() not in begin:
        raise InvalidInput(f"{option} {place}: is there and no report; name another file, or add --overwrite")


__all__ = ["command", "default_report_path", "read_comparison", "require_report_target", "write_report"]
