"""``causeway prove``: proofs of what a zone has committed to, taken from a lake."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from causeway.cli import shell
from causeway.cli.ladder import readable
from causeway.cli.watch import results, waiting
from causeway.model.errors import InvalidInput

if TYPE_CHECKING:
    from causeway.network.proof_documents import Document
    from causeway.network.proving import ZoneStore
    from causeway.protocols.ibc.keys import Purpose

SHOWN = 8
"""Entries of a run that a person is shown."""


class QueueName(StrEnum):
    """The queues that a zone keeps for another."""

    send = "send"
    receipt = "receipt"


def command(
    lake: Annotated[str, typer.Argument(help="Folder or URI of a lake.", show_default=False)],
    chain: Annotated[str, typer.Option(help="The zone whose store is proved.", show_default=False)],
    remote: Annotated[str, typer.Option(help="The zone that its queue is for.", show_default=False)],
    queue: Annotated[
        QueueName, typer.Option(help="Packets for the remote zone, or receipts of packets from it.", show_default=False)
    ],
    index: Annotated[
        int | None, typer.Option(metavar="N", help="Prove the entry with this index.", show_default=False)
    ] = None,
    absent: Annotated[bool, typer.Option("--absent", help="With --index: prove that there is none.")] = False,
    indices: Annotated[
        str | None,
        typer.Option(metavar="M:N", help="Prove entries M to N-1 together, by one proof.", show_default=False),
    ] = None,
    head: Annotated[bool, typer.Option("--head", help="Prove where the queue begins.")] = False,
    tail: Annotated[bool, typer.Option("--tail", help="Prove where the queue ends.")] = False,
    height: Annotated[
        int | None, typer.Option(help="A committed height; without it the last.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the proof here.", show_default=False)] = None,
    trust_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the header that has the root here: what to trust.", show_default=False
        ),
    ] = None,
    header_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the signed header here, for a client of the height before.", show_default=False
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the proof, one JSON object, and nothing else.")
    ] = False,
) -> int:
    """Prove what a zone under ibc has committed to: packets, receipts, where queues begin and end.

    causeway verify accepts the proofs. Those of one entry are ICS-23 proofs of Tendermint's kind, which other verifiers
    of ICS-23 accept, too.

    [bold]Example[/bold]: causeway prove my-lake --chain A --remote B --queue send --index 17 --out proof.json
    """
    from causeway.network.opened import open_lake
    from causeway.network.proof_documents import header_document, trust_document
    from causeway.network.proving import store_at
    from causeway.protocols.ibc.keys import Purpose

    places = [path for path in (out, trust_out, header_out) if path is not None]
    if len(set(places)) < len(places):
        raise InvalidInput("--out, --trust-out, --header-out: name a file of its own for each")
    purpose = Purpose[queue.value.upper()]
    with waiting("Reading"):
        store = store_at(open_lake(lake), chain, height)
        document, lines = _proved(store, remote, purpose, _what(index, indices, head, tail, absent))
        contents = [(out, document)]
        if trust_out is not None:
            contents.append((trust_out, trust_document(store)))
        if header_out is not None:
            contents.append((header_out, header_document(store)))
    for path, content in contents:
        if path is not None:
            path.write_text(json.dumps(content, indent=1) + "\n")
    if as_json:
        print(json.dumps(document))
        return shell.OK
    console = results()
    for line in lines:
        console.print(line, soft_wrap=True)
    if out is None:
        console.print("Nothing is kept: --out FILE writes the proof, --json prints it.")
    else:
        trusted = "" if trust_out is None else f" --trust {trust_out}"
        console.print(Text(f"Next: causeway verify {readable(str(out))}{readable(trusted)}"), soft_wrap=True)
    return shell.OK


Wanted = tuple[str, Any]
"""What is asked for: ``index``, ``absent``, ``indices``, ``head`` or ``tail``, and which."""


def _what(index: int | None, indices: str | None, head: bool, tail: bool, absent: bool) -> Wanted:
    """Return the one thing that is asked for. Raises ``InvalidInput`` when it is none or two."""
    asked: list[Wanted] = []
    if index is not None:
        asked.append(("absent" if absent else "index", index))
    elif absent:
        raise InvalidInput("--absent: name the index that nothing is stored under: --index N")
    if indices is not None:
        asked.append(("indices", _bounds(indices)))
    asked += [(name, None) for name, given in (("head", head), ("tail", tail)) if given]
    if len(asked) != 1:
        raise InvalidInput("what to prove: name one of --index N, --indices M:N, --head, --tail")
    return asked[0]


def _bounds(text: str) -> tuple[int, int]:
    first, colon, end = text.partition(":")
    if not (colon and first.isascii() and first.isdigit() and end.isascii() and end.isdigit() and len(text) <= 40):
        raise InvalidInput(f"--indices: {readable(text[:40])}: write M:N, two whole numbers; M is proved, N no more")
    if int(first) >= int(end):
        raise InvalidInput(f"--indices: {readable(text)}: M must be below N")
    return int(first), int(end)


def _proved(store: ZoneStore, remote: str, purpose: Purpose, what: Wanted) -> tuple[Document, list[Text]]:
    """Return the document, and what a person reads of it."""
    from causeway.network.proof_documents import absence_document, existence_document, run_document
    from causeway.network.proving import described
    from causeway.protocols.ibc.keys import MAX_INDEX, Key, Part

    own = store.queue(remote, purpose)
    kind, which = what
    where = f"{store.chain} at height {store.height}"
    if kind == "indices":
        document = run_document(store, remote, purpose, *which)
        lines = [Text(f"{where}: entries {which[0]} to {which[1] - 1} of {_name(remote, purpose)} are stored")]
        for offset, entry in enumerate(document["entries"][:SHOWN]):
            lines += _content(store, purpose, bytes.fromhex(entry["value"]), f"{which[0] + offset:<8}")
        if len(document["entries"]) > SHOWN:
            lines.append(Text(f"  ... and {len(document['entries']) - SHOWN:,} more"))
        return document, [*lines, *_about(store, document, "range proof")]
    part = {"head": Part.HEAD, "tail": Part.TAIL}.get(kind, Part.INDEX)
    if part == Part.INDEX and not 0 <= which < MAX_INDEX:
        raise InvalidInput(f"--index: {which}: allowed are 0 to {MAX_INDEX - 1}")
    key = Key(remote, purpose, part, which or 0).encode()
    named = f"{_name(remote, purpose)}/{kind if part != Part.INDEX else which}"
    there = store.locate_one(key)[1]
    if there == (kind == "absent"):
        state = "is there; leave --absent out" if there else "is not there (--absent proves that)"
        raise InvalidInput(f"--index: {which}: {state}; at height {store.height} {described(own)}")
    if kind == "absent":
        document = absence_document(store, key)
        return document, [Text(f"{where}: nothing is stored under {named}"), *_about(store, document, "ICS-23 proof")]
    document = existence_document(store, key)
    value = bytes.fromhex(document["value"])
    if part == Part.INDEX:
        lines = [Text(f"{where}: {named} is stored"), *_content(store, purpose, value, "value   ")]
    else:
        lines = [Text(f"{where}: {named} is {int.from_bytes(value, 'big')}")]
    return document, [*lines, *_about(store, document, "ICS-23 proof")]


def _name(remote: str, purpose: Purpose) -> str:
    return f"ibc:{remote}:{purpose.name.lower()}"


def _about(store: ZoneStore, document: Document, form: str) -> list[Text]:
    """Return what stands behind a proof: how long it is, and who signed the root."""
    signed = store.signed
    who = (
        "nobody signs height 0"
        if signed is None
        else f"in the header of height {store.height}, signed by {len(signed.validators)} validators"
    )
    return [
        Text(f"  proof     {form}, {len(document['proof']) // 2:,} bytes"),
        Text(f"  root      {store.root.hex()}, {who}"),
    ]


def _content(store: ZoneStore, purpose: Purpose, value: bytes, label: str) -> list[Text]:
    """Return what a packet or receipt says."""
    from causeway.protocols.ibc.errors import IbcError
    from causeway.protocols.ibc.inputs import Code
    from causeway.protocols.ibc.keys import Purpose as Kinds
    from causeway.protocols.ibc.values import NO_LIMIT, decode_packet, decode_receipt

    if purpose == Kinds.SEND:
        packet = decode_packet(value)
        limits = [
            f"{name} {limit:,}{unit}"
            for name, limit, unit in (("height", packet.max_height, ""), ("time", packet.max_time, " ns"))
            if limit != NO_LIMIT
        ]
        until = f" with limits {' and '.join(limits)}" if limits else ""
        text = f"packet of type {packet.type}{until}, {len(packet.data):,} bytes of data"
        try:
            text += f": {_call(store, packet.data)}"
        except IbcError:
            text += " that are no call between programs"
    else:
        receipt = decode_receipt(value)
        known = {code.value: code.name.lower().replace("_", " ") for code in Code}
        meaning = known.get(receipt.code)
        text = f"receipt with code {receipt.code}{f' ({meaning})' if meaning else ''}"
        text += f", {len(receipt.result):,} bytes of result"
        if len(receipt.result) >= ANSWER_BYTES:
            text += f": {_answer(receipt.result)}"
    return [Text(f"  {label}  {readable(text)}")]


ANSWER_BYTES = 16
"""What a program's answer has at least."""


def _call(store: ZoneStore, data: bytes) -> str:
    from causeway.protocols.ibc.envelope import decode_call

    call = decode_call(data)
    names = store.opened.program_names
    sender, receiver = (names.get(call[side], str(call[side])) for side in ("sender", "receiver"))
    cycles = _cycles(call["amount_high"], call["amount_low"])
    return f"{sender} calls {call['method']} of {receiver}, payload of {len(call['payload']):,} bytes{cycles}"


def _answer(result: bytes) -> str:
    from causeway.protocols.ibc.envelope import decode_answer

    high, low, payload = decode_answer(result)
    return f"answer of {len(payload):,} bytes{_cycles(high, low)}"


def _cycles(high: int, low: int) -> str:
    amount = (high << 64) + low
    return f", {amount:,} units" if amount else ""
