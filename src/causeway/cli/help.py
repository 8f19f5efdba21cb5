"""The help of commands beyond their options: description, examples and exit codes."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from typing import Any

import typer
from typer.core import TyperCommand

from causeway.cli.shell import EPILOG

_EXAMPLE = "[bold]Example[/bold]:"

SEE_ALSO = {
    "demo": ("run state report", "README.md"),
    "run": ("check state audit report", "docs/reference/scenario.md"),
    "compare": ("run report", "docs/how-to/compare.md"),
    "state": ("prove check", "docs/reference/lake.md"),
    "prove": ("verify", "docs/how-to/prove-and-verify.md"),
    "verify": ("prove", "docs/how-to/verify-a-proof.md"),
    "audit": ("ingest trace ledger report", "docs/how-to/audit.md"),
    "calls": ("latency backlog ledger trace", "docs/reference/command-line.md"),
    "latency": ("backlog calls report", "docs/reference/command-line.md"),
    "backlog": ("latency calls trace", "docs/reference/command-line.md"),
    "ledger": ("calls trace ingest", "docs/reference/ledger.md"),
    "report": ("audit explore", "docs/how-to/report.md"),
    "trace": ("ledger calls explore", "docs/how-to/audit.md"),
    "explore": ("report trace", "docs/how-to/explore.md"),
    "check": ("run vacuum", "docs/reference/command-line.md"),
    "ingest": ("audit ledger", "docs/how-to/ingest.md"),
    "export": ("ingest ledger", "docs/how-to/table-formats.md"),
    "vacuum": ("check state", "docs/reference/lake.md"),
    "serve": ("relay send key", "docs/how-to/serve.md"),
    "relay": ("serve", "docs/how-to/relay.md"),
    "send": ("serve key", "docs/how-to/serve.md"),
    "completion": ("manual", "docs/reference/command-line.md"),
    "manual": ("completion", "docs/reference/command-line.md"),
    "gossip": ("run", "docs/how-to/gossip.md"),
    "key": ("serve send", "docs/how-to/serve.md"),
}
"""Related commands and the page of each command."""


def fold_help(text: str | None) -> str:
    """Join each paragraph and example of a help text to one line, so that terminals wrap it.

    Args:
        text: the text.

    Returns:
        The folded text.
    """
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


def help_epilog(name: str) -> str:
    """Return the text below the options of a command.

    Args:
        name: the command.

    Returns:
        The text.
    """
    related, page = SEE_ALSO[name]
    commands = ", ".join(f"causeway {each}" for each in related.split())
    return f"{EPILOG}\n\nSee also: {commands}; {page}"


class HelpfulCommand(TyperCommand):
    """A command with value names (``FILE``, ``N``, ``TEXT``) for options without one."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        for each in self.params:
            _name_value(each)

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option ``--help``."""
        found = super().get_help_option(ctx)
        if found is not None:
            _name_value(found)
        return found


def _name_value(param: Any) -> None:
    if param.metavar is not None or param.nargs != 1:
        return
    kind = param.type_descriptor
    if param.param_type_name == "argument":
        param.metavar = param.name.upper()
    elif kind.is_choice:
        return
    elif kind.is_path:
        param.metavar = "FILE"
    elif kind.annotation is bool:
        param.metavar = ""
    else:
        param.metavar = "N" if kind.annotation in (int, float) else "TEXT"


def add_command(
    app: typer.Typer, name: str, command: Callable[..., Any], group: str | None = None, panel: str = ""
) -> None:
    """Add a command to an application.

    Args:
        app: the application.
        name: name of the command.
        command: its function.
        group: name of its group, or None.
        panel: panel of the help.
    """
    app.command(
        name,
        cls=HelpfulCommand,
        help=fold_help(command.__doc__),
        epilog=help_epilog(group or name),
        rich_help_panel=panel or None,
    )(command)


__all__ = ["SEE_ALSO", "HelpfulCommand", "add_command", "fold_help", "help_epilog"]
