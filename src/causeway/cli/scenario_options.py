"""The options of commands that run a scenario: keys of it, and how it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from causeway.cli import completion

SCENARIO, HOW = "Keys of the scenario", "How it runs"

Traffic = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Recorded traffic to run.", show_default=False, rich_help_panel=SCENARIO),
]
Ticks = Annotated[int | None, typer.Option(help="Most ticks to run.", show_default=False, rich_help_panel=SCENARIO)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override any key of the scenario; may be repeated.",
        show_default=False,
        rich_help_panel=SCENARIO,
    ),
]
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
