"""The options of commands that run a scenario: keys of it, and how it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from causeway.cli import completion
from causeway.cli.options import option
from causeway.model.errors import InvalidInput

if TYPE_CHECKING:
    from causeway.programs.sources import Sources

SCENARIO, HOW = "Keys of the scenario", "How it runs"


def protocol_in(panel: str) -> Any:
    """Return the option of a protocol, in a panel of a command's help."""
    return typer.Option(
        help="Messaging protocol.", show_default=False, autocompletion=completion.protocols, rich_help_panel=panel
    )


def traffic_in(panel: str) -> Any:
    """Return the option of recorded traffic, in a panel of a command's help."""
    return typer.Option(metavar="FILE", help="Recorded traffic to run.", show_default=False, rich_help_panel=panel)


def scenario_of_lake_in(panel: str | None = None) -> Any:
    """Return the option of the scenario of a lake, in a panel of a command's help."""
    text = "The scenario of the lake, when programs of one's own lie beside it."
    return typer.Option("--scenario", metavar="FILE", help=text, show_default=False, rich_help_panel=panel)


def programs_of_lake_in(panel: str | None = None) -> Any:
    """Return the option of where programs of a lake come from, in a panel of a command's help."""
    text = "Folder or module that programs of one's own may be imported from; may be repeated."
    return typer.Option("--programs", metavar="DIR|MODULE", help=text, show_default=False, rich_help_panel=panel)


def sources_in(scenario: Path | None, programs: Sequence[str] | None) -> Sources:
    """Return where programs of a lake come from, as a user says. Raises ``InvalidInput``."""
    from causeway.programs.sources import Sources

    if scenario is not None and not scenario.is_file():
        raise InvalidInput(f"--scenario: {scenario}: no such file")
    return Sources.of(scenario, *(programs or ()))


def settings_in(panel: str | None) -> Any:
    """Return the option of keys that are overridden, in a panel of a command's help."""
    return typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override any key of the scenario; may be repeated.",
        show_default=False,
        rich_help_panel=panel,
    )


ScenarioOfLake = Annotated[Path | None, scenario_of_lake_in()]
ProgramsOfLake = Annotated[list[str] | None, programs_of_lake_in()]
Protocol = Annotated[str | None, protocol_in(SCENARIO)]
Traffic = Annotated[str | None, traffic_in(SCENARIO)]
Ticks = Annotated[int | None, option("Most ticks to run.", panel=SCENARIO)]
Settings = Annotated[list[str] | None, settings_in(SCENARIO)]
Master = Annotated[str | None, option("Spark master, such as 'local[2]' or spark://host:7077.", panel=HOW)]
Executor = Annotated[
    str | None,
    option("spark, or in_process for small networks.", metavar="NAME", panel=HOW, autocompletion=completion.executors),
]
Partitions = Annotated[int | None, option("Tasks per tick.", panel=HOW)]
SparkSettings = Annotated[
    list[str] | None,
    option(
        "Setting of Spark, such as spark.executor.memory=4g; may be repeated.", "--conf", metavar="KEY=VALUE", panel=HOW
    ),
]
