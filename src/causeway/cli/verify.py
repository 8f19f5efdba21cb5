"""``causeway verify``: check whether a proof from another system proves what it claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from causeway.cli import shell
from causeway.cli.ladder import ladder
from causeway.cli.watch import results
from causeway.model.text import readable

if TYPE_CHECKING:
    from causeway.proofs.documents.verdict import Verdict


def command(
    file: Annotated[
        Path, typer.Argument(help="A proof: a JSON document, or a binary proof with --kind.", show_default=False)
    ],
    trust: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="What to trust: a root, key or header (JSON, DER, PEM, hexadecimal digits), or ic-mainnet. "
            "Default: what the proof's own file names.",
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
    claims: Annotated[
        list[str] | None,
        typer.Option(
            "--claim", metavar="KEY=VALUE", help="Any field of the document; may be repeated.", show_default=False
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Draw the path from what is claimed to what is trusted.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a text.")] = False,
) -> int:
    """Check whether a proof is true; if it is not, name the reason.

    docs/how-to/verify-a-proof.md describes the kinds of proofs and their JSON form.

    [bold]Example[/bold]: causeway verify certificate.cbor --trust ic-mainnet --explain
    """
    from causeway.proofs.documents.reading import claim_of, read_document
    from causeway.proofs.documents.trust import read_trust
    from causeway.proofs.documents.verdict import judge

    given: dict[str, Any] = dict(claim_of(text) for text in claims or ())
    given.update({name: value for name, value in (("kind", kind), ("spec", spec)) if value is not None})
    reading = read_document(file, given)
    verdict = judge(reading, None if trust is None else read_trust(trust))
    if as_json:
        print(json.dumps({"file": str(file), **verdict.as_json()}))
    else:
        show(str(file), verdict, explain)
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
    console.print(Text(f"  under:   the {readable(verdict.trust.subject)}{_origin(verdict)}"), soft_wrap=True)
    if explain:
        for line in ladder(verdict):
            console.print(line, soft_wrap=True)


def _reason(error: Exception) -> str:
    """Return an error's text without its name, where that is in front already."""
    return readable(str(error).removeprefix(f"{type(error).__name__}: "))


def _origin(verdict: Verdict) -> str:
    if verdict.named_by_document:
        return ", named by the file itself: use --trust to give one that you trust"
    return " (--trust)"
