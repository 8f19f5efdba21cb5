"""Options of commands that run a scenario: ``--set KEY=VALUE``, and short forms of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from causeway_proofs.errors import InvalidInput

from causeway.cli import completion
from causeway.cli.options import option
from causeway.config.document import quote_toml

if TYPE_CHECKING:
    from causeway.programs.user_modules import ModuleSources

SCENARIO, HOW = "Keys of the scenario", "Execution"


def protocol_option(panel: str) -> Any:
    """Declare the option of a protocol.

    Args:
        panel: the panel of the help.

    Returns:
        The declaration.
    """
    return typer.Option(
        help="Messaging protocol.",
        show_default=False,
        autocompletion=completion.complete_protocols,
        rich_help_panel=panel,
    )


def traffic_option(panel: str) -> Any:
    """Declare the option of recorded traffic.

    Args:
        panel: the panel of the help.

    Returns:
        The declaration.
    """
    return typer.Option(metavar="FILE", help="Recorded traffic to run.", show_default=False, rich_help_panel=panel)


def lake_scenario_option(panel: str | None = None) -> Any:
    """Declare the option of a lake's scenario.

    Args:
        panel: the panel of the help.

    Returns:
        The declaration.
    """
    text = "The scenario of the lake, when programs of one's own lie beside it."
    return typer.Option("--scenario", metavar="FILE", help=text, show_default=False, rich_help_panel=panel)


def lake_programs_option(panel: str | None = None) -> Any:
    """Declare the option of the modules of a lake's programs.

    Args:
        panel: the panel of the help.

    Returns:
        The declaration.
    """
    text = "Folder or module that programs of one's own may be imported from; may be repeated."
    return typer.Option("--programs", metavar="DIR|MODULE", help=text, show_default=False, rich_help_panel=panel)


def program_sources(scenario: Path | None, programs: Sequence[str] | None) -> ModuleSources:
    """Return the sources of a lake's programs from options.

    Args:
        scenario: a scenario file, or None.
        programs: modules or files, or None.

    Returns:
        The sources.

    Raises:
        InvalidInput: a source does not exist.
    """
    from causeway.programs.user_modules import ModuleSources

    if scenario is not None and not scenario.is_file():
        raise InvalidInput(f"--scenario: {scenario}: no such file")
    return ModuleSources.of(scenario, *(programs or ()))


def settings_option(panel: str | None) -> Any:
    """Declare the option of overridden keys.

    Args:
        panel: the panel of the help.

    Returns:
        The declaration.
    """
    return typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override any key of the scenario; may be repeated.",
        show_default=False,
        rich_help_panel=panel,
    )


ScenarioOfLake = Annotated[Path | None, lake_scenario_option()]
ProgramsOfLake = Annotated[list[str] | None, lake_programs_option()]
Protocol = Annotated[str | None, protocol_option(SCENARIO)]
Traffic = Annotated[str | None, traffic_option(SCENARIO)]
Ticks = Annotated[int | None, option("Most ticks to run.", panel=SCENARIO)]
Settings = Annotated[list[str] | None, settings_option(SCENARIO)]
Master = Annotated[str | None, option("Spark master, such as 'local[2]' or spark://host:7077.", panel=HOW)]
Executor = Annotated[
    str | None,
    option(
        "spark, or in_process for small networks.",
        metavar="NAME",
        panel=HOW,
        autocompletion=completion.complete_executors,
    ),
]
Partitions = Annotated[int | None, option("Tasks per tick.", panel=HOW)]
SparkSettings = Annotated[
    list[str] | None,
    option(
        "Setting of Spark, such as spark.executor.memory=4g; may be repeated.", "--conf", metavar="KEY=VALUE", panel=HOW
    ),
]


def collect_overrides(
    settings: Sequence[str],
    *,
    protocol: str | None = None,
    master: str | None = None,
    executor: str | None = None,
    traffic: str | None = None,
    partitions: int | None = None,
    ticks: int | None = None,
    spark: Sequence[str] = (),
) -> dict[str, str]:
    """Collect the overrides of a scenario from options.

    Args:
        settings: ``KEY=VALUE`` texts.
        protocol: the protocol, or None.
        master: Spark master, or None.
        executor: the executor, or None.
        traffic: recorded traffic, or None.
        partitions: number of partitions, or None.
        ticks: number of ticks, or None.
        spark: Spark settings, as ``KEY=VALUE``.

    Returns:
        TOML values by dotted key.

    Raises:
        InvalidInput: an option is invalid, or a key is given twice.
    """
    overrides = dict(parse_setting(text) for text in settings)
    for key, value in (
        ("network.protocol", protocol),
        ("network.master", master),
        ("network.executor", executor),
        ("traffic.path", traffic),
    ):
        if value is not None:
            overrides[key] = quote_toml(value)
    for key, number in (("network.partitions", partitions), ("network.ticks", ticks)):
        if number is not None:
            overrides[key] = str(number)
    for text in spark:
        from causeway.scenarios.settings import refuse_spark_key

        name, chosen = parse_setting(text, "--conf")
        try:
            refuse_spark_key(name)
        except ValueError as error:
            raise InvalidInput(f"--conf {name}: {error}") from None
        overrides[f'network.spark."{name}"'] = quote_toml(chosen)
    return overrides


def parse_setting(text: str, option: str = "--set") -> tuple[str, str]:
    """Parse ``KEY=VALUE``.

    Args:
        text: the text.
        option: the option, for the error.

    Returns:
        Key and value.
    """
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        example = "spark.executor.memory=4g" if option == "--conf" else "network.seed=3"
        raise InvalidInput(f"{option} {text}: write KEY=VALUE, for example {example}")
    return key.strip(), value.strip()
