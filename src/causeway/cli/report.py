"""``causeway report``: a ledger, or a lake, as one HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from rich.markup import escape

from causeway.cli import shell
from causeway.cli.compiling import compile_first
from causeway.cli.options import argument, option
from causeway.cli.places import ledger_at, require_place, writable, write
from causeway.cli.watch import results
from causeway.model.errors import InvalidInput
from causeway.model.json_text import loads
from causeway.model.text import escaped

SUFFIX = ".html"


def command(
    lake: Annotated[str, argument("Folder or URI of a ledger, or of a lake that Causeway ran.")],
    out: Annotated[
        Path | None,
        option("Where to write the page; default: the name of the lake and .html, in this folder.", metavar="FILE"),
    ] = None,
    compare: Annotated[
        Path | None, option("Add a section: what causeway compare --json printed, as a file.", metavar="FILE")
    ] = None,
    overwrite: Annotated[bool, option("Write over a file that is no report.", "--overwrite")] = False,
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
    from causeway.cli.audited import progress_bar
    from causeway.network.ledgers import open_place
    from causeway.pipeline.allocator import keep_memory
    from causeway.report.data import report_data
    from causeway.report.sections import report_page

    require_place("LAKE", lake)
    if as_json and out is not None:
        raise InvalidInput("--out: not with --json")
    place = out or default_place(lake)
    if not as_json:
        fit(place, lake, overwrite=overwrite)
    compared = None if compare is None else comparison_of(compare)
    compile_first()
    keep_memory(arrow=False)
    with ledger_at(lake), progress_bar() as begin, open_place(lake, steps=begin) as opened:
        data = report_data(opened, compare=compared, steps=begin)
    if as_json:
        print(json.dumps(data))
    else:
        write({place: report_page(data).encode()}, {place: "--out"})
        results().print(f"{escape(escaped(str(place)))}: {escape(escaped(data['sentence']))}", soft_wrap=True)
    return shell.code_of(data["verdict"], strict=strict)


def write_report(lake: str, place: Path) -> str:
    """Write the report of a lake, and return its verdict as a sentence. Raises ``InvalidInput``."""
    from causeway.network.ledgers import open_place
    from causeway.report.data import report_data
    from causeway.report.sections import report_page

    with ledger_at(lake), open_place(lake) as opened:
        data = report_data(opened)
    write({place: report_page(data).encode()}, {place: "--out"})
    sentence: str = data["sentence"]
    return sentence


def comparison_of(file: Path) -> dict[str, Any]:
    """Return what a comparison of protocols says, from the JSON of ``causeway compare``. Raises ``InvalidInput``."""
    from causeway.comparing.section import section_data
    from causeway.report.compared import compare_section

    try:
        content = file.read_bytes()
    except OSError as error:
        raise InvalidInput(f"--compare {file}: cannot be read: {error.strerror}") from None
    try:
        found = section_data(loads(content))
        compare_section(found)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InvalidInput(f"--compare {file}: is not what causeway compare --json prints") from None
    return found


def default_place(lake: str) -> Path:
    """Return where the report of a lake is written unless it is said."""
    named = lake.rstrip("/").rpartition("/")[2]
    return Path(f"{'report' if named in ('', '.', '..') else named}{SUFFIX}")


def fit(place: Path, lake: str | None, *, overwrite: bool, option: str = "--out") -> None:
    """Refuse to write into a lake, or over something that is no report unless asked. Raises ``InvalidInput``."""
    from causeway.report.page import MADE_BY

    writable(option, place, lake)
    if overwrite or not place.is_file():
        return
    with place.open("rb") as file:
        begin = file.read(4096)
    if begin and MADE_BY.encode() not in begin:
        raise InvalidInput(f"{option} {place}: is there and no report; name another file, or add --overwrite")


__all__ = ["command", "comparison_of", "default_place", "fit", "write_report"]
