"""The path of a proof, drawn as a ladder: one rung per step, from what is claimed down to what is trusted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from causeway.model.text import readable, short

if TYPE_CHECKING:
    from causeway.proofs.documents.document import Track
    from causeway.proofs.documents.verdict import Verdict
    from causeway.proofs.steps import Step

MOST_TRACKS = 20
"""Paths that are drawn; the others of a long batch are only counted."""

_OPERATION = 10
_DETAIL = 64


def ladder(verdict: Verdict) -> Iterator[Text]:
    """Yield the lines of the drawing."""
    for track in verdict.tracks[:MOST_TRACKS]:
        yield from _rungs(verdict, track)
    left = len(verdict.tracks) - MOST_TRACKS
    if left > 0:
        yield Text(f"... and {left} more paths; --json has all of them", style="dim")
    if verdict.error is not None:
        where = "after these steps" if verdict.tracks else "before any step"
        yield Text(f"✗ {where}: {verdict.error.name}", style="bold red")


def _rungs(verdict: Verdict, track: Track) -> Iterator[Text]:
    yield Text(f"● {readable(track.title)}", style="bold")
    for step in track.steps:
        yield _rung(step)
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


def _rung(step: Step) -> Text:
    detail = readable(step.detail)
    line = Text()
    line.append("│ ", style="dim")
    line.append(f"{readable(step.operation):<{_OPERATION}} ", style="cyan")
    line.append(f"{detail:<{_DETAIL}} " if step.result else detail)
    if step.result:
        line.append(short(step.result.hex()), style="dim")
    return line


def _trusted(verdict: Verdict) -> str:
    if verdict.trust is None:
        return "nothing trusted"
    untrusted = verdict.named_by_document and not verdict.accepted
    return f"{readable(verdict.trust.subject)}, {'named by the file itself' if untrusted else 'trusted'}"
