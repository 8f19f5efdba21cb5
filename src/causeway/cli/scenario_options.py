"""The options of commands that run a scenario: keys of it, and how it runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from causeway.cli import completion

SCENARIO, HOW = "Keys of the scenario", "How it runs"


def protocol_in(panel: str) -> Any:
    """Return the option of a protocol, in a panel of a command's help."""
    return typer.Option(
        help="Messaging protocol.", show_default=False, autocompletion=completion.protocols, rich_help_panel=panel
    )


def traffic_in(panel: str) -> Any:
    """Return the option of recorded traffic, in a panel of a command's help."""
    return typer.Option(metavar="FILE", help="Recorded traffic to run.", show_default=False, rich_help_panel=panel)


def settings_in(panel: str | None) -> Any:
    """Return the option of keys that are overridden, in a panel of a command's help."""
    return typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override any key of the scenario; may be repeated.",
        show_default=False,
        rich_help_panel=panel,
    )


Protocol = Annotated[str | None, protocol_in(SCENARIO)]
Traffic = Annotated[str | None, traffic_in(SCENARIO)]
Ticks = Annotated[int | None, typer.Option(help="Most ticks to run.", show_default=False, rich_help_panel=SCENARIO)]
Settings = Annotated[list[str] | None, settings_in(SCENARIO)]
Master = Annotated[
    str | None,
    typer.Option(
        help="Spark master, such as 'local[2]' or spark://host:7077.", show_default=False, rich_help_panel=HOW
    ),
]
Executor = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="spark, or in_process for small networks.",
        show_default=False,
        autocompletion=completion.executors,
        rich_help_panel=HOW,
    ),
]
Partitions = Annotated[int | None, typer.Option(help="Tasks per tick.", show_default=False, rich_help_panel=HOW)]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="Setting of Spark, such as spark.executor.memory=4g; may be repeated.",
        show_default=False,
        rich_help_panel=HOW,
    ),
]
