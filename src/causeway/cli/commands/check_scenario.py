"""``causeway check`` of a scenario."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causeway_proofs.errors import InvalidInput
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from causeway.cli import shell
from causeway.cli.output.progress import show_spinner, stdout_console
from causeway.cli.output.run_outcome import format_size, indent_table
from causeway.cli.scenario_options import collect_overrides
from causeway.core.text import count_noun, escape_controls, shorten_name

if TYPE_CHECKING:
    from causeway.network.scenario_check import ScenarioExamination, ScenarioRemark
    from causeway.network.scenario_plan import ScenarioPlan

MAX_NAMED_CHAINS = 6
"""Maximum named chains; of more their number is printed."""


def check_scenario(
    path: str, *, protocol: str | None, traffic: str | None, settings: Sequence[str], as_json: bool
) -> int:
    """Validate a scenario, print the result, and return the exit code.

    Args:
        path: the scenario file.
        protocol: overrides its protocol, or None.
        traffic: overrides its recorded traffic, or None.
        settings: overrides, as ``KEY=VALUE``.
        as_json: print JSON.

    Returns:
        The exit code.

    Raises:
        InvalidInput: an override is invalid.
    """
    from causeway.network.scenario_check import examine_scenario

    overrides = collect_overrides(settings, protocol=protocol, traffic=traffic)
    if (document := _gossip_document(path)) is not None:
        return _check_simulation(path, document, overrides, as_json)
    with show_spinner("Checking"):
        found = examine_scenario(path, overrides)
    if as_json:
        print(json.dumps(_as_json(found)))
    else:
        given = [("--protocol", protocol), ("--traffic", traffic), *(("--set", text) for text in settings)]
        options = "".join(f" {option} {shlex.quote(value)}" for option, value in given if value is not None)
        _show(found, options, stdout_console())
    return shell.BAD_INPUT if found.wrong else shell.OK


def _gossip_document(path: str) -> dict[str, Any] | None:
    """Return the tables of a file that describes gossip nodes, or None for a network of chains."""
    from causeway.config.document import read_document

    try:
        document = read_document(Path(path))
    except InvalidInput:
        return None  # its errors are reported as those of a network
    is_gossip = isinstance(document.get("nodes"), dict) and not {"chains", "programs"} & {*document}
    return document if is_gossip else None


def _check_simulation(path: str, document: Mapping[str, Any], overrides: Mapping[str, str], as_json: bool) -> int:
    """Print the first error in a scenario of gossip nodes.

    Raises:
        InvalidInput: it is a scenario of node processes.
    """
    from causeway.cli.commands.gossip.simulate import SIMULATION
    from causeway.network.scenario_check import ScenarioExamination, ScenarioRemark
    from causeway.network.simulation import load_simulation

    if "gossip" in document:
        raise InvalidInput(f"{path}: gossip: it is for processes; causeway gossip up checks it before it starts any")
    wrong: tuple[ScenarioRemark, ...] = ()
    try:
        scenario = load_simulation(SIMULATION, path, overrides)
    except InvalidInput as error:
        wrong = (ScenarioRemark(None, None, str(error).removeprefix(f"{path}: ")),)
    found = ScenarioExamination(path, wrong, more=bool(wrong))
    if as_json:
        print(json.dumps(_as_json(found)))
    elif wrong:
        _show(found, "", stdout_console())
    else:
        name, console = escape(shorten_name(path)), stdout_console()
        nodes = sum(chain.count or 1 for chain in scenario.document.chains)
        console.print(f"[bold]{name}[/bold]: [bold green]valid[/bold green]: {nodes:,} nodes that gossip")
        console.print(f"Next: causeway gossip simulate {name}", soft_wrap=True)
    return shell.BAD_INPUT if wrong else shell.OK


def _as_json(found: ScenarioExamination) -> dict[str, Any]:
    return {
        "scenario": found.path,
        "valid": not found.wrong,
        "wrong": [asdict(each) for each in found.wrong],
        "more": found.more,
        "without_effect": [asdict(each) for each in found.idle],
        "plan": None if found.plan is None else asdict(found.plan),
    }


def _show(found: ScenarioExamination, options: str, console: Console) -> None:
    path = escape(shorten_name(found.path))
    if found.wrong:
        many = f"{count_noun(len(found.wrong), 'error')}"
        console.print(f"[bold]{path}[/bold]: [bold red]{many}[/bold red]")
        for each in found.wrong:
            console.print(f"  {_remark(each)}", soft_wrap=True)
        if found.more:
            console.print("Fix these errors first: settings that depend on them were not checked.")
        return
    console.print(f"[bold]{path}[/bold]: [bold green]valid[/bold green]")
    if found.plan is not None:
        console.print(indent_table(_plan_table(found.plan)))
    if found.idle:
        console.print("[yellow]Without effect[/yellow]:")
        for each in found.idle:
            console.print(f"  {_remark(each)}", soft_wrap=True)
    console.print(
        f"Next: causeway run {escape(shlex.quote(shorten_name(found.path)))}{escape(escape_controls(options))}",
        soft_wrap=True,
    )


def _remark(each: ScenarioRemark) -> str:
    where = "" if each.line is None else f"line {each.line}: "
    key = "" if each.key is None else f"[bold]{escape(escape_controls(each.key))}[/bold]: "
    return f"{where}{key}{escape(escape_controls(each.text))}"


def _plan_table(plan: ScenarioPlan) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(overflow="fold")
    changes = {"move": plan.moves, "split": plan.splits, "change": plan.changes}
    for name, text in (
        ("protocol", plan.protocol),
        ("chains", _chains(plan)),
        ("programs", ", ".join(f"{count:,} {name}" for name, count in plan.programs.items())),
        ("traffic", _traffic(plan)),
        ("faults", ", ".join(f"{count} {kind}" for kind, count in plan.faults.items())),
        ("changes", ", ".join(count_noun(count, what) for what, count in changes.items() if count)),
        ("heights", _heights(plan)),
        ("lake", f"about {format_size(plan.lake_bytes)}" if plan.messages else ""),
        ("runs", f"{plan.executor}, {count_noun(plan.buckets, 'task')} a tick"),
    ):
        if text:
            table.add_row(name, escape(escape_controls(text)))
    return table


def _chains(plan: ScenarioPlan) -> str:
    named = [f"{name} ({role})" if role else name for name, role in plan.chains.items()]
    roles = Counter(role for role in plan.chains.values() if role)
    more = f"; {', '.join(f'{count} {role}' for role, count in roles.items())}" if roles else ""
    text = ", ".join(named) if len(named) <= MAX_NAMED_CHAINS else f"{', '.join(named[:MAX_NAMED_CHAINS])}, ...{more}"
    external = f"; {plan.external} of them other lakes run" if plan.external else ""
    return f"{len(named):,}: {text}{external}"


def _traffic(plan: ScenarioPlan) -> str:
    if plan.ticks is None:
        return f"{plan.traffic}: no message from users" if plan.traffic != "none" else "none"
    first, last = plan.ticks
    about = "" if plan.exact else "about "
    when = f"tick {first:,}" if first == last else f"ticks {first:,} to {last:,}"
    return f"{plan.traffic}: {about}{count_noun(plan.messages, 'message')} from users, {when}"


def _heights(plan: ScenarioPlan) -> str:
    with_traffic = "" if plan.heights is None else f"{plan.heights:,} with traffic, then "
    end = "until no work is left" if plan.limit is None else f"to tick {plan.limit - 1:,} at most"
    return f"{with_traffic}{end}"
