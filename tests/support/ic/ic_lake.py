"""A small network under ic on a lake, made in this process: calls in both directions, and certified data."""

from __future__ import annotations

from pathlib import Path

from tests.support.common.small_lakes import lake_of, user_calls

TICKS = 8

SCENARIO = """
[network]
protocol = "ic"
seed = 3
executor = "in_process"
partitions = 2
seconds_per_tick = 2.5

[options]
certification = "{certification}"
{options}

[[chains]]
name = "left"
[[chains]]
name = "middle"
[[chains]]
name = "right"

[[programs]]
name = "alice"
chain = "left"
program = "caller"
balance = 1_000_000
[[programs]]
name = "bob"
chain = "right"
program = "caller"
balance = 1_000_000
[[programs]]
name = "fruit"
chain = "left"
program = "certified_map"
[[programs]]
name = "stones"
chain = "left"
program = "certified_map"
[[programs]]
name = "nobody"
chain = "right"
program = "none"
{more}

[traffic]
source = "script"
[[traffic.send]]
tick = 1
to = "fruit"
method = "put"
text = "apple=red"
[[traffic.send]]
tick = 4
to = "fruit"
method = "put"
text = "plum=blue"
"""

SENDS = (("alice", "bob", "echo", 3, 500), ("bob", "alice", "echo", 2, 0), ("bob", "nobody", "ask", 1, 7))


def scenario(ticks: int = TICKS, options: str = "", more: str = "", certification: str = "bls") -> str:
    """Return the scenario's file: what users tell ``alice`` and ``bob`` to call, over ``ticks`` ticks; ``options``,
    ``more``: TOML."""
    return SCENARIO.format(options=options, more=more, certification=certification) + user_calls(range(ticks), SENDS)


def make_lake(
    folder: Path,
    *,
    ticks: int = TICKS,
    options: str = "",
    more: str = "",
    certification: str = "bls",
    until: int | None = None,
) -> str:
    """Run the scenario in ``folder``, to its end or to tick ``until``; return where its lake is."""
    return lake_of(folder, scenario(ticks, options, more, certification), until)
