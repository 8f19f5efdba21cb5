"""``causeway verify``: check whether a proof from another system proves what it claims."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from causeway.cli import shell
from causeway.cli.ladder import ladder
from causeway.cli.watch import results
from causeway.model.errors import InvalidInput
from causeway.model.text import readable

if TYPE_CHECKING:
    from causeway.proofs.documents.verdict import Verdict

STDIN = "-"

LINES = 8
"""Claims of a document that are listed; the others are counted."""


def command(
    file: Annotated[
        Path,
        typer.Argument(help="A proof: a JSON document, or a binary proof with --kind; - is standard input."),
    ],
    trust: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="What to trust: a root, key or header (JSON, DER, PEM, hexadecimal digits), or ic-mainnet. "
            "- is standard input. Default: what the proof's own file names.",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Kind of proof, if the file does not say.", show_default=False),
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Store of an ICS-23 proof: iavl, tendermint, smt.", show_default=False),
    ] = None,
    validators: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Where the proof is a node's answer to /commit: its answer to /validators at that height; "
            "repeat it for every page.",
            show_default=False,
        ),
    ] = None,
    trusted_validators: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="The same at the height after the trusted one, if the set has changed.",
            show_default=False,
        ),
    ] = None,
    claims: Annotated[
        list[str] | None,
        typer.Option(
            "--claim", metavar="KEY=VALUE", help="Any field of the document; may be repeated.", show_default=False
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse a storage proof that repeats a node, which is otherwise noted."),
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Draw the path from what is claimed to what is trusted.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a text.")] = False,
) -> int:
    """Check whether a proof is true; if it is not, name the reason.

    docs/how-to/verify-a-proof.md describes the kinds of proofs and their JSON form.

    [bold]Example[/bold]: causeway verify certificate.cbor --trust ic-mainnet --explain
    """
    from causeway.proofs.documents.reading import claim_of, document_in, read_document
    from causeway.proofs.documents.trust import MAX_TRUST_BYTES, read_trust, trust_in
    from causeway.proofs.documents.validation import MAX_DOCUMENT_BYTES
    from causeway.proofs.documents.verdict import judge

    given: dict[str, Any] = dict(claim_of(text) for text in claims or ())
    options = {
        "kind": kind,
        "spec": spec,
        "validators": _answers(validators),
        "trusted_validators": _answers(trusted_validators),
    }
    given.update({name: value for name, value in options.items() if value is not None})
    name = str(file)
    if name == trust == STDIN:
        raise InvalidInput("--trust -: standard input is the proof already")
    if name == STDIN:
        name = "standard input"
        reading = document_in(sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1), name, given)
    else:
        reading = read_document(file, given)
    trusted = None
    if trust == STDIN:
        trusted = trust_in(sys.stdin.buffer.read(MAX_TRUST_BYTES + 1), "standard input")
    elif trust is not None:
        trusted = read_trust(trust)
    verdict = judge(reading, trusted, strict=strict)
    if as_json:
        print(json.dumps({"file": name, **verdict.as_json()}))
    else:
        show(name, verdict, explain)
    return shell.OK if verdict.valid else shell.BROKEN


def show(name: str, verdict: Verdict, explain: bool) -> None:
    """Print the verdict on a proof for a person."""
    console = results()
    head = Text(f"{readable(name)}: ")
    if verdict.error is None:
        head.append("true", style="bold green")
    else:
        head.append("false", style="bold red")
        head.append(f" - {verdict.error.name}: {_reason(verdict.error)}")
    console.print(head, soft_wrap=True)
    console.print(Text(f"  claimed: {readable(verdict.claim)}"), soft_wrap=True)
    for claimed in verdict.lines[:LINES]:
        console.print(Text(f"           {readable(claimed)}"), soft_wrap=True)
    if len(verdict.lines) > LINES:
        more = f"           ... and {len(verdict.lines) - LINES:,} more: see --explain, and --json for all"
        console.print(Text(more, style="dim"), soft_wrap=True)
    console.print(Text(f"  under:   the {readable(verdict.trust.subject)}{_origin(verdict)}"), soft_wrap=True)
    if verdict.named_instead is not None:
        instead = f"  note:    the file itself names another: the {readable(verdict.named_instead.subject)}"
        console.print(Text(instead, style="yellow"), soft_wrap=True)
    for note in verdict.notes:
        console.print(Text(f"  note:    {readable(note)}", style="yellow"), soft_wrap=True)
    if explain:
        for line in ladder(verdict):
            console.print(line, soft_wrap=True)


def _answers(files: Sequence[Path] | None) -> list[dict[str, Any]] | None:
    """Return the JSON objects in files, in their order; None where there are no files."""
    from causeway.proofs.documents.validation import parse_object, read_bytes

    return [parse_object(read_bytes(file), str(file)) for file in files] if files else None


def _reason(error: Exception) -> str:
    """Return an error's text without its name, where that is in front already."""
    return readable(str(error).removeprefix(f"{type(error).__name__}: "))


def _origin(verdict: Verdict) -> str:
    if verdict.named_by_document:
        return ", named by the file itself: use --trust to give one that you trust"
    return " (--trust)"
