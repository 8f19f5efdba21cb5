"""``causeway vacuum``: delete the state of superseded heights."""

from __future__ import annotations

import json
from typing import Annotated

from rich.markup import escape

from causeway.cli import shell
from causeway.cli.options import argument, option
from causeway.cli.output.progress import show_spinner, stdout_console


def command(
    lake: Annotated[str, argument("Folder or URI of a lake.")],
    keep_every: Annotated[
        int, option("Keep the state of every Nth height; 0: of none.", metavar="N", show_default=True)
    ] = 1000,
    keep_last: Annotated[int, option("Keep the state of the last M heights.", metavar="M", show_default=True)] = 100,
    as_json: Annotated[bool, option("Print one JSON object.", "--json")] = False,
) -> int:
    """Free the state of superseded heights.

    Headers, logs, the ledger and what came from outside stay, so every height can still be executed again; the state of
    a height that was freed can no longer be read or proved from. The lake may be in use, also by a run that writes it.

    [bold]Example[/bold]: causeway vacuum my-lake --keep-every 1000 --keep-last 100
    """
    from causeway.storage.lake import Lake
    from causeway.storage.vacuum import vacuum_lake

    message = "interrupted; the next vacuum of this lake frees the rest"
    with shell.interruptible(message), show_spinner("Freeing state"):
        found = vacuum_lake(Lake.at(lake), keep_every, keep_last)
    if as_json:
        print(json.dumps({"last": found.last, "files": found.files, "bytes": found.bytes}))
        return shell.OK
    console = stdout_console()
    if found.last < 0:
        console.print(f"[bold]{escape(lake)}[/bold]: nothing to free; all heights are among those that are kept")
        return shell.OK
    every = f", but for every {keep_every}th height" if keep_every else ""
    console.print(
        f"[bold]{escape(lake)}[/bold]: the state up to height {found.last:,} is freed{every}: {found.files:,} files, "
        f"{found.bytes:,} bytes"
    )
    return shell.OK
