"""``causeway send``: a signed message from a user to a program of a served lake."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from causeway_proofs.errors import InvalidInput

from causeway.cli import shell
from causeway.cli.options import argument, option

if TYPE_CHECKING:
    from causeway.service.http.answers import FaultAnswer
    from causeway.service.http.client import ServiceClient

MAX_REQUESTS = 20
"""Maximum seconds of one request that waits for a block."""


CONTENT, SENDING = "Message", "Submission"


def command(
    url: Annotated[str, argument("Address of a served lake, as http://HOST:PORT.")],
    key: Annotated[Path, option("Your key file (causeway key new FILE).", panel=SENDING)],
    to: Annotated[str, option("Name or number of the program.", panel=CONTENT)],
    method: Annotated[str, option("Method to call.", panel=CONTENT)],
    call: Annotated[
        str | None, option("Ask --to to call this program's method.", metavar="PROGRAM", panel=CONTENT)
    ] = None,
    amount: Annotated[str | None, option("Amount attached to the call.", panel=CONTENT)] = None,
    text: Annotated[str | None, option("The content, as text.", panel=CONTENT)] = None,
    hexadecimal: Annotated[str | None, option("The content, as hexadecimal digits.", "--hex", panel=CONTENT)] = None,
    count: Annotated[int, option("Number of identical messages.", panel=CONTENT, min=1, show_default=True)] = 1,
    chain: Annotated[
        str | None, option("Chain that receives the message; default: the program's.", panel=SENDING)
    ] = None,
    nonce: Annotated[
        int | None,
        option("Nonce, above your last one; messages with the same nonce are accepted once.", panel=SENDING, min=1),
    ] = None,
    wait: Annotated[bool, option("Wait until a block includes the message.", "--wait", panel=SENDING)] = False,
    deadline: Annotated[
        float, option("Maximum seconds to wait.", panel=SENDING, min=0, max=86_400, show_default=True)
    ] = 60.0,
    ca: Annotated[Path | None, option("CA certificates (PEM) to trust instead of the system's.", panel=SENDING)] = None,
    as_json: Annotated[bool, option("Print one JSON object.", "--json")] = False,
) -> int:
    """Send a signed message to a program on a served lake.

    Prints the message's hash, its nonce, and the height of the block that includes it. With --wait also reports the
    refusals and program failures of that block; the exit code is then 1, as when no block includes the message in
    time. Repeat the command with --nonce to retry without sending twice.

    [bold]Example[/bold]: causeway send http://127.0.0.1:8421 --key me.key --to alice --call bob --method greet --wait
    """
    from causeway.service.http.client import ServiceClient, ServiceError
    from causeway.service.keys.key_files import read_key

    content = _content(to, method, call, amount, text, hexadecimal, count, chain)
    signer = read_key(key)

    async def run() -> tuple[str, int, int | None, list[FaultAnswer]]:
        async with ServiceClient(url, key=signer, ca=ca) as client:
            client.use_nonce(nonce)
            name, height = await client.send(content, 0)
            if wait and height is None:
                height = await _wait_for_block(client, name, deadline)
            faults = await client.faults(name) if wait and height is not None else []
            return name, client.nonce, height, faults

    try:
        name, used, height, faults = asyncio.run(run())
    except ServiceError as error:
        raise InvalidInput(str(error)) from None
    if as_json:
        answers = [fault.model_dump() for fault in faults]
        print(json.dumps({"hash": name, "nonce": used, "height": height, **({"faults": answers} if wait else {})}))
    else:
        print(f"{name}  nonce {used}  {'waits for a block' if height is None else f'in block {height}'}")
        for fault in faults:
            print(shell.to_printable(_describe_fault(fault)))
    if faults:
        return shell.FAILED
    if wait and height is None:
        shell.print_line(f"no block has it after {deadline:g} seconds; ask again with --nonce {used} --wait")
        return shell.FAILED
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
    """Return the keys of ``[[traffic.send]]`` for the arguments."""
    request: dict[str, Any] = {"method": method}
    if text is not None:
        request["text"] = text
    if hexadecimal is not None:
        request["hex"] = hexadecimal
    if call is not None:
        request["receiver"] = _program(call)
    if amount is not None:
        if call is None:
            raise InvalidInput("--amount: only a call has one; add --call PROGRAM")
        request["amount"] = amount
    content: dict[str, Any] = {"to": _program(to), **(request if call is None else {"call": request})}
    if count != 1:
        content["count"] = count
    if chain is not None:
        content["chain"] = chain
    return content


def _program(text: str) -> str | int:
    """Return a program's number if the text is decimal, else its name."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else text


def _describe_fault(fault: FaultAnswer) -> str:
    """Describe a refusal of a block, or a failure of a program, in one line."""
    times = "" if fault.count == 1 else f", {fault.count} times"
    if fault.what == "failed":
        return f"{fault.program} failed on it{times}: {fault.why}"
    return f"{fault.program}'s call was refused{times}: {fault.why}"


async def _wait_for_block(client: ServiceClient, name: str, deadline: float) -> int | None:
    """Return the height of the block with a message; None after the deadline."""
    end = time.monotonic() + deadline
    while (left := end - time.monotonic()) > 0:
        height = await client.height_of(name, min(MAX_REQUESTS, max(1, int(left))))
        if height is not None:
            return height
    return None
