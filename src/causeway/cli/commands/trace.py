"""``causeway trace``: the history of one message over chains and hops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from causeway_proofs.errors import InvalidInput
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from causeway.cli import process, shell
from causeway.cli.options import argument, option
from causeway.cli.output.progress import show_spinner, stdout_console
from causeway.cli.output_paths import name_ledger_errors, require_place
from causeway.cli.process import compile_before_use
from causeway.core.text import format_duration, shorten_name, to_one_line

if TYPE_CHECKING:
    from causeway.analysis.tracing import MessageHistory, MessageStep, MessageTrace
    from causeway.ledger.search import MessageKey

SHOWN_STEPS = 60
"""Maximum printed steps of a message; of more the first ones and the last."""

LISTED = 20
"""Maximum listed messages of an ambiguous name."""

_MAX_INDEX = (1 << 64) - 1
_COLOURS = {
    "another content": "bold red",
    "on another chain": "bold red",
    "again": "bold red",
    "taken back": "yellow",
}


def command(
    lake: Annotated[str, argument("Folder or URI of a ledger, or of a lake of a run.")],
    message: Annotated[
        str | None,
        argument("Message id, lane and index (channel-141/123), journey or transaction hash, or a prefix of one."),
    ] = None,
    lane: Annotated[str | None, option("The lane, with --index.", metavar="NAME")] = None,
    source: Annotated[str | None, option("Source chain.", metavar="CHAIN")] = None,
    destination: Annotated[str | None, option("Destination chain.", metavar="CHAIN")] = None,
    sender: Annotated[str | None, option("Sender, with --index.", metavar="NAME")] = None,
    index: Annotated[int | None, option("Index in the lane.", metavar="N", min=0, max=_MAX_INDEX)] = None,
    as_json: Annotated[bool, option("Print one JSON object.", "--json")] = False,
) -> int:
    """Show the lifecycle of one message: events, chains, times and delays.

    The messages that it answers, that answer it, that carry it on under a new id, and those of its journey over several
    hops are shown with it. Exit code 2 when no message is found, or several are that do not belong together.

    [bold]Example[/bold]: causeway trace my-ledger channel-141/3951625
    """
    process.skip_jit_import()
    from causeway.analysis.tracing import MESSAGE_NAMES, SeveralMessages, history_to_dict, trace_message
    from causeway.ledger.lake.ingest import open_or_derive_ledger

    require_place("LAKE", lake)
    if message == "":
        raise InvalidInput(f"MESSAGE: empty; allowed: {MESSAGE_NAMES}")
    compile_before_use()
    try:
        with name_ledger_errors(lake), show_spinner("searching"), open_or_derive_ledger(lake) as ledger:
            found = trace_message(
                ledger, message, lane=lane, source=source, destination=destination, sender=sender, index=index
            )
    except SeveralMessages as error:
        _list_matches(lake, error.keys, as_json)
        return shell.BAD_INPUT
    if as_json:
        print(json.dumps({"lake": lake, "messages": [history_to_dict(life, found) for life in found.lives]}))
    else:
        _show(found)
    return shell.OK


def _list_matches(lake: str, found: Sequence[MessageKey], as_json: bool) -> None:
    names = [_name(key.lane, key.index, key.message_id) for key in found]
    if as_json:
        keys = [dict(zip(_KEY, (*key.lane, key.index, key.message_id), strict=True)) for key in found]
        print(json.dumps({"lake": lake, "matches": keys}))
    more = "" if len(found) <= LISTED else f", and {len(found) - LISTED:,} more"
    listed = "; ".join(names[:LISTED])
    shell.print_line(
        f"{len(found):,} messages are meant; choose one with --lane, --source, --destination, --index: {listed}{more}"
    )


_KEY = ("protocol", "source", "destination", "lane", "index", "message_id")


def _name(lane: Sequence[str | None], index: int | None, message_id: str | None) -> str:
    protocol, source, destination, name = lane
    ends = f"{shorten_name(source or '?')} -> {shorten_name(destination or '?')}"
    parts = [protocol, ends, name if name != ends.replace(" ", "") else None]
    parts.append(f"{index}" if index is not None else message_id)
    return " ".join(part if part is ends else shorten_name(part) for part in parts if part)


def _select_steps(life: MessageHistory) -> tuple[list[MessageStep], int]:
    """Return the printed steps of a history, and the number of omitted ones before the last."""
    steps = [*life.steps]
    if len(steps) <= SHOWN_STEPS:
        return steps, 0
    half = SHOWN_STEPS // 2
    return steps[:half] + steps[-half:], len(steps) - SHOWN_STEPS


def _show(found: MessageTrace) -> None:
    console = stdout_console()
    for number, life in enumerate(found.lives):
        if number:
            console.print()
        _show_history(console, life, found)
    if found.more > 0:
        console.print(f"\n{found.more:,} more messages belong to them")


def _show_history(console: Console, history: MessageHistory, found: MessageTrace) -> None:
    took = "" if history.took is None or history.is_open else f" after {format_duration(history.took.total_seconds())}"
    name = escape(_name(history.lane, history.index, history.message_id))
    remarks = ", ".join(f"{count:,} {kind}{'s' * (count > 1)}" for kind, count in history.remarks.items())
    noted = f"; [bold red]{remarks}[/]" if remarks else ""
    console.print(f"[bold]{escape(history.kind)}[/bold] {name}: [bold]{escape(history.outcome)}[/bold]{took}{noted}")
    about = [
        (what, shorten_name(str(value)))
        for what, value in (
            ("id", history.message_id if history.index is not None else None),
            ("answers", history.answers),
            ("journey", history.journey if history.journey != history.message_id else None),
            ("continues", history.continues),
            ("from", history.sender),
            ("to", history.receiver),
            ("value", None if history.amount is None else f"{int(history.amount):,} {history.asset or ''}".strip()),
        )
        if value is not None
    ]
    if about:
        console.print(escape("  " + ", ".join(f"{what} {value}" for what, value in about)), soft_wrap=True)
    steps, left_out = _select_steps(history)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns: list[tuple[str, list[str]]] = [
        ("  time (UTC)", ["  " + _time(step.time) for step in steps]),
        ("after", ["" if step.since is None else format_duration(step.since.total_seconds()) for step in steps]),
        ("event", [_event(step) for step in steps]),
        ("chain", [escape(shorten_name(step.chain or "")) for step in steps]),
        ("block", ["" if step.height is None else f"{step.height:,}" for step in steps]),
        ("root", [escape(to_one_line(" or ".join(found.roots(step)))) for step in steps]),
        ("transaction", [escape(shorten_name(step.row["transaction"] or "")) for step in steps]),
        ("because", [_because(step) for step in steps]),
    ]
    printed = [(title, cells) for title, cells in columns if any(cell.strip() for cell in cells)]
    for title, _ in printed:
        table.add_column(title, justify="right" if title in ("after", "block") else "left", overflow="fold")
    for number in range(len(steps)):
        if left_out and number == len(steps) // 2:
            table.add_row(f"  ... {left_out:,} more")
        table.add_row(*(cells[number] for _, cells in printed))
    console.print(table)


def _event(step: MessageStep) -> str:
    notes = "".join(f" [{_COLOURS[note]}]{note}[/]" for note in step.notes)
    return f"{escape(step.event.replace('_', ' '))}{notes}"


def _because(step: MessageStep) -> str:
    code, detail = step.row["code"], step.row["detail"]
    reasons = [shorten_name(detail)] if detail else []
    return escape(", ".join(reasons + ([f"code {code}"] if code else [])))


def _time(time: datetime | None) -> str:
    if time is None:
        return ""
    text = time.replace(microsecond=0, tzinfo=None).isoformat(" ")
    return f"{text}.{time.microsecond // 1000:03}" if time.microsecond else text
