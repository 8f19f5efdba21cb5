"""A small network under icmp on a lake, made in this process: calls and answers between three parachains.

``alice`` on ``left`` asks ``bob`` on ``right`` and ``dora`` on ``far``; ``carol`` on ``far`` asks ``bob``. ``far`` is
halted for a while, so that queues wait for it.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.common.small_lakes import lake_of, user_calls

TICKS = 6

SCENARIO = """
[network]
protocol = "icmp"
seed = 3
executor = "in_process"
commit_every = {commit_every}

[[chains]]
name = "left"
[[chains]]
name = "right"
[[chains]]
name = "far"

[[programs]]
name = "alice"
chain = "left"
program = "caller"
balance = 1_000_000
[[programs]]
name = "bob"
chain = "right"
program = "echo"
[[programs]]
name = "carol"
chain = "far"
program = "caller"
balance = 1_000_000
[[programs]]
name = "dora"
chain = "far"
program = "echo"

[[faults]]
kind = "halt"
chain = "far"
from = 3
until = 9

[traffic]
source = "script"
"""

SENDS = (("alice", "bob", "echo", 3, 5), ("alice", "dora", "echo", 2, 0), ("carol", "bob", "echo", 1, 9))


FORK = """
[[faults]]
kind = "fork"
tick = 2
until = 9
kept = 1
followers = { left = 0, right = 1, far = 1 }
"""


def make_lake(folder: Path, *, commit_every: int = 1, faults: str = "") -> str:
    """Run the scenario, with further faults, in ``folder`` to its end; return where its lake is."""
    scenario = SCENARIO.format(commit_every=commit_every) + user_calls(range(0, TICKS, 2), SENDS) + faults
    return lake_of(folder, scenario)
