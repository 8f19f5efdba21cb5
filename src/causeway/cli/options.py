"""Declare options and arguments of commands in one line each."""

from __future__ import annotations

from typing import Any

import typer


def option(
    help: str, *flags: str, metavar: str | None = None, panel: str | None = None, show_default: Any = False, **more: Any
) -> Any:
    """Declare an option.

    Args:
        help: its description, one line.
        flags: its names; default: from the parameter.
        metavar: the name of its value.
        panel: the panel of the help.
        show_default: show its default in the help, or a text instead.
        more: further arguments of ``typer.Option``.

    Returns:
        The declaration.
    """
    return typer.Option(*flags, help=help, metavar=metavar, rich_help_panel=panel, show_default=show_default, **more)


def argument(help: str, *, metavar: str | None = None, show_default: bool = False, **more: Any) -> Any:
    """Declare an argument.

    Args:
        help: its description, one line.
        metavar: the name of its value.
        show_default: show its default in the help.
        more: further arguments of ``typer.Argument``.

    Returns:
        The declaration.
    """
    return typer.Argument(help=help, metavar=metavar, show_default=show_default, **more)
