"""``causeway verify``: verify a proof from another system, and draw its path.

The path is a ladder with one rung a step, from the claim down to the root of trust.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from causeway_proofs.errors import InvalidInput
from rich.text import Text

from causeway.cli import shell
from causeway.cli.options import argument, option
from causeway.cli.output.progress import stdout_console
from causeway.core.text import shorten_hex, to_one_line

if TYPE_CHECKING:
    from causeway_proofs.documents.document import ProofPath
    from causeway_proofs.documents.verification import DocumentVerdict

MAX_TRACKS = 20
"""Maximum drawn paths of a batch; further ones are counted."""

_OPERATION = 10
_DETAIL = 64


def draw_proof_tree(verdict: DocumentVerdict) -> Iterator[Text]:
    """Draw the path of a proof.

    Args:
        verdict: the verdict on a document.

    Yields:
        Lines of text.
    """
    for track in verdict.tracks[:MAX_TRACKS]:
        yield from _path_lines(verdict, track)
    left = len(verdict.tracks) - MAX_TRACKS
    if left > 0:
        yield Text(f"... and {left} more paths; --json has all of them", style="dim")
    if verdict.error is not None:
        where = "after these steps" if verdict.tracks else "before any step"
        yield Text(f"✗ {where}: {verdict.error.name}", style="bold red")


def _path_lines(verdict: DocumentVerdict, track: ProofPath) -> Iterator[Text]:
    yield Text(f"● {to_one_line(track.title)}", style="bold")
    for step in track.steps:
        detail = to_one_line(step.detail)
        line = Text()
        line.append("│ ", style="dim")
        line.append(f"{to_one_line(step.operation):<{_OPERATION}} ", style="cyan")
        line.append(f"{detail:<{_DETAIL}} " if step.result else detail)
        if step.result:
            line.append(shorten_hex(step.result.hex()), style="dim")
        yield line
    target = verdict.trust.target if verdict.trust is not None else b""
    reached = track.steps[-1].result if track.steps else b""
    if verdict.error is None:
        yield Text(f"╰ = {_trusted(verdict)}", style="green")
    elif reached and len(reached) == len(target) and reached != target:
        yield Text(f"╰ ≠ {_trusted(verdict)}", style="red")
    elif reached == target:
        yield Text(f"╰ = {_trusted(verdict)}", style="green")
    else:
        yield Text(f"╰ ? {_trusted(verdict)}", style="red")


def _trusted(verdict: DocumentVerdict) -> str:
    if verdict.trust is None:
        return "nothing trusted"
    untrusted = verdict.named_by_document and not verdict.accepted
    return f"{to_one_line(verdict.trust.subject)}, {'named by the file itself' if untrusted else 'trusted'}"


STDIN_NAME = "-"

_STYLES = {"true": "bold green", "false": "bold red", "refused": "bold red", "untrusted": "bold yellow"}

LINES = 8
"""Maximum listed claims of a document; further ones are counted."""


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
            "Trusted root, key or header (JSON, DER, PEM, hexadecimal digits), or ic-mainnet. "
            "- is standard input. Without --trust, the verdict is UNTRUSTED.",
            metavar="FILE",
        ),
    ] = None,
    kind: Annotated[str | None, option("Kind of proof, if the file does not say.", metavar="KIND")] = None,
    spec: Annotated[str | None, option("Store of an ICS-23 proof: iavl, tendermint, smt.", metavar="NAME")] = None,
    validators: Annotated[
        list[Path] | None,
        option(
            "For a node's answer to /commit: its answer to /validators at that height; repeat it for every page.",
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
            "Refuse proofs that otherwise only get a note: storage proofs with a repeated node, ICS-23 proofs in a "
            "form that no encoder writes.",
            "--strict",
        ),
    ] = False,
    self_consistent: Annotated[
        bool,
        option(
            "Verify only against the root, key or header named in the proof file itself.",
            "--self-consistent",
        ),
    ] = False,
    explain: Annotated[
        bool, option("Draw the path from the claim to the trusted root, key or header.", "--explain")
    ] = False,
    as_json: Annotated[bool, option("Print one JSON object instead of text.", "--json")] = False,
) -> int:
    """Verify a proof and report the verdict, with a named reason unless it is true.

    docs/how-to/verify-a-proof.md describes the kinds of proofs and their JSON form.

    [bold]Example[/bold]: causeway verify certificate.cbor --trust ic-mainnet --explain
    """
    from causeway_proofs.documents.trust import MAX_TRUST_BYTES, parse_trust, read_trust
    from causeway_proofs.documents.validation import MAX_DOCUMENT_BYTES, read_bytes
    from causeway_proofs.documents.verification import parse_claim, parse_document, reject_document, verify_document

    if trust is not None and self_consistent:
        raise InvalidInput("--self-consistent: does not go together with --trust")
    given: dict[str, Any] = {}
    for field, value in map(parse_claim, claims or ()):
        if field in given:
            raise InvalidInput(f"--claim: {field} is given twice")
        given[field] = value
    options = {
        "kind": kind,
        "spec": spec,
        "validators": _read_answers(validators),
        "trusted_validators": _read_answers(trusted_validators),
    }
    given.update({name: value for name, value in options.items() if value is not None})
    name = str(file)
    if name == trust == STDIN_NAME:
        raise InvalidInput("--trust -: standard input is the proof already")
    trusted = None
    if trust == STDIN_NAME:
        trusted = parse_trust(sys.stdin.buffer.read(MAX_TRUST_BYTES + 1), "standard input")
    elif trust is not None:
        trusted = read_trust(trust)
    if name == STDIN_NAME:
        name, data, folder = "standard input", sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1), None
    else:
        data, folder = read_bytes(file), file.parent
    try:
        reading = parse_document(data, name, given, folder)
    except InvalidInput as error:
        verdict = reject_document(InvalidInput(str(error).removeprefix(f"{name}: ")))
    else:
        verdict = verify_document(reading, trusted, strict=strict, self_consistent=self_consistent)
    if as_json:
        print(json.dumps({"file": name, **verdict.as_json()}))
    else:
        show_verdict(name, verdict, explain)
    return {"true": shell.OK, "false": shell.FAILED}.get(verdict.answer, shell.BAD_INPUT)


def show_verdict(name: str, verdict: DocumentVerdict, explain: bool) -> None:
    """Print the verdict on a proof.

    Args:
        name: name of the file.
        verdict: the verdict.
        explain: draw the path.
    """
    console = stdout_console()
    head = Text(f"{to_one_line(name)}: ")
    answer = verdict.answer.value
    head.append(answer.upper() if answer == "untrusted" else answer, style=_STYLES[answer])
    if verdict.error is not None:
        head.append(f" - {verdict.error.name}: {_reason(verdict.error)}")
    elif verdict.answer == "untrusted":
        head.append(" - use --trust, or --self-consistent to check it against its own root")
    console.print(head, soft_wrap=True)
    if verdict.kind is not None:
        console.print(Text(f"  claimed: {to_one_line(verdict.claim)}"), soft_wrap=True)
    for claimed in verdict.lines[:LINES]:
        console.print(Text(f"           {to_one_line(claimed)}"), soft_wrap=True)
    if len(verdict.lines) > LINES:
        more = f"           ... and {len(verdict.lines) - LINES:,} more: see --explain, and --json for all"
        console.print(Text(more, style="dim"), soft_wrap=True)
    if verdict.trust is not None:
        console.print(Text(f"  under:   the {to_one_line(verdict.trust.subject)}{_origin(verdict)}"), soft_wrap=True)
    if verdict.named_instead is not None:
        instead = f"  note:    the file itself names another: the {to_one_line(verdict.named_instead.subject)}"
        console.print(Text(instead, style="yellow"), soft_wrap=True)
    for note in verdict.notes:
        console.print(Text(f"  note:    {to_one_line(note)}", style="yellow"), soft_wrap=True)
    if explain:
        for line in draw_proof_tree(verdict):
            console.print(line, soft_wrap=True)


def _read_answers(files: Sequence[Path] | None) -> list[dict[str, Any]] | None:
    """Read JSON objects from files, in order; None without files."""
    from causeway_proofs.documents.validation import parse_object, read_bytes

    return [parse_object(read_bytes(file), str(file)) for file in files] if files else None


def _reason(error: Exception) -> str:
    """Return an error's text without its name."""
    return to_one_line(str(error).removeprefix(f"{type(error).__name__}: "))


def _origin(verdict: DocumentVerdict) -> str:
    if not verdict.named_by_document:
        return " (--trust)"
    return f", named by the file itself, under which it is {verdict.found}"
