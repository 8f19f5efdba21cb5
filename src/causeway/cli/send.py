"""``causeway send``: a signed message from a user to a program on a served lake."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from causeway.cli import shell
from causeway.model.errors import InvalidInput

if TYPE_CHECKING:
    from causeway.service.answers import FaultAnswer
    from causeway.service.http_client import ServiceClient

ASKED = 20
"""Seconds that one request waits for the block at most."""


CONTENT, SENDING = "What is sent", "How it is sent"


def command(
    url: Annotated[str, typer.Argument(help="Address of a served lake, as http://HOST:PORT.", show_default=False)],
    key: Annotated[
        Path, typer.Option(help="Your key file (causeway key new FILE).", show_default=False, rich_help_panel=SENDING)
    ],
    to: Annotated[
        str, typer.Option(help="Name or number of the program.", show_default=False, rich_help_panel=CONTENT)
    ],
    method: Annotated[str, typer.Option(help="The method asked for.", show_default=False, rich_help_panel=CONTENT)],
    call: Annotated[
        str | None,
        typer.Option(
            metavar="PROGRAM",
            help="Ask --to to call this program's method.",
            show_default=False,
            rich_help_panel=CONTENT,
        ),
    ] = None,
    amount: Annotated[
        str | None, typer.Option(help="Amount attached to the call.", show_default=False, rich_help_panel=CONTENT)
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="The content, as text.", show_default=False, rich_help_panel=CONTENT)
    ] = None,
    hexadecimal: Annotated[
        str | None,
        typer.Option("--hex", help="The content, as hexadecimal digits.", show_default=False, rich_help_panel=CONTENT),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many equal messages.", rich_help_panel=CONTENT)] = 1,
    chain: Annotated[
        str | None,
        typer.Option(
            help="Chain at which it arrives; else the program's.", show_default=False, rich_help_panel=SENDING
        ),
    ] = None,
    nonce: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Above your last one; what is sent again with the same is taken once.",
            show_default=False,
            rich_help_panel=SENDING,
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until a block has it.", rich_help_panel=SENDING)] = False,
    deadline: Annotated[
        float, typer.Option(min=0, max=86_400, help="Seconds to wait at most.", rich_help_panel=SENDING)
    ] = 60.0,
    ca: Annotated[
        Path | None,
        typer.Option(
            help="Certificates to believe (PEM) instead of the system's.", show_default=False, rich_help_panel=SENDING
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Send a signed message to a program on a served lake.

    Prints the message's hash, its nonce, and the height of the block that has it. With --wait also what that block
    refused of it, or its program failed on: then, and when no block had it in time, the exit code is 1. The same
    command with --nonce asks again without sending twice.

    [bold]Example[/bold]: causeway send http://127.0.0.1:8421 --key me.key --to alice --call bob --method greet --wait
    """
    from causeway.service.http_client import ServiceClient, ServiceError
    from causeway.service.keys import read_key

    content = _content(to, method, call, amount, text, hexadecimal, count, chain)
    signer = read_key(key)

    async def run() -> tuple[str, int, int | None, list[FaultAnswer]]:
        async with ServiceClient(url, key=signer, ca=ca) as client:
            client.use_nonce(nonce)
            name, height = await client.send(content, 0)
            if wait and height is None:
                height = await _waited(client, name, deadline)
            faults = await client.faults(name) if wait and height is not None else []
            return name, client.nonce, height, faults

    try:
        name, used, height, faults = asyncio.run(run())
    except ServiceError as error:
        raise InvalidInput(str(error)) from None
    if as_json:
        told = [fault.model_dump() for fault in faults]
        print(json.dumps({"hash": name, "nonce": used, "height": height, **({"faults": told} if wait else {})}))
    else:
        print(f"{name}  nonce {used}  {'waits for a block' if height is None else f'in block {height}'}")
        for fault in faults:
            print(shell.printable(_in_words(fault)))
    if faults:
        return shell.BROKEN
    if wait and height is None:
        shell.tell(f"no block has it after {deadline:g} seconds; ask again with --nonce {used} --wait")
        return shell.BROKEN
    return shell.OK


def _content(
    to: str,
    method: str,
    call: str | None,
    amount: str | None,
    text: str | None,
    hexadecimal: str | None,
    count: int,
    chain: str | None,
) -> dict[str, Any]:
    """Return the keys of ``[[traffic.send]]`` that arguments stand for."""
    asked: dict[str, Any] = {"method": method}
    if text is not None:
        asked["text"] = text
    if hexadecimal is not None:
        asked["hex"] = hexadecimal
    if call is not None:
        asked["receiver"] = _program(call)
    if amount is not None:
        if call is None:
            raise InvalidInput("--amount: only a call has one; add --call PROGRAM")
        asked["amount"] = amount
    content: dict[str, Any] = {"to": _program(to), **(asked if call is None else {"call": asked})}
    if count != 1:
        content["count"] = count
    if chain is not None:
        content["chain"] = chain
    return content


def _program(text: str) -> str | int:
    """Return a program's number where digits stand for one, else its name."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else text


def _in_words(fault: FaultAnswer) -> str:
    """Return what a block refused, or a program failed on, as a line."""
    times = "" if fault.count == 1 else f", {fault.count} times"
    if fault.what == "failed":
        return f"{fault.program} failed on it{times}: {fault.why}"
    return f"{fault.program}'s call was refused{times}: {fault.why}"


async def _waited(client: ServiceClient, name: str, deadline: float) -> int | None:
    """Return the height of the block that has a message, None if none has in time."""
    end = time.monotonic() + deadline
    while (left := end - time.monotonic()) > 0:
        height = await client.height_of(name, min(ASKED, max(1, int(left))))
        if height is not None:
            return height
    return None
