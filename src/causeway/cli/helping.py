"""What the help of a command says beside its options: what it does, examples, exit codes, where to read on."""

from __future__ import annotations

from inspect import cleandoc

from causeway.cli.shell import EPILOG

_EXAMPLE = "[bold]Example[/bold]:"

SEE_ALSO = {
    "demo": ("run state report", "README.md"),
    "run": ("check state audit report", "docs/how-to/scenario.md"),
    "compare": ("run report", "docs/how-to/compare.md"),
    "state": ("prove check", "docs/lake.md"),
    "prove": ("verify", "docs/how-to/prove-and-verify.md"),
    "verify": ("prove", "docs/how-to/verify-a-proof.md"),
    "audit": ("ingest trace ledger report", "docs/how-to/audit.md"),
    "calls": ("latency backlog ledger trace", "docs/command-line.md"),
    "latency": ("backlog calls report", "docs/command-line.md"),
    "backlog": ("latency calls trace", "docs/command-line.md"),
    "ledger": ("calls trace ingest", "docs/ledger.md"),
    "report": ("audit explore", "docs/how-to/report.md"),
    "trace": ("ledger calls explore", "docs/how-to/audit.md"),
    "explore": ("report trace", "docs/how-to/explore.md"),
    "check": ("run vacuum", "docs/command-line.md"),
    "ingest": ("audit ledger", "docs/how-to/ingest.md"),
    "vacuum": ("check state", "docs/lake.md"),
    "serve": ("relay send key", "docs/how-to/serve.md"),
    "relay": ("serve", "docs/how-to/relay.md"),
    "send": ("serve key", "docs/how-to/serve.md"),
    "completion": ("manual", "docs/command-line.md"),
    "manual": ("completion", "docs/command-line.md"),
    "gossip": ("run", "docs/how-to/gossip.md"),
    "key": ("serve send", "docs/how-to/serve.md"),
}
"""Other commands that belong to a command, and the page to read on."""


def folded(text: str | None) -> str:
    """Return a help text with each of its paragraphs, and each example, on one line, so that a terminal breaks it."""
    paragraphs = []
    for paragraph in cleandoc(text or "").split("\n\n"):
        lines: list[str] = []
        for line in paragraph.splitlines():
            if lines and not line.startswith(_EXAMPLE):
                lines[-1] += f" {line.strip()}"
            else:
                lines.append(line.strip())
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs)


def epilog(name: str) -> str:
    """Return what stands below the options of a command."""
    related, page = SEE_ALSO[name]
    commands = ", ".join(f"causeway {each}" for each in related.split())
    return f"{EPILOG}\n\nSee also: {commands}; {page}"


__all__ = ["SEE_ALSO", "epilog", "folded"]
