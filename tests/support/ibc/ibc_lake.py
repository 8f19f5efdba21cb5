"""A small network under ibc on a lake, made in this process: packets, receipts, and receipts that come late.

Zone ``A`` asks echo programs of ``B`` and ``C``, and one on ``B`` that asks ``C`` before it answers. Zone ``D`` is
connected with ``A`` only, and run by another lake.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.common.small_lakes import lake_of, user_calls

TICKS = 12

SCENARIO = """
[network]
protocol = "ibc"
seed = 3
executor = "in_process"
partitions = 2
seconds_per_tick = 6.0

[options]
connections = [["A", "B"], ["A", "C"], ["B", "C"], ["A", "D"]]
{options}

[options.types.ask]

[[chains]]
name = "A"
[[chains]]
name = "B"
[[chains]]
name = "C"
[[chains]]
name = "D"
external = true

[[programs]]
name = "caller"
chain = "A"
program = "caller"
balance = 1_000_000
[[programs]]
name = "echo"
chain = "B"
program = "echo"
[[programs]]
name = "late"
chain = "B"
program = "fan_out"
options = {{ targets = [3] }}
[[programs]]
name = "far"
chain = "C"
program = "echo"

[traffic]
source = "script"
"""

SENDS = (("caller", "late", "ask", 1, 7), ("caller", "echo", "ask", 3, 0), ("caller", "far", "echo", 2, 0))


def scenario(ticks: int = TICKS, options: str = "") -> str:
    """Return the scenario's file: what users tell ``caller`` to ask, over ``ticks`` ticks; ``options``: TOML."""
    return SCENARIO.format(options=options) + user_calls(range(ticks), SENDS)


def make_lake(folder: Path, *, ticks: int = TICKS, options: str = "", until: int | None = None) -> str:
    """Run the scenario in ``folder``, to its end or to tick ``until``; return where its lake is."""
    return lake_of(folder, scenario(ticks, options), until)
