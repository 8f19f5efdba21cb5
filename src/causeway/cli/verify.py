"""``causeway verify``: check whether a proof from another system proves what it claims."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from causeway.cli import shell
from causeway.cli.ladder import ladder
from causeway.cli.options import argument, option
from causeway.cli.watch import results
from causeway.model.errors import InvalidInput
from causeway.model.text import readable

if TYPE_CHECKING:
    from causeway.proofs.documents.verdict import Verdict

STDIN = "-"

_STYLES = {"true": "bold green", "false": "bold red", "refused": "bold red", "untrusted": "bold yellow"}

LINES = 8
"""Claims of a document that are listed; the others are counted."""


def command(
    file: Annotated[
        Path,
        argument(
            "A proof: a JSON document, a node's answer to /commit or /abci_query, or a binary proof with "
            "--kind; - is standard input.",
            show_default=True,
        ),
    ],
    trust: Annotated[
        str | None,
        option(
            "What to trust: a root, key or header (JSON, DER, PEM, hexadecimal digits), or ic-mainnet. "
            "- is standard input. Without it, nothing is, and the answer is UNTRUSTED.",
            metavar="FILE",
        ),
    ] = None,
    kind: Annotated[str | None, option("Kind of proof, if the file does not say.", metavar="KIND")] = None,
    spec: Annotated[str | None, option("Store of an ICS-23 proof: iavl, tendermint, smt.", metavar="NAME")] = None,
    validators: Annotated[
        list[Path] | None,
        option(
            "Where the proof is a node's answer to /commit: its answer to /validators at that height; "
            "repeat it for every page.",
            metavar="FILE",
        ),
    ] = None,
    trusted_validators: Annotated[
        list[Path] | None,
        option("The same at the height after the trusted one, if the set has changed.", metavar="FILE"),
    ] = None,
    claims: Annotated[
        list[str] | None, option("Any field of the document; may be repeated.", "--claim", metavar="KEY=VALUE")
    ] = None,
    strict: Annotated[
        bool,
        option(
            "Refuse what is otherwise noted: a storage proof that repeats a node, an ICS-23 proof in a form that "
            "no encoder writes.",
            "--strict",
        ),
    ] = False,
    self_consistent: Annotated[
        bool,
        option(
            "Ask only whether the proof holds under the root, key or header that its own file names.",
            "--self-consistent",
        ),
    ] = False,
    explain: Annotated[bool, option("Draw the path from what is claimed to what is trusted.", "--explain")] = False,
    as_json: Annotated[bool, option("Print one JSON object instead of a text.", "--json")] = False,
) -> int:
    """Say whether a proof is true, false, or refused because nothing can be said; the reason has a name.

    docs/how-to/verify-a-proof.md describes the kinds of proofs and their JSON form.

    [bold]Example[/bold]: causeway verify certificate.cbor --trust ic-mainnet --explain
    """
    from causeway.proofs.documents.reading import claim_of, document_in
    from causeway.proofs.documents.trust import MAX_TRUST_BYTES, read_trust, trust_in
    from causeway.proofs.documents.validation import MAX_DOCUMENT_BYTES, read_bytes
    from causeway.proofs.documents.verdict import judge, refusal

    if trust is not None and self_consistent:
        raise InvalidInput("--self-consistent: does not go together with --trust")
    given: dict[str, Any] = {}
    for field, value in map(claim_of, claims or ()):
        if field in given:
            raise InvalidInput(f"--claim: {field} is given twice")
        given[field] = value
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
    trusted = None
    if trust == STDIN:
        trusted = trust_in(sys.stdin.buffer.read(MAX_TRUST_BYTES + 1), "standard input")
    elif trust is not None:
        trusted = read_trust(trust)
    if name == STDIN:
        name, data, folder = "standard input", sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1), None
    else:
        data, folder = read_bytes(file), file.parent
    try:
        reading = document_in(data, name, given, folder)
    except InvalidInput as error:
        verdict = refusal(InvalidInput(str(error).removeprefix(f"{name}: ")))
    else:
        verdict = judge(reading, trusted, strict=strict, self_consistent=self_consistent)
    if as_json:
        print(json.dumps({"file": name, **verdict.as_json()}))
    else:
        show(name, verdict, explain)
    return {"true": shell.OK, "false": shell.BROKEN}.get(verdict.answer, shell.BAD_INPUT)


def show(name: str, verdict: Verdict, explain: bool) -> None:
    """Print the verdict on a proof for a person."""
    console = results()
    head = Text(f"{readable(name)}: ")
    answer = verdict.answer.value
    head.append(answer.upper() if answer == "untrusted" else answer, style=_STYLES[answer])
    if verdict.error is not None:
        head.append(f" - {verdict.error.name}: {_reason(verdict.error)}")
    elif verdict.answer == "untrusted":
        head.append(" - name what you trust with --trust, or ask for no more than --self-consistent")
    console.print(head, soft_wrap=True)
    if verdict.kind is not None:
        console.print(Text(f"  claimed: {readable(verdict.claim)}"), soft_wrap=True)
    for claimed in verdict.lines[:LINES]:
        console.print(Text(f"           {readable(claimed)}"), soft_wrap=True)
    if len(verdict.lines) > LINES:
        more = f"           ... and {len(verdict.lines) - LINES:,} more: see --explain, and --json for all"
        console.print(Text(more, style="dim"), soft_wrap=True)
    if verdict.trust is not None:
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
    if not verdict.named_by_document:
        return " (--trust)"
    return f", named by the file itself, under which it is {verdict.found}"
