"""Declare options and arguments of commands in one line each."""

from __future__ import annotations

from typing import Any

import typer


def option(
    help: str, *flags: str, metavar: str | None = None, panel: str | None = None, show_default: Any = False, **more: Any
) -> Any:
    """Declare an option.

    Args:
        help: what it does, one line.
        flags: its names, where they are not the parameter's.
        metavar: the name of its value.
        panel: where the help of the command lists it.
        show_default: whether the help names its default, or what the help names as such.
        more: further arguments of ``typer.Option``.
    """
    return typer.Option(*flags, help=help, metavar=metavar, rich_help_panel=panel, show_default=show_default, **more)


def argument(help: str, *, metavar: str | None = None, show_default: bool = False, **more: Any) -> Any:
    """Declare an argument, as ``option`` does an option."""
    return typer.Argument(help=help, metavar=metavar, show_default=show_default, **more)
